"""What a preset is: one compaction system, as a composition of promptkit's concepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.presets.figures import unchanged
from promptkit.compaction.processors import truncator
from promptkit.compaction.replacement import Replacement
from promptkit.compaction.selection import Keep, Rounds
from promptkit.compaction.writing import Writing, default_summarizer

if TYPE_CHECKING:
    from promptkit.compaction.budget import Budget
    from promptkit.compaction.policy import Policy
    from promptkit.compaction.processors import Processor
    from promptkit.compaction.summarizer import Summarizer

__all__ = ["Preset", "rounds"]


def rounds(budget: Budget) -> Keep:
    """The newest round of the turn, whatever the budget."""
    _ = budget
    return Rounds()


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
    summarizer: Callable[[Writing], Summarizer] = default_summarizer
    processors: tuple[Processor, ...] = (truncator(),)
    """What is done to the messages of each request, in order, after a compaction and before the render."""
    prunes: bool = False
    """Old tool outputs are taken out of the view, for good, where the policy says so."""
    enabled: bool = True
    """Whether anything is done that nobody asked for."""
