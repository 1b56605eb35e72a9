"""Connect to a model with the API key and the base URL that the environment variables give."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from promptkit.cli.output.errors import usage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from promptkit.providers.openai.client import OpenAIModel

__all__ = ["is_keyless", "open_model"]

KEY = "OPENAI_API_KEY"
BASE_URL = "OPENAI_BASE_URL"


def is_keyless() -> bool:
    """Return True if no model can be reached: neither an API key nor a base URL is set.

    A base URL alone is enough, because servers of one's own often need no key.
    """
    return not os.environ.get(KEY) and not os.environ.get(BASE_URL)


def open_model(name: str) -> tuple[OpenAIModel, Callable[[], Coroutine[object, object, None]]]:
    """Return a model, and the coroutine function that closes its connections.

    Raises UsageError for a key or a base URL that cannot be valid.
    """
    key, address = os.environ.get(KEY), os.environ.get(BASE_URL)
    if key and not (key.isascii() and key.isprintable()):
        # The message does not show the key, because it is secret.
        usage_error(f"{KEY} contains a character that no API key has, such as a line break or a typographic quote.")
    if address and not _is_url(address):
        usage_error(f"invalid {BASE_URL}: use a URL with a host that starts with http:// or https://.")
    from openai import AsyncOpenAI

    from promptkit.providers.openai.client import OpenAIModel

    # The SDK requires a key even where a server does not. Most servers have only the older of OpenAI's two endpoints.
    client = AsyncOpenAI(api_key=key or "none")
    return OpenAIModel(name, api="chat" if address else "responses", client=client), client.close


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port  # parsed on access: raises ValueError for an invalid port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and text.isprintable()
