"""Tool outputs in a view: edits replace old and superseded ones by placeholders permanently, and long ones are truncated.

The transcript keeps all of them in full.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TypeAlias

import attrs

from promptkit.compaction.planning.blocks import (
    find_last_user_request,
    group_blocks,
    is_missing_result,
    is_user_request,
)
from promptkit.compaction.planning.breadcrumb import remove_missing_call
from promptkit.compaction.planning.tool_calls import (
    FILE_RULES,
    FileCall,
    FileRule,
    find_file_call,
    is_skill_tool,
    parse_arguments,
)
from promptkit.fitting.shorten import HEAD_SHARE, find_level
from promptkit.messages import Message, Part, ToolCall
from promptkit.rendering.expand.sizing import Sizer
from promptkit.sizes import AtLeast, read_tokens
from promptkit.tokens import Tokenizer
from promptkit.tokens.tokenizer import count_part
from promptkit.tokens.truncation import truncate_text
from promptkit.tools import Supersedes, is_error_result
from promptkit.transcript import (
    Checkpoint,
    Edit,
    Entry,
    MessageEntry,
    TranscriptView,
    ViewItem,
)
from promptkit.transcript.log.entries import PRUNED_REASON, REASONING_REASON, SUPERSEDED_REASON
from promptkit.transcript.log.view import ViewBuilder
from promptkit.wire.parts import name_media, remove_reasoning

MIN_OUTPUT_TOKENS = 50
"""Outputs of fewer tokens are not pruned."""

COMPARABLE_SHARE = 0.5
"""A newer output of the same call supersedes an output if it has at least this share of its tokens.
A shorter one may be a failure without an error flag, or say that nothing has changed."""

MAX_ARGUMENTS = 10_000
"""Arguments of more characters are compared as text, without being parsed."""


@attrs.frozen(kw_only=True)
class ReduceToolResults:
    """Replace the text of old and superseded tool results by a placeholder.

    Pass it as `reduce=` to a preset, a window or a session.

    A result is *superseded* by a newer result of the same tool with the same arguments. A read of a
    file is also superseded by a newer read of the whole file, and any result by a newer call whose
    tool says so (`Tool.supersedes`). A failed call supersedes nothing, nor does a newer result that was
    replaced itself. The
    results of the newest round stay, and so do results that the model has not replied to. The
    replacement is permanent: the transcript gets an edit for each result, and still has the
    original.

    A changed message invalidates the prompt cache for everything after it, and reading that again
    costs about ten times as much. Results are therefore replaced when the cache is cold. With a
    warm cache they are replaced only in a large request, and only if that saves many tokens: such a
    request would soon be summarized, which invalidates the cache as well and loses more.

    >>> AgentSession(model=model, reduce=ReduceToolResults(protected_tools=("read_plan",)))
    """

    protect_tokens: int = attrs.field(default=40_000, converter=read_tokens, validator=AtLeast(0))
    """Token budget of recent tool results that are never pruned for age."""
    least_saving: int = attrs.field(default=20_000, converter=read_tokens, validator=AtLeast(0))
    """Old results are replaced only if that saves at least this number of tokens."""
    max_age: int | None = attrs.field(default=None, validator=attrs.validators.optional(AtLeast(0)))
    """A result is old if more than this number of rounds with results follow its own, even within
    `protect_tokens`. None: no limit."""
    protected_tools: Sequence[str] = ()
    """Names of tools whose results are never pruned for age. The results of tools that load skills
    never are. Superseded results are replaced."""
    protect_reads: bool = False
    """True: results of calls that read files are never pruned for age either."""
    superseded: bool = True
    """Whether superseded results are replaced. Those that a tool names with `supersedes` are in any
    case."""
    warm_ratio: float = attrs.field(default=0.5, validator=AtLeast(0))
    """Fill ratio above which results are pruned even if the prompt cache is warm."""

    def applies(self, *, warm: bool, ratio: float | None) -> bool:
        """Return whether results may be replaced, given the state of the prompt cache and the fill ratio of the request."""
        return not warm or (ratio is not None and ratio >= self.warm_ratio)


ONLY_STATED = ReduceToolResults(protect_tokens=2**62, superseded=False)
"""Replaces only what tools themselves say that they supersede."""


@attrs.frozen(kw_only=True)
class OutputRules:
    """What tells which outputs are about the same."""

    file_rules: Sequence[FileRule] = FILE_RULES
    """Tell which files a tool call reads."""
    supersedes: Mapping[str, Supersedes] = attrs.field(factory=dict[str, "Supersedes"])
    """The `supersedes` of tools, by their names."""


DEFAULT_RULES = OutputRules()


@attrs.frozen(kw_only=True)
class Pruning:
    """The edits that replace tool outputs of a view by placeholders, oldest first, and the tokens that they save."""

    old: tuple[Edit, ...] = ()
    """Replace old outputs."""
    superseded: tuple[Edit, ...] = ()
    """Replace superseded outputs."""
    superseded_tokens: int = 0
    """The tokens that these alone save."""
    saved_tokens: int = 0
    """The tokens that all edits save."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits."""
        return self.superseded + self.old


