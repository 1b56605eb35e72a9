"""What a provider's refusal of a request says about the model's context window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.errors import ContextWindowFullError, InvalidArgumentError, ToolsFillBudgetError

if TYPE_CHECKING:
    from promptkit.tokens.budget import ContextBudget

__all__ = ["budget_after_overflow"]

SMALLER = 0.8
"""Share of the refused request's tokens that the next request may have where the window stays unknown: the provider counts differently."""


def budget_after_overflow(budget: ContextBudget, *, refused: int, window: int | None = None) -> ContextBudget:
    """Return the budget for requests after the provider refused one as too large. Its limit is below `refused`.

    Args:
        budget: The budget that the refused request was made with.
        refused: Tokens of the refused request, as counted here.
        window: The context window in tokens, if the provider's error names it.

    Raises:
        ContextWindowFullError: The smaller limit leaves nothing beside the tool definitions.
    """
    try:
        if window is not None and window > 0 and (budget.window is None or window < budget.window):
            budget = attrs.evolve(
                budget,
                window=window,
                reserved_output_tokens=_below(budget.reserved_output_tokens, window),
                reserve_tokens=_below(budget.reserve_tokens, window),
            )
        limit = budget.limit
        if limit is None or limit >= refused:
            budget = attrs.evolve(budget, max_tokens=max(1, int(refused * SMALLER)))
    except (ToolsFillBudgetError, InvalidArgumentError) as error:
        message = f"the provider refused a request of {refused:,} tokens, and no smaller one is possible: {error}"
        raise ContextWindowFullError(message) from error
    return budget


def _below(tokens: int | None, window: int) -> int | None:
    return tokens if tokens is not None and tokens < window else None
