"""Tool outputs in a view: old and superseded ones are pruned by edits, which a transcript appends, and large ones are capped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import attrs

from promptkit.compaction.planning.blocks import group_blocks, is_missing_result
from promptkit.compaction.planning.breadcrumb import remove_missing_call
from promptkit.compaction.planning.tool_calls import FILE_RULES, find_file_call, is_skill_tool
from promptkit.compaction.pruning.messages import (
    CUT_MARKER,
    cap_results,
    find_tool_names,
    format_cut_marker,
)
from promptkit.errors import InvalidArgumentError
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tools import is_error_result
from promptkit.transcript.log.entries import PRUNED_REASON, SUPERSEDED_REASON, Checkpoint, Edit
from promptkit.transcript.log.view import TranscriptView, ViewBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from promptkit.compaction.planning.tool_calls import FileCall, FileRule
    from promptkit.compaction.pruning.messages import Reduction
    from promptkit.messages import Part, ToolCall
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.log.view import ViewItem

MIN_OUTPUT_TOKENS = 50
"""Size in tokens below which an output is not pruned."""

COMPARABLE_SHARE = 0.5
"""Share of an output that a newer one of the same call must have to supersede it: less may be a
failure that is not marked as one, or says that nothing has changed."""

MAX_ARGUMENTS = 10_000
"""Number of characters of a call's arguments from which on they are compared as they are, without
being parsed."""


@attrs.frozen(kw_only=True)
class ReduceToolResults:
    """Replace the text of old and of superseded tool results by a placeholder.

    `reduce=` of presets, windows and sessions.

    A result is *superseded* by a newer one of the same tool with the same arguments, and a read of
    a file by a newer read of the whole file; a failed call supersedes nothing. Results of the
    newest round stay, and so do results that the model has not replied to. The reduction is
    permanent: the transcript gets an edit for each result, and keeps what it was.

    A changed message makes the provider read everything behind it anew, at about ten times the
    price of its prompt cache. So results are replaced where the cache is cold anyway. In a warm
    cache they are replaced only in a request that is large, if that saves much: there, a summary
    would soon break the cache as well, and lose more.

    >>> AgentSession(model=model, reduce=ReduceToolResults(protected_tools=("read_plan",)))
    """

    protect_tokens: int = 40_000
    """Tokens of the newest results that are not old."""
    least_saving: int = 20_000
    """Tokens that replacing old results must save, or only superseded ones are replaced."""
    max_age: int | None = None
    """Number of newer rounds from which on a result is old, even within `protect_tokens`. None: its
    age does not matter."""
    protected_tools: Sequence[str] = ()
    """Names of the tools whose results never get old, as those that load a skill never do. They are
    replaced where they are superseded."""
    protect_reads: bool = False
    """Whether results of calls that read files, by the rules for file tools, never get old
    either."""
    superseded: bool = True
    """Whether superseded results are replaced."""
    warm_ratio: float = 0.5
    """Share of the size that overflows from which on results are replaced in a warm cache, too."""

    def __attrs_post_init__(self) -> None:
        for name in ("protect_tokens", "least_saving", "max_age", "warm_ratio"):
            value: float | None = getattr(self, name)
            if value is not None and not value >= 0:
                problem = f"{name} of ReduceToolResults must be at least 0, not {value}."
                raise InvalidArgumentError(problem)

    def applies(self, *, warm: bool, ratio: float | None) -> bool:
        """Return whether results are replaced in a request that takes a share of the size that overflows."""
        return not warm or (ratio is not None and ratio >= self.warm_ratio)


@attrs.frozen(kw_only=True)
class Pruning:
    """The edits that replace tool outputs of a view by placeholders, oldest first, and the tokens that they save."""

    old: tuple[Edit, ...] = ()
    """Replace old outputs."""
    old_tokens: int = 0
    superseded: tuple[Edit, ...] = ()
    """Replace superseded outputs."""
    superseded_tokens: int = 0

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits."""
        return self.superseded + self.old

    @property
    def saved_tokens(self) -> int:
        """The tokens that all edits save."""
        return self.superseded_tokens + self.old_tokens


