"""The scripted server that tests start and close: its socket and its connections, what it answers, and its prompt caches.

A request gets a refusal where the real endpoint would refuse it, otherwise what the script says.

Prompt caches follow OpenAI's and Anthropic's published rules. OpenAI: a prefix that an earlier request
began with is cached from 1,024 tokens on, in steps of 128 (OpenAI, "Prompt caching"). Cache
breakpoints in requests are ignored. Anthropic: a request caches what is up to its cache breakpoints,
from 512 to 4,096 tokens on, by the model. A later one reads the longest prefix that ends at one of
its own breakpoints, or up to 20 blocks before it (Anthropic, "Prompt caching"). Entries do not expire
here, and there is one machine, so every possible hit happens.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import sys
import time
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import lru_cache, partial
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate, chain, takewhile
from socketserver import BaseServer, TCPServer
from threading import Condition, Event, Lock, Thread
from types import TracebackType
from typing import Any, Literal, TypeAlias
from zlib import crc32

import attrs

from promptkit.messages import ImagePart, Json, Message, Usage, as_mapping, as_sequence
from promptkit.reprs import describe
from promptkit.testing.network_guard import parse_ip_address
from promptkit.testing.server.anthropic_api import MESSAGES_API
from promptkit.testing.server.journal import (
    CHAT,
    COMPACT,
    COUNT_TOKENS,
    INPUT_TOKENS,
    MESSAGES,
    MODELS,
    RESPONSES,
    Answer,
    ConnectionReset,
    Delay,
    Exchange,
    Fault,
    HttpAnswer,
    MalformedBody,
    Rule,
    ScriptedReply,
    Stats,
    Step,
    TruncatedBody,
    api_error,
    extract_text,
    list_blocks,
    normalize_answer,
)
from promptkit.testing.server.openai_api import (
    CHAT_API,
    RESPONSES_API,
    Api,
    IllFormedRequestError,
    ServerReply,
    encode_compaction,
)
from promptkit.tokens import Tokenizer, count_request, tokenizer_for
from promptkit.tokens.encodings import get_encoding
from promptkit.tokens.models import CACHE_MINIMUM, describe_model
from promptkit.tokens.tool_schemas import compact_arguments, format_declarations
from promptkit.tools import read_definition


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
    number = parse_ip_address(host)
    if not (allow_remote or host == "localhost" or (number and number.is_loopback)):
        raise ValueError(
            f"other machines can reach the host {host!r}, and the server answers every client: use 127.0.0.1, or pass allow_remote=True (on the command line --remote)."
        )
    steps, known_rules = deque(script), tuple(rules)
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
                faults=faults if callable(faults) else (faults or {}).get,
                models=tuple(models),
                journal=deque(maxlen=max_recorded),
            ),
        )
    )


class Server(AbstractContextManager["Server"]):
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
        with self._backend.changed:
            return tuple(self._backend.journal)

    @property
    def stats(self) -> Stats:
        """The counts since the start."""
        with self._backend.changed:
            return Stats(**self._backend.counts)

    @property
    def steps_left(self) -> int:
        """How many steps of the script are unused."""
        return len(self._backend.script)

    def close(self) -> None:
        """Close the server, its connections and its threads.

        A client that still waits finds its connection closed. May be called twice.
        """
        self._backend.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        with self._http.lock:
            remaining = [each for each in self._http.open if isinstance(each, socket.socket)]
        for connection in remaining:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


Connection: TypeAlias = socket.socket | tuple[bytes, socket.socket]
Address: TypeAlias = tuple[str, int] | str


MAX_CONNECTIONS = 512
"""Open connections. Beyond it the newest are closed without an answer."""

MAX_BODY = 64 * 1024 * 1024
"""Bytes that a request's body may have."""

POSTS = (CHAT, RESPONSES, INPUT_TOKENS, COMPACT, MESSAGES, COUNT_TOKENS)
POLL_INTERVAL = 0.02  # seconds between two checks whether the client still waits


