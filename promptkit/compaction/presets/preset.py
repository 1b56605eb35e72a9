"""What a preset is: one compaction system, as a composition of promptkit's concepts.

What presets make of a model's budget: which part of the window requests may have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.selection import Keep, KeepLastRound
from promptkit.compaction.pruning.processors import truncator
from promptkit.compaction.replacement import Replacement
from promptkit.compaction.summarizers.defaults import SummarizerContext, default_summarizer

if TYPE_CHECKING:
    from promptkit.compaction.budget import Budget
    from promptkit.compaction.policy.rules import Policy
    from promptkit.compaction.pruning.processors import Processor
    from promptkit.compaction.summarizers.summarizer import Summarizer

__all__ = ["Preset", "exact", "reaching", "rounds", "unchanged", "within"]


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


def rounds(budget: Budget) -> Keep:
    """The newest round of the turn, whatever the budget."""
    _ = budget
    return KeepLastRound()


@attrs.frozen(kw_only=True)
class Preset:
    """One compaction system. `attrs.evolve(preset, keep=…)` is another one."""

    name: str
    policy: Callable[[Callable[[], float]], Policy]
    """Makes the policy, with a generator of numbers from 0 to below 1."""
    figures: Callable[[Budget], Budget] = unchanged
    """The system's thresholds and reserves, on a model's budget."""
    keep: Callable[[Budget], Keep] = rounds
    """What a summary leaves as it is."""
    split: bool = False
    """A turn may be cut in two, with a summary of its first part."""
    replacement: Replacement = attrs.field(factory=Replacement)
    """What stands in the place of what is summarized."""
    summarizer: Callable[[SummarizerContext], Summarizer] = default_summarizer
    processors: tuple[Processor, ...] = (truncator(),)
    """What is done to the messages of each request, in order, after a compaction and before the render."""
    prunes: bool = False
    """Old tool outputs are taken out of the view, for good, where the policy says so."""
    enabled: bool = True
    """Whether anything is done that nobody asked for."""
