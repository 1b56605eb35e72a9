"""Import of another agent's recording: recognize its format, read it, count it, and write it as a transcript."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

import attrs

from promptkit.errors import TranscriptError, TranscriptFormatError, TranscriptWriteError
from promptkit.files import write_output
from promptkit.lab.recordings.formats.chat_messages import (
    AnthropicFormat,
    MiniSweAgentFormat,
    OpenAIChatFormat,
    OpenHandsFormat,
    SweAgentFormat,
    TauBenchFormat,
)
from promptkit.lab.recordings.formats.claude_code import ClaudeCodeFormat
from promptkit.lab.recordings.formats.codex import CodexFormat
from promptkit.lab.recordings.formats.gemini_cli import GeminiCliFormat
from promptkit.lab.recordings.formats.pi import PiFormat
from promptkit.lab.recordings.reading.files import (
    MAX_RECORD_BYTES,
    Batch,
    FileHead,
    RecordingFormat,
    RecordingSource,
    has_long_start,
    open_source,
    read_head,
)
from promptkit.lab.recordings.reading.remote import fetch_file
from promptkit.lab.recordings.reading.values import as_object, as_text
from promptkit.messages import ImagePart, Message, OpaquePart
from promptkit.reprs import describe_fields
from promptkit.tools import is_error_result
from promptkit.transcript import (
    BranchSummary,
    Checkpoint,
    CustomEntry,
    CustomMessage,
    Entry,
    JsonlStore,
    MessageEntry,
    Observation,
    ReadProblem,
)
from promptkit.transcript.stores.addresses import (
    create_conversation,
    is_conversation,
    is_url,
    open_reader,
)
from promptkit.transcript.stores.jsonl.format import Header, encode_batch, encode_header
from promptkit.transcript.stores.jsonl.reader import (
    StoredEntry,
    TranscriptReader,
    scan_archive,
)


class PromptkitFormat:
    """Read promptkit's transcripts with their archives. Each root is a conversation."""

    name = "promptkit"

    def matches(self, head: FileHead) -> bool:
        """Return whether the first line is the header of a transcript."""
        return bool(head.records) and head.records[0].get("promptkit") == "transcript"

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a file, one by one."""
        return batches_from_items(
            # A compressed file is read without the archives that it names.
            scan_archive(iter(source.open().readline, b""), source.path)
            if source.is_compressed
            else TranscriptReader(Path(source.path))
        )


def batches_from_items(items: Iterable[StoredEntry | ReadProblem]) -> Iterator[Batch]:
    """Yield the entries of a transcript, one by one, each once."""
    seen: set[str] = set()
    roots: set[str] = set()  # ids of entries without a message on their path
    for item in items:
        if not isinstance(item, StoredEntry):
            yield Batch(entries=[], skipped=(item,))
            continue
        entry = item.entry
        if entry.id in seen:
            continue
        seen.add(entry.id)
        is_message = isinstance(entry.payload, MessageEntry | CustomMessage) or (
            isinstance(entry.payload, Checkpoint | BranchSummary) and bool(entry.payload.summary)
        )
        at_root = entry.parent_id is None or entry.parent_id in roots
        if at_root and not is_message:
            roots.add(entry.id)
        yield Batch(
            entries=[entry], messages=int(is_message), conversations=int(at_root and is_message)
        )


FORMATS: dict[str, type[RecordingFormat]] = {
    recording_format.name: recording_format
    for recording_format in (
        PromptkitFormat,
        ClaudeCodeFormat,
        PiFormat,
        CodexFormat,
        GeminiCliFormat,
        TauBenchFormat,
        SweAgentFormat,
        MiniSweAgentFormat,
        OpenHandsFormat,
        AnthropicFormat,
        OpenAIChatFormat,
    )
}
"""The formats by name. A format whose files also match a more general one comes before that one."""

AUTO = "auto"
"""The format name that means: recognize the format."""

MAX_LISTED_PROBLEMS = 20
"""Problems of each kind that an import reports one by one."""


THINKING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning", "thought"})
"""The types of opaque parts that hold a model's thinking."""

CALLED, REPEATED, ANSWERED = 1, 2, 4
"""What is known of a tool call id, as bits: a call has it, several calls have it, a tool result has
it."""


