"""A session in a storm: a model with a window and moods of its own, and somebody who does everything at the wrong moment."""

from __future__ import annotations

import asyncio
import gc
import random
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from promptkit import Message, ToolCall, ToolDefinition, Usage
from promptkit.agent.session.session import AgentSession
from promptkit.compaction import (
    CompactionCommitted,
    CompactionFailed,
    DecisionMade,
    Events,
    SummaryDiscarded,
)
from promptkit.compaction.policy.rules import Thresholds, default_policy
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.model_summarizers import FullSummarizer, InlineSummarizer
from promptkit.errors import (
    CompactionInProgressError,
    ContextLengthExceededError,
    ContextWindowFullError,
    EmptyReplyError,
    MaxStepsExceededError,
    ModelRequestError,
    ModelUnavailableError,
    NoPendingMessageError,
    RateLimitedError,
    SummaryError,
    TurnInProgressError,
)
from promptkit.providers import Reply
from promptkit.rendering.expand.sizing import Sizer
from promptkit.testing import WordTokenizer
from promptkit.tokens.budget import ContextBudget
from promptkit.tools import Tool
from promptkit.transcript.log.entries import Checkpoint, Edit, MessageEntry, Reset, Setting
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.reader import TranscriptReader, find_problems
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.conversations import summary_reply
from tests.unit.compaction.summarizers.writers import Recorder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from promptkit.tools import ToolOutput
    from promptkit.transcript.log.entries import Entry

__all__ = ["Provider", "Storm", "answered_directly", "asks_for_summary"]

TICKS = 3_000
"""How often a task may go on before it is taken to hang."""

BREAKER = 3
FAULTS = (RateLimitedError, ModelUnavailableError, EmptyReplyError, ModelRequestError)
ALLOWED = (
    *FAULTS,
    ContextWindowFullError,
    ContextLengthExceededError,
    MaxStepsExceededError,
    NoPendingMessageError,
)
_ASKED = re.compile("<summary>|Write the summary|written before was (?:rejected|too long)")
_TOKENIZER = WordTokenizer(per_message=2, per_call=3)


def asks_for_summary(messages: Sequence[Message]) -> bool:
    """Return whether a request asks for a summary, for the first time or again after a rejected one."""
    return messages[-1].role == "user" and _ASKED.search(messages[-1].text) is not None


def answered_directly(messages: Sequence[Message]) -> None:
    """Every call is answered once, right behind it; every result answers a call; somebody asks something; nothing is empty."""
    waiting: list[str] = []
    rest = [message for message in messages if message.role != "system"]
    assert rest
    assert rest[-1].role in {"user", "tool"}
    for message in rest:
        if message.role == "tool":
            assert message.tool_call_id in waiting, f"an orphan result: {message}"
            waiting.remove(message.tool_call_id)
            continue
        assert not waiting, f"calls without a result: {waiting}"
        assert message.content or message.tool_calls, f"nothing in it: {message}"
        waiting = [call.id for call in message.tool_calls]
        assert not any(call.name == "cut" for call in message.tool_calls), (
            "a call that was cut off is shown"
        )
    assert not waiting, f"calls without a result: {waiting}"


class _Store(JsonlStore):
    """A file whose disk is not waited for: the time that it takes would change what a seed does."""

    @property
    def is_synced(self) -> bool:
        return True


