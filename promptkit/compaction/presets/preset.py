"""The preset: one compaction system, composed of a policy, a selection, a replacement, a summarizer and processors."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from promptkit.compaction.planning.selection import Keep, KeepLastRound
from promptkit.compaction.planning.tool_calls import FILE_RULES, FileRule
from promptkit.compaction.policy.rules import Policy
from promptkit.compaction.policy.state import CACHE_SECONDS
from promptkit.compaction.pruning.processors import Processor
from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
from promptkit.compaction.run.replacement import Replacement
from promptkit.compaction.summarizers.defaults import SummarizerContext, make_default_summarizer
from promptkit.compaction.summarizers.summarizer import Summarizer
from promptkit.reprs import describe
from promptkit.sizes import read_tokens
from promptkit.tokens import ContextBudget


def without_safety_share(budget: ContextBudget) -> ContextBudget:
    """Return the budget without the share that VS Code keeps free where there are tools."""
    return attrs.evolve(budget, safety=1.0)


def split_reserve(
    max_tokens: Callable[[ContextBudget], float | None],
) -> Callable[[ContextBudget], ContextBudget]:
    """Make a budget adjustment for a system that keeps a part of the context window free: the reply gets half of that part.

    Otherwise a request to a model with a long output would overflow before the system's threshold
    is reached. A `reserved_output_tokens` that the user chose does not change, nor does a shorter
    reserve.

    Args:
        max_tokens: Returns the size from which the system compacts, in tokens. None: unknown.

    Returns:
        The adjustment.
    """

    def adjust(budget: ContextBudget) -> ContextBudget:
        adjusted, threshold = without_safety_share(budget), max_tokens(budget)
        if threshold is None or budget.window is None or budget.reserved_output_tokens is not None:
            return adjusted
        reserve = max(0, int(budget.window - threshold)) // 2
        return attrs.evolve(
            adjusted, reserved_output_tokens=min(adjusted.output_reserve or 0, reserve)
        )

    return adjust


def limit_kept_tokens(tokens: int, max_tokens: float | None) -> int:
    """Limit the tokens that stay to half of `max_tokens`, the size from which the system compacts: otherwise little would be saved."""
    return tokens if max_tokens is None else max(1, min(tokens, int(max_tokens) // 2))


@attrs.frozen(kw_only=True)
class Preset:
    """One compaction system. `attrs.evolve(preset, keep=…)` is a variant of it."""

    name: str
    """The name, as in `PRESETS`."""
    follows: str | None = None
    """The system, with its version or date, that the rules and figures were taken from. None: no
    system."""
    policy: Callable[[Callable[[], float]], Policy]
    """Makes the policy from a random number generator: a function that returns a number from 0 to
    below 1."""
    adjust_budget: Callable[[ContextBudget], ContextBudget] = lambda budget: budget
    """Applies the system's thresholds and reserves to a model's budget."""
    keep: Callable[[ContextBudget], Keep] = lambda _: KeepLastRound()
    """Returns which messages stay at a compaction."""
    split: bool = False
    """Whether a turn may be split, with a summary of its first part."""
    replacement: Replacement = attrs.field(factory=Replacement)
    """How the summary replaces the summarized messages."""
    summarizer: Callable[[SummarizerContext], Summarizer] = make_default_summarizer
    """Makes the summarizer."""
    summary_model: str | None = None
    """The name of the model that writes summaries. A session opens it like `model=`; a window is
    given the object as `summarizer=`. None: the model that answers, or the one that is given."""
    summary_model_filter: tuple[str, ...] = ()
    """Parts of the names of models whose conversations another model summarizes, in any case.
    Empty: all of them."""
    max_summary_tokens: int | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """The most tokens of a summary, if the system has a lower limit than promptkit. None: that of
    the budget."""
    processors: tuple[Processor, ...] = ()
    """Functions that change the messages of each request, in this order, before the render.
    Thresholds are compared with what they leave."""
    reduce: ReduceToolResults | None = None
    """Replaces old and superseded tool results by placeholders in the view, permanently, before a
    request. None: none are replaced."""
    file_rules: tuple[FileRule, ...] = FILE_RULES
    """Tell which files a tool call reads or changes:
    `attrs.evolve(preset, file_rules=(FileRule(tools="fmt", use="change"), *FILE_RULES))`."""
    cache_seconds: float = CACHE_SECONDS
    """Seconds after a request for which the provider's prompt cache is taken to hold it. Where the
    cache is cold, summaries start later."""
    handoff: Callable[[SummarizerContext], Summarizer] | None = None
    """Makes the summarizer of compactions with the trigger `handoff`, which keep no messages. None:
    they are summarized as all others."""
    auto_continue: bool = False
    """Whether a session asks the model to go on after a compaction at the end of a turn."""
    enabled: bool = True
    """Whether automatic compaction is on."""

    def __repr__(self) -> str:
        return describe(self, name=self.name, follows=self.follows)

    def allows_summary_model(self, answering_model: str) -> bool:
        """Return whether conversations with a model are summarized by another model, if there is one."""
        return not self.summary_model_filter or any(
            part.casefold() in answering_model.casefold() for part in self.summary_model_filter
        )
