"""Recorded conversations as elements: `History`, and `RecordedMessages` below it.

They use the room that they have.

`RecordedMessages` decides with `fit_history` what is shortened. What then does not fit is pruned by
the render like any other content, in the same order, so a conversation is never above the budget,
also where its share of the budget was not known exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, cast

import attrs

from promptkit.elements.builtin import Metadata, Rounds
from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing
from promptkit.errors import BadPropError
from promptkit.fitting.choose import FittedHistory, fit_history, split_blocks
from promptkit.fitting.shorten import shorten_message
from promptkit.messages import Message, Role
from promptkit.pairing import pair_tool_calls
from promptkit.rendering.expand.build import show_message
from promptkit.tokens.tokenizer import count_frame, count_message

if TYPE_CHECKING:
    from promptkit.tokens import Tokenizer


def _freeze(messages: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(messages)


@component(pure=True)
class History(PromptElement):
    """A recorded conversation that uses its room: the newest messages are kept longest, and long ones are shortened to fit.

    It shows `turns` as `RecordedMessages` does, without the system messages of the recording. One
    marker tells how many messages were pruned.

    >>> from promptkit import History, Message, render
    >>> turns = [
    ...     Message(role="user", content=("What is in the parser that I wrote on Monday?",)),
    ...     Message(role="assistant", content=("A recursive descent parser in one file of ninety lines.",)),
    ...     Message(role="user", content=("Does it have tests?",)),
    ...     Message(role="assistant", content=("No.",)),
    ... ]
    >>> for message in render(History(turns=turns), budget=35).messages:
    ...     print(f"{message.role}: {message.text}")
    user: [2 messages omitted]
    user: Does it have tests?
    assistant: No.
    """

    turns: Sequence[Message] = attrs.field(converter=_freeze)
    """The recorded messages, oldest first. They are kept as a tuple: create a new History when
    messages have been added."""

    flex_grow: float | None = 0
    """The history is sized after siblings without `flex_grow`, and gets the tokens that they
    leave."""

    keep_turns: int = 0
    """The number of newest turns that are never pruned, and never shortened. A turn starts at a
    user message."""

    keep_system: bool = False
    """True: system messages of the recording are shown, and never pruned. False: they are dropped,
    since a prompt has its own."""

    omitted_marker: bool | Callable[[int], str] = True
    """True: a marker tells how many messages were pruned. False: nothing replaces them. A function
    gets the number of pruned messages and returns the text of the marker."""

    shorten: bool = True
    """True: older messages may be shortened. False, and in a render with a `prune_step`: their
    rounds are shown whole, or pruned."""

    truncate_at: int | None = None
    """The most tokens of one tool result, however large the budget is. A longer result keeps a head
    (40 %) and a tail (60 %)."""

    def render(self, sizing: Sizing) -> Child:
        """Return the messages, as `RecordedMessages` renders them."""
        marker = self.omitted_marker
        return RecordedMessages(
            label=self.label,
            messages=self.turns,
            keep_turns=self.keep_turns,
            keep_system=self.keep_system,
            marker={True: describe_omitted, False: None}[marker]
            if isinstance(marker, bool)
            else marker,
            shorten=self.shorten,
            truncate_at=self.truncate_at,
        ).render(sizing)


def describe_omitted(count: int) -> str:
    """Return the default text of the marker that replaces pruned messages.

    >>> describe_omitted(12)
    '[12 messages omitted]'
    """
    return f"[{count:,} message{'' if count == 1 else 's'} omitted]"


@component(pure=True)
class RecordedMessages(PromptElement):
    """A recorded conversation, whose newest messages are kept longest and whose long messages are shortened to fit.

    What does not fit the element's share of the budget is decided in this order:

    1. Long tool results and messages of older rounds are shortened to a share of the budget: head
       and tail stay.
    2. The oldest rounds are pruned. In a turn the user message is pruned last, so no answer is
       shown without its question. A tool call and its results are pruned together. The first round
       that does not fit is shortened to the tokens that are left.
    3. Tokens that are left over lengthen the newest shortened results again.
    4. The last user message and the newest round stay. They are shortened if they must be, the user
       message last.

    A larger budget shows every message that a smaller one shows. With `shorten=False`, and in a
    render with a `prune_step`, which holds the prefix of the prompt for a provider's cache, older
    rounds are shown whole, or pruned.

    Recordings are repaired as `pair_tool_calls` describes; `rendered.repairs` reports every repair.
    Cache breakpoints of the recording are dropped: the prompt sets its own. The component is pure,
    so the functions among its props must depend on their arguments alone.

    >>> RecordedMessages(messages=[Message(role="user", content=("Fix the parser.",))], keep_turns=1)
    """

    messages: Sequence[Message] = attrs.field(converter=_freeze)
    """The messages, oldest first. They are kept as a tuple: what is appended to a list later is not
    in the element."""

    flex_grow: float | None = 0
    """The conversation is sized after siblings without `flex_grow`, and gets the tokens that they
    leave."""

    keep_turns: int = 0
    """The number of newest turns that are never pruned, and never shortened. A turn starts at a
    user message."""

    keep_system: bool = True
    """True: system messages of the recording are shown, never pruned and never shortened. False:
    they are dropped."""

    keep: Callable[[Message], bool] | None = None
    """Returns whether a message is never pruned and never shortened."""

    keep_request: bool = False
    """True: the last user message and the newest round are required. They may be shortened. If they
    do not fit, the render raises."""

    marker: Callable[[int], str] | None = None
    """Returns the text of the user message that replaces pruned messages, given their number. None:
    nothing replaces them."""

    shorten: bool = True
    """True: older messages may be shortened. False: their rounds are shown whole, or pruned, and
    only what always stays is shortened if it must be."""

    truncate_at: int | None = None
    """The most tokens of the text of one tool result, however large the budget is. A longer one
    keeps its head and its tail."""

    cut_marker: Callable[[Message], str | None] | None = None
    """Returns the text that stands in a shortened message where something is missing, for example
    how to read the rest. It is used where it takes at most half of the shortened text. None:
    `[… cut …]`."""

    def render(self, sizing: Sizing) -> Child:
        """Return the repairs as metadata, and the rounds."""
        _require_number("keep_turns", self.keep_turns, least=0)
        if self.truncate_at is not None:
            _require_number("truncate_at", self.truncate_at, least=1)
        paired = pair_tool_calls(self.messages)
        given: Sequence[Message] = paired.messages
        if not self.keep_system:
            given = [message for message in given if message.role != "system"]
        shown = list(map(show_message, given))
        messages = list(filter(None, shown))
        whole = self._find_whole(messages)
        if self.keep is not None:
            not_blank = compress(given, map(bool, shown))
            whole |= {at for at, message in enumerate(not_blank) if self.keep(message)}
        if self.truncate_at is not None:
            messages = [
                _truncate_result(message, self.truncate_at, sizing.tokenizer)
                for message in messages
            ]
        fitted = self._fit(messages, whole, sizing) if len(whole) < len(messages) else None
        if fitted is not None:
            for at, message in zip(fitted.sources, fitted.messages, strict=True):
                messages[at] = message
        return (Metadata(value=repair) for repair in paired.repairs), self._build_rounds(
            messages, whole, fitted
        )

    def _find_whole(self, messages: Sequence[Message]) -> set[int]:
        """Return the indices of system messages and of the newest turns, which are never pruned and never shortened."""
        whole = set[int]()
        if self.keep_system:
            whole.update(at for at, message in enumerate(messages) if message.role == "system")
        if self.keep_turns:
            starts = [
                at for at, message in enumerate(messages) if message.role == "user" or at == 0
            ]
            whole.update(
                range(
                    starts[-self.keep_turns] if self.keep_turns < len(starts) else 0, len(messages)
                )
            )
        return whole

    def _fit(self, messages: Sequence[Message], whole: set[int], sizing: Sizing) -> FittedHistory:
        """Shorten messages so that they fit the share of the budget together."""
        budget, tokenizer, marker = sizing.token_budget, sizing.tokenizer, self.marker
        return fit_history(
            messages,
            budget,
            tokenizer=tokenizer,
            shorten="any" if self.shorten and not sizing.prune_step else "request",
            whole=whole,
            count_marker=None
            if marker is None
            else lambda count: count_message(_build_marker(marker, count), tokenizer),
            cut_marker=self.cut_marker,
            count=sizing.count_message,
        )

    def _build_rounds(
        self, messages: Sequence[Message], whole: set[int], fitted: FittedHistory | None
    ) -> Child:
        """Divide the messages into rounds, and order these from the first that is pruned to the last."""
        if not messages:
            return None
        recorded = tuple(messages)
        blocks = split_blocks(messages)
        order = _order_pruned([messages[start].role for start, _ in blocks])
        priorities: Sequence[int] = range(len(order))
        required = whole.intersection([start for start, _ in blocks]) if whole else set[int]()
        if self.keep_request:
            required.update(_find_request(messages, blocks))
        if required:
            prunable = [
                (priority, place)
                for priority, place in enumerate(order)
                if blocks[place][0] not in required
            ]
            priorities, order = (
                [priority for priority, _ in prunable],
                [place for _, place in prunable],
            )
        unspent, dropped = 0, 0
        if fitted is not None and fitted.unspent:
            kept = set(fitted.sources)
            unspent = fitted.unspent
            dropped = sum([blocks[place][0] not in kept for place in order])
        return Rounds(
            rounds=[
                recorded[start] if end - start == 1 else recorded[start:end]
                for start, end in blocks
            ],
            order=order,
            priorities=priorities,
            marker=self.marker,
            dropped=dropped,
            unspent=unspent,
            pass_priority=True,
        )


def _order_pruned(roles: Sequence[Role]) -> list[int]:
    """Order rounds by the roles of their first messages, from the first that is pruned: `order_newest` from its end.

    The oldest turn comes first, in it its replies from the oldest on, and then its user message.
    """
    order: list[int] = []
    request: int | None = None
    for place, role in enumerate(roles):
        if role != "user":
            order.append(place)
            continue
        if request is not None:
            order.append(request)
        request = place
    return order if request is None else [*order, request]


def _find_request(messages: Sequence[Message], blocks: Sequence[tuple[int, int]]) -> list[int]:
    """Return the first indices of the blocks that a request always has: the last user message, and the newest round."""
    users = [block[0] for block in blocks if messages[block[0]].role == "user"]
    rounds = [block[0] for block in blocks if messages[block[0]].role != "system"]
    return [*users[-1:], *rounds[-1:]]


def _build_marker(marker: Callable[[int], str], count: int) -> Message:
    text = marker(count)
    if not isinstance(cast("object", text), str):  # callers without a type checker return anything
        raise BadPropError(
            f"the function of the marker must return a text, not {text!r:.80}: write lambda count: f'[{{count}} omitted]'."
        )
    return Message(role="user", content=(text,))


def _require_number(prop: str, value: int, *, least: int) -> None:
    # as above
    if not isinstance(cast("object", value), int) or isinstance(value, bool) or value < least:
        raise BadPropError(f"{prop} must be a whole number of at least {least}, not {value!r:.80}.")


def _truncate_result(message: Message, tokens: int, tokenizer: Tokenizer) -> Message:
    """Truncate the text of a tool result."""
    if message.role != "tool" or len(message.text.encode("utf-8", "surrogatepass")) <= tokens:
        return message  # a token has at least one byte
    return shorten_message(
        message, tokens + count_frame(message, tokenizer).tokens, tokenizer=tokenizer
    )
