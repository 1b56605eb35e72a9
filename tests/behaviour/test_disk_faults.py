"""A full disk and a read-only folder: one clear sentence, no half file, nothing lost, and afterwards the same call works.

The disk is a small file system in memory that is really full, or really read-only. Where none may
be mounted, files may not grow (RLIMIT_FSIZE), which the system answers with an error of its own in
the middle of a write.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from syrupy.data import Snapshot, SnapshotCollection

from promptkit.cli.main import main
from promptkit.compaction.storage import ArchiveDirectory
from promptkit.errors import TranscriptError
from promptkit.testing.snapshots.snapshot import PromptExtension
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.transcript.stores.objects import ObjectStore
from promptkit.transcript.stores.sql import SqlStore
from tests.conversations import user_message

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

LARGE = 300_000
"""Characters that are written where there is no room for them. They hardly get smaller when they
are compressed."""
TEXT = os.urandom(LARGE // 2).hex()


class Disk:
    """A folder on a disk that can be filled up, or made read-only."""

    def __init__(self, folder: Path, *, mounted: bool) -> None:
        self.folder = folder
        self.mounted = mounted

    @contextmanager
    def full(self) -> Generator[None]:
        """A disk without room."""
        if not self.mounted:
            resource = pytest.importorskip(
                "resource",
                reason="without a file system of its own, only POSIX can limit the size of files",
            )
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
            try:
                yield
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            return
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file:
            for size in (65_536, 4_096, 1):
                try:
                    while file.write(b"x" * size) == size:
                        pass
                except OSError:
                    continue
        yield
        filler.unlink()

    @contextmanager
    def read_only(self) -> Generator[None]:
        """A disk to which nothing can be written."""
        if self.mounted:
            self._remount("ro")
        elif os.geteuid() == 0:
            pytest.skip("root may write to any folder, and no file system can be mounted")
        else:
            self.folder.chmod(0o500)
        try:
            yield
        finally:
            if self.mounted:
                self._remount("rw")
            else:
                self.folder.chmod(0o700)

    def _remount(self, option: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{option}", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A file system of two megabytes, or an ordinary folder where none may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "promptkit-tests", str(place)]
    is_root = sys.platform.startswith("linux") and os.geteuid() == 0
    mounted = is_root and subprocess.run(command, capture_output=True, check=False).returncode == 0
    yield Disk(place, mounted=mounted)
    if mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _command(*arguments: str) -> None:
    """Run `promptkit`: exit code 2 and one line is an error with that line as its text."""
    said = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(said):
        status = main(arguments)
    if status == 0:
        return
    assert status == 2, said.getvalue()
    lines = [line for line in said.getvalue().splitlines() if line.strip()]
    assert len(lines) == 1, lines
    raise OSError(lines[0])


def _transcript(folder: Path) -> Transcript:
    transcript = Transcript(JsonlStore(folder / "talk.jsonl"))
    transcript.append_messages(user_message("one"), user_message("two"))
    transcript.append_messages(user_message("three"))
    return transcript


def append_first(folder: Path) -> Callable[[], object]:
    return lambda: Transcript(JsonlStore(folder / "new.jsonl")).append_messages(user_message(TEXT))


def append(folder: Path) -> Callable[[], object]:
    transcript = _transcript(folder)
    return lambda: transcript.append_messages(user_message("a"), user_message(TEXT))


def archive(folder: Path) -> Callable[[], object]:
    transcript = Transcript(store := JsonlStore(folder / "talk.jsonl"))
    made = transcript.append_messages(user_message(TEXT))
    transcript.append_messages(user_message("two"))
    return partial(store.archive, through=made[0].id)


def append_to_sqlite(folder: Path) -> Callable[[], object]:
    url = f"sqlite:///{folder}/talks.db#42"
    Transcript(SqlStore(url)).append_messages(user_message("one"))
    return lambda: Transcript(SqlStore(url)).append_messages(user_message(TEXT))


def append_to_objects(folder: Path) -> Callable[[], object]:
    transcript = Transcript(ObjectStore(f"file://{folder}/talks#42"))
    transcript.append_messages(user_message("one"))
    return lambda: transcript.append_messages(user_message(TEXT))


def archive_of_a_compaction(folder: Path) -> Callable[[], object]:
    directory = ArchiveDirectory(folder / "archives")
    first, second = Transcript().append_messages(user_message("short"), user_message(TEXT))
    directory.write([first])
    return partial(directory.write, [second])


def snapshot(folder: Path) -> Callable[[], object]:
    def write(text: str) -> None:
        collection = SnapshotCollection(location=str(folder / "test_a.md"))
        collection.add(Snapshot(name="test_a", data=text))
        PromptExtension.write_snapshot_collection(snapshot_collection=collection)

    write("before")
    return partial(write, TEXT)


PROMPT = "from promptkit import UserMessage, TextChunk\nprompt = UserMessage()[[TextChunk(priority=n)['a word '] for n in range(900)]]\n"


def _prompt(folder: Path) -> str:
    (folder / "prompt.py").write_text(PROMPT)
    return f"{folder / 'prompt.py'}:prompt"


def baseline(folder: Path) -> Callable[[], object]:
    (folder / "baseline.json").write_text("{}")
    arguments = [
        "bench",
        _prompt(folder),
        "--budgets",
        "9000",
        "--repeat",
        "0",
        "-o",
        str(folder / "baseline.json"),
        "--force",
    ]
    return partial(_command, *arguments)


def trace(folder: Path) -> Callable[[], object]:
    (folder / "trace.html").write_text("before")
    return partial(
        _command,
        "trace",
        _prompt(folder),
        "--budget",
        "900",
        "-o",
        str(folder / "trace.html"),
        "--force",
    )


def imported(folder: Path) -> Callable[[], object]:
    (folder / "talk.json").write_text(json.dumps([{"role": "user", "content": TEXT}]))
    (folder / "talk.jsonl").write_text("before")
    return partial(
        _command, "import", str(folder / "talk.json"), "-o", str(folder / "talk.jsonl"), "--force"
    )


def exported(folder: Path) -> Callable[[], object]:
    transcript = _transcript(folder)
    transcript.append_messages(user_message(TEXT))
    (folder / "out.json").write_text("before")
    return partial(
        _command,
        "export",
        str(folder / "talk.jsonl"),
        "--to",
        "chat",
        "-o",
        str(folder / "out.json"),
        "--force",
    )


WRITERS: tuple[Callable[[Path], Callable[[], object]], ...] = (
    append_first,
    append,
    archive,
    append_to_sqlite,
    append_to_objects,
    archive_of_a_compaction,
    snapshot,
    baseline,
    trace,
    imported,
    exported,
)


def _contents(folder: Path) -> dict[str, object]:
    """What is in a folder, without lock files, which are empty.

    Of a database the entries, since its file also counts attempts.
    """
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name != "filler" and "lock" not in path.name
    ]
    found: dict[str, object] = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in files
        if not path.name.startswith("talks.db") and path.suffix != ".pyc"
    }
    if (folder / "talks.db").exists():
        found["talks.db"] = SqlStore(f"sqlite:///{folder}/talks.db#42").load().entries
    return found


def _says_one_sentence(error: BaseException) -> None:
    said = str(error)
    assert said
    assert "\n" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
@pytest.mark.parametrize("fault", ["full", "read_only"])
# Any stands for see WRITERS
def test_what_cannot_be_written_is_said_and_leaves_everything_as_it_was(
    writer: Any, fault: str, disk: Disk
) -> None:
    if fault == "read_only" and writer is append_to_sqlite:
        pytest.skip(
            "a connection stays open, and a file that is open to write keeps its file system from being made read-only"
        )
    write = writer(disk.folder)
    before = _contents(disk.folder)
    with getattr(disk, fault)():
        with pytest.raises((OSError, TranscriptError)) as caught:
            write()
        left = _contents(disk.folder) if fault == "full" else before
    during = _contents(disk.folder)
    assert left == before, "half a file was left"
    _says_one_sentence(caught.value)
    assert during == before, "something was changed, or half a file was left"
    write()
    after = _contents(disk.folder)
    assert after != before, "afterwards it works"


def test_a_lock_file_that_cannot_be_made_is_said(disk: Disk) -> None:
    path = disk.folder / "talk.jsonl"
    _transcript(disk.folder)
    for lock in disk.folder.glob(".*.lock"):
        lock.unlink()
    with (
        disk.read_only(),
        pytest.raises(
            TranscriptError,
            match=r"talk\.jsonl: .*lock file next to it cannot be locked: Read-only|Permission",
        ),
    ):
        Transcript(JsonlStore(path)).append_messages(user_message("four"))
    with disk.read_only():
        assert len(Transcript(JsonlStore(path))) == 3, "reading needs no lock"
