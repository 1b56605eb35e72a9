"""What a prompt cost and what it lost, as a text that is read in a review.

Columns have fixed widths and lines no numbers, so that one more removal is one more line in a diff.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from promptkit.rendering.tree import HIGHEST
from promptkit.testing.snapshots.markdown import json_safe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptkit.rendering.result import Rendered
    from promptkit.testing.snapshots.budgets import Level
    from promptkit.testing.snapshots.stabilize import Stable

__all__ = ["receipt_document"]


def receipt_document(levels: Sequence[Level], stable: Stable) -> str:
    """The receipts at these budgets, with promptkit's version first and a line break at the end."""
    sections = [f"promptkit {version('promptkit')}"]
    for level in levels:
        lines = _lines(level.rendered, stable) if level.rendered else [level.error]
        sections.append("\n".join([*([f"== {level.label} =="] if level.label else []), *map(_one_line, lines)]))
    return "{}\n".format("\n\n".join(sections))


def _one_line(text: str) -> str:
    return json_safe(text.replace("\n", " ").replace("\t", " ")).rstrip(" ")


def _lines(rendered: Rendered, stable: Stable) -> Iterator[str]:
    exact = "" if rendered.exact else ", estimated"
    count = len(rendered.messages)
    yield f"{rendered.tokens:,} of {rendered.budget:,} tokens{exact} in {count:,} message{'' if count == 1 else 's'}"
    if rendered.context is not None:
        yield f"budget: {rendered.context.explain()}"
    if rendered.reserved:
        yield f"reserved: {rendered.reserved:,} tokens"
    yield from (f"repaired: {repair.kind}: {stable.text(repair.detail)}" for repair in rendered.repairs)
    yield from (f"reference left out: {stable.text(str(reference.to))}" for reference in rendered.omitted_references)
    if not rendered.removals:
        yield "removed: nothing"
        return
    pieces = len(rendered.removals)
    yield f"removed: {pieces:,} piece{'' if pieces == 1 else 's'}, first to last"
    yield _row("tokens", "priority", "reason", "element")
    for removal in rendered.removals:
        partner = f" (with {stable.text(removal.partner)})" if removal.partner else ""
        yield _row(f"{removal.tokens:,}", _priority(removal.priority), removal.reason, stable.text(removal.path) + partner)


def _row(tokens: str, priority: str, reason: str, element: str) -> str:
    return f"{tokens:>9}  {priority:>8}  {reason:<9}  {element}"


def _priority(priority: float) -> str:
    if priority >= HIGHEST:
        return "highest"
    return "lowest" if priority < -HIGHEST else f"{priority:g}"
