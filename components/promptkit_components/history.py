"""A recorded conversation as a prompt shows it: the newest turns, and a word about those that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from promptkit import Child, Message, Metadata, PromptElement, Sizing, ToolMessage, UserMessage, component
from promptkit_components.pairing import pair
from promptkit_components.recorded import recorded

__all__ = ["History", "omitted"]


def omitted(count: int) -> str:
    """The marker that stands where older messages were.

    >>> omitted(12)
    '[12 older messages omitted]'
    """
    return f"[{count:,} older message{'' if count == 1 else 's'} omitted]"


@component
class History(PromptElement):
    """A recorded conversation, the newest turn kept longest.

    A turn is a user message with all that answers it. Turns leave from the oldest on; within a turn, what the model said and
    did leaves from the oldest on, and the request last, so that no answer stands without its question. A call and its results
    leave together. Where messages are gone, one marker says how many.

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
        paired = pair(self.turns)
        shown = paired.messages if self.keep_system else tuple(m for m in paired.messages if m.role != "system")
        starts = [index for index, message in enumerate(shown) if message.role == "user" or index == 0]
        marker = {True: omitted, False: None}[self.omitted_marker] if isinstance(self.omitted_marker, bool) else self.omitted_marker
        return (
            (Metadata(value=repair) for repair in paired.repairs),
            (
                _Turn(
                    priority=number,
                    required=number >= len(starts) - self.keep_turns,
                    messages=shown[start:end],
                    older=start,
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
    marker: Callable[[int], str] | None = None
    truncate_at: int | None = None
    omit_over: int | None = None

    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return tuple(self._steps())

    def _steps(self) -> Iterator[PromptElement]:
        gone = self.older
        asked = self.messages[0].role == "user"
        if asked:
            # The request leaves last, so its marker counts the whole turn.
            yield self._step(self.messages[:1], priority=None, gone=self.older + len(self.messages))
        for number, (start, end) in enumerate(_spans(self.messages, int(asked))):
            gone += end - start
            yield self._step(self.messages[start:end], priority=number, gone=gone)

    def _step(self, messages: tuple[Message, ...], *, priority: float | None, gone: int) -> PromptElement:
        marker = UserMessage()[self.marker(gone)] if self.marker else None
        if len(messages) == 1:
            return recorded(messages[0], priority=priority, fallback=marker)
        return _Round(priority=priority, messages=messages, truncate_at=self.truncate_at, omit_over=self.omit_over, fallback=marker)


def _spans(messages: Sequence[Message], start: int) -> Iterator[tuple[int, int]]:
    while start < len(messages):
        end = start + 1
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        yield start, end
        start = end


@component
class _Round(PromptElement):
    """Calls and their results: results leave first, the oldest before the others and each with its call; what the model said, last."""

    messages: tuple[Message, ...]
    truncate_at: int | None = None
    omit_over: int | None = None

    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        first, *results = self.messages
        return (recorded(first), (self._result(message, number) for number, message in enumerate(results)))

    def _result(self, message: Message, number: int) -> PromptElement:
        large = self.omit_over is not None and len(message.text) > self.omit_over
        fallback = ToolMessage(tool_call_id=message.tool_call_id or "")["[output omitted]"] if large else None
        return recorded(message, priority=number, truncate_at=self.truncate_at, fallback=fallback)
