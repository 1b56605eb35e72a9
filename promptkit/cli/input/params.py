"""Shares as people write them.

Numbers of tokens as people write them.
"""

from __future__ import annotations

import re
from fractions import Fraction

import click

__all__ = ["SHARE", "SHARE_OR_OFF", "SIZE", "Share", "ShareOrOff", "Size"]


class Share(click.ParamType[float]):
    """A share of 1: `5%` or `0.05`. More than 100 % is fine: a time may double."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share itself. Fails for anything else."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", str(value).strip(), re.ASCII)
        if not match:
            self.fail(f"{value!r} is no share: write it as 5% or 0.05.", param, ctx)
        return float(match[1]) / (100 if match[2] else 1)


class ShareOrOff(click.ParamType[float | None]):
    """A share, or `off`, which is None."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        """The share itself, or None. Fails for anything else."""
        return None if str(value).strip().lower() == "off" else SHARE.convert(value, param, ctx)


SHARE = Share()
SHARE_OR_OFF = ShareOrOff()


UNITS = {"": 1, "k": 1_000, "m": 1_000_000}


class Size(click.ParamType[int]):
    """A number of tokens, 0 or more: `8000`, `8_000`, `8k`, `1.5k`, `1m`. k is 1,000, as in models' names, and not 1,024.

    More than 15 digits are no size of anything, and more than some can even be computed with.
    """

    name = "tokens"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number itself. Fails for anything that is no whole number of tokens."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d[\d_]{0,14}(?:\.\d{1,9})?)([km]?)", str(value).strip().lower(), re.ASCII)
        size = Fraction(match[1].replace("_", "")) * UNITS[match[2]] if match else Fraction(1, 2)
        if size.denominator != 1:
            self.fail(f"{value!r} is no number of tokens: write it as 8000, 8k or 1m.", param, ctx)
        return int(size)


SIZE = Size()
