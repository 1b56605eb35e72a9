"""Recorded messages as elements: one message, or a conversation that uses the room that it has.

`RecordedMessages` decides with `fit_history` what is shortened. What then does not fit is pruned by the render like any other content,
in the same order, so a conversation is never above the budget, also where its share of the budget was not known exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs

from promptkit.element import Child, PromptElement, Sizing, component
from promptkit.elements.chat import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from promptkit.elements.fit_history import fit_history, order_newest, shorten_message, split_blocks
from promptkit.elements.layout import Chunk, Group, KeepWith
from promptkit.elements.media import Document, Image, Metadata, Opaque
from promptkit.errors import BadPropError
from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, Message, OpaquePart
from promptkit.tokens.tokenizer import count_frame, count_message
from promptkit.tool_pairing import pair_tool_calls

if TYPE_CHECKING:
    from promptkit.messages import Part
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["RecordedMessages", "element_from_message"]


@component
class RecordedMessages(PromptElement):
    """A recorded conversation, whose newest messages are kept longest and whose long messages are shortened to fit.

    What does not fit the element's share of the budget is decided in this order:

    1. Long tool results and messages of older rounds are shortened to a share of the budget: head and tail stay.
    2. The oldest rounds are pruned. In a turn the user message is pruned last, so no answer is shown without its question. A tool call
       and its results are pruned together. The first round that does not fit is shortened to the tokens that are left.
    3. Tokens that are left over lengthen the newest shortened results again.
    4. The last user message and the newest round stay. They are shortened if they must be, the user message last.

    A larger budget shows every message that a smaller one shows. With `shorten=False`, and in a render with a `prune_step`, which holds
    the prefix of the prompt for a provider's cache, older rounds are shown whole, or pruned.

    Recordings are repaired as `pair_tool_calls` describes; `rendered.repairs` reports every repair. Cache breakpoints of the recording
    are dropped: the prompt sets its own.

    >>> RecordedMessages(messages=[Message(role="user", content=("Fix the parser.",))], keep_turns=1)
    """

    messages: Sequence[Message]
    """The messages, oldest first."""

    flex_grow: float | None = 0
    """The conversation is sized after siblings without `flex_grow`, and gets the tokens that they leave."""

    keep_turns: int = 0
    """The number of newest turns that are never pruned, and never shortened. A turn starts at a user message."""

    keep_system: bool = True
    """True: system messages of the recording are shown, never pruned and never shortened. False: they are dropped."""

    keep: Callable[[Message], bool] | None = None
    """Returns whether a message is never pruned and never shortened."""

    keep_request: bool = False
    """True: the last user message and the newest round are required. They may be shortened. If they do not fit, the render raises."""

    marker: Callable[[int], str] | None = None
    """Returns the text of the user message that replaces pruned messages, given their number. None: nothing replaces them."""

    shorten: bool = True
    """True: older messages may be shortened. False: their rounds are shown whole, or pruned, and only what always stays is
    shortened if it must be."""

    truncate_at: int | None = None
    """The most tokens of the text of one tool result, however large the budget is. A longer one keeps its head and its tail."""

    cut_marker: Callable[[Message], str | None] | None = None
    """Returns the text that stands in a shortened message where something is missing, for example how to read the rest. It is used where it
    takes at most half of the shortened text. None: `[… cut …]`."""

    def render(self, sizing: Sizing) -> Child:
        """Return the repairs as metadata, then one element per round. The elements of old rounds are equal from render to render."""
        _require_number("keep_turns", self.keep_turns, least=0)
        if self.truncate_at is not None:
            _require_number("truncate_at", self.truncate_at, least=1)
        paired = pair_tool_calls(self.messages)
        shown = [message for message in paired.messages if self.keep_system or message.role != "system"]
        whole = self._find_whole(shown)  # `keep` is asked about the messages that were given
        messages = list(map(_join_texts, shown))
        if len(whole) < len(messages):
            self._shorten(messages, whole, sizing)
        return (Metadata(value=repair) for repair in paired.repairs), self._build_rounds(messages, whole)

    def _find_whole(self, messages: Sequence[Message]) -> frozenset[int]:
        """Return the indices of messages that are never pruned and never shortened."""
        starts = [at for at, message in enumerate(messages) if message.role == "user" or at == 0]
        kept = (
            range(starts[-self.keep_turns] if self.keep_turns < len(starts) else 0, len(messages))
            if self.keep_turns and starts
            else range(0)
        )
        keep = self.keep
        always = (at for at, message in enumerate(messages) if message.role == "system" or (keep is not None and keep(message)))
        return frozenset(chain(kept, always))

    def _shorten(self, messages: list[Message], whole: frozenset[int], sizing: Sizing) -> None:
        """Replace messages by shortened ones that fit the share of the budget together."""
        budget, tokenizer, marker = sizing.token_budget, sizing.tokenizer, self.marker
        fitted = fit_history(
            messages,
            budget,
            tokenizer=tokenizer,
            shorten="any" if self.shorten and not sizing.prune_step else "request",
            whole=whole,
            truncate_at=self.truncate_at,
            count_marker=None if marker is None else lambda count: count_message(_build_marker(marker, count), tokenizer),
            cut_marker=self.cut_marker,
        )
        for at, message in zip(fitted.sources, fitted.messages, strict=True):
            messages[at] = message

    def _build_rounds(self, messages: Sequence[Message], whole: frozenset[int]) -> list[PromptElement]:
        """Build the elements of the rounds, in the order of the conversation, in runs of a fixed length."""
        if not messages:
            return []
        blocks = split_blocks(messages)
        required = {block[0] for block in blocks if block[0] in whole}
        if self.keep_request:
            required |= set(_find_request(messages, blocks))
        labels = _describe_rounds(messages, blocks)
        rounds: dict[int, _Round] = {}
        pruned = 0
        order = order_newest(messages, blocks)
        last = next((block for block in order if block[0] not in required), None)
        for priority, block in enumerate(reversed(order)):
            stays = block[0] in required
            place = None if stays else (pruned, pruned == 0 or block is last)
            rounds[block[0]] = tuple(messages[at] for at in block), labels[block[0]], priority, place
            pruned += 0 if stays else len(block)
        ordered = [rounds[block[0]] for block in blocks]
        return [
            _Rounds(
                rounds=tuple(ordered[start : start + RUN]),
                pass_priority=True,
                conversation=(self.label, messages[0].text),
                marker=self.marker,
                truncate_at=self.truncate_at,
            )
            for start in range(0, len(ordered), RUN)
        ]


RUN = 16
"""Rounds whose elements are kept together between renders: only a run with a new or changed round is built again."""

_Round: TypeAlias = "tuple[tuple[Message, ...], str, float, tuple[int, bool] | None]"
"""The messages of a round, its label, its priority, and its place in the order of pruning; None if it is never pruned.

