"""What presets make of a model's budget: which part of the window requests may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.compaction.budget import Budget

__all__ = ["exact", "reaching", "unchanged", "within"]


def unchanged(budget: Budget) -> Budget:
    """The model's own figures."""
    return budget


def exact(budget: Budget) -> Budget:
    """The model's own figures, without the share that VS Code keeps back where there are tools."""
    return attrs.evolve(budget, safety=1.0)


def reaching(most: Callable[[Budget], float | None]) -> Callable[[Budget], Budget]:
    """Figures for a system that keeps a part of the window free by itself: half of that is the reply's, and requests may have the rest.

    Else a model of which a longer output is known would overflow before the system's threshold is reached. A reply that somebody asked
    for stays, and so does a shorter one.
    """

    def figures(budget: Budget) -> Budget:
        its, wanted = exact(budget), most(budget)
        if wanted is None or budget.window is None or budget.reply_tokens is not None:
            return its
        return attrs.evolve(its, reply_tokens=min(its.reply or 0, max(0, int(budget.window - wanted)) // 2))

    return figures


def within(tokens: int, most: float | None) -> int:
    """What may be kept of so many tokens where a conversation may have `most`: half of that at most, or nothing would be gained."""
    return tokens if most is None else max(1, min(tokens, int(most) // 2))
