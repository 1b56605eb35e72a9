"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place, make sure that it is on the disk, and put it there: nobody ever reads half of it.

    A link stays a link; what is no regular file, such as a pipe, is written to as it is. Raises OSError.
    """
    place = path.resolve()
    if place.exists() and not place.is_file():
        place.write_bytes(content)
        return
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
