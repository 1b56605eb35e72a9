"""Which model a conversation may go on with where that of now is too small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.compaction.budget import budget_for
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.providers.model import Model
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["next_larger"]


def next_larger(models: Sequence[Model], window: int | None, *, tokenizer: Tokenizer | None) -> Model | None:
    """The first of some models whose window is known and larger than `window` tokens; None where there is none, or `window` is unknown."""
    if window is None:
        return None
    sizes = ((model, budget_for(model.name, tokenizer=tokenizer or tokenizer_for(model.name)).window) for model in models)
    return next((model for model, size in sizes if size is not None and size > window), None)
