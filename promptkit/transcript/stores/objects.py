"""The store of transcripts in object storage: S3, Google Cloud Storage, Azure, or a folder.

Each batch is an object that is created once, under the next number:
`CONVERSATION/0000000007.jsonl`. The storage refuses to create a number that is there, so of two
writers one finds out that the other was first. An archive is one compressed object in place of many
batches. These are emptied and not deleted, so that their numbers stay taken.
"""

from __future__ import annotations

import gzip
import re
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs

from promptkit.errors import (
    InvalidArgumentError,
    TranscriptConflictError,
    TranscriptError,
    TranscriptFormatError,
    TranscriptWriteError,
)
from promptkit.transcript.stores.jsonl.format import (
    EntryLine,
    Header,
    check_version,
    encode_batch,
    encode_header,
    header_from_line,
    line_from_bytes,
)
from promptkit.transcript.stores.store import (
    ConversationStore,
    LoadedEntries,
    ReadProblem,
    archiving_error,
    check_conversation,
    settle_write,
    split_address,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from obstore.store import ObjectStore as Bucket

    from promptkit.transcript.log.entries import Entry

CONNECTIONS = 16
"""Objects that are read at the same time."""

MAX_FOLDER_BYTES = 240
"""Bytes of the name of a conversation's folder: file systems take names of 255."""

ATTEMPTS = 20
"""The most attempts at an operation, when other processes write or archive in between."""

_BATCH = re.compile(r"([0-9]{10})\.jsonl")
_ARCHIVE = re.compile(r"([0-9]{10})-([0-9]{10})\.jsonl\.gz")
_SAFE = re.compile(rb"[^A-Za-z0-9_-]")
_HINT = "run `pip install 'obstore>=0.8'`, or `pip install '.[objects]'` in a checkout of promptkit"


class ObjectStore(ConversationStore):
    """Keep the entries of a conversation in object storage: S3, Google Cloud Storage, Azure, or a folder.

    Several processes may append to one conversation. The storage must support conditional writes,
    as the ones named above do. The settings of the provider, such as its keys, are read from the
    environment. For others, pass a store of obstore.

    Args:
        url: A place for conversations, such as `s3://bucket/talks`, `gs://…`, `az://…` or
            `file:///folder`, with the conversation after a `#` unless that is given apart. Or a
            store of obstore.
        conversation: The id of the conversation: up to 200 characters, and 240 bytes where each
            byte that is not an ASCII letter, a digit, `-` or `_` counts as 3.
        read_archives: Read entries that were archived. Without them a transcript begins later and
            loads faster.

    Raises:
        InvalidArgumentError: The URL names no conversation, or is not one of object storage.
        TranscriptError: obstore is not installed.

    >>> transcript = Transcript(ObjectStore("s3://bucket/talks#42"))
    """

    def __init__(
        self, url: str | Bucket, conversation: str | None = None, *, read_archives: bool = True
    ) -> None:
        if isinstance(url, str) and conversation is None:
            url, conversation = split_address(url)
        super().__init__(
            url.rstrip("/") if isinstance(url, str) else str(url),
            check_conversation(conversation),
            read_archives=read_archives,
        )
        self._folder = _encode(self._conversation)
        self._bucket = open_bucket(url) if isinstance(url, str) else url
        self._batch = 0  # the number of the last batch that was read or written
        self._count = 0  # entries up to there
        self._last_id = ""

    def load(self) -> LoadedEntries:
        """Read all entries. Raises TranscriptError if they cannot be read."""
        self._batch, self._count, self._last_id = 0, 0, ""
        return self.refresh()

    def refresh(self) -> LoadedEntries:
        """Read what was appended since the last read. Raises what `load` raises."""
        batches = self._read_after(self._batch)
        self._count += sum(len(batch.entries) for batch in batches)
        if batches:
            self._batch, self._last_id = batches[-1].number, batches[-1].last_id
        shown = [batch for batch in batches if self._read_archives or not batch.archived]
        entries = tuple(entry for batch in shown for entry in batch.entries)
        return LoadedEntries(
            entries=entries,
            problems=tuple(problem for batch in shown for problem in batch.problems),
            line_numbers=tuple(range(self._count - len(entries) + 1, self._count + 1)),
            last_id=self._last_id,
            partial=len(shown) < len(batches),
        )

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        """Create the object of a batch.

        Args:
            entries: The batch.
            expect: The id of the entry that the caller believes to be the last; an empty string for
                an empty conversation. None: append whatever the last entry is.

        Raises:
            TranscriptConflictError: Another writer appended entries since. The error carries them.
            TranscriptWriteError: The object cannot be created.
        """
        if not entries:
            return
        # The same entries may be there already, so the object has a mark by which its writer knows
        # it.
        mark = f',"write":"{uuid.uuid4().hex}"}}\n'.encode()
        content = encode_header(Header()).removesuffix(b"}\n") + mark + encode_batch(entries)
        number, last_id = self._batch, self._last_id
        for _ in range(ATTEMPTS if expect is not None else 50 * ATTEMPTS):
            if expect in {None, last_id} and self._create(number + 1, content):
                # otherwise the next refresh reads what is between, and these entries again
                if number == self._batch:
                    self._batch, self._last_id = number + 1, entries[-1].id
                    self._count += len(entries)
                return
            if unread := self._read_after(self._batch):
                number, last_id = unread[-1].number, unread[-1].last_id
            if expect not in {None, last_id}:
                raise TranscriptConflictError(
                    expect or "", [entry for batch in unread for entry in batch.entries]
                )
        raise TranscriptWriteError(
            "other processes wrote all the time; nothing was written.", file=self.address
        )

    def archive(self, *, through: str) -> None:
        """Put the batches up to that of an entry into one compressed object.

        Raises TranscriptError if there is no such entry or no batch after it, TranscriptWriteError
        if an object cannot be written.
        """
        import obstore

        batches = self._read_after(0)
        at = next(
            (
                at
                for at, batch in enumerate(batches)
                if any(entry.id == through for entry in batch.entries)
            ),
            None,
        )
        if at is None or at == len(batches) - 1:
            raise archiving_error(self.address, through, exists=at is not None)
        moved = [batch for batch in batches[: at + 1] if not batch.archived]
        if not moved:
            return
        lines = b"".join([encode_header(Header()), *(batch.lines for batch in moved)])
        name = f"{self._folder}/archive/{moved[0].number:010}-{moved[-1].number:010}.jsonl.gz"
        try:
            obstore.put(self._bucket, name, gzip.compress(lines, mtime=0), use_multipart=False)
            for batch in moved:
                obstore.put(self._bucket, self._make_name(batch.number), b"", use_multipart=False)
        except (obstore.exceptions.BaseError, OSError, ValueError) as error:
            raise TranscriptWriteError(
                f"the entries could not be archived: {describe_object_error(error)}.",
                file=self.address,
            ) from error

    def _make_name(self, number: int) -> str:
        return f"{self._folder}/{number:010}.jsonl"

    def _create(self, number: int, content: bytes) -> bool:
        """Create the object of a batch. Returns False if another writer's batch has that number."""
        import obstore

        try:
            obstore.put(
                self._bucket, self._make_name(number), content, mode="create", use_multipart=False
            )
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            # an answer was lost, and the request was sent again
            return self._get(self._make_name(number)) == content
        except (obstore.exceptions.BaseError, OSError, ValueError) as error:
            settle_write(
                error,
                describe_object_error(error),
                lambda: self._get(self._make_name(number)) == content,
                file=self.address,
            )
        return True

    def _read_after(self, number: int) -> list[_Batch]:
        """Read the batches after one, in their order."""
        if number and self._get(self._make_name(number + 1)) is None:
            return []  # usually nothing is new, and one request finds that out without a listing
        for _ in range(ATTEMPTS):
            sources = self._list(number)
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                contents = list(pool.map(self._get, [source.path for source in sources]))
            if all(contents):  # none of them was archived since it was listed
                return [
                    batch
                    for source, content in zip(sources, contents, strict=True)
                    for batch in self._parse(
                        source.number, content or b"", archived=source.archived
                    )
                    if batch.number > number
                ]
        raise TranscriptError(
            f"{self.address} cannot be read: other processes archived it all the time."
        )

    def _list(self, after: int = 0) -> list[_Source]:
        """List the objects that hold the batches after a number, without a gap: batches, and archives of those that are empty."""
        batches: dict[int, _Source] = {}
        archives: list[_Source] = []
        start = self._make_name(after) if after else None
        with object_errors(self.address, "read"):
            try:
                listed = self._bucket.list(self._folder, offset=start).collect()  # pyright: ignore[reportUnknownMemberType]  # another overload returns a type of pyarrow
            except FileNotFoundError:
                return []
        for item in listed:
            path = item["path"]
            name = path.rpartition("/")[2]
            if (found := _BATCH.fullmatch(name)) and item["size"]:
                number = int(found[1])
                batches[number] = _Source(path, number, number, archived=False)
            elif found := _ARCHIVE.fullmatch(name):
                archives.append(_Source(path, int(found[1]), int(found[2]), archived=True))
        sources: list[_Source] = []
        number = after + 1
        while source := batches.get(number) or next(
            (each for each in archives if each.number <= number <= each.last), None
        ):
            sources.append(source)
            number = source.last + 1
        return sources

    def _get(self, path: str) -> bytes | None:
        """Return the content of an object; None if there is none."""
        with object_errors(self._place, "read"):
            try:
                return bytes(self._bucket.get(path).bytes())
            except FileNotFoundError:
                return None

    def _parse(self, number: int, content: bytes, *, archived: bool) -> list[_Batch]:
        """Parse an object. An archive holds several batches."""
        name = f"{self.address}: {self._make_name(number)}"
        try:
            lines = (gzip.decompress(content) if archived else content).split(b"\n")
        except (OSError, EOFError, zlib.error) as error:
            raise TranscriptFormatError(f"the archive is damaged: {error}", file=name) from error
        check_version(header_from_line(lines[0] + b"\n", name).version, name)
        batches = [_Batch(number, archived=archived)]
        for at, line in enumerate(lines[1:], 2):
            if isinstance(parsed := line_from_bytes(line), EntryLine):
                if archived and parsed.position == 1 and batches[-1].entries:
                    batches.append(_Batch(number + len(batches), archived=archived))
                batches[-1].entries.append(parsed.entry)
                batches[-1].lines += line + b"\n"
            elif parsed:
                batches[-1].problems.append(
                    ReadProblem(line=at, detail=f"in {self._make_name(number)}: {parsed}")
                )
        return batches


@attrs.frozen
class _Source:
    """An object that holds batches."""

    path: str
    number: int
    """The number of its first batch."""
    last: int
    """The number of its last batch."""
    archived: bool


@attrs.define
class _Batch:
    """A batch that was read."""

    number: int
    archived: bool
    entries: list[Entry] = attrs.field(factory=list["Entry"])
    problems: list[ReadProblem] = attrs.field(factory=list[ReadProblem])
    lines: bytes = b""

    @property
    def last_id(self) -> str:
        return self.entries[-1].id if self.entries else ""


def list_object_conversations(url: str) -> list[str]:
    """Return the ids of the conversations at a place, sorted.

    Raises TranscriptError if it cannot be read.
    """
    bucket = open_bucket(url)
    with object_errors(url, "read"):
        folders = bucket.list_with_delimiter()["common_prefixes"]  # pyright: ignore[reportUnknownMemberType]  # as above
    return sorted(_decode(folder.rstrip("/").rpartition("/")[2]) for folder in folders)


def open_bucket(url: str) -> Bucket:
    """Open a place of objects: a bucket or a folder in one, a folder of this machine, or a web server.

    Raises InvalidArgumentError if the URL is none of them, TranscriptError if obstore is not
    installed.
    """
    parts = urlsplit(url)
    try:
        from obstore.exceptions import BaseError
        from obstore.store import LocalStore, from_url
    except ImportError as error:
        raise TranscriptError(f"{parts.scheme}:// needs obstore: {_HINT}.") from error
    if parts.scheme == "memory" or not parts.scheme:
        raise InvalidArgumentError(
            f"{url!r} is not a place for objects: write a URL such as s3://bucket/talks or file:///folder."
        )
    try:
        if parts.scheme == "file":
            from urllib.request import url2pathname  # imports HTTP and TLS, which takes 10 ms

            return LocalStore(url2pathname(parts.path), mkdir=True)
        return (
            from_url(url, client_options={"allow_http": True})
            if parts.scheme == "http"
            else from_url(url)
        )
    except (BaseError, ValueError) as error:
        raise InvalidArgumentError(
            f"{url!r} is not a place for objects: {describe_object_error(error)}."
        ) from error


def _encode(conversation: str) -> str:
    """Write an id as the name of a folder: `=2E` is a byte that is not an ASCII letter, a digit, `-` or `_`."""
    folder = _SAFE.sub(lambda found: b"=%02X" % found[0][0], conversation.encode()).decode()
    if len(folder) > MAX_FOLDER_BYTES:
        raise InvalidArgumentError(
            f"the id {conversation[:40]!r} of the conversation is too long for the name of a folder."
        )
    return folder


def _decode(folder: str) -> str:
    return re.sub(
        rb"=([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), folder.encode()
    ).decode("utf-8", "replace")


@contextmanager
def object_errors(place: str, verb: str) -> Generator[None]:
    """Turn an error of object storage into a sentence: the place cannot be read, listed or written."""
    import obstore

    try:
        yield
    except (obstore.exceptions.BaseError, OSError, ValueError) as error:
        raise TranscriptError(
            f"{place} cannot be {verb}: {describe_object_error(error)}."
        ) from error


def describe_object_error(error: Exception) -> str:
    """Return the first line of what obstore says of an error; details follow it."""
    return (str(error).partition("<?xml")[0].strip().splitlines() or [type(error).__name__])[
        0
    ].rstrip(".: ")
