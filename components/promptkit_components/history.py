"""`History`: a recorded conversation in a prompt, with a marker in place of the pruned messages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise

from promptkit import Child, Chunk, Group, KeepWith, Message, Metadata, PromptElement, Sizing, ToolMessage, UserMessage, component
from promptkit.elements import element_from_message
from promptkit.tool_pairing import pair_tool_calls
from promptkit_components.truncation import truncate_output

__all__ = ["History", "describe_omitted"]


def describe_omitted(count: int) -> str:
    """Return the default text of the marker that replaces pruned messages.

    >>> describe_omitted(12)
    '[12 older messages omitted]'
    """
    return f"[{count:,} older message{'' if count == 1 else 's'} omitted]"


@component
class History(PromptElement):
    """A recorded conversation, whose newest turns are kept longest.

    A turn is a user message with everything that answers it. The oldest turn is pruned first. A turn with one answer is pruned as
    a whole. A longer turn is pruned step by step from the oldest step on, and its user message last, so no answer is shown without
    its question. A tool call and its results are one step. One marker tells how many messages were pruned.

    Recordings are repaired as `pair_tool_calls` describes; `rendered.repairs` reports every repair. Cache breakpoints of the
    recording are dropped: the prompt sets its own.

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
    """The recorded messages, oldest first."""

    keep_turns: int = 0
    """The number of newest turns that are never pruned. A turn starts at a user message."""

    keep_system: bool = False
    """Whether system messages of the recording are shown. They are dropped by default, since a prompt has its own."""

    omitted_marker: bool | Callable[[int], str] = True
    """Whether a marker replaces pruned messages. A function gets their number and returns the text of the marker."""

    truncate_at: int | None = None
    """The maximum tokens of one tool result. A longer result keeps a head (40 %) and a tail (60 %)."""

    omit_over: int | None = None
    """The length in characters above which a tool result is replaced by `[output omitted]` before its call is pruned."""

    def render(self, sizing: Sizing) -> Child:
        """Return the repairs as metadata, then one element per turn. The elements of old turns are equal from render to render."""
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
                    conversation=(self.label, shown[0].text),
                    marker=marker,
                    truncate_at=self.truncate_at,
                    omit_over=self.omit_over,
                )
                for number, (start, end) in enumerate(pairwise([*starts, len(shown)]))
            ),
        )


@component
class _Turn(PromptElement):
    """A user message and the steps that answer it: single messages, or tool calls with their results."""

    messages: tuple[Message, ...]
    older: int
    """The number of messages before this turn."""
    conversation: Hashable
    """A value that tells this conversation from others in the prompt."""
    marker: Callable[[int], str] | None = None
    truncate_at: int | None = None
    omit_over: int | None = None

    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return tuple(self._build_steps())

    def _build_steps(self) -> Iterator[PromptElement]:
        has_request = int(self.messages[0].role == "user")
        end_of_turn = self.older + len(self.messages)
        spans = list(_spans(self.messages, has_request))
        if has_request and len(spans) <= 1 and not any(map(self._is_large, self.messages)):
            yield self._build_step(self.messages, priority=None, before=self.older, after=end_of_turn)
            return
        if has_request:
            # The user message is pruned last, after everything else of its turn.
            yield self._build_step(self.messages[:1], priority=None, before=end_of_turn - 1, after=end_of_turn)
        for number, (start, end) in enumerate(spans):
            pruned = self.older - has_request
            yield self._build_step(self.messages[start:end], priority=number, before=pruned + start, after=pruned + end)

    def _build_step(self, messages: tuple[Message, ...], *, priority: float | None, before: int, after: int) -> PromptElement:
        """Return a step that is pruned when `before` messages are pruned, and leaves a marker for `after` pruned messages."""
        if any(map(self._is_large, messages)):
            first, *results = messages
            shown: Child = (
                element_from_message(first),
                (self._truncate_result(m, priority=n, fallback=self._build_omitted_result(m)) for n, m in enumerate(results)),
            )
            return Group(priority=priority, fallback=self._build_marker(after))[shown]
        shown = tuple(map(self._truncate_result, messages))
        if self.marker is None or self.required:
            return element_from_message(*messages, priority=priority) if len(messages) == 1 else Chunk(priority=priority)[shown]
        # The marker before this step is pruned together with the step, so that at every budget one of two markers fits.
        together = Chunk()[shown] if before == 0 else shown
        return KeepWith(group=(self.conversation, before), priority=priority, fallback=self._build_marker(after))[together]

    def _truncate_result(self, message: Message, *, priority: float | None = None, fallback: Child = None) -> PromptElement:
        limit = self.truncate_at
        if limit is None or message.role != "tool":
            return element_from_message(message, priority=priority, fallback=fallback)
        return element_from_message(message, priority=priority, fallback=fallback, text=lambda text: truncate_output(text, limit))

    def _build_marker(self, count: int) -> Child:
        return KeepWith(group=(self.conversation, count))[UserMessage()[self.marker(count)]] if self.marker else None

    def _build_omitted_result(self, message: Message) -> Child:
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
