"""The README's prompt over a recorded conversation with tool calls: instructions, history, a long log, the request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import attrs

from benchmarks.history import outcome
from benchmarks.timing import Case, medians
from benchmarks.tokenizing import encoding, fresh_tokenizer
from benchmarks.workload import SHORT, fresh, texts
from promptkit import (
    Child,
    History,
    Message,
    PromptElement,
    Renderer,
    Sizing,
    SystemMessage,
    ToolCall,
    Truncate,
    UserMessage,
    component,
    count_request,
)
from promptkit.wire.chat import to_chat

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit import Rendered

__all__ = [
    "BUDGETS",
    "INSTRUCTIONS",
    "LEAST_KEPT",
    "LOG_SHARE",
    "TURN",
    "HistoryFigures",
    "Recorded",
    "budgets",
    "count",
    "find_foreign",
    "fresh_messages",
    "measure_history",
    "read_texts",
    "record",
]

MODEL: Final = "gpt-4o"
"""The model whose framing the default tokenizer counts."""

WORDS: Final = (28, 48)
"""The fewest and most words of a text, so that a message has some 60 tokens."""

TURN: Final = 4
"""The messages of a turn: request, call, result, reply."""

LOG_LINES: Final = 400
"""The lines of the log, some 6,000 tokens. A conversation with fewer messages has as many lines as
messages."""

LOG_SHARE: Final = 4
"""The log may take this part of the budget, a quarter, as in the README."""

LEAST_KEPT: Final = 0.95
"""The least share of the budget that a render has to use."""

INSTRUCTIONS: Final = "You are a coding agent. You say what you did in a sentence or two."

BUDGETS: Final = {"8k": 8_000, "30k": 30_000, "half": None}
"""Name → tokens. None: half of the tokens of the whole request."""


@component
class ReadmePrompt(PromptElement):
    """The README's first prompt."""

    history: Sequence[Message]
    query: str
    log: str

    def render(self, sizing: Sizing) -> Child:
        return (
            SystemMessage(required=True)[INSTRUCTIONS],
            History(turns=self.history, priority=700, flex_grow=1),
            UserMessage(priority=800, flex_grow=2)[
                Truncate(keep="tail", max_tokens=sizing.token_budget // LOG_SHARE)[self.log]
            ],
            UserMessage(required=True)[self.query],
        )


@attrs.frozen
class HistoryFigures:
    """The figures of one conversation at one budget.

    Times are over the floor: every text and every call's arguments tokenised once.
    """

    first: float
    """A render with nothing cached except the vocabulary."""
    next: float
    """The next render with the same Renderer, after one more turn."""
    kept_share: float
    """The tokens of the first render, over the budget or, if they are fewer, the tokens of the
    whole request."""


@attrs.frozen
class Recorded:
    """A recorded conversation, and what the prompt shows besides it."""

    turns: tuple[Message, ...]
    log: str
    query: str

    def prompt(self) -> PromptElement:
        """Create the prompt. This is the caller's work, and is never timed."""
        return ReadmePrompt(history=self.turns, log=self.log, query=self.query)

    def request(self) -> tuple[Message, ...]:
        """Return the request that leaves nothing out."""
        system = Message(role="system", content=(INSTRUCTIONS,))
        log, query = (Message(role="user", content=(text,)) for text in (self.log, self.query))
        return system, *self.turns, log, query

    def fresh(self) -> Recorded:
        """Return an equal conversation of new objects: no measurement may profit from a hash that an object has cached."""
        log, query = fresh((self.log, self.query))
        return Recorded(fresh_messages(self.turns), log, query)

    def extend(self, turn: Sequence[Message], query: str) -> Recorded:
        """Return the conversation with one more turn and another request.

        The messages that were there keep their objects.
        """
        return attrs.evolve(self, turns=(*self.turns, *turn), query=query)


def record(messages: int) -> Recorded:
    """Record a conversation of whole turns.

    The same number gives the same conversation, and a larger one begins with it.

    Every other call writes a file, with the whole text in its arguments; the others read one, and
    have a text of their own.
    """
    contents = texts(messages, WORDS)
    lines = texts(min(messages, LOG_LINES), SHORT, seed=1)
    query, *_ = texts(1, WORDS, seed=2)
    log = "\n".join(f"{number:04} {' '.join(line.split())}" for number, line in enumerate(lines))
    return Recorded(tuple(_message(index, text) for index, text in enumerate(contents)), log, query)


def _message(index: int, text: str) -> Message:
    match index % TURN:
        case 1:
            path, writes = f"src/module_{index}.py", index // TURN % 2 > 0
            arguments = json.dumps(
                {"path": path, "content": text} if writes else {"path": path}, ensure_ascii=False
            )
            call = ToolCall(
                id=f"call_{index}",
                name="write_file" if writes else "read_file",
                arguments=arguments,
            )
            return Message(role="assistant", content=() if writes else (text,), tool_calls=(call,))
        case 2:
            return Message(role="tool", content=(text,), tool_call_id=f"call_{index - 1}")
        case place:
            return Message(role="assistant" if place else "user", content=(text,))


def fresh_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return equal messages as new objects, with new texts and calls."""
    return tuple(
        attrs.evolve(
            message,
            content=fresh([part for part in message.content if isinstance(part, str)]),
            tool_calls=tuple(
                attrs.evolve(call, arguments=fresh([call.arguments])[0])
                for call in message.tool_calls
            ),
        )
        for message in messages
    )


def read_texts(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return everything that has to be tokenised: the texts, and the arguments of calls."""
    arguments = (call.arguments for message in messages for call in message.tool_calls)
    return (*filter(None, (message.text for message in messages)), *arguments)


def count(messages: Sequence[Message]) -> int:
    """Return the tokens of a request of these messages, with framing.

    The renderer has no part in it.
    """
    return count_request({"model": MODEL, "messages": to_chat(messages)}).tokens


def budgets(whole: int) -> dict[str, int]:
    """Return the tokens of each budget, given those of the whole request."""
    return {name: whole // 2 if tokens is None else tokens for name, tokens in BUDGETS.items()}


def floor(messages: Sequence[Message]) -> Case:
    """Return a case that tokenises every text once, in a plain loop."""

    def case() -> Callable[[], object]:
        contents, encode = fresh(read_texts(messages)), encoding().encode_ordinary

        def run() -> None:
            for text in contents:
                encode(text)

        return run

    return case


def first(recorded: Recorded, budget: int) -> Case:
    """Return a case for a first render: nothing is cached except the loaded vocabulary."""

    def case() -> Callable[[], Rendered]:
        renderer, prompt = _renderer(budget), recorded.fresh().prompt()
        return lambda: outcome(renderer, (prompt,))

    return case


def following(recorded: Recorded, budget: int, turns: Sequence[Sequence[Message]]) -> Case:
    """Return a case for the next render with one Renderer.

    Each run has one more of the turns, as the conversation goes on.
    """
    renderer, shown = _renderer(budget), recorded.fresh()
    outcome(renderer, (shown.prompt(),))

    def extended() -> Iterator[Recorded]:
        longer = shown
        for number, turn in enumerate(turns):
            longer = longer.extend(turn, f"Again, {number}: {longer.query}")
            yield longer

    conversations = extended()

    def case() -> Callable[[], Rendered]:
        prompt = next(conversations).prompt()
        return lambda: outcome(renderer, (prompt,))

    return case


def _renderer(budget: int) -> Renderer:
    return Renderer(budget=budget, tokenizer=fresh_tokenizer())


def measure_history(
    messages: int, rounds: int, seconds: dict[str, float]
) -> dict[str, HistoryFigures]:
    """Return the figures of a conversation at each budget. Adds the times to `seconds`.

    The collector is on: a program that renders has it on, and what a render allocates is what the
    collector looks through.
    """
    longer = record(messages + TURN * (rounds + 1))
    recorded = attrs.evolve(longer, turns=longer.turns[:messages])
    bounds = range(messages, len(longer.turns) + 1, TURN)
    turns = [fresh_messages(longer.turns[start:after]) for start, after in pairwise(bounds)]
    whole = count(recorded.request())
    figures: dict[str, HistoryFigures] = {}
    for name, budget in budgets(whole).items():
        kept = check(recorded, turns[0], budget)
        cold = medians(
            {"floor": floor(recorded.request()), "first": first(recorded, budget)},
            rounds,
            collector=True,
        )
        warm = medians(
            {"floor": floor(recorded.request()), "next": following(recorded, budget, turns)},
            rounds,
            collector=True,
        )
        seconds |= {
            f"history_{messages}_{name}_{key}": spent
            for key, spent in (*warm.items(), *cold.items())
        }
        figures[name] = HistoryFigures(
            cold["first"] / cold["floor"], warm["next"] / warm["floor"], kept / min(budget, whole)
        )
    return figures


def check(recorded: Recorded, turn: Sequence[Message], budget: int) -> int:
    """Return the tokens of a first render.

    Raise RuntimeError if it is a bad one: figures of a broken renderer are worthless.

    It is within its budget, and uses it; has nothing that the conversation has not; and the next
    render is what a first one would be.
    """
    whole = count(recorded.request())
    renderer = _renderer(budget)
    rendered = outcome(renderer, (recorded.prompt(),))
    longer = recorded.extend(turn, recorded.query)
    again, anew = (
        outcome(renderer, (longer.prompt(),)),
        outcome(_renderer(budget), (longer.prompt(),)),
    )
    problems = {
        f"{rendered.tokens:,} tokens are not what its messages have": rendered.tokens
        != count(rendered.messages),
        f"{rendered.tokens:,} tokens are no full render": not LEAST_KEPT * min(budget, whole)
        < rendered.tokens
        <= budget,
        "a text is not of the conversation": bool(
            find_foreign(rendered.messages, recorded.request())
        ),
        "instructions or request are missing": rendered.messages[:1] + rendered.messages[-1:]
        != recorded.request()[:1] + recorded.request()[-1:],
        "the next render is not that of a new Renderer": again.messages != anew.messages,
    }
    if found := [problem for problem, holds in problems.items() if holds]:
        raise RuntimeError(
            f"history, {len(recorded.turns):,} messages, budget {budget:,}: {'; '.join(found)}."
        )
    return rendered.tokens


_MARKERS: Final = re.compile(r"\s*\[…[^\]]*\]\s*|\[[\d,]+ messages? omitted\]")
"""The markers that replace what is cut from a message, and whole messages."""


def find_foreign(messages: Sequence[Message], known: Sequence[Message]) -> list[str]:
    """Return the texts that are no part of a known message, and the ids of calls that no known message has."""
    whole = "\0".join(message.text for message in known)
    ids = {call.id for message in known for call in message.tool_calls}
    pieces = [piece for message in messages for piece in _MARKERS.split(message.text)]
    calls = [call.id for message in messages for call in message.tool_calls]
    return [piece for piece in pieces if piece not in whole] + [
        call for call in calls if call not in ids
    ]
