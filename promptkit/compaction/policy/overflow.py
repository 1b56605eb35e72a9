"""What a provider's refusal teaches of its window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.errors import ContextWindowFullError, InvalidArgumentError, ToolsFillBudgetError

if TYPE_CHECKING:
    from promptkit.tokens.budget import ContextBudget

__all__ = ["budget_after_overflow"]

SMALLER = 0.8
"""What the next request may have of one that was refused, where nothing better is known: the provider counts otherwise."""


def budget_after_overflow(budget: ContextBudget, *, refused: int, window: int | None = None) -> ContextBudget:
    """The budget after a request of `refused` tokens was too large, by the count made here; `window` is the provider's own figure.

    The limit is below `refused` then. Raises ContextWindowFullError if that leaves nothing beside the tools.
    """
    try:
        if window is not None and window > 0 and (budget.window is None or window < budget.window):
            reply = (
                budget.reserved_output_tokens
                if budget.reserved_output_tokens is not None and budget.reserved_output_tokens < window
                else None
            )
            reserve = budget.reserve_tokens if budget.reserve_tokens is not None and budget.reserve_tokens < window else None
            budget = attrs.evolve(budget, window=window, reserved_output_tokens=reply, reserve_tokens=reserve)
        limit = budget.limit
        if limit is None or limit >= refused:
            budget = attrs.evolve(budget, max_tokens=max(1, int(refused * SMALLER)))
    except (ToolsFillBudgetError, InvalidArgumentError) as error:
        message = f"the provider refused a request of {refused:,} tokens, and no smaller one is possible: {error}"
        raise ContextWindowFullError(message) from error
    return budget
