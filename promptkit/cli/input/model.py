"""The way from the command line to a model: by the key and the address that the environment gives."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from promptkit.cli.output.errors import usage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from promptkit.providers.openai.client import OpenAIModel

__all__ = ["open_model", "is_keyless"]

KEY = "OPENAI_API_KEY"
ADDRESS = "OPENAI_BASE_URL"


def is_keyless() -> bool:
    """Whether no model can be asked: there is no key, and no server of one's own, which may want none."""
    return not os.environ.get(KEY) and not os.environ.get(ADDRESS)


def open_model(name: str) -> tuple[OpenAIModel, Callable[[], Coroutine[object, object, None]]]:
    """A model, and what closes its connections. Raises UsageError for a key or an address that cannot be one."""
    key, address = os.environ.get(KEY), os.environ.get(ADDRESS)
    if key and not (key.isascii() and key.isprintable()):
        usage_error(
            f"{KEY} has a character that no key has, such as a line break or a quote of a text editor."
        )  # which is not shown: it is secret
    if address and not _is_address(address):
        usage_error(f"{ADDRESS} is no address: it begins with http:// or https:// and names a host.")
    from openai import AsyncOpenAI

    from promptkit.providers.openai.client import OpenAIModel

    # Servers of one's own want no key, which the SDK does not believe; most of them have the older of OpenAI's two endpoints.
    client = AsyncOpenAI(api_key=key or "none")
    return OpenAIModel(name, api="chat" if address else "responses", client=client), client.close


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port  # which is read only now
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and text.isprintable()
