"""Files of recordings: opened, compressed or not, recognized by their beginning, and read batch by batch.

Values of JSON files that are too large for memory are read piece by piece; this is the only module
that imports ijson. Formats share the base of those whose files are JSON texts with conversations,
ids that are unique, and chains of entries.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

import attrs
import ijson

from promptkit.errors import TranscriptError, TranscriptFormatError
from promptkit.files import MAX_LINE_BYTES, read_gzip
from promptkit.lab.recordings.reading.values import (
    JsonObject,
    as_object,
    is_too_deep,
    keep_bad_line,
    parse_number,
    parse_objects,
    read_chat_message,
)
from promptkit.messages import Json
from promptkit.transcript import (
    CustomEntry,
    Entry,
    EntryPayload,
    Label,
    MessageEntry,
    ReadProblem,
    Setting,
)

GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_source(path: Path, *, address: str | None = None) -> Generator[RecordingSource]:
    """Open a recording.

    Raises TranscriptError, with a message of one line, if it cannot be opened or read.

    `address` is how errors name the file; by default its path.
    """
    try:
        if path.is_dir():
            raise TranscriptError(f"{path} is a directory: name a file in it.")
        with path.open("rb") as raw:
            yield RecordingSource(
                raw,
                path=address or str(path),
                name=path.name.removesuffix(".gz"),
                size=path.stat().st_size,
            )
    except FileNotFoundError as error:
        raise TranscriptError(f"there is no file {path}.") from error
    except OSError as error:
        raise TranscriptError(f"{path} cannot be read: {error.strerror or error}.") from error


class RecordingSource:
    """A recording.

    `name` is the file's name without the suffix of compression; `size` is its size on the disk, in
    bytes.
    """

    def __init__(self, raw: BinaryIO, *, path: str, name: str, size: int) -> None:
        self._raw = raw
        self.path = path
        self.name = name
        self.size = size

    @property
    def position(self) -> int:
        """How many of its bytes on the disk have been read, for showing progress."""
        return self._raw.tell()

    def open(self) -> Readable:
        """Return the uncompressed content from the beginning, without a byte order mark."""
        file = self._content()
        return file if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else self._content()

    def _content(self) -> Readable:
        compressed = self.is_compressed
        self._raw.seek(0)
        return _GzipReader(self._raw, self.path) if compressed else self._raw

    @property
    def is_compressed(self) -> bool:
        """Whether the file is compressed with gzip."""
        self._raw.seek(0)
        return self._raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC

    @cached_property
    def has_long_number(self) -> bool:
        """True if the file contains more digits in a row than Python converts to a number."""
        if not (limit := sys.get_int_max_str_digits()):
            return False
        file, long_number, before = self.open(), b"0" * limit, b""
        with suppress(TranscriptFormatError):  # the parser will report it
            while chunk := file.read(SEARCH_CHUNK_BYTES):
                searched = before + chunk.translate(_DIGITS)
                if long_number in searched:
                    return True
                before = searched[-limit:]
        return False

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines, numbered from 1.

        Only a line feed ends a line; texts may contain other line breaks.
        """
        read_line = partial(self.open().readline, MAX_LINE_BYTES)
        return enumerate(iter(read_line, b""), 1)


class _GzipReader:
    """The content of a compressed file. TranscriptFormatError is raised if it is damaged or cut short."""

    def __init__(self, raw: BinaryIO, path: str) -> None:
        self._file = read_gzip(raw)
        self._path = path

    def read(self, size: int = -1, /) -> bytes:
        with self._translate_errors():
            return self._file.read(size)

    def readline(self, size: int = -1, /) -> bytes:
        with self._translate_errors():
            return self._file.readline(size)

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TranscriptFormatError(
                f"the compressed data is damaged or cut short: {error}", file=self._path
            ) from error


Readable: TypeAlias = BinaryIO | _GzipReader
"""The content of a recording."""

JsonPath: TypeAlias = tuple[str | int, ...]
"""The path of a value: the index of the JSON text in the file, then the keys and list indices that
lead to the value."""

CHUNK_BYTES = 1 << 16
"""Bytes that the parser reads at once. Within a long text they double, because the parser scans the
text again from its beginning."""

MAX_CHUNK_BYTES = 1 << 25

SEARCH_CHUNK_BYTES = 1 << 20
"""Bytes that are searched for long numbers at once."""

_DIGITS = bytes(
    ord("0") if chr(byte).isascii() and chr(byte).isdigit() else ord(" ") for byte in range(256)
)
"""Makes every digit a 0, and every other byte a space."""

MAX_WALK_DEPTH = 8
"""Levels of nested lists and objects that `walk_paths` reports. No format needs more to be
recognized."""

