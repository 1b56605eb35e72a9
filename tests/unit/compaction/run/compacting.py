"""A compactor of a short conversation, and what it told."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction import Events
from promptkit.compaction.planning.selection import KeepLastRound
from promptkit.compaction.run.compactor import Compactor
from promptkit.compaction.run.replacement import Replacement
from promptkit.testing import WordTokenizer
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.transcript import Transcript
from tests.conversations import ConversationBuilder, words
from tests.unit.compaction.summarizers.writers import Recorder, Writer

if TYPE_CHECKING:
    from promptkit.compaction.planning.plan import LastRequest
    from promptkit.compaction.planning.selection import Keep
    from promptkit.transcript.log.entries import Entry

__all__ = ["Made", "checkpoint", "compact", "made"]


@attrs.define
class Made:
    """A compactor of a short conversation, and what it told."""

    compactor: Compactor
    writer: Writer
    told: Recorder

    @property
    def log(self) -> Transcript:
        return self.compactor.transcript

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.compactor.view.messages]


def made(
    transcript: Transcript | None = None,
    *,
    writer: Writer | None = None,
    keep: Keep | None = None,
    cap: int | None = None,
) -> Made:
    """Two turns of a hundred words a message, of which the first is what a compaction drops."""
    log = Transcript() if transcript is None else transcript
    if not len(log):
        talk = ConversationBuilder(log)
        for name in ("one", "two"):
            talk.user(words(100, f"ask-{name}"))
            talk.answer(words(100, f"answer-{name}"))
    writing, told = writer or Writer(), Recorder()
    compactor = Compactor(
        log,
        summarizer=writing,
        keep=keep or KeepLastRound(),
        tokenizer=WordTokenizer(),
        max_summary_tokens=30,
        max_result_tokens=cap,
        replacement=Replacement(originals=None, carry=None),
        events=Events(told),
        clock=itertools.count().__next__,
    )
    return Made(compactor, writing, told)


def compact(
    each: Made, instructions: str | None = None, last_request: LastRequest | None = None
) -> Entry | None:
    return asyncio.run(
        each.compactor.compact(
            trigger="manual", instructions=instructions, last_request=last_request
        )
    )


def checkpoint(entry: Entry | None) -> Checkpoint:
    assert entry is not None
    assert isinstance(entry.payload, Checkpoint)
    return entry.payload
