"""Tool results that are too long: the view that requests are built from truncates them, and the transcript keeps them in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.breadcrumb import remove_missing_call
from promptkit.fitting.shorten import HEAD_SHARE, find_level
from promptkit.tokens.truncation import truncate_text
from promptkit.transcript.log.view import TranscriptView, ViewBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from promptkit.messages import Message
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.log.view import ViewItem

CUT_MARKER = "\n[The middle of this output was cut out: it was too long.]\n"
"""Replaces the middle of a truncated result."""

_MARKER_END = "]\n"


def cap_result(
    message: Message, max_tokens: int, *, tokenizer: Tokenizer, marker: str = CUT_MARKER
) -> Message:
    """Truncate a long tool result: keep the first 40 % and the last 60 % of the limit, with a marker between them.

    Images stay. A result within the limit is returned as it is.

    VS Code Copilot Chat limits results to half of the context window.

    Args:
        message: The tool result.
        max_tokens: Limit of its text in tokens, the marker included.
        tokenizer: Counts the text.
        marker: Replaces the removed text.
    """
    sizes = [tokenizer.count(part) if isinstance(part, str) else 0 for part in message.content]
    if sum(sizes) <= max_tokens:
        return message
    level = find_level(sizes, max_tokens)
    content = tuple(
        truncate_text(
            part,
            min(size, level),
            keep="middle",
            ratio=HEAD_SHARE,
            marker=marker,
            tokenizer=tokenizer,
        )
        if isinstance(part, str)
        else part
        for part, size in zip(message.content, sizes, strict=True)
    )
    return attrs.evolve(message, content=content)


def format_cut_marker(rest: str) -> str:
    """Return the marker of a truncated result that names the tool call which reads all of it."""
    return f"{CUT_MARKER.removesuffix(_MARKER_END)} All of it: {rest}{_MARKER_END}"


@attrs.frozen(kw_only=True)
class ResultLimits:
    """The limits that tools set for their own results, and how the model reads what was removed."""

    by_tool: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """Limit of a result in tokens, by the name of its tool."""
    describe_rest: Callable[[str | None, ViewItem], str | None] = lambda _tool, _item: None
    """Returns the tool call that reads a result in full, given the name of its tool and its item.
    None if no call does."""
    tools: Collection[str] | None = None
    """Names of the tools that a breadcrumb may name. An example call of another tool is removed
    from the summary. None: any tool."""


class CappedView:
    """Build the view of a growing path, with tool results truncated to `result_tokens`, or to the limit of their tool if that is lower.

    A message that the previous view contained is the same object again, so it is not counted again.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        result_tokens: int | None = None,
        limits: ResultLimits | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._result_tokens = result_tokens
        self._limits = limits or ResultLimits()
        self._builder = ViewBuilder()
        self._source = self._view = TranscriptView()
        self._tools: dict[str, str] = {}
        """The name of the tool by the id of each call of the view. If ids repeat, the newest call
        counts."""

    def set_limits(self, tokenizer: Tokenizer, *, result_tokens: int | None) -> None:
        """Use the tokenizer and the limit (tokens) of another model. None: only tools have limits."""
        self._tokenizer, self._result_tokens = tokenizer, result_tokens
        self._source = self._view = TranscriptView()

    def build_view(self, path: Sequence[Entry]) -> TranscriptView:
        """Build the view of a path, root first."""
        source = self._builder.build(path)
        if self._result_tokens is None and not self._limits.by_tool and self._limits.tools is None:
            return source
        if source is not self._source:
            self._view = self._update(source)
            self._source = source
        return self._view

    def find_cut_markers(self, path: Sequence[Entry]) -> dict[str, str]:
        """Return the markers for tool results that a request truncates further, by the ids of their calls.

        Only results that a tool call can read in full have one.
        """
        tools: dict[str, str] = {}
        rests: dict[str, str | None] = {}
        for item in self._builder.build(path).items:
            message = item.message
            tools.update((call.id, call.name) for call in message.tool_calls)
            if message.role == "tool" and message.tool_call_id is not None:
                tool = tools.get(message.tool_call_id)
                rests[message.tool_call_id] = self._limits.describe_rest(tool, item)
        return {call: format_cut_marker(rest) for call, rest in rests.items() if rest is not None}

    def _update(self, source: TranscriptView) -> TranscriptView:
        """Truncate the results of a view. Items at its start that have not changed are taken from the previous view."""
        old = self._source.items
        # usually items were appended: one comparison
        same = len(old) if source.items[: len(old)] == old else 0
        for before, now in zip(old[same:], source.items[same:], strict=False):
            if before is not now:
                break
            same += 1
        return attrs.evolve(
            source, items=(*self._view.items[:same], *map(self._cap, source.items[same:]))
        )

    def _cap(self, item: ViewItem) -> ViewItem:
        message, tools = item.message, self._limits.tools
        if item.kind == "summary" and tools is not None:
            content = tuple(
                remove_missing_call(part, tools) if isinstance(part, str) else part
                for part in message.content
            )
            return (
                item
                if content == message.content
                else attrs.evolve(item, message=attrs.evolve(message, content=content))
            )
        self._tools.update((call.id, call.name) for call in message.tool_calls)
        if message.role != "tool":
            return item
        tool = self._tools.get(message.tool_call_id or "")
        limits = (self._result_tokens, self._limits.by_tool.get(tool or ""))
        limit = min((each for each in limits if each is not None), default=None)
        texts = (part for part in message.content if isinstance(part, str))
        if limit is None or sum(map(self._tokenizer.count, texts)) <= limit:
            return item
        rest = self._limits.describe_rest(tool, item)
        marker = CUT_MARKER if rest is None else format_cut_marker(rest)
        # the output itself is worth more
        if self._tokenizer.count(marker) > limit // 2:
            marker = CUT_MARKER
        capped = cap_result(message, limit, tokenizer=self._tokenizer, marker=marker)
        return attrs.evolve(item, message=capped)