STARTS, ENDS = ("start_map", "start_array"), ("end_map", "end_array")


def split_members(
    source: RecordingSource, split: Callable[[JsonPath], bool]
) -> Iterator[tuple[JsonPath, Json]]:
    """Yield the values of a file with their paths, in file order.

    A value that is nested too deeply is replaced by a text that says so.

    Args:
        source: The file. It may hold several JSON texts, one after the other.
        split: Return whether the list or object at a path is to be yielded member by member instead
            of as a whole.

    Raises:
        TranscriptFormatError: The text stops being JSON. All values before were yielded.
    """
    path: list[str | int] = [-1]  # of the value before the next one, in the same list or object
    builder = ijson.ObjectBuilder()
    depth = 0  # open lists and objects of the value that is being built
    for event, token in _parse_events(source):
        if depth:
            builder.event(event, token)
            depth += (event in STARTS) - (event in ENDS)
            if not depth:
                value: Json = builder.value
                yield tuple(path), "nested too deeply" if is_too_deep(value) else value
        elif event == "map_key":
            path[-1] = str(token)
        elif event in ENDS:
            path.pop()
        else:
            if isinstance(last := path[-1], int):
                path[-1] = last + 1
            if event not in STARTS:
                yield tuple(path), token
            elif split(tuple(path)):
                path.append(-1 if event == "start_array" else "")
            else:
                builder, depth = ijson.ObjectBuilder(), 1
                builder.event(event, token)


def walk_paths(source: RecordingSource) -> Iterator[tuple[str, Json]]:
    """Yield the paths in a file, such as `messages.item.role`, with the value of each scalar, down to `MAX_WALK_DEPTH`.

    Raises TranscriptFormatError where the text stops being JSON.
    """
    path: list[str] = []
    for event, value in _parse_events(source):
        if event == "map_key":
            path[-1] = str(value)
        elif event in ENDS:
            path.pop()
        else:
            if len(path) <= MAX_WALK_DEPTH:
                yield ".".join(path), value
            if event in STARTS:
                path.append("item" if event == "start_array" else "")


def _parse_events(source: RecordingSource) -> Iterator[tuple[str, Json]]:
    """Yield the events of the parser (`start_map`, `map_key`, `string` and so on) with their values.

    A file may hold several JSON texts, one after the other. Raises TranscriptFormatError where it
    stops being JSON, or where one text or number has more than `MAX_LINE_BYTES`.
    """
    with _translate_errors(source):
        events = ijson.sendable_list()
        # The fast parser crashes on a run of digits that is longer than Python's limit.
        create_parser = (
            ijson.get_backend("python").basic_parse_coro
            if source.has_long_number
            else ijson.basic_parse_coro
        )
        parser = create_parser(events, multiple_values=True)
        reader = _Utf8Reader(source.open())
        size, waiting = CHUNK_BYTES, 0
        while chunk := reader.read(size):
            try:
                parser.send(chunk)
            except (ijson.JSONError, ValueError):
                yield from _take(events)
                raise
            size, waiting = (
                (CHUNK_BYTES, 0)
                if events
                else (min(2 * size, MAX_CHUNK_BYTES), waiting + len(chunk))
            )
            yield from _take(events)
            if waiting > MAX_LINE_BYTES:
                raise TranscriptFormatError(
                    f"one value has more than {MAX_LINE_BYTES:,} bytes.", file=source.path
                )
        parser.close()  # raises an error if the text ends too early
        yield from _take(events)


def _take(events: list[ijson.Event]) -> Iterator[tuple[str, Json]]:
    """Yield the events so far, and forget them."""
    for event, value in events:
        yield event, parse_number(value) if isinstance(value, Decimal) else value
    del events[:]


@contextmanager
def _translate_errors(source: RecordingSource) -> Generator[None]:
    """Turn an error of the parser into one that names the file."""
    try:
        yield
    except (ijson.JSONError, ValueError) as error:
        reason = " ".join(str(error).split("\n", maxsplit=1)[0].split())
        raise TranscriptFormatError(
            f"the file stops being JSON ({reason}) at byte {source.position:,} or before.",
            file=source.path,
        ) from error


