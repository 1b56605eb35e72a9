"""Shares as people write them.

Numbers of tokens as people write them.
"""

from __future__ import annotations

import re

import click

from promptkit.errors import InvalidArgumentError
from promptkit.tokens.budget import parse_tokens

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


class Size(click.ParamType[int]):
    """A number of tokens, 0 or more: `8000`, `8_000`, `8k`, `1.5k`, `1m`."""

    name = "tokens"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number itself. Fails for anything that is not a whole number of tokens."""
        if isinstance(value, int):
            return value
        try:
            return parse_tokens(str(value))
        except InvalidArgumentError as error:
            self.fail(str(error), param, ctx)


SIZE = Size()
