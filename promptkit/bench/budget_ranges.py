"""Parse the budgets of a bench: `1k:128k:log16`, `1k:8k:1k`, `2k,8k,32k`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NoReturn

from promptkit.errors import InvalidArgumentError, PromptKitError
from promptkit.tokens import parse_tokens

MAX_BUDGETS = 1_000
"""Budgets of one bench. Each is rendered, so a larger number is most likely a mistake."""


MIN_SPACED = 2
"""Sizes of a range in equal ratios or steps, at least: its two ends."""


class InvalidBudgetsError(PromptKitError):
    """Budgets that cannot be parsed, or are too many."""


def parse_budgets(text: str) -> tuple[int, ...]:
    """Parse a list of budgets and ranges.

    Return the budgets in tokens, sorted and without duplicates.

    Items are separated by commas. An item is a size (`8000`, `8_000`, `8k`, `1.5k`, `1m`) or a
    range: `A:B:logN` is N sizes from A to B in equal ratios, `A:B:linN` is N sizes in equal steps,
    both with A and B included and rounded to whole tokens; `A:B:STEP` is A, A + STEP and so on up
    to B. Raises InvalidBudgetsError.

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
    """Raise InvalidBudgetsError unless there is a budget, and each is a whole number of tokens, 1 or more."""
    if not budgets or any(not isinstance(budget, int) or budget < 1 for budget in budgets):
        raise InvalidBudgetsError(
            f"invalid budgets {list(budgets)!r}: use one or more whole numbers of tokens, each at least 1."
        )


def _range(text: str) -> Iterable[int]:
    try:
        start, end, how = (piece.strip() for piece in text.split(":"))
    except ValueError:
        _refuse(text, "a range must be A:B:log16, A:B:lin16 or A:B:STEP")
    first, last = _size(start, text), _size(end, text)
    if first > last:
        _refuse(text, "the first size of a range must not be larger than the second")
    spaced = re.fullmatch(r"(log|lin)(\d+)", how.lower(), re.ASCII)
    if spaced is None:
        sizes = range(first, last + 1, _size(how, text))
        if len(sizes) > MAX_BUDGETS:
            _refuse_so_many(text, len(sizes))
        return sizes
    if len(spaced[2]) > len(str(MAX_BUDGETS)) or int(spaced[2]) > MAX_BUDGETS:
        _refuse(text, f"these are more than {MAX_BUDGETS:,} budgets")
    number = int(spaced[2])
    if number < MIN_SPACED:
        _refuse(text, f"{spaced[1]} needs at least 2 sizes, because both ends are included")
    if spaced[1] == "lin":
        return (
            round(first + Fraction((last - first) * index, number - 1)) for index in range(number)
        )
    return (round(first * (last / first) ** (index / (number - 1))) for index in range(number))


def _size(text: str, within: str) -> int:
    """Parse one size of at least 1 token."""
    try:
        size = parse_tokens(text)
    except InvalidArgumentError as error:
        _refuse(within, str(error).rstrip("."))
    if not size:
        _refuse(within, "a size must be at least 1 token")
    return size


def _refuse(text: str, why: str) -> NoReturn:
    raise InvalidBudgetsError(f"invalid budgets {text.strip()!r}: {why}.")


def _refuse_so_many(text: str, number: int) -> NoReturn:
    _refuse(text, f"these are {number:,} budgets, and at most {MAX_BUDGETS:,} are allowed")
