"""Runs over many files: each is worked on once, and the output is the same whatever does the work, in which order, and how often it ends."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from promptkit.errors import InvalidArgumentError, TranscriptError
from promptkit.lab.corpus import CorpusError, FileRows, ImportJob, ReplayJob, find_state, run_job
from promptkit.lab.engines import Engine, open_engine
from promptkit.lab.replay import ReplayOptions, ReplayRules, replay
from promptkit.lab.replay.runner import sum_results
from promptkit.tokens import read_prices
from tests.examples import examples
from tests.paths import ROOT, SHARED, needs_shared
from tests.unit.lab.replay.conversations import long_conversation, write_transcript

if TYPE_CHECKING:
    from collections.abc import Callable


@attrs.frozen(kw_only=True)
class Echo:
    """A row with the text of the file, and a line in a log for each file that is worked on."""

    log: str = ""

    def run(self, file: str) -> FileRows:
        if self.log:
            with Path(self.log).open("a") as log:
                log.write(f"{file}\n")
        text = Path(file).read_text()
        if text == "bad":
            problem = "it is bad."
            raise TranscriptError(problem)
        return FileRows(
            rows=[
                {"file": file, "text": text, "length": len(text)},
                {"file": file, "text": None, "length": 0.5},
            ],
            totals=len(text),
        )


class Backwards(Executor):
    """Runs two tasks at a time, the later one first."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, partial(fn, *args, **kwargs)))
        if len(self.waiting) == 2:
            for each, run in reversed(self.waiting):
                each.set_result(run())
            self.waiting = []
        return future


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    for at in range(60):
        Path(f"in{at:02}.txt").write_text("bad" if at == 7 else "x" * at)
    return [Path(f"in{at:02}.txt") for at in range(60)]


def read_rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_rows_are_written_in_the_order_of_the_files_whatever_does_the_work(
    files: list[Path],
) -> None:
    totals: list[Any] = []
    with open_engine(workers=1) as engine:
        summary = run_job(
            Echo(), ["in*.txt"], "one.jsonl", executor=engine, on_totals=totals.append
        )
    with ThreadPoolExecutor(4) as threads:
        run_job(Echo(), files, "two.jsonl", executor=threads)
    run_job(Echo(), files, "three.jsonl", executor=Engine(Backwards(), workers=1))
    assert (
        Path("one.jsonl").read_bytes()
        == Path("two.jsonl").read_bytes()
        == Path("three.jsonl").read_bytes()
    )
    rows = read_rows("one.jsonl")
    assert [row["file"] for row in rows] == [
        str(file) for file in files for _ in range(1 if file.name == "in07.txt" else 2)
    ]
    assert rows[14] == {"file": "in07.txt", "error": "it is bad."}
    assert (summary.files, summary.failures, summary.errors) == (60, 1, ("in07.txt: it is bad.",))
    assert totals == [at for at in range(60) if at != 7]
    assert not list(Path().glob("*.unfinished"))


def test_a_file_that_is_named_twice_counts_once(files: list[Path]) -> None:
    with open_engine(workers=1) as engine:
        summary = run_job(
            Echo(log="log"), [files[3], "in*.txt", files[1]], "out.jsonl", executor=engine
        )
    assert summary.files == 60
    assert [row["file"] for row in read_rows("out.jsonl")][:4] == [
        "in03.txt",
        "in03.txt",
        "in00.txt",
        "in00.txt",
    ]
    assert len(Path("log").read_text().splitlines()) == 60