class _Utf8Reader:
    """Read the bytes of a file with replacement characters instead of invalid UTF-8, which the parser would refuse."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self, size: int = CHUNK_BYTES) -> bytes:
        """Return some bytes; none at the end.

        Continues reading if a chunk holds only a part of a character.
        """
        while size and (chunk := self._file.read(size)):
            if text := self._decoder.decode(chunk):
                return text.encode()
        return self._decoder.decode(b"", final=True).encode() if size else b""


class RecordingFormat(Protocol):
    """One pass through a recording of one agent."""

    name: str
    """The name of the format on the command line and in the names of custom entries."""

    def matches(self, head: FileHead) -> bool:
        """Return whether a file that begins like this has this format."""
        ...

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a recording in its order.

        Keeps ids and the answer that is being read, never the whole file.

        Raises TranscriptFormatError if the file stops being of this format. All batches before were
        yielded.
        """
        ...


@attrs.define(kw_only=True)
class Batch:
    """The entries of a part of a recording."""

    entries: list[Entry]
    """The entries, in the order in which they are written. A parent is before its children, in this
    batch or an earlier one."""
    messages: int = 0
    """Messages as the recording counts them: its own records, however many entries they became."""
    attachments: int = 0
    """What became messages without being one of the recording's."""
    conversations: int = 0
    """Conversations that begin in this batch."""
    call_id_scope: str = ""
    """The namespace of the tool call ids. Unrelated conversations have different ones."""
    skipped: tuple[ReadProblem, ...] = ()
    """Lines that could not be read. Custom entries keep their text."""
    relocated: tuple[ReadProblem, ...] = ()
    """Lines whose parent is missing, and which were therefore placed elsewhere."""


@attrs.frozen(kw_only=True)
class FileHead:
    """The beginning of a file, as far as it is needed to recognize its format."""

    name: str
    """The name of the file, without a directory."""
    records: tuple[JsonObject, ...]
    """The first lines that are JSON objects."""
    _source: RecordingSource = attrs.field(alias="source")

    @cached_property
    def json_paths(self) -> frozenset[str]:
        """Paths in the JSON text such as `messages.item.role`, some also with their value: `messages.item.role=user`.

        The members of a list are called `item`. A file that is not JSON has no paths. Finding them
        takes far longer than the lines, and most formats are recognized without them.
        """
        return frozenset(_find_paths(self._source))


MAX_RECORDS = 50
"""Lines with JSON objects that are looked at."""

MAX_RECORD_BYTES = 1 << 24
"""A longer line is not taken for a record, but for a JSON text of one line."""

MAX_STEPS = 200_000
"""Steps of the parser that are looked at: many megabytes of a recording."""

MAX_PATHS = 5_000
MAX_PATH_CHARACTERS = 120
"""Longer paths and values are ignored."""

FIELDS_WITH_VALUE = ("role", "type", "trajectory_format", "source")
"""Fields whose paths are also reported with their value."""


def read_head(source: RecordingSource) -> FileHead:
    """Read the beginning of a file. Raises nothing for a file that is not JSON."""
    return FileHead(
        name=source.name,
        records=tuple(islice(_read_records(source), MAX_RECORDS)),
        source=source,
    )


def has_long_start(source: RecordingSource) -> bool:
    """Return whether the first line of a file is longer than `MAX_RECORD_BYTES`, so that it is not looked at."""
    return _is_cut(source.open().readline(MAX_RECORD_BYTES))


def _is_cut(line: bytes) -> bool:
    return len(line) == MAX_RECORD_BYTES and not line.endswith(b"\n")


def _read_records(source: RecordingSource) -> Iterator[JsonObject]:
    with suppress(TranscriptFormatError):  # the records before the damage may be enough
        read_line = partial(source.open().readline, MAX_RECORD_BYTES)
        for line in islice(iter(read_line, b""), 4 * MAX_RECORDS):
            if _is_cut(line):
                return
            yield from (record for _, record in parse_objects(line) if not isinstance(record, str))


def _find_paths(source: RecordingSource) -> set[str]:
    paths: set[str] = set()
    with suppress(TranscriptFormatError):  # the paths before the damage may be enough
        for count, (path, value) in enumerate(walk_paths(source)):
            if count > MAX_STEPS or len(paths) > MAX_PATHS:
                break
            if len(path) <= MAX_PATH_CHARACTERS:
                paths.add(path)
                if (
                    isinstance(value, str)
                    and len(value) <= MAX_PATH_CHARACTERS
                    and path.rpartition(".")[2] in FIELDS_WITH_VALUE
                ):
                    paths.add(f"{path}={value}")
    return paths


PathPattern: TypeAlias = tuple[str | None, ...]
"""The path of the messages in a JSON text: keys, and None for any index in a list."""


