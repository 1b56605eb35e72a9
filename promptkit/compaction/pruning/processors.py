"""Processors: functions that change the messages of a request before it is rendered. Nothing of it is written to the transcript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.compaction.pruning.messages import HEADROOM, cap_results, drop_images, find_tool_names, replace_messages, truncate_messages
from promptkit.errors import BudgetExceededError
from promptkit.messages import Message
from promptkit.rendering.sizing import Sizer
from promptkit.transcript.view import ViewItem

if TYPE_CHECKING:
    from collections.abc import Collection

    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.view import TranscriptView

__all__ = [
    "LastResort",
    "Processor",
    "RequestLimits",
    "ViewProcessor",
    "cap_tool_results",
    "clear_results",
    "remove_images",
    "truncate_history",
]

STEP = 0.25
"""Share of the limit that is dropped at once, so that the next requests begin with the same bytes, for the provider's prompt cache."""


@attrs.frozen(kw_only=True)
class RequestLimits:
    """The limits of a request, and its circumstances."""

    limit: int | None
    """Limit of the request in tokens, fixed tokens included. None: unknown, or the request is not pruned."""
    fixed_tokens: int
    """Tokens that every request has besides the conversation: system prompt, tools, framing."""
    tokenizer: Tokenizer
    pruned: bool = False
    """Whether messages may be dropped, as no summary reduced the request."""
    request: Message | None = None
    """The last message that the user wrote, in a request that is pruned. Messages of the program may follow it."""
    count_message: Callable[[Message], int] = attrs.field(
        default=attrs.Factory(lambda self: Sizer(self.tokenizer).count_message, takes_self=True), eq=False, repr=False
    )
    """Counts the tokens of a message. In a window, each message is counted once for all of its requests."""


Processor: TypeAlias = Callable[[Sequence[Message], RequestLimits], Sequence[Message]]
"""Returns the messages of a request as they are rendered. Must be idempotent.

The size of a conversation, which thresholds are compared with, is that of its processed messages. Only in a request that must be pruned
does a processor learn the limit: what shortens messages to make them fit must not hide that a conversation grows.
"""


@attrs.frozen
class LastResort:
    """A processor of pruned requests alone. The messages of other requests are not looked at."""

    process: Processor

    def __call__(self, messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
        """Process the messages of a pruned request, and return others as they are."""
        return self.process(messages, limits) if limits.pruned else messages


class ViewProcessor:
    """Applies processors to the views of one conversation. The view that was processed last is not processed again."""

    def __init__(self, processors: Sequence[Processor] = ()) -> None:
        self._processors = tuple(processors)
        self._unconditional = tuple(process for process in processors if not isinstance(process, LastResort))
        self._last: tuple[TranscriptView, RequestLimits, TranscriptView] | None = None

    def process(self, view: TranscriptView, limits: RequestLimits) -> TranscriptView:
        """Return a view with the messages that a request shows: the same view if the processors change nothing.

        A message that replaces one at the same place comes from the same entry, and one that equals its last version is the same object.
        """
        processors = self._processors if limits.pruned else self._unconditional
        if not processors:
            return view
        last = self._last
        if last is not None and last[0] is view and last[1] == limits:
            return last[2]
        messages: Sequence[Message] = view.messages
        for process in processors:
            messages = process(messages, limits)
        processed = view if messages is view.messages else _show(view, tuple(messages), () if last is None else last[2].items)
        if not limits.pruned:
            self._last = view, limits, processed
        return processed


def _show(view: TranscriptView, messages: Sequence[Message], earlier: Sequence[ViewItem]) -> TranscriptView:
    """Return a view with other messages. Items of an earlier one are used again where they are equal."""
    items = view.items
    if len(messages) == len(items):
        shown = [
            item if message is item.message else attrs.evolve(item, message=message) for item, message in zip(items, messages, strict=True)
        ]
    else:
        known = {id(item.message): item for item in items}
        shown = [known.get(id(message)) or ViewItem(message=message, entry_id="") for message in messages]
    for at, (before, now) in enumerate(zip(earlier, shown, strict=False)):
        if before is not now and before == now:
            shown[at] = before
    return attrs.evolve(view, items=tuple(shown))


def truncate_history(headroom: float = HEADROOM, *, step: float = STEP) -> Processor:
    """Make a processor that drops the oldest rounds and turns from pruned requests: the last resort, as in Copilot CLI.

    Args:
        headroom: Share of the limit that is free afterwards. Default: 0.05.
        step: Share of the limit that is dropped at once. Default: 0.25.

    Returns:
        The processor.
    """

    def process(messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
        if limits.limit is None:
            return messages
        try:
            return truncate_messages(
                messages,
                limits.limit,
                tokenizer=limits.tokenizer,
                fixed_tokens=limits.fixed_tokens,
                headroom=headroom,
                step=int(limits.limit * step),
                count_message=limits.count_message,
                request=limits.request,
            ).messages
        except BudgetExceededError:  # the render raises it with the figures of the whole prompt
            return messages

    return LastResort(process)


def cap_tool_results(max_tokens: int, *, exempt: Collection[str] = ()) -> Processor:
    """Make a processor that cuts out the middle of tool results longer than `max_tokens`, except those of `exempt` tools."""
    return lambda messages, limits: cap_results(messages, max_tokens, tokenizer=limits.tokenizer, exempt=exempt).messages


def remove_images() -> Processor:
    """Make a processor that replaces images that the model has seen by a placeholder, in pruned requests."""
    return LastResort(lambda messages, limits: drop_images(messages, tokenizer=limits.tokenizer).messages)


def clear_results(keep: int, *, tools: Collection[str] | None = None, step: int = 1) -> Processor:
    """Make a processor that clears the text of old tool results, as Claude Code does.

    Args:
        keep: Number of the newest results that do not change.
        tools: Names of the tools whose results are cleared. None: all tools.
        step: Results are cleared this many at a time, so that the requests between begin with the same bytes, for the provider's prompt
            cache.

    Returns:
        The processor.
    """

    def process(messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
        names = find_tool_names(messages)
        results = [at for at in range(len(messages)) if messages[at].role == "tool" and (tools is None or names.get(at) in tools)]
        old = max(0, len(results) - keep)
        cleared = set(results[: old - old % max(1, step)])

        def clear(message: Message, index: int) -> Message | None:
            if index not in cleared:
                return None
            return attrs.evolve(
                message, content=("[old tool result cleared]", *(part for part in message.content if not isinstance(part, str)))
            )

        return replace_messages(messages, clear, "capped", tokenizer=limits.tokenizer).messages

    return process
