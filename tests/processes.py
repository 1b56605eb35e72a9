"""Programs in processes of their own that start at once.

`promptkit chat` and a pytest session with its plugins load for a second or more, and the suite
starts some hundred of them. Here they are forked from a server that has loaded what they share; it
is started by the first of them. What a program loads, and how it behaves as a real command, is
tested with `subprocess`.
"""

from __future__ import annotations

import gc
import importlib
import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

if "forkserver" in multiprocessing.get_all_start_methods():
    # Here and not when it is first used: a test with `pytester` would forget the module at its end,
    # and the server with it.
    importlib.import_module("multiprocessing.popen_forkserver")

__all__ = ["run_program"]

Program: TypeAlias = Literal["promptkit", "pytest"]

LIMIT = 120.0
"""Seconds until a program that does not end is killed."""


def run_program(
    program: Program, *arguments: str, folder: Path, environment: Mapping[str, str], lines: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end.

    Args:
        program: `promptkit`, or pytest as `python -m pytest` runs it.
        arguments: Those of the command line.
        folder: The working directory.
        environment: All environment variables of the program. Those that Python reads when it
            starts have no effect.
        lines: What the program reads from stdin.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        command = (
            [str(Path(sys.executable).parent / "promptkit")]
            if program == "promptkit"
            else [sys.executable, "-m", "pytest"]
        )
        return subprocess.run(
            [*command, *arguments],
            input=lines,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            cwd=folder,
            env=environment,
            timeout=LIMIT,
        )
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    with tempfile.TemporaryDirectory() as place:
        job = _Job(
            program=program,
            arguments=arguments,
            folder=str(folder),
            environment=dict(environment),
            place=place,
        )
        job.path(0).write_text(lines, encoding="utf-8")
        process = context.Process(target=_run, args=(job,))
        process.start()
        process.join(LIMIT)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired([program, *arguments], LIMIT)
        output, errors = (job.path(number).read_text(encoding="utf-8") for number in (1, 2))
        return subprocess.CompletedProcess([program, *arguments], process.exitcode, output, errors)


@attrs.frozen
class _Job:
    program: Program
    arguments: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    place: str
    """A folder with a file each for stdin, stdout and stderr."""

    def path(self, number: int) -> Path:
        return Path(self.place) / str(number)


def _run(job: _Job) -> NoReturn:
    """Become the program: what a fresh process has that this one has not is its streams, arguments, environment and folder."""
    gc.freeze()  # what is loaded here lives to the end: a collection need not look at it
    for number, flags in enumerate(
        (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
    ):
        os.dup2(os.open(job.path(number), flags), number)
    sys.stdin, sys.stdout, sys.stderr = (_stream(number) for number in range(3))
    os.environ.clear()
    os.environ.update(job.environment)
    os.chdir(job.folder)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in job.environment
    sys.argv = [job.program, *job.arguments]
    try:
        status = _main(job)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001  # as the interpreter ends a program
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _stream(number: int) -> io.TextIOWrapper:
    binary = open(number, "rb" if number == 0 else "wb", closefd=False)  # noqa: SIM115  # a descriptor, and open to the end
    return io.TextIOWrapper(
        binary,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "strict",
        write_through=number == 2,
    )


def _main(job: _Job) -> int:
    if job.program == "pytest":
        import pytest

        sys.path.insert(0, job.folder)
        # pytest asks for that of plugins that are loaded before it; here they were.
        return int(
            pytest.main(
                [*job.arguments, "-W", "ignore:Module already imported so cannot be rewritten"]
            )
        )
    from promptkit.cli.main import main

    return main(list(job.arguments))