@attrs.frozen(kw_only=True)
class JsonMember:
    """A value in a JSON file."""

    path: JsonPath
    """The path of the value."""
    value: Json
    """The value."""
    pattern: PathPattern | None
    """The pattern that the path matches; None for a value next to the messages."""
    conversation: JsonPath
    """The path of the conversation that the value belongs to."""

    @property
    def record(self) -> JsonObject:
        """The value if it is an object, else an empty object."""
        return as_object(self.value)

    @property
    def key(self) -> str:
        """The last key of the path."""
        return next((str(part) for part in reversed(self.path) if isinstance(part, str)), "value")


def walk_members(
    source: RecordingSource, patterns: Sequence[PathPattern], *, depth: int = 0
) -> Iterator[JsonMember]:
    """Yield the values of a file, messages one by one.

    Args:
        source: The file.
        patterns: Where the messages are.
        depth: At which depth of the JSON text conversations begin; 0: the text is one conversation.

    Raises:
        TranscriptFormatError: The text stops being JSON. All values before were yielded.
    """
    prefixes = {pattern[:end] for pattern in patterns for end in range(len(pattern))}
    for path, value in split_members(source, lambda path: _generalize(path) in prefixes):
        pattern = _generalize(path)
        yield JsonMember(
            path=path,
            value=value,
            pattern=pattern if pattern in patterns else None,
            conversation=path[: 1 + depth],
        )


def _generalize(path: JsonPath) -> PathPattern:
    return tuple(part if isinstance(part, str) else None for part in path[1:])


class JsonFormat:
    """Read files that are JSON texts with messages in them.

    A format says where the messages are, and overrides what is its own. By default a message is an
    OpenAI chat message.
    """

    name: str
    patterns: Sequence[PathPattern] = ()
    """The paths in the JSON of a file with one conversation at which its messages can stand."""

    def find_members(self, source: RecordingSource) -> Iterator[JsonMember]:
        """Yield the values of a file, as `walk_members` does."""
        return walk_members(source, self.patterns)

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a file, message by message."""
        writer = ConversationWriter(self.name)
        for member in self.find_members(source):
            writer.switch(member.conversation)
            yield (
                self.keep(writer, member)
                if member.pattern is None
                else self.read_record(writer, member)
                if isinstance(member.value, Mapping)
                else writer.keep_unreadable(member)
            )

    def keep(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Keep a value next to the messages, by default in a custom entry."""
        return writer.keep(member)

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Read an object where a message should be."""
        return writer.add_record(member, read_chat_message(member.record, self.name))


class LineFormat:
    """Read files with a JSON object on each line.

    A format says what it makes of an object, and adds that to the batch of its line.
    """

    name: str
    batch_bytes = 1 << 15
    """A batch ends with the line that makes it longer, or that could not be read."""

    def __init__(self) -> None:
        self.number = 0
        """The number of the line."""
        self.batch = Batch(entries=[])
        """The entries of the line, and of the lines before it in the same batch."""
        self.chain = EntryChain(IdAllocator())

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a file, those of some lines at a time."""
        size = 0
        try:
            for self.number, line in source.lines():
                # a blank line is neither an object nor a bad line
                for part, record in () if line.isspace() else parse_objects(line):
                    if isinstance(record, str):
                        self.batch.skipped += (ReadProblem(line=self.number, detail=record),)
                        self.keep(keep_bad_line(self.name, self.number, part, record))
                    else:
                        self.read_record(record, len(part))
                    size += len(part)
                    if size > self.batch_bytes or self.batch.skipped:
                        yield self.batch
                        self.batch, size = Batch(entries=[]), 0
        except (TranscriptFormatError, OSError):
            yield self.batch  # the lines before the damage
            raise
        self.finish()
        yield self.batch

    def read_record(self, record: JsonObject, size: int) -> None:
        """Read the object of a line of so many bytes."""
        raise NotImplementedError

    def keep(self, payload: EntryPayload) -> None:
        """Add a payload that is no message, such as a line that could not be read."""
        self.batch.entries += self.chain.add(payload)

    def finish(self) -> None:
        """Add what was held to the end. By default there is nothing."""


