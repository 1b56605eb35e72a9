"""Memories taken from what a conversation is about to forget, when a checkpoint covers it or a reset hides it."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import attrs

from promptkit.compaction.compactor import redact_summary, redact_task
from promptkit.compaction.hooks import CompactionHooks
from promptkit.compaction.planning.blocks import is_user_request, block_spans
from promptkit.compaction.planning.coverage import find_covered_items
from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.storage.memory_files import parse_bullets
from promptkit.errors import ModelError, SummaryError
from promptkit.rendering.sizing import Sizer
from promptkit.transcript.entries import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from promptkit.compaction.storage.memory_files import MemoryDirectory
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.redaction import Redactor
    from promptkit.transcript.transcript import Transcript
    from promptkit.transcript.view import ViewItem

__all__ = ["MEMORIES_TEMPLATE", "MemoryExtractionHook", "MemoryExtractor", "StatedMemoryExtractor", "SummarizingMemoryExtractor"]

MEMORIES_TEMPLATE = Path(__file__).with_name("memories.md.j2")
"""The template for a summarizer that writes memories: `SimpleSummarizer(model=model, window=…, template=MEMORIES_TEMPLATE)`."""

_STATED = re.compile(r"\b(?:remember|always|never|prefer|from now on|keep in mind|do ?n[o']t ever|note for later)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")

_LOG = logging.getLogger("promptkit")


class MemoryExtractor(Protocol):
    """Takes memories out of messages."""

    async def extract(self, items: Sequence[ViewItem]) -> tuple[str, ...]:
        """The memories, oldest first. Raises what keeps it from having any."""
        ...


@attrs.frozen
class StatedMemoryExtractor:
    """Takes what the person themself said to remember, in their words: "always …", "never …", "I prefer …". Asks no model."""

    async def extract(self, items: Sequence[ViewItem]) -> tuple[str, ...]:
        """The sentences."""
        said = (item.message.text for item in items if is_user_request(item))
        sentences = (sentence.strip() for text in said for sentence in _SENTENCE.split(text))
        return tuple(dict.fromkeys(sentence for sentence in sentences if _STATED.search(sentence)))


@attrs.frozen(kw_only=True)
class SummarizingMemoryExtractor:
    """Has a summarizer list the memories of one stretch after the other.

    A stretch of which it has none to give is passed over, and so is a single message that is larger than `largest`: the others' are kept.
    """

    summarizer: Summarizer
    """Answers with a list: a SimpleSummarizer with MEMORIES_TEMPLATE."""
    tokenizer: Tokenizer
    chunk_tokens: int
    """Tokens of the conversation that are read at once."""
    max_chunk_tokens: int
    """Tokens of a stretch that is passed over."""
    max_tokens: int = 1_000
    """The most that the list of one stretch may have."""
    redactor: Redactor | None = None

    async def extract(self, items: Sequence[ViewItem]) -> tuple[str, ...]:
        """The memories. Raises what the last failure was, if there was no stretch that it had an answer for."""
        found: dict[str, None] = {}
        failure: Exception | None = None
        answered = False
        for stretch, tokens in self._stretches(items):
            if tokens > self.max_chunk_tokens:
                _LOG.warning(
                    "no memories are taken from %d messages of %d tokens, which is more than %d", len(stretch), tokens, self.max_chunk_tokens
                )
                continue
            task = SummaryTask(plan=Plan(leaf=stretch[-1].entry_id, dropped=stretch), max_tokens=self.max_tokens)
            try:
                made = await self.summarizer.summarize(task if self.redactor is None else redact_task(task, self.redactor))
            except (SummaryError, ModelError) as error:
                _LOG.warning("no memories were taken from %d messages: %s", len(stretch), error)
                failure = error
                continue
            answered = True
            found.update(dict.fromkeys(parse_bullets((made if self.redactor is None else redact_summary(made, self.redactor)).text)))
        if failure is not None and not answered:
            raise failure
        return tuple(found)

    def _stretches(self, items: Sequence[ViewItem]) -> Iterator[tuple[tuple[ViewItem, ...], int]]:
        count = Sizer(self.tokenizer).count_message
        stretch: list[ViewItem] = []
        filled = 0
        for start, end in block_spans([item.message for item in items]):
            tokens = sum(count(item.message) for item in items[start:end])
            if stretch and filled + tokens > self.chunk_tokens:
                yield tuple(stretch), filled
                stretch, filled = [], 0
            stretch.extend(items[start:end])
            filled += tokens
        if stretch:
            yield tuple(stretch), filled


class MemoryExtractionHook(CompactionHooks):
    """After each compaction, takes memories from what the checkpoint covers into files, once for each checkpoint. `now` tells the time."""

    def __init__(self, transcript: Transcript, *, extractor: MemoryExtractor, directory: MemoryDirectory, now: Callable[[], datetime]) -> None:
        self._transcript = transcript
        self._extractor = extractor
        self._files = directory
        self._now = now

    async def post_compact(self, checkpoint: Entry) -> None:
        """Take them. Nothing is asked where it was done before."""
        if not isinstance(checkpoint.payload, Checkpoint) or await asyncio.to_thread(self._files.has, checkpoint.id):
            return
        items = find_covered_items(self._transcript.path(checkpoint.id), checkpoint.id)
        if items:
            memories = await self._extractor.extract(items)
            await asyncio.to_thread(self._files.append, memories, key=checkpoint.id, now=self._now())
