"""A job that takes a moment for each file, in a module that other processes can import."""

from __future__ import annotations

import time
from pathlib import Path

import attrs

from promptkit.lab.corpus.run import FileRows

__all__ = ["SlowJob"]


@attrs.frozen(kw_only=True)
class SlowJob:
    """A row with the file's name, and a line in a log for each file that is worked on."""

    log: str

    def run(self, file: str) -> FileRows:
        with Path(self.log).open("a") as log:
            log.write(f"{file}\n")
        time.sleep(0.1)
        return FileRows(rows=[{"file": file}])
