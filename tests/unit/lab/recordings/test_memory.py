"""A recording may be larger than memory: what is held of it are ids."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.examples import keep_first
from tests.unit.lab.recordings.samples import answer, result, use, user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WORDS = "some words of a long result, again and again. " * 200

MEASURE = """
import resource, sys
from pathlib import Path
from promptkit.lab.recordings.importing import import_recording
made = import_recording(Path(sys.argv[1]), Path(sys.argv[1] + ".out"))
print(made.counts.messages, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def claude() -> Iterator[str]:
    parent, number = None, 0
    while True:
        number += 1
        asked, said, done = f"u{number}", f"a{number}", f"r{number}"
        yield json.dumps(user(asked, parent, WORDS)) + "\n"
        yield json.dumps(answer(said, asked, f"m{number}", use(f"c{number}"))) + "\n"
        yield json.dumps(user(done, said, result(f"c{number}", WORDS))) + "\n"
        parent = done


def chat() -> Iterator[str]:
    yield '[{"role": "system", "content": "x"}'
    while True:
        yield f",{json.dumps({'role': 'user', 'content': WORDS})}"


FORMATS: dict[str, tuple[Callable[[], Iterator[str]], str]] = {
    "claude_code": (claude, ""),
    "openai_chat": (chat, "]"),
}


def peak(path: Path, name: str, megabytes: int) -> int:
    """The most memory that a process takes in which such a file is imported, in KiB."""
    made, end = FORMATS[name]
    written = 0
    with path.open("w", encoding="utf-8") as file:
        for piece in made():
            written += file.write(piece)
            if written > megabytes * 1_000_000:
                break
        file.write(end)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True
    )
    messages, kib = map(int, done.stdout.split())
    assert messages > 50 * megabytes
    path.unlink()
    return kib


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="no figure for the memory of a process")
@pytest.mark.parametrize("name", keep_first(1, *FORMATS))
def test_ten_times_the_file_takes_no_more_memory(name: str, tmp_path: Path) -> None:
    small, large = peak(tmp_path / "small", name, 2), peak(tmp_path / "large", name, 20)
    assert large < 1.5 * small


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no figure for the memory of a process")
@pytest.mark.parametrize("name", FORMATS)
def test_three_hundred_megabytes_take_no_more_memory(name: str, tmp_path: Path) -> None:
    small, large = peak(tmp_path / "small", name, 4), peak(tmp_path / "large", name, 300)
    assert large < 3 * small
