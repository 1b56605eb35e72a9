"""Handle one connection: read HTTP requests, pass them to the backend as Exchanges, send the answers."""

from __future__ import annotations

import json
import os
import socket
import struct
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Protocol, cast

from promptkit.testing.server.backend import HttpResponse
from promptkit.testing.server.journal import (
    CHAT,
    COMPACT,
    COUNT_TOKENS,
    INPUT_TOKENS,
    MESSAGES,
    MODELS,
    RESPONSES,
    Exchange,
)
from promptkit.testing.server.replies import api_error
from promptkit.testing.server.validation import IllFormedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from promptkit.messages import Json
    from promptkit.testing.server.backend import Backend

POSTS = (CHAT, RESPONSES, INPUT_TOKENS, COMPACT, MESSAGES, COUNT_TOKENS)
IDLE_TIMEOUT = 60  # seconds after which an idle connection is closed
BLOCK = 65_536  # bytes that are read at once
POLL_INTERVAL = 0.02  # seconds between two checks whether the client still waits


class Listener(Protocol):
    """What a connection needs from its server."""

    backend: Backend
    max_body: int
    """Bytes that a request's body may have."""
    models: tuple[str, ...]

    def record_request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        client: tuple[str, int],
        raw: bytes,
    ) -> Exchange:
        """Record a request in the journal."""
        ...


class Handler(BaseHTTPRequestHandler):
    """Handles the requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    server_version = "promptkit-testing"
    sys_version = ""
    timeout = IDLE_TIMEOUT
    disable_nagle_algorithm = True

    @property
    def _listener(self) -> Listener:
        return cast("Listener", self.server)  # the server that creates it is a Listener

    def do_GET(self) -> None:
        """Send the list of models."""
        exchange = self._record(b"")
        if exchange.path == MODELS:
            data = [
                {"id": name, "object": "model", "created": 0, "owned_by": "promptkit"}
                for name in self._listener.models
            ]
            self._send(exchange, _json_response(200, {"object": "list", "data": data}))
        else:
            self._send_unknown(exchange, MODELS)

    def do_POST(self) -> None:
        """Answer a request to a model."""
        raw = self._read_body()
        if raw is None:
            return
        exchange = self._record(raw)
        try:
            self._answer(exchange, raw)
        finally:
            self._listener.backend.queue.remove(exchange.number)

    def _answer(self, exchange: Exchange, raw: bytes) -> None:
        if exchange.path not in POSTS:
            self._send_unknown(exchange, *POSTS)
            return
        try:
            body: object = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            problem = IllFormedRequestError(
                "We could not parse the JSON body of your request. The OpenAI API expects a JSON payload."
            )
            self._send(exchange, self._listener.backend.refuse(exchange, problem))
            return
        exchange.body = cast("dict[str, Json]", body)  # read from JSON
        self._send(exchange, self._listener.backend.answer(exchange))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the parameter's name in http.server
        """Print nothing, because the journal has the requests."""

    def _record(self, raw: bytes) -> Exchange:
        path = self.path.partition("?")[0]
        return self._listener.record_request(
            self.command,
            path,
            {name.lower(): value for name, value in self.headers.items()},
            self.client_address,
            raw,
        )

    def _read_body(self) -> bytes | None:
        """Read the body of the request.

        None if it cannot be read; the client has been answered then, or is gone.
        """
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > self._listener.max_body:
            exchange = self._record(b"")
            self._listener.backend.queue.remove(exchange.number)
            status, problem = (
                (413, "The request is too large.")
                if length.isdecimal()
                else (411, "The request has no Content-Length.")
            )
            self.close_connection = True
            self._send(
                exchange,
                self._listener.backend.refuse(exchange, IllFormedRequestError(problem), status),
            )
            return None
        blocks: list[bytes] = []
        remaining = int(length)
        while remaining and (block := self.rfile.read(min(remaining, BLOCK))):
            blocks.append(block)
            remaining -= len(block)
        if remaining:
            self.close_connection = True
            return None
        return b"".join(blocks)

    def _send_unknown(self, exchange: Exchange, *known: str) -> None:
        if exchange.path in (MODELS, *POSTS) and exchange.path not in known:
            answer = api_error(
                405,
                f"Not allowed to {exchange.method} on {exchange.path}.",
                code="method_not_supported",
            )
        else:
            answer = api_error(
                404, f"Unknown request URL: {exchange.method} {exchange.path}.", code="unknown_url"
            )
        self._send(exchange, _json_response(answer.status, answer.body))

    def _send(self, exchange: Exchange, outgoing: HttpResponse) -> None:
        if outgoing.status is None or self._listener.backend.closing.is_set():
            self._wait()
            return
        exchange.status = outgoing.status
        self.send_response(outgoing.status)
        self.send_header(
            "request-id" if exchange.path in {MESSAGES, COUNT_TOKENS} else "x-request-id",
            f"req_{exchange.number}",
        )
        if isinstance(outgoing.body, bytes):
            self._send_whole(outgoing, outgoing.body)
        else:
            self._send_stream(outgoing, outgoing.body)

    def _send_whole(self, outgoing: HttpResponse, body: bytes) -> None:
        self._send_headers(outgoing, {"Content-Length": str(len(body))})
        self.wfile.write(body[: len(body) // 2] if outgoing.cut else body)
        self._end(outgoing)

    def _send_stream(self, outgoing: HttpResponse, events: Iterator[bytes]) -> None:
        self._send_headers(
            outgoing,
            {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"},
        )
        sent = list(events) if outgoing.cut else events
        for event in sent[: len(sent) // 2] if isinstance(sent, list) else sent:
            self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            self.wfile.flush()
        if outgoing.cut != "reset":
            self.wfile.write(b"0\r\n\r\n")
        self._end(outgoing)

    def _send_headers(self, outgoing: HttpResponse, more: Mapping[str, str]) -> None:
        for name, value in {**outgoing.headers, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def _end(self, outgoing: HttpResponse) -> None:
        self.wfile.flush()
        if outgoing.cut is None:
            return
        self.close_connection = True
        if outgoing.cut == "reset":
            # With a linger time of 0, closing sends RST instead of FIN.
            self.connection.setsockopt(
                socket.SOL_SOCKET,
                socket.SO_LINGER,
                struct.pack("hh" if os.name == "nt" else "ii", 1, 0),
            )
            self.connection.close()

    def _wait(self) -> None:
        """Send nothing until the client goes away or the server closes."""
        self.close_connection = True
        self.connection.settimeout(POLL_INTERVAL)
        while not self._listener.backend.closing.wait(POLL_INTERVAL):
            with suppress(TimeoutError):
                if not self.connection.recv(1, socket.MSG_PEEK):
                    return


def _json_response(status: int, value: object) -> HttpResponse:
    return HttpResponse(
        status=status, body=json.dumps(value).encode(), headers={"Content-Type": "application/json"}
    )
