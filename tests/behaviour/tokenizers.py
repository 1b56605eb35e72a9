"""Two more tokenizers beside WordTokenizer: one that counts characters, and one whose counts change at every joint."""

from __future__ import annotations

import re
from itertools import groupby

import attrs

from promptkit.testing import WordTokenizer

__all__ = ["Chars", "Runs"]


@attrs.frozen(kw_only=True)
class Chars(WordTokenizer):
    """One token per character: everything is additive everywhere."""

    @property
    def safe_cut(self) -> re.Pattern[str]:
        return re.compile("")

    def count(self, text: str) -> int:
        return len(text)


@attrs.frozen(kw_only=True)
class Runs(WordTokenizer):
    """One token per run of letters, of digits, of white space, of the rest; a run of over four letters is two.

    Nothing is additive, and taking text away can make the rest more expensive, or not cheaper.
    """

    @property
    def safe_cut(self) -> None:  # no position is known to be safe
        return None

    def count(self, text: str) -> int:
        runs = ((kind, len(list(group))) for kind, group in groupby(text, _kind))
        return sum(2 if kind == "letter" and length > 4 else 1 for kind, length in runs)


def _kind(character: str) -> str:
    if character.isalpha():
        return "letter"
    if character.isdigit():
        return "digit"
    return "space" if character.isspace() else "other"
