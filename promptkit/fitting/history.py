"""Recorded conversations as elements: `History`, and `RecordedMessages` below it.

They use the room that they have.

`RecordedMessages` decides with `fit_history` what is shortened. What then does not fit is pruned by
the render like any other content, in the same order, so a conversation is never above the budget,
also where its share of the budget was not known exactly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from operator import is_
from typing import TYPE_CHECKING, cast

import attrs

from promptkit.elements.builtin import Metadata, Rounds
from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing
from promptkit.errors import BadPropError
from promptkit.fitting.choose import FittedHistory, fit_history, split_blocks
from promptkit.fitting.shorten import shorten_message
from promptkit.messages import Message
from promptkit.pairing import ToolCallPairer
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
        key = self.keep_system, id(self.messages[0]) if self.messages else None
        recording = self._recall(sizing.memory.get(key))
        messages = list(recording.messages)
        whole = self._find_whole(messages)
        if self.keep is not None:
            whole |= {at for at, message in enumerate(recording.paired) if self.keep(message)}
        changed: dict[int, Message] = {}
        if self.truncate_at is not None:
            for at, message in enumerate(messages):
                cut = _truncate_result(message, self.truncate_at, sizing.tokenizer)
                if cut is not message:
                    changed[at] = messages[at] = cut
        fitted = None
        if len(whole) < len(messages):
            # the tokens of a message that was cut are not those of the recorded one
            tokens = [*recording.tokens] if changed else recording.tokens
            for at in changed:
                tokens[at] = -1
            fitted = self._fit(messages, tokens, whole, sizing)
            changed |= fitted.shortened
        shown = (
            [Metadata(value=repair) for repair in recording.pairer.repairs],
            self._build_rounds(recording, changed, whole, fitted),
        )
        sizing.memory[key] = recording
        recording.free = iter([True])  # from here on it may grow in another thread
        return shown

    def _recall(self, known: object) -> _Recording:
        """Return the recording of these messages: that of the last render, continued, or else a new one."""
        if (
            isinstance(known, _Recording)
            and next(known.free, False)
            and known.extend(self.messages)
        ):
            return known
        recording = _Recording(keep_system=self.keep_system)
        recording.extend(self.messages)
        return recording

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

    def _fit(
        self, messages: Sequence[Message], tokens: list[int], whole: set[int], sizing: Sizing
    ) -> FittedHistory:
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
            tokens=tokens,
        )

    def _build_rounds(
        self,
        recording: _Recording,
        changed: Mapping[int, Message],
        whole: set[int],
        fitted: FittedHistory | None,
    ) -> Child:
        """Return the rounds with their changed messages, in the order from the first that is pruned to the last."""
        starts, order = recording.starts, recording.order
        if not starts:
            return None
        rounds = [*recording.rounds]
        for place in {bisect_right(starts, at) - 1 for at in changed}:
            each, start = rounds[place], starts[place]
            rounds[place] = (
                changed[start]
                if isinstance(each, Message)
                else tuple([changed.get(at, message) for at, message in enumerate(each, start)])
            )
        priorities: Sequence[int] = range(len(order))
        required = whole.intersection(starts) if whole else set[int]()
        if self.keep_request:
            required.update(_find_request(recording.messages, starts))
        if required:
            priorities = [at for at, place in enumerate(order) if starts[place] not in required]
        order = list(map(order.__getitem__, priorities))
        unspent = 0 if fitted is None else fitted.unspent
        dropped = (
            len(order) - len(set(fitted.sources).intersection(map(starts.__getitem__, order)))
            if fitted is not None and unspent
            else 0
        )
        return Rounds(
            rounds=rounds,
            order=order,
            priorities=priorities,
            marker=self.marker,
            dropped=dropped,
            unspent=unspent,
            is_shown=True,
            pass_priority=True,
        )


@attrs.define(eq=False, kw_only=True)
class _Recording:
    """A recorded conversation as prompts show it.

    A render prepares it, and the next one adds the turns that are new.
    """

    keep_system: bool
    given: Sequence[Message] = ()
    paired: list[Message] = attrs.field(factory=list[Message])
    """The messages that are shown, as they were recorded or repaired."""
    messages: list[Message] = attrs.field(factory=list[Message])
    """The same messages, as a prompt shows them."""
    tokens: list[int] = attrs.field(factory=list[int])
    """The tokens of each, -1 for one that was not counted yet."""
    starts: list[int] = attrs.field(factory=list[int])
    """For each round, the index of its first message."""
    rounds: list[Message | tuple[Message, ...]] = attrs.field(
        factory=list["Message | tuple[Message, ...]"]
    )
    order: list[int] = attrs.field(factory=list[int])
    """The rounds from the first that is pruned: `order_newest` from its end.

    The oldest turn comes first, in it its replies from the oldest on, and then its user message.
    """
    pairer: ToolCallPairer = attrs.field(factory=ToolCallPairer)
    free: Iterator[bool] = attrs.field(factory=lambda: iter(list[bool]()))
    """Gives True to the one render that may continue it: another may do so in another thread. One
    that fails on a message, or later, is not free again."""
    _has_request: bool = attrs.field(default=False, init=False)

    def extend(self, given: Sequence[Message]) -> bool:
        """Add the messages that follow those that it has.

        Returns False, and is of no more use, if they do not follow these, or change one of them.
        """
        if len(given) < len(self.given) or not all(map(is_, self.given, given)):
            return False
        known, start = len(self.pairer.messages), len(self.messages)
        self.pairer.extend(given[len(self.given) :])
        if self.pairer.settle() < known:
            return False
        self.given = given
        paired = self.pairer.messages[known:]
        if not self.keep_system:
            paired = [message for message in paired if message.role != "system"]
        shown = list(map(show_message, paired))
        self.paired += compress(paired, shown)
        messages = list(filter(None, shown))
        self.messages += messages
        self.tokens += [-1] * len(messages)
        for first, end in split_blocks(messages):
            is_request, place = messages[first].role == "user", len(self.rounds)
            if is_request or not self._has_request:
                self.order.append(place)
            else:
                self.order.insert(-1, place)  # before the request
            self._has_request |= is_request
            self.starts.append(start + first)
            self.rounds.append(messages[first] if end - first == 1 else tuple(messages[first:end]))
        return True


def _find_request(messages: Sequence[Message], starts: Sequence[int]) -> list[int]:
    """Return the first indices of the rounds that a request always has: the last user message, and the newest round."""
    users = [at for at in starts if messages[at].role == "user"]
    rounds = [at for at in starts if messages[at].role != "system"]
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
    return (
        message
        # a token has at least one byte
        if message.role != "tool" or len(message.text.encode("utf-8", "surrogatepass")) <= tokens
        else shorten_message(
            message, tokens + count_frame(message, tokenizer).tokens, tokenizer=tokenizer
        )
    )
