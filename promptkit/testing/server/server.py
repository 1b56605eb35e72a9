"""The scripted server that tests start and close."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from threading import Thread
from types import TracebackType
from typing import Self

from promptkit.reprs import describe
from promptkit.testing.server.backend import Backend
from promptkit.testing.server.http_handler import Listener
from promptkit.testing.server.journal import Exchange, Stats
from promptkit.testing.server.replies import Answer, Fault, Rule, Step, normalize_answer


def serve(  # noqa: PLR0913  # the settings of a server
    *,
    window: int | Mapping[str, int] | None = None,
    script: Iterable[Step] = (),
    rules: Iterable[Rule] = (),
    after: Callable[[Exchange], Answer] | None = None,
    faults: Mapping[int, Fault] | Callable[[int], Fault | None] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    allow_remote: bool = False,
    models: Iterable[str] = ("gpt-4.1",),
    max_recorded: int = 10_000,
) -> Server:
    """Start a server that answers OpenAI's API and Anthropic's until `close()` or the end of its `with` block.

    A request is answered by the first of the `rules` that matches it, otherwise by the next step of
    the `script`, otherwise by `after`. Without `after` it is refused. A request that fails uses no
    step of the script.

    Args:
        window: Context window in tokens, which a request and the tokens that it reserves for its
            answer must fit. With a mapping, each model has its own. None, or a model that is not in
            the mapping: no limit.
        script: The answers, in order.
        rules: Answers for all requests that match.
        after: A function that answers requests after the script, such as `echo`.
        faults: Faults by the number of the request, counted from 1, such as `{3: Hang()}`, or a
            function of the number. A Delay without an answer delays the regular one.
        host: The address that the server listens on.
        port: The port; 0 takes a free one.
        allow_remote: Whether `host` may be an address that other machines can reach. The server
            answers every client.
        models: Names for the list of models.
        max_recorded: Requests that `Server.requests` holds; older ones are forgotten.

    Raises:
        ValueError: `host` is no loopback address, and `allow_remote` is not set.
        TypeError: A step or an answer is of a wrong type.
        OSError: The port is in use.
    """
    if not allow_remote and not _is_loopback(host):
        raise ValueError(
            f"other machines can reach the host {host!r}, and the server answers every client: use 127.0.0.1, or pass allow_remote=True (on the command line --remote)."
        )
    steps, known_rules = list(script), list(rules)
    for step in (*steps, *(rule.answer for rule in known_rules)):
        if not callable(step):
            normalize_answer(step)
    return Server(
        Listener(
            (host, port),
            Backend(
                window=window,
                script=steps,
                rules=known_rules,
                after=after,
                faults=faults or {},
            ),
            models=tuple(models),
            max_recorded=max_recorded,
        )
    )


class Server:
    """A running server. As a context manager it closes at the end of the block.

    >>> with serve(script=["Hello."]) as server:
    ...     client = openai.OpenAI(base_url=server.url, api_key="none")
    """

    def __init__(self, http: Listener) -> None:
        self._http = http
        self._backend = http.backend
        self._thread = Thread(
            target=http.serve_forever,
            kwargs={"poll_interval": 0.02},
            daemon=True,
            name="promptkit-testing-server",
        )
        self._thread.start()

    def __repr__(self) -> str:
        return describe(self, url=self.url, requests=len(self.requests))

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._http.server_port

    @property
    def url(self) -> str:
        """The base URL for clients: `http://127.0.0.1:<port>/v1`."""
        host = str(self._http.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL for clients of Anthropic's API, which add `/v1` themselves: `http://127.0.0.1:<port>`."""
        return self.url.removesuffix("/v1")

    @property
    def requests(self) -> tuple[Exchange, ...]:
        """The latest requests, in order, up to `max_recorded`."""
        return self._http.list_requests()

    @property
    def stats(self) -> Stats:
        """The counts since the start."""
        return self._backend.counters.stats

    @property
    def steps_left(self) -> int:
        """How many steps of the script are unused."""
        return len(self._backend.script)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._http.count_connections()

    def close(self) -> None:
        """Close the server, its connections and its threads.

        A client that still waits finds its connection closed. May be called twice.
        """
        self._backend.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self._http.close_connections()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
