"""Files that compactions write: archives and memories.

* Archives of what a compaction drops from the view: a file for each checkpoint, `0001-….jsonl.gz`, with records as in a
  transcript's file. The transcript keeps these entries, too. `JsonlStore.archive` moves them out of the transcript's own
  file.
* Memories: what other conversations should know, extracted from messages that a checkpoint or a reset removes from the
  view. They are kept in a folder: `2026-01-02.md` for each day, and `MEMORY.md`, which the user edits. A day's file has
  one memory per line, in sections. Each section has the key of what its memories were extracted from.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Protocol

import attrs
from filelock import FileLock

from promptkit.compaction.planning.blocks import (
    find_covered_entries,
    find_covered_items,
    is_user_request,
)
from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.policy.state import WAIT_SECONDS
from promptkit.compaction.run.compactor import Compactor, DraftSummary
from promptkit.compaction.run.hooks import CompactionHooks, PreCompactResult
from promptkit.compaction.run.replacement import ReplacementMessages
from promptkit.compaction.summarizers.fallback import summarize_within_limits
from promptkit.compaction.summarizers.prompts import neutralize_tags
from promptkit.compaction.summarizers.summarizer import (
    Summarizer,
    redact_summary,
    redact_task,
)
from promptkit.files import replace_file
from promptkit.messages import Json, Message
from promptkit.reprs import describe
from promptkit.sizes import read_tokens
from promptkit.transcript import Checkpoint, Entry, Redactor, Transcript, ViewItem
from promptkit.transcript.stores.jsonl.format import (
    ARCHIVE_SUFFIX,
    Header,
    encode_batch,
    encode_header,
)


@attrs.frozen(eq=False, repr=False)
class _Directory:
    """The common part of folders of archives and of memories."""

    folder: Path

    def __repr__(self) -> str:
        return describe(self, folder=str(self.folder))


@attrs.frozen(eq=False, repr=False)
class ArchiveDirectory(_Directory):
    """A folder of archives.

    The same entries are archived once. Several processes may share the folder.

    Args:
        folder: The folder. It is created when the first archive is written.
    """

    @property
    def files(self) -> tuple[Path, ...]:
        """The archives, oldest first."""
        # `glob` would take a folder that may not be listed for an empty one
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        matches = ((path, _NAME.fullmatch(path.name)) for path in paths)
        return tuple(
            path for _, path in sorted((int(match[1]), path) for path, match in matches if match)
        )

    def write(self, entries: Sequence[Entry]) -> Path | None:
        """Write entries durably into a new archive.

        Returns:
            The archive. None if one with the same entries exists.

        Raises:
            OSError: The archive could not be written.
            TranscriptError: An entry cannot be written as JSON.
        """
        digest = hashlib.sha256("\0".join(entry.id for entry in entries).encode()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / LOCK, timeout=LOCK_SECONDS):
            files = self.files
            if any(path.name.endswith(f"-{digest}{ARCHIVE_SUFFIX}") for path in files):
                return None
            number = 1 + max((int(path.name.split("-")[0]) for path in files), default=0)
            path = self.folder / f"{number:04}-{digest}{ARCHIVE_SUFFIX}"

            def fill(file: BinaryIO) -> None:
                # Without a file name and a time, the same entries always give the same bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as gzipped:
                    gzipped.write(encode_header(Header()))
                    for entry in entries:
                        gzipped.write(encode_batch([entry]))

            replace_file(path, fill)
        return path


class ArchivingCompactor(Compactor):
    """A compactor that writes what a checkpoint drops into an archive before it writes the checkpoint.

    If the checkpoint fails, the archive is deleted.
    """

    archives: ArchiveDirectory | None = None
    """Where archives are written. None: nothing is archived."""

    def _write(
        self, draft: DraftSummary, replaced: ReplacementMessages, files: tuple[Message, ...]
    ) -> Entry | None:
        """Archive what the checkpoint drops, and append the checkpoint.

        If the archive cannot be written, the checkpoint is not written either. Nothing is awaited
        in between: a cancellation would leave one of them without the other.
        """
        if self.archives is None:
            return super()._write(draft, replaced, files)
        planned = Checkpoint(summary=draft.summary.text, first_kept=draft.plan.first_kept)
        path = self.transcript.path()
        # messages that were added after the plan was made are kept
        if draft.plan.first_kept is None:
            ids = [entry.id for entry in path]
            path = path[: ids.index(draft.plan.leaf) + 1] if draft.plan.leaf in ids else ()
        archive, entry = self.archives.write(find_covered_entries(path, planned)), None
        try:
            entry = super()._write(draft, replaced, files)
        finally:
            if entry is None and archive is not None:
                archive.unlink(missing_ok=True)
        return entry


LOCK = ".lock"
LOCK_SECONDS = 10.0
"""The longest wait for another process that writes into the same folder."""

_NAME = re.compile(rf"(\d{{4,}})-([0-9a-f]{{16}}){re.escape(ARCHIVE_SUFFIX)}")


CURATED_FILE = "MEMORY.md"
"""The file that the user edits."""

MAX_MEMORY_CHARACTERS = 500
"""Characters of one memory. The end of a longer one is cut."""

MAX_RECENT_CHARACTERS = 20_000
"""Characters that `MemoryDirectory.load` returns of the two days' files."""

