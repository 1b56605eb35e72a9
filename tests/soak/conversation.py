"""One conversation of the soak: what a person does to a session, and the notes of what was promised to be safe.

A note is a line in a file of its own, written when a session has returned: what stands there must
be in the transcript, whatever happens to the process afterwards.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from promptkit import ToolDefinition
from promptkit.agent.session.session import AgentSession
from promptkit.errors import (
    CompactionError,
    MaxStepsExceededError,
    ModelError,
    NoPendingMessageError,
    TurnInProgressError,
)
from promptkit.providers.openai.client import OpenAIModel
from promptkit.tokens.budget import ContextBudget
from promptkit.tools import Tool
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Mapping

    import openai

__all__ = ["ALLOWED", "WINDOW", "CancelAt", "Conversation", "Counts"]

T = TypeVar("T")

WINDOW = 4_000
"""Tokens that the server takes."""
TURNS = 8
"""Of one conversation; then another begins in its place, so that memory has a steady state."""
PAUSE_SECONDS = 0.5
"""The longest time that a person waits before the next message."""
ALLOWED = (
    ModelError,
    CompactionError,
    MaxStepsExceededError,
    NoPendingMessageError,
    TurnInProgressError,
)
"""What a turn may raise."""


@attrs.define
class Counts:
    """What was done by one process."""

    opened: int = 0
    reopened: int = 0
    cancelled: int = 0
    turns: int = 0
    awaits: set[int] = attrs.field(factory=set[int])
    """At the how-many-th await of a call something was cancelled."""
    most_awaits: int = 12
    """The most awaits of a call so far."""
    errors: list[str] = attrs.field(factory=list[str])
    """Errors that no turn may raise."""


def _cancel(task: asyncio.Task[object], _: object) -> None:
    task.cancel()


class CancelAt:
    """Await a coroutine, and cancel it at its `number`-th await: the task is cancelled while it waits for exactly that.

    Or, if `late`, when what it waits for has come, and before it goes on.
    """

    # Any stands for what a coroutine yields and is sent
    def __init__(self, work: Coroutine[Any, Any, T], number: int, *, late: bool = False) -> None:
        self._work = work
        self._number = number
        self._late = late
        self.cancelled = False
        self.count = 0

    def __await__(self) -> Generator[Any, Any, Any]:  # Any: as above
        value, error = None, None
        while True:
            try:
                waiting = self._work.send(value) if error is None else self._work.throw(error)
            except StopIteration as end:
                return end.value
            value, error = None, None
            task = asyncio.current_task()
            if self.count == self._number and task is not None:
                self.cancelled = True
                if self._late and asyncio.isfuture(waiting):
                    waiting.add_done_callback(partial(_cancel, task))
                else:
                    task.cancel()
            self.count += 1
            try:
                value = yield waiting
            except BaseException as raised:  # noqa: BLE001  # handed to the coroutine, as a task does
                error = raised


@attrs.define(eq=False)
class Conversation:
    """A place for conversations, one after the other, each in a file.

    All that is known of one is in its files.
    """

    place: int
    folder: Path
    client: openai.AsyncOpenAI
    counts: Counts
    rng: random.Random
    session: AgentSession | None = None

    async def hold(self, ends: asyncio.Event) -> None:
        """Hold conversations until an event, beginning with the one that a process before this one left."""
        left = sorted(
            self.folder.glob(f"{self.place:03}.*.jsonl"),
            key=lambda file: int(file.name.split(".")[1]),
        )
        number = int(left[-1].name.split(".")[1]) if left else 1
        await asyncio.sleep(self.rng.random() * PAUSE_SECONDS)
        while not ends.is_set():
            await self._hold_one(f"{self.place:03}.{number}", ends)
            number += 1

    async def _hold_one(self, name: str, ends: asyncio.Event) -> None:
        notes = self.folder / f"{name}.notes"
        said = len(notes.read_bytes().splitlines()) if notes.exists() else 0
        self._open(name)
        try:
            while said < TURNS and not ends.is_set():
                said += 1
                await self._take_turn(name, said)
                await asyncio.sleep(self.rng.random() * PAUSE_SECONDS)
        finally:
            await self._close()
        if said >= TURNS:
            self.folder.joinpath(f"{name}.done").touch()

    def _open(self, name: str) -> None:
        rng = self.rng
        known = rng.choice([None, WINDOW, WINDOW // 2, 3 * WINDOW])
        self.session = AgentSession(
            model=OpenAIModel(
                "gpt-4.1",
                api=rng.choice(["chat", "responses"]),
                client=self.client,
                options={"max_output_tokens": 400},
            ),
            transcript=Transcript(JsonlStore(self.folder / f"{name}.jsonl")),
            instructions=f"Be brief. This is [conversation {name}].",
            tools=[
                Tool(definition=ToolDefinition(name="read"), run=_read),
                Tool(definition=ToolDefinition(name="fails"), run=_fail),
            ],
            budget=ContextBudget()
            if known is None
            else ContextBudget(window=known, reserved_output_tokens=400, tools=60),
            max_steps=5,
            rng=rng.random,
        )
        self.counts.opened += 1

    async def _close(self) -> None:
        if self.session is not None:
            await self.session.close()
            self.session = None

    async def _take_turn(self, name: str, number: int) -> None:
        """Say something, in half of the turns with a cancellation, and go on until it is answered."""
        rng, session = self.rng, self.session
        assert session is not None
        self.counts.turns += 1
        match rng.choice(["", "", "", "compact", "undo", "reopen", "rewind"]):
            case "compact":
                await self._disturbed(session.compact())
            case "undo":
                session.undo_compaction()
            case "rewind":
                path = [entry.id for entry in session.transcript.path()]
                session.rewind(rng.choice([None, *path[-6:]]))
            case "reopen":
                await self._close()
                self._open(name)
                self.counts.reopened += 1
            case _:
                pass
        session = self.session
        assert session is not None
        heard: list[str] = []
        on_text = rng.choice([None, heard.append])
        # a process that takes over may say the same again
        mark = f"said {name}.{number}.{rng.getrandbits(32):x}"
        answer = await self._disturbed(
            session.run(f"[{mark}] Please look. {'lorem ' * rng.randrange(400)}", on_text=on_text)
        )
        for _ in range(3):
            if answer is not None:
                break
            answer = await self._disturbed(session.resume(on_text=on_text))
        self._note(name, {"said": mark, "answer": None if answer is None else answer.text})

    # Any stands for what a coroutine yields and is sent
    async def _disturbed(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do something, and cancel it now and then.

        Returns None where it failed in a way that it may.
        """
        rng = self.rng
        number = (
            rng.choice([rng.randrange(12), rng.randrange(self.counts.most_awaits)])
            if rng.random() < 0.5
            else -1
        )
        wrapped = CancelAt(work, number)
        made: T | None = None
        try:
            made = await wrapped
        except ALLOWED:
            pass
        except asyncio.CancelledError:
            if not wrapped.cancelled:
                raise
        except Exception as error:  # noqa: BLE001  # told at the end
            self.counts.errors.append(f"{type(error).__name__}: {error}")
        self.counts.most_awaits = max(self.counts.most_awaits, wrapped.count)
        if wrapped.cancelled:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            self.counts.cancelled += 1
            self.counts.awaits.add(number)
        return made

    def _note(self, name: str, note: Mapping[str, object]) -> None:
        """Write a note.

        It is safe when a process is killed; that a machine stops is not tested here.
        """
        place = os.open(
            self.folder / f"{name}.notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        try:
            os.write(place, json.dumps(note).encode() + b"\n")
        finally:
            os.close(place)


def _read(arguments: Mapping[str, object]) -> str:
    return f"[read {arguments.get('mark')}] " + "lorem ipsum dolor " * 120


def _fail(arguments: Mapping[str, object]) -> str:
    raise OSError("no such file")
