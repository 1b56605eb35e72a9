"""Requests without an SDK, so that they may be as wrong as a test wants."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit.testing.server import Server

__all__ = ["Answered", "chat", "post", "responses"]


class Answered(NamedTuple):
    """An answer of HTTP; `body` is JSON where it is JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def error(self) -> Any:
        return self.body["error"]


def post(
    server: Server,
    path: str,
    body: object,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> Answered:
    """What a server answers; `path` begins behind `/v1`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(
            method,
            urlsplit(server.url).path + path,
            raw,
            {"Content-Type": "application/json", **(headers or {})},
        )
        answer = connection.getresponse()
        text = answer.read()
        return Answered(
            answer.status, {name.lower(): value for name, value in answer.getheaders()}, _read(text)
        )
    finally:
        connection.close()


def _read(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def chat(server: Server, *messages: Mapping[str, Any], **more: Any) -> Answered:
    """A chat completion; without messages, of a greeting."""
    return post(
        server,
        "/chat/completions",
        {
            "model": "gpt-4.1",
            "messages": list(messages) or [{"role": "user", "content": "Hello."}],
            **more,
        },
    )


def responses(server: Server, *items: Mapping[str, Any], **more: Any) -> Answered:
    """A response, likewise."""
    return post(
        server, "/responses", {"model": "gpt-4.1", "input": list(items) or "Hello.", **more}
    )
