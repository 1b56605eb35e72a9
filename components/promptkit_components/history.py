"""A recorded conversation as a prompt shows it: the newest turns, and a word about those that are gone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise

from promptkit import Child, Chunk, Group, KeepWith, Message, Metadata, PromptElement, Sizing, ToolMessage, UserMessage, component
from promptkit.elements import element_from_message
from promptkit.tool_pairing import pair_tool_calls
from promptkit_components.cut import truncate_output

__all__ = ["History", "describe_omitted"]


def describe_omitted(count: int) -> str:
    """The marker that stands where older messages were.

    >>> omitted(12)
    '[12 older messages omitted]'
    """
    return f"[{count:,} older message{'' if count == 1 else 's'} omitted]"


@component
class History(PromptElement):
    """A recorded conversation, the newest turn kept longest.

    A turn is a user message with all that answers it. Turns leave from the oldest on. A question with one answer leaves as a
    whole; of a longer turn, what the model said and did leaves from the oldest on, and the request last: no answer stands without
    its question. Calls and their results are one step. Where messages are gone, one marker says how many.

    Recordings are mended as `pair` says; every repair is reported in `rendered.repairs`. Cache boundaries of the recording are
    left out: what to cache is for the prompt to say.

    >>> from promptkit import render
    >>> turns = [
    ...     Message(role="user", content=("What is in the parser that I wrote on Monday?",)),
    ...     Message(role="assistant", content=("A recursive descent parser in one file of ninety lines.",)),
    ...     Message(role="user", content=("Does it have tests?",)),
    ...     Message(role="assistant", content=("No.",)),
    ... ]
    >>> for message in render(History(turns=turns), budget=35).messages:
    ...     print(f"{message.role}: {message.text}")
    user: [2 older messages omitted]
    user: Does it have tests?
    assistant: No.
    """

    turns: Sequence[Message]
    """Oldest first."""

    keep_turns: int = 0
    """The newest turns that are never pruned; a turn starts at a user message."""

    keep_system: bool = False
    """Show system messages of the recording in their place. Else they are left out: a prompt brings its own."""

    omitted_marker: bool | Callable[[int], str] = True
    """Whether a marker says how many messages are gone; a function of that number words it."""

    truncate_at: int | None = None
    """Tokens of one tool result; what is longer keeps its first 40 % and its last 60 %."""

    omit_over: int | None = None
    """Characters of a tool result above which it is replaced by `[output omitted]` before its call is pruned."""

    def render(self, sizing: Sizing) -> Child:
        """Repairs as metadata, then one element per turn; those of old turns are equal from render to render."""
        _ = sizing
        paired = pair_tool_calls(self.turns)
        shown = paired.messages if self.keep_system else tuple(m for m in paired.messages if m.role != "system")
        starts = [index for index, message in enumerate(shown) if message.role == "user" or index == 0]
        marker = (
            {True: describe_omitted, False: None}[self.omitted_marker] if isinstance(self.omitted_marker, bool) else self.omitted_marker
        )
        return (
            (Metadata(value=repair) for repair in paired.repairs),
            (
                _Turn(
                    priority=number,
                    required=number >= len(starts) - self.keep_turns,
                    messages=shown[start:end],
                    older=start,
                    conversation=(self.name, shown[0].text),
                    marker=marker,
                    truncate_at=self.truncate_at,
                    omit_over=self.omit_over,
                )
                for number, (start, end) in enumerate(pairwise([*starts, len(shown)]))
            ),
        )


@component
class _Turn(PromptElement):
    """A user message, and the steps that answer it: single messages, or calls with their results."""

    messages: tuple[Message, ...]
    older: int
    conversation: Hashable
    marker: Callable[[int], str] | None = None
    truncate_at: int | None = None
    omit_over: int | None = None

    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return tuple(self._steps())

    def _steps(self) -> Iterator[PromptElement]:
        asked = int(self.messages[0].role == "user")
        whole = self.older + len(self.messages)
        spans = list(_spans(self.messages, asked))
        if asked and len(spans) <= 1 and not any(map(self._is_large, self.messages)):
            yield self._step(self.messages, priority=None, before=self.older, after=whole)
            return
        if asked:
            # The request leaves last, when all else of its turn is gone.
            yield self._step(self.messages[:1], priority=None, before=whole - 1, after=whole)
        for number, (start, end) in enumerate(spans):
            gone = self.older - asked
            yield self._step(self.messages[start:end], priority=number, before=gone + start, after=gone + end)

    def _step(self, messages: tuple[Message, ...], *, priority: float | None, before: int, after: int) -> PromptElement:
        """A step that is pruned when `before` messages are gone, and leaves a marker that says that `after` are."""
        if any(map(self._is_large, messages)):
            first, *results = messages
            shown: Child = (
                element_from_message(first),
                (self._tool_result(m, priority=n, fallback=self._omitted_result(m)) for n, m in enumerate(results)),
            )
            return Group(priority=priority, fallback=self._marker(after))[shown]
        shown = tuple(map(self._tool_result, messages))
        if self.marker is None or self.required:
            return element_from_message(*messages, priority=priority) if len(messages) == 1 else Chunk(priority=priority)[shown]
        # The marker before this step leaves together with the step, so that there is no budget at which neither of two markers fits.
        together = Chunk()[shown] if before == 0 else shown
        return KeepWith(group=(self.conversation, before), priority=priority, fallback=self._marker(after))[together]

    def _tool_result(self, message: Message, *, priority: float | None = None, fallback: Child = None) -> PromptElement:
        most = self.truncate_at
        if most is None or message.role != "tool":
            return element_from_message(message, priority=priority, fallback=fallback)
        return element_from_message(message, priority=priority, fallback=fallback, text=lambda text: truncate_output(text, most))

    def _marker(self, count: int) -> Child:
        return KeepWith(group=(self.conversation, count))[UserMessage()[self.marker(count)]] if self.marker else None

    def _omitted_result(self, message: Message) -> Child:
        return ToolMessage(tool_call_id=message.tool_call_id or "")["[output omitted]"] if self._is_large(message) else None

    def _is_large(self, message: Message) -> bool:
        return self.omit_over is not None and message.role == "tool" and len(message.text) > self.omit_over


def _spans(messages: Sequence[Message], start: int) -> Iterator[tuple[int, int]]:
    while start < len(messages):
        end = start + 1
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        yield start, end
        start = end
