"""The receipt as text that reads well in a terminal and in a review."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptkit.rendering.result import Rendered

__all__ = ["explain"]

NUMBERS = range(3)  # the columns that are set to the right


def explain(rendered: Rendered) -> str:
    """What was kept, what was removed and why, what was mended."""
    share = f" ({rendered.tokens / rendered.budget:.0%})" if rendered.budget else ""
    exact = "" if rendered.exact else ", estimated"
    lines = [f"{rendered.tokens:,} of {rendered.budget:,} tokens{share}{exact} in {len(rendered.messages)} messages"]
    if rendered.reserved:
        lines.append(f"{rendered.reserved:,} tokens reserved")
    if rendered.context is not None:
        lines.append(rendered.context.explain())
    removals = rendered.removals
    if removals:
        lines.append(f"removed {len(removals)}, lowest first:")
        rows = [
            (f"{removal.order}.", f"{removal.tokens:,}", _priority(removal.priority), removal.path, _why(removal.reason, removal.partner))
            for removal in removals
        ]
        head = ("", "tokens", "priority", "element", "reason")
        widths = [max(len(row[column]) for row in [head, *rows]) for column in range(5)]
        for row in [head, *rows]:
            cells = [
                cell.rjust(width) if column in NUMBERS else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  " + "  ".join(cells).rstrip())
    else:
        lines.append("nothing was removed")
    lines.extend(f"repaired: {repair.kind}: {repair.detail}" for repair in rendered.repairs)
    return "\n".join(lines)


def _priority(priority: float) -> str:
    if priority >= 2**53 - 1:
        return "highest"
    return "lowest" if priority <= -(2**53) else f"{priority:g}"


def _why(reason: str, partner: str | None) -> str:
    return f"{reason}: {partner}" if partner else reason