def prune_outputs(
    path: Sequence[Entry],
    view: TranscriptView,
    reduce: ReduceToolResults,
    *,
    tokenizer: Tokenizer,
    rules: OutputRules = DEFAULT_RULES,
) -> Pruning:
    """Plan the replacement of old and superseded tool outputs by placeholders.

    Images stay. Outputs before the checkpoint, outputs of the newest round and outputs that the
    model has not replied to are never replaced. Takes time linear in the number of messages.

    Args:
        path: The entries, root first.
        view: The view of this path.
        reduce: What is replaced.
        tokenizer: Counts text.
        rules: Tell what the outputs are about.

    Returns:
        The edits, and the tokens that they save.
    """
    items = view.items
    newer = _NewerOutputs(rules.supersedes)
    after_checkpoint = {
        entry.id
        for entry in takewhile(
            lambda entry: (
                not isinstance(entry.payload, Checkpoint) or entry.id != view.checkpoint_id
            ),
            reversed(path),
        )
    }
    count = Sizer(tokenizer).count_part
    edits: list[tuple[Edit, int]] = []
    seen = 0
    for item, call, age, is_answered in _iter_outputs(items):
        text_tokens = sum(count(part) for part in item.message.content if isinstance(part, str))
        parsed = (
            None if len(call.arguments) > MAX_ARGUMENTS else parse_arguments(call.arguments or "{}")
        )
        files = None if parsed is None else find_file_call(call.name, parsed, rules.file_rules)
        own, superseding = _find_subjects(call, parsed, files) if reduce.superseded else ((), ())
        read = files.paths if files is not None and files.use == "read" else ()
        stated = newer.ask(call, parsed)
        subjects = (*(() if stated is None else (stated,)), *(read if len(read) == 1 else ()))
        by = newer.find(superseding, subjects, text_tokens)
        protected = (
            call.name in reduce.protected_tools
            or is_skill_tool(call.name)
            or (reduce.protect_reads and bool(read))
        )
        replaceable = is_answered and item.entry_id in after_checkpoint
        if replaceable and not protected:
            seen += text_tokens
        old = not protected and (
            seen > reduce.protect_tokens or (reduce.max_age is not None and age > reduce.max_age)
        )
        edit = (
            _replace_output(item, text_tokens, count, by=by)
            if (old or by) and replaceable and age > 0
            else None
        )
        if edit is not None:
            edits.append(edit)
        elif not is_error_result(item.message) and item.unpruned is None:
            newer.add(own, call.name, stated, text_tokens)
    edits.reverse()
    return Pruning(
        old=tuple(edit for edit, _ in edits if edit.reason == PRUNED_REASON),
        superseded=tuple(edit for edit, _ in edits if edit.reason == SUPERSEDED_REASON),
        superseded_tokens=sum(gain for edit, gain in edits if edit.reason == SUPERSEDED_REASON),
        saved_tokens=sum(gain for _, gain in edits),
    )


