"""One connection of the server: HTTP in, an Exchange to the backend, HTTP out."""

from __future__ import annotations

import json
import os
import socket
import struct
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Protocol, cast

from promptkit.testing.server.backend import Outgoing
from promptkit.testing.server.journal import CHAT, COMPACT, INPUT_TOKENS, MODELS, RESPONSES, Exchange
from promptkit.testing.server.replies import api_error
from promptkit.testing.server.validation import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from promptkit.messages import Json
    from promptkit.testing.server.backend import Backend

__all__ = ["Handler", "Listener"]

POSTS = (CHAT, RESPONSES, INPUT_TOKENS, COMPACT)
IDLE = 60  # seconds that a connection may say nothing
BLOCK = 65_536  # bytes
ALIVE = 0.02  # seconds between two looks at whether the client still waits


class Listener(Protocol):
    """What a connection needs of its server."""

    backend: Backend
    max_body: int
    """Bytes."""
    models: tuple[str, ...]

    def heard(self, method: str, path: str, headers: Mapping[str, str], client: tuple[str, int], raw: bytes) -> Exchange:
        """A new entry of the journal."""
        ...


class Handler(BaseHTTPRequestHandler):
    """The requests of one client, one after the other."""

    protocol_version = "HTTP/1.1"
    server_version = "promptkit-testing"
    sys_version = ""
    timeout = IDLE
    disable_nagle_algorithm = True

    @property
    def _listener(self) -> Listener:
        return cast("Listener", self.server)  # it handles no other's

    def do_GET(self) -> None:
        """The list of models."""
        exchange = self._hear(b"")
        if exchange.path == MODELS:
            data = [{"id": name, "object": "model", "created": 0, "owned_by": "promptkit"} for name in self._listener.models]
            self._send(exchange, _json(200, {"object": "list", "data": data}))
        else:
            self._unknown(exchange, MODELS)

    def do_POST(self) -> None:
        """A request to a model."""
        raw = self._read()
        if raw is None:
            return
        exchange = self._hear(raw)
        try:
            self._answer(exchange, raw)
        finally:
            self._listener.backend.arrivals.gone(exchange.number)

    def _answer(self, exchange: Exchange, raw: bytes) -> None:
        if exchange.path not in POSTS:
            self._unknown(exchange, *POSTS)
            return
        try:
            body: object = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            problem = Problem("We could not parse the JSON body of your request. The OpenAI API expects a JSON payload.")
            self._send(exchange, self._listener.backend.refuse(exchange, problem))
            return
        exchange.body = cast("dict[str, Json]", body)  # read from JSON
        self._send(exchange, self._listener.backend.answer(exchange))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the parameter's name in http.server
        """Nothing: the journal knows."""

    def _hear(self, raw: bytes) -> Exchange:
        path = self.path.partition("?")[0]
        return self._listener.heard(
            self.command, path, {name.lower(): value for name, value in self.headers.items()}, self.client_address, raw
        )

    def _read(self) -> bytes | None:
        """The body of the request; None where it cannot be read, and that was answered."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > self._listener.max_body:
            exchange = self._hear(b"")
            self._listener.backend.arrivals.gone(exchange.number)
            status, problem = (413, "The request is too large.") if length.isdecimal() else (411, "The request has no Content-Length.")
            self.close_connection = True
            self._send(exchange, self._listener.backend.refuse(exchange, Problem(problem), status))
            return None
        blocks: list[bytes] = []
        left = int(length)
        while left and (block := self.rfile.read(min(left, BLOCK))):
            blocks.append(block)
            left -= len(block)
        if left:
            self.close_connection = True
            return None
        return b"".join(blocks)

    def _unknown(self, exchange: Exchange, *known: str) -> None:
        if exchange.path in (MODELS, *POSTS) and exchange.path not in known:
            answer = api_error(405, f"Not allowed to {exchange.method} on {exchange.path}.", code="method_not_supported")
        else:
            answer = api_error(404, f"Unknown request URL: {exchange.method} {exchange.path}.", code="unknown_url")
        self._send(exchange, _json(answer.status, answer.body))

    def _send(self, exchange: Exchange, outgoing: Outgoing) -> None:
        if outgoing.status is None or self._listener.backend.closing.is_set():
            self._wait()
            return
        exchange.status = outgoing.status
        self.send_response(outgoing.status)
        self.send_header("x-request-id", f"req_{exchange.number}")
        if isinstance(outgoing.body, bytes):
            self._send_whole(outgoing, outgoing.body)
        else:
            self._send_stream(outgoing, outgoing.body)

    def _send_whole(self, outgoing: Outgoing, body: bytes) -> None:
        self._send_headers(outgoing, {"Content-Length": str(len(body))})
        self.wfile.write(body[: len(body) // 2] if outgoing.cut else body)
        self._end(outgoing)

    def _send_stream(self, outgoing: Outgoing, events: Iterator[bytes]) -> None:
        self._send_headers(outgoing, {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"})
        kept = list(events) if outgoing.cut else events
        for event in kept[: len(kept) // 2] if isinstance(kept, list) else kept:
            self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            self.wfile.flush()
        if outgoing.cut != "reset":
            self.wfile.write(b"0\r\n\r\n")
        self._end(outgoing)

    def _send_headers(self, outgoing: Outgoing, more: Mapping[str, str]) -> None:
        for name, value in {**outgoing.headers, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def _end(self, outgoing: Outgoing) -> None:
        self.wfile.flush()
        if outgoing.cut is None:
            return
        self.close_connection = True
        if outgoing.cut == "reset":
            # With a linger of no time, closing sends RST instead of FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hh" if os.name == "nt" else "ii", 1, 0))
            self.connection.close()

    def _wait(self) -> None:
        """Say nothing until the client goes away or the server closes."""
        self.close_connection = True
        self.connection.settimeout(ALIVE)
        while not self._listener.backend.closing.wait(ALIVE):
            with suppress(TimeoutError):
                if not self.connection.recv(1, socket.MSG_PEEK):
                    return


def _json(status: int, value: object) -> Outgoing:
    return Outgoing(status=status, body=json.dumps(value).encode(), headers={"Content-Type": "application/json"})