class ConversationWriter:
    """Write the conversations of a file one after the other.

    Each is a root of the tree, and is labelled if there are several.
    """

    def __init__(self, format_name: str) -> None:
        self._format_name = format_name
        self._ids = IdAllocator()
        self._number = 0
        self._conversation: JsonPath | None = None
        self._chain = EntryChain(self._ids)
        self._unlabelled: list[Label] = []  # that of the first conversation, while it is alone
        self._has_messages = False
        self.title: str | None = None
        """The label of the present conversation; None for a numbered one."""

    def switch(self, conversation: JsonPath) -> None:
        """Begin another conversation unless `conversation` is the present one."""
        if conversation != self._conversation:
            self._conversation = conversation
            self._number += 1
            self._has_messages = False
            self.title = None
            self._chain = EntryChain(self._ids, name=f"c{self._number}" if self._number > 1 else "")

    def add_record(self, member: JsonMember, payloads: Sequence[EntryPayload]) -> Batch:
        """Add the entries of one message; without any, its record becomes a custom entry."""
        return self.add(
            payloads or [CustomEntry(name=f"{self._format_name}.message", data=member.value)]
        )

    def add(
        self,
        payloads: Sequence[EntryPayload],
        *,
        messages: int | None = None,
        time: float | None = None,
        entry_id: str | None = None,
    ) -> Batch:
        """Add entries to the present conversation.

        `messages` is the number of the recording's messages among them. By default they are one,
        if any of them is a message.
        """
        if messages is None:
            messages = int(any(isinstance(payload, MessageEntry) for payload in payloads))
        entries = self._chain.add(*payloads, time=time, entry_id=entry_id)
        begins = bool(messages) and not self._has_messages
        if begins:
            self._has_messages = True
            label = self.title or f"conversation {self._number}"
            self._unlabelled.append(Label(target=entries[0].id, label=label))
            if self._number > 1:
                entries += self._chain.add(*self._unlabelled)
                self._unlabelled.clear()
        return Batch(
            entries=entries,
            messages=messages,
            conversations=int(begins),
            call_id_scope=f"{self._number}",
        )

    def keep(self, member: JsonMember) -> Batch:
        """Keep a value next to the messages in a custom entry."""
        return self.add([CustomEntry(name=f"{self._format_name}.{member.key}", data=member.value)])

    def keep_setting(self, member: JsonMember) -> Batch:
        """Keep a value next to the messages as a setting."""
        return self.add([Setting(name=f"{self._format_name}.{member.key}", value=member.value)])

    def keep_unreadable(self, member: JsonMember) -> Batch:
        """Keep a value that should be a message in a custom entry, and report the problem."""
        batch = self.add([CustomEntry(name=f"{self._format_name}.bad_record", data=member.value)])
        place = ".".join(map(str, member.path[1:])) or "the text"
        batch.skipped += (ReadProblem(line=1, detail=f"{place}: no JSON object."),)
        return batch


class EntryChain:
    """A conversation without branches: each entry is the child of the one before it.

    An entry without an id gets one of its number and its content, so that the same recording always
    gives the same ids. An entry without a time has the time of the entry before it; the first
    has 0.
    """

    def __init__(self, ids: IdAllocator, *, name: str = "") -> None:
        self._ids = ids
        self._prefix = f"{name}-" if name else ""
        self._count = 0
        self._time = 0.0
        self.tail: str | None = None
        """The id of the last entry: the parent of the next one."""

    def add(
        self, *payloads: EntryPayload, time: float | None = None, entry_id: str | None = None
    ) -> list[Entry]:
        """Add entries with these payloads. The first one gets `entry_id`, if that is not None."""
        return [
            self._add(payload, time, None if index else entry_id)
            for index, payload in enumerate(payloads)
        ]

    def _add(self, payload: EntryPayload, time: float | None, entry_id: str | None) -> Entry:
        self._count += 1
        self._time = self._time if time is None else time
        entry = Entry(
            id=self._ids.allocate(entry_id or f"{self._prefix}{self._count}-{_digest(payload)}"),
            parent_id=self.tail,
            time=self._time,
            payload=payload,
        )
        self.tail = entry.id
        return entry


DIGEST_NAMES: dict[type[EntryPayload], str] = {MessageEntry: "Said", CustomEntry: "Custom"}
"""The names of payload classes in digests, where they differ from the present ones."""


def _digest(payload: EntryPayload) -> str:
    # Digests are part of ids, so that the same recording must give the same ones after a class has
    # been renamed.
    text = repr(payload)
    if name := DIGEST_NAMES.get(type(payload)):
        text = name + text[len(type(payload).__name__) :]
    text = text.replace("CacheBreakpointPart(", "BoundaryPart(").replace(
        ", written_1h_tokens=0)", ")"
    )
    return hashlib.blake2s(
        text.encode("utf-8", errors="backslashreplace"), digest_size=4
    ).hexdigest()


class IdAllocator:
    """Give out ids of entries, each once."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._repeats: dict[str, int] = {}

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._used

    def allocate(self, preferred: str) -> str:
        """Return the preferred id or, if it is taken, one with a number after it."""
        entry_id = preferred
        while not entry_id or entry_id in self._used:
            self._repeats[preferred] = self._repeats.get(preferred, 1) + 1
            entry_id = f"{preferred or 'entry'}#{self._repeats[preferred]}"
        self._used.add(entry_id)
        return entry_id