def prune_reasoning(
    items: Sequence[ViewItem], *, count: Callable[[Message], int]
) -> tuple[tuple[Edit, ...], int]:
    """Plan to take old reasoning out of a view: that of replies before the last user message.

    The reasoning of the newest turn stays, since providers require it between tool calls.

    Args:
        items: The items of the view.
        count: Counts the tokens of a message.

    Returns:
        The edits, and the tokens that they save.
    """
    last = find_last_user_request(items) or 0
    changed = [
        (item, message)
        for item in items[:last]
        if item.kind == "message"
        and (message := remove_reasoning(item.message)) is not item.message
    ]
    edits = tuple(
        Edit(
            target=item.entry_id,
            content=message.content or None if not message.tool_calls else message.content,
            reason=REASONING_REASON,
        )
        for item, message in changed
    )
    return edits, sum(count(item.message) - count(message) for item, message in changed)


_Subject: TypeAlias = tuple[str | None, str]
"""The source of an output: a tool with the arguments of its call, or None with the path of a file. A
newer output of the same subject supersedes it."""


@attrs.frozen
class _NewerOutputs:
    """The newer outputs that a request shows in full, by what they are about."""

    supersedes: Mapping[str, Supersedes]
    _sizes: dict[_Subject, int] = attrs.field(factory=dict["_Subject", int], init=False)
    """The tokens of the largest newer output of each subject."""
    _stated: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    """The tool of a newer call, by what that tool says it supersedes."""

    def add(self, own: Iterable[_Subject], tool: str, stated: str | None, text_tokens: int) -> None:
        """Add the output of a call, with what its tool says that it supersedes."""
        for subject in own:
            self._sizes[subject] = max(text_tokens, self._sizes.get(subject, 0))
        if stated is not None:
            self._stated.setdefault(stated, tool)

    def find(
        self, superseding: Iterable[_Subject], subjects: Iterable[str], text_tokens: int
    ) -> str | None:
        """Return which newer output supersedes an output, in words; None if none does."""
        if tool := next((self._stated[each] for each in subjects if each in self._stated), None):
            return f"a later call of {tool} makes it useless"
        least = max(1, text_tokens * COMPARABLE_SHARE)
        return (
            "a newer output of this call follows"
            if any(self._sizes.get(each, 0) >= least for each in superseding)
            else None
        )

    def ask(self, call: ToolCall, parsed: Mapping[str, object] | None) -> str | None:
        """Return what a call supersedes by the word of its tool. None: nothing, or its arguments are wrong."""
        supersedes = self.supersedes.get(call.name)
        if supersedes is None or parsed is None:
            return None
        try:
            stated: object = supersedes(parsed)
        except Exception:  # noqa: BLE001  # a function of the program; a model may write any arguments
            return None
        return stated if isinstance(stated, str) else None


def _replace_output(
    item: ViewItem, text_tokens: int, count: Callable[[Part], int], *, by: str | None
) -> tuple[Edit, int] | None:
    """Return the edit that replaces the text of an output, and the tokens that it saves.

    None for a small output. `by` says which newer output supersedes it, if one does.
    """
    if text_tokens < MIN_OUTPUT_TOKENS:
        return None
    reason, placeholder = (
        (SUPERSEDED_REASON, f"[removed: {by}; {text_tokens:,} tokens]")
        if by
        else (PRUNED_REASON, f"[old tool output removed: {text_tokens:,} tokens]")
    )
    parts = item.message.content
    first = next((at for at, part in enumerate(parts) if isinstance(part, str)), 0)
    content = tuple(
        placeholder if at == first else part
        for at, part in enumerate(parts)
        if at == first or not isinstance(part, str)
    )
    gain = text_tokens - sum(count(part) for part in content if isinstance(part, str))
    return (Edit(target=item.entry_id, content=content, reason=reason), gain) if gain > 0 else None


def _find_subjects(
    call: ToolCall, parsed: Mapping[str, object] | None, used: FileCall | None
) -> tuple[tuple[_Subject, ...], tuple[_Subject, ...]]:
    """Return the subjects of a call's output, and the subjects of the newer outputs that supersede it."""
    same = call.name, call.arguments if parsed is None else json.dumps(parsed, sort_keys=True)
    if parsed is None or used is None or used.use != "read" or len(used.paths) != 1:
        return (same,), (same,)
    path = used.paths[0]
    file = None, path
    # not a range of lines
    is_whole = all(value in (path, [path], "view", None) for value in parsed.values())
    return (same, file) if is_whole else (same,), (same, file)


