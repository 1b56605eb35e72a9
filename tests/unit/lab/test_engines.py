"""Engines: every item has one result, also where the process that works on it dies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from promptkit.errors import InvalidArgumentError
from promptkit.lab.engines import EngineError, LostItem, open_engine, run_each
from tests.paths import ROOT
from tests.unit.lab.engine_tasks import die_at_13, die_once, raise_error, sleep_after, square

if TYPE_CHECKING:
    from collections.abc import Iterator


SQUARES = {item: item * item for item in range(40)}


def test_any_executor_runs_all_items_and_reads_no_more_than_it_works_on() -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for at in range(1_000):
            read.append(at)
            yield at

    with ThreadPoolExecutor(2) as threads:
        results = run_each(threads, square, iter(range(1_000)), chunk=7)
        assert dict(results) == {item: item * item for item in range(1_000)}
        first = run_each(threads, square, items())
        next(first)
        assert len(read) < 200
        del first


def test_one_worker_is_this_process() -> None:
    with open_engine(workers=1) as engine:
        assert dict(
            run_each(engine, lambda items: [os.getpid() for _ in items], range(3))
        ) == dict.fromkeys(range(3), os.getpid())


def test_an_error_of_the_function_ends_the_run() -> None:
    with ThreadPoolExecutor(2) as threads, pytest.raises(ArithmeticError):
        list(run_each(threads, raise_error, range(3)))


def test_a_process_that_dies_is_replaced_and_its_items_are_run_again(tmp_path: Path) -> None:
    with open_engine(workers=2) as engine:
        assert dict(run_each(engine, partial(die_once, tmp_path), range(40), chunk=8)) == SQUARES
        assert (tmp_path / "died").exists()


def test_an_error_in_the_block_ends_the_processes_at_once(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), open_engine(workers=2) as engine:  # noqa: PT012  # what the block does is the subject
        engine.submit(sleep_after, tmp_path / "begun")
        while not (tmp_path / "begun").exists() and time.monotonic() < start + 30:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert time.monotonic() - start < 30  # the sleep takes a minute


@pytest.mark.slow
def test_an_item_that_ends_each_process_costs_no_other_its_result() -> None:
    with open_engine(workers=2) as engine:
        assert dict(run_each(engine, die_at_13, range(40), chunk=8)) == {
            **SQUARES,
            13: LostItem(13),
        }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dask", "ray"])
class TestClusters:
    @pytest.fixture(autouse=True)
    def _library(self, name: str) -> None:
        pytest.importorskip(
            "distributed" if name == "dask" else "ray", reason=f"pip install '.[{name}]'"
        )

    @pytest.mark.filterwarnings("ignore")  # of the libraries, when their processes end
    def test_a_worker_that_is_killed_costs_no_result(self, name: str, tmp_path: Path) -> None:
        with open_engine(name, workers=2) as engine:
            assert (
                dict(run_each(engine, partial(die_once, tmp_path), range(40), chunk=8)) == SQUARES
            )
            assert (tmp_path / "died").exists()

    @pytest.mark.filterwarnings("ignore")  # as above
    def test_an_item_that_ends_each_worker_costs_no_other_its_result(self, name: str) -> None:
        with open_engine(name, workers=2) as engine:
            assert dict(run_each(engine, die_at_13, range(40), chunk=8)) == {
                **SQUARES,
                13: LostItem(13),
            }


@pytest.mark.parametrize("name", ["spark", "local://x", "dask://", "ray://", ""])
def test_an_engine_that_does_not_exist_is_refused(name: str) -> None:
    with (
        pytest.raises(
            InvalidArgumentError,
            match=r"there is no engine .*: write local, dask, ray, dask://HOST:PORT",
        ),
        open_engine(name),
    ):
        pass


def test_a_cluster_has_its_own_number_of_workers() -> None:
    with (
        pytest.raises(InvalidArgumentError, match="leave out --workers"),
        open_engine("dask://host:1", workers=2),
    ):
        pass


@pytest.mark.parametrize(("name", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_library_that_is_missing_is_named_with_its_extra(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with (
        pytest.raises(
            EngineError, match=rf"needs the library {module}: .*'\.\[{name}\]'` in a checkout"
        ),
        open_engine(name),
    ):
        pass


ENDLESS = """
import os
import time
from promptkit.lab.engines import open_engine, run_each

def sleep(items):
    os.write(1, b"%d\\n" % os.getpid())  # at once, since the other writes too
    time.sleep(60)

if __name__ == "__main__":
    with open_engine(workers=2) as engine:
        list(run_each(engine, sleep, range(2)))
"""


@pytest.mark.skipif(os.name != "posix", reason="looks at processes by their numbers")
def test_the_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout
        workers = [int(process.stdout.readline()) for _ in range(2)]
        process.kill()
        process.wait()
        deadline = time.monotonic() + 20
        while any(map(_is_running, workers)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(_is_running, workers))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")
