"""Parameter types of the command line, such as token counts (`8k`) and shares (`5%`), and the options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from promptkit.errors import InvalidArgumentError, PromptKitError

T = TypeVar("T")


class ParsedType(click.ParamType[T]):
    """Values that a function reads from text. Its PromptKitError is the message of the failure."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Return what the function reads, or fail."""
        try:
            return self._parse(str(value))
        except PromptKitError as error:
            self.fail(str(error), param, ctx)


def _parse_size(text: str) -> int:
    """Read a number of tokens, 0 or more: `8000`, `8_000`, `8k`, `1.5k`, `1m`."""
    from promptkit.tokens import parse_tokens

    return parse_tokens(text)


def _parse_share(text: str) -> float:
    """Read a share of 1: `5%` or `0.05`. More than 100 % is accepted, because a time may double."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip(), re.ASCII)
    if not match:
        problem = f"invalid share {text!r}: use 5% or 0.05."
        raise InvalidArgumentError(problem)
    return float(match[1]) / (100 if match[2] else 1)


def _parse_share_or_off(text: str) -> float | None:
    return None if text.strip().lower() == "off" else _parse_share(text)


def read_address(value: str) -> Path | str:
    """Return the path of a file, or the URL of a conversation as a string: `talk.jsonl`, `sqlite:///talks.db#42`, `s3://bucket/talks#42`."""
    return value if "://" in value else Path(value)


SIZE = ParsedType("tokens", _parse_size)
SHARE = ParsedType("share", _parse_share)
SHARE_OR_OFF = ParsedType("share", _parse_share_or_off)

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