def _iter_outputs(
    items: Sequence[ViewItem],
) -> Iterator[tuple[ViewItem, ToolCall, int, bool]]:
    """Iterate over the tool outputs of a view, newest first.

    Yields:
        The item, its call, the number of newer rounds that have tool outputs, and whether the
        model has replied since.
    """
    age, answered = 0, False
    for block in reversed(group_blocks(items)):
        calls = {call.id: call for call in items[block.start].message.tool_calls}
        outputs = [
            at
            for at in range(block.end - 1, block.start, -1)
            if not is_missing_result(items, block, at)
        ]
        for at in outputs:
            call = calls.get(items[at].message.tool_call_id or "")
            if call is not None:
                yield items[at], call, age, answered
        age += bool(outputs)
        answered = answered or items[block.start].message.role == "assistant"


CUT_MARKER = "\n[The middle of this output was cut out: it was too long.]\n"
"""Replaces the middle of a truncated result."""


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
    return attrs.evolve(
        message,
        content=tuple(
            truncate_text(
                part,
                min(size, level),
                head=HEAD_SHARE,
                marker=marker,
                tokenizer=tokenizer,
            )
            if isinstance(part, str)
            else part
            for part, size in zip(message.content, sizes, strict=True)
        ),
    )


def format_cut_marker(rest: str) -> str:
    """Return the marker of a truncated result that names the tool call which reads all of it."""
    return f"{CUT_MARKER.rstrip().removesuffix(']')} All of it: {rest}]\n"


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


MESSAGE_MARKER = (
    "\n[The middle of this message was left out: it does not fit the context window.]\n"
)
"""Replaces the middle of a user message that no request can show."""

WINDOW_SHARE = 2
"""A tool result may have half of what messages may have."""

MESSAGE_SHARE = 4
"""Of a user message that no request can show, a quarter of what a result may have stays."""


MUCH_TEXT = 25_000
"""Characters that are truncated in the event loop at most."""


