"""Measure what sessions and windows cost at every size, over tokenizing what they show, and for how long they hold the event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.recorded import read_texts
from benchmarks.tokenizing import encoding, fresh_tokenizer
from benchmarks.workload import fresh, texts
from promptkit import AgentSession, ContextWindow, Message, ToolCall, Transcript, Usage, tool
from promptkit.providers import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit import ToolDefinition

__all__ = ["MEASURES"]

INSTRUCTIONS: Final = "You are a coding agent. You say what you did in a sentence or two."

WORDS: Final = ((8, 40), (8, 40), (20, 160), (40, 200))
"""The fewest and most words of the texts of a round: a request, what is said before a call, its
result, a reply. A message has some 90 tokens, as in recordings of agents."""

COMPACTING: Final = "64k"
"""A budget in which the conversations of `first_turn` must be compacted, and those of `growing` are
again and again."""

UNLIMITED: Final = "200m"
UNKNOWN: Final = "unlimited"
"""The name of a model of which no smaller window is known."""

FIRST_TURNS: Final = (1_000, 2_000, 8_000)
FIRST_REQUESTS: Final = (2_000, 10_000, 100_000)
REQUESTS: Final = (200, 2_000, 10_000)
SESSIONS: Final = (50, 500)
SESSION_MESSAGES: Final = 100
GROWING_TURNS: Final = 120
GROWING_MESSAGES: Final = 400
"""Messages that a growing session opens with."""

PAUSE: Final = 0.001
"""Seconds that the task sleeps whose waits are measured."""

ROUNDS: Final = 3
"""The number of measurements of each figure. The least time counts, as other programs only add to it."""

_numbers = count()


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return f"{path}: {_write()}"


class ScriptedModel:
    """A model that takes no time: it calls a tool and replies, in turns. It never writes a valid summary, so that every summarizer is tried."""

    name = UNKNOWN

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Return a call after a request of the user, and a text after its result."""
        _ = tools
        if messages[-1].role == "tool":
            return _reply(Message(role="assistant", content=(_write(),)))
        call = ToolCall(id=f"call_{next(_numbers)}", name="read_file", arguments='{"path": "a.py"}')
        return _reply(Message(role="assistant", content=("I read it.",), tool_calls=(call,)))


def _reply(message: Message) -> Reply:
    return Reply(
        message=message,
        usage=Usage(input_tokens=0),
        finish="tool_calls" if message.tool_calls else "stop",
    )


_POOLS: Final = [texts(2_000, words, seed=at) for at, words in enumerate(WORDS)]


def _write(kind: int = -1) -> str:
    """Return another text of a kind, the longest by default: a new object, like no other."""
    number = next(_numbers)
    return f"{number} {_POOLS[kind][number % len(_POOLS[kind])]}"


def converse(messages: int) -> tuple[Message, ...]:
    """Return a conversation of an agent."""
    made: list[Message] = []
    while len(made) < messages:
        number = next(_numbers)
        call = ToolCall(
            id=f"past_{number}", name="read_file", arguments=f'{{"path": "src/module_{number}.py"}}'
        )
        made += [
            Message(role="user", content=(_write(0),)),
            Message(role="assistant", content=(_write(1),), tool_calls=(call,)),
            Message(role="tool", content=(_write(2),), tool_call_id=call.id),
            Message(role="assistant", content=(_write(3),)),
        ]
    return tuple(made[:messages])


def measure_floor(messages: Sequence[Message]) -> float:
    """Return the seconds of processor time in which every text and every call's arguments are tokenized once."""
    contents, encode = fresh(read_texts(messages)), encoding().encode_ordinary
    start = time.process_time()
    for text in contents:
        encode(text)
    return time.process_time() - start


class Gaps:
    """The longest time, in seconds, that another task of the event loop had to wait for its turn."""

    def __init__(self) -> None:
        self.longest = 0.0

    @asynccontextmanager
    async def measuring(self) -> AsyncGenerator[None]:
        """Measure while the block runs."""
        ended = asyncio.Event()

        async def measure() -> None:
            while not ended.is_set():
                start = time.perf_counter()
                await asyncio.sleep(PAUSE)
                self.longest = max(self.longest, time.perf_counter() - start - PAUSE)

        gc.collect()
        gc.disable()  # a full pass holds the loop for as long as the heap of the program is large
        task = asyncio.create_task(measure())
        await asyncio.sleep(2 * PAUSE)
        self.longest = 0.0
        try:
            yield
        finally:
            ended.set()
            await task
            gc.enable()


def least(
    rounds: int, run: Callable[[], Coroutine[object, object, Mapping[str, float]]]
) -> dict[str, float]:
    """Return the least of each figure over several runs."""
    found: list[Mapping[str, float]] = []
    for _ in range(rounds):
        gc.collect()
        found.append(asyncio.run(run()))
    return {name: min(each[name] for each in found) for name in found[0]}


