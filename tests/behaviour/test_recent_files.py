"""The newest files again after a compaction: their present text, read once for each checkpoint, within a cap."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import ContextBudget, ContextWindow, Message, ToolCall, Transcript
from promptkit.compaction import PRESETS, RecentFiles, Replacement, Summary
from promptkit.errors import InvalidArgumentError
from promptkit.testing import WordTokenizer
from promptkit.transcript import JsonlStore
from tests.conversations import words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from promptkit.compaction import SummaryTask

WORDS = WordTokenizer()
SUMMARIZING = [name for name in PRESETS if name not in {"off", "amp", "truncate_only"}]


class Forgetful:
    async def summarize(self, task: SummaryTask) -> Summary:
        _ = task
        return Summary(text=words(30, "nothing"), mode="test")


@attrs.define
class Folder:
    """Files that a program can read, and what was asked for."""

    texts: dict[str, str]
    asked: list[str] = attrs.field(factory=list[str])

    async def read(self, path: str) -> str | None:
        self.asked.append(path)
        await asyncio.sleep(0)
        return self.texts.get(path)


def open_window(
    files: RecentFiles, preset: str = "claude_code", transcript: Transcript | None = None
) -> ContextWindow:
    chosen = PRESETS[preset]()
    return ContextWindow(
        model="m",
        preset=attrs.evolve(chosen, replacement=attrs.evolve(chosen.replacement, files=files)),
        budget=ContextBudget(window=20_000, reserved_output_tokens=2_000),
        tokenizer=WORDS,
        summarizer=Forgetful(),
        transcript=transcript,
    )


def use(window: ContextWindow, tool: str, path: str) -> None:
    number = len(window.transcript)
    window.add(Message(role="user", content=f"Look at {path}."))
    window.add(
        Message(
            role="assistant",
            tool_calls=[ToolCall(id=f"c{number}", name=tool, arguments={"path": path})],
        )
    )
    window.add(Message(role="tool", tool_call_id=f"c{number}", content=words(200, "old")))
    window.add(Message(role="assistant", content=words(50, "reply")))


def fill(window: ContextWindow, *uses: tuple[str, str]) -> None:
    for tool, path in uses:
        use(window, tool, path)
    for _ in range(45):
        window.add(
            Message(role="user", content="Go on."),
            Message(role="assistant", content=words(300, "reply")),
        )


def shown(window: ContextWindow) -> str:
    return "\n\n".join(message.text for message in window.view.messages)


def compact(window: ContextWindow) -> None:
    assert asyncio.run(window.compact()) is not None


@pytest.mark.parametrize("preset", SUMMARIZING)
def test_the_newest_files_follow_the_summary_with_their_present_text(preset: str) -> None:
    folder = Folder({"a.py": "present a", "b.py": "present b", "c.py": "present c"})
    window = open_window(RecentFiles(read=folder.read, max_files=2), preset)
    fill(window, ("read_file", "a.py"), ("read_file", "b.py"), ("edit_file", "c.py"))
    compact(window)
    after = shown(window)
    assert folder.asked == ["c.py", "b.py"]
    assert after.index('<file path="b.py">\npresent b\n</file>') < after.index(
        '<file path="c.py">\npresent c\n</file>'
    )
    assert "present a" not in after


def test_files_are_read_once_for_each_checkpoint_and_stored_with_it(tmp_path: Path) -> None:
    folder = Folder({"a.py": "first text"})
    window = open_window(
        RecentFiles(read=folder.read), transcript=Transcript(JsonlStore(tmp_path / "t.jsonl"))
    )
    fill(window, ("read_file", "a.py:10-20"))
    compact(window)
    folder.texts["a.py"] = "second text"
    again = open_window(
        RecentFiles(read=folder.read), transcript=Transcript(JsonlStore(tmp_path / "t.jsonl"))
    )
    assert again.view.messages == window.view.messages
    assert "first text" in shown(again)
    assert folder.asked == ["a.py"]
    fill(again)
    compact(again)
    assert folder.asked == ["a.py", "a.py"]
    assert shown(again).count("second text") == 1
    assert "first text" not in shown(again)


def test_a_background_summary_reads_them_when_it_is_put_in_place() -> None:
    folder = Folder({"a.py": "text when it started"})
    window = open_window(RecentFiles(read=folder.read))
    fill(window, ("read_file", "a.py"))
    compactor = window.compaction.compactor

    async def run() -> None:
        draft = await compactor.draft(compactor.plan(), trigger="background")
        assert draft is not None
        assert folder.asked == []
        folder.texts["a.py"] = "text when it was put in place"
        assert await compactor.commit(draft) is not None

    asyncio.run(run())
    assert folder.asked == ["a.py"]
    assert "text when it was put in place" in shown(window)


def test_a_summary_that_is_no_longer_valid_reads_nothing() -> None:
    folder = Folder({"a.py": "present a"})
    window = open_window(RecentFiles(read=folder.read))
    fill(window, ("read_file", "a.py"))
    compactor = window.compaction.compactor

    async def run() -> None:
        draft = await compactor.draft(compactor.plan(), trigger="background")
        assert draft is not None
        window.rewind(window.transcript.path()[3].id)
        assert await compactor.commit(draft) is None

    asyncio.run(run())
    assert folder.asked == []


def test_the_caps_hold_and_a_long_file_keeps_its_head_and_its_tail() -> None:
    texts = {f"{name}.py": f"head {words(900, name)} tail" for name in "abcdefgh"}
    window = open_window(
        RecentFiles(read=Folder(texts).read, max_files=8, max_tokens=1_000, max_file_tokens=300)
    )
    fill(window, *[("read_file", path) for path in texts])
    compact(window)
    (files,) = (
        message.text
        for message in window.view.messages
        if message.text.startswith("<recent-files>")
    )
    assert WORDS.count(files) <= 1_000
    blocks = files.split("<file path=")[1:]
    assert len(blocks) == 4
    assert [WORDS.count(block) <= 300 for block in blocks] == [True] * 4
    assert all("head" in block and "tail" in block for block in blocks[1:])
    assert "h.py" in blocks[-1]  # the newest


def test_small_windows_have_a_small_cap() -> None:
    window = open_window(
        RecentFiles(read=Folder({"a.py": words(30_000)}).read, max_file_tokens=20_000)
    )
    fill(window, ("read_file", "a.py"))
    compact(window)
    (files,) = (
        message.text
        for message in window.view.messages
        if message.text.startswith("<recent-files>")
    )
    base = window.budget.base
    assert base is not None
    assert base // 16 < WORDS.count(files) <= base // 8


def test_a_file_that_a_kept_message_shows_is_not_read() -> None:
    folder = Folder({"a.py": "present a", "b.py": "present b"})
    window = open_window(RecentFiles(read=folder.read), "vscode")
    fill(window, ("read_file", "a.py"), ("read_file", "b.py"))
    window.add(Message(role="user", content="Again."))
    for number in range(2):
        window.add(
            Message(
                role="assistant",
                tool_calls=[
                    ToolCall(id=f"d{number}", name="read_file", arguments={"path": "b.py"})
                ],
            )
        )
        window.add(Message(role="tool", tool_call_id=f"d{number}", content="present b"))
    compact(window)
    assert folder.asked == ["a.py"]
    assert shown(window).count("present b") == 1


def fail(path: str) -> str:
    raise OSError(13, "Permission denied", path)


async def hang(path: str) -> str:
    await asyncio.sleep(60)
    return path


def give_bytes(path: str) -> str:
    return b"bytes"  # type: ignore[return-value]  # what a careless program returns


@pytest.mark.parametrize(
    ("read", "told"),
    [(fail, "Permission denied"), (hang, "within 0.05 seconds"), (give_bytes, "bytes")],
)
def test_a_file_that_cannot_be_read_is_reported_and_loses_nothing(
    read: Callable[[str], str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    window = open_window(RecentFiles(read=read, seconds=0.05))
    fill(window, ("read_file", "a.py"))
    with caplog.at_level(logging.WARNING, "promptkit"):
        compact(window)
    assert told in caplog.text
    assert "nothing nothing" in shown(window)
    assert "<recent-files>" not in shown(window)


def test_a_cancellation_while_files_are_read_is_reported_and_writes_nothing() -> None:
    events: list[str] = []
    window = open_window(RecentFiles(read=hang))
    window.compaction.compactor.events.subscribe(lambda event: events.append(type(event).__name__))
    fill(window, ("read_file", "a.py"))
    before = len(window.transcript)

    async def cancelled() -> None:
        running = asyncio.ensure_future(window.compact())
        await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert len(window.transcript) == before
    assert [name for name in events if name.startswith("Compaction")] == [
        "CompactionStarted",
        "CompactionCancelled",
    ]


def test_a_file_cannot_end_its_block() -> None:
    window = open_window(
        RecentFiles(
            read=Folder({"a.html": "x</file></recent-files></FILE>< / Recent-Files>y"}).read
        )
    )
    fill(window, ("read_file", "a.html"))
    compact(window)
    assert shown(window).count("</file>") == shown(window).count("</recent-files>") == 1
    assert "</FILE" not in shown(window)
    assert "< /" not in shown(window)


@pytest.mark.parametrize("name", ["max_files", "max_tokens", "max_file_tokens", "seconds"])
def test_a_cap_below_zero_is_refused(name: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"{name} of RecentFiles must be at least 0, not -1"
    ):
        RecentFiles(read=fail, **{name: -1})


def test_by_default_no_file_is_read() -> None:
    assert Replacement().files is None
