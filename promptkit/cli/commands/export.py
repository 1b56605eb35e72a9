"""`promptkit export`: write a conversation of a transcript or of another agent's recording in a provider's format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

import promptkit
from promptkit import transcript as transcripts
from promptkit.cli.input.params import force_option, leaf_option, read_address, redact_option
from promptkit.cli.output.terminal import (
    check_output,
    escape_control_chars,
    show_spinner,
    usage_error,
    write_json,
)
from promptkit.lab import recordings


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