def _session(messages: Sequence[Message], budget: str) -> AgentSession:
    transcript = Transcript()
    transcript.append_messages(*messages)
    return AgentSession(
        model=ScriptedModel(),
        transcript=transcript,
        instructions=INSTRUCTIONS,
        tools=[read_file],
        budget=budget,
        tokenizer=fresh_tokenizer(),
        recall=False,
    )


def _window(messages: Sequence[Message]) -> ContextWindow:
    transcript = Transcript()
    transcript.append_messages(*messages)
    return ContextWindow(
        model=UNKNOWN,
        transcript=transcript,
        instructions=INSTRUCTIONS,
        tools=[read_file],
        budget=UNLIMITED,
        tokenizer=fresh_tokenizer(),
    )


def measure_first_turn() -> dict[int, dict[str, float]]:
    """Measure the first turn of a session over a long conversation, which must be compacted."""
    figures: dict[int, dict[str, float]] = {}
    for messages in FIRST_TURNS:

        async def run(messages: int = messages) -> dict[str, float]:
            history, gaps = converse(messages), Gaps()
            floor = measure_floor(history)
            async with _session(history, COMPACTING) as session:
                start = time.process_time()
                await session.run(_write())
                seconds = time.process_time() - start
            async with _session(converse(messages), COMPACTING) as session, gaps.measuring():
                await session.run(_write())
            return {"over_floor": seconds / floor, "longest_block_ms": 1000 * gaps.longest}

        figures[messages] = least(ROUNDS, run)
    return figures


def measure_growing() -> dict[str, float]:
    """Measure a session that grows until it was compacted several times."""

    async def run() -> dict[str, float]:
        gaps = Gaps()
        async with _session(converse(GROWING_MESSAGES), COMPACTING) as session, gaps.measuring():
            for _ in range(GROWING_TURNS):
                await session.run(_write())
        return {"longest_block_ms": 1000 * gaps.longest}

    return least(ROUNDS, run)


def measure_first_request() -> dict[int, float]:
    """Measure the first request of a window that shows everything, over the floor."""
    figures: dict[int, float] = {}
    for messages in FIRST_REQUESTS:

        async def run(messages: int = messages) -> dict[str, float]:
            history = converse(messages)
            floor = measure_floor(history)
            async with _window(history) as window:
                window.add(Message(role="user", content=(_write(),)))
                start = time.process_time()
                await window.request()
                return {"seconds": time.process_time() - start, "floor": floor}

        figures[messages] = _over_floor(least(ROUNDS, run))
    return figures


def _over_floor(found: Mapping[str, float]) -> float:
    """Return the least time over the least floor: their ratio in one round is small where the floor alone was disturbed."""
    return found["seconds"] / found["floor"]


def measure_many() -> dict[str, float]:
    """Measure sessions that are started together.

    A request after the first is measured beside as many sessions, and over the same beside fewer.
    """
    figures: dict[str, float] = {"sessions": SESSIONS[-1]}
    later: list[float] = []
    for sessions in SESSIONS:

        async def run(sessions: int = sessions) -> dict[str, float]:
            gaps = Gaps()
            opened = [_session(converse(SESSION_MESSAGES), UNLIMITED) for _ in range(sessions)]
            async with gaps.measuring():
                await asyncio.gather(*(each.run(_write()) for each in opened))
            gc.collect()  # it was off, and what is left of the first requests is no part of these
            start = time.process_time()
            await asyncio.gather(*(each.run(_write()) for each in opened))
            later = (time.process_time() - start) / sessions
            for each in opened:
                await each.close()
            return {"longest_gap_ms": 1000 * gaps.longest, "later": later}

        found = least(ROUNDS, run)
        later.append(found["later"])
        figures["longest_gap_ms"] = found["longest_gap_ms"]
    return {**figures, "later_over_fewer": later[-1] / later[0]}


def measure_request() -> dict[int, float]:
    """Measure a request after a new turn, with the arguments of the SDK's call, over the floor of the whole conversation."""
    figures: dict[int, float] = {}
    for messages in REQUESTS:

        async def run(messages: int = messages) -> dict[str, float]:
            history = converse(messages)
            floor, spent = measure_floor(history), list[float]()
            async with _window(history) as window:
                for _ in range(12):
                    window.add(Message(role="user", content=(_write(),)))
                    start = time.process_time()
                    (await window.request()).chat_arguments()
                    spent.append(time.process_time() - start)
                    window.add_reply(Message(role="assistant", content=(_write(),)))
            return {"seconds": median(spent[1:]), "floor": floor}

        figures[messages] = _over_floor(least(ROUNDS, run))
    return figures


MEASURES: Final[Mapping[str, Callable[[], object]]] = {
    "first_turn": measure_first_turn,
    "growing": measure_growing,
    "first_request": measure_first_request,
    "many": measure_many,
    "request": measure_request,
}
"""Name of a figure → what measures it."""
