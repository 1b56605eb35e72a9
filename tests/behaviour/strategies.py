"""Prompts of every shape that the oracle knows, small enough for it, and tokenizers that count in different ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from promptkit.testing import WordTokenizer, strategies
from promptkit.tokens import CalibratedTokenizer
from tests.behaviour.tokenizers import Bounded, Chars, Runs

if TYPE_CHECKING:
    from collections.abc import Collection

    from hypothesis.strategies import SearchStrategy

    from promptkit import Child
    from promptkit.tokens import Tokenizer

__all__ = ["FEATURES", "prompts", "tokenizers"]

FEATURES: tuple[strategies.Feature, ...] = (
    "required",
    "fallback",
    "breakpoint",
    "limit",
    "keep",
    "reserve",
    "legacy",
    "tools",
    "pass",
    "media",
    "blank",
)


def prompts(
    features: Collection[strategies.Feature] = FEATURES, size: int = 14
) -> SearchStrategy[Child]:
    """A well-formed prompt of up to `size` pieces, with some of these features."""
    return strategies.prompts(features=features, size=size)


def tokenizers() -> SearchStrategy[Tokenizer]:
    """Additive ones with and without framing, one with bounds, one that is additive nowhere, and calibrated ones."""
    made: tuple[Tokenizer, ...] = (
        WordTokenizer(),
        WordTokenizer(per_message=2, per_call=1, per_image=3),
        Bounded(per_message=2, per_call=1, per_image=3),
        Chars(per_message=1, per_call=2, per_image=3),
        Runs(per_message=1, per_call=1, per_image=2),
        Runs(),
        CalibratedTokenizer(WordTokenizer(per_message=2, per_call=1, per_image=3), 1.3),
        CalibratedTokenizer(Runs(per_message=1), 0.8, floor=0.5),
    )
    return st.sampled_from(made)
