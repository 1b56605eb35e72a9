"""Explain why a provider's prompt cache served less of a request than the request before it could have left there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from promptkit.agent.window.requests import WindowRequest
from promptkit.agent.window.tool_list import describe_tool_changes
from promptkit.compaction import CacheMissed, LastRequest
from promptkit.compaction.policy.usage import find_last_reply
from promptkit.messages import CacheBreakpointPart, Message, Usage
from promptkit.tokens.models import describe_model
from promptkit.transcript import (
    Checkpoint,
    Edit,
    Entry,
    EntryPayload,
    MessageEntry,
    Reset,
    Transcript,
)
from promptkit.transcript.log.entries import PRUNED_REASON, REASONING_REASON, SUPERSEDED_REASON
from promptkit.transcript.log.entry_sequence import find_entry
from promptkit.wire.first_difference import FirstDifference, find_first_difference

BLOCK_TOKENS = 128
"""OpenAI caches prompts in blocks of so many tokens."""

TOLERANCE = 0.05
"""Share of the expected tokens that may be missing: local counts and providers' counts differ."""

EDIT_CHANGES = {
    PRUNED_REASON: "pruning",
    SUPERSEDED_REASON: "pruning",
    REASONING_REASON: "pruning",
    "undone": "undo",
}
"""The cause of a change by the reason of the edit. Any other edit is an `edit`."""


@attrs.frozen(kw_only=True)
class Answered:
    """A request that was answered, as far as the next one is compared with it."""

    model: str
    tokens: int
    """The tokens of the request without the messages behind the conversation: by the provider's count,
    or by promptkit's if it reported none."""
    content: LastRequest | None = None
    """The request without the messages behind the conversation. None: another program sent it."""
    local_tokens: int = 0
    """The size of `content`."""
    leaf: str | None = None
    """The last entry of the transcript when it was answered."""


