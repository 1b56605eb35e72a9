"""What the commands that work on many files share: their options, a progress bar, and the report of what failed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from promptkit.cli.output.terminal import escape_control_chars, is_quiet, usage_error
from promptkit.lab import corpus

if TYPE_CHECKING:
    from promptkit.messages import Json

Command = TypeVar("Command", bound="Callable[..., Any]")  # Any: the arguments of any command


def engine_options(command: Command) -> Command:
    """Add the options that say where the work is done."""
    for option in (  # the last one first, as decorators are applied
        click.option(
            "--state",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Where unfinished work is kept, so that the same command goes on after an interrupt. By default beside OUT.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(1, 256),
            help="Parallel processes. By default one for each processor.",
        ),
        click.option(
            "--engine",
            default="local",
            show_default=True,
            metavar="ENGINE",
            help="Where the work is done: local processes, dask or ray on this machine, or a cluster, dask://HOST:PORT or ray://HOST:PORT.",
        ),
    ):
        command = option(command)
    return command


def check_inputs(files: Sequence[Path | str]) -> None:
    """End the command with a sentence if a file that is named does not exist."""
    for file in files:
        if isinstance(file, Path) and not file.is_file() and not corpus.is_pattern(file):
            usage_error(
                f"there is no file {file}; it is a folder: write '{file}/**/*.jsonl' for the files in it."
                if file.is_dir()
                else f"there is no file {file}."
            )


def expand_inputs(files: Sequence[Path | str]) -> list[Path | str]:
    """Return the files with globs replaced by what they match.

    A file that is named twice is there once.
    """
    return list(
        {
            str(each): each
            for file in files
            for each in (sorted(corpus.list_inputs(file)) if corpus.is_pattern(file) else [file])
        }.values()
    )


def run_on_files(  # noqa: PLR0913  # keywords
    job: corpus.CorpusJob,
    files: Sequence[Path | str],
    output: Path | str | None,
    *,
    title: str,
    engine: str,
    workers: int | None,
    state: Path | None,
    force: bool,
    on_totals: Callable[[Json], object] | None = None,
) -> corpus.CorpusSummary:
    """Run a job over files, with a progress bar if stderr is a terminal.

    An interrupt says how to go on.
    """
    from promptkit.lab.engines import open_engine

    place = state or corpus.find_state(output or "promptkit")
    progress = (0, 0)

    def tell(done: int, total: int) -> None:
        nonlocal progress
        progress = done, total
        update(done, total)

    try:
        with show_bar(title) as update, open_engine(engine, workers=workers) as executor:
            return corpus.run_job(
                job,
                files,
                output,
                executor=executor,
                state=place,
                force=force,
                on_progress=tell,
                on_totals=on_totals,
            )
    except KeyboardInterrupt:
        if progress[0]:
            print_problem(
                f"{progress[0]:,} of {progress[1]:,} files are done and kept in {place}: the same command goes on from there."
            )
        raise


def report_failures(summary: corpus.CorpusSummary) -> None:
    """Print on stderr why files or conversations have no result."""
    for error in summary.errors:
        print_problem(error.replace("\n", "\\n"))
    if summary.failures > len(summary.errors):
        print_problem(f"{summary.failures - len(summary.errors):,} more failures.")


def print_problem(problem: str) -> None:
    """Print on stderr what went wrong, or what an interrupt leaves."""
    click.echo(f"promptkit: {escape_control_chars(problem)}", err=True)


@contextmanager
def show_bar(title: str, *, of_bytes: bool = False) -> Generator[Callable[[int, int], None]]:
    """Show a progress bar on stderr if it is a terminal, with the time that is left.

    Args:
        title: The text before the bar.
        of_bytes: Whether the bar counts bytes. By default it counts files, and shows their rate.

    Yields:
        A function that takes what is done and the whole.
    """
    if is_quiet() or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class RateColumn(ProgressColumn):
        """Files in a second."""

        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.1f}/s" if task.speed else "", style="progress.data.speed")

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *((DownloadColumn(),) if of_bytes else (MofNCompleteColumn(), RateColumn())),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        speed_estimate_period=30,
    ) as bar:
        task = bar.add_task(escape(title), total=None)

        def update(done: int, total: int) -> None:
            if bar.tasks[0].total is None:  # what an earlier run did is no work of this one
                bar.reset(task, total=total, completed=done)
            bar.update(task, completed=done, total=total)

        yield update
