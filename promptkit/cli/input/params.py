"""Parameter types of the command line, such as token counts (`8k`) and shares (`5%`), the options that several commands share, and the connection to the model that one names.

A model is reached with the API key and the base URL that the environment variables give.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from promptkit import providers
from promptkit.cli.output.terminal import usage_error
from promptkit.errors import InvalidArgumentError, PromptKitError
from promptkit.sizes import parse_tokens

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


class TranscriptFile(click.Path):
    """The path of a transcript that a command writes to. A URL is refused, and not taken for a path."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Return the path, or fail."""
        if "://" in str(value):
            self.fail(
                f"{value} is a URL, and this command takes a file: write a path, such as talk.jsonl.",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


class NameType(click.ParamType[str]):
    """Names that a shell completes. What is typed is returned as it is.

    Args:
        name: The type as `--help` shows it.
        find_names: Returns the names that fit a beginning.
        many: Several names may be given, with commas between.
        or_file: If no name fits, the shell completes the name of a file.
    """

    def __init__(
        self,
        name: str,
        find_names: Callable[[str], Iterable[str]],
        *,
        many: bool = False,
        or_file: bool = False,
    ) -> None:
        self.name = name
        self._find_names = find_names
        self._many = many
        self._or_file = or_file

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with what is typed."""
        before, comma, typed = incomplete.rpartition(",") if self._many else ("", "", incomplete)
        return [
            CompletionItem(f"{before}{comma}{name}")
            for name in self._find_names(typed)
            if name.startswith(typed)
        ] or ([CompletionItem(incomplete, type="file")] if self._or_file else [])


def _find_targets(typed: str) -> list[str]:
    """List what a Python file defines at its top, without running it."""
    file, colon, _ = typed.partition(":")
    if not colon or not file.endswith(".py"):
        return []
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, ValueError, SyntaxError):
        return []
    defined = (
        each.name
        for each in tree.body
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assigned = (
        target.id
        for each in tree.body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    )
    return [f"{file}:{name}" for name in (*defined, *assigned) if not name.startswith("_")]


def _find_models(_typed: str) -> Iterable[str]:
    from promptkit.tokens.models import list_models

    return list_models()


def _find_policies(_typed: str, *, groups: bool) -> Iterable[str]:
    from promptkit.lab.replay.policies import POLICY_GROUPS

    return (*(POLICY_GROUPS if groups else ["recorded"]), *POLICY_GROUPS["all"])


def _find_presets(_typed: str) -> Iterable[str]:
    from promptkit.compaction.presets import PRESETS

    return PRESETS


def _parse_share(text: str) -> float:
    """Read a share of 1: `5%` or `0.05`. More than 100 % is accepted, because a time may double."""
    if not (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip(), re.ASCII)):
        raise InvalidArgumentError(f"invalid share {text!r}: use 5% or 0.05.")
    return float(match[1]) / (100 if match[2] else 1)


def read_address(value: str) -> Path | str:
    """Return the path of a file, or the URL of a conversation as a string: `talk.jsonl`, `sqlite:///talks.db#42`, `s3://bucket/talks#42`."""
    return value if "://" in value else Path(value)


SIZE = ParsedType("tokens", parse_tokens)
SHARE = ParsedType("share", _parse_share)
SHARE_OR_OFF = ParsedType(
    "share", lambda text: None if text.strip().lower() == "off" else _parse_share(text)
)

MODEL = NameType("name", _find_models)
MODELS = NameType("list", _find_models, many=True)
POLICY = NameType("name", partial(_find_policies, groups=False))
POLICIES = NameType("list", partial(_find_policies, groups=True), many=True)
PRESET = NameType("name", _find_presets)
TARGET = NameType("target", _find_targets, or_file=True)

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
    "--model",
    type=MODEL,
    help="The model whose context window, tokenizer and message framing are used.",
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
force_option = click.option("--force", is_flag=True, help="Replace an output file that exists.")
redact_option = click.option(
    "--redact",
    is_flag=True,
    help="Remove secrets of common shapes, such as API keys and access tokens.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


OPENAI = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")


def missing_key(name: str) -> str | None:
    """Return the variable that has to be set for the API key of a model; None if the model can be reached.

    A base URL alone is enough, because servers of one's own often need no key.
    """
    key, address = _find_variables(name)
    return None if os.environ.get(key) or os.environ.get(address) else key


def open_model(name: str) -> tuple[providers.Model, Callable[[], Coroutine[object, object, None]]]:
    """Return a model, and the coroutine function that closes its connections.

    Raises UsageError for a key or a base URL that cannot be valid, and where the SDK of the model's
    provider is not installed.
    """
    key_name, address_name = _find_variables(name)
    key, address = os.environ.get(key_name), os.environ.get(address_name)
    if key and not (key.isascii() and key.isprintable()):
        # The message does not show the key, because it is secret.
        usage_error(
            f"{key_name} contains a character that no API key has, such as a line break or a typographic quote."
        )
    if address and not _is_url(address):
        usage_error(
            f"invalid {address_name}: use a URL with a host that starts with http:// or https://."
        )
    # The SDKs require a key even where a server does not.
    if key_name == ANTHROPIC[0]:
        try:
            from anthropic import AsyncAnthropic
        except ImportError:
            usage_error(
                f"{name} needs the package anthropic: install promptkit's extra of that name, or set {OPENAI[1]} to a server that has the model."
            )
        claude = AsyncAnthropic(api_key=key or "none")
        return providers.AnthropicModel(name, client=claude), claude.close
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key=key or "none")
    return (
        # Most servers have only the older of OpenAI's two endpoints.
        providers.OpenAIModel(name, api="chat" if address else "responses", client=client),
        client.close,
    )


def _find_variables(name: str) -> tuple[str, str]:
    """Return the names of the variables with the key and the base URL for a model.

    Claude is asked over Anthropic's own API, unless there is a server that speaks OpenAI's
    protocol.
    """
    from promptkit.providers.model import is_anthropic_name

    return ANTHROPIC if is_anthropic_name(name) else OPENAI


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port  # parsed on access: raises ValueError for an invalid port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and text.isprintable()