class Listener(ThreadingHTTPServer):
    """The socket and its threads."""

    daemon_threads = True
    request_queue_size = 128
    block_on_close = False

    def __init__(self, address: tuple[str, int], backend: Backend) -> None:
        self.backend = backend
        self.open: set[Connection] = set()
        self.lock = Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, partial(Handler, backend))

    def server_bind(self) -> None:
        """Bind the socket. http.server would also look up the name of the host."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = (
            str(self.server_address[0]),
            int(self.server_address[1]),
        )

    def process_request(self, request: Connection, client_address: Address) -> None:
        """Start the thread of a connection, or close it if there are too many."""
        with self.lock:
            is_free = len(self.open) < MAX_CONNECTIONS
            if is_free:
                self.open.add(request)
        if is_free:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Connection, client_address: Address) -> None:
        """Handle a connection in its thread, and forget it when it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.lock:
                self.open.discard(request)

    def handle_error(self, request: Connection, client_address: Address) -> None:
        """Ignore the errors of a client that went away, and show all others."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Handles the requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    server_version = "promptkit-testing"
    sys_version = ""
    timeout = 60  # seconds after which an idle connection is closed
    disable_nagle_algorithm = True

    def __init__(
        self,
        backend: Backend,
        request: socket.socket,
        client: tuple[str, int],
        server: BaseServer,
    ) -> None:
        self._backend = backend
        super().__init__(request, client, server)

    def do_GET(self) -> None:
        """Send the list of models."""
        exchange = self._record(b"")
        self._send(
            exchange,
            self._backend.list_models()
            if exchange.path == MODELS
            else _refuse_path(exchange, MODELS),
        )

    def do_POST(self) -> None:
        """Answer a request to a model."""
        length = self.headers.get("Content-Length", "")
        size = int(length) if length.isdecimal() else None
        raw = b"" if size is None or size > MAX_BODY else self.rfile.read(size)
        if len(raw) != size:
            self.close_connection = True
        if size is not None and len(raw) < size <= MAX_BODY:
            return  # the client is gone
        exchange = self._record(raw)
        try:
            outgoing = self._answer(exchange, size)
        finally:
            self._backend.release(exchange.number)
        self._send(exchange, outgoing)

    def _answer(self, exchange: Exchange, size: int | None) -> HttpResponse:
        refuse = self._backend.refuse
        if size is None:
            return refuse(
                exchange, IllFormedRequestError("The request has no Content-Length."), 411
            )
        if size > MAX_BODY:
            return refuse(exchange, IllFormedRequestError("The request is too large."), 413)
        if exchange.path not in POSTS:
            return _refuse_path(exchange, *POSTS)
        try:
            body: Json = json.loads(exchange.raw)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            return refuse(
                exchange,
                IllFormedRequestError(
                    "We could not parse the JSON body of your request. The OpenAI API expects a JSON payload."
                ),
            )
        exchange.body = body
        return self._backend.answer(exchange)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the parameter's name in http.server
        """Print nothing, because the journal has the requests."""

    def _record(self, raw: bytes) -> Exchange:
        return self._backend.record_request(
            self.command,
            self.path.partition("?")[0],
            {name.lower(): value for name, value in self.headers.items()},
            self.client_address,
            raw,
        )

    def _send(self, exchange: Exchange, outgoing: HttpResponse) -> None:
        if outgoing.status is None or self._backend.closing.is_set():
            self._wait()
            return
        exchange.status = outgoing.status
        self.send_response(outgoing.status)
        self.send_header(
            "request-id" if exchange.path in {MESSAGES, COUNT_TOKENS} else "x-request-id",
            f"req_{exchange.number}",
        )
        if isinstance(body := outgoing.body, bytes):
            self._send_headers(outgoing, {"Content-Length": str(len(body))})
            self.wfile.write(body[: len(body) // 2] if outgoing.cut else body)
        else:
            self._send_stream(outgoing, body, exchange.seconds_between)
        self.wfile.flush()
        self.close_connection = self.close_connection or outgoing.cut is not None
        if outgoing.cut == "reset":
            # With a linger time of 0, closing sends RST instead of FIN.
            self.connection.setsockopt(
                socket.SOL_SOCKET,
                socket.SO_LINGER,
                struct.pack("hh" if os.name == "nt" else "ii", 1, 0),
            )
            self.connection.close()

    def _send_stream(
        self, outgoing: HttpResponse, events: Iterator[bytes], seconds_between: float
    ) -> None:
        self._send_headers(
            outgoing,
            {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"},
        )
        sent = list(events) if outgoing.cut else events
        for event in sent[: len(sent) // 2] if isinstance(sent, list) else sent:
            self._backend.closing.wait(seconds_between)
            self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            self.wfile.flush()
        if outgoing.cut != "reset":
            self.wfile.write(b"0\r\n\r\n")

    def _send_headers(self, outgoing: HttpResponse, more: Mapping[str, str]) -> None:
        for name, value in {**outgoing.headers, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def _wait(self) -> None:
        """Send nothing until the client goes away or the server closes."""
        self.close_connection = True
        self.connection.settimeout(POLL_INTERVAL)
        while not self._backend.closing.wait(POLL_INTERVAL):
            with suppress(TimeoutError):
                if not self.connection.recv(1, socket.MSG_PEEK):
                    return


def _refuse_path(exchange: Exchange, *known: str) -> HttpResponse:
    method, path = exchange.method, exchange.path
    return encode_answer(
        api_error(405, f"Not allowed to {method} on {path}.", code="method_not_supported")
        if path in (MODELS, *POSTS) and path not in known
        else api_error(404, f"Unknown request URL: {method} {path}.", code="unknown_url")
    )


BLOCK_TOKENS = 128
MAX_BLOCKS = 1_000_000
"""Blocks to remember, some 100 bytes each. Beyond it the least recently used ones are forgotten."""

_LOOK_BACK = 20  # blocks before a cache breakpoint

START, SEPARATOR, END, CALL, TOOLS = range(1_000_000, 1_000_005)
"""Token ids for what is between texts; no vocabulary has them."""

# The cut is at a fixed place, so that a longer text keeps the tokens of its prefix.
_CHARACTERS_AT_ONCE = 65_536


class PromptCaches:
    """The prompts sent so far, in every scope, as each provider caches them. For many threads at once.

    OpenAI's are blocks of 128 tokens, each as a digest of it and all blocks before it. Anthropic's
    are the prefixes that were cached: their digests and their tokens.
    """

    def __init__(self) -> None:
        self._blocks: OrderedDict[bytes, None] = OrderedDict()
        self._prefixes: dict[bytes, int] = {}
        self._lock = Lock()

    def read(self, scope: str, chat: Mapping[str, Any]) -> int:  # Any: JSON
        """Return how many tokens of a request were cached in its scope, and cache the request."""
        ids = encode_prompt(chat)
        digests = _chain_digests(
            scope,
            (
                ids[start : start + BLOCK_TOKENS].tobytes()
                for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS)
            ),
        )
        with self._lock:
            hits = sum(1 for _ in takewhile(self._blocks.__contains__, digests))
            # so that the end of a prompt is forgotten before its beginning
            for digest in reversed(digests):
                self._blocks[digest] = None
                self._blocks.move_to_end(digest)
            while len(self._blocks) > MAX_BLOCKS:
                self._blocks.popitem(last=False)
        return hits * BLOCK_TOKENS if hits * BLOCK_TOKENS >= CACHE_MINIMUM else 0

    def use(self, scope: str, body: Mapping[str, Any], tokens: int) -> Usage:  # Any: JSON
        """Return what a request reads from the cache of its scope and writes to it, and cache it.

        Args:
            scope: Requests of other scopes share nothing with it.
            body: The request to the Messages API.
            tokens: Its input tokens. Its blocks share them by their length.
        """
        model = str(body.get("model", ""))
        count, minimum = tokenizer_for(model).base.count, describe_model(model).cache_minimum
        blocks = [block for _, block in list_blocks(body)]
        marked = [at for at, block in enumerate(blocks) if block.get("cache_control") is not None]
        if not marked:
            return Usage(input_tokens=tokens)
        texts = [
            json.dumps(
                {key: value for key, value in block.items() if key != "cache_control"},
                sort_keys=True,
            )
            for block in blocks
        ]
        digests = _chain_digests(scope, map(str.encode, texts))
        sizes = [*accumulate(map(count, texts))]
        prefixes = [int(size * (tokens / max(1, sizes[-1]))) for size in sizes]
        reachable = {at for end in marked for at in range(max(0, end - _LOOK_BACK), end + 1)}
        entries = [at for at in marked if prefixes[at] >= minimum]
        with self._lock:
            read = min(tokens, max(self._prefixes.get(digests[at], 0) for at in reachable))
            for at in entries:
                self._prefixes.setdefault(digests[at], prefixes[at])
            cached = max((self._prefixes[digests[at]] for at in entries), default=0)
        return Usage(
            input_tokens=tokens,
            cached_tokens=read,
            written_tokens=max(0, min(tokens, cached) - read),
        )


def _chain_digests(scope: str, pieces: Iterable[bytes]) -> list[bytes]:
    """Return for each piece a digest of it and of all pieces before it in a scope."""
    return [
        *accumulate(
            pieces,
            lambda before, piece: blake2b(piece, digest_size=16, key=before).digest(),
            initial=blake2b(scope.encode(errors="surrogatepass"), digest_size=16).digest(),
        )
    ][1:]


def encode_prompt(chat: Mapping[str, Any]) -> array[int]:  # Any: JSON
    """Encode a chat request in the order in which a model reads it: tools, then messages.

    The number of tokens is that of `count_request`, except for a few tokens that tool definitions
    save if there are instructions.
    """
    model = chat.get("model")
    # its name is that of an encoding
    tokenizer = tokenizer_for(model if isinstance(model, str) else None).base
    encode = partial(_encode_text, tokenizer.name)
    tools = [
        definition
        for tool in as_sequence(chat.get("tools"))
        if (definition := read_definition(tool))
    ]
    return array(
        "I",
        chain(
            (TOOLS, TOOLS, *encode(format_declarations(tools, "tools"))) if tools else (),
            *(
                part
                for message in map(as_mapping, as_sequence(chat.get("messages")))
                for part in _encode_message(message, tokenizer, encode)
            ),
            (START, *encode("assistant"), SEPARATOR),
        ),
    )


def _encode_message(
    message: Mapping[str, Any],  # Any: as above
    tokenizer: Tokenizer,
    encode: Callable[[str], array[int]],
) -> Iterator[Sequence[int]]:
    role, name, content = str(message.get("role")), message.get("name"), message.get("content")
    calls = [
        as_mapping(as_mapping(call).get("function"))
        for call in as_sequence(message.get("tool_calls"))
    ]
    if not calls or extract_text(content):
        yield (START, *encode(role))
        if role != "tool":
            yield (SEPARATOR, *encode(str(name)), SEPARATOR) if name else (SEPARATOR,)
        if isinstance(content, str):
            yield encode(content)
        for part in map(as_mapping, as_sequence(content)):
            yield _encode_part(part, tokenizer, encode)
        yield (END,)
    for call in calls:
        # the framing of a call, and its name there and in its result
        yield (*(CALL,) * 10, *encode(str(call.get("name", ""))) * 2)
        yield encode(compact_arguments(str(call.get("arguments", ""))))
    if len(calls) > 1:
        yield (CALL,) * 9


def _encode_part(
    part: Mapping[str, Any],  # Any: as above
    tokenizer: Tokenizer,
    encode: Callable[[str], array[int]],
) -> Sequence[int]:
    if not (image := as_mapping(part.get("image_url"))):
        return encode(extract_text([part]) or json.dumps(part, sort_keys=True))
    url, detail = str(image.get("url", "")), image.get("detail")
    shown = ImagePart(url=url, detail=detail if isinstance(detail, str) else None)
    mark = START + 16 + crc32(url.encode(errors="surrogatepass")) % 1_000_000
    return (mark,) * tokenizer.count_part(shown).tokens


@lru_cache(maxsize=4096)
def _encode_text(encoding: str, text: str) -> array[int]:
    vocabulary = get_encoding(encoding)
    pieces = (
        text[start : start + _CHARACTERS_AT_ONCE]
        for start in range(0, len(text), _CHARACTERS_AT_ONCE)
    )
    return array("I", chain.from_iterable(map(vocabulary.encode_ordinary, pieces)))


OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""The parameters that limit the tokens of an answer."""