def test_a_run_that_is_interrupted_goes_on_and_does_nothing_twice(files: list[Path]) -> None:
    def interrupt(done: int, _total: int) -> None:
        if done >= 20:
            raise KeyboardInterrupt

    job = Echo(log="log")
    with open_engine(workers=1) as engine:
        run_job(Echo(), files, "whole.jsonl", executor=engine)
        with pytest.raises(KeyboardInterrupt):
            run_job(job, files, "out.jsonl", executor=engine, on_progress=interrupt)
        assert not Path("out.jsonl").exists()
        before = len(Path("log").read_text().splitlines())
        seen: list[tuple[int, int]] = []
        run_job(
            job,
            files,
            "out.jsonl",
            executor=engine,
            on_progress=lambda done, total: seen.append((done, total)),
        )
    assert seen[0] == (20, 60)
    assert seen[-1] == (60, 60)
    assert before < 30  # what was finished, and what was begun when the interrupt came
    assert len(Path("log").read_text().splitlines()) - before == 40
    assert Path("out.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


def test_unfinished_work_of_another_run_is_not_taken_for_this_one(files: list[Path]) -> None:
    def interrupt(done: int, _total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with open_engine(workers=1) as engine:
        with pytest.raises(KeyboardInterrupt):
            run_job(Echo(), files, "out.jsonl", executor=engine, on_progress=interrupt)
        for job, inputs in ((Echo(log="log"), files), (Echo(), files[1:])):
            with pytest.raises(
                CorpusError,
                match=r"out\.jsonl\.unfinished holds an unfinished run with other files or options: give them",
            ):
                run_job(job, inputs, "out.jsonl", executor=engine)


def test_two_runs_cannot_share_their_unfinished_work(files: list[Path]) -> None:
    def start_another(_done: int, _total: int) -> None:
        with open_engine(workers=1) as other:
            run_job(Echo(), files, "out.jsonl", executor=other)

    with (
        open_engine(workers=1) as engine,
        pytest.raises(CorpusError, match=r"another process works with out\.jsonl\.unfinished"),
    ):
        run_job(Echo(), files, "out.jsonl", executor=engine, on_progress=start_another)


def test_a_damaged_file_of_unfinished_work_is_reported(files: list[Path]) -> None:
    Path("out.jsonl.unfinished").write_bytes(
        b"no database, but long enough to be looked at as one" * 100
    )
    with (
        open_engine(workers=1) as engine,
        pytest.raises(
            CorpusError, match=r"out\.jsonl\.unfinished cannot be used .*: file is not a database"
        ),
    ):
        run_job(Echo(), files, "out.jsonl", executor=engine)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("out.csv", r"name out.csv with the suffix \.jsonl or \.parquet"),
        ("none/out.jsonl", "there is no folder none"),
        ("there.jsonl", "there.jsonl already exists: name another file, or pass --force"),
        ("folder.jsonl", "folder.jsonl is a folder"),
        ("https://host/out.jsonl", "https:// can only be read: write to a file, or to s3://"),
        ("hf://datasets/a/b/out.jsonl", "hf:// can only be read"),
        ("sqlite:///talks.db#1.jsonl", "rows are written as JSON lines"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    files: list[Path], output: str, why: str
) -> None:
    Path("there.jsonl").touch()
    Path("folder.jsonl").mkdir()
    with (
        open_engine(workers=1) as engine,
        pytest.raises((CorpusError, InvalidArgumentError), match=why),
    ):
        run_job(Echo(log="log"), files, output, executor=engine)
    assert not Path("log").exists()


def test_parquet_has_the_same_rows_and_a_type_for_each_column(files: list[Path]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install '.[parquet]'")
    with open_engine(workers=1) as engine:
        run_job(Echo(), files, "out.jsonl", executor=engine)
        run_job(Echo(), files, "out.parquet", executor=engine)
    with ThreadPoolExecutor(4) as threads:
        run_job(Echo(), files, "again.parquet", executor=threads)
    table = parquet.read_table(Path("out.parquet"))
    expected = [
        {"file": None, "text": None, "length": None, "error": None} | row
        for row in read_rows("out.jsonl")
    ]
    assert table.to_pylist() == expected
    assert {field.name: str(field.type) for field in table.schema} == {
        "file": "string",
        "text": "string",
        "length": "double",
        "error": "string",
    }
    assert Path("out.parquet").read_bytes() == Path("again.parquet").read_bytes()


def test_an_output_that_is_a_link_to_an_input_is_refused(files: list[Path]) -> None:
    Path("out.jsonl").symlink_to("in03.txt")
    with (
        open_engine(workers=1) as engine,
        pytest.raises(CorpusError, match=r"out\.jsonl is also an input"),
    ):
        run_job(Echo(), files, "out.jsonl", executor=engine, force=True)
    assert Path("in03.txt").read_text() == "xxx"


@pytest.mark.parametrize("content", ["x", ""])
def test_unfinished_work_is_kept_neither_in_the_output_nor_in_an_input(
    files: list[Path], content: str
) -> None:
    files[2].write_text(content)
    with open_engine(workers=1) as engine:
        with pytest.raises(
            CorpusError,
            match=r"out\.jsonl is the output: name another file for the unfinished work",
        ):
            run_job(Echo(), files, "out.jsonl", executor=engine, state=Path("./out.jsonl"))
        with pytest.raises(
            CorpusError,
            match=r"in02\.txt is an input, and|in02\.txt cannot be used .*: file is not a database",
        ):
            run_job(Echo(), files, "out.jsonl", executor=engine, state=files[2])
    assert files[2].read_text() == content


def test_a_glob_leaves_the_unfinished_work_out(files: list[Path]) -> None:
    with open_engine(workers=1) as engine:
        assert run_job(Echo(), ["*"], "out.jsonl", executor=engine).files == len(files)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs links and pipes")
def test_what_was_planted_in_the_place_of_the_unfinished_work_is_refused(files: list[Path]) -> None:
    place, victim = Path("out.jsonl.unfinished"), Path("victim")
    with open_engine(workers=1) as engine:
        for content in (None, b""):
            if content is not None:
                victim.write_bytes(content)
            place.symlink_to("victim")
            with pytest.raises(
                CorpusError, match=r"out\.jsonl\.unfinished cannot be used .*: it is a link"
            ):
                run_job(Echo(), files, "out.jsonl", executor=engine)
            assert victim.exists() == (content is not None)
            place.unlink()
        os.mkfifo(place)
        with pytest.raises(CorpusError, match="it is not a regular file"):
            run_job(Echo(), files, "out.jsonl", executor=engine)
    assert victim.read_bytes() == b""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives files to another user"
)
def test_unfinished_work_of_another_user_is_refused(files: list[Path]) -> None:
    Path("out.jsonl.unfinished").touch()
    os.chown("out.jsonl.unfinished", 65534, 65534)
    with (
        open_engine(workers=1) as engine,
        pytest.raises(CorpusError, match="it belongs to another user"),
    ):
        run_job(Echo(), files, "out.jsonl", executor=engine)


@pytest.mark.skipif(os.name != "posix", reason="looks at the permissions")
def test_only_the_user_may_read_unfinished_work(files: list[Path]) -> None:
    modes: set[int] = set()

    def look(_done: int, _total: int) -> None:
        modes.update(
            stat.S_IMODE(file.stat().st_mode) for file in Path().glob("out.jsonl.unfinished*")
        )

    with open_engine(workers=1) as engine:
        run_job(Echo(), files, "out.jsonl", executor=engine, on_progress=look)
    assert modes == {0o600}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have names of UTF-8 only")
@pytest.mark.parametrize("output", ["out.jsonl", "out.parquet"])
def test_names_need_not_be_utf_8(output: str, files: list[Path]) -> None:
    if output.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="pip install '.[parquet]'")
    name = os.fsdecode(b"bad\xff\n.txt")
    Path(name).write_text("x")
    with open_engine(workers=1) as engine:
        summary = run_job(Echo(), ["*.txt"], output, executor=engine)
    assert summary.files == len(files) + 1
    assert summary.failures == 1
    if output == "out.jsonl":
        assert read_rows(output)[0]["file"] == name


def test_two_files_that_would_be_one_transcript_are_refused_and_so_is_one_over_an_input(
    files: list[Path],
) -> None:
    assert files
    talk = json.dumps(
        [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    )
    for name in ("a", "b.json", "b.json.jsonl"):
        Path(name).write_text(talk)
    Path("a.jsonl").write_text(talk)
    with open_engine(workers=1) as engine:
        with pytest.raises(
            CorpusError, match=r"a\.jsonl would be written to out.a\.jsonl, and so would a: rename"
        ):
            run_job(ImportJob(out="out"), ["a", "a.jsonl"], None, executor=engine)
        with pytest.raises(
            CorpusError,
            match=r"b\.json would be written to b\.json\.jsonl, which is an input: rename",
        ):
            run_job(ImportJob(out="."), ["b.json", "b.json.jsonl"], None, executor=engine)
    assert not Path("out").exists()
    assert Path("b.json.jsonl").read_text() == talk


@pytest.mark.skipif(os.name != "posix", reason="makes links")
def test_a_link_in_the_folder_of_the_transcripts_is_not_followed_out_of_it(
    files: list[Path],
) -> None:
    assert files
    Path("in").mkdir()
    Path("in/a.json").write_text(json.dumps([{"role": "user", "content": "Hello"}]))
    Path("outside").mkdir()
    Path("out").symlink_to("outside")
    with open_engine(workers=1) as engine:
        # this one the user has named
        assert run_job(ImportJob(out="out"), ["in/a.json"], None, executor=engine).failures == 0
        Path("outside/in/a.json.jsonl").unlink()
        Path("victim").write_text("mine")
        Path("outside/in/a.json.jsonl").symlink_to(Path("victim").resolve())
        summary = run_job(ImportJob(out="out"), ["in/a.json"], None, executor=engine)
    assert "a link leads out of out" in summary.errors[0]
    assert Path("victim").read_text() == "mine"


def test_the_state_of_an_output_behind_a_url_is_in_the_current_folder() -> None:
    assert find_state("s3://bucket/a/rows.parquet") == Path("rows.parquet.unfinished")
    assert find_state("a/rows.jsonl") == Path("a/rows.jsonl.unfinished")
    assert find_state(".") == Path(f"{Path.cwd()}.unfinished")


@pytest.mark.slow
def test_the_memory_does_not_grow_with_the_number_of_files(tmp_path: Path) -> None:
    import tracemalloc

    peaks: list[int] = []
    for count in (2_000, 6_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        for at in range(count):
            (folder / f"{at}.txt").write_text("x" * 500)
        tracemalloc.start()
        with open_engine(workers=1) as engine:
            run_job(Echo(), [f"{folder}/*.txt"], tmp_path / f"{count}.jsonl", executor=engine)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 100_000


def options() -> ReplayOptions:
    rules = ReplayRules(model="gpt-5", window=8_000, cache="openai")
    return ReplayOptions(
        policies=("vscode", "drop_oldest"),
        rules=rules,
        price=read_prices().for_model("gpt-5"),
        oracle=True,
    )


def test_a_replay_has_a_row_for_each_conversation_and_policy_and_its_totals_are_the_results(
    tmp_path: Path,
) -> None:
    files = [
        write_transcript(tmp_path / f"talk{turns}.jsonl", long_conversation(turns))
        for turns in (5, 3)
    ]
    job = ReplayJob(options=options())
    totals: list[Any] = []
    with open_engine(workers=1) as engine:
        run_job(
            job,
            [*files, tmp_path / "none.jsonl"],
            tmp_path / "out.jsonl",
            executor=engine,
            on_totals=totals.append,
        )
    rows = read_rows(str(tmp_path / "out.jsonl"))
    assert [(row["file"], row.get("conversation"), row.get("policy")) for row in rows] == [
        *((str(file), 0, policy) for file in files for policy in job.options.policies),
        (str(tmp_path / "none.jsonl"), None, None),
    ]
    assert rows[-1]["error"] == f"there is no file {tmp_path / 'none.jsonl'}."
    assert all(0 < row["lower_bound"] <= row["planned_optimum"] for row in rows if "policy" in row)
    results = replay(files, options())
    assert [job.read_totals(each) for each in totals] == results
    summed = sum_results([job.read_totals(each) for each in totals], options(), file="2 files")
    assert [policy.totals.requests for policy in summed.policies] == [
        sum(row["requests"] for row in rows if row.get("policy") == policy.policy)
        for policy in summed.policies
    ]


SCRIPT = """
import sys
from promptkit.lab.corpus import run_job
from promptkit.lab.engines import open_engine
from tests.unit.lab.corpus.slow_job import SlowJob

if __name__ == "__main__":
    with open_engine("local", workers=2) as engine:
        run_job(SlowJob(log="log"), ["in*.txt"], "out.jsonl", executor=engine)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_where_it_was(files: list[Path]) -> None:
    Path("script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'components'}"}
    command = [sys.executable, "script.py"]
    with subprocess.Popen(command, env=environment) as process:
        deadline = time.monotonic() + 60
        while _count_lines("log") < 40 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    begun = _count_lines("log")
    with sqlite3.connect("out.jsonl.unfinished") as database:
        saved: int = database.execute("SELECT count(*) FROM outcomes").fetchone()[0]
    assert 0 < saved <= begun < 60
    subprocess.run(command, env=environment, check=True, timeout=60)
    assert _count_lines("log") - begun == 60 - saved
    assert [row["file"] for row in read_rows("out.jsonl")] == [str(file) for file in files]


def _count_lines(path: str) -> int:
    return Path(path).read_text().count("\n") if Path(path).exists() else 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the libraries, when their processes end
@needs_shared("transcripts")
@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_replay_of_all_shared_recordings_is_the_same_on_every_engine(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(
        "distributed" if name == "dask" else "ray", reason=f"pip install '.[{name}]'"
    )
    monkeypatch.chdir(SHARED / "transcripts")
    for engine_name in ("local", name):
        with open_engine(engine_name, workers=2) as engine:
            summary = run_job(
                ReplayJob(options=options()),
                ["*/*"],
                tmp_path / f"{engine_name}.jsonl",
                executor=engine,
            )
        assert summary.files >= 18
        assert summary.failures == 0
    assert (tmp_path / "local.jsonl").read_bytes() == (tmp_path / f"{name}.jsonl").read_bytes()


def test_unfinished_work_is_whole_or_reported_whatever_byte_of_it_is_damaged(
    files: list[Path],
) -> None:
    def interrupt(done: int, _total: int) -> None:
        if done > 3:
            raise KeyboardInterrupt

    state, rng = Path("out.jsonl.unfinished"), random.Random(7)
    with open_engine(workers=1) as engine:
        run_job(Echo(), files, "whole.jsonl", executor=engine)
        with pytest.raises(KeyboardInterrupt):
            run_job(Echo(), files, "out.jsonl", executor=engine, on_progress=interrupt)
        good = state.read_bytes()
        places = [at for at, byte in enumerate(good) if byte]
        reported = 0
        for _ in range(examples(300)):
            damaged = bytearray(good)
            damaged[rng.choice(places)] ^= 1 << rng.randrange(8)
            state.write_bytes(damaged)
            Path("out.jsonl").unlink(missing_ok=True)
            try:
                run_job(Echo(), files, "out.jsonl", executor=engine)
            except CorpusError as error:
                reported += 1
                assert "out.jsonl.unfinished" in str(error)  # noqa: PT017  # where there is one
            else:
                assert Path("out.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    assert reported > 10