@attrs.define
class CacheMonitor:
    """Compare each request of a conversation with the one before it, once it is answered."""

    transcript: Transcript
    last: Answered | None = None
    """The request that was answered last. None: none is known."""
    _served: set[str] = attrs.field(factory=set[str], init=False)
    """The models that have read a part of a request from their cache."""

    def explain(
        self,
        request: WindowRequest,
        usage: Usage | None,
        *,
        seconds: float | None,
        cache_seconds: float,
        count: Callable[[Message], int],
    ) -> CacheMissed | None:
        """Return why a request, whose reply has come, read less than it could have; None if it did not, or if nothing is known.

        Args:
            request: The request.
            usage: What the provider reports of it.
            seconds: Seconds between the reply before and the request. None: unknown.
            cache_seconds: Seconds for which the provider keeps a prompt.
            count: Counts the tokens of a message.
        """
        last, model = self.last, request.model
        counted = usage if usage is not None and usage.input_tokens else None
        cached = None if counted is None else counted.cached_tokens
        content = request.as_last_request()
        lasting = content.messages[: request.lasting]
        local = request.tokens - sum(map(count, content.messages[request.lasting :]))
        total = request.tokens if counted is None else counted.input_tokens
        self.last = Answered(
            model=model,
            tokens=round(total * local / max(1, request.tokens)),
            content=attrs.evolve(content, messages=lasting),
            local_tokens=local,
            leaf=self.transcript.leaf,
        )
        has_served = model in self._served
        if cached:
            self._served.add(model)
        if last is None:
            return None
        missed = self._compare(last, request, count)
        if missed.block is None and _is_enough(cached, last.tokens):
            return None
        missed = attrs.evolve(missed, cached=cached, seconds=seconds)
        may_be_cached = has_served and last.tokens >= describe_model(model).cache_minimum
        is_late = may_be_cached and seconds is not None and seconds > cache_seconds
        if last.model != model:
            missed = attrs.evolve(missed, reason="model")
        elif is_late and not (missed.block and _is_enough(cached, missed.common)):
            missed = attrs.evolve(missed, reason="expired")
        elif missed.block is None:
            return (
                attrs.evolve(missed, reason="provider")
                if may_be_cached and last.content is not None
                else None
            )
        return missed

    def _compare(
        self, last: Answered, request: WindowRequest, count: Callable[[Message], int]
    ) -> CacheMissed:
        """Name the first block in which a request differs from the last one, the element that wrote it, and what changed it."""
        before, tokens = last.content, last.tokens
        missed = CacheMissed(reason="changed", expected=tokens, common=tokens)
        if before is None:
            return missed
        if before.tools != request.tools:
            change = describe_tool_changes(before.tools, request.tools)
            if any(isinstance(each, Checkpoint) for each in self._list_since(last) or ()):
                change = f"compaction; {change}"
            return attrs.evolve(missed, common=0, block="tools", change=change)
        difference = find_first_difference(before.messages, request.messages)
        if difference is not None and CacheBreakpointPart in map(
            type, (difference.before, difference.after)
        ):
            # the marks are no part of what is cached
            difference = find_first_difference(
                *(list(map(_unmark, each)) for each in (before.messages, request.messages))
            )
        if difference is None:
            return missed
        place = difference.message
        common = request.tokens - sum(map(count, request.messages[place:]))
        (role, *_) = [
            each.messages[place].role for each in (request, before) if place < len(each.messages)
        ]
        return attrs.evolve(
            missed,
            common=round(max(0, common) * tokens / max(1, last.local_tokens)),
            block=f"messages[{place}] ({role})",
            path=find_path(request, difference),
            change=next(self._iter_changes(last, request, place), None),
        )

    def _list_since(self, last: Answered) -> list[EntryPayload] | None:
        """Return what was written since a request; None if the conversation continues on another branch."""
        path = self.transcript.path()
        at = None if last.leaf is None else find_entry(path, last.leaf)
        return None if at is None else [entry.payload for entry in path[at + 1 :]]

    def _iter_changes(self, last: Answered, request: WindowRequest, place: int) -> Iterator[str]:
        """Yield what may have changed a message of a request, as far as the transcript and the request show it, the likeliest first."""
        message = request.messages[place] if place < len(request.messages) else None
        if message is None or message.role != "system":
            since = self._list_since(last)
            if since is None:
                yield "branch"
                since = []
            if any(isinstance(each, Checkpoint) for each in since):
                yield "compaction"
            if any(isinstance(each, Reset) for each in since):
                yield "reset"
            shown = request.find_entry(message)
            for each in since:
                if isinstance(each, Edit) and (each.content is None or each.target == shown):
                    yield EDIT_CHANGES.get(each.reason, "edit")
            if request.pruned:
                yield "limit"
            if request.changed_by:
                yield ", ".join(request.changed_by)
        if message is not None:
            yield "prompt" if message in request.rendered.messages else "hook"


def find_answered(path: Sequence[Entry]) -> Answered | None:
    """Return the request that a transcript's last reply answered, if a provider has counted it."""
    reply = find_last_reply(path)
    payload = None if reply is None else reply.payload
    if not isinstance(payload, MessageEntry) or payload.usage is None or payload.model is None:
        return None
    return Answered(model=payload.model, tokens=payload.usage.input_tokens)


def _is_enough(cached: int | None, expected: int) -> bool:
    return cached is not None and cached >= expected * (1 - TOLERANCE) - BLOCK_TOKENS


def _unmark(message: Message) -> Message:
    return attrs.evolve(
        message,
        content=[part for part in message.content if not isinstance(part, CacheBreakpointPart)],
    )


def find_path(request: WindowRequest, difference: FirstDifference) -> str | None:
    """Return the path of the element that wrote the first character that differs; None if no element did."""
    rendered, place = request.rendered, difference.message
    message = request.messages[place] if place < len(request.messages) else None
    number = next((at for at, each in enumerate(rendered.messages) if each is message), None)
    spans = [span for span in rendered.source_map if span.message == number]
    texts = [each for each in (difference.before, difference.after) if isinstance(each, str)]
    differing = enumerate(zip(*texts, strict=False)) if len(texts) > 1 else ()
    offset = next((at for at, (one, other) in differing if one != other), 0)
    within = [span for span in spans if span.part == difference.block and span.end > offset]
    return next((span.path for span in (*within, *spans)), None)