@attrs.frozen(kw_only=True)
class RecordingCounts:
    """The counts of a recording. docs/importing.md explains each of them."""

    conversations: int = 0
    """Conversations in the recording."""
    messages: int = 0
    """Messages as the recording counts them."""
    tool_calls: int = 0
    """Tool calls."""
    tool_results: int = 0
    """Tool results."""
    unanswered: int = 0
    """Tool call ids without a result."""
    orphaned: int = 0
    """Ids of tool results without a call."""
    repeated_ids: int = 0
    """Ids that several tool calls of one conversation have."""
    images: int = 0
    """Images in messages."""
    thinking: int = 0
    """Parts with a model's thinking."""
    compactions: int = 0
    """Checkpoints."""
    tool_errors: int = 0
    """Tool results that are marked as errors."""
    attachments: int = 0
    """What the recording has beside its messages, and the model was shown: attachments, queued
    commands, last answers of subagents."""
    skipped_lines: int = 0
    """Lines that could not be read."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class ImportResult:
    """The result of an import."""

    format: str
    """The name of the format."""
    counts: RecordingCounts
    """The counts of the recording."""
    entries: int
    """Entries of the transcript."""
    kept_by_name: Mapping[str, int]
    """The number of custom entries and observations by name, most frequent first: what was kept
    unchanged."""
    skipped: tuple[ReadProblem, ...] = ()
    """The first lines that could not be read; `counts.skipped_lines` is the number of all of
    them."""
    relocated: tuple[ReadProblem, ...] = ()
    """The first lines whose parent is missing, and which were therefore placed elsewhere."""
    relocated_count: int = 0
    """The number of all lines that were placed elsewhere."""

    __repr__ = describe_fields


def import_recording(
    path: Path | str,
    out: Path | str | None = None,
    *,
    format_name: str = AUTO,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ImportResult:
    """Read a recording, count it and write it as a transcript.

    The transcript is written completely or not at all.

    Args:
        path: The recording, compressed with gzip or not, as a path or as a URL of a file, or the
            URL of a transcript.
        out: The transcript to write, a file or a URL. None: only count.
        format_name: The format of the recording, a name in `FORMATS`. By default it is recognized.
        overwrite: Whether to replace `out` if it exists.
        progress: Called with the bytes that were read and the size of the file, after each batch.

    Returns:
        The counts, and what could not be read.

    Raises:
        TranscriptFormatError: The file has no known format, or nothing in it can be read.
        TranscriptError: The file cannot be opened, or there is no format `format_name`.
        TranscriptWriteError: `out` exists and `overwrite` is off, or it cannot be written.

    >>> import_recording(Path("session.jsonl"), Path("talk.jsonl")).counts.messages
    """
    totals = RecordingTotals()
    entries = totals.read_entries(read_recording(path, format_name=format_name, progress=progress))
    if out is None:
        deque(entries, maxlen=0)
        return totals.result
    if isinstance(out, str) and is_url(out):
        if overwrite:
            raise TranscriptWriteError(
                "--force replaces files, and no conversation: write another id after the #.",
                file=out,
            )
        create_conversation(out, list(entries))
        return totals.result
    out = Path(out)
    special = out.exists() and not (out.is_file() or out.is_dir())
    if out.exists() and not overwrite and not special:
        raise TranscriptWriteError(
            "the file already exists: name another file, or pass --force to replace it.",
            file=str(out),
        )
    store = JsonlStore(out)
    if out.exists() and not is_url(path) and store.path == Path(path).resolve():
        raise TranscriptWriteError(
            "this is the recording itself: name another file.", file=str(out)
        )

    def write(file: BinaryIO) -> None:
        file.write(encode_header(Header()))
        file.writelines(encode_batch([entry]) for entry in entries)

    # A device, such as /dev/null, has no other writers, and no lock file can be created beside it.
    with nullcontext() if special else store.lock():
        try:
            write_output(store.path, write, locked=not special)
        except OSError as error:
            raise TranscriptWriteError(
                f"nothing was written: {error.strerror}.", file=str(out)
            ) from error
    return totals.result


class RecordingTotals:
    """Add up what the batches of a recording hold. Keeps only tool call ids in memory."""

    def __init__(self) -> None:
        self._format_name = ""
        self._figures: defaultdict[str, int] = defaultdict(int)
        self._calls: dict[tuple[str, str], int] = {}
        self._kept: Counter[str] = Counter()
        self._entries = self._relocated_count = 0
        self._skipped: list[ReadProblem] = []
        self._relocated: list[ReadProblem] = []

    def read_entries(self, batches: Iterable[tuple[RecordingFormat, Batch]]) -> Iterator[Entry]:
        """Yield the entries of batches, and add them up on the way."""
        figures = self._figures
        for recording_format, batch in batches:
            self._format_name = recording_format.name
            figures["conversations"] += batch.conversations
            figures["messages"] += batch.messages
            figures["attachments"] += batch.attachments
            figures["skipped_lines"] += len(batch.skipped)
            self._skipped += batch.skipped[: MAX_LISTED_PROBLEMS - len(self._skipped)]
            self._relocated += batch.relocated[: MAX_LISTED_PROBLEMS - len(self._relocated)]
            self._relocated_count += len(batch.relocated)
            self._entries += len(batch.entries)
            for entry in batch.entries:
                payload = entry.payload
                if isinstance(payload, (MessageEntry, CustomMessage)):
                    self._add_message(payload.message, batch.call_id_scope)
                elif isinstance(payload, (CustomEntry, Observation)):
                    self._kept[payload.name] += 1
                elif isinstance(payload, Checkpoint):
                    figures["compactions"] += 1
                yield entry

    @property
    def result(self) -> ImportResult:
        """The totals of all batches that were read."""
        states = Counter(self._calls.values())
        return ImportResult(
            format=self._format_name,
            counts=RecordingCounts(
                **self._figures,
                unanswered=sum(
                    count
                    for state, count in states.items()
                    if state & CALLED and not state & ANSWERED
                ),
                orphaned=states[ANSWERED],
                repeated_ids=sum(count for state, count in states.items() if state & REPEATED),
            ),
            entries=self._entries,
            kept_by_name=dict(self._kept.most_common()),
            skipped=tuple(self._skipped),
            relocated=tuple(self._relocated),
            relocated_count=self._relocated_count,
        )

    def _add_message(self, message: Message, scope: str) -> None:
        figures = self._figures
        for part in message.content:
            if isinstance(part, OpaquePart):
                figures["thinking"] += as_text(as_object(part.value).get("type")) in THINKING_TYPES
            elif isinstance(part, ImagePart):
                figures["images"] += 1
        for call in message.tool_calls:
            figures["tool_calls"] += 1
            state = self._calls.get((scope, call.id), 0)
            self._calls[scope, call.id] = state | (REPEATED if state & CALLED else CALLED)
        if message.role == "tool":
            figures["tool_results"] += 1
            figures["tool_errors"] += is_error_result(message)
            key = (scope, message.tool_call_id or "")
            self._calls[key] = self._calls.get(key, 0) | ANSWERED


def read_recording(
    path: Path | str,
    *,
    format_name: str = AUTO,
    progress: Callable[[int, int], None] | None = None,
    address: str | None = None,
) -> Iterator[tuple[RecordingFormat, Batch]]:
    """Read a recording batch by batch, without keeping the whole file in memory.

    If a file breaks off after messages, the messages before are yielded, and the last batch reports
    the rest as skipped.

    Args:
        path: The recording, compressed with gzip or not, as a path or as a URL of a file, or the
            URL of a transcript.
        format_name: The format of the recording, a name in `FORMATS`. By default it is recognized.
        progress: Called with the bytes that were read and the size of the file, after each batch.
        address: How errors name the file, if it is a copy of another one. By default `path`.

    Yields:
        The format that reads the file, and a batch.

    Raises:
        TranscriptFormatError: The file has no known format, or nothing in it can be read.
        TranscriptError: The file cannot be opened, or there is no format `format_name`.
    """
    if isinstance(path, str) and is_conversation(path):
        for batch in batches_from_items(open_reader(path)):
            yield PromptkitFormat(), batch
        return
    with fetch_file(path) as file:
        yield from _read_file(Path(file), address or str(path), format_name, progress)


def _read_file(
    path: Path, address: str, format_name: str, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[RecordingFormat, Batch]]:
    with open_source(path, address=address) as source:
        if format_name not in (AUTO, *FORMATS):
            raise TranscriptError(
                f"there is no format {format_name!r}. Known formats are {', '.join(FORMATS)}."
            )
        recording_format = detect_format(source) if format_name == AUTO else FORMATS[format_name]()
        messages = 0
        try:
            for batch in recording_format.read(source):
                messages += batch.messages
                yield recording_format, batch
                if progress:
                    progress(source.position, source.size)
        except (TranscriptFormatError, OSError) as error:
            if not messages:
                raise
            detail = f"the rest of the file could not be read: {error}"
            yield recording_format, Batch(entries=[], skipped=(ReadProblem(line=1, detail=detail),))


def detect_format(source: RecordingSource) -> RecordingFormat:
    """Recognize the format of a file. Raises TranscriptFormatError if no format matches."""
    head = read_head(source)
    for make_format in FORMATS.values():
        if (recording_format := make_format()).matches(head):
            return recording_format
    raise TranscriptFormatError(
        "the file is empty."
        if not source.open().read(1)
        else f"its first line has more than {MAX_RECORD_BYTES:,} bytes, so the format cannot be detected. `promptkit import --format NAME` reads it as one of {', '.join(FORMATS)}."
        if has_long_start(source)
        else f"the file has no known format. Known formats are {', '.join(FORMATS)}. `promptkit import --format NAME` reads it as one of them.",
        file=source.path,
    )
