"""Parameter types of the command line: token counts such as `8k`, shares such as `5%`, and addresses of transcripts."""

from __future__ import annotations

import re
from pathlib import Path

import click


class Size(click.ParamType[int]):
    """A number of tokens, 0 or more: `8000`, `8_000`, `8k`, `1.5k`, `1m`. k is 1,000, as in models' names, not 1,024.

    Read by `promptkit.tokens.budget.parse_tokens`.
    """

    name = "tokens"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the number of tokens. Fails for anything that is not a whole number of tokens."""
        if isinstance(value, int):
            return value
        from promptkit.errors import InvalidArgumentError
        from promptkit.tokens import parse_tokens

        try:
            return parse_tokens(str(value))
        except InvalidArgumentError as error:
            self.fail(str(error), param, ctx)


class Share(click.ParamType[float]):
    """A share of 1: `5%` or `0.05`. More than 100 % is accepted, because a time may double."""

    name = "share"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share as a fraction of 1. Fails for anything else."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", str(value).strip(), re.ASCII)
        if not match:
            self.fail(f"invalid share {value!r}: use 5% or 0.05.", param, ctx)
        return float(match[1]) / (100 if match[2] else 1)


class ShareOrOff(click.ParamType[float | None]):
    """A share, or `off`, which is None."""

    name = "share"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """Return the share, or None for `off`. Fails for anything else."""
        return None if str(value).strip().lower() == "off" else SHARE.convert(value, param, ctx)


class Address(click.ParamType["Path | str"]):
    """The path of a file, or the URL of a conversation: `talk.jsonl`, `sqlite:///talks.db#42`, `s3://bucket/talks#42`."""

    name = "address"

    def convert(
        self,
        value: object,
        param: click.Parameter | None,  # noqa: ARG002  # click's signature
        ctx: click.Context | None,  # noqa: ARG002  # as above
    ) -> Path | str:
        """Return a Path, or the URL as a string. Never fails."""
        return str(value) if "://" in str(value) else Path(str(value))


ADDRESS = Address()
SIZE = Size()
SHARE = Share()
SHARE_OR_OFF = ShareOrOff()