def prune_outputs(
    path: Sequence[Entry],
    view: TranscriptView,
    reduce: ReduceToolResults,
    *,
    tokenizer: Tokenizer,
    file_rules: Sequence[FileRule] = FILE_RULES,
) -> Pruning:
    """Plan the replacement of old and superseded tool outputs by placeholders; images stay.

    Linear in the number of messages.

    Outputs before the checkpoint, of the newest round, and those that the model has not replied to
    are never replaced. Outputs that were replaced before are small, so that older ones are still
    found.

    Args:
        path: The entries, root first.
        view: The view of this path.
        reduce: The figures.
        tokenizer: Counts text.
        file_rules: Tell which files a tool call reads.

    Returns:
        The edits, and the tokens that they save.
    """
    items = view.items
    after = _entries_after_checkpoint(path, view)
    names = find_tool_names([item.message for item in items])
    count = Sizer(tokenizer).count_part
    found: dict[str, list[Edit]] = {PRUNED_REASON: [], SUPERSEDED_REASON: []}
    saved = {PRUNED_REASON: 0, SUPERSEDED_REASON: 0}
    newer: dict[_Subject, int] = {}
    seen = 0
    for output in _iter_outputs(items):
        item, name = items[output.at], names.get(output.at)
        text_tokens = sum(count(part) for part in item.message.content if isinstance(part, str))
        parsed = _parse_arguments(output.call.arguments) if output.call else None
        files = (
            find_file_call(output.call.name, parsed, file_rules)
            if output.call and parsed is not None
            else None
        )
        subjects = (
            _find_subjects(output.call, parsed, files)
            if reduce.superseded and output.call
            else _CallSubjects()
        )
        superseded = any(
            newer.get(each, 0) >= max(1, text_tokens * COMPARABLE_SHARE)
            for each in subjects.superseded_by
        )
        protected = name is not None and (name in reduce.protected_tools or is_skill_tool(name))
        protected = protected or (
            reduce.protect_reads and files is not None and files.use == "read" and bool(files.paths)
        )
        if not protected and output.is_answered and item.entry_id in after:
            seen += text_tokens
        old = not protected and (
            seen > reduce.protect_tokens
            or (reduce.max_age is not None and output.age > reduce.max_age)
        )
        edit, gain = None, 0
        if (
            (old or superseded)
            and output.is_answered
            and not output.is_newest
            and item.entry_id in after
        ):
            edit, gain = _replace_output(item, text_tokens, count, superseded=superseded)
        if edit is None and not is_error_result(item.message):
            newer.update((each, max(text_tokens, newer.get(each, 0))) for each in subjects.own)
        if edit is not None:
            found[edit.reason].append(edit)
            saved[edit.reason] += gain
    return Pruning(
        old=tuple(reversed(found[PRUNED_REASON])),
        old_tokens=saved[PRUNED_REASON],
        superseded=tuple(reversed(found[SUPERSEDED_REASON])),
        superseded_tokens=saved[SUPERSEDED_REASON],
    )


@attrs.frozen
class _Subject:
    """The subject of an output: a call with certain arguments, or a whole file.

    A newer output of the same subject supersedes it.
    """

    tool: str | None
    """The name of the tool. None: the subject is a file."""
    key: str
    """The arguments of the call, or the path of the file."""


@attrs.frozen
class _CallSubjects:
    """The subjects of a call's output, and those of the newer outputs that supersede it."""

    own: tuple[_Subject, ...] = ()
    superseded_by: tuple[_Subject, ...] = ()


def _replace_output(
    item: ViewItem, text_tokens: int, count: Callable[[Part], int], *, superseded: bool
) -> tuple[Edit | None, int]:
    """Return the edit that replaces the text of an output, and the tokens that it saves.

    No edit for an output that is small.
    """
    if text_tokens < MIN_OUTPUT_TOKENS:
        return None, 0
    reason, placeholder = PRUNED_REASON, f"[old tool output removed: {text_tokens:,} tokens]"
    if superseded:
        reason, placeholder = (
            SUPERSEDED_REASON,
            f"[removed: a newer output of this call follows; {text_tokens:,} tokens]",
        )
    content = _replace_text(item.message.content, placeholder)
    gain = text_tokens - sum(count(part) for part in content if isinstance(part, str))
    return (
        (Edit(target=item.entry_id, content=content, reason=reason), gain)
        if gain > 0
        else (None, 0)
    )


def _find_subjects(
    call: ToolCall, parsed: Mapping[str, object] | None, used: FileCall | None
) -> _CallSubjects:
    """Return the subjects of a call's output, and the subjects that a newer output must have to supersede it."""
    same = _Subject(
        call.name, call.arguments if parsed is None else json.dumps(parsed, sort_keys=True)
    )
    if parsed is None or used is None or used.use != "read" or len(used.paths) != 1:
        return _CallSubjects((same,), (same,))
    path = used.paths[0]
    file = _Subject(None, path)
    # not a range of lines
    is_whole = all(value in (path, [path], "view", None) for value in parsed.values())
    return _CallSubjects((same, file) if is_whole else (same,), (same, file))


def _parse_arguments(arguments: str) -> Mapping[str, object] | None:
    """Return the arguments of a call as a mapping, or None if they are none, or are very long."""
    if len(arguments) > MAX_ARGUMENTS:
        return None
    try:
        parsed = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return cast("Mapping[str, object]", parsed) if isinstance(parsed, dict) else None  # of JSON


