"""Sizes that a caller gives: tokens that are written as text, and the lowest value of a size."""

from __future__ import annotations

import re
from typing import Any

import attrs

from promptkit.errors import InvalidArgumentError

_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}


def parse_tokens(text: str) -> int:
    """Read a number of tokens: `8000`, `8_000`, `8k`, `1.5k` or `1m`. k is 1,000, as in models' names, and m is 1,000,000.

    Raises InvalidArgumentError for anything else, and for more than 15 digits.

    >>> parse_tokens("1.5k")
    1500
    """
    match = re.fullmatch(r"(\d[\d_]{0,14})(?:\.(\d{1,9}))?([km]?)", text.strip().lower(), re.ASCII)
    if match:
        decimals = match[2] or ""
        digits = f"{match[1]}{decimals}".replace("_", "")
        tokens, rest = divmod(int(digits) * _UNITS[match[3]], int(10 ** len(decimals)))
        if not rest:
            return tokens
    raise InvalidArgumentError(f"invalid token count {text!r:.80}: use 8000, 8k or 1m.")


def read_tokens(value: int | str) -> int:
    """Return a size in tokens that is a number, or text such as `"8k"`.

    Raises InvalidArgumentError for any other text.
    """
    return parse_tokens(value) if isinstance(value, str) else value


def read_limit(value: float | str | None) -> float | None:
    """Return a limit in tokens that may be missing or infinite, or is text such as `"8k"`."""
    return parse_tokens(value) if isinstance(value, str) else value


@attrs.frozen
class AtLeast:
    """The validator of a field that has a lowest value."""

    minimum: int

    # Any: of whatever type
    def __call__(self, owner: object, field: attrs.Attribute[Any], value: float) -> None:
        """Refuse a lower value. Raises InvalidArgumentError."""
        if not value >= self.minimum:
            raise InvalidArgumentError(
                f"{field.name} of {type(owner).__name__} must be at least {self.minimum}, not {value}."
            )
