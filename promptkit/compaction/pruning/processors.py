"""Processors: functions that change the messages of a request before it is rendered.

The transcript does not change. Every processor is idempotent. System messages, the last user
message and the ids of tool calls always stay the same.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import is_
from typing import TypeAlias

import attrs

from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.compaction.pruning.tool_outputs import cap_result
from promptkit.fitting import describe_omitted
from promptkit.fitting.choose import fit_history
from promptkit.messages import ImagePart, Message
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import Tokenizer
from promptkit.tokens.tokenizer import count_message
from promptkit.transcript import TranscriptView, ViewItem
from promptkit.wire.parts import remove_reasoning

STEP = 0.25
"""Share of the limit that is dropped at once. The next requests then begin with the same bytes, so
that the provider's prompt cache still holds them."""


@attrs.frozen(kw_only=True)
class RequestLimits:
    """The size limit of a request, and what a processor may do to meet it."""

    limit: int | None
    """Limit of the request in tokens, `fixed_tokens` included. None if it is unknown, or if the
    request is not pruned."""
    fixed_tokens: int
    """Tokens of every request besides the conversation: system prompt, tool definitions, framing."""
    tokenizer: Tokenizer
    model: str | None = None
    """The model that is sent the request. Reasoning that another model sealed is left out. None: all
    of it stays."""
    pruned: bool = False
    """True if messages may be dropped because no summary made the request fit."""
    request: Message | None = None
    """The last message of the user, in a pruned request. Messages of the program may follow it."""
    cut_markers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """In a pruned request: the text that replaces the middle of a truncated tool result, by the id
    of its call."""
    count_message: Callable[[Message], int] = attrs.field(
        default=attrs.Factory(lambda self: Sizer(self.tokenizer).count_message, takes_self=True),
        eq=False,
        repr=False,
    )
    """Counts the tokens of a message. A window counts each message once for all of its requests."""


Processor: TypeAlias = Callable[[Sequence[Message], RequestLimits], Sequence[Message]]
"""Returns the messages of a request as they are rendered. Must be idempotent.

Thresholds are compared with the size of the processed messages. A processor knows the limit only in
a request that must be pruned: otherwise it could shorten messages to fit, and no threshold would
notice that the conversation grows.
"""


class ViewProcessor:
    """Apply processors to the views of one conversation.

    The result for the last view is cached.
    """

    def __init__(self, processors: Sequence[Processor] = ()) -> None:
        self._processors = tuple(processors)
        self._last: tuple[TranscriptView, RequestLimits, TranscriptView, tuple[str, ...]] | None = (
            None
        )
        """A view, its limits, and what was made of it and by which processors."""
        self._stripped: dict[str, tuple[Message, Message]] = {}
        """By its entry, a message with another model's reasoning, and without it."""
        self.changed_by: tuple[str, ...] = ()
        """The names of the processors that changed messages of the last view."""

    def process(self, view: TranscriptView, limits: RequestLimits) -> TranscriptView:
        """Return a view with the processed messages, or the same view if the processors change nothing.

        A changed message keeps the entry of the message that it replaces. A message that equals its
        previous version is the same object.
        """
        last, given = self._last, view
        if last is not None and last[0] is view and last[1] == limits:
            self.changed_by = last[3]
            return last[2]
        self.changed_by = ()
        view = self._strip_reasoning(view, limits.model)
        messages: Sequence[Message] = view.messages
        for process in self._processors:
            earlier, messages = messages, process(messages, limits)
            if messages is not earlier and (
                len(earlier) != len(messages) or not all(map(is_, earlier, messages))
            ):
                # the name of the processor, or of the function that made it
                name: str = getattr(process, "__qualname__", type(process).__qualname__)
                self.changed_by += (name.partition(".<locals>")[0],)
        processed = (
            view
            if messages is view.messages
            else _show(view, tuple(messages), () if last is None else last[2].items)
        )
        if not limits.pruned:
            self._last = given, limits, processed, self.changed_by
        return processed

    def _strip_reasoning(self, view: TranscriptView, model: str | None) -> TranscriptView:
        """Return a view without the reasoning that other models sealed; the same view if it has none."""
        if model is None or view.models <= {None, model}:
            return view
        items = [
            item if item.model in {None, model} else self._strip_item(item) for item in view.items
        ]
        if all(map(is_, items, view.items)):
            return view
        return attrs.evolve(
            view,
            items=tuple(item for item in items if item.message.content or item.message.tool_calls),
        )

    def _strip_item(self, item: ViewItem) -> ViewItem:
        before, after = self._stripped.get(item.entry_id, (None, item.message))
        if before is not item.message:
            after = remove_reasoning(item.message)
            self._stripped[item.entry_id] = item.message, after
        return item if after is item.message else attrs.evolve(item, message=after)