DAILY_PATTERN = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].md"
_COMMENT = re.compile(r"\s*<!-- \{[^\n]*\} -->\s*")
_BULLET = re.compile(r"^\s{0,12}(?:[-*•]|\d{1,3}[.)])\s+(\S.*)$", re.MULTILINE)
_WORD = re.compile(r"[^\W_]+")
_EMPTY_ANSWERS = frozenset({"none", "nothing", "n a", "no memories", "nothing to remember"})
_STATEMENT = re.compile(
    r"\b(?:remember|always|never|prefer|from now on|keep in mind|do ?n[o']t ever|note for later)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


@attrs.frozen(eq=False, repr=False)
class MemoryExtractionHook(CompactionHooks):
    """A hook that writes the memories from what each checkpoint covers to files, once for each checkpoint.

    If the summarizer lists memories in its answer, as GSV's does, it is shown those that are written
    down already, and its list is written. Otherwise the extractor is asked.

    Args:
        transcript: The conversation.
        extractor: Extracts the memories of a checkpoint whose summary came without a list. None:
            nothing is written then.
        directory: The folder for the memories.
        now: Returns the current time.
    """

    # type checkers other than mypy know the parameters' names by the aliases alone
    _transcript: Transcript = attrs.field(alias="transcript")
    _extractor: MemoryExtractor | None = attrs.field(default=None, kw_only=True, alias="extractor")
    _directory: MemoryDirectory = attrs.field(kw_only=True, alias="directory")
    _now: Callable[[], datetime] = attrs.field(kw_only=True, alias="now")

    async def pre_compact(
        self, plan: Plan, *, trigger: str, instructions: str | None
    ) -> PreCompactResult:
        """Return the memories that are written down already."""
        return PreCompactResult(known_memories=await self._read_known())

    async def _read_known(self) -> tuple[str, ...]:
        return await asyncio.to_thread(self._directory.list_recent, self._now().date())

    async def post_compact(self, checkpoint: Entry) -> None:
        """Extract and write the memories, unless that was done before."""
        payload, key, directory = checkpoint.payload, checkpoint.id, self._directory
        if not isinstance(payload, Checkpoint) or await asyncio.to_thread(directory.has, key):
            return
        memories = await self._find_memories(checkpoint, payload.facts)
        await asyncio.to_thread(directory.append, memories, key=key, now=self._now())

    async def _find_memories(self, checkpoint: Entry, facts: Mapping[str, Json]) -> tuple[str, ...]:
        listed = facts.get("memories")
        if isinstance(listed, str):
            return parse_bullets(listed)
        items = find_covered_items(self._transcript.path(checkpoint.id), checkpoint.id)
        return (
            await self._extractor.extract(items, known=await self._read_known())
            if items and self._extractor is not None
            else ()
        )


class MemoryExtractor(Protocol):
    """Extracts memories from messages."""

    async def extract(
        self, items: Sequence[ViewItem], *, known: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Return the memories, oldest first. May raise any error.

        Args:
            items: The messages.
            known: Memories that are written down already, oldest first.
        """
        ...


@attrs.frozen
class StatedMemoryExtractor:
    """Extracts what the user asked to remember, in the user's own words: "always …", "never …", "I prefer …".

    Needs no model.
    """

    async def extract(
        self, items: Sequence[ViewItem], *, known: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Return the sentences, also those that are known: the directory writes none twice."""
        sentences = (
            sentence.strip()
            for item in items
            if is_user_request(item)
            for sentence in _SENTENCE.split(item.message.text)
        )
        return tuple(dict.fromkeys(filter(_STATEMENT.search, sentences)))


@attrs.frozen(kw_only=True)
class SummarizingMemoryExtractor:
    """Has a summarizer's model list the memories beside a summary, which is not used.

    >>> SummarizingMemoryExtractor(summarizer=ChunkedSummarizer(model=model, window=128_000))
    """

    summarizer: Summarizer
    """Asks the model. A `ChunkedSummarizer` reads conversations of any length."""
    max_tokens: int = attrs.field(default=1_000, converter=read_tokens)
    """Token limit of the summary."""
    redactor: Redactor | None = None
    """Removes secrets from what the summarizer gets and from its list."""

    async def extract(
        self, items: Sequence[ViewItem], *, known: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Return the memories.

        Args:
            items: The messages.
            known: Memories that are written down already. The model is shown them.

        Raises:
            SummaryError: The summarizer failed.
        """
        task = SummaryTask(
            plan=Plan(leaf=items[-1].entry_id, dropped=tuple(items)),
            max_tokens=self.max_tokens,
            memories=True,
            known_memories=tuple(known),
            seconds=WAIT_SECONDS,
        )
        summary = await summarize_within_limits(self.summarizer, redact_task(task, self.redactor))
        return parse_bullets(redact_summary(summary, self.redactor).facts.memories or "")


@attrs.frozen(eq=False, repr=False)
class MemoryDirectory(_Directory):
    """A folder of memories. Several processes may share it.

    Args:
        folder: The folder. It is created when the first memory is written.
    """

    def has(self, key: str) -> bool:
        """Return whether memories with this key were written, on any day. Raises OSError."""
        return any(
            _format_key(key) in _read(path).splitlines() for path in self.folder.glob(DAILY_PATTERN)
        )

    def append(self, memories: Sequence[str], *, key: str, now: datetime) -> Path | None:
        """Write new memories into the day's file.

        Memories in the files of today and yesterday are not written again.

        Args:
            memories: The memories.
            key: Identifies what they were taken from. A second call with the same key changes
                nothing.
            now: The current time.

        Returns:
            The day's file, or None if there was nothing new.

        Raises:
            OSError: The file could not be written. It is unchanged.
        """
        if not memories:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / LOCK, timeout=LOCK_SECONDS):
            if self.has(key):
                return None
            path = self.folder / daily_file_name(now.date())
            text = _read(path)
            yesterday = _read(self.folder / daily_file_name(now.date() - timedelta(days=1)))
            new = merge_memories(text, memories, key=key, at=now, known=parse_memories(yesterday))
            if new == text:
                return None
            content = new.encode("utf-8", "backslashreplace")
            replace_file(path, lambda file: file.write(content), locked=True)
        return path

    def list_recent(self, today: date) -> tuple[str, ...]:
        """Return the memories of yesterday and today, oldest first. Raises OSError."""
        return tuple(
            memory
            for day in (today - timedelta(days=1), today)
            for memory in parse_memories(_read(self.folder / daily_file_name(day)))
        )

    def load(self, today: date, *, include_curated: bool) -> str:
        """Return the memories to show to a model: MEMORY.md, then yesterday's file and today's.

        Of the files of both days, the newest lines of at most 20,000 characters are returned.

        Args:
            today: The current day.
            include_curated: Include MEMORY.md in full. It may contain private facts about one user,
                so include it only in conversations with that user.

        Raises:
            OSError: A file cannot be read.
        """
        files = (
            strip_comments(_read(self.folder / daily_file_name(day)))
            for day in (today - timedelta(days=1), today)
        )
        recent = "\n\n".join(filter(None, files))
        if len(recent) > MAX_RECENT_CHARACTERS:
            recent = recent[-MAX_RECENT_CHARACTERS - 1 :].partition("\n")[2]
        curated = strip_comments(_read(self.folder / CURATED_FILE)) if include_curated else ""
        return "\n\n".join(filter(None, (curated, recent)))


def daily_file_name(day: date) -> str:
    """Return the name of a day's file.

    >>> daily_file_name(date(2026, 1, 2))
    '2026-01-02.md'
    """
    return f"{day:%Y-%m-%d}.md"


def parse_bullets(text: str) -> tuple[str, ...]:
    """Return the items of a list, each in one line.

    An item that only says that there is nothing is ignored.
    """
    return tuple(
        point
        for point in (_format_memory(match[1]) for match in _BULLET.finditer(text))
        if (normalized := _normalize(point)) and normalized not in _EMPTY_ANSWERS
    )


def parse_memories(text: str) -> tuple[str, ...]:
    """Return the memories in a day's file."""
    return tuple(line[2:] for line in text.splitlines() if line.startswith("- "))


def merge_memories(
    text: str, memories: Sequence[str], *, key: str, at: datetime, known: Iterable[str] = ()
) -> str:
    """Add memories to a day's file, under a heading with the time.

    The text is returned unchanged if no memory is new. Memories that differ only in case, spaces
    and punctuation are the same.

    Args:
        text: The day's file; may be empty.
        memories: The memories to add.
        key: Identifies what the memories were taken from.
        at: The time.
        known: Memories of other files, which are not added again.
    """
    seen = set(map(_normalize, (*parse_memories(text), *known)))
    new: dict[str, str] = {}
    for line in map(_format_memory, memories):
        new.setdefault(_normalize(line), line)
    lines = [f"- {line}" for same, line in new.items() if same and same not in seen]
    if not lines:
        return text
    section = "\n".join([f"## {at:%H:%M}", "", _format_key(key), "", *lines])
    return f"{text.rstrip() or f'# {at:%Y-%m-%d}'}\n\n{section}\n"


def strip_comments(text: str) -> str:
    """Remove the comments, which the model is not shown."""
    lines = (line for line in text.splitlines() if not _COMMENT.fullmatch(line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _format_memory(text: str) -> str:
    """Return a memory in one line, with its tags neutralized."""
    line = neutralize_tags(" ".join(text.split()))
    return line if len(line) <= MAX_MEMORY_CHARACTERS else f"{line[: MAX_MEMORY_CHARACTERS - 1]}…"


def _normalize(memory: str) -> str:
    return " ".join(_WORD.findall(memory.casefold()))


def _read(path: Path) -> str:
    """Return the text of a file, or an empty text if it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _format_key(key: str) -> str:
    r"""Write a key as an HTML comment in one line.

    Two hyphens in the key are escaped, so that they cannot end the comment.

    >>> _format_key("--> a")
    '<!-- {"key": "-\\u002d> a"} -->'
    """
    text = json.dumps({"key": key}).replace("--", "-\\u002d")
    return f"<!-- {text} -->"
