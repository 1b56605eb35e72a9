"""The index of a transcript's file: where each entry stands, what it follows, and which entry has which id.

It is a file of its own, with pages of 128 records, one record for each entry, and after every 1,024
entries a run: their ids' hashes, sorted. Four runs of one size are followed by one that holds all
of them, so that a look-up by id reads a few runs, however long the transcript is. The place of
every page and run follows from its number. Only the last page is ever written again.

Nothing in it is trusted. Each page and each bucket of a run has a checksum of its own; a page has
one of the part of the transcript's file that it describes, too. The head holds the size and the
times of the transcript's file when the index was last written: while they are the same, no other
program has written to it; otherwise the checksums are compared with the whole file. Ids are hashed
with a secret of the file.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from promptkit.transcript.stores.store import EntryNode, ReadProblem

if TYPE_CHECKING:
    from collections.abc import Iterator


MAGIC = b"pkindex1"
PAGE_ENTRIES, GROUP_PAGES = 128, 8
GROUP_ENTRIES = PAGE_ENTRIES * GROUP_PAGES
FAN_OUT_BITS, MAX_LEVEL = 2, 4
FAN_OUT = 1 << FAN_OUT_BITS
"""Runs of one size that are joined into a larger one, and the largest size: 262,144 ids, so that
joining takes little memory."""

BUCKET_IDS = 256
"""Ids that one bucket of a run holds on average: the piece that a look-up reads."""

NONE = 0xFFFF_FFFF
"""In a record: no such entry."""

MAX_PROBLEM_BYTES = 24_000
"""What could not be read is kept in the head. A file with more damage than that is read in full."""

CACHED_PAGES = 64

HEAD = struct.Struct(
    "<8s16sIIQQQqqIII"
    # magic, salt, refused, entries, device, inode, size, mtime, ctime, problems: bytes and
    # checksum; checksum
)
# number, entries, start, end, checksums of file and page before, labels before, own labels, resume
PAGE = struct.Struct("<IIQQIIIIQQII")
RECORD = struct.Struct("<QQIIIIIIIBBH")
KEY = struct.Struct(">QI")  # in this order of bytes, keys sort by their hash
# the first key, the key after the last, the checksum of the keys, the checksum of this
BUCKET = struct.Struct("<IIII")
CHECKSUM = struct.Struct("<I")
_HASHES = struct.Struct(f"<Q{RECORD.size - 8}x")
HEAD_BYTES = 1 << 15
PAGE_BYTES = PAGE.size + PAGE_ENTRIES * RECORD.size + CHECKSUM.size

HAS_MESSAGE, HAS_PARTS = 1, 2
"""Flags of a record: the entry has a message; the message has several parts, so that a word of it
may be spread over them."""


class IndexDamagedError(Exception):
    """The index cannot be used: it is cut, changed, or not that of the file."""


class NotIndexableError(Exception):
    """A transcript that has no index, and why: it is read in full."""


class IndexRecord(NamedTuple):
    """What the index says of an entry."""

    hash: int
    """The hash of its id."""
    offset: int
    """Where its line begins in the file, in bytes."""
    size: int
    """The bytes of its line."""
    parent: int
    depth: int
    run: int
    mark: int
    redaction: int
    messages: int
    kind: int
    """1 for a label."""
    flags: int
    reserved: int

    def as_node(self) -> EntryNode:
        """Return the place of the entry in the tree."""
        return EntryNode(
            parent=None if self.parent == NONE else self.parent,
            depth=self.depth,
            run=self.run,
            mark=None if self.mark == NONE else self.mark,
            redaction=None if self.redaction == NONE else self.redaction,
            messages=self.messages,
        )


class Resume(NamedTuple):
    """Where reading the file goes on after what the index covers: at the end of a batch."""

    offset: int
    """In bytes."""
    lines: int
    """Line breaks before it."""
    ends_with_newline: bool
    known: int
    """Entries before it. The index may know more: of a batch that was being added when a crash
    came."""


class PageHeader(NamedTuple):
    """The beginning of a page."""

    number: int
    entries: int
    start: int
    end: int
    file_checksum: int
    checksum_before: int
    labels_before: int
    labels: int
    offset: int
    lines: int
    ends_with_newline: int
    known: int


def find_stamp(status: os.stat_result) -> tuple[int, int, int, int, int]:
    """Return what tells whether anybody has written to a file: device, inode, size, and the times of the last changes."""
    return (
        status.st_dev & 0xFFFF_FFFF_FFFF_FFFF,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


class EntryIndex:
    """Read an index. Numbers of entries count from 0, in the order of the file.

    Args:
        descriptor: The open file of the index. It is not closed.

    Raises:
        IndexDamagedError: It is no index, or a damaged one. All methods raise it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._pages: OrderedDict[int, bytes] = OrderedDict()
        self._records: list[bytes] = []  # of the page that a writer is filling
        self._open: dict[int, list[int]] = {}
        """The numbers by the hash of the id, of the entries that no run holds yet."""
        head = self._read(HEAD.size, 0)
        fields = HEAD.unpack(head)
        if fields[0] != MAGIC or zlib.crc32(head[: -CHECKSUM.size]) != fields[-1]:
            problem = "the head is damaged"
            raise IndexDamagedError(problem)
        self.salt: bytes = fields[1]
        self.refused: bool = bool(fields[2])
        """Whether the file was found to be one that has no index."""
        self.stamp: tuple[int, ...] = fields[4:9]
        """`find_stamp` of the transcript's file when this was written last."""
        problems, misplaced = self._read_problems(fields[9], fields[10])
        self.problems: tuple[ReadProblem, ...] = problems
        """What could not be read of what the index covers."""
        self.misplaced: tuple[ReadProblem, ...] = misplaced
        """What has another place in the tree than the one that it names."""
        self.count: int = 0
        """Entries."""
        self._last: PageHeader | None = None
        self._load(fields[3])

    def _load(self, entries: int) -> None:
        """Find the last page that is whole, and the entries that no run holds."""
        last = (entries - 1) // PAGE_ENTRIES
        if entries:
            try:
                self._last = self._header(last)
            except IndexDamagedError:
                # A crash while the last page was written: the page before it is whole.
                self._last = self._header(last - 1) if last else None
        if self._last is None:
            return
        if self._last.number < last and self._last.entries != PAGE_ENTRIES:
            problem = "a page is missing"
            raise IndexDamagedError(problem)
        self.count = self._last.number * PAGE_ENTRIES + self._last.entries
        self.record(self.count - 1)
        for number in range(self.count // GROUP_ENTRIES * GROUP_PAGES, self._last.number + 1):
            entries = min(self.count - number * PAGE_ENTRIES, PAGE_ENTRIES)
            records = memoryview(self._page(number))[PAGE.size : PAGE.size + entries * RECORD.size]
            for at, (hashed,) in enumerate(_HASHES.iter_unpack(records), number * PAGE_ENTRIES):
                self._open.setdefault(hashed, []).append(at)

    @property
    def resume(self) -> Resume | None:
        """Where reading the file goes on; None for an index without entries."""
        page = self._last
        return (
            None
            if page is None
            else Resume(page.offset, page.lines, bool(page.ends_with_newline), page.known)
        )

    def verify(self, descriptor: int, *, start: int) -> None:
        """Compare all checksums with the file, whose entries begin at `start`.

        Linear in its size, but reads no JSON.
        """
        before, end, whole = 0, start, os.fstat(descriptor).st_size
        for number in range(-(-self.count // PAGE_ENTRIES)):
            page = self._header(number)
            size = page.end - page.start
            data = pread(descriptor, size, page.start) if page.end <= whole else b""
            if page.checksum_before != before or page.start != end or len(data) != size:
                problem = "a page is not the next one"
                raise IndexDamagedError(problem)
            if zlib.crc32(data) != page.file_checksum:
                problem = "the file was changed"
                raise IndexDamagedError(problem)
            before, end = self._checksum(number), page.end
            self._pages.pop(number, None)

    def hash_id(self, entry_id: str) -> int:
        """Return the hash of an id."""
        return int.from_bytes(
            blake2b(
                entry_id.encode("utf-8", "surrogatepass"), digest_size=8, key=self.salt
            ).digest(),
            "big",
        )

    def record(self, number: int) -> IndexRecord:
        """Return the record of an entry."""
        first = self.count - len(self._records)
        if number >= first:
            return IndexRecord._make(RECORD.unpack(self._records[number - first]))
        page = self._page(number // PAGE_ENTRIES)
        record = IndexRecord._make(
            RECORD.unpack_from(page, PAGE.size + number % PAGE_ENTRIES * RECORD.size)
        )
        is_later = record.parent != NONE and record.parent >= number
        if (
            is_later
            or not record.size
            or record.offset >> 62
            or record.run > number
            or any(each != NONE and each > number for each in (record.mark, record.redaction))
        ):
            problem = "a record contradicts itself"
            raise IndexDamagedError(problem)
        return record

    def list_candidates(self, hashed: int) -> list[int]:
        """Return the numbers of the entries whose ids have a hash, as a rule one or none."""
        found = list(self._open.get(hashed, ()))
        wanted = hashed.to_bytes(8, "big")
        for level, group in self._list_runs():
            offset = find_run(level, group)
            bucket = self.read_bucket(level, offset, hashed * count_buckets(level) >> 64)
            place = bucket.find(wanted)
            while place >= 0:
                if place % KEY.size == 0:
                    found.append(KEY.unpack_from(bucket, place)[1])
                place = bucket.find(wanted, place + 1)
        if any(number >= self.count for number in found):
            problem = "a run names an entry that is not there"
            raise IndexDamagedError(problem)
        return found

    def has_repeated_ids(self) -> bool:
        """Return whether two entries have one id. Reads the ids of all entries."""
        parts = 16
        for part in range(parts):
            hashes = [
                hashed.to_bytes(8, "big")
                for hashed, numbers in self._open.items()
                if hashed * parts >> 64 == part
                for _ in numbers
            ]
            for level, group in self._list_runs():
                offset = find_run(level, group)
                size = count_buckets(level)
                for at in range(size * part // parts, -(-size * (part + 1) // parts)):
                    bucket = self.read_bucket(level, offset, at)
                    hashes += [
                        bucket[place : place + 8] for place in range(0, len(bucket), KEY.size)
                    ]
            if len(set(hashes)) != len(hashes):
                return True
        return False

    def list_labels(self) -> list[int]:
        """Return the numbers of the entries that are labels, oldest first."""
        found: list[int] = []
        page = self._last
        while page is not None:
            if page.labels:
                first = page.number * PAGE_ENTRIES
                found += [
                    number
                    for number in range(first + page.entries - 1, first - 1, -1)
                    if self.record(number).kind
                ]
            if page.labels_before > page.number:
                problem = "a page contradicts itself"
                raise IndexDamagedError(problem)
            page = self._header(page.labels_before - 1) if page.labels_before else None
        return found[::-1]

    def _list_runs(self) -> Iterator[tuple[int, int]]:
        """Yield the level and the last group of each run that is not part of a larger one."""
        groups, done = self.count // GROUP_ENTRIES, 0
        for level in range(MAX_LEVEL, -1, -1):
            while groups - done >= (1 << FAN_OUT_BITS * level):
                done += 1 << FAN_OUT_BITS * level
                yield level, done - 1

    def read_bucket(self, level: int, offset: int, at: int) -> bytes:
        """Return the keys of a bucket of the run of a level that begins at `offset`, in bytes."""
        found = self._read(BUCKET.size, offset + at * BUCKET.size)
        start, end, checksum, own = BUCKET.unpack(found)
        if zlib.crc32(found[: -CHECKSUM.size], at) != own or not start <= end <= _count_ids(level):
            problem = "a run is damaged"
            raise IndexDamagedError(problem)
        data = self._read(
            (end - start) * KEY.size, offset + count_buckets(level) * BUCKET.size + start * KEY.size
        )
        if zlib.crc32(data) != checksum:
            problem = "a bucket is damaged"
            raise IndexDamagedError(problem)
        return data

    def _page(self, number: int) -> bytes:
        page = self._pages.get(number)
        if page is not None:
            self._pages.move_to_end(number)
            return page
        page = self._read(PAGE_BYTES, find_page(number))
        header = PageHeader._make(PAGE.unpack_from(page))
        if (
            CHECKSUM.unpack_from(page, PAGE_BYTES - CHECKSUM.size)[0]
            != zlib.crc32(page[: -CHECKSUM.size])
            or header.number != number
        ):
            problem = f"page {number} is damaged"
            raise IndexDamagedError(problem)
        self._pages[number] = page
        if len(self._pages) > CACHED_PAGES:
            self._pages.popitem(last=False)
        return page

    def _header(self, number: int) -> PageHeader:
        page = PageHeader._make(PAGE.unpack_from(self._page(number)))
        if (
            not 0 < page.entries <= PAGE_ENTRIES
            or page.known > number * PAGE_ENTRIES + page.entries
            or page.start > page.end
        ):
            problem = f"page {number} contradicts itself"
            raise IndexDamagedError(problem)
        return page

    def _checksum(self, number: int) -> int:
        found: int = CHECKSUM.unpack_from(self._page(number), PAGE_BYTES - CHECKSUM.size)[0]
        return found

    def _read_problems(
        self, size: int, checksum: int
    ) -> tuple[tuple[ReadProblem, ...], tuple[ReadProblem, ...]]:
        if size > MAX_PROBLEM_BYTES:
            problem = "the head is damaged"
            raise IndexDamagedError(problem)
        data = self._read(size, HEAD.size) if size else b""
        if zlib.crc32(data) != checksum:
            problem = "the head is damaged"
            raise IndexDamagedError(problem)
        try:
            lists: list[list[tuple[int, str]]] = json.loads(data or b"[[],[]]")
            problems, misplaced = (
                tuple(ReadProblem(line=int(line), detail=str(detail)) for line, detail in each)
                for each in lists
            )
        except (ValueError, TypeError, RecursionError) as error:
            problem = "the head contradicts itself"
            raise IndexDamagedError(problem) from error
        return problems, misplaced

    def _read(self, size: int, offset: int) -> bytes:
        try:
            data = pread(self.descriptor, size, offset)
        except OSError as error:
            raise IndexDamagedError(str(error)) from error
        if len(data) != size:
            problem = "it is cut"
            raise IndexDamagedError(problem)
        return data


def pread(descriptor: int, size: int, offset: int) -> bytes:
    """Read bytes of a file at an offset; fewer at its end."""
    data = os.pread(descriptor, size, offset)
    if len(data) == size or not data:
        return data
    pieces = [data]
    done = len(data)
    while done < size and (data := os.pread(descriptor, size - done, offset + done)):
        pieces.append(data)
        done += len(data)
    return b"".join(pieces)


def _count_ids(level: int) -> int:
    return GROUP_ENTRIES << FAN_OUT_BITS * level


def count_buckets(level: int) -> int:
    """Return how many buckets the runs of a level have: a power of two."""
    return _count_ids(level) // BUCKET_IDS


def _run_bytes(level: int) -> int:
    return count_buckets(level) * BUCKET.size + _count_ids(level) * KEY.size


def _group_offset(group: int) -> int:
    offset = HEAD_BYTES + group * GROUP_PAGES * PAGE_BYTES
    for level, size in enumerate(_RUN_BYTES):
        offset += (group >> FAN_OUT_BITS * level) * size
    return offset


def find_page(number: int) -> int:
    """Return where a page begins, in bytes."""
    return _group_offset(number // GROUP_PAGES) + number % GROUP_PAGES * PAGE_BYTES


def find_run(level: int, group: int) -> int:
    """Return where the run of a level that ends with a group begins, in bytes."""
    return _group_offset(group) + GROUP_PAGES * PAGE_BYTES + sum(_RUN_BYTES[:level])


_RUN_BYTES = tuple(map(_run_bytes, range(MAX_LEVEL + 1)))
