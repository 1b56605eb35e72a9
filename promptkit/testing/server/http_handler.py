"""The socket of the server, and its connections: read HTTP requests, pass them to the backend as Exchanges, send the answers."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer, TCPServer
from threading import BoundedSemaphore, Lock
from typing import TypeAlias

from promptkit.messages import Json
from promptkit.testing.server.backend import Backend, HttpResponse, json_response
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

Connection: TypeAlias = socket.socket | tuple[bytes, socket.socket]
Address: TypeAlias = tuple[str, int] | str


MAX_CONNECTIONS = 512
"""Open connections. Beyond it the newest are closed without an answer."""

MAX_BODY = 64 * 1024 * 1024
"""Bytes that a request's body may have."""

POSTS = (CHAT, RESPONSES, INPUT_TOKENS, COMPACT, MESSAGES, COUNT_TOKENS)
IDLE_TIMEOUT = 60  # seconds after which an idle connection is closed
POLL_INTERVAL = 0.02  # seconds between two checks whether the client still waits


class Listener(ThreadingHTTPServer):
    """The socket, its threads and the journal."""

    daemon_threads = True
    request_queue_size = 128
    block_on_close = False

    def __init__(
        self,
        address: tuple[str, int],
        backend: Backend,
        *,
        models: tuple[str, ...],
        max_recorded: int,
    ) -> None:
        self.backend = backend
        self.models = models
        self._journal: deque[Exchange] = deque(maxlen=max_recorded)
        self._number = 0
        self._open: set[Connection] = set()
        self._free_connections = BoundedSemaphore(MAX_CONNECTIONS)
        self._lock = Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, partial(Handler, self))

    def server_bind(self) -> None:
        """Bind the socket. http.server would also look up the name of the host."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = (
            str(self.server_address[0]),
            int(self.server_address[1]),
        )

    def record_request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        client: tuple[str, int],
        raw: bytes,
    ) -> Exchange:
        """Record a request in the journal."""
        with self._lock:
            self._number += 1
            exchange = Exchange(
                number=self._number,
                method=method,
                path=path,
                headers=headers,
                client=client,
                raw=raw,
            )
            self._journal.append(exchange)
            if method == "POST":
                self.backend.queue.add(exchange.number)
        self.backend.counters.add(requests=1)
        return exchange

    def list_requests(self) -> tuple[Exchange, ...]:
        """Return the latest requests, in order."""
        with self._lock:
            return tuple(self._journal)

    def count_connections(self) -> int:
        """Return how many connections are open."""
        with self._lock:
            return len(self._open)

    def process_request(self, request: Connection, client_address: Address) -> None:
        """Start the thread of a connection, or close it if there are too many."""
        if not self._free_connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Connection, client_address: Address) -> None:
        """Handle a connection in its thread, and forget it when it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.discard(request)
            self._free_connections.release()

    def handle_error(self, request: Connection, client_address: Address) -> None:
        """Ignore the errors of a client that went away, and show all others."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def close_connections(self) -> None:
        """Close the connections that are still open."""
        with self._lock:
            remaining = [each for each in self._open if isinstance(each, socket.socket)]
        for connection in remaining:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    """Handles the requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    server_version = "promptkit-testing"
    sys_version = ""
    timeout = IDLE_TIMEOUT
    disable_nagle_algorithm = True

    def __init__(
        self,
        listener: Listener,
        request: socket.socket,
        client: tuple[str, int],
        server: BaseServer,
    ) -> None:
        self._listener = listener
        super().__init__(request, client, server)

    def do_GET(self) -> None:
        """Send the list of models."""
        exchange = self._record(b"")
        if exchange.path == MODELS:
            data = [
                {"id": name, "object": "model", "created": 0, "owned_by": "promptkit"}
                for name in self._listener.models
            ]
            self._send(exchange, json_response({"object": "list", "data": data}))
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
            body: Json = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            problem = IllFormedRequestError(
                "We could not parse the JSON body of your request. The OpenAI API expects a JSON payload."
            )
            self._send(exchange, self._listener.backend.refuse(exchange, problem))
            return
        exchange.body = body
        self._send(exchange, self._listener.backend.answer(exchange))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the parameter's name in http.server
        """Print nothing, because the journal has the requests."""

    def _record(self, raw: bytes) -> Exchange:
        return self._listener.record_request(
            self.command,
            self.path.partition("?")[0],
            {name.lower(): value for name, value in self.headers.items()},
            self.client_address,
            raw,
        )

    def _read_body(self) -> bytes | None:
        """Read the body of the request.

        None if it cannot be read; the client has been answered then, or is gone.
        """
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY:
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
        raw = self.rfile.read(int(length))
        if len(raw) < int(length):
            self.close_connection = True
            return None
        return raw

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
        self._send(exchange, json_response(answer.body, answer.status))

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
            self._send_stream(outgoing, outgoing.body, exchange.seconds_between)

    def _send_whole(self, outgoing: HttpResponse, body: bytes) -> None:
        self._send_headers(outgoing, {"Content-Length": str(len(body))})
        self.wfile.write(body[: len(body) // 2] if outgoing.cut else body)
        self._end(outgoing)

    def _send_stream(
        self, outgoing: HttpResponse, events: Iterator[bytes], seconds_between: float
    ) -> None:
        self._send_headers(
            outgoing,
            {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"},
        )
        sent = list(events) if outgoing.cut else events
        for event in sent[: len(sent) // 2] if isinstance(sent, list) else sent:
            self._listener.backend.closing.wait(seconds_between)
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
