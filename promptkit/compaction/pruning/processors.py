"""Processors: functions that change the messages of a request before it is rendered.

Nothing of it is written to the transcript.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.compaction.pruning.messages import (
    cap_results,
    drop_images,
    find_tool_names,
    replace_messages,
)
from promptkit.fitting.choose import fit_history
from promptkit.fitting.history import describe_omitted
from promptkit.messages import Message
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens.tokenizer import count_message
from promptkit.transcript.log.view import ViewItem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log.view import TranscriptView

STEP = 0.25
"""Share of the limit that is dropped at once, so that the next requests begin with the same bytes,
for the provider's prompt cache."""


@attrs.frozen(kw_only=True)
class RequestLimits:
    """The limits of a request, and its circumstances."""

    limit: int | None
    """Limit of the request in tokens, fixed tokens included. None: unknown, or the request is not
    pruned."""
    fixed_tokens: int
    """Tokens that every request has besides the conversation: system prompt, tools, framing."""
    tokenizer: Tokenizer
    pruned: bool = False
    """Whether messages may be dropped, as no summary reduced the request."""
    request: Message | None = None
    """The last message that the user wrote, in a request that is pruned. Messages of the program
    may follow it."""
    cut_markers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """The text in place of the middle of a shortened tool result, by the id of its call, in a
    request that is pruned."""
    count_message: Callable[[Message], int] = attrs.field(
        default=attrs.Factory(lambda self: Sizer(self.tokenizer).count_message, takes_self=True),
        eq=False,
        repr=False,
    )
    """Counts the tokens of a message. In a window, each message is counted once for all of its
    requests."""


Processor: TypeAlias = Callable[[Sequence[Message], RequestLimits], Sequence[Message]]
"""Returns the messages of a request as they are rendered. Must be idempotent.

The size of a conversation, which thresholds are compared with, is that of its processed messages.
Only in a request that must be pruned does a processor learn the limit: what shortens messages to
make them fit must not hide that a conversation grows.
"""


