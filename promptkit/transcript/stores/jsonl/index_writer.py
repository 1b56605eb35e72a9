"""Writing the index of a transcript's file. The format is that of `index.py`."""

from __future__ import annotations

import json
import os
import secrets
import zlib
from typing import TYPE_CHECKING

from promptkit.transcript.log.entries import Checkpoint, Edit, Label, Reset, Setting
from promptkit.transcript.stores.jsonl.index import (
    BUCKET,
    CHECKSUM,
    FAN_OUT,
    FAN_OUT_BITS,
    GROUP_ENTRIES,
    HAS_MESSAGE,
    HAS_PARTS,
    HEAD,
    HEAD_BYTES,
    KEY,
    MAGIC,
    MAX_LEVEL,
    MAX_PROBLEM_BYTES,
    NONE,
    PAGE,
    PAGE_BYTES,
    PAGE_ENTRIES,
    RECORD,
    EntryIndex,
    IndexRecord,
    NotIndexableError,
    PageHeader,
    Resume,
    count_buckets,
    find_page,
    find_run,
    find_stamp,
    pread,
)
from promptkit.transcript.stores.store import ReadProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.transcript.stores.jsonl.reader import StoredEntry


class IndexWriter(EntryIndex):
    """Add entries to an index.

    The caller holds the lock of the transcript, or no other process knows the index yet.

    Args:
        descriptor: The open file of the index.
        file: The open file of the transcript.
    """

    def __init__(self, descriptor: int, file: int) -> None:
        super().__init__(descriptor)
        self._file = file
        self._problem_bytes = sum(map(_problem_size, (*self.problems, *self.misplaced)))
        self._start = self._end = self._file_checksum = self._checksum_before = (
            self._labels_before
        ) = self._labels = 0
        self._last_record: IndexRecord | None = None
        page = self._last
        if page is None:
            return
        self._last_record = self.record(self.count - 1)
        if page.entries == PAGE_ENTRIES:
            self._begin_page(
                page.end,
                self._checksum(page.number),
                page.number + 1 if page.labels else page.labels_before,
            )
            return
        data = self._page(page.number)
        self._records = [
            data[at : at + RECORD.size]
            for at in range(PAGE.size, PAGE.size + page.entries * RECORD.size, RECORD.size)
        ]
        self._start, self._end, self._file_checksum = page.start, page.end, page.file_checksum
        self._checksum_before, self._labels_before, self._labels = (
            page.checksum_before,
            page.labels_before,
            page.labels,
        )

    @staticmethod
    def create(descriptor: int, file: int, *, start: int) -> IndexWriter:
        """Write the head of a new index into an empty file.

        `start` is where the first line after the header begins, in bytes.
        """
        _write_at(descriptor, _encode_head(secrets.token_bytes(16), (0,) * 5, 0, b""), 0)
        os.ftruncate(descriptor, HEAD_BYTES)
        writer = IndexWriter(descriptor, file)
        writer._start = writer._end = start  # of this class
        return writer

    def add(
        self,
        item: StoredEntry,
        *,
        find: Callable[[str], int | None],
        last_id: str,
        boundary: Resume,
    ) -> None:
        """Add the next entry of the file.

        Args:
            item: The entry.
            find: Returns the number of the entry with an id, or None if there is none.
            last_id: The id of the entry before.
            boundary: Where to read on if this entry ends a page: the end of the last batch of which
                all entries are added.

        Raises:
            NotIndexableError: A figure does not fit into a record, or too much of the file is
                damaged.
        """
        entry = item.entry
        hashed, number = self.hash_id(entry.id), self.count
        if number >= NONE or item.size > NONE:
            problem = "it has too many entries, or too long ones."
            raise NotIndexableError(problem)
        parent, message = NONE, entry.message
        if entry.parent_id is not None:
            found = self._find_parent(entry.parent_id, find)
            if found is None:
                place = f"after {last_id!r}" if number else "at the beginning"
                detail = f"the entry {entry.id!r} follows {entry.parent_id!r}, which is not before it in the file; it was placed {place} instead."
                self.add_problem(ReadProblem(line=item.line, detail=detail), misplaced=True)
                found = number - 1 if number else NONE
            parent = found
        before = (
            None
            if parent == NONE
            else self._last_record
            if parent == number - 1
            else self.record(parent)
        )
        payload = entry.payload
        record = IndexRecord(
            hash=hashed,
            offset=item.offset,
            size=item.size,
            parent=parent,
            depth=0 if before is None else before.depth + 1,
            run=before.run if before is not None and parent == number - 1 else number,
            mark=number
            if isinstance(payload, Checkpoint | Reset | Edit | Setting)
            else NONE
            if before is None
            else before.mark,
            redaction=(
                number
                if isinstance(payload, Edit) and payload.reason == "redacted"
                else NONE
                if before is None
                else before.redaction
            ),
            messages=(0 if before is None else before.messages) + (message is not None),
            kind=int(isinstance(payload, Label)),
            flags=0
            if message is None
            else HAS_MESSAGE | (HAS_PARTS if len(message.content) > 1 else 0),
            reserved=0,
        )
        self._records.append(RECORD.pack(*record))
        self._labels |= record.kind
        self._open.setdefault(hashed, []).append(number)
        self._last_record = record
        self.count += 1
        if len(self._records) == PAGE_ENTRIES:
            self._finish_page(item.offset + item.size, boundary)

    def add_problem(self, problem: ReadProblem, *, misplaced: bool = False) -> None:
        """Keep what could not be read, or has another place than the one it names.

        Raises NotIndexableError if it is too much.
        """
        self._problem_bytes += _problem_size(problem)
        if self._problem_bytes > MAX_PROBLEM_BYTES:
            why = "too much of it is damaged"
            raise NotIndexableError(why)
        if misplaced:
            self.misplaced += (problem,)
        else:
            self.problems += (problem,)

    def flush(self, resume: Resume) -> None:
        """Write what was added.

        `resume` says where the file is read from when entries are added later.
        """
        page = self._last
        if self._records:
            self._extend_region(resume.offset)
            self._write_page(resume)
        elif page is not None and page.offset < page.end == resume.offset:
            # The last page was full before the batch ended: only where to read on has changed.
            data = bytearray(self._page(page.number))
            PAGE.pack_into(data, 0, *page[:8], *resume[:3], resume.known)
            _write_at(self.descriptor, _sign(data), find_page(page.number))
            self._pages.pop(page.number, None)
            self._last = self._header(page.number)
            self._checksum_before = self._checksum(page.number)

    def write_head(self, status: os.stat_result | None, *, refused: bool = False) -> None:
        """Write the head, with the state of the transcript's file.

        None: a state that no file has.
        """
        lists = [
            [[problem.line, problem.detail] for problem in each]
            for each in (self.problems, self.misplaced)
        ]
        problems = json.dumps(lists).encode() if any(lists) else b""
        stamp = (0,) * 5 if status is None else find_stamp(status)
        _write_at(
            self.descriptor,
            _encode_head(self.salt, stamp, self.count, problems, refused=refused),
            0,
        )

    def _find_parent(self, parent_id: str, find: Callable[[str], int | None]) -> int | None:
        hashed = self.hash_id(parent_id)
        last = self._last_record
        if last is not None and last.hash == hashed:
            return self.count - 1
        return find(parent_id)

    def _finish_page(self, end: int, boundary: Resume) -> None:
        self._extend_region(end)
        if self.count % GROUP_ENTRIES == 0:
            # Before the page, so that a group is complete as soon as its last page is.
            self._write_runs(self.count // GROUP_ENTRIES - 1)
        self._write_page(boundary)
        number = self.count // PAGE_ENTRIES - 1
        self._begin_page(
            end, self._checksum(number), number + 1 if self._labels else self._labels_before
        )

    def _begin_page(self, start: int, checksum_before: int, labels_before: int) -> None:
        self._records = []
        self._start = self._end = start
        self._file_checksum = self._labels = 0
        self._checksum_before, self._labels_before = checksum_before, labels_before

    def _extend_region(self, end: int) -> None:
        data = pread(self._file, end - self._end, self._end)
        self._file_checksum = zlib.crc32(data, self._file_checksum)
        self._end = end

    def _write_page(self, resume: Resume) -> None:
        number = (self.count - 1) // PAGE_ENTRIES
        header = PageHeader(
            number,
            len(self._records),
            self._start,
            self._end,
            self._file_checksum,
            self._checksum_before,
            self._labels_before,
            self._labels,
            resume.offset,
            resume.lines,
            int(resume.ends_with_newline),
            resume.known,
        )
        data = bytearray(PAGE_BYTES)
        PAGE.pack_into(data, 0, *header)
        data[PAGE.size : PAGE.size + len(self._records) * RECORD.size] = b"".join(self._records)
        _write_at(self.descriptor, _sign(data), find_page(number))
        self._pages.pop(number, None)
        self._last = header

    def _write_runs(self, group: int) -> None:
        """Write the run of a group, and the larger runs that end with it."""
        keys = sorted(
            KEY.pack(hashed, number) for hashed, numbers in self._open.items() for number in numbers
        )
        self._write_run(0, group, keys)
        for level in range(1, MAX_LEVEL + 1):
            if (group + 1) % (1 << FAN_OUT_BITS * level):
                break
            step = 1 << FAN_OUT_BITS * (level - 1)
            for back in range(1, FAN_OUT):
                offset = find_run(level - 1, group - back * step)
                for at in range(count_buckets(level - 1)):
                    bucket = self.read_bucket(level - 1, offset, at)
                    keys += [
                        bucket[place : place + KEY.size]
                        for place in range(0, len(bucket), KEY.size)
                    ]
            keys.sort()
            self._write_run(level, group, keys)
        self._open.clear()

    def _write_run(self, level: int, group: int, keys: Sequence[bytes]) -> None:
        buckets = count_buckets(level)
        shift = 8 * 8 - (buckets.bit_length() - 1)
        counts = [0] * buckets
        for key in keys:
            counts[int.from_bytes(key[:8], "big") >> shift] += 1
        directory = b""
        start = 0
        for at, count in enumerate(counts):
            end = start + count
            entry = BUCKET.pack(start, end, zlib.crc32(b"".join(keys[start:end])), 0)[
                : -CHECKSUM.size
            ]
            directory += entry + CHECKSUM.pack(zlib.crc32(entry, at))
            start = end
        _write_at(self.descriptor, directory + b"".join(keys), find_run(level, group))


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    unwritten = memoryview(data)
    while unwritten:
        written = os.pwrite(descriptor, unwritten, offset)
        unwritten, offset = unwritten[written:], offset + written


def _problem_size(problem: ReadProblem) -> int:
    """Return the most bytes that a problem takes as JSON."""
    return len(problem.detail) * 6 + 30


def _encode_head(
    salt: bytes, stamp: Sequence[int], entries: int, problems: bytes, *, refused: bool = False
) -> bytes:
    head = HEAD.pack(
        MAGIC, salt, int(refused), entries, *stamp, len(problems), zlib.crc32(problems), 0
    )[: -CHECKSUM.size]
    return head + CHECKSUM.pack(zlib.crc32(head)) + problems


def _sign(page: bytearray) -> bytes:
    """Return a page with its checksum."""
    CHECKSUM.pack_into(
        page, PAGE_BYTES - CHECKSUM.size, zlib.crc32(memoryview(page)[: -CHECKSUM.size])
    )
    return bytes(page)