PLACEHOLDER_REPLY = ScriptedReply(
    message=Message(
        role="assistant",
        content=("This answer does not arrive as a whole: its connection is cut.",),
    )
)
JSON = {"Content-Type": "application/json"}
NO_RETRY = {"x-should-retry": "false"}
"""For errors of the test itself, which a retry by the SDK would not solve."""


@attrs.frozen(kw_only=True)
class HttpResponse:
    """An HTTP response. A body of bytes has a length, an iterator of events is a stream."""

    status: int | None
    """None: nothing is sent for as long as the client waits."""
    body: bytes | Iterator[bytes] = b""
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    cut: Literal["reset", "truncated"] | None = None
    """How the body ends in the middle; None sends it complete."""


@attrs.define(kw_only=True, eq=False)
class Backend:
    """Answers requests without sockets. For many threads at once."""

    window: int | Mapping[str, int] | None
    script: deque[Step]
    rules: Sequence[Rule]
    after: Callable[[Exchange], Answer] | None
    faults: Callable[[int], Fault | None]
    models: Sequence[str]
    journal: deque[Exchange]
    """The latest requests, in order."""
    closing: Event = attrs.field(factory=Event, init=False)
    _waiting: set[int] = attrs.field(factory=set[int], init=False)
    """The numbers of requests that wait for their step of the script. Steps are given out in the order
    in which requests arrived, whichever of them is counted faster."""
    counts: Counter[str] = attrs.field(factory=Counter[str], init=False)
    _caches: PromptCaches = attrs.field(factory=PromptCaches, init=False)
    changed: Condition = attrs.field(factory=Condition, init=False)
    """Guards the counts, the journal, the script and the requests that wait."""

    def count(self, **amounts: int) -> None:
        """Add to counters, by the names of the fields of Stats."""
        with self.changed:
            self.counts.update(amounts)

    def record_request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        client: tuple[str, int],
        raw: bytes,
    ) -> Exchange:
        """Record a request in the journal."""
        with self.changed:
            self.counts["requests"] += 1
            exchange = Exchange(
                number=self.counts["requests"],
                method=method,
                path=path,
                headers=headers,
                client=client,
                raw=raw,
            )
            self.journal.append(exchange)
            if method == "POST":
                self._waiting.add(exchange.number)
        return exchange

    def release(self, number: int) -> None:
        """Let later requests go on: this one has its step, or will get none."""
        with self.changed:
            self._waiting.discard(number)
            self.changed.notify_all()

    def list_models(self) -> HttpResponse:
        """Answer a request for the list of models."""
        return _write_json(
            {
                "object": "list",
                "data": [
                    {"id": name, "object": "model", "created": 0, "owned_by": "promptkit"}
                    for name in self.models
                ],
            }
        )

    def answer(self, exchange: Exchange) -> HttpResponse:
        """Answer a request, and record the outcome in the exchange."""
        fault = self.faults(exchange.number)
        if isinstance(fault, Delay) and fault.answer is None:
            self._delay(exchange, fault)
        elif fault is not None:
            return self._respond(exchange, self._resolve(exchange, fault), 0)
        api = _api_of(exchange.path)
        try:
            api.check(exchange)
        except IllFormedRequestError as problem:
            return self.refuse(exchange, problem)
        tokens = count_request(exchange.chat).tokens
        if exchange.path in {INPUT_TOKENS, COUNT_TOKENS}:
            kind = {"object": "response.input_tokens"} if exchange.path == INPUT_TOKENS else {}
            return _write_json({**kind, "input_tokens": tokens})
        overflow = api.refuse_size(tokens, _reserved_tokens(exchange), self._find_window(exchange))
        if overflow is not None:
            self.count(overflows=1)
            return _encode_error(overflow, exchange)
        if exchange.path == COMPACT:
            exchange.usage = self._count_usage(exchange, tokens, tokens // 10)
            return _write_json(encode_compaction(exchange, exchange.usage, int(time.time())))
        return self._respond(exchange, self._next_answer(exchange), tokens)

    def refuse(
        self, exchange: Exchange, problem: IllFormedRequestError, status: int = 400
    ) -> HttpResponse:
        """Answer an ill-formed request, and count it."""
        exchange.problem = problem.message
        self.count(invalid=1)
        return _encode_error(
            api_error(status, problem.message, param=problem.param, code=problem.code), exchange
        )

    def _find_window(self, exchange: Exchange) -> int:
        window = (
            self.window.get(str(exchange.body.get("model")))
            if isinstance(self.window, Mapping)
            else self.window
        )
        return sys.maxsize if window is None else window

    def _next_answer(self, exchange: Exchange) -> ScriptedReply | Fault:
        """Choose the answer: of the first rule that matches, otherwise of the script, otherwise of the function after it."""
        try:
            step = next((rule.answer for rule in self.rules if _matches(rule, exchange)), None)
            if step is None:
                with self.changed:
                    self.changed.wait_for(
                        lambda: (
                            exchange.number not in self._waiting
                            or exchange.number <= min(self._waiting)
                        )
                    )
                    step = self.script.popleft() if self.script else self.after
            self.release(exchange.number)
            if step is not None:
                return self._resolve(exchange, step)
        except Exception as error:  # noqa: BLE001  # a test's own function may raise anything, and the client gets the error
            message = f"A step or a rule of the script raised {type(error).__name__}: {error}"
            return attrs.evolve(
                api_error(500, message, kind="server_error", code="script_raised"), headers=NO_RETRY
            )
        self.count(beyond_script=1)
        message = (
            f"The script of this server is used up: request {exchange.number} is one too many."
        )
        return attrs.evolve(api_error(400, message, code="script_used_up"), headers=NO_RETRY)

    def _resolve(self, exchange: Exchange, step: Step) -> ScriptedReply | Fault:
        """Call the functions of a step and wait for its delays, until it is a reply or a fault."""
        answer = normalize_answer(step(exchange) if callable(step) else step)
        while isinstance(answer, Delay) and not self.closing.is_set():
            self._delay(exchange, answer)
            then = PLACEHOLDER_REPLY if answer.answer is None else answer.answer
            answer = normalize_answer(then(exchange) if callable(then) else then)
        return answer

    def _respond(
        self, exchange: Exchange, answer: ScriptedReply | Fault, tokens: int
    ) -> HttpResponse:
        if isinstance(answer, ScriptedReply):
            return self._encode(exchange, self._build_reply(exchange, answer, tokens))
        exchange.fault = type(answer).__name__
        self.count(faults=1)
        match answer:
            case HttpAnswer():
                return _encode_error(answer, exchange)
            case MalformedBody():
                broken = b'{"id": "broken", "choi'
                event = b"event: message_start\ndata: " if exchange.path == MESSAGES else b"data: "
                return HttpResponse(
                    status=200,
                    body=iter([event + broken + b"\n\n"]) if exchange.stream else broken,
                    headers=JSON,
                )
            case ConnectionReset() | TruncatedBody():
                return attrs.evolve(
                    self._encode(
                        exchange,
                        self._build_reply(exchange, PLACEHOLDER_REPLY, tokens),
                        counted=False,
                    ),
                    cut="reset" if isinstance(answer, ConnectionReset) else "truncated",
                )
            case _:
                return HttpResponse(status=None)

    def _delay(self, exchange: Exchange, delay: Delay) -> None:
        exchange.fault = "Delay"
        exchange.seconds_between += delay.between
        self.release(exchange.number)  # later requests may be answered first
        self.closing.wait(delay.seconds)

    def _build_reply(self, exchange: Exchange, answer: ScriptedReply, tokens: int) -> ServerReply:
        model = str(exchange.body.get("model", ""))
        tokenizer = tokenizer_for(model)
        finish = answer.finish
        message = attrs.evolve(
            answer.message,
            tool_calls=tuple(
                attrs.evolve(call, id=call.id or f"call_{exchange.number}_{at}")
                for at, call in enumerate(answer.message.tool_calls)
            ),
        )
        limit, reason = _reserved_tokens(exchange), "length"
        room = self._find_window(exchange) - tokens
        if _api_of(exchange.path).cuts_at_window and room < limit:
            limit, reason = max(1, room), "model_context_window_exceeded"
        if limit and finish is None and tokenizer.count(message.text) > limit:
            text, finish = tokenizer.truncate(message.text, limit), reason
            message = attrs.evolve(message, content=(text,), tool_calls=())
        written = (text for c in message.tool_calls for text in (c.name, c.arguments))
        output_tokens = sum(map(tokenizer.count, [message.text, *written]))
        return ServerReply(
            number=exchange.number,
            created=int(time.time()),
            model=model,
            message=message,
            finish=finish or ("tool_calls" if message.tool_calls else "stop"),
            usage=answer.usage or self._count_usage(exchange, tokens, output_tokens),
        )

    def _count_usage(self, exchange: Exchange, tokens: int, output_tokens: int) -> Usage:
        headers, body = exchange.headers, exchange.body
        scope = json.dumps(
            [
                headers.get("authorization"),
                headers.get("x-api-key"),
                body.get("model"),
                body.get("prompt_cache_key"),
            ]
        )
        return (
            attrs.evolve(self._caches.use(scope, body, tokens), output_tokens=output_tokens)
            if exchange.path == MESSAGES
            else Usage(
                input_tokens=tokens,
                output_tokens=output_tokens,
                cached_tokens=min(self._caches.read(scope, exchange.chat), tokens),
            )
        )

    def _encode(
        self, exchange: Exchange, reply: ServerReply, *, counted: bool = True
    ) -> HttpResponse:
        if counted:
            usage = exchange.usage = reply.usage
            self.count(
                answered=1,
                **{field.name: getattr(usage, field.name) for field in attrs.fields(Usage)},
            )
        api = _api_of(exchange.path)
        return (
            _write_json(api.write(exchange, reply))
            if not exchange.stream
            else HttpResponse(status=200, body=api.write_events(exchange, reply))
        )


def _api_of(path: str) -> Api:
    """Return the API that a path belongs to."""
    return (
        CHAT_API
        if path == CHAT
        else MESSAGES_API
        if path in {MESSAGES, COUNT_TOKENS}
        else RESPONSES_API
    )


def _matches(rule: Rule, exchange: Exchange) -> bool:
    return (
        rule.match(exchange)
        if callable(rule.match)
        else re.search(rule.match, exchange.text) is not None
    )


def _reserved_tokens(exchange: Exchange) -> int:
    """Return the tokens that a request reserves for its answer; 0 if it sets no limit."""
    return next(
        (limit for key in OUTPUT_LIMITS if isinstance(limit := exchange.body.get(key), int)), 0
    )


def _encode_error(answer: HttpAnswer, exchange: Exchange) -> HttpResponse:
    """Encode an error in the form of the API that was called, and any other answer as it is."""
    return encode_answer(_api_of(exchange.path).convert_error(answer, exchange.number))


def encode_answer(answer: HttpAnswer) -> HttpResponse:
    """Encode an answer: nothing, a text, or JSON."""
    if answer.body is None:
        return HttpResponse(status=answer.status, headers=answer.headers)
    kind, body = (
        ("text/html", answer.body)
        if isinstance(answer.body, str)
        else ("application/json", json.dumps(answer.body))
    )
    return HttpResponse(
        status=answer.status, body=body.encode(), headers={"Content-Type": kind, **answer.headers}
    )


def _write_json(body: Json) -> HttpResponse:
    return encode_answer(HttpAnswer(status=200, body=body))
