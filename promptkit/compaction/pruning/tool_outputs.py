"""Old tool outputs taken out of the view for good: as edits, which a transcript appends; what was written stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.blocks import blocks_of, is_placeholder
from promptkit.compaction.pruning.messages import tool_names
from promptkit.rendering.sizing import Sizer
from promptkit.transcript.entries import Checkpoint, Edit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from promptkit.compaction.pruning.messages import Reduced
    from promptkit.messages import Part
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.view import TranscriptView, ViewItem

__all__ = ["LEAST_SAVED", "PROTECTED", "PRUNED", "Pruning", "as_edits", "prune_outputs"]

PROTECTED = 40_000
"""The newest tokens of tool outputs that stay."""

LEAST_SAVED = 20_000
"""Tokens that pruning must save: each time, the provider's prompt cache is lost from the first changed output on."""

LEAST_OUTPUT = 50
"""Tokens of an output below which it is not worth a placeholder."""

PRUNED = "pruned"


@attrs.frozen(kw_only=True)
class Pruning:
    """The edits that take old outputs out of the view; none where it is not worth it. `saved` is tokens."""

    edits: tuple[Edit, ...] = ()
    saved: int = 0
    possible: int = 0
    """What could be saved if it were enough."""


def prune_outputs(  # noqa: PLR0913  # what can be said of what stays
    path: Sequence[Entry],
    projection: TranscriptView,
    *,
    tokenizer: Tokenizer,
    protect: int = PROTECTED,
    least_saved: int = LEAST_SAVED,
    tools: Collection[str] = ("skill",),
) -> Pruning:
    """What pruning would take out of a view: all text of tool outputs older than the newest `protect` tokens of them.

    Never those of `tools`, nor of a block that the model has not answered to, nor what stands before the checkpoint. Images stay.
    Nothing unless `least_saved` tokens are saved; what was pruned before is small, and hides nothing that is older. (OpenCode.)
    """
    items = projection.items
    after = _behind_checkpoint(path, projection)
    names = tool_names([item.message for item in items])
    count = Sizer(tokenizer).part
    seen = 0
    saved = 0
    edits: list[Edit] = []
    for at in _outputs(items):
        item = items[at]
        if names.get(at) in tools or item.entry not in after:
            continue
        texts = sum(count(part) for part in item.message.content if isinstance(part, str))
        seen += texts
        if seen <= protect or texts < LEAST_OUTPUT:
            continue
        content = _without_text(item.message.content, f"[old tool output removed: {texts:,} tokens]")
        gain = texts - sum(count(part) for part in content if isinstance(part, str))
        if gain > 0:
            edits.append(Edit(target=item.entry, content=content, reason=PRUNED))
            saved += gain
    if saved < max(1, least_saved):
        return Pruning(possible=saved)
    return Pruning(edits=tuple(reversed(edits)), saved=saved, possible=saved)


def as_edits(path: Sequence[Entry], projection: TranscriptView, reduced: Reduced, *, reason: str) -> tuple[Edit, ...]:
    """The edits that make a reduction of the view last, where it changed what messages hold; `reduced` is of all of its messages.

    What the reduction left out, what stands before the checkpoint and what no entry was written for stays as it is.
    """
    items = projection.items
    after = _behind_checkpoint(path, projection)
    placeholders = {at for block in blocks_of(items) for at in range(block.start, block.end) if is_placeholder(items, block, at)}
    return tuple(
        Edit(target=items[source].entry, content=message.content, reason=reason)
        for message, source in zip(reduced.messages, reduced.sources, strict=True)
        if message != items[source].message and items[source].entry in after and source not in placeholders
    )


def _behind_checkpoint(path: Sequence[Entry], projection: TranscriptView) -> set[str]:
    """The entries that came after the checkpoint of the view, all of them where there is none."""
    after: set[str] = set()
    for at in range(len(path) - 1, -1, -1):
        if isinstance(path[at].payload, Checkpoint) and path[at].id == projection.checkpoint:
            break
        after.add(path[at].id)
    return after


def _outputs(items: Sequence[ViewItem]) -> Iterator[int]:
    """The places of the outputs that the model has answered to, newest first."""
    blocks = blocks_of(items)
    answered = False
    for block in reversed(blocks):
        if answered:
            yield from (at for at in range(block.end - 1, block.start, -1) if not is_placeholder(items, block, at))
        answered = answered or items[block.start].message.role == "assistant"


def _without_text(content: Sequence[Part], placeholder: str) -> tuple[Part, ...]:
    first = next((at for at, part in enumerate(content) if isinstance(part, str)), 0)
    return tuple(placeholder if at == first else part for at, part in enumerate(content) if at == first or not isinstance(part, str))