def edits_from_reduction(
    path: Sequence[Entry], view: TranscriptView, reduction: Reduction, *, reason: str
) -> tuple[Edit, ...]:
    """Make a reduction of a view permanent: return edits for the messages whose content it changed.

    Messages that it dropped, messages before the checkpoint and results that were never recorded do
    not change.

    Args:
        path: The entries, root first.
        view: The view of this path.
        reduction: A reduction of all messages of the view.
        reason: The reason in the edits.

    Returns:
        The edits.
    """
    items = view.items
    after = _entries_after_checkpoint(path, view)
    placeholders = {
        at
        for block in group_blocks(items)
        for at in range(block.start, block.end)
        if is_missing_result(items, block, at)
    }
    return tuple(
        Edit(target=items[source].entry_id, content=message.content, reason=reason)
        for message, source in zip(reduction.messages, reduction.sources, strict=True)
        if message != items[source].message
        and items[source].entry_id in after
        and source not in placeholders
    )


def _entries_after_checkpoint(path: Sequence[Entry], projection: TranscriptView) -> set[str]:
    """Return the entries after the checkpoint of the view, or all of them if it has none."""
    after: set[str] = set()
    for at in range(len(path) - 1, -1, -1):
        if isinstance(path[at].payload, Checkpoint) and path[at].id == projection.checkpoint_id:
            break
        after.add(path[at].id)
    return after


@attrs.frozen
class _Output:
    """A tool output of a view."""

    at: int
    """The index of its item."""
    call: ToolCall | None
    age: int
    """Number of rounds with outputs behind its own."""
    is_answered: bool
    """Whether the model has replied since."""

    @property
    def is_newest(self) -> bool:
        """Whether it is of the newest round."""
        return self.age == 0


def _iter_outputs(items: Sequence[ViewItem]) -> Iterator[_Output]:
    """Iterate over the tool outputs of a view, newest first."""
    age, answered = 0, False
    for block in reversed(group_blocks(items)):
        calls = {call.id: call for call in items[block.start].message.tool_calls}
        outputs = [
            at
            for at in range(block.end - 1, block.start, -1)
            if not is_missing_result(items, block, at)
        ]
        for at in outputs:
            yield _Output(at, calls.get(items[at].message.tool_call_id or ""), age, answered)
        age += bool(outputs)
        answered = answered or items[block.start].message.role == "assistant"


def _replace_text(content: Sequence[Part], placeholder: str) -> tuple[Part, ...]:
    first = next((at for at, part in enumerate(content) if isinstance(part, str)), 0)
    return tuple(
        placeholder if at == first else part
        for at, part in enumerate(content)
        if at == first or not isinstance(part, str)
    )


@attrs.frozen(kw_only=True)
class ResultLimits:
    """The limits that tools have for their own results, and how a model reads what is not shown."""

    by_tool: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """The most tokens of a result, by the name of its tool."""
    describe_rest: Callable[[str | None, ViewItem], str | None] = lambda _tool, _item: None
    """Returns the call that reads a result in full, from the name of its tool and its item. None:
    there is no such call."""
    tools: Collection[str] | None = None
    """The names of the tools that a breadcrumb may name. A call of another one is left out of the
    summary. None: any tool."""


class CappedView:
    """Builds the view of a growing path, with tool results truncated to `result_tokens`, or to the limit of their tool if that is lower.

    The transcript holds them in full. A message that was in the view before is the same object
    again, and is not counted again.
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
        """The name of the tool for the id of each call of the view; the newest one for an id that
        is used again."""

    def set_limits(self, tokenizer: Tokenizer, *, result_tokens: int | None) -> None:
        """Use the figures of another model. With `result_tokens=None` only tools have limits."""
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
        """Return the markers for tool results that a request shortens further, by the ids of their calls: those that name a call."""
        items = self._builder.build(path).items
        names = find_tool_names([item.message for item in items])
        rests = {
            item.message.tool_call_id: self._limits.describe_rest(names.get(at), item)
            for at, item in enumerate(items)
            if item.message.role == "tool"
        }
        return {
            call: format_cut_marker(rest)
            for call, rest in rests.items()
            if call is not None and rest is not None
        }

    def _update(self, source: TranscriptView) -> TranscriptView:
        """Cap the items of a view, except those at its start that are the same as last time."""
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
        message = item.message
        if item.kind == "summary" and self._limits.tools is not None:
            tools = self._limits.tools
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
        limit = min(
            (
                each
                for each in (self._result_tokens, self._limits.by_tool.get(tool or ""))
                if each is not None
            ),
            default=None,
        )
        if (
            limit is None
            or sum(self._tokenizer.count(part) for part in message.content if isinstance(part, str))
            <= limit
        ):
            return item
        rest = self._limits.describe_rest(tool, item)
        marker = format_cut_marker(rest)
        # the output itself is worth more
        if rest is not None and self._tokenizer.count(marker) > limit // 2:
            marker = CUT_MARKER
        (capped,) = cap_results(
            (message,), limit, tokenizer=self._tokenizer, marker=marker
        ).messages
        return item if capped is message else attrs.evolve(item, message=capped)
