"""The arithmetic of flex groups: pure functions, exact, rounding down."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def split_shares(total: int, bases: Sequence[float], limits: Sequence[int | None]) -> list[int]:
    """Split `total` tokens in proportion to `bases`. The parts never sum to more than `total`.

    A member with a limit below its proportional share gets the limit, and the rest of its share
    goes to the other members. As in prompt-tsx there are two passes: the first looks at the members
    in order, each against the bases that are left.

    >>> split_shares(100, [1, 1, 2], [None, 10, None])
    [30, 10, 60]
    """
    weights = [basis if isinstance(basis, int) else Fraction(basis) for basis in bases]
    basis_sum = sum(weights)
    if not basis_sum:
        return [0] * len(bases)
    parts = [-1] * len(bases)
    granted = 0
    left = basis_sum
    for index, limit in enumerate(limits):
        if limit is not None and left > 0 and total * weights[index] // left >= limit:
            parts[index] = limit
            left -= weights[index]
            granted += limit
    rest = max(0, total - granted)
    return [
        part if part >= 0 else int(rest * weight // left) if left > 0 else 0
        for part, weight in zip(parts, weights, strict=True)
    ]


def resolve_reserve(remaining: int, reserve: int | str) -> int:
    """Return the tokens that a `flex_reserve` holds back: a number of tokens, or one Nth of `remaining` for `"/N"`.

    >>> resolve_reserve(100, "/4"), resolve_reserve(100, 30)
    (25, 30)
    """
    return remaining // int(reserve[1:]) if isinstance(reserve, str) else reserve
