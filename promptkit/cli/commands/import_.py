"""`promptkit import`: read a recording of another agent, print its counts, and write it as a transcript."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptkit.cli.input.params import ADDRESS
from promptkit.cli.output.errors import usage_error
from promptkit.cli.output.terminal import echo_wrapped, escape_control_chars, print_json

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
  promptkit import talk.jsonl -o "sqlite:///talks.db#42"
"""

LABELS = {
    "attachments": "attachments shown to the model",
    "tool_errors": "tool results that are errors",
    "unanswered": "tool calls without a result",
    "orphaned": "tool results without a call",
    "repeated_ids": "ids that several tool calls share",
    "thinking": "thinking parts",
    "skipped_lines": "lines that could not be read",
}
"""Count → how it is printed, where its own name says too little."""

MAX_PROBLEMS = 5
"""Problems of each kind that are printed."""

MAX_KEPT_KINDS = 8
"""Kinds of entries kept beside the messages that are printed."""


@click.command("import", short_help="Read a recording of another agent, and write it as a transcript.", epilog=EXAMPLES)
@click.argument("file", type=ADDRESS, metavar="FILE")
@click.option(
    "-o",
    "--output",
    type=ADDRESS,
    metavar="OUT",
    help="Where to write the transcript: a file, or a URL such as sqlite:///talks.db#42. By default only the counts are printed.",
)
@click.option("--format", "codec", default="auto", show_default=True, help="The format of the file; auto detects it.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def import_(*, file: Path | str, output: Path | str | None, codec: str, force: bool, as_json: bool) -> None:
    """Read a recording of a coding agent or a chat, gzipped or not, and print what it contains.

    Formats: Claude Code, Codex, pi, Gemini CLI, SWE-agent, mini-swe-agent, OpenHands, tau-bench, OpenAI chat messages and Anthropic
    messages. Lines that cannot be read are kept unchanged, counted, and reported with their line numbers.
    """
    import attrs

    from promptkit.recordings.importing import import_recording

    if force and output is None:
        usage_error("--force needs --output OUT, the file to replace.")
    with _bar(f"Reading {escape_control_chars(_name(file))}") as progress:
        result = import_recording(file, output, format_name=codec, overwrite=force, progress=progress)
    _warn(file, result)
    if as_json:
        print_json({"file": str(file), "format": result.format, **attrs.asdict(result.counts)})
    else:
        _print(file, output, result)


def _name(file: Path | str) -> str:
    return file if isinstance(file, str) else file.name


@contextmanager
def _bar(title: str) -> Generator[Callable[[int, int], None] | None]:
    """Show a progress bar on stderr if it is a terminal."""
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


def _warn(file: Path | str, result: ImportResult) -> None:
    """Print on stderr the lines that could not be read, and the entries that could not stay where they were."""
    for problems, count in ((result.skipped, result.counts.skipped_lines), (result.relocated, result.relocated_count)):
        for problem in problems[:MAX_PROBLEMS]:
            click.echo(escape_control_chars(f"{file}:{problem.line}: {problem.detail}"), err=True)
        if count > MAX_PROBLEMS:
            click.echo(escape_control_chars(f"{file}: {count - MAX_PROBLEMS:,} more problems of this kind."), err=True)


def _print(file: Path | str, output: Path | str | None, result: ImportResult) -> None:
    import attrs
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in attrs.asdict(result.counts).items():
        table.add_row(LABELS.get(name, name.replace("_", " ")), f"{count:,}")
    click.echo(f"{escape_control_chars(_name(file))}: {result.format}")
    Console(file=sys.stdout, highlight=False).print(table)
    if result.kept_by_name:
        names = list(result.kept_by_name.items())
        listed = ", ".join(f"{name} {count:,}" for name, count in names[:MAX_KEPT_KINDS])
        more = f", and {len(names) - MAX_KEPT_KINDS:,} other kinds" if len(names) > MAX_KEPT_KINDS else ""
        echo_wrapped(escape_control_chars(f"Kept beside the messages: {listed}{more}."))
    if output is not None:
        click.echo(escape_control_chars(f"{result.entries:,} entries written to {output}."))
