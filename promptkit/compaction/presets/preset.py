"""What a preset is: one compaction system, as a composition of promptkit's concepts.

What presets make of a model's budget: which part of the window requests may have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.selection import Keep, KeepLastRound
from promptkit.compaction.pruning.processors import truncate_history
from promptkit.compaction.replacement import Replacement
from promptkit.compaction.summarizers.defaults import SummarizerContext, make_default_summarizer

if TYPE_CHECKING:
    from promptkit.compaction.policy.rules import Policy
    from promptkit.compaction.pruning.processors import Processor
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.tokens.budget import ContextBudget

__all__ = ["Preset", "without_safety_share", "split_reserve", "keep_last_round", "keep_budget", "limit_kept_tokens"]


def keep_budget(budget: ContextBudget) -> ContextBudget:
    """The model's own figures."""
    return budget


def without_safety_share(budget: ContextBudget) -> ContextBudget:
    """The model's own figures, without the share that VS Code keeps back where there are tools."""
    return attrs.evolve(budget, safety=1.0)


def split_reserve(most: Callable[[ContextBudget], float | None]) -> Callable[[ContextBudget], ContextBudget]:
    """Figures for a system that keeps a part of the window free by itself: half of that is the reply's, and requests may have the rest.

    Else a model of which a longer output is known would overflow before the system's threshold is reached. A reply that somebody asked
    for stays, and so does a shorter one.
    """

    def figures(budget: ContextBudget) -> ContextBudget:
        its, wanted = without_safety_share(budget), most(budget)
        if wanted is None or budget.window is None or budget.reserved_output_tokens is not None:
            return its
        return attrs.evolve(its, reserved_output_tokens=min(its.output_reserve or 0, max(0, int(budget.window - wanted)) // 2))

    return figures


def limit_kept_tokens(tokens: int, most: float | None) -> int:
    """What may be kept of so many tokens where a conversation may have `most`: half of that at most, or nothing would be gained."""
    return tokens if most is None else max(1, min(tokens, int(most) // 2))


def keep_last_round(budget: ContextBudget) -> Keep:
    """The newest round of the turn, whatever the budget."""
    _ = budget
    return KeepLastRound()


@attrs.frozen(kw_only=True)
class Preset:
    """One compaction system. `attrs.evolve(preset, keep=…)` is another one."""

    name: str
    policy: Callable[[Callable[[], float]], Policy]
    """Makes the policy, with a generator of numbers from 0 to below 1."""
    adjust_budget: Callable[[ContextBudget], ContextBudget] = keep_budget
    """The system's thresholds and reserves, on a model's budget."""
    keep: Callable[[ContextBudget], Keep] = keep_last_round
    """What a summary leaves as it is."""
    split: bool = False
    """A turn may be cut in two, with a summary of its first part."""
    replacement: Replacement = attrs.field(factory=Replacement)
    """What stands in the place of what is summarized."""
    summarizer: Callable[[SummarizerContext], Summarizer] = make_default_summarizer
    processors: tuple[Processor, ...] = (truncate_history(),)
    """What is done to the messages of each request, in order, after a compaction and before the render."""
    prunes: bool = False
    """Old tool outputs are taken out of the view, for good, where the policy says so."""
    enabled: bool = True
    """Whether anything is done that nobody asked for."""
