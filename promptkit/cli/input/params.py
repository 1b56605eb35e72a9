"""Parameter types of the command line, such as token counts (`8k`) and shares (`5%`), and the options that several commands share."""

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


def read_address(value: str) -> Path | str:
    """Return the path of a file, or the URL of a conversation as a string: `talk.jsonl`, `sqlite:///talks.db#42`, `s3://bucket/talks#42`."""
    return value if "://" in value else Path(value)


SIZE = Size()
SHARE = Share()
SHARE_OR_OFF = ShareOrOff()

# Options that several commands have, with the same words.
props_option = click.option(
    "--props",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="The component's props as a JSON object; - reads stdin.",
)
budget_option = click.option(
    "--budget",
    type=SIZE,
    help="Tokens that the prompt may have, such as 8k. By default the model's window decides.",
)
model_option = click.option(
    "--model", help="The model whose context window, tokenizer and message framing are used."
)
defaults_option = click.option(
    "--defaults",
    type=click.Choice(["promptkit", "prompt-tsx"]),
    default="promptkit",
    show_default=True,
    help="What is removed where nothing has a priority: prompt-tsx removes as VS Code's prompts do.",
)
window_option = click.option(
    "--window",
    type=SIZE,
    help="The context window in tokens, input and output together. By default that of the model.",
)
leaf_option = click.option(
    "--leaf",
    metavar="ID|LABEL",
    help="The entry that the conversation ends with. By default the last entry written.",
)
force_option = click.option("--force", is_flag=True, help="Replace OUT if it exists.")
redact_option = click.option(
    "--redact",
    is_flag=True,
    help="Remove secrets of common shapes, such as API keys and access tokens.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
