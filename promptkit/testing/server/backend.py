"""What the server answers to a request: refusals where the real endpoint would refuse, else what the script says.

The order in which requests came: a script's steps are for requests in that order, whichever of them is counted faster.
"""

from __future__ import annotations

import json
import re
from collections import deque
from threading import Condition, Event, Lock
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from promptkit.messages import Message, Usage
from promptkit.testing.server.encoding import Made, chunks, compaction, completion, events, response
from promptkit.testing.server.journal import CHAT, COMPACT, INPUT_TOKENS, Exchange, ServerStats
from promptkit.testing.server.prompt_cache import PromptCache
from promptkit.testing.server.replies import Delay, HttpAnswer, Malformed, Reset, Rule, Scripted, Truncated, api_error, scripted
from promptkit.testing.server.validation import Problem, check_chat, check_responses
from promptkit.tokens.models import tokenizer_for
from promptkit.tokens.request import count_request

__all__ = ["Arrivals", "Backend", "Outgoing"]


class Arrivals:
    """Requests that have come and have not had their step yet, by their numbers. For many threads at once."""

    def __init__(self) -> None:
        self._waiting: set[int] = set()
        self._changed = Condition()

    def come(self, number: int) -> None:
        """A request has come."""
        with self._changed:
            self._waiting.add(number)

    def wait(self, number: int) -> None:
        """Wait until no request that came before is to have a step any more. At once, for one that is not waiting itself."""
        with self._changed:
            self._changed.wait_for(lambda: number not in self._waiting or number <= min(self._waiting))

    def gone(self, number: int) -> None:
        """A request has had its step, or will have none."""
        with self._changed:
            self._waiting.discard(number)
            self._changed.notify_all()


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from promptkit.testing.server.replies import Answer, Fault, Step

    Faults: TypeAlias = Mapping[int, Fault] | Callable[[int], Fault | None]


LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""What a request may call the most tokens of its answer."""

UNHEARD = Scripted(message=Message(role="assistant", content=("This answer does not arrive as a whole: its connection is cut.",)))
JSON = {"Content-Type": "application/json"}
NO_RETRY = {"x-should-retry": "false"}
"""For mistakes in the test itself: the SDK would ask again, which mends nothing."""


@attrs.frozen(kw_only=True)
class Outgoing:
    """What goes out. A body of bytes has a length, an iterator of events is a stream."""

    status: int | None
    """None: nothing goes out, for as long as the client waits."""
    body: bytes | Iterator[bytes] = b""
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    cut: Literal["reset", "truncated"] | None = None
    """How the body ends in its middle."""


class Backend:
    """The part of the server that knows no sockets. It may be asked from many threads at once."""

    def __init__(  # noqa: PLR0913  # what a test may say of a server
        self,
        *,
        window: int | None,
        script: Iterable[Step],
        rules: Iterable[Rule],
        after: Callable[[Exchange], Answer] | None,
        faults: Faults,
        clock: Callable[[], float],
    ) -> None:
        self.closing = Event()
        self.arrivals = Arrivals()
        self.tally = ServerStats()
        self._window = window
        self._script: deque[Step] = deque(script)
        self._rules = tuple(rules)
        self._after = after
        self._faults = faults
        self._clock = clock
        self._cache = PromptCache()
        self._lock = Lock()

    @property
    def steps_left(self) -> int:
        """The steps of the script that no request has had."""
        return len(self._script)

    def answer(self, exchange: Exchange) -> Outgoing:
        """What a request is answered; the exchange is told what became of it. Its turn is over then, whatever comes of it."""
        try:
            return self._answer(exchange)
        finally:
            self.arrivals.gone(exchange.number)

    def _answer(self, exchange: Exchange) -> Outgoing:
        fault = self._faults(exchange.number) if callable(self._faults) else self._faults.get(exchange.number)
        if isinstance(fault, Delay) and fault.answer is None:
            self._late(exchange, fault)
        elif fault is not None:
            return self._give(exchange, self._resolved(exchange, fault), 0)
        try:
            (check_chat if exchange.path == CHAT else check_responses)(exchange.body)
        except Problem as problem:
            return self.refuse(exchange, problem)
        tokens = count_request(exchange.chat).tokens
        if exchange.path == INPUT_TOKENS:
            return _json({"object": "response.input_tokens", "input_tokens": tokens})
        if (overflow := self._overflow(exchange, tokens)) is not None:
            self.tally.add(overflows=1)
            return _http(overflow)
        if exchange.path == COMPACT:
            exchange.usage = Usage(input_tokens=tokens, output_tokens=tokens // 10, cached_tokens=self._cached(exchange, tokens))
            return _json(compaction(exchange, exchange.usage, int(self._clock())))
        return self._give(exchange, self._step(exchange), tokens)

    def refuse(self, exchange: Exchange, problem: Problem, status: int = 400) -> Outgoing:
        """The answer to an ill-formed request; it is counted as one."""
        exchange.problem = problem.message
        self.tally.add(invalid=1)
        return _http(api_error(status, problem.message, param=problem.param, code=problem.code))

    def _overflow(self, exchange: Exchange, tokens: int) -> HttpAnswer | None:
        """The refusal of a request that does not fit into the window, its answer included."""
        room = _asked(exchange)
        if self._window is None or tokens + room <= self._window:
            return None
        if exchange.path != CHAT:
            message = "Your input exceeds the context window of this model. Please adjust your input and try again."
            return api_error(400, message, code="context_length_exceeded", param="input")
        parts = f"requested {tokens + room} tokens ({tokens} in the messages, {room} in the completion)"
        however = parts if room else f"your messages resulted in {tokens} tokens"
        reduce = "Please reduce the length of the messages" + (" or completion." if room else ".")
        message = f"This model's maximum context length is {self._window} tokens. However, {'you ' if room else ''}{however}. {reduce}"
        return api_error(400, message, code="context_length_exceeded", param="messages")

    def _step(self, exchange: Exchange) -> Scripted | Fault:
        """The next answer: of the first rule that matches, else of the script, else what comes after it."""
        try:
            step = next((rule.answer for rule in self._rules if _matches(rule, exchange)), None)
            if step is None:
                self.arrivals.wait(exchange.number)
                with self._lock:
                    step = self._script.popleft() if self._script else self._after
            self.arrivals.gone(exchange.number)
            if step is not None:
                return self._resolved(exchange, step)
        except Exception as error:  # noqa: BLE001  # a test's own function may raise anything; the client is told
            message = f"A step or a rule of the script raised {type(error).__name__}: {error}"
            return attrs.evolve(api_error(500, message, kind="server_error", code="script_raised"), headers=NO_RETRY)
        self.tally.add(beyond_script=1)
        message = f"The script of this server is used up: request {exchange.number} is one too many."
        return attrs.evolve(api_error(400, message, code="script_used_up"), headers=NO_RETRY)

    def _resolved(self, exchange: Exchange, step: Step) -> Scripted | Fault:
        """What a step comes to, when its delays are over."""
        given = scripted(step(exchange) if callable(step) else step)
        while isinstance(given, Delay) and not self.closing.is_set():
            self._late(exchange, given)
            then = UNHEARD if given.answer is None else given.answer
            given = scripted(then(exchange) if callable(then) else then)
        return given

    def _give(self, exchange: Exchange, given: Scripted | Fault, tokens: int) -> Outgoing:
        if isinstance(given, Scripted):
            return self._say(exchange, self._make(exchange, given, tokens))
        exchange.fault = type(given).__name__
        self.tally.add(faults=1)
        if isinstance(given, HttpAnswer):
            return _http(given)
        if isinstance(given, Malformed):
            broken = b'{"id": "broken", "choi'
            return Outgoing(status=200, body=iter([b"data: " + broken + b"\n\n"]) if exchange.stream else broken, headers=JSON)
        if isinstance(given, Reset | Truncated):
            whole = self._say(exchange, self._make(exchange, UNHEARD, tokens), counted=False)
            return attrs.evolve(whole, cut="reset" if isinstance(given, Reset) else "truncated")
        return Outgoing(status=None)

    def _late(self, exchange: Exchange, delay: Delay) -> None:
        exchange.fault = "Delay"
        self.tally.add(faults=1)
        self.arrivals.gone(exchange.number)  # those that come meanwhile go first
        self.closing.wait(delay.seconds)

    def _make(self, exchange: Exchange, given: Scripted, tokens: int) -> Made:
        model = str(exchange.body.get("model", ""))
        tokenizer = tokenizer_for(model)
        message, finish = given.message, given.finish
        if message.tool_calls:
            named = (attrs.evolve(call, id=call.id or f"call_{exchange.number}_{at}") for at, call in enumerate(message.tool_calls))
            message = attrs.evolve(message, tool_calls=tuple(named))
        limit = _asked(exchange)
        if limit and finish is None and tokenizer.count(message.text) > limit:
            message, finish = attrs.evolve(message, content=(tokenizer.truncate(message.text, limit),), tool_calls=()), "length"
        usage = given.usage or Usage(
            input_tokens=tokens,
            output_tokens=sum(map(tokenizer.count, [message.text, *(text for c in message.tool_calls for text in (c.name, c.arguments))])),
            cached_tokens=self._cached(exchange, tokens),
        )
        finish = finish or ("tool_calls" if message.tool_calls else "stop")
        return Made(number=exchange.number, created=int(self._clock()), model=model, message=message, finish=finish, usage=usage)

    def _cached(self, exchange: Exchange, tokens: int) -> int:
        scope = json.dumps([exchange.headers.get("authorization"), exchange.body.get("model"), exchange.body.get("prompt_cache_key")])
        return min(self._cache.read(scope, exchange.chat), tokens)

    def _say(self, exchange: Exchange, made: Made, *, counted: bool = True) -> Outgoing:
        if counted:
            usage = exchange.usage = made.usage
            self.tally.add(
                answered=1, input_tokens=usage.input_tokens, cached_tokens=usage.cached_tokens, output_tokens=usage.output_tokens
            )
        chat = exchange.path == CHAT
        if not exchange.stream:
            return _json(completion(made) if chat else response(made, exchange.body))
        if not chat:
            return Outgoing(status=200, body=(_event(value, value["type"]) for value in events(made, exchange.body)))
        options = exchange.body.get("stream_options")
        wanted = isinstance(options, dict) and options.get("include_usage") is True
        return Outgoing(status=200, body=_ended(_event(value) for value in chunks(made, include_usage=wanted)))


def _matches(rule: Rule, exchange: Exchange) -> bool:
    if callable(rule.match):
        return rule.match(exchange)
    return re.search(rule.match, exchange.text) is not None


def _asked(exchange: Exchange) -> int:
    """The tokens that the request keeps for its answer; 0 where it says nothing."""
    return next((limit for key in LIMITS if isinstance(limit := exchange.body.get(key), int)), 0)


def _http(answer: HttpAnswer) -> Outgoing:
    if answer.body is None:
        return Outgoing(status=answer.status, headers=answer.headers)
    if isinstance(answer.body, str):
        return Outgoing(status=answer.status, body=answer.body.encode(), headers={"Content-Type": "text/html", **answer.headers})
    return attrs.evolve(_json(answer.body, answer.status), headers={**JSON, **answer.headers})


def _json(value: object, status: int = 200) -> Outgoing:
    return Outgoing(status=status, body=json.dumps(value).encode(), headers=JSON)


def _event(value: object, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def _ended(stream: Iterator[bytes]) -> Iterator[bytes]:
    yield from stream
    yield b"data: [DONE]\n\n"
