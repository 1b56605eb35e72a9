"""More tokenizers beside WordTokenizer: one that counts characters, one whose counts change at every joint, and one with bounds and an overhead."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

import attrs

from promptkit.testing import WordTokenizer
from promptkit.tokens import Count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit import ToolDefinition

__all__ = ["Bounded", "Chars", "Runs"]


@attrs.frozen(kw_only=True)
class Bounded(WordTokenizer):
    """Counts words, knows without counting how many a text has, and adds some to each request."""

    def upper_bound(self, text: str) -> int:
        return self.count(text)

    def lower_bound(self, text: str) -> int:
        return self.count(text)

    def count_overhead(
        self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
    ) -> Count:
        return Count(len(tools) + (6 if system else 2))


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
