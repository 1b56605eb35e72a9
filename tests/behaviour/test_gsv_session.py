"""A session as GSV's design has it, over real files: memories beside the summary, archives, and resets with a last extraction."""

from __future__ import annotations

import asyncio
import gzip
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from promptkit.agent.session.session import AgentSession
from promptkit.compaction.presets.coding_agents import GSV, gsv
from promptkit.compaction.run.reset import find_due_reset
from promptkit.compaction.storage import (
    CURATED_FILE,
    ArchiveDirectory,
    MemoryDirectory,
    MemoryExtractionHook,
    StatedMemoryExtractor,
    daily_file_name,
    parse_memories,
)
from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing
from promptkit.errors import ModelUnavailableError
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.format import EntryLine, line_from_bytes
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.conversations import summary_reply, words

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.testing.scripted_model import Step

WORDS = WordTokenizer()
SETTINGS = GSV(reserve_tokens=400, keep_recent_tokens=300, reset="idle", reset_idle_minutes=60)
WINDOW = ContextBudget(window=4_000, reserved_output_tokens=100)
NOW = datetime.now().astimezone()
YESTERDAY = NOW - timedelta(days=1)


@component
class Memories(PromptElement):
    """The memories of yesterday and today; in a main session those that the user keeps, too."""

    directory: MemoryDirectory
    main: bool = True

    def render(self, sizing: Sizing) -> Child:
        """Read the files."""
        _ = sizing
        return self.directory.load(datetime.now().astimezone().date(), include_curated=self.main)


class GSVSession:
    """A session with the folders of one user."""

    def __init__(
        self, folder: Path, *answers: Step, main: bool = True, time: datetime = NOW
    ) -> None:
        self.memories = MemoryDirectory(folder / "memory")
        self.archives = ArchiveDirectory(folder / "archives")
        self.model = ScriptedModel(answers)
        transcript = Transcript(JsonlStore(folder / "talk.jsonl"), clock=time.timestamp)
        self.session = AgentSession(
            model=self.model,
            transcript=transcript,
            instructions=["Be brief. ", Memories(directory=self.memories, main=main)],
            preset=gsv(SETTINGS),
            hooks=MemoryExtractionHook(
                transcript,
                directory=self.memories,
                now=lambda: NOW,
                extractor=StatedMemoryExtractor(),
            ),
            archives=self.archives,
            budget=WINDOW,
            tokenizer=WORDS,
            recall=False,
        )

    async def say(self, text: str, now: datetime = NOW) -> str:
        """Reset the conversation if that is due, then send a message."""
        reason = find_due_reset(SETTINGS.reset_policy, self.session.transcript, now=now)
        if reason:
            await self.session.reset(
                reason,
                extractor=StatedMemoryExtractor(),
                memories=self.memories,
                move_to_archive=True,
            )
        return (await self.session.run(text)).text

    def asked(self, request: int = -1) -> str:
        """The text of the system message of a request."""
        return self.model.requests[request].messages[0].text


def answer_with_memories(number: int) -> str:
    return f"{summary_reply(f'S{number}')}\n<memories>\n- Memory {number} of the user.\n</memories>"


def test_each_chunk_is_summarized_after_the_one_before_and_its_memories_are_written_to_the_days_file(
    tmp_path: Path,
) -> None:
    answers = [words(700, f"answer{number}") for number in range(4)]
    talk = GSVSession(tmp_path, *answers, *map(answer_with_memories, range(4)), "Done.")

    async def go() -> None:
        for number in range(5):
            await talk.say(f"ask{number} " + words(200))

    asyncio.run(go())
    (checkpoint,) = (
        entry for entry in talk.session.transcript.path() if isinstance(entry.payload, Checkpoint)
    )
    payload = checkpoint.payload
    assert isinstance(payload, Checkpoint)
    assert "S3" in payload.summary
    assert "<memories>" not in payload.summary
    assert talk.session.compaction.view.messages[-1].text == "Done."
    text = (talk.memories.folder / daily_file_name(NOW.date())).read_text(encoding="utf-8")
    assert text.startswith(f"# {NOW:%Y-%m-%d}\n\n## {NOW:%H:%M}\n")
    assert parse_memories(text) == tuple(f"Memory {number} of the user." for number in range(4))
    assert "Memory 3 of the user." in talk.asked()  # in the instructions of the very next request
    (archive,) = talk.archives.files
    _, *lines = map(line_from_bytes, gzip.decompress(archive.read_bytes()).splitlines())
    texts = [
        line.entry.message.text
        for line in lines
        if isinstance(line, EntryLine) and line.entry.message
    ]
    assert [text.split()[0] for text in texts[::2]] == ["ask0", "ask1", "ask2", "ask3"]


def test_a_new_session_begins_with_what_was_remembered_and_the_users_own_notes_stay_in_main_sessions(
    tmp_path: Path,
) -> None:
    memories = MemoryDirectory(tmp_path / "memory")
    memories.append(("Likes tabs.",), key="k1", now=YESTERDAY)
    memories.append(("Lives in Rome.",), key="k2", now=NOW - timedelta(days=2))
    (memories.folder / CURATED_FILE).write_text("Call me Ann.\n", encoding="utf-8")
    main, group = GSVSession(tmp_path, "Hello."), GSVSession(tmp_path, "Hello.", main=False)
    asyncio.run(main.say("Hi."))
    asyncio.run(group.say("Hi."))
    assert "Call me Ann." in main.asked()
    assert "Likes tabs." in main.asked()
    assert "Call me Ann." not in group.asked()
    assert "Likes tabs." in group.asked()
    assert "Rome" not in main.asked()


def test_after_a_pause_the_conversation_starts_over_and_its_last_memories_are_kept(
    tmp_path: Path,
) -> None:
    talk = GSVSession(tmp_path, "Yes.", "No.", "Again.")

    async def go() -> None:
        await talk.say("Always run the tests.")
        await talk.say("Is it so?", NOW + timedelta(minutes=59))
        await talk.say("And now?", NOW + timedelta(minutes=60))

    asyncio.run(go())
    assert [message.text for message in talk.session.compaction.view.messages] == [
        "And now?",
        "Again.",
    ]
    assert "Always run the tests." in talk.asked()
    store = JsonlStore(tmp_path / "talk.jsonl")
    assert [entry.kind for entry in Transcript(store).path()].count("reset") == 1
    assert [segment.entries for segment in store.archives] == [4]


def test_a_provider_that_is_away_leaves_the_facts_of_what_was_said(tmp_path: Path) -> None:
    away = [ModelUnavailableError("away")] * 8
    talk = GSVSession(tmp_path, words(900, "a"), words(900, "b"), words(900, "c"), *away)

    async def go() -> None:
        for number in range(3):
            await talk.say(f"ask{number}: Always say please.")
        entry = await talk.session.compact(allow_extractive=True)
        assert entry is not None
        shown = [message.text for message in talk.session.compaction.view.messages]
        assert any("ask0: Always say please." in text for text in shown)

    asyncio.run(go())
    text = (talk.memories.folder / daily_file_name(NOW.date())).read_text(encoding="utf-8")
    assert "Always say please." in text  # by the extractor, as no answer listed memories