The place is the number of messages that are pruned before it, and whether it is the first or the last round that is pruned.
"""


@component
class _Rounds(PromptElement):
    """A run of rounds. The children are the same at every budget, so they are kept between renders."""

    rounds: tuple[_Round, ...]
    conversation: Hashable
    """A value that tells this conversation from others in the prompt."""
    marker: Callable[[int], str] | None
    truncate_at: int | None

    def render(self, sizing: Sizing) -> Child:
        return [self._build_round(*each, sizing.tokenizer) for each in self.rounds]

    def _build_round(
        self, messages: Sequence[Message], label: str, priority: float, place: tuple[int, bool] | None, tokenizer: Tokenizer
    ) -> PromptElement:
        shown = [element_from_message(_truncate_result(message, self.truncate_at, tokenizer)) for message in messages]
        if place is None:
            return Group(label=label, required=True)[shown]
        if self.marker is None:
            return Chunk(label=label, priority=priority)[shown]
        before, is_end = place
        after = before + len(messages)
        marker = KeepWith(group=(self.conversation, after), label="marker")[element_from_message(_build_marker(self.marker, after))]
        if is_end:  # No marker is before the first round. The one before the last leaves first: it must not cost the last its place.
            return Chunk(label=label, priority=priority, fallback=marker)[shown]
        # The marker before this round is pruned together with the round, so that at every budget one of two markers fits.
        return KeepWith(group=(self.conversation, before), label=label, priority=priority, fallback=marker)[shown]


def _describe_rounds(messages: Sequence[Message], blocks: Sequence[range]) -> dict[int, str]:
    """Return the labels of rounds by their first index, in the words of who reads a receipt: `turn 3 · run_tests result`."""
    labels: dict[int, str] = {}
    turn = 0
    for block in blocks:
        first = messages[block[0]]
        turn += first.role == "user" or not turn
        names = ", ".join(dict.fromkeys(call.name for call in first.tool_calls))
        kind = {"user": "request", "assistant": "reply", "system": "system message", "tool": "result"}[first.role]
        labels[block[0]] = f"turn {turn} · {names} result{'' if len(first.tool_calls) == 1 else 's'}" if names else f"turn {turn} · {kind}"
    return labels


def _find_request(messages: Sequence[Message], blocks: Sequence[range]) -> list[int]:
    """Return the first indices of the blocks that a request always has: the last user message, and the newest round."""
    users = [block[0] for block in blocks if messages[block[0]].role == "user"]
    rounds = [block[0] for block in blocks if messages[block[0]].role != "system"]
    return [*users[-1:], *rounds[-1:]]


def _build_marker(marker: Callable[[int], str], count: int) -> Message:
    text = marker(count)
    if not isinstance(cast("object", text), str):  # callers without a type checker return anything
        problem = f"the function of the marker must return a text, not {text!r:.80}: write lambda count: f'[{{count}} omitted]'."
        raise BadPropError(problem)
    return Message(role="user", content=(text,))


def _require_number(prop: str, value: int, *, least: int) -> None:
    if not isinstance(cast("object", value), int) or isinstance(value, bool) or value < least:  # as above
        problem = f"{prop} must be a whole number of at least {least}, not {value!r:.80}."
        raise BadPropError(problem)


def _truncate_result(message: Message, tokens: int | None, tokenizer: Tokenizer) -> Message:
    """Truncate the text of a tool result."""
    if tokens is None or message.role != "tool" or len(message.text.encode("utf-8", "surrogatepass")) <= tokens:
        return message  # a token has at least one byte
    return shorten_message(message, tokens + count_frame(message, tokenizer).tokens, tokenizer=tokenizer)


def _join_texts(message: Message) -> Message:
    """Join adjacent texts of a message, and drop empty ones and cache breakpoints, as a render does, so that it is counted as it is sent."""
    content = message.content
    if len(content) < 2 and content != ("",):  # noqa: PLR2004  # parts
        return message
    parts: list[Part] = []
    for part in content:
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        elif part and not isinstance(part, CacheBreakpointPart):
            parts.append(part)
    return message if len(parts) == len(content) else attrs.evolve(message, content=tuple(parts))


def element_from_message(
    message: Message,
    *,
    priority: float | None = None,
    required: bool = False,
    fallback: Child = None,
    text: Callable[[str], Child] | None = None,
) -> PromptElement:
    """Return the element that renders as a message. Cache breakpoints of the message are dropped: the prompt sets its own.

    Args:
        message: The message.
        priority: The priority of the element.
        required: Whether the element is never pruned.
        fallback: The replacement of the element once it is pruned.
        text: Returns what to show for the message's text, for example a truncated text. The text parts are then joined and come
            before the other parts. None shows all parts as they are.

    >>> element_from_message(Message(role="user", content=("Fix the parser.",)), priority=5)
    """
    content = _build_content(message, text)
    match message.role:
        case "system":
            return SystemMessage(priority=priority, required=required, fallback=fallback, name=message.name or None)[content]
        case "user":
            return UserMessage(priority=priority, required=required, fallback=fallback, name=message.name or None)[content]
        case "assistant":
            assistant = AssistantMessage(
                priority=priority, required=required, fallback=fallback, name=message.name or None, tool_calls=message.tool_calls
            )
            return assistant[content]
        case "tool":
            result = ToolMessage(
                priority=priority, required=required, fallback=fallback, name=message.name or None, tool_call_id=message.tool_call_id or ""
            )
            return result[content]


def _build_content(message: Message, text: Callable[[str], Child] | None) -> Child:
    parts = [_build_part(part) for part in message.content]
    if text is None:
        return parts
    return text(message.text) if message.text else None, [part for part in parts if not isinstance(part, str)]


def _build_part(part: Part) -> str | PromptElement | None:
    match part:
        case str():
            return part
        case ImagePart():
            return Image(src=part.url, detail=part.detail, media_type=part.media_type, width=part.width, height=part.height)
        case DocumentPart():
            return Document(data=part.data, media_type=part.media_type, filename=part.name, tokens=part.tokens)
        case OpaquePart():
            return Opaque(value=part.value, tokens=part.tokens, provider=part.provider)
        case CacheBreakpointPart():
            return None
