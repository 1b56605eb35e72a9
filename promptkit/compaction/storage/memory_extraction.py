"""Extraction of memories from messages that a conversation is about to lose, when a checkpoint replaces them or a reset hides them."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import attrs

from promptkit.compaction.planning.blocks import is_user_request
from promptkit.compaction.planning.coverage import find_covered_items
from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.policy.decisions import WAIT_SECONDS
from promptkit.compaction.run.hooks import CompactionHooks
from promptkit.compaction.run.redaction import redact_summary, redact_task
from promptkit.compaction.storage.memory_files import parse_bullets
from promptkit.compaction.summarizers.fallback import summarize_within_limits
from promptkit.compaction.summarizers.summarizer import MEMORIES
from promptkit.errors import ModelError, SummaryError
from promptkit.fitting.choose import split_blocks
from promptkit.rendering.expand.sizing import Sizer
from promptkit.transcript.log.entries import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from promptkit.compaction.storage.memory_files import MemoryDirectory
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.messages import Json
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.log.redaction import Redactor
    from promptkit.transcript.log.transcript import Transcript
    from promptkit.transcript.log.view import ViewItem

MEMORIES_TEMPLATE = Path(__file__).with_name("memories.md.j2")
"""The template for a summarizer that writes memories:
`SimpleSummarizer(model=model, window=…, template=MEMORIES_TEMPLATE)`."""


_STATEMENT = re.compile(
    r"\b(?:remember|always|never|prefer|from now on|keep in mind|do ?n[o']t ever|note for later)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_LOG = logging.getLogger("promptkit")


class MemoryExtractionHook(CompactionHooks):
    """A hook that writes the memories from what each checkpoint covers to files, once for each checkpoint.

    Memories that the summarizer listed in its answer, as GSV's does, are written. Otherwise they
    are extracted.

    Args:
        transcript: The conversation.
        extractor: Extracts the memories of a checkpoint whose summary came without a list. None:
            there are none then.
        directory: Where they are written.
        now: Returns the current time.
    """

    def __init__(
        self,
        transcript: Transcript,
        *,
        extractor: MemoryExtractor | None = None,
        directory: MemoryDirectory,
        now: Callable[[], datetime],
    ) -> None:
        self._transcript = transcript
        self._extractor = extractor
        self._directory = directory
        self._now = now

    async def post_compact(self, checkpoint: Entry) -> None:
        """Extract and write the memories. Nothing is extracted if that was done before."""
        if not isinstance(checkpoint.payload, Checkpoint) or await asyncio.to_thread(
            self._directory.has, checkpoint.id
        ):
            return
        memories = await self._find_memories(checkpoint, checkpoint.payload.facts)
        if memories:
            await asyncio.to_thread(
                self._directory.append, memories, key=checkpoint.id, now=self._now()
            )

    async def _find_memories(self, checkpoint: Entry, facts: Mapping[str, Json]) -> tuple[str, ...]:
        listed = facts.get(MEMORIES)
        if isinstance(listed, str):
            return parse_bullets(listed)
        items = find_covered_items(self._transcript.path(checkpoint.id), checkpoint.id)
        return await self._extractor.extract(items) if items and self._extractor is not None else ()


class MemoryExtractor(Protocol):
    """Extracts memories from messages."""

    async def extract(self, items: Sequence[ViewItem]) -> tuple[str, ...]:
        """Return the memories, oldest first. May raise any error."""
        ...


@attrs.frozen
class StatedMemoryExtractor:
    """Extracts what the user asked to remember, in the user's own words: "always …", "never …", "I prefer …".

    Needs no model.
    """

    async def extract(self, items: Sequence[ViewItem]) -> tuple[str, ...]:
        """Return the sentences."""
        texts = (item.message.text for item in items if is_user_request(item))
        sentences = (sentence.strip() for text in texts for sentence in _SENTENCE.split(text))
        return tuple(
            dict.fromkeys(sentence for sentence in sentences if _STATEMENT.search(sentence))
        )


@attrs.frozen(kw_only=True)
class SummarizingMemoryExtractor:
    """Has a summarizer list the memories of one chunk of messages after the other.

    A chunk is skipped if the summarizer fails for it, or if it is a single block larger than
    `max_chunk_tokens`. The memories of other chunks are kept.
    """

    summarizer: Summarizer
    """Answers with a list, such as a `SimpleSummarizer` with MEMORIES_TEMPLATE."""
    tokenizer: Tokenizer
    chunk_tokens: int
    """Tokens of the conversation that are read at once."""
    max_chunk_tokens: int
    """A chunk with more tokens is skipped."""
    max_tokens: int = 1_000
    """Token limit of the list of one chunk."""
    redactor: Redactor | None = None
    """Removes secrets from what the summarizer gets and from its lists."""
    seconds: float | None = WAIT_SECONDS
    """The longest time that the list of one chunk may take; None: no limit."""

    async def extract(self, items: Sequence[ViewItem]) -> tuple[str, ...]:
        """Return the memories. Raises the last failure if the summarizer failed for every chunk."""
        memories: dict[str, None] = {}
        failure: Exception | None = None
        answered = False
        for chunk, tokens in self._split(items):
            if tokens > self.max_chunk_tokens:
                _LOG.warning(
                    "skipped %d messages of %d tokens when extracting memories: the limit is %d tokens",
                    len(chunk),
                    tokens,
                    self.max_chunk_tokens,
                )
                continue
            task = SummaryTask(
                plan=Plan(leaf=chunk[-1].entry_id, dropped=chunk),
                max_tokens=self.max_tokens,
                seconds=self.seconds,
            )
            try:
                summary = await summarize_within_limits(
                    self.summarizer,
                    task if self.redactor is None else redact_task(task, self.redactor),
                )
            except (SummaryError, ModelError) as error:
                _LOG.warning("could not extract memories from %d messages: %s", len(chunk), error)
                failure = error
                continue
            answered = True
            memories.update(
                dict.fromkeys(
                    parse_bullets(
                        (
                            summary
                            if self.redactor is None
                            else redact_summary(summary, self.redactor)
                        ).text
                    )
                )
            )
        if failure is not None and not answered:
            raise failure
        return tuple(memories)

    def _split(self, items: Sequence[ViewItem]) -> Iterator[tuple[tuple[ViewItem, ...], int]]:
        count = Sizer(self.tokenizer).count_message
        chunk: list[ViewItem] = []
        tokens_so_far = 0
        for start, end in split_blocks([item.message for item in items]):
            tokens = sum(count(item.message) for item in items[start:end])
            if chunk and tokens_so_far + tokens > self.chunk_tokens:
                yield tuple(chunk), tokens_so_far
                chunk, tokens_so_far = [], 0
            chunk.extend(items[start:end])
            tokens_so_far += tokens
        if chunk:
            yield tuple(chunk), tokens_so_far
