"""Measure what sessions and windows cost at every size, over tokenizing what they show, and for how long they hold the event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from itertools import count, cycle
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.recorded import read_texts
from benchmarks.scale_texts import KINDS, write_texts
from benchmarks.tokenizing import encoding, fresh_tokenizer
from benchmarks.workload import fresh
from promptkit import AgentSession, ContextWindow, Message, ToolCall, Transcript, Usage, tool
from promptkit.compaction.summarizers.summarizer import SECTIONS
from promptkit.providers import Reply
from promptkit.providers.model import COMPACTION

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from promptkit import ToolDefinition
    from promptkit.providers import Model
    from promptkit.providers.model import ModelOptions

__all__ = ["MEASURES"]

INSTRUCTIONS: Final = "You are a coding agent. You say what you did in a sentence or two."

COMPACTING: Final = "64k"
"""A budget in which the conversations of `first_turn` must be compacted, and those of `growing` are
again and again."""

UNLIMITED: Final = "200m"
UNKNOWN: Final = "unlimited"
"""The name of a model of which no smaller window is known."""

FIRST_TURNS: Final = (1_000, 2_000, 8_000)
FIRST_REQUESTS: Final = (2_000, 10_000, 100_000)
REQUESTS: Final = (200, 2_000, 10_000)
SESSIONS: Final = 500
FEW_SESSIONS: Final = 50
SESSION_MESSAGES: Final = 100
GROWING_TURNS: Final = 120
GROWING_MESSAGES: Final = 400
"""Messages that a growing session opens with."""

PAUSE: Final = 0.001
"""Seconds that the task sleeps whose waits are measured."""

ROUNDS: Final = 15
SECONDS: Final = 20.0
"""Each figure is measured in so many rounds at least, and for so long: a processor shared with others
runs at half its speed for seconds."""

WAIT: Final = "_ms"
"""The end of the names of waits."""

_numbers = count()


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return f"{path}: {_write()}"


class ScriptedModel:
    """A model that takes no time: it calls a tool and replies, in turns. It never writes a valid summary, so that it is asked for one three times."""

    name = UNKNOWN

    def __init__(self) -> None:
        self._calls = cycle((True, False))

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Return a call, or a text."""
        _ = messages, tools
        if not next(self._calls):
            return _reply(Message(role="assistant", content=(_write(),)))
        call = ToolCall(id=f"call_{next(_numbers)}", name="read_file", arguments='{"path": "a.py"}')
        return _reply(Message(role="assistant", content=("I read it.",), tool_calls=(call,)))


class SummarizingModel(ScriptedModel):
    """The same, but it writes each summary at once."""

    def with_options(self, **options: Unpack[ModelOptions]) -> Model:
        """Return the model that writes summaries for a request for one, and else this model."""
        return _SummaryWriter() if options.get("purpose") == COMPACTION else self


