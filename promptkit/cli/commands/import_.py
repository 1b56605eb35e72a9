"""`promptkit import`: read a recording of another agent, print its counts, and write it as a transcript."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from promptkit.cli.corpus_run import (
    check_inputs,
    engine_options,
    report_failures,
    run_on_files,
    show_bar,
)
from promptkit.cli.input.params import force_option, json_option, read_address
from promptkit.cli.output.terminal import (
    count_nouns,
    echo_wrapped,
    escape_control_chars,
    is_quiet,
    print_json,
    usage_error,
)
from promptkit.lab import corpus, recordings

if TYPE_CHECKING:
    from promptkit.messages import Json

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


@click.command(
    "import",
    short_help="Read a recording of another agent, and write it as a transcript.",
    epilog="""
    Examples:
      promptkit import session.jsonl
      promptkit import session.jsonl -o talk.jsonl
      promptkit import rollout.jsonl.gz --format codex --json
      promptkit import talk.jsonl -o "sqlite:///talks.db#42"
      promptkit import "logs/**/*.jsonl" -o talks/ --rows counts.jsonl
    """,
)
@click.argument("files", nargs=-1, required=True, type=read_address, metavar="FILE...")
@click.option(
    "-o",
    "--output",
    type=read_address,
    metavar="OUT",
    help="Where to write the transcript: a file, or a URL such as sqlite:///talks.db#42. Of several files: a folder, or a URL without #. By "
    "default only the counts are printed.",
)
@click.option(
    "--format",
    "codec",
    default="auto",
    show_default=True,
    help="The format of the file; auto detects it.",
)
@force_option
@json_option
@click.option(
    "--rows",
    type=read_address,
    metavar="ROWS",
    help="Write the counts of each file: a file or URL, .jsonl or .parquet.",
)
@engine_options
@click.pass_context
def import_(  # noqa: PLR0913  # one argument for each option of the command
    ctx: click.Context,
    *,
    files: Sequence[Path | str],
    output: Path | str | None,
    codec: str,
    force: bool,
    as_json: bool,
    rows: Path | str | None,
    engine: str,
    workers: int | None,
    state: Path | None,
) -> None:
    """Read a recording of a coding agent or a chat, gzipped or not, and print what it contains.

    FILES are paths, globs in quotes, and URLs such as s3://bucket/logs/*.jsonl, gs://…, https://…
    or hf://datasets/…. Of several files the counts are added up. Exits with 1 if one of several
    files could not be read.

    Formats: Claude Code, Codex, pi, Gemini CLI, SWE-agent, mini-swe-agent, OpenHands, tau-bench,
    OpenAI chat messages and Anthropic messages. Lines that cannot be read are kept unchanged,
    counted, and reported with their line numbers.
    """
    if force and output is None and rows is None:
        usage_error("--force needs --output OUT, the file to replace.")
    if len(files) > 1 or rows is not None or corpus.is_pattern(files[0]):
        succeeded = _import_all(
            files,
            output,
            rows,
            codec,
            force=force,
            as_json=as_json,
            engine=engine,
            workers=workers,
            state=state,
        )
        ctx.exit(0 if succeeded else 1)
    if state is not None:
        usage_error("--state is for several files, or with --rows.")
    _import_one(files[0], output, codec, force=force, as_json=as_json)


def _import_one(
    file: Path | str, output: Path | str | None, codec: str, *, force: bool, as_json: bool
) -> None:
    with show_bar(f"Reading {escape_control_chars(_name(file))}", of_bytes=True) as progress:
        result = recordings.import_recording(
            file, output, format_name=codec, overwrite=force, progress=progress
        )
    _warn(file, result)
    if as_json:
        print_json({"file": str(file), "format": result.format, **attrs.asdict(result.counts)})
    elif output is None or not is_quiet():
        _print(file, output, result)


def _import_all(  # noqa: PLR0913  # keywords
    files: Sequence[Path | str],
    output: Path | str | None,
    rows: Path | str | None,
    codec: str,
    *,
    force: bool,
    as_json: bool,
    engine: str,
    workers: int | None,
    state: Path | None,
) -> bool:
    """Import several files, print the sum of their counts, and return whether all could be read."""
    check_inputs(files)
    state = state or corpus.find_state(rows or output or "import")
    if isinstance(output, str) and "#" in output:
        usage_error(
            f"{output} is one conversation: leave out what follows the #, since every file becomes a conversation of its own."
        )
    if (
        isinstance(output, Path)
        and output.exists()
        and not (force or state.exists())
        and not (output.is_dir() and not any(output.iterdir()))
    ):
        usage_error(
            f"{output} already exists: name another folder, or pass --force to write into it."
        )
    roots = {corpus.find_root(file) for file in files}
    root = roots.pop() if len(roots) == 1 else ""
    sums: Counter[str] = Counter()

    def add(counts: Json) -> None:
        if isinstance(counts, Mapping):
            sums.update({name: count for name, count in counts.items() if isinstance(count, int)})

    summary = run_on_files(
        corpus.ImportJob(out=None if output is None else str(output), root=root, format_name=codec),
        files,
        rows,
        title="Importing",
        engine=engine,
        workers=workers,
        state=state,
        force=force,
        on_totals=add,
    )
    if as_json:
        print_json({"files": summary.files, "failures": summary.failures, **sums})
    elif output is None or not is_quiet():
        click.echo(count_nouns(summary.files, "file"))
        _print_counts(sums)
        if output is not None:
            written = count_nouns(summary.files - summary.failures, "transcript")
            click.echo(escape_control_chars(f"{written} written to {output}."))
    report_failures(summary)
    return not summary.failures


def _name(file: Path | str) -> str:
    return file if isinstance(file, str) else file.name


def _warn(file: Path | str, result: recordings.ImportResult) -> None:
    """Print on stderr the lines that could not be read, and the entries that could not stay where they were."""
    for problems, count in (
        (result.skipped, result.counts.skipped_lines),
        (result.relocated, result.relocated_count),
    ):
        lines = [f"{file}:{each.line}: {each.detail}" for each in problems[:MAX_PROBLEMS]]
        if count > MAX_PROBLEMS:
            lines.append(f"{file}: {count - MAX_PROBLEMS:,} more problems of this kind.")
        for line in lines:
            click.echo(escape_control_chars(line), err=True)


def _print(file: Path | str, output: Path | str | None, result: recordings.ImportResult) -> None:
    click.echo(f"{escape_control_chars(_name(file))}: {result.format}")
    _print_counts(attrs.asdict(result.counts))
    if result.kept_by_name:
        kinds = [f"{name} {count:,}" for name, count in result.kept_by_name.items()]
        if len(kinds) > MAX_KEPT_KINDS:
            kinds[MAX_KEPT_KINDS:] = [f"and {len(kinds) - MAX_KEPT_KINDS:,} other kinds"]
        echo_wrapped(escape_control_chars(f"Kept beside the messages: {', '.join(kinds)}."))
    if output is not None:
        click.echo(escape_control_chars(f"{result.entries:,} entries written to {output}."))


def _print_counts(counts: Mapping[str, int]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    table = Table("", Column(justify="right"), box=None, show_header=False, pad_edge=False)
    for name, count in counts.items():
        table.add_row(LABELS.get(name, name.replace("_", " ")), f"{count:,}")
    Console(file=sys.stdout, highlight=False).print(table)
