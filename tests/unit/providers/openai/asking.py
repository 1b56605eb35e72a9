"""One model asked over real HTTP, and what was heard of it."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import openai
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

from promptkit import Message, ToolDefinition
from promptkit.providers.openai.client import OpenAIModel
from tests.unit.wire.sdk import strict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Unpack

    from promptkit.providers import Reply
    from promptkit.providers.model import ModelOptions

Api: TypeAlias = Literal["chat", "responses"]

READ = ToolDefinition(
    name="read",
    description="Reads a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}},
)
HELLO = Message(role="user", content=("Hello.",))

_TYPES = {
    ("chat", False): CompletionCreateParamsNonStreaming,
    ("chat", True): CompletionCreateParamsStreaming,
    ("responses", False): ResponseCreateParamsNonStreaming,
    ("responses", True): ResponseCreateParamsStreaming,
}
_ADAPTERS: dict[tuple[str, bool], TypeAdapter[Any]] = {}


_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Reading the certificates of the world for each client takes longer than the tests."""


def client(url: str, *, max_retries: int = 0, timeout: float = 10) -> openai.AsyncOpenAI:
    """The real SDK's client for a server on this machine; `timeout` is seconds."""
    over = openai.DefaultAsyncHttpxClient(verify=_NO_TLS)
    return openai.AsyncOpenAI(
        base_url=url, api_key="none", max_retries=max_retries, timeout=timeout, http_client=over
    )


class Heard(NamedTuple):
    """A reply, and the pieces of text that came before it."""

    reply: Reply
    pieces: list[str]


def heard(
    url: str,
    messages: Sequence[Message] = (HELLO,),
    *,
    api: Api = "chat",
    stream: bool = False,
    tools: Sequence[ToolDefinition] = (),
    name: str = "gpt-4.1",
    max_retries: int = 0,
    timeout: float = 10,
    **options: Unpack[ModelOptions],
) -> Heard:
    """What a model behind a URL answers, streamed or not."""
    pieces: list[str] = []

    async def ask() -> Reply:
        async with client(url, max_retries=max_retries, timeout=timeout) as over:
            model = OpenAIModel(name, api=api, client=over, options=options)
            if stream:
                model = model.with_options(on_text=pieces.append)
            return await model.complete(messages, tools=tools)

    return Heard(asyncio.run(ask()), pieces)


def check_body(api: str, body: Mapping[str, Any]) -> None:
    """Fail where a request body is not what the SDK's own types ask for: an unknown key, a missing one, a wrong value."""
    kind = (api, body.get("stream") is True)
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(strict(_TYPES[kind], {}))
    assert _ADAPTERS[kind].validate_python(body, strict=True) == body
