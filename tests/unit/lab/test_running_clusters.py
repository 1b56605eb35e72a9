"""Engines connect to clusters that are running: a scheduler and workers that these tests start on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from promptkit.lab.engines import EngineError, open_engine, run_each
from tests.paths import ROOT
from tests.unit.lab.engine_tasks import die_once, square

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

# warnings: of the libraries, when their processes end
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SQUARES = {item: item * item for item in range(40)}
SECONDS = 90
"""The longest wait for a cluster."""


def find_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(*command: str, log: Path) -> Generator[subprocess.Popen[bytes]]:
    """Run a program with the tests' modules, and end it with all that it started."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "components")]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(text: str, log: Path) -> None:
    end = time.monotonic() + SECONDS
    while text not in log.read_text(encoding="utf-8", errors="replace"):
        assert time.monotonic() < end, log.read_text(encoding="utf-8", errors="replace")
        time.sleep(0.1)


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("distributed", reason="pip install '.[dask]'")
    place, log = f"127.0.0.1:{find_port()}", tmp_path / "dask.log"
    dask = (sys.executable, "-m", "dask")
    host, port = place.split(":")
    with running(*dask, "scheduler", "--host", host, "--port", port, "--no-dashboard", log=log):
        wait_for("Scheduler at", log)
        worker = (
            *dask,
            "worker",
            f"tcp://{place}",
            "--nworkers",
            "2",
            "--nthreads",
            "1",
            "--host",
            host,
            "--no-dashboard",
        )
        with running(*worker, "--local-directory", str(tmp_path), log=log):
            wait_for("Registered to", log)
            yield f"dask://{place}"


@pytest.fixture
def ray(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("ray", reason="pip install '.[ray]'")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    port, log = find_port(), tmp_path_factory.mktemp("ray") / "ray.log"
    start = "from ray.scripts.scripts import main; main()"
    ports = (
        "--port",
        str(find_port()),
        "--ray-client-server-port",
        str(port),
        "--min-worker-port",
        "0",
        "--max-worker-port",
        "0",
    )
    place = ("--node-ip-address", "127.0.0.1", "--num-cpus", "2", "--include-dashboard", "false")
    with running(
        sys.executable, "-c", start, "start", "--head", "--block", *ports, *place, log=log
    ):
        wait_for("Ray runtime started", log)
        yield f"ray://127.0.0.1:{port}"


class TestDask:
    def test_all_items_have_results_although_a_worker_is_killed(
        self, dask: str, tmp_path: Path
    ) -> None:
        with open_engine(dask) as engine:
            assert engine.workers == 2
            assert (
                dict(run_each(engine, partial(die_once, tmp_path), range(40), chunk=8)) == SQUARES
            )
            assert (tmp_path / "died").exists()
        with open_engine(dask) as again:  # the cluster is not ended with the block
            assert dict(run_each(again, square, range(40), chunk=8)) == SQUARES


class TestRay:
    def test_all_items_have_results_although_a_worker_is_killed(
        self, ray: str, tmp_path: Path
    ) -> None:
        with open_engine(ray) as engine:
            assert (
                dict(run_each(engine, partial(die_once, tmp_path), range(40), chunk=8)) == SQUARES
            )
            assert (tmp_path / "died").exists()
        with open_engine(ray) as again:  # as above
            assert dict(run_each(again, square, range(40), chunk=8)) == SQUARES


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_cluster_that_is_not_there_is_named_in_the_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(
        "distributed" if name == "dask" else "ray", reason=f"pip install '.[{name}]'"
    )
    place = f"127.0.0.1:{find_port()}"
    with pytest.raises(EngineError, match=place), open_engine(f"{name}://{place}"):
        pass
