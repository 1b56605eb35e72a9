"""A model of Anthropic asked over real HTTP, and what was heard of it."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, NamedTuple

import anthropic
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter

from promptkit import Message, ToolDefinition
from promptkit.providers.anthropic.client import AnthropicModel
from tests.unit.wire.sdk import strict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Unpack

    from promptkit.providers import Reply
    from promptkit.providers.model import ModelOptions

MODEL = "claude-opus-5-5"
READ = ToolDefinition(
    name="read",
    description="Reads a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}},
)
HELLO = Message(role="user", content=("Hello.",))

_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Reading the certificates of the world for each client takes longer than the tests."""


def client(
    url: str, *, max_retries: int = 0, timeout: float = 10, **more: Any
) -> anthropic.AsyncAnthropic:
    """The real SDK's client for a server on this machine; `timeout` is seconds."""
    over = anthropic.DefaultAsyncHttpxClient(verify=_NO_TLS)
    return anthropic.AsyncAnthropic(
        base_url=url,
        api_key="none",
        max_retries=max_retries,
        timeout=timeout,
        http_client=over,
        **more,
    )


class Heard(NamedTuple):
    """A reply, and the pieces of text that came before it."""

    reply: Reply
    pieces: list[str]


def heard(
    url: str,
    messages: Sequence[Message] = (HELLO,),
    *,
    tools: Sequence[ToolDefinition] = (),
    name: str = MODEL,
    max_retries: int = 0,
    timeout: float = 10,
    **options: Unpack[ModelOptions],
) -> Heard:
    """What a model behind a URL answers."""
    pieces: list[str] = []

    async def ask() -> Reply:
        async with client(url, max_retries=max_retries, timeout=timeout) as over:
            model = AnthropicModel(name, client=over, options={"on_text": pieces.append, **options})
            return await model.complete(messages, tools=tools)

    return Heard(asyncio.run(ask()), pieces)


_ADAPTERS: list[TypeAdapter[Any]] = []


def check_body(body: Mapping[str, Any]) -> None:
    """Fail where a request body is not what the SDK's own types ask for: an unknown key, a missing one, a wrong value."""
    if not _ADAPTERS:
        _ADAPTERS.append(TypeAdapter(strict(MessageCreateParamsStreaming, {})))
    # it is in the beta types only
    thinking = {
        key: value for key, value in body.get("thinking", {}).items() if key != "block_binding"
    }
    checked = {**body, **({"thinking": thinking} if thinking else {}), "stream": True}
    assert _ADAPTERS[0].validate_python(checked, strict=True) == checked
