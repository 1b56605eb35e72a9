"""Checkpoint files: numbered, titled, written once, with a correct index.

A value in a comment comes back as it was, and nothing in it ends the comment.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock
from hypothesis import given, strategies as st

from promptkit import AgentSession, ContextBudget, Message
from promptkit.compaction.run.compactor import Compactor
from promptkit.compaction.storage.checkpoint_files import (
    CheckpointDirectory,
    format_comment,
    list_checkpoint_files,
    parse_comment,
    title_from_summary,
)
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.transcript.log.entries import Checkpoint, CustomEntry, Edit, Entry
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.store import InMemoryStore
from tests.conversations import ConversationBuilder, words
from tests.unit.compaction.summarizers.writers import Writer

if TYPE_CHECKING:
    from pathlib import Path


def entry(name: str, summary: str) -> Entry:
    return Entry(id=name, parent_id=None, time=0.0, payload=Checkpoint(summary=summary))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


@pytest.mark.parametrize(
    ("summary", "title"),
    [
        ("<title>Fix the parser</title>\nrest", "Fix the parser"),
        ("1. Conversation Overview: went well\nTitle: Ship it", "Ship it"),
        ("**Title:** Ship *it*", "Ship *it"),
        ("# A heading\ntext", "A heading"),
        ("1. Conversation Overview: The person wants tests.", "The person wants tests."),
        ("1. Conversation Overview\n- the wish", "the wish"),
        ("\n\n   \n", "Checkpoint"),
        ("a\u202eb\u0000c", "abc"),
        ("x" * 100, "x" * 79 + "…"),
    ],
)
def test_a_title_is_what_the_summary_says_of_itself_or_its_first_sentence(
    summary: str, title: str
) -> None:
    assert title_from_summary(summary) == title


def test_a_compaction_writes_its_file_and_the_index(tmp_path: Path) -> None:
    talk = ConversationBuilder()
    talk.user(words(100))
    talk.answer(words(100))
    talk.user("next")
    files = CheckpointDirectory(tmp_path / "checkpoints")
    compactor = Compactor(
        talk.log,
        summarizer=Writer(text="# Größe: fix it"),
        tokenizer=WordTokenizer(),
        max_summary_tokens=20,
        hooks=files,
    )
    asyncio.run(compactor.compact(trigger="manual"))
    assert names(files.folder) == ["001-groe-fix-it.md", "index.md"]
    assert "# Größe: fix it" in (files.folder / "001-groe-fix-it.md").read_text(encoding="utf-8")
    assert (files.folder / "index.md").read_text(encoding="utf-8") == (
        "# Checkpoints\n\n1 summary, oldest first.\n\n1. [Größe: fix it](001-groe-fix-it.md)\n"
    )


@pytest.mark.spec("E104")
def test_numbers_and_index_are_consistent_after_several_compactions(tmp_path: Path) -> None:
    files = CheckpointDirectory(tmp_path)
    for number in range(1, 13):
        files.write(entry(f"c{number}", f"# Step {number}"))
    assert [file.number for file in list_checkpoint_files(tmp_path)] == list(range(1, 13))
    assert files.count == 12
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "12 summaries" in index
    assert [line.split(".")[0] for line in index.splitlines() if "](" in line] == [
        str(number) for number in range(1, 13)
    ]


def test_the_same_checkpoint_is_written_once(tmp_path: Path) -> None:
    files = CheckpointDirectory(tmp_path)
    first = files.write(entry("c1", "# One"))
    assert files.write(entry("c1", "# One")) == first
    assert names(tmp_path) == ["001-one.md", "index.md"]


def summarize(transcript: Transcript, files: CheckpointDirectory, name: str) -> str:
    transcript.append_messages(Message(role="user", content=name))
    (made,) = transcript.append(Checkpoint(summary=f"# {name}"))
    files.write(made)
    return made.id


def test_files_follow_a_rewind_and_return_with_the_branch(tmp_path: Path) -> None:
    files, transcript = CheckpointDirectory(tmp_path), Transcript()
    first, second = summarize(transcript, files, "c1"), summarize(transcript, files, "c2")
    before = (tmp_path / "002-c2.md").read_bytes()
    transcript.rewind(first)
    files.on_branch_change(transcript)
    assert names(tmp_path) == ["001-c1.md", "index.md", "other-branches"]
    assert (tmp_path / "other-branches" / "002-c2.md").read_bytes() == before
    assert "1 summary, oldest first. 1 summary of other branches" in (
        tmp_path / "index.md"
    ).read_text(encoding="utf-8")
    summarize(transcript, files, "c3")
    # no number twice
    assert names(tmp_path) == ["001-c1.md", "003-c3.md", "index.md", "other-branches"]
    transcript.rewind(second)
    files.on_branch_change(transcript)
    assert names(tmp_path) == ["001-c1.md", "002-c2.md", "index.md", "other-branches"]
    assert names(tmp_path / "other-branches") == ["003-c3.md"]
    transcript.rewind(None)
    files.on_branch_change(transcript)
    assert names(tmp_path / "other-branches") == ["001-c1.md", "002-c2.md", "003-c3.md"]


def test_the_file_of_an_undone_compaction_is_aside_until_the_undoing_is_undone(
    tmp_path: Path,
) -> None:
    files, transcript = CheckpointDirectory(tmp_path), Transcript()
    made = summarize(transcript, files, "c1")
    (undoing,) = transcript.append(Edit(target=made, content=None, reason="undone"))
    files.follow(transcript)
    assert names(tmp_path) == ["index.md", "other-branches"]
    transcript.append(Edit(target=undoing.id, content=None, reason="undone"))
    files.follow(transcript)
    assert names(tmp_path) == ["001-c1.md", "index.md", "other-branches"]


def test_files_of_another_conversation_in_the_folder_stay(tmp_path: Path) -> None:
    files, mine, other = CheckpointDirectory(tmp_path), Transcript(), Transcript()
    summarize(mine, files, "mine")
    summarize(other, files, "other")
    mine.rewind(None)
    files.follow(mine)
    assert names(tmp_path) == ["002-other.md", "index.md", "other-branches"]


def test_a_session_s_files_follow_what_it_does(tmp_path: Path) -> None:
    async def talk() -> None:
        files = CheckpointDirectory(tmp_path)
        session = AgentSession(
            model=ScriptedModel([words(100, "a"), words(100, "b")]),
            budget=ContextBudget(window=1_000, reserved_output_tokens=0),
            tokenizer=WordTokenizer(),
            summarizer=Writer(),
            hooks=files,
        )
        await session.run("one")
        start = session.transcript.leaf
        await session.run("two")
        await session.compact()
        compacted = session.transcript.leaf
        assert len(list_checkpoint_files(tmp_path)) == 1
        for leave in (session.undo_compaction, lambda: session.rewind(start)):
            leave()
            await files.wait_idle()
            assert list_checkpoint_files(tmp_path) == ()
            await session.switch_branch(compacted, summarize=False)
            await files.wait_idle()
            assert len(list_checkpoint_files(tmp_path)) == 1

    asyncio.run(talk())


def test_what_a_fork_does_leaves_the_files_of_the_conversation_where_they_are(
    tmp_path: Path,
) -> None:
    async def talk() -> None:
        files = CheckpointDirectory(tmp_path)
        session = AgentSession(
            model=ScriptedModel(
                [words(100, "a"), words(100, "b"), words(100, "c"), words(100, "d")]
            ),
            budget=ContextBudget(window=1_000, reserved_output_tokens=0),
            tokenizer=WordTokenizer(),
            summarizer=Writer(),
            hooks=files,
        )
        await session.run("one")
        start = session.transcript.leaf
        await session.run("two")
        await session.compact()
        fork = session.fork(InMemoryStore())
        forked = fork.compaction.compactor.hooks
        assert isinstance(forked, CheckpointDirectory)
        shared = fork.transcript.leaf
        await fork.run("three")
        await fork.run("four")
        await fork.compact()
        assert len(list_checkpoint_files(tmp_path)) == 2
        fork.rewind(shared)
        await forked.wait_idle()
        assert [file.checkpoint for file in list_checkpoint_files(tmp_path)] == [
            session.window.view.checkpoint_id
        ]
        fork.rewind(start)
        await forked.wait_idle()
        assert [file.checkpoint for file in list_checkpoint_files(tmp_path)] == [
            session.window.view.checkpoint_id
        ]
        session.rewind(start)
        await files.wait_idle()
        assert list_checkpoint_files(tmp_path) == ()
        fork.rewind(shared)
        await forked.wait_idle()
        assert list_checkpoint_files(tmp_path) == ()

    asyncio.run(talk())


@pytest.mark.parametrize(
    "before", [False, True], ids=["from where it is", "from before its first checkpoint"]
)
def test_a_fork_of_a_fork_leaves_the_files_of_both_where_they_are(
    tmp_path: Path, before: bool
) -> None:
    files, transcript = CheckpointDirectory(tmp_path), Transcript()
    summarize(transcript, files, "c1")
    fork = Transcript(InMemoryStore(transcript.entries))
    forked = files.fork(fork)
    if before:
        fork.rewind(None)
    else:
        summarize(fork, forked, "c2")
    second = Transcript(InMemoryStore(fork.entries))
    again = forked.fork(second)
    second.rewind(None)
    again.follow(second)
    assert len(list_checkpoint_files(tmp_path)) == 2 - before


def test_a_change_of_the_branch_never_waits_in_the_event_loop_for_the_lock_of_another_process(
    tmp_path: Path,
) -> None:
    async def talk() -> float:
        files, transcript = CheckpointDirectory(tmp_path, timeout=5), Transcript()
        summarize(transcript, files, "c1")
        with FileLock(tmp_path / ".lock"):
            transcript.rewind(None)
            started = time.monotonic()
            files.on_branch_change(transcript)
            passed = time.monotonic() - started
            assert len(list_checkpoint_files(tmp_path)) == 1
        await files.wait_idle()
        assert list_checkpoint_files(tmp_path) == ()
        return passed

    assert asyncio.run(talk()) < 1


def test_files_that_cannot_follow_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk() -> None:
        files, transcript = CheckpointDirectory(tmp_path, timeout=0.01), Transcript()
        summarize(transcript, files, "c1")
        with FileLock(tmp_path / ".lock"):
            transcript.rewind(None)
            files.on_branch_change(transcript)
            await files.wait_idle()

    asyncio.run(talk())
    assert "could not follow" in caplog.text


@pytest.mark.parametrize(
    "title", ["../../etc/passwd", "a/b\\c", "; rm -rf ~", "日本語", "con", "--> x <!--", "a](b) [c"]
)
def test_no_title_leads_out_of_the_folder_or_breaks_the_files(title: str, tmp_path: Path) -> None:
    files = CheckpointDirectory(tmp_path / "in")
    made = files.write(entry("c1", f"<title>{title}</title>" if "<" not in title else f"# {title}"))
    assert made is not None
    assert made.path.parent == files.folder
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    (found,) = list_checkpoint_files(files.folder)
    assert found == made


def test_what_is_no_checkpoint_s_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine", encoding="utf-8")
    (tmp_path / "007-mine.md").write_text("mine", encoding="utf-8")
    (tmp_path / "008-mine.md").write_text('<!-- {"checkpoint": 8} -->', encoding="utf-8")
    files = CheckpointDirectory(tmp_path)
    assert (
        files.write(Entry(id="x", parent_id=None, time=0.0, payload=CustomEntry(name="n"))) is None
    )
    files.write(entry("c1", "# One"))
    files.follow(Transcript())
    assert names(tmp_path) == ["001-one.md", "007-mine.md", "008-mine.md", "index.md", "notes.md"]


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    files = CheckpointDirectory(tmp_path)
    (tmp_path / "index.md").mkdir()  # nothing can be written there
    with pytest.raises(OSError, match=r"index\.md"):
        files.write(entry("c1", "# One"))
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")]
    (tmp_path / "index.md").rmdir()
    files.write(entry("c1", "# One"))
    assert names(tmp_path) == ["001-one.md", "index.md"]


@given(value=st.dictionaries(st.text(), st.text(), max_size=3))
def test_what_goes_in_comes_out_and_stays_inside_one_line(value: dict[str, str]) -> None:
    line = format_comment(value)
    assert parse_comment(line) == value
    assert "\n" not in line
    assert "-->" not in line[:-3]
    assert "--" not in line[4:-3]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "text",
        "<!-- no json -->",
        "<!-- [1] -->",
        "<!-- {} --> x",
        '<!-- {"a": } -->',
        "<!-- {" + "[" * 9999 + "} -->",
    ],
)
def test_any_other_line_says_nothing(line: str) -> None:
    assert parse_comment(line) == {}
