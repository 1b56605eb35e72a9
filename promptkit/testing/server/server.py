"""The server: a socket on this machine, a thread for each connection, a journal."""

from __future__ import annotations

import socket
import sys
import time
from collections import deque
from contextlib import suppress
from http.server import ThreadingHTTPServer
from ipaddress import ip_address
from threading import BoundedSemaphore, Lock, Thread
from typing import TYPE_CHECKING, Any, Self

from promptkit.testing.server.backend import Backend
from promptkit.testing.server.http_handler import Handler
from promptkit.testing.server.journal import Exchange, Stats
from promptkit.testing.server.replies import scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from promptkit.testing.server.replies import Answer, Fault, Rule, Step

__all__ = ["Server", "serve"]

MEBIBYTE = 1024 * 1024
CONNECTIONS = 512
"""At once; of more, the newest are closed without an answer."""


class Server:
    """A running server. It is a context manager; `close()` ends it, its connections and its threads."""

    def __init__(self, http: _Http) -> None:
        self._http = http
        self._backend = http.backend
        self._thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True, name="promptkit-testing-server")
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._http.server_port

    @property
    def url(self) -> str:
        """The base URL, as clients want it: `http://127.0.0.1:<port>/v1`."""
        host = str(self._http.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1"

    @property
    def requests(self) -> tuple[Exchange, ...]:
        """What was asked, in order: the last so many, as `keep` says."""
        return self._http.journal()

    @property
    def stats(self) -> Stats:
        """Counts since it started."""
        return self._backend.tally.stats

    @property
    def steps_left(self) -> int:
        """The steps of the script that no request has had."""
        return self._backend.steps_left

    @property
    def connections(self) -> int:
        """The connections that are open now."""
        return self._http.connections()

    def close(self) -> None:
        """End everything. Who still waits for an answer finds the connection closed. May be called twice."""
        self._backend.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self._http.hang_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


def serve(  # noqa: PLR0913  # what a test may say of a server
    *,
    window: int | None = None,
    script: Iterable[Step] = (),
    rules: Iterable[Rule] = (),
    after: Callable[[Exchange], Answer] | None = None,
    faults: Mapping[int, Fault] | Callable[[int], Fault | None] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    remote: bool = False,
    models: Iterable[str] = ("gpt-4.1",),
    keep: int = 10_000,
    max_body: int = 64 * MEBIBYTE,
    clock: Callable[[], float] = time.time,
) -> Server:
    """A server that runs from now on, until `close()` or the end of its `with` block.

    `window` is the most tokens that a request may have, with the room that it keeps for its answer. A request is answered by the
    first of the `rules` that matches it, else by the next step of the `script`, else by `after`, such as `echo`; without that it is
    refused. `faults` says which requests, counted from 1, are not answered so: `{3: Hang()}`, or a function of the number. A Delay
    without an answer only delays. A request that fails uses no step of the script.

    `keep` is how many requests the journal holds, `max_body` the bytes that one may have, `clock` the time that answers bear. Only
    loopback addresses are listened on, unless `remote` says that others may be: there is no lock on this door. Raises ValueError for
    another host, TypeError for a step that is none, and OSError where the port is taken.
    """
    if not remote and not _is_loopback(host):
        message = f"host {host!r} may be reached from other machines, and this server answers anybody: give 127.0.0.1, or say that it is meant with `remote`."
        raise ValueError(message)
    steps, followed = list(script), list(rules)
    for step in (*steps, *(rule.answer for rule in followed)):
        if not callable(step):
            scripted(step)
    backend = Backend(window=window, script=steps, rules=followed, after=after, faults=faults or {}, clock=clock)
    return Server(_Http((host, port), backend, models=tuple(models), keep=keep, max_body=max_body))


class _Http(ThreadingHTTPServer):
    """The socket and its threads."""

    daemon_threads = True
    request_queue_size = 128
    block_on_close = False

    def __init__(self, address: tuple[str, int], backend: Backend, *, models: tuple[str, ...], keep: int, max_body: int) -> None:
        self.backend = backend
        self.models = models
        self.max_body = max_body
        self._journal: deque[Exchange] = deque(maxlen=keep)
        self._number = 0
        self._open: set[socket.socket] = set()
        self._places = BoundedSemaphore(CONNECTIONS)
        self._lock = Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        # Without the look-up of the host's name that http.server does here.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def heard(self, method: str, path: str, headers: Mapping[str, str], client: tuple[str, int], raw: bytes) -> Exchange:
        with self._lock:
            self._number += 1
            exchange = Exchange(number=self._number, method=method, path=path, headers=headers, client=client, raw=raw)
            self._journal.append(exchange)
            if method == "POST":
                self.backend.arrivals.come(exchange.number)
        self.backend.tally.add(requests=1)
        return exchange

    def journal(self) -> tuple[Exchange, ...]:
        with self._lock:
            return tuple(self._journal)

    def connections(self) -> int:
        with self._lock:
            return len(self._open)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # Any: socketserver's own signature
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # Any: likewise
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.discard(request)
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # Any: likewise
        """A client that has gone is no news; anything else is a mistake here, and is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def hang_up(self) -> None:
        """End the connections that are still open."""
        with self._lock:
            left = list(self._open)
        for connection in left:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