@attrs.define(eq=False)
class Provider:
    """A model with a window that it keeps to. `factor`: how it counts, by the count made here."""

    storm: Storm
    name: str
    window: int
    factor: float = 1.0
    names_window: bool = True

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        storm, rng = self.storm, self.storm.rng
        answered_directly(messages)
        sizer = Sizer(_TOKENIZER)
        overhead = _TOKENIZER.count_overhead(
            tools, system=next((m.text for m in messages if m.role == "system"), False)
        ).tokens
        size = int(self.factor * (overhead + sum(map(sizer.count_message, messages))))
        summary = asks_for_summary(messages)
        if not summary:
            storm.sees(messages)
        for _ in range(rng.randrange(30 if summary else 4)):
            await asyncio.sleep(0)
        if size > self.window:
            storm.refuses(self, size, summary=summary)
            error = ContextLengthExceededError("too large", model=self.name)
            error.window = self.window if self.names_window else None
            raise error
        if not summary:
            storm.refused = None
        if storm.faulty and rng.random() < storm.faulty * (3 if summary else 1):
            if rng.random() < 0.2:
                storm.hanging += 1
                try:
                    await asyncio.Event().wait()
                finally:
                    storm.hanging -= 1
            raise rng.choice(FAULTS)("a fault", model=self.name)
        message = self._summary() if summary else self._answer()
        usage = Usage(
            input_tokens=size, output_tokens=int(self.factor * sizer.count_message(message))
        )
        if rng.random() < 0.05:
            usage = Usage(input_tokens=0)
        cut = summary and "<summary>" in message.text and "</summary>" not in message.text
        if not summary and rng.random() < 0.08:
            message, cut = self._cut(message), True
            usage = Usage(
                input_tokens=size,
                output_tokens=max(1, self.window - size) if rng.random() < 0.4 else 5,
            )
        return Reply(
            message=message,
            usage=usage,
            finish="length" if cut else "tool_calls" if message.tool_calls else "stop",
        )

    def _summary(self) -> Message:
        rng, calm = self.storm.rng, not self.storm.faulty
        kind = rng.choice(
            ["good"] * (20 if calm else 4)
            + ["untagged", "empty", "refused", "cut", "large", "calls"]
        )
        if kind == "calls":
            return Message(role="assistant", tool_calls=(ToolCall(id="s1", name="read"),))
        text = {
            "untagged": "I will go on.",
            "empty": "<summary></summary>",
            "refused": "<summary>I cannot help with that.</summary>",
            "cut": summary_reply().removesuffix("</summary>"),
            "large": summary_reply(_words(rng, 5_000)),
        }
        good = f"<analysis>I think.</analysis>{summary_reply(_words(rng, rng.randrange(3, 30)))}"
        return Message(role="assistant", content=(text.get(kind, good),))

    def _cut(self, message: Message) -> Message:
        """The beginning of an answer; of its calls, which would be run with the wrong arguments, each has a name that nothing may see."""
        text = message.text[: 1 + len(message.text) // 2] or (
            "I cal" if self.storm.rng.random() < 0.5 else ""
        )
        calls = tuple(attrs.evolve(call, name="cut") for call in message.tool_calls)
        return Message(role="assistant", content=(text,) if text else (), tool_calls=calls)

    def _answer(self) -> Message:
        rng, storm = self.storm.rng, self.storm
        if rng.random() < 0.45:
            said = _words(rng, rng.randrange(1, self.window // 8))
            return Message(role="assistant", content=(said,))
        names = [
            rng.choice(["read"] * 5 + ["huge", "fails", "quits", "none", "odd"])
            for _ in range(rng.choice([1, 1, 1, 2, 3]))
        ]
        arguments = [rng.choice(['{"n": 1}'] * 8 + ["{", "[]"]) for _ in names]
        storm.calls += 1
        same = rng.random() < 0.1  # some providers count from 0 in every reply
        calls = tuple(
            ToolCall(id=f"c{at}" if same else f"c{storm.calls}.{at}", name=name, arguments=text)
            for at, (name, text) in enumerate(zip(names, arguments, strict=True))
        )
        return Message(
            role="assistant", content=("I look.",) if rng.random() < 0.3 else (), tool_calls=calls
        )


@attrs.define(eq=False)
class Storm:
    """One conversation on one file, what was asked of it, and what must hold.

    Everything comes from the seed.
    """

    seed: int
    folder: Path
    rng: random.Random = attrs.field(init=False)
    faulty: float = 0
    miscounts: bool = False
    hanging: int = 0
    """Requests that nobody will answer."""
    calls: int = 0
    files: int = 0
    told: Recorder = attrs.field(factory=Recorder)
    acknowledged: dict[str, Entry] = attrs.field(factory=dict[str, "Entry"])
    refused: int | None = None
    """The size of the ordinary request that was refused last, until another was taken."""
    last: tuple[object, tuple[Message, ...]] | None = None
    asks: int = 0
    instructions: str | None = None
    failures: list[int] = attrs.field(factory=list[int])
    """For each failed foreground attempt, how often the person had spoken."""
    in_a_row: int = 0
    unretrieved: list[object] = attrs.field(factory=list[object])
    session: AgentSession = attrs.field(init=False)
    model: Provider = attrs.field(init=False)
    file: Path = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.faulty = self.rng.choice([0, 0, 0.05, 0.15])
        self.miscounts = self.rng.random() < 0.4
        self.instructions = self.rng.choice([None, "Be brief."])

    # What the model sees
    # -------------------------------------------------------------------------------------------------------

    def sees(self, messages: Sequence[Message]) -> None:
        """An ordinary request: it begins with the one before, unless the view was changed in between."""
        session = self.session
        request = session.window.last_request
        pruned = request is not None and request.pruned
        path = session.transcript.path()
        marks = tuple(
            e.id for e in path if isinstance(e.payload, Checkpoint | Edit | Reset) or _is_move(e)
        )
        era = (str(self.file), marks, session.compaction.budget.result_tokens, pruned)
        now = tuple(messages)
        if self.last is not None and self.last[0] == era and not pruned:
            before = self.last[1]
            assert now[: len(before)] == before, f"the prefix moved: {before} then {now}"
        self.last = era, now

    def refuses(self, model: Provider, size: int, *, summary: bool) -> None:
        assert self.miscounts or model is not self.model, (
            f"{size} tokens were sent to a window of {model.window}, summary: {summary}"
        )
        if summary or model is not self.model:
            return
        assert self.refused is None or size < self.refused, (
            f"no smaller request followed a refused one: {self.refused}, then {size}"
        )
        self.refused = size

    def hears(self, event: object) -> None:
        """Bounds of what is done without being asked for."""
        match event:
            case CompactionFailed(trigger="foreground"):
                self.failures.append(self.asks)
                self.in_a_row += 1
                assert self.failures.count(self.asks) <= 1, (
                    "two failed foreground attempts for one message"
                )
            case CompactionFailed(trigger="background"):
                self.in_a_row += 1
            case CompactionCommitted():
                self.in_a_row = 0
            case SummaryDiscarded(reason=reason):
                assert reason
            case DecisionMade(decision="Compact" | "StartBackground"):
                assert self.in_a_row < BREAKER, "the breaker is open"
            case _:
                pass

    # What the person does
    # ------------------------------------------------------------------------------------------------------

    async def rage(self, steps: int) -> None:
        """Do so many things, and check what must hold after each."""
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.unretrieved.append(context)
        )
        self._open(None)
        moves: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (12, self._run),
            (2, self._compact),
            (1, self._undo),
            (1, self._rewind),
            (1, self._fork),
            (1, self._switch),
            (1, self._intrude),
            (2, self._restart),
            (2, self._resume),
        ]
        for _ in range(steps):
            (move,) = self.rng.choices([move for _, move in moves], [weight for weight, _ in moves])
            await move()
            self.check()
        await self._close()
        self.check()
        gc.collect()
        await asyncio.sleep(0)
        assert self.unretrieved == []

    def check(self) -> None:
        for entry in self.session.transcript.entries:
            known = self.acknowledged.setdefault(entry.id, entry)
            assert known == entry
        if not self.file.exists():
            assert not self.session.transcript.entries
            return
        assert list(find_problems(TranscriptReader(self.file))) == []
        loaded = {entry.id: entry for entry in Transcript(JsonlStore(self.file)).entries}
        for entry in self.session.transcript.entries:
            assert loaded[entry.id] == entry

    def _open(self, transcript: Transcript | None) -> None:
        """A session over the file, in this process or another."""
        rng = self.rng
        if transcript is None:
            self.files += 1
            self.file = self.folder / f"{self.seed}.{self.files}.jsonl"
            transcript = Transcript(_Store(self.file))
        self.model, budget = self._model()
        self.told = Recorder()
        self.in_a_row = 0
        chain = FallbackSummarizer(
            [
                InlineSummarizer(model=self.model, tokenizer=_TOKENIZER),
                FullSummarizer(
                    model=self.model, window=budget.window or 9_999, tokenizer=_TOKENIZER
                ),
            ]
        )
        self.session = AgentSession(
            model=self.model,
            transcript=transcript,
            instructions=self.instructions,
            tools=self._tools(),
            budget=budget,
            policy=default_policy(rng=rng.random, thresholds=Thresholds(wait_seconds=0.001)),
            summarizer=chain
            if self.miscounts is False and rng.random() < 0.3 and budget.window
            else None,
            tokenizer=_TOKENIZER,
            events=Events(self.told, self.hears),
            max_steps=12,
        )

    def _model(self) -> tuple[Provider, ContextBudget]:
        rng = self.rng
        window = rng.choice([300, 500, 800, 1_500])
        factor, known = 1.0, True
        if self.miscounts:
            factor, known = rng.choice([0.8, 1.1, 1.4]), rng.random() < 0.7
        model = Provider(
            self, f"m{window}.{factor}", window, factor=factor, names_window=rng.random() < 0.5
        )
        reply = rng.choice([0, 50])
        return model, ContextBudget(
            window=window, reserved_output_tokens=reply, tools=10
        ) if known else ContextBudget()

    def _tools(self) -> list[Tool]:
        async def read(arguments: Mapping[str, object]) -> ToolOutput:
            for _ in range(self.rng.randrange(4)):
                await asyncio.sleep(0)
            return _words(self.rng, self.rng.randrange(60))

        async def huge(arguments: Mapping[str, object]) -> ToolOutput:
            return _words(self.rng, 5_000)

        async def fails(arguments: Mapping[str, object]) -> ToolOutput:
            raise OSError("no such file")

        async def quits(arguments: Mapping[str, object]) -> ToolOutput:
            raise asyncio.CancelledError

        async def odd(arguments: Mapping[str, object]) -> ToolOutput:
            return self.rng.choice(["", "\ud800", "a\u2028b\r\n\0", [], [1], None, {"a": 1}])  # type: ignore[return-value]  # tools may return anything

        runs = {"read": read, "huge": huge, "fails": fails, "quits": quits, "odd": odd}
        return [Tool(definition=ToolDefinition(name=name), run=run) for name, run in runs.items()]

    def _says(self) -> str:
        size = self.rng.choice(
            [1, 5, 20, 60, self.model.window // 2]
            + ([self.model.window * 2] if self.rng.random() < 0.05 else [])
        )
        return _words(self.rng, size)

    async def _run(self) -> None:
        text = self._says()
        self.asks += 1
        self.refused = None
        await self._disturbed(_task(self.session.run(text)))

    async def _resume(self) -> None:
        self.asks += 1
        self.refused = None
        await self._disturbed(_task(self.session.resume()))

    async def _disturbed(self, task: asyncio.Future[object]) -> None:
        """Let a turn go on, and do something else meanwhile."""
        rng = self.rng
        others: list[asyncio.Future[object]] = []
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
            for _ in range(rng.randrange(40)):
                await asyncio.sleep(0)
            if task.done():
                break
            match rng.choice(
                ["cancel", "cancel", "compact", "undo", "switch", "intrude", "rewind"]
            ):
                case "cancel":
                    task.cancel()
                case "compact":
                    others.append(_task(self.session.compact()))
                case "undo":
                    with suppress(TurnInProgressError):
                        self.session.undo_compaction()
                case "switch":
                    await self._switch()
                case "intrude":
                    await self._intrude()
                case _:
                    with suppress(TurnInProgressError):
                        self.session.rewind(None)
        await self._ended(task)
        for other in others:
            await self._ended(other)

    async def _ended(self, task: asyncio.Future[object]) -> None:
        """Wait for a task; one that waits for a model that never answers is cancelled."""
        for _ in range(TICKS):
            if task.done():
                break
            if self.hanging and self.rng.random() < 0.05:
                task.cancel()
            await asyncio.sleep(0)
        else:
            task.cancel()
            await asyncio.wait([task], timeout=1)
            raise AssertionError("it hangs")
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if (
            isinstance(error, ContextWindowFullError | ContextLengthExceededError)
            and self.rng.random() < 0.8
        ):
            said = [
                e.id for e in self.session.transcript.path() if isinstance(e.payload, MessageEntry)
            ]
            self.session.rewind(self.rng.choice([None, *said[: len(said) // 2]]))
            self.in_a_row = 0
        if not isinstance(error, (*ALLOWED, SummaryError, CompactionInProgressError)):
            raise error

    async def _compact(self) -> None:
        await self._ended(_task(self.session.compact(self.rng.choice([None, "mind the parser"]))))

    async def _undo(self) -> None:
        self.session.undo_compaction()
        self.in_a_row = 0

    async def _rewind(self) -> None:
        self.session.rewind(
            self.rng.choice([None, *(entry.id for entry in self.session.transcript.entries[-30:])])
        )
        self.in_a_row = 0

    async def _switch(self) -> None:
        model, budget = self._model()
        self.model = model
        self.session.set_model(model, budget=budget)
        self.in_a_row = 0
        self.refused = None

    async def _fork(self) -> None:
        if not self.session.transcript.entries:
            return
        await self._close()
        self.files += 1
        file = self.folder / f"{self.seed}.{self.files}.jsonl"
        at = self.rng.choice([None, *(entry.id for entry in self.session.transcript.path()[-20:])])
        other = self.session.fork(_Store(file), at=at)
        self.file, self.session, self.acknowledged = file, other, {}
        self.in_a_row = 0

    async def _intrude(self) -> None:
        """Another process writes to the file."""
        if not self.file.exists():
            return
        other = Transcript(JsonlStore(self.file))
        if self.rng.random() < 0.3:
            other.rewind(self.rng.choice(other.entries).id)
        made = other.append_messages(Message(role="user", content=(_words(self.rng, 5),)))
        if self.rng.random() < 0.5:
            self.calls += 1
            call = ToolCall(id=f"x{self.calls}", name="read")
            made += other.append_messages(Message(role="assistant", tool_calls=(call,)))
        self.acknowledged |= {entry.id: entry for entry in made}

    async def _restart(self) -> None:
        await self._close()
        self._open(Transcript(_Store(self.file)))

    async def _close(self) -> None:
        await self.session.close()
        await asyncio.sleep(0)
        assert self.session.compaction.background.state == "idle"
        here = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not here]
        assert left == [], f"left running: {left}"
        self.told.check()


def _task(work: Coroutine[object, object, object]) -> asyncio.Future[object]:
    return asyncio.ensure_future(work)


def _is_move(entry: Entry) -> bool:
    return isinstance(entry.payload, Setting) and entry.payload.name == "leaf"


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(["lorem", "ipsum", "dolor", "sit", "amet"], k=count))