class CappedView:
    """Build the view of a growing path, with tool results truncated to `result_tokens`, or to the limit of their tool if that is lower.

    A user message without a reply of more than twice `result_tokens`, which no request can show, is
    truncated too once another one follows: the request that it was sent with has failed.

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
        self._unchanged = 0
        """The number of items at the start of the view that no build since has changed."""
        self._tools: dict[str | None, str] = {}
        """The name of the tool by the id of each call of the view. If ids repeat, the newest call
        counts."""

    def set_limits(self, tokenizer: Tokenizer, *, result_tokens: int | None) -> None:
        """Use the tokenizer and the limit (tokens) of another model. None: only tools have limits."""
        self._tokenizer, self._result_tokens = tokenizer, result_tokens
        self._source = self._view = TranscriptView()
        self._unchanged = 0

    def get_unread(self, path: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries of a path that were not in the view that was built last."""
        return path[len(self._builder) :]

    def may_cap_much(self, entries: Sequence[Entry]) -> bool:
        """Return whether so much of these entries may have to be truncated that it takes some milliseconds."""
        least = min(
            [*filter(None, [self._result_tokens]), *self._limits.by_tool.values()],
            default=math.inf,
        )
        sizes = [
            len(payload.message.text)
            for entry in entries
            if isinstance(payload := entry.payload, MessageEntry)
        ]
        # a character has at most four bytes, and no token is shorter than a byte
        return sum([size for size in sizes if 4 * size > least]) > MUCH_TEXT

    @property
    def limits(self) -> tuple[Tokenizer, int | None]:
        """The tokenizer and the limit of results."""
        return self._tokenizer, self._result_tokens

    def copy_limits(self) -> CappedView:
        """Return a view with the same limits, of which nothing is built yet."""
        return CappedView(self._tokenizer, result_tokens=self._result_tokens, limits=self._limits)

    def build_view(self, path: Sequence[Entry]) -> TranscriptView:
        """Build the view of a path, root first."""
        source = self._build(path)
        if self._result_tokens is None and not self._limits.by_tool and self._limits.tools is None:
            return source
        if source is not self._source:
            self._view = self._update(source)
            self._source, self._unchanged = source, len(source.items)
        return self._view

    def _build(self, path: Sequence[Entry]) -> TranscriptView:
        """Build the view of a path without limits."""
        source = self._builder.build(path)
        self._unchanged = min(self._unchanged, self._builder.kept)
        return source

    def find_cut_markers(self, path: Sequence[Entry]) -> dict[str, str]:
        """Return the markers for tool results that a request truncates further, by the ids of their calls.

        Only results that a tool call can read in full have one.
        """
        tools: dict[str, str] = {}
        rests: dict[str, str | None] = {}
        for item in self._build(path).items:
            message = item.message
            tools.update((call.id, call.name) for call in message.tool_calls)
            if message.role == "tool" and message.tool_call_id is not None:
                tool = tools.get(message.tool_call_id)
                rests[message.tool_call_id] = self._limits.describe_rest(tool, item)
        return {call: format_cut_marker(rest) for call, rest in rests.items() if rest is not None}

    def _update(self, source: TranscriptView) -> TranscriptView:
        """Truncate the results of a view. Items at its start that have not changed are taken from the previous view."""
        items = source.items
        same = self._unchanged
        if same and items[same - 1].message.role == "user":
            same -= 1  # another message may follow it now
        capped = [*self._view.items[:same], *items[same:]]
        for at, item in enumerate(items[same:], same):
            message = item.message
            if message.role == "tool":
                capped[at] = self._cap_result(item)
            elif message.tool_calls:
                for call in message.tool_calls:
                    self._tools[call.id] = call.name
            elif item.kind == "summary":
                capped[at] = self._check_breadcrumb(item)
            # what a checkpoint repeats was shown before
            elif (
                message.role == "user"
                and item.kind == "message"
                and at + 1 < len(items)
                and is_user_request(items[at + 1])
            ):
                capped[at] = self._cap_request(item)
        return attrs.evolve(source, items=tuple(capped))

    def _check_breadcrumb(self, item: ViewItem) -> ViewItem:
        """Remove an example call of a tool that is not offered from a summary."""
        message, tools = item.message, self._limits.tools
        if tools is None:
            return item
        content = tuple(
            remove_missing_call(part, tools) if isinstance(part, str) else part
            for part in message.content
        )
        return (
            item
            if content == message.content
            else attrs.evolve(item, message=attrs.evolve(message, content=content))
        )

    def _cap_result(self, item: ViewItem) -> ViewItem:
        """Truncate a tool result that is longer than its limit."""
        tool, tokenizer = self._tools.get(item.message.tool_call_id), self._tokenizer
        limit, own = self._result_tokens, self._limits.by_tool.get(tool or "")
        if limit is None or (own is not None and own < limit):
            limit = own
        if limit is None or _fits(item.message, limit, tokenizer):
            return item
        rest = self._limits.describe_rest(tool, item)
        marker = CUT_MARKER if rest is None else format_cut_marker(rest)
        # the output itself is worth more
        if tokenizer.count(marker) > limit // 2:
            marker = CUT_MARKER
        return attrs.evolve(
            item, message=cap_result(item.message, limit, tokenizer=tokenizer, marker=marker)
        )

    def _cap_request(self, item: ViewItem) -> ViewItem:
        """Truncate a user message without a reply that no request can show."""
        limit, tokenizer = self._result_tokens, self._tokenizer
        parts = item.message.content
        # no character has more than four tokens
        is_text = all(isinstance(part, str) for part in parts)
        if (
            limit is None
            or (is_text and 2 * len(item.message.text) <= limit)
            or sum(count_part(part, tokenizer) for part in parts) <= WINDOW_SHARE * limit
        ):
            return item
        (named,) = name_media([item.message], "which does not fit the context window")
        return attrs.evolve(
            item,
            message=cap_result(
                named, max(1, limit // MESSAGE_SHARE), tokenizer=tokenizer, marker=MESSAGE_MARKER
            ),
        )


def _fits(message: Message, limit: int, tokenizer: Tokenizer) -> bool:
    """Return whether the texts of a message have at most `limit` tokens. Most are too short to have more, and are not counted."""
    texts = [part for part in message.content if isinstance(part, str)]
    # a character has at most four bytes, and no token is shorter than a byte
    if tokenizer.scale(4 * sum(map(len, texts))) <= limit:
        return True
    bounds = list(map(tokenizer.upper_bound, texts))
    return (None not in bounds and sum(filter(None, bounds)) <= limit) or (
        sum(map(tokenizer.count, texts)) <= limit
    )
