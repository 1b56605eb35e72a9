"""Memories are extracted once from what a checkpoint covers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import Summary, SummaryTask
from promptkit.compaction.planning.selection import KeepNothing
from promptkit.compaction.run.compactor import Compactor
from promptkit.compaction.run.hooks import HookChain
from promptkit.compaction.storage import (
    MemoryDirectory,
    MemoryExtractionHook,
    StatedMemoryExtractor,
    SummarizingMemoryExtractor,
    parse_memories,
)
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.model_summarizers import ChunkedSummarizer
from promptkit.errors import SummaryError
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from tests.conversations import ConversationBuilder, words
from tests.unit.compaction.summarizers.writers import Writer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from promptkit.compaction.storage import MemoryExtractor
    from promptkit.transcript.log.view import ViewItem

TOKENIZER = WordTokenizer()
NOW = datetime(2026, 1, 2, 14, 5, tzinfo=UTC)


@attrs.define
class Counting:
    """Remembers everything word for word, and counts how often it is asked."""

    asked: list[list[str]] = attrs.field(factory=list[list[str]])
    known: tuple[str, ...] = ()

    async def extract(
        self, items: Sequence[ViewItem], *, known: Sequence[str] = ()
    ) -> tuple[str, ...]:
        self.known = tuple(known)
        texts = [item.message.text for item in items]
        self.asked.append(texts)
        return tuple(texts)


def extracted(extractor: MemoryExtractor, talk: ConversationBuilder) -> tuple[str, ...]:
    return asyncio.run(extractor.extract(talk.view.items))


def spoken(*firsts: str) -> ConversationBuilder:
    talk = ConversationBuilder()
    for first in firsts:
        talk.user(f"{first} {words(9)}")
    return talk


def test_without_a_model_it_is_what_the_user_says_to_remember() -> None:
    talk = ConversationBuilder()
    talk.user("Hello. I prefer tabs. Always run the tests!\nThe rest is up to you.")
    talk.answer("I always do.")
    talk.reminder("Never say never.")
    talk.user("I prefer tabs.")
    assert extracted(StatedMemoryExtractor(), talk) == ("I prefer tabs.", "Always run the tests!")


def test_a_model_lists_the_memories_of_every_chunk() -> None:
    answer = summary_answer("S") + "\n<memories>\n- Memory {}.\n- none\n</memories>"
    talk = ConversationBuilder()
    for _ in range(2):
        talk.user(words(400))
    with ScriptedModel([answer.format(1), answer.format(2)]) as model:
        summarizer = ChunkedSummarizer(model=model, window=2_000, tokenizer=TOKENIZER)
        extractor = SummarizingMemoryExtractor(summarizer=summarizer, max_tokens=200)
        assert extracted(extractor, talk) == ("Memory 1.", "Memory 2.")


def test_if_no_model_answers_that_is_an_error() -> None:
    summarizer = FallbackSummarizer([])
    with pytest.raises(SummaryError):
        extracted(SummarizingMemoryExtractor(summarizer=summarizer), spoken("one"))


def test_secrets_are_not_remembered() -> None:
    extractor = SummarizingMemoryExtractor(
        summarizer=Lister("- Key: hunter2"), redactor=lambda text: text.replace("hunter2", "-")
    )
    assert extracted(extractor, spoken("hunter2")) == ("Key: -",)


@attrs.frozen
class Lister:
    """Writes a summary, and the memories that came with it."""

    memories: str

    async def summarize(self, task: SummaryTask) -> Summary:
        return Summary(text=words(2), mode="test", facts=Facts(memories=self.memories))


@pytest.mark.parametrize(
    ("memories", "written"),
    [("- Likes tabs.\n- none\n* Key: hunter2", ("Likes tabs.", "Key: -")), ("", ())],
    ids=["some", "none"],
)
def test_memories_that_came_with_the_summary_are_written_and_no_extractor_is_asked(
    memories: str, written: tuple[str, ...], tmp_path: Path
) -> None:
    talk, counting = spoken("one", "two"), Counting()
    files = MemoryDirectory(tmp_path)
    hooks = MemoryExtractionHook(talk.log, extractor=counting, directory=files, now=lambda: NOW)
    compactor = Compactor(
        talk.log,
        summarizer=Lister(memories),
        keep=KeepNothing(),
        tokenizer=TOKENIZER,
        max_summary_tokens=15,
        hooks=hooks,
        redactor=lambda text: text.replace("hunter2", "-"),
    )
    talk.answer("Yes.")
    assert asyncio.run(compactor.compact(trigger="manual")) is not None
    assert parse_memories(files.load(NOW.date(), include_curated=False)) == written
    assert counting.asked == []


def test_whoever_writes_memories_is_shown_those_of_the_day(tmp_path: Path) -> None:
    talk, counting, seen = spoken("one", "two"), Counting(), list[SummaryTask]()
    files = MemoryDirectory(tmp_path)
    files.append(["Likes tea."], key="a", now=NOW - timedelta(days=1))
    files.append(["Likes tabs.", "Key: hunter2"], key="b", now=NOW)
    talk.answer("Yes.")

    @attrs.define
    class Seeing(Writer):
        async def summarize(self, task: SummaryTask) -> Summary:
            seen.append(task)
            return await super().summarize(task)

    compactor = Compactor(
        talk.log,
        summarizer=Seeing(),
        keep=KeepNothing(),
        tokenizer=TOKENIZER,
        max_summary_tokens=15,
        hooks=HookChain(
            MemoryExtractionHook(talk.log, extractor=counting, directory=files, now=lambda: NOW)
        ),
        redactor=lambda text: text.replace("hunter2", "-"),
    )
    assert asyncio.run(compactor.compact(trigger="manual")) is not None
    assert list(seen[0].known_memories) == ["Likes tea.", "Likes tabs.", "Key: -"]
    assert counting.known == ("Likes tea.", "Likes tabs.", "Key: hunter2")


def test_a_model_of_its_own_is_shown_the_memories_of_the_day() -> None:
    answer = summary_answer("S") + "\n<memories>\n- New.\n</memories>"
    with ScriptedModel([answer]) as model:
        summarizer = ChunkedSummarizer(model=model, window=2_000, tokenizer=TOKENIZER)
        extractor = SummarizingMemoryExtractor(summarizer=summarizer, max_tokens=200)
        items = spoken("one").view.items
        assert asyncio.run(extractor.extract(items, known=["Likes tabs."])) == ("New.",)
    assert "- Likes tabs." in model.requests[0].messages[-1].text


def test_without_a_list_and_without_an_extractor_nothing_is_written(tmp_path: Path) -> None:
    talk = spoken("one", "two")
    talk.answer("Yes.")
    hooks = MemoryExtractionHook(talk.log, directory=MemoryDirectory(tmp_path), now=lambda: NOW)
    compactor = Compactor(
        talk.log,
        summarizer=Writer(),
        keep=KeepNothing(),
        tokenizer=TOKENIZER,
        max_summary_tokens=15,
        hooks=hooks,
    )
    assert asyncio.run(compactor.compact(trigger="manual")) is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("I39")
def test_memories_are_taken_once_for_each_checkpoint_from_what_it_covers(tmp_path: Path) -> None:
    talk, counting = ConversationBuilder(), Counting()
    files = MemoryDirectory(tmp_path)
    hooks = MemoryExtractionHook(talk.log, extractor=counting, directory=files, now=lambda: NOW)
    compactor = Compactor(
        talk.log,
        summarizer=Writer(),
        keep=KeepNothing(),
        tokenizer=TOKENIZER,
        max_summary_tokens=15,
        hooks=hooks,
    )
    for name in ("one", "two"):
        talk.user(f"{name} {words(20)}")
        talk.answer(f"{name} {words(20, 'a')}")
        entry = asyncio.run(compactor.compact(trigger="manual"))
        assert entry is not None
        asyncio.run(hooks.post_compact(entry))
    assert [[text.split()[0] for text in asked] for asked in counting.asked] == [
        ["one", "one"],
        ["two", "two"],
    ]
    assert len(parse_memories(files.load(NOW.date(), include_curated=False))) == 4
    asyncio.run(hooks.post_compact(talk.path[0]))
    assert len(counting.asked) == 2
