"""Decide what the server answers: a refusal where the real endpoint would refuse, otherwise what the script says."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Condition, Event, Lock
from typing import Literal

import attrs

from promptkit import Message, Usage, count_request
from promptkit.testing.server.anthropic_api import MESSAGES_API
from promptkit.testing.server.journal import (
    CHAT,
    COMPACT,
    COUNT_TOKENS,
    INPUT_TOKENS,
    MESSAGES,
    Exchange,
    Stats,
)
from promptkit.testing.server.openai_api import (
    CHAT_API,
    RESPONSES_API,
    Api,
    IllFormedRequestError,
    ServerReply,
    encode_compaction,
)
from promptkit.testing.server.prompt_cache import PromptCaches
from promptkit.testing.server.replies import (
    Answer,
    ConnectionReset,
    Delay,
    Fault,
    HttpAnswer,
    MalformedBody,
    Rule,
    ScriptedReply,
    Step,
    TruncatedBody,
    api_error,
    normalize_answer,
)
from promptkit.tokens import tokenizer_for

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


class RequestQueue:
    """Requests that wait for their step of the script, by their numbers. For many threads at once.

    Steps are given out in the order in which requests arrived, whichever of them is counted faster.
    """

    def __init__(self) -> None:
        self._waiting: set[int] = set()
        self._changed = Condition()

    def add(self, number: int) -> None:
        """Add a request that arrived."""
        with self._changed:
            self._waiting.add(number)

    def wait_for_turn(self, number: int) -> None:
        """Wait until no earlier request needs a step.

        Return at once for a request that is not in the queue.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: number not in self._waiting or number <= min(self._waiting)
            )

    def remove(self, number: int) -> None:
        """Remove a request that has its step, or will get none."""
        with self._changed:
            self._waiting.discard(number)
            self._changed.notify_all()


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
    queue: RequestQueue = attrs.field(factory=RequestQueue, init=False)
    _counts: Counter[str] = attrs.field(factory=Counter[str], init=False)
    _caches: PromptCaches = attrs.field(factory=PromptCaches, init=False)
    _lock: Lock = attrs.field(factory=Lock, init=False)

    def count(self, **amounts: int) -> None:
        """Add to counters, by the names of the fields of Stats."""
        with self._lock:
            self._counts.update(amounts)

    @property
    def stats(self) -> Stats:
        """The counts so far."""
        with self._lock:
            return Stats(**self._counts)

    @property
    def requests(self) -> tuple[Exchange, ...]:
        """The latest requests, in order."""
        with self._lock:
            return tuple(self.journal)

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
            self._counts["requests"] += 1
            exchange = Exchange(
                number=self._counts["requests"],
                method=method,
                path=path,
                headers=headers,
                client=client,
                raw=raw,
            )
            self.journal.append(exchange)
            if method == "POST":
                self.queue.add(exchange.number)
        return exchange

    def list_models(self) -> HttpResponse:
        """Answer a request for the list of models."""
        return json_response(
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
            return json_response(api.write_count(tokens))
        overflow = api.refuse_size(tokens, _reserved_tokens(exchange), self._find_window(exchange))
        if overflow is not None:
            self.count(overflows=1)
            return _http_response(overflow, exchange)
        if exchange.path == COMPACT:
            exchange.usage = self._count_usage(exchange, tokens, tokens // 10)
            return json_response(encode_compaction(exchange, exchange.usage, int(time.time())))
        return self._respond(exchange, self._next_answer(exchange), tokens)

    def refuse(
        self, exchange: Exchange, problem: IllFormedRequestError, status: int = 400
    ) -> HttpResponse:
        """Answer an ill-formed request, and count it."""
        exchange.problem = problem.message
        self.count(invalid=1)
        return _http_response(
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
                self.queue.wait_for_turn(exchange.number)
                with self._lock:
                    step = self.script.popleft() if self.script else self.after
            self.queue.remove(exchange.number)
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
                return _http_response(answer, exchange)
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
        self.queue.remove(exchange.number)  # later requests may be answered first
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
        if exchange.path == MESSAGES:
            return attrs.evolve(
                self._caches.use(scope, exchange.body, tokens), output_tokens=output_tokens
            )
        return Usage(
            input_tokens=tokens,
            output_tokens=output_tokens,
            cached_tokens=min(self._caches.read(scope, exchange.chat), tokens),
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
            json_response(api.write(exchange, reply))
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


def _http_response(answer: HttpAnswer, exchange: Exchange) -> HttpResponse:
    answer = _api_of(exchange.path).convert_error(answer, exchange.number)
    if answer.body is None:
        return HttpResponse(status=answer.status, headers=answer.headers)
    if isinstance(answer.body, str):
        return HttpResponse(
            status=answer.status,
            body=answer.body.encode(),
            headers={"Content-Type": "text/html", **answer.headers},
        )
    return attrs.evolve(
        json_response(answer.body, answer.status), headers={**JSON, **answer.headers}
    )


def json_response(value: object, status: int = 200) -> HttpResponse:
    """Return a response with a value as JSON."""
    return HttpResponse(status=status, body=json.dumps(value).encode(), headers=JSON)
