"""The disk is slow: a session waits for it, and the other tasks of the event loop do not."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from promptkit import AgentSession, JsonlStore, Message, Transcript, TurnResult
from promptkit.agent.window.window import ContextWindow
from promptkit.compaction.summarizers.summarizer import HANDOFF_SECTIONS
from promptkit.errors import TranscriptWriteError
from promptkit.messages import ToolCall, ToolDefinition
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.tools import Tool
from tests.conversations import words

if TYPE_CHECKING:
    from pathlib import Path

SLOW = 0.2
"""Seconds of one sync."""


class Disk:
    """A disk that takes its time, and knows how much of each file is on it."""

    def __init__(self) -> None:
        self.sync = os.fsync
        self.sizes: dict[int, int] = {}
        self.threads: set[int] = set()
        self.seconds = SLOW
        self.error: OSError | None = None

    def fsync(self, descriptor: int) -> None:
        """Sync a file."""
        status = os.fstat(descriptor)
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        self.sync(descriptor)
        self.sizes[status.st_ino] = status.st_size

    def holds(self, path: Path) -> bool:
        """Whether the whole file is on the disk."""
        status = path.stat()
        return self.sizes.get(status.st_ino) == status.st_size


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    each = Disk()
    monkeypatch.setattr(os, "fsync", each.fsync)
    return each


CALL = Message(role="assistant", tool_calls=(ToolCall(id="1", name="look", arguments="{}"),))


async def talk(folder: Path, disk: Disk) -> None:
    """Have a session and a window write, and ask after each call whether the disk holds it."""
    path, other, third = (folder / f"{name}.jsonl" for name in ("session", "window", "handoff"))
    document = summary_answer(words(60), sections=HANDOFF_SECTIONS)
    model = ScriptedModel([CALL, "The first answer.", "An answer.", document])
    look = Tool(definition=ToolDefinition(name="look", description="Look."), run=lambda _: "seen")
    session = AgentSession(
        model=model,
        tools=[look],
        transcript=Transcript(JsonlStore(path)),
        tokenizer=WordTokenizer(),
    )
    await session.run("What is there?")
    assert disk.holds(path)
    await session.run("And now?")
    await session.handoff("Go on.", JsonlStore(third))
    assert disk.holds(third)
    await session.switch_branch(None, summarize=False)
    assert disk.holds(path)
    await session.close()
    window = ContextWindow(
        model="gpt-4o", transcript=Transcript(JsonlStore(other)), tokenizer=WordTokenizer()
    )
    window.add(Message(role="user", content="What is there?"))
    await window.request()
    assert disk.holds(other)
    window.add_reply(Message(role="assistant", content="Nothing."))
    await window.retry_cut_reply()
    assert disk.holds(other)
    window.add(Message(role="user", content="Good."))
    await window.close()
    assert disk.holds(other)


def test_a_session_and_a_window_let_the_loop_run_while_the_disk_syncs(
    tmp_path: Path, disk: Disk
) -> None:
    disk.seconds = 0
    asyncio.run(talk(tmp_path, disk))
    assert disk.threads
    assert threading.get_ident() not in disk.threads  # that of the event loop


def test_a_transcript_of_its_own_is_on_the_disk_when_an_append_returns(
    tmp_path: Path, disk: Disk
) -> None:
    path, disk.seconds = tmp_path / "talk.jsonl", 0
    transcript = Transcript(JsonlStore(path))
    transcript.append_messages(Message(role="user", content="Alone."))
    assert disk.holds(path)
    session = AgentSession(model=ScriptedModel([]), transcript=transcript)
    asyncio.run(session.close())
    transcript.append_messages(Message(role="user", content="Alone again."))
    assert disk.holds(path)


def test_all_that_led_to_a_request_or_a_tool_call_is_on_the_disk_before_it(
    tmp_path: Path, disk: Disk
) -> None:
    path, seen = tmp_path / "talk.jsonl", list[bool]()
    disk.seconds = 0

    def look(_: object) -> str:
        seen.append(disk.holds(path))
        return "seen"

    def answer(_: object) -> str | Message:
        seen.append(disk.holds(path))
        return CALL if len(seen) == 1 else "An answer."

    session = AgentSession(
        model=ScriptedModel([answer, answer]),
        tools=[Tool(definition=ToolDefinition(name="look", description="Look."), run=look)],
        transcript=Transcript(JsonlStore(path)),
        tokenizer=WordTokenizer(),
    )
    asyncio.run(session.run("What is there?"))
    assert seen == [True, True, True]


def test_a_cancelled_turn_leaves_what_its_tools_returned_on_the_disk(
    tmp_path: Path, disk: Disk
) -> None:
    path = tmp_path / "talk.jsonl"
    disk.seconds = 0

    async def look(_: object) -> str:
        raise asyncio.CancelledError

    async def wait(_: object) -> str:
        running[0].cancel()
        return "seen"

    calls = tuple(ToolCall(id=name, name=name, arguments="{}") for name in ("look", "wait"))
    session = AgentSession(
        model=ScriptedModel([Message(role="assistant", tool_calls=calls)]),
        tools=[
            Tool(definition=ToolDefinition(name="look", description="Look."), run=look),
            Tool(definition=ToolDefinition(name="wait", description="Wait."), run=wait),
        ],
        transcript=Transcript(JsonlStore(path)),
        tokenizer=WordTokenizer(),
    )

    async def talk() -> None:
        running.append(asyncio.create_task(session.run("What is there?")))
        with pytest.raises(asyncio.CancelledError):
            await running[0]

    running: list[asyncio.Task[TurnResult]] = []
    asyncio.run(talk())
    assert disk.holds(path)
    assert [entry.message.role for entry in session.transcript.path() if entry.message] == [
        "user", "assistant", "tool", "tool",
    ]  # fmt: skip


def test_a_disk_that_refuses_to_sync_ends_the_turn_with_a_sentence(
    tmp_path: Path, disk: Disk
) -> None:
    path = tmp_path / "talk.jsonl"
    disk.seconds, disk.error = 0, OSError(5, "Input/output error")
    model = ScriptedModel(["An answer."])
    session = AgentSession(
        model=model, transcript=Transcript(JsonlStore(path)), tokenizer=WordTokenizer()
    )
    with pytest.raises(TranscriptWriteError, match="may not be on the disk: Input/output error"):
        asyncio.run(session.run("What is there?"))
    disk.error = None
    assert asyncio.run(session.resume()).text == "An answer."
    assert disk.holds(path)