@attrs.frozen
class LastResort:
    """A processor of pruned requests alone. The messages of other requests are not looked at."""

    process: Processor

    def __call__(self, messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
        """Process the messages of a pruned request, and return others as they are."""
        return self.process(messages, limits) if limits.pruned else messages


class ViewProcessor:
    """Applies processors to the views of one conversation.

    The view that was processed last is not processed again.
    """

    def __init__(self, processors: Sequence[Processor] = ()) -> None:
        self._processors = tuple(processors)
        self._unconditional = tuple(
            process for process in processors if not isinstance(process, LastResort)
        )
        self._last: tuple[TranscriptView, RequestLimits, TranscriptView] | None = None

    def process(self, view: TranscriptView, limits: RequestLimits) -> TranscriptView:
        """Return a view with the messages that a request shows: the same view if the processors change nothing.

        A message that replaces one at the same place comes from the same entry, and one that equals
        its last version is the same object.
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
        processed = (
            view
            if messages is view.messages
            else _show(view, tuple(messages), () if last is None else last[2].items)
        )
        if not limits.pruned:
            self._last = view, limits, processed
        return processed


def _show(
    view: TranscriptView, messages: Sequence[Message], earlier: Sequence[ViewItem]
) -> TranscriptView:
    """Return a view with other messages.

    Items of an earlier one are used again where they are equal.
    """
    items = view.items
    if len(messages) == len(items):
        shown = [
            item if message is item.message else attrs.evolve(item, message=message)
            for item, message in zip(items, messages, strict=True)
        ]
    else:
        known = {id(item.message): item for item in items}
        shown = [
            known.get(id(message)) or ViewItem(message=message, entry_id="") for message in messages
        ]
    for at, (before, now) in enumerate(zip(earlier, shown, strict=False)):
        if before is not now and before == now:
            shown[at] = before
    return attrs.evolve(view, items=tuple(shown))


def truncate_history(step: float = STEP) -> Processor:
    """Make a processor that drops the oldest rounds from pruned requests: the last resort, which says how many messages it dropped.

    Replies and tool rounds of earlier turns are dropped first, then user messages, then tool rounds
    of the newest turn, and last the summary. The last user message and the newest round stay. The
    newest round is shortened if it must be.

    Args:
        step: Share of the limit that is dropped at once, so that the next requests drop the same
            messages. Default: 0.25.

    Returns:
        The processor.
    """

    def process(messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
        if (
            limits.limit is None
            or limits.fixed_tokens + sum(map(limits.count_message, messages)) <= limits.limit
        ):
            return messages
        users = [at for at, message in enumerate(messages) if message.role == "user"]
        request = {at for at in users if messages[at] is limits.request}.union(users[-1:])
        summaries = {at for at in users if extract_summary_text(messages[at]) is not None}
        for whole in (request | summaries, request):
            fitted = _fit_request(messages, limits, limits.limit, whole, int(limits.limit * step))
            if fitted is not None:
                return fitted
        return messages  # the render raises the error, with the figures of the whole prompt

    return LastResort(process)


def _fit_request(
    messages: Sequence[Message],
    limits: RequestLimits,
    limit: int,
    whole: Collection[int],
    step: int,
) -> Sequence[Message] | None:
    """Return the messages that fit, with a marker in place of the others, or None if what always stays does not fit."""
    fitted = fit_history(
        messages,
        limit,
        tokenizer=limits.tokenizer,
        overhead=limits.fixed_tokens,
        shorten="request",
        keep="requests",
        whole=whole,
        count_marker=lambda count: count_message(_build_marker(count), limits.tokenizer),
        cut_marker=lambda message: limits.cut_markers.get(message.tool_call_id or ""),
        count=limits.count_message,
        step=step,
    )
    if fitted.tokens + limits.fixed_tokens > limit:
        return None
    kept = frozenset(fitted.sources)
    dropped = [at for at in range(len(messages)) if at not in kept]
    if not dropped:
        return fitted.messages
    place = bisect(fitted.sources, dropped[-1])
    return (*fitted.messages[:place], _build_marker(len(dropped)), *fitted.messages[place:])


def _build_marker(omitted: int) -> Message:
    return Message(role="user", content=(describe_omitted(omitted),))


def cap_tool_results(max_tokens: int, *, exempt: Collection[str] = ()) -> Processor:
    """Make a processor that cuts out the middle of tool results longer than `max_tokens`, except those of `exempt` tools."""
    return lambda messages, limits: (
        cap_results(messages, max_tokens, tokenizer=limits.tokenizer, exempt=exempt).messages
    )


def remove_images() -> Processor:
    """Make a processor that replaces images that the model has seen by a placeholder, in pruned requests."""
    return LastResort(
        lambda messages, limits: drop_images(messages, tokenizer=limits.tokenizer).messages
    )


def clear_results(keep: int, *, tools: Collection[str] | None = None, step: int = 1) -> Processor:
    """Make a processor that clears the text of old tool results, as Claude Code does.

    Args:
        keep: Number of the newest results that do not change.
        tools: Names of the tools whose results are cleared. None: all tools.
        step: Results are cleared this many at a time, so that the requests between begin with the
            same bytes, for the provider's prompt cache.

    Returns:
        The processor.
    """

    def process(messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
        names = find_tool_names(messages)
        results = [
            at
            for at in range(len(messages))
            if messages[at].role == "tool" and (tools is None or names.get(at) in tools)
        ]
        old = max(0, len(results) - keep)
        cleared = set(results[: old - old % max(1, step)])

        def clear(message: Message, index: int) -> Message | None:
            if index not in cleared:
                return None
            return attrs.evolve(
                message,
                content=(
                    "[old tool result cleared]",
                    *(part for part in message.content if not isinstance(part, str)),
                ),
            )

        return replace_messages(messages, clear, "capped", tokenizer=limits.tokenizer).messages

    return process
