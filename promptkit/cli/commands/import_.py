"""`promptkit import`: read the recording of another agent, count what is in it, and write it as a transcript."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptkit.cli.output.errors import usage_error
from promptkit.cli.output.messages import print_json
from promptkit.cli.output.terminal import escape_control_chars

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from promptkit.recordings.importing import ImportResult

__all__ = ["import_"]

# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit import session.jsonl
  promptkit import session.jsonl -o talk.jsonl
  promptkit import rollout.jsonl.gz --format codex --json
"""

SHOWN = 5
"""Problems of each kind that are printed."""

AMONG = 8
"""Names of what was kept that are printed."""


@click.command("import", short_help="Read a recording of another agent; count it, write it as a transcript.", epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="OUT", help="Write the transcript here.")
@click.option("--format", "codec", default="auto", show_default=True, help="The format of the file; auto finds it out.")
@click.option("--force", is_flag=True, help="Replace OUT if it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def import_(*, file: Path, output: Path | None, codec: str, force: bool, as_json: bool) -> None:
    """Read the recording of a coding agent or a chat, compressed with gzip or not, and say what is in it.

    Known are Claude Code, Codex, pi, Gemini CLI, SWE-agent, mini-swe-agent, OpenHands, tau-bench, OpenAI chat messages and Anthropic
    messages. What cannot be read is kept as it is, counted, and told with its line.
    """
    import attrs

    from promptkit.recordings.importing import import_recording

    if force and output is None:
        usage_error("--force replaces OUT: name it with --output.")
    with _bar(f"Reading {escape_control_chars(file.name)}") as progress:
        made = import_recording(file, output, format_name=codec, overwrite=force, progress=progress)
    _warn(file, made)
    if as_json:
        print_json({"file": str(file), "format": made.format, **attrs.asdict(made.counts)})
    else:
        _print(file, output, made)


@contextmanager
def _bar(title: str) -> Generator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal, on stderr; nothing for a pipe or a log."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(title), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _warn(file: Path, made: ImportResult) -> None:
    """Say on stderr what could not be read, and what could not stand where it was."""
    for problems, count in ((made.skipped, made.counts.skipped_lines), (made.relocated, made.relocated_count)):
        for problem in problems[:SHOWN]:
            click.echo(escape_control_chars(f"{file}:{problem.line}: {problem.detail}"), err=True)
        if count > SHOWN:
            click.echo(escape_control_chars(f"{file}: and {count - SHOWN:,} more of these."), err=True)


def _print(file: Path, output: Path | None, made: ImportResult) -> None:
    import attrs
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in attrs.asdict(made.counts).items():
        table.add_row(name.replace("_", " "), f"{count:,}")
    click.echo(f"{escape_control_chars(file.name)}: {made.format}")
    Console(file=sys.stdout, highlight=False).print(table)
    if made.kept_by_name:
        names = list(made.kept_by_name.items())
        listed = ", ".join(f"{name} {count:,}" for name, count in names[:AMONG])
        more = f", and {len(names) - AMONG:,} other kinds" if len(names) > AMONG else ""
        click.echo(escape_control_chars(f"Kept beside the messages: {listed}{more}."))
    if output is not None:
        click.echo(escape_control_chars(f"{made.entries:,} entries are in {output}."))
