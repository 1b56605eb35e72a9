"""Tool outputs in a view: old ones are pruned by edits, which a transcript appends, and large ones are capped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.blocks import group_blocks, is_missing_result
from promptkit.compaction.pruning.messages import cap_results, find_tool_names
from promptkit.rendering.sizing import Sizer
from promptkit.transcript.entries import Checkpoint, Edit
from promptkit.transcript.view import TranscriptView, ViewBuilder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from promptkit.compaction.pruning.messages import Reduction
    from promptkit.messages import Part
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.view import ViewItem

__all__ = ["MIN_SAVED_TOKENS", "PROTECTED_TOKENS", "PRUNED_REASON", "CappedView", "Pruning", "edits_from_reduction", "prune_outputs"]

PROTECTED_TOKENS = 40_000
"""Tokens of the newest tool outputs that are never pruned."""

MIN_SAVED_TOKENS = 20_000
"""Tokens that pruning must save. It invalidates the provider's prompt cache from the first changed output on."""

MIN_OUTPUT_TOKENS = 50
"""Size in tokens below which an output is not pruned."""

PRUNED_REASON = "pruned"
"""The reason in the edits."""


@attrs.frozen(kw_only=True)
class Pruning:
    """The edits that remove old tool outputs from a view."""

    edits: tuple[Edit, ...] = ()
    """Empty if pruning would save too little."""
    saved_tokens: int = 0
    """Tokens that the edits save."""
    possible_tokens: int = 0
    """Tokens that pruning would save, even if too few for edits."""


def prune_outputs(  # noqa: PLR0913  # keywords
    path: Sequence[Entry],
    view: TranscriptView,
    *,
    tokenizer: Tokenizer,
    protected_tokens: int = PROTECTED_TOKENS,
    min_saved_tokens: int = MIN_SAVED_TOKENS,
    exempt: Collection[str] = ("skill",),
) -> Pruning:
    """Plan the pruning of old tool outputs: their text is replaced by a placeholder, images stay. OpenCode does the same.

    Outputs before the checkpoint and outputs that the model has not replied to are never pruned. Outputs that were pruned before are
    small, so that older ones are still found.

    Args:
        path: The entries, root first.
        view: The view of this path.
        tokenizer: Counts text.
        protected_tokens: Tokens of the newest outputs that stay. Default: 40,000.
        min_saved_tokens: Tokens that pruning must save, or there are no edits. Default: 20,000.
        exempt: Names of tools whose outputs stay.

    Returns:
        The edits, and the tokens that they save.
    """
    items = view.items
    after = _entries_after_checkpoint(path, view)
    names = find_tool_names([item.message for item in items])
    count = Sizer(tokenizer).count_part
    seen = 0
    saved = 0
    edits: list[Edit] = []
    for at in _iter_outputs(items):
        item = items[at]
        if names.get(at) in exempt or item.entry_id not in after:
            continue
        text_tokens = sum(count(part) for part in item.message.content if isinstance(part, str))
        seen += text_tokens
        if seen <= protected_tokens or text_tokens < MIN_OUTPUT_TOKENS:
            continue
        content = _replace_text(item.message.content, f"[old tool output removed: {text_tokens:,} tokens]")
        gain = text_tokens - sum(count(part) for part in content if isinstance(part, str))
        if gain > 0:
            edits.append(Edit(target=item.entry_id, content=content, reason=PRUNED_REASON))
            saved += gain
    if saved < max(1, min_saved_tokens):
        return Pruning(possible_tokens=saved)
    return Pruning(edits=tuple(reversed(edits)), saved_tokens=saved, possible_tokens=saved)


def edits_from_reduction(path: Sequence[Entry], view: TranscriptView, reduction: Reduction, *, reason: str) -> tuple[Edit, ...]:
    """Make a reduction of a view permanent: return edits for the messages whose content it changed.

    Messages that it dropped, messages before the checkpoint and results that were never recorded do not change.

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
    placeholders = {at for block in group_blocks(items) for at in range(block.start, block.end) if is_missing_result(items, block, at)}
    return tuple(
        Edit(target=items[source].entry_id, content=message.content, reason=reason)
        for message, source in zip(reduction.messages, reduction.sources, strict=True)
        if message != items[source].message and items[source].entry_id in after and source not in placeholders
    )


def _entries_after_checkpoint(path: Sequence[Entry], projection: TranscriptView) -> set[str]:
    """Return the entries after the checkpoint of the view, or all of them if it has none."""
    after: set[str] = set()
    for at in range(len(path) - 1, -1, -1):
        if isinstance(path[at].payload, Checkpoint) and path[at].id == projection.checkpoint_id:
            break
        after.add(path[at].id)
    return after


def _iter_outputs(items: Sequence[ViewItem]) -> Iterator[int]:
    """Iterate over the indexes of the tool outputs that the model has replied to, newest first."""
    blocks = group_blocks(items)
    answered = False
    for block in reversed(blocks):
        if answered:
            yield from (at for at in range(block.end - 1, block.start, -1) if not is_missing_result(items, block, at))
        answered = answered or items[block.start].message.role == "assistant"


def _replace_text(content: Sequence[Part], placeholder: str) -> tuple[Part, ...]:
    first = next((at for at, part in enumerate(content) if isinstance(part, str)), 0)
    return tuple(placeholder if at == first else part for at, part in enumerate(content) if at == first or not isinstance(part, str))


class CappedView:
    """Builds the view of a growing path, with tool results truncated to `result_tokens`. The transcript holds them in full.

    A message that was in the view before is the same object again, and is not counted again.
    """

    def __init__(self, tokenizer: Tokenizer, *, result_tokens: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._result_tokens = result_tokens
        self._builder = ViewBuilder()
        self._source = self._view = TranscriptView()

    def set_limits(self, tokenizer: Tokenizer, *, result_tokens: int | None) -> None:
        """Use the figures of another model. `result_tokens=None` truncates nothing."""
        self._tokenizer, self._result_tokens = tokenizer, result_tokens
        self._source = self._view = TranscriptView()

    def build_view(self, path: Sequence[Entry]) -> TranscriptView:
        """Build the view of a path, root first."""
        source = self._builder.build(path)
        if self._result_tokens is None:
            return source
        if source is not self._source:
            self._view = self._update(source, self._result_tokens)
            self._source = source
        return self._view

    def _update(self, source: TranscriptView, result_tokens: int) -> TranscriptView:
        """Cap the items of a view, except those at its start that are the same as last time."""
        old = self._source.items
        same = len(old) if source.items[: len(old)] == old else 0  # usually items were appended: one comparison
        for before, now in zip(old[same:], source.items[same:], strict=False):
            if before is not now:
                break
            same += 1
        new = (self._cap(item, result_tokens) for item in source.items[same:])
        return attrs.evolve(source, items=(*self._view.items[:same], *new))

    def _cap(self, item: ViewItem, result_tokens: int) -> ViewItem:
        if item.message.role != "tool":
            return item
        (message,) = cap_results((item.message,), result_tokens, tokenizer=self._tokenizer).messages
        return item if message is item.message else attrs.evolve(item, message=message)
