"""Archives of what a compaction drops from the view: compressed files of their own, `0001-….jsonl.gz`, that can be listed and read.

The transcript keeps these entries, too. `JsonlStore.archive` moves them out of the
transcript's own file.
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

from promptkit.compaction.planning.coverage import find_covered_entries
from promptkit.compaction.run.compactor import Compactor
from promptkit.errors import TranscriptFormatError
from promptkit.files import MAX_LINE_BYTES, open_gzip, read_lines, replace_file
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.stores.jsonl.format import (
    ARCHIVE_SUFFIX,
    EntryLine,
    Header,
    encode_batch,
    encode_header,
    header_from_line,
    line_from_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import BinaryIO

    from promptkit.compaction.run.compactor import DraftSummary
    from promptkit.transcript.log.entries import Entry


class ArchiveDirectory:
    """A folder of archives.

    The same entries are archived once. Several processes may share the folder.

    Args:
        folder: The folder. It is made when the first archive is written.
        timeout: Seconds to wait for the lock of another process.
    """

    def __init__(self, folder: Path, *, timeout: float = 10.0) -> None:
        self.folder = folder
        self._timeout = timeout

    @property
    def files(self) -> tuple[Path, ...]:
        """The archives, oldest first."""
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        matches = ((path, _NAME.fullmatch(path.name)) for path in paths)
        return tuple(
            path for _, path in sorted((int(match[1]), path) for path, match in matches if match)
        )

    @contextmanager
    def hold(self, entries: Sequence[Entry]) -> Generator[Archive]:
        """Write entries durably before the block that drops them runs.

        Without `keep()` in the block the file is deleted afterwards.

        An existing archive with the same entries is used, and is never deleted.

        Raises:
            OSError: The archive could not be written.
            TranscriptError: An entry cannot be written as JSON.
        """
        archive, is_new = self._write(entries)
        try:
            yield archive
        finally:
            if is_new and not archive.kept:
                archive.path.unlink(missing_ok=True)

    def _write(self, entries: Sequence[Entry]) -> tuple[Archive, bool]:
        digest = hashlib.sha256("\0".join(entry.id for entry in entries).encode()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / LOCK, timeout=self._timeout):
            files = self.files
            existing = next(
                (path for path in files if path.name.endswith(f"-{digest}{ARCHIVE_SUFFIX}")), None
            )
            if existing is not None:
                return Archive(existing), False
            number = 1 + max((int(path.name.split("-")[0]) for path in files), default=0)
            path = self.folder / f"{number:04}-{digest}{ARCHIVE_SUFFIX}"

            def fill(file: BinaryIO) -> None:
                # Without a file name and a time, the same entries always give the same bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as gzipped:
                    gzipped.write(encode_header(Header()))
                    for entry in entries:
                        gzipped.write(encode_batch([entry]))

            replace_file(path, fill)
        return Archive(path), True


@attrs.define
class Archive:
    """An archive file inside a `hold` block.

    It is deleted after the block unless `keep` was called.
    """

    path: Path
    kept: bool = False

    def keep(self) -> None:
        """Keep the file: the checkpoint that it was written for exists."""
        self.kept = True


def read_archive(path: Path) -> tuple[Entry, ...]:
    """Read the entries of an archive.

    Raises:
        TranscriptFormatError: The file is damaged.
        OSError: The file cannot be read.
    """
    entries: list[Entry] = []
    try:
        with open_gzip(path) as file:
            header_from_line(file.readline(MAX_LINE_BYTES), str(path))
            for number, line in enumerate(read_lines(file), 2):
                parsed = line_from_bytes(line)
                if not isinstance(parsed, EntryLine):
                    raise TranscriptFormatError(
                        parsed or "a blank line.", file=str(path), line=number
                    )
                entries.append(parsed.entry)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"the archive is damaged ({error})."
        raise TranscriptFormatError(problem, file=str(path)) from error
    return tuple(entries)


class ArchivingCompactor(Compactor):
    """A compactor that writes what a checkpoint drops into an archive before it writes the checkpoint.

    If the checkpoint fails, the archive is deleted.
    """

    archives: ArchiveDirectory | None = None
    """Where archives are written. None: nothing is archived."""

    async def commit(self, draft: DraftSummary) -> Entry | None:
        """Archive what the checkpoint drops, and commit.

        If the archive cannot be written, the checkpoint is not written either.
        """
        if self.archives is None:
            return await super().commit(draft)
        planned = Checkpoint(summary=draft.summary.text, first_kept=draft.plan.first_kept)
        path = self.transcript.path()
        # messages that were added after the plan was made are kept
        if draft.plan.first_kept is None:
            ids = [entry.id for entry in path]
            path = path[: ids.index(draft.plan.leaf) + 1] if draft.plan.leaf in ids else ()
        with ExitStack() as stack:
            try:
                archive = stack.enter_context(
                    self.archives.hold(find_covered_entries(path, planned))
                )
            except OSError as error:
                self.discard(draft, f"the archive could not be written: {error.strerror or error}")
                raise
            entry = await super().commit(draft)
            if entry is not None:
                archive.keep()
        return entry


LOCK = ".lock"
_NAME = re.compile(rf"(\d{{4,}})-([0-9a-f]{{16}}){re.escape(ARCHIVE_SUFFIX)}")
