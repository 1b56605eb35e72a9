"""What a compaction takes out of the view, as a compressed file of its own: `0001-….jsonl.gz`, which can be listed and read by itself.

The transcript keeps these entries, too; where its own file is to become shorter, `promptkit.transcript.jsonl.archive` moves them.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from filelock import FileLock

from promptkit.compaction.compactor import Compactor
from promptkit.compaction.planning.coverage import find_covered_entries
from promptkit.errors import TranscriptFormatError
from promptkit.transcript.entries import Checkpoint
from promptkit.transcript.jsonl.format import ARCHIVE_SUFFIX, Header, EntryLine, encode_batch, header_from_line, encode_header, line_from_bytes
from promptkit.transcript.jsonl.store import replace_file

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import BinaryIO

    from promptkit.compaction.compactor import DraftSummary
    from promptkit.transcript.entries import Entry

__all__ = ["Archive", "ArchiveDirectory", "ArchivingCompactor", "read_archive"]

LOCK = ".lock"

_NAME = re.compile(rf"(\d{{4,}})-([0-9a-f]{{16}}){re.escape(ARCHIVE_SUFFIX)}")


@attrs.define
class Archive:
    """A file that is being held: it goes again unless somebody says that it stays."""

    path: Path
    kept: bool = False

    def keep(self) -> None:
        """What it was written for has happened."""
        self.kept = True


class ArchiveDirectory:
    """A folder of archives. The same entries are archived once; several processes may share it. `timeout` is seconds to wait for others."""

    def __init__(self, folder: Path, *, timeout: float = 10.0) -> None:
        self.folder = folder
        self._timeout = timeout

    @property
    def files(self) -> tuple[Path, ...]:
        """The archives, oldest first."""
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        named = ((path, _NAME.fullmatch(path.name)) for path in found)
        return tuple(path for _, path in sorted((int(match[1]), path) for path, match in named if match))

    @contextmanager
    def hold(self, entries: Sequence[Entry]) -> Generator[Archive]:
        """Write entries, durably, before something happens that drops them; without `keep()` in the block, the file is deleted behind it.

        One that was there before, with the same entries, stays in any case. Raises OSError, and TranscriptError for what has no form in JSON.
        """
        held, new = self._write(entries)
        try:
            yield held
        finally:
            if new and not held.kept:
                held.path.unlink(missing_ok=True)

    def _write(self, entries: Sequence[Entry]) -> tuple[Archive, bool]:
        digest = hashlib.sha256("\0".join(entry.id for entry in entries).encode()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / LOCK, timeout=self._timeout):
            files = self.files
            known = next((path for path in files if path.name.endswith(f"-{digest}{ARCHIVE_SUFFIX}")), None)
            if known is not None:
                return Archive(known), False
            number = 1 + max((int(path.name.split("-")[0]) for path in files), default=0)
            path = self.folder / f"{number:04}-{digest}{ARCHIVE_SUFFIX}"

            def fill(file: BinaryIO) -> None:
                # Without a name and a time, the same entries always give the same bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                    packed.write(encode_header(Header()))
                    for entry in entries:
                        packed.write(encode_batch([entry]))

            replace_file(path, fill)
        return Archive(path), True


def read_archive(path: Path) -> tuple[Entry, ...]:
    """The entries of an archive. Raises TranscriptFormatError for a damaged file, and OSError."""
    entries: list[Entry] = []
    try:
        with gzip.open(path, "rb") as file:
            header_from_line(file.readline(), str(path))
            for number, line in enumerate(file, 2):
                read = line_from_bytes(line)
                if not isinstance(read, EntryLine):
                    raise TranscriptFormatError(read or "a blank line.", file=str(path), line=number)
                entries.append(read.entry)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"the archive is damaged ({error})."
        raise TranscriptFormatError(problem, file=str(path)) from error
    return tuple(entries)


class ArchivingCompactor(Compactor):
    """A compactor that writes what a checkpoint drops into an archive before it writes the checkpoint, and deletes it if that fails."""

    archives: ArchiveDirectory | None = None
    """Where to; None: nothing is archived."""

    async def commit(self, draft: DraftSummary) -> Entry | None:
        """As that of any compactor. What keeps the archive from being written keeps the checkpoint from being written."""
        if self.archives is None:
            return await super().commit(draft)
        planned = Checkpoint(summary=draft.summary.text, first_kept=draft.plan.first_kept)
        path = self.transcript.path()
        if draft.plan.first_kept is None:  # what was said since the plan was made is kept
            ids = [entry.id for entry in path]
            path = path[: ids.index(draft.plan.leaf) + 1] if draft.plan.leaf in ids else ()
        with ExitStack() as stack:
            try:
                archive = stack.enter_context(self.archives.hold(find_covered_entries(path, planned)))
            except OSError as error:
                self.discard(draft, f"the archive could not be written: {error.strerror or error}")
                raise
            entry = await super().commit(draft)
            if entry is not None:
                archive.keep()
        return entry
