"""`promptkit export` and `promptkit fit`: write a conversation of a transcript or of another agent's recording in a provider's format, as it is, or its messages that fit a budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import click

import promptkit
from promptkit import transcript as transcripts
from promptkit.cli.corpus_run import check_inputs, engine_options, report_failures, run_on_files
from promptkit.cli.input.params import (
    SIZE,
    force_option,
    leaf_option,
    model_option,
    read_address,
    redact_option,
)
from promptkit.cli.output.terminal import (
    check_output,
    count_nouns,
    escape_control_chars,
    print_note,
    show_spinner,
    usage_error,
    write_json,
)
from promptkit.errors import TranscriptFormatError
from promptkit.lab import corpus, recordings


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
    from promptkit.lab.recordings.importing import detect_format
    from promptkit.transcript import CustomEntry

    with show_spinner(f"Reading {escape_control_chars(str(file))}"):
        with recordings.open_source(file) as source:
            try:
                detect_format(source)
            except TranscriptFormatError:
                usage_error(f"{file} {_find_json_problem(file)}: it may be {FILES}.")
        transcript = read_transcript(file)
    path = find_path(transcript, leaf)
    messages = recordings.messages_from_entries(path, full=True)
    unknown = [
        _describe_unknown(entry.payload.data)
        for entry in path
        if isinstance(entry.payload, CustomEntry)
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
