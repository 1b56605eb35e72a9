"""Connect to a model with the API key and the base URL that the environment variables give."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from urllib.parse import urlsplit

from promptkit import providers
from promptkit.cli.output.terminal import usage_error

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
        return _open_anthropic(name, key or "none")
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key=key or "none")
    return (
        # Most servers have only the older of OpenAI's two endpoints.
        providers.OpenAIModel(name, api="chat" if address else "responses", client=client),
        client.close,
    )


def _open_anthropic(
    name: str, key: str
) -> tuple[providers.Model, Callable[[], Coroutine[object, object, None]]]:
    try:
        from anthropic import AsyncAnthropic
    except ImportError:
        usage_error(
            f"{name} needs the package anthropic: install promptkit's extra of that name, or set {OPENAI[1]} to a server that has the model."
        )
    client = AsyncAnthropic(api_key=key)
    return providers.AnthropicModel(name, client=client), client.close


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
