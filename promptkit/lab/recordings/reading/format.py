"""A recording format: its name, how one of its files is recognized, and how it is read batch by batch.

Formats share the base of those whose files are JSON texts with conversations, ids that are unique,
and chains of entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from typing import Protocol, TypeAlias

import attrs

from promptkit.errors import TranscriptFormatError
from promptkit.lab.recordings.reading.json_values import (
    JsonObject,
    as_object,
    parse_object,
    split_objects,
)
from promptkit.lab.recordings.reading.messages import read_chat_message
from promptkit.lab.recordings.reading.source import (
    JsonPath,
    RecordingSource,
    split_members,
    walk_paths,
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


class RecordingFormat(Protocol):
    """Read the recordings of one agent."""

    @property
    def name(self) -> str:
        """The name of the format on the command line and in the names of custom entries."""
        ...

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


@attrs.frozen(kw_only=True)
class Batch:
    """The entries of a part of a recording."""

    entries: tuple[Entry, ...] = ()
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
            for part in split_objects(line):
                if not isinstance(record := parse_object(part), str):
                    yield record


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
            if member.pattern is None:
                yield self.keep(writer, member)
            else:
                yield (
                    self.read_record(writer, member)
                    if isinstance(member.value, Mapping)
                    else writer.keep_unreadable(member)
                )

    def keep(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Keep a value next to the messages, by default in a custom entry."""
        return writer.keep(member)

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Read an object where a message should be."""
        return writer.add_record(member, read_chat_message(member.record, self.name))


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
        return attrs.evolve(
            batch, skipped=(ReadProblem(line=1, detail=f"{place}: no JSON object."),)
        )


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
    ) -> tuple[Entry, ...]:
        """Add entries with these payloads. The first one gets `entry_id`, if that is not None."""
        return tuple(
            self._add(payload, time, None if index else entry_id)
            for index, payload in enumerate(payloads)
        )

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
