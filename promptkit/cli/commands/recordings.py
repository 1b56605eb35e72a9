"""`promptkit import`, `promptkit export` and `promptkit fit`: read the recordings of other agents, and write transcripts, messages in a provider's format, or those that fit a budget."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs
import click

import promptkit
from promptkit import transcript as transcripts
from promptkit.cli.corpus_run import (
    check_inputs,
    engine_options,
    report_failures,
    run_on_files,
    show_bar,
)
from promptkit.cli.input.params import (
    SIZE,
    force_option,
    json_option,
    leaf_option,
    model_option,
    read_address,
    redact_option,
)
from promptkit.cli.output.terminal import (
    check_output,
    count_nouns,
    echo_wrapped,
    escape_control_chars,
    is_quiet,
    print_json,
    print_note,
    show_spinner,
    usage_error,
    write_json,
)
from promptkit.errors import TranscriptFormatError
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
        ctx.exit(
            _import_all(
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
        )
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
) -> int:
    """Import several files, print the sum of their counts, and return the exit status: 1 if some could not be read."""
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
            click.echo(
                escape_control_chars(
                    f"{count_nouns(summary.files - summary.failures, 'transcript')} written to {output}."
                )
            )
    report_failures(summary)
    return 1 if summary.failures else 0


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


@click.command(
    short_help="Write a conversation as OpenAI or Anthropic messages.",
    epilog="""
    Examples:
      promptkit export talk.jsonl --to chat -o messages.json
      promptkit export talk.jsonl --to anthropic --leaf "task 3"
      promptkit export session.jsonl --to promptkit --full -o talk.jsonl
    """,
)
@click.argument("file", type=read_address, metavar="FILE")
@click.option(
    "--to",
    type=click.Choice(["chat", "anthropic", "promptkit"]),
    required=True,
    help="The format to write.",
)
@leaf_option
@click.option(
    "--full",
    is_flag=True,
    help="Write all messages, as if nothing had been compacted; with --to promptkit, all branches.",
)
@redact_option
@click.option(
    "-o", "--output", type=read_address, metavar="OUT", help="Write to a file instead of stdout."
)
@force_option
def export(  # noqa: PLR0913  # one argument for each option of the command
    *,
    file: Path | str,
    to: str,
    leaf: str | None,
    full: bool,
    redact: bool,
    output: Path | str | None,
    force: bool,
) -> None:
    """Write the messages that a model would receive.

    FILE is a transcript, as a file or as a URL such as sqlite:///talks.db#42, or a recording that
    `promptkit import` reads.
    """
    if isinstance(output, str):
        usage_error(
            "export writes files: `promptkit import FILE -o URL` writes a transcript to a database or object storage."
        )
    check_output(output, force=force)
    with show_spinner(f"Reading {escape_control_chars(str(file))}"):
        transcript = read_transcript(file)
    path = find_path(transcript, leaf)
    redactor = transcripts.redact_secrets if redact else None
    write_json(
        output,
        recordings.encode_transcript(transcript.entries if full else path, redact=redactor)
        if to == "promptkit"
        else encode_messages(
            recordings.messages_from_entries(path, full=full, redact=redactor), to=to
        ),
    )


def read_transcript(file: Path | str) -> promptkit.Transcript:
    """Read a transcript or a recording, or end the program with a sentence."""
    entries = [entry for _, batch in recordings.read_recording(file) for entry in batch.entries]
    if not entries:
        usage_error(f"{file} has no entries to write.")
    return promptkit.Transcript(transcripts.InMemoryStore(entries))


def find_path(transcript: promptkit.Transcript, leaf: str | None) -> Sequence[transcripts.Entry]:
    """Return the entries up to a leaf, given by its id, the beginning of its id, or a label.

    A label selects the branch that contains it.
    """
    if leaf is None or leaf in transcript:
        return transcript.path(leaf)
    found = [entry.id for entry in transcript.entries if entry.id.startswith(leaf)]
    if leaf in transcript.labels:
        target = transcript.labels[leaf]
        paths = (transcript.path(end.id) for end in transcript.leaves())
        return max(
            (path for path in paths if any(entry.id == target for entry in path)),
            key=len,
            default=transcript.path(target),
        )
    if len(found) != 1:
        usage_error(
            f"--leaf {leaf!r} matches {'no entry and no label' if not found else f'{len(found):,} entries'} of this transcript."
        )
    return transcript.path(found[0])


def encode_messages(messages: Sequence[promptkit.Message], *, to: str) -> Iterable[bytes]:
    """Encode messages as JSON in the format `chat` or `anthropic`."""
    encode = recordings.to_chat_json if to == "chat" else recordings.to_anthropic_json
    text = json.dumps(encode(messages), ensure_ascii=False, indent=2)
    return [f"{text}\n".encode("utf-8", errors="backslashreplace")]


FILES = """a JSON list of messages, such as [{"role": "user", "content": "Hello"}], or a recording that `promptkit import` reads"""


def _find_json_problem(file: Path) -> str:
    """Return what a file is that has no known format."""
    try:
        return "is an empty list" if json.loads(file.read_bytes()) == [] else "has no messages"
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({error})"


def _describe_unknown(value: object) -> str:
    """Describe a JSON value of a list of messages that is none."""
    from promptkit.messages import as_mapping

    fields = as_mapping(value)
    return (
        f"{fields['role']!r:.80} is no role (system, developer, user, assistant, tool or function)"
        if "role" in fields
        else f"{value!r:.80} is no message"
    )


@click.command(
    short_help="Write the messages of conversations that fit a budget.",
    epilog="""
    Examples:
      promptkit fit messages.json --budget 8k --model gpt-5 -o fitted.json
      promptkit fit session.jsonl --budget 32k --to anthropic
      promptkit fit session.jsonl --budget 8k --whole
      promptkit fit "logs/**/*.jsonl" --budget 8k --model gpt-5 -o windows.jsonl
    """,
)
@click.argument("files", nargs=-1, required=True, type=read_address, metavar="FILE...")
@click.option(
    "--budget",
    type=SIZE,
    help="Tokens that the request may have, such as 8k. By default the model's window decides.",
)
@model_option
@click.option(
    "--to",
    type=click.Choice(["chat", "anthropic"]),
    default="chat",
    show_default=True,
    help="The format to write.",
)
@click.option(
    "--keep",
    type=click.Choice(["newest", "oldest"]),
    default="newest",
    show_default=True,
    help="The rounds that stay longest.",
)
@click.option(
    "--whole", is_flag=True, help="Shorten no message: keep rounds whole, or remove them."
)
@leaf_option
@click.option(
    "-o",
    "--output",
    type=read_address,
    metavar="OUT",
    help="Write to a file instead of stdout. With .jsonl or .parquet, a row for each conversation of all files.",
)
@force_option
@engine_options
@click.pass_context
def fit(  # noqa: PLR0913  # one argument for each option of the command
    ctx: click.Context,
    *,
    files: Sequence[Path | str],
    budget: int | None,
    model: str | None,
    to: Literal["chat", "anthropic"],
    keep: Literal["newest", "oldest"],
    whole: bool,
    leaf: str | None,
    output: Path | str | None,
    force: bool,
    engine: str,
    workers: int | None,
    state: Path | None,
) -> None:
    """Write the messages that fit a budget: long ones are shortened, then the oldest rounds are removed.

    FILE is a JSON list of messages, a transcript, or a recording that `promptkit import` reads.
    Compactions in it are not applied. What was kept, changed and removed is printed to stderr.

    With several files, globs in quotes or URLs, OUT has a row for each conversation: its messages,
    and what was kept and removed. Exits with 1 if a file could not be read, or a conversation does
    not fit.
    """
    if budget is None and model is None:
        usage_error(
            "give --budget, such as --budget 8k, or --model, whose window is then the budget."
        )
    if _is_corpus(files, output):
        if leaf is not None:
            usage_error(
                "--leaf is of one conversation: give one FILE, and an OUT that does not end with .jsonl or .parquet."
            )
        if output is None:
            usage_error("name the file of the windows, such as --output windows.jsonl.")
        summary = run_on_files(
            corpus.FitJob(budget=budget, model=model, to=to, keep=keep, shorten=not whole),
            files,
            output,
            title="Fitting",
            engine=engine,
            workers=workers,
            state=state,
            force=force,
        )
        print_note(
            escape_control_chars(
                f"{count_nouns(summary.rows - summary.failures, 'window')} of {count_nouns(summary.files, 'file')} written to {output}."
            ),
            err=True,
        )
        report_failures(summary)
        ctx.exit(1 if summary.failures else 0)
    if state is not None:
        usage_error("--state needs an OUT that ends with .jsonl or .parquet.")
    target = Path(output) if output else None
    check_output(target, force=force)
    _fit_one(
        Path(files[0]),
        target,
        leaf,
        to=to,
        fit=partial(promptkit.fit, budget=budget, model=model, keep=keep, shorten=not whole),
    )


def _is_corpus(files: Sequence[Path | str], output: Path | str | None) -> bool:
    """Return whether a row is written for each conversation, and not the messages of one."""
    check_inputs(files)
    return (
        isinstance(output, str)
        or (output is not None and output.suffix in (".jsonl", ".parquet"))
        or len(files) > 1
        or isinstance(files[0], str)
        or corpus.is_pattern(files[0])
    )


def _fit_one(
    file: Path,
    output: Path | None,
    leaf: str | None,
    *,
    to: str,
    fit: Callable[[Sequence[promptkit.Message]], promptkit.Fitted[promptkit.Message]],
) -> None:
    """Write the messages of one conversation."""
    with show_spinner(f"Reading {escape_control_chars(str(file))}"):
        with recordings.open_source(file) as source:
            try:
                recordings.detect_format(source)
            except TranscriptFormatError:
                usage_error(f"{file} {_find_json_problem(file)}: it may be {FILES}.")
        transcript = read_transcript(file)
    path = find_path(transcript, leaf)
    messages = recordings.messages_from_entries(path, full=True)
    unknown = [
        _describe_unknown(entry.payload.data)
        for entry in path
        if isinstance(entry.payload, transcripts.CustomEntry)
        and entry.payload.name in ("openai_chat.message", "openai_chat.bad_record")
    ]
    if not messages:
        usage_error(
            f"{file} has no message{f', but {unknown[0]}' if unknown else ''}: it may be {FILES}."
        )
    if unknown:
        click.echo(
            escape_control_chars(f"left out {len(unknown):,} of FILE: {unknown[0]}"), err=True
        )
    fitted = fit(messages)
    write_json(output, encode_messages(fitted.messages, to=to))
    print_note(escape_control_chars(fitted.explain()), err=True)