def _show(
    view: TranscriptView, messages: Sequence[Message], earlier: Sequence[ViewItem]
) -> TranscriptView:
    """Return a view with other messages, with the items of the previous result where they are equal."""
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
    same = [
        before if before is now or before == now else now
        for before, now in zip(earlier, shown, strict=False)
    ]
    return attrs.evolve(view, items=(*same, *shown[len(same) :]))


def truncate_history(step: float = STEP) -> Processor:
    """Make a processor that drops the oldest rounds of pruned requests and adds a note of how many messages were dropped.

    Earlier turns are dropped first, the oldest before newer ones and no user message later than the
    answer to it, then tool rounds of the newest turn, and the summary last. The last user message and
    the newest round always stay. The newest round is truncated if necessary.

    Args:
        step: Share of the limit that is dropped at once, so that the next requests drop the same
            messages. Default: 0.25.

    Returns:
        The processor.
    """

    def process(messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
        if (
            not limits.pruned
            or limits.limit is None
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

    return process


def _fit_request(
    messages: Sequence[Message],
    limits: RequestLimits,
    limit: int,
    whole: Collection[int],
    step: int,
) -> Sequence[Message] | None:
    """Return the messages that fit, with a marker in place of the others.

    None if the messages that always stay do not fit.
    """
    fitted = fit_history(
        messages,
        limit,
        tokenizer=limits.tokenizer,
        overhead=limits.fixed_tokens,
        shorten="request",
        keep="answered",
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


def cap_tool_results(max_tokens: int) -> Processor:
    """Make a processor that truncates tool results of more than `max_tokens` tokens in their middle."""
    return lambda messages, limits: [
        cap_result(message, max_tokens, tokenizer=limits.tokenizer)
        if message.role == "tool"
        else message
        for message in messages
    ]


def remove_images() -> Processor:
    """Make a processor that replaces the images of each message by a note of their number, in pruned requests.

    Images stay if they cost less than the note, if the model has not replied since, and in system
    messages and the last user message.
    """

    def process(messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
        if not limits.pruned:
            return messages
        last = max((at for at, each in enumerate(messages) if each.role == "user"), default=-1)
        seen = max((at for at, each in enumerate(messages) if each.role == "assistant"), default=0)
        without = [
            message
            if at == last or at > seen or message.role == "system"
            else _without_images(message)
            for at, message in enumerate(messages)
        ]
        return _choose_smaller(messages, without, limits)

    return process


def _without_images(message: Message) -> Message:
    """Replace the first image by a note of the number of images, and remove the others."""
    images = [at for at, part in enumerate(message.content) if isinstance(part, ImagePart)]
    count = len(images)
    note = "[1 image was here]" if count == 1 else f"[{count} images were here]"
    parts = (
        note if at == images[0] else part
        for at, part in enumerate(message.content)
        if at not in images[1:]
    )
    return attrs.evolve(message, content=tuple(parts)) if images else message


def clear_results(keep: int, *, step: int = 1) -> Processor:
    """Make a processor that clears the text of old tool results, as Claude Code does.

    Args:
        keep: Number of the newest results that do not change.
        step: Number of results that are cleared at once. The requests in between begin with the
            same bytes, so that the provider's prompt cache still holds them.

    Returns:
        The processor.
    """

    def process(messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
        results = [at for at, message in enumerate(messages) if message.role == "tool"]
        old = max(0, len(results) - keep)
        cleared = frozenset(results[: old - old % max(1, step)])
        changed = (
            attrs.evolve(
                message,
                content=(
                    "[old tool result cleared]",
                    *(part for part in message.content if not isinstance(part, str)),
                ),
            )
            if at in cleared
            else message
            for at, message in enumerate(messages)
        )
        return _choose_smaller(messages, changed, limits)

    return process


def _choose_smaller(
    messages: Sequence[Message], changed: Iterable[Message], limits: RequestLimits
) -> Sequence[Message]:
    """Return the changed messages, except those that have no fewer tokens than before."""
    count = limits.count_message
    return [
        after if after is not before and count(after) < count(before) else before
        for before, after in zip(messages, changed, strict=True)
    ]