class _SummaryWriter(ScriptedModel):
    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Return a text under each heading."""
        _ = messages, tools
        parts = "\n".join(f"{at}. {name}\n{_write(0)}" for at, name in enumerate(SECTIONS, 1))
        summary = f"<summary>\n{parts}\n</summary>"
        return _reply(Message(role="assistant", content=(summary,)))


def _reply(message: Message) -> Reply:
    return Reply(
        message=message,
        usage=Usage(input_tokens=0),
        finish="tool_calls" if message.tool_calls else "stop",
    )


_POOLS: Final = [write_texts(2_000, kind) for kind in range(len(KINDS))]


def _write(kind: int = -1) -> str:
    """Return another text of a kind, a reply by default: a new object, like no other."""
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


async def measure_over_floor(messages: Sequence[Message], work: Awaitable[object]) -> float:
    """Return the processor time of some work over the floor of messages.

    The floor is measured before and after it, since the speed of the processor changes meanwhile. All
    three begin after a garbage collection, which leaves little of the conversation in the
    processor's caches: what the work begins with would else be part of it, and not of the floor.
    """
    gc.collect()
    floor = measure_floor(messages)
    gc.collect()
    start = time.process_time()
    await work
    spent = time.process_time() - start
    gc.collect()
    return 2 * spent / (floor + measure_floor(messages))


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

        earlier = self.longest
        gc.collect()
        gc.disable()  # a full pass holds the loop for as long as the heap of the program is large
        task = asyncio.create_task(measure())
        await asyncio.sleep(2 * PAUSE)
        self.longest = earlier  # without what the start of the task took
        try:
            yield
        finally:
            ended.set()
            await task
            gc.enable()


def run_rounds(
    run: Callable[[], Coroutine[object, object, Mapping[str, float]]],
) -> dict[str, float]:
    """Return the median of each ratio over several rounds, and the least of each longest wait, which is that of the best round: mostly other programs make it longer."""
    found: list[Mapping[str, float]] = []
    end = time.monotonic() + SECONDS
    while len(found) < ROUNDS or time.monotonic() < end:
        gc.collect()
        found.append(asyncio.run(run()))
    return {
        name: (min if name.endswith(WAIT) else median)(each[name] for each in found)
        for name in found[0]
    }


def _session(
    messages: Sequence[Message], budget: str, model: ScriptedModel | None = None
) -> AgentSession:
    transcript = Transcript()
    transcript.append_messages(*messages)
    return AgentSession(
        model=model or ScriptedModel(),
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
    """Measure the first turn of a session over a long conversation, which must be compacted.

    `over_floor` is its processor time over the floor with a model that writes the summary at once, as
    sessions meet it; `refused_over_floor` with one whose texts are no summaries, so that three are
    asked for and the summary is extracted in the end. `longest_block_ms` is the longest that another
    task waits in either, in turns of their own: a task that watches takes processor time itself.
    """
    figures: dict[int, dict[str, float]] = {}
    models = {"over_floor": SummarizingModel, "refused_over_floor": ScriptedModel}
    for messages in FIRST_TURNS:

        async def run(messages: int = messages) -> dict[str, float]:
            gaps, found = Gaps(), dict[str, float]()
            for name, model in models.items():
                history = converse(messages)
                async with _session(history, COMPACTING, model()) as session:
                    found[name] = await measure_over_floor(history, session.run(_write()))
                watched = _session(converse(messages), COMPACTING, model())
                async with watched as session, gaps.measuring():
                    await session.run(_write())
            return {**found, "longest_block_ms": 1000 * gaps.longest}

        figures[messages] = run_rounds(run)
    return figures


def measure_growing() -> dict[str, float]:
    """Measure a session that grows until it was compacted several times."""

    async def run() -> dict[str, float]:
        gaps = Gaps()
        async with _session(converse(GROWING_MESSAGES), COMPACTING) as session, gaps.measuring():
            for _ in range(GROWING_TURNS):
                await session.run(_write())
        return {"longest_block_ms": 1000 * gaps.longest}

    return run_rounds(run)


def measure_first_request() -> dict[int, float]:
    """Measure the first request of a window that shows everything, over the floor: without its arguments for the SDK."""
    figures: dict[int, float] = {}
    for messages in FIRST_REQUESTS:

        async def run(messages: int = messages) -> dict[str, float]:
            history = converse(messages)
            async with _window(history) as window:
                window.add(Message(role="user", content=(_write(),)))
                return {"ratio": await measure_over_floor(history, window.request())}

        figures[messages] = run_rounds(run)["ratio"]
    return figures


def measure_many() -> dict[str, float]:
    """Measure sessions that are started together.

    A request after the first is measured beside as many sessions, and over the same beside fewer.
    """

    async def measure(sessions: int) -> tuple[float, float]:
        """Return the longest wait, and the time of a later turn, which has two requests and a call, in seconds."""
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
        return gaps.longest, later

    async def run() -> dict[str, float]:
        (_, before), (wait, later), (_, after) = [
            await measure(sessions) for sessions in (FEW_SESSIONS, SESSIONS, FEW_SESSIONS)
        ]
        return {"longest_gap_ms": 1000 * wait, "later_over_fewer": 2 * later / (before + after)}

    return {"sessions": SESSIONS, **run_rounds(run)}


def measure_request() -> dict[int, float]:
    """Measure a request after a new turn, with the arguments of the SDK's call, over the floor of the whole conversation.

    To add the messages of the turn to the transcript is no part of it.
    """
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
            return {"ratio": 2 * median(spent[1:]) / (floor + measure_floor(history))}

        figures[messages] = run_rounds(run)["ratio"]
    return figures


MEASURES: Final[Mapping[str, Callable[[], object]]] = {
    "first_turn": measure_first_turn,
    "growing": measure_growing,
    "first_request": measure_first_request,
    "many": measure_many,
    "request": measure_request,
}
"""Name of a figure → what measures it."""
