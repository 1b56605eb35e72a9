"""The budgets of a bench, as people write them: `1k:128k:log16`, `1k:8k:1k`, `2k,8k,32k`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, NoReturn

from promptkit.errors import PromptKitError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["MAX_BUDGETS", "InvalidBudgetsError", "parse_budgets", "check_budgets"]

MAX_BUDGETS = 1_000
"""Budgets of one bench: each is rendered, and more than that are a slip of the pen."""

UNITS = {"": 1, "k": 1_000, "m": 1_000_000}


class InvalidBudgetsError(PromptKitError):
    """Text that says no budgets, or too many of them."""


def parse_budgets(text: str) -> tuple[int, ...]:
    """The budgets that a text says, in tokens, sorted, each once.

    A comma list of single sizes (`8000`, `8_000`, `8k`, `1.5k`, `1m`) and of ranges: `A:B:logN` are N sizes from A to B in equal
    ratios, `A:B:linN` N sizes in equal steps, both with A and B among them and rounded to whole tokens; `A:B:STEP` are A, A + STEP
    and so on up to B. Raises BadBudgetsError.

    >>> parse_budgets("1k:8k:log4")
    (1000, 2000, 4000, 8000)
    >>> parse_budgets("500,1k:3k:1k")
    (500, 1000, 2000, 3000)
    """
    found: set[int] = set()
    for item in text.split(","):
        found.update(_range(item) if ":" in item else (_size(item, item),))
        if len(found) > MAX_BUDGETS:
            _refuse_so_many(text, len(found))
    return tuple(sorted(found))


def check_budgets(budgets: Sequence[object]) -> None:
    """Raise BadBudgetsError unless there is a budget, and each is a whole number of tokens, 1 or more."""
    wrong = [budget for budget in budgets if not isinstance(budget, int) or budget < 1]
    if wrong or not budgets:
        message = f"budgets {list(budgets)!r}: a bench takes one or more, each a whole number of tokens, 1 or more."
        raise InvalidBudgetsError(message)


def _range(text: str) -> Iterable[int]:
    pieces = [piece.strip() for piece in text.split(":")]
    if len(pieces) != 3:  # noqa: PLR2004  # from, to, how
        _refuse(text, "a range is written A:B:log16, A:B:lin16 or A:B:STEP")
    first, last = _size(pieces[0], text), _size(pieces[1], text)
    if first > last:
        _refuse(text, "a range goes from the smaller size to the larger")
    spaced = re.fullmatch(r"(log|lin)(\d+)", pieces[2].lower(), re.ASCII)
    if spaced is None:
        step = _size(pieces[2], text)
        sizes = range(first, last + 1, step)
        if len(sizes) > MAX_BUDGETS:
            _refuse_so_many(text, len(sizes))
        return sizes
    if len(spaced[2]) > len(str(MAX_BUDGETS)) or int(spaced[2]) > MAX_BUDGETS:
        _refuse(text, f"those are more than {MAX_BUDGETS:,} budgets")
    number = int(spaced[2])
    if number < 2:  # noqa: PLR2004  # the two ends
        _refuse(text, f"{spaced[1]} takes a number of sizes, 2 or more: both ends are among them")
    if spaced[1] == "lin":
        return (round(first + Fraction((last - first) * index, number - 1)) for index in range(number))
    return (round(first * (last / first) ** (index / (number - 1))) for index in range(number))


def _size(text: str, within: str) -> int:
    """One size of 1 token or more, written as everywhere on the command line."""
    match = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?)([km]?)", text.strip().lower(), re.ASCII)
    size = Fraction(match[1].replace("_", "")) * UNITS[match[2]] if match else Fraction(0)
    if size.denominator != 1 or not size:
        _refuse(within, f"{text.strip()!r} is no number of tokens: write it as 8000, 8k or 1m")
    return int(size)


def _refuse(text: str, why: str) -> NoReturn:
    message = f"budgets {text.strip()!r}: {why}."
    raise InvalidBudgetsError(message)


def _refuse_so_many(text: str, number: int) -> NoReturn:
    _refuse(text, f"those are {number:,} budgets, and {MAX_BUDGETS:,} are the most")
