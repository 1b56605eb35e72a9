"""Archives of what a compaction drops from the view: a file for each checkpoint, `0001-….jsonl.gz`, with records as in a transcript's file.

The transcript keeps these entries, too. `JsonlStore.archive` moves them out of the
transcript's own file.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock

from promptkit.compaction.planning.blocks import find_covered_entries
from promptkit.compaction.run.compactor import Compactor, DraftSummary
from promptkit.compaction.run.replacement import ReplacementMessages
from promptkit.files import replace_file
from promptkit.messages import Message
from promptkit.reprs import describe
from promptkit.transcript import Checkpoint, Entry
from promptkit.transcript.stores.jsonl.format import (
    ARCHIVE_SUFFIX,
    Header,
    encode_batch,
    encode_header,
)


class ArchiveDirectory:
    """A folder of archives.

    The same entries are archived once. Several processes may share the folder.

    Args:
        folder: The folder. It is created when the first archive is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        return describe(self, folder=str(self.folder))

    @property
    def files(self) -> tuple[Path, ...]:
        """The archives, oldest first."""
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
