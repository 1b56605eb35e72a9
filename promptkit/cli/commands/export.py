"""`promptkit export`: a conversation of a transcript, or of another agent's recording, as a provider takes it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptkit.cli.output.errors import usage_error
from promptkit.cli.output.terminal import escape_control_chars, show_spinner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from promptkit.transcript.entries import Entry
    from promptkit.transcript.transcript import Transcript

__all__ = ["export"]

# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit export talk.jsonl --to openai -o messages.json
  promptkit export talk.jsonl --to anthropic --leaf "task 3"
  promptkit export session.jsonl --to promptkit --full -o talk.jsonl
"""


@click.command(short_help="Write a conversation as OpenAI or Anthropic messages.", epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--to", type=click.Choice(["openai", "anthropic", "promptkit"]), required=True, help="The format that is written.")
@click.option("--leaf", metavar="ID|LABEL", help="The entry that the conversation ends with; the last one written if it is left out.")
@click.option("--full", is_flag=True, help="All that was said, as if nothing had been compacted; of a transcript, all branches.")
@click.option("--redact", is_flag=True, help="Take out secrets of common shapes, such as keys and tokens.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="OUT", help="Write to a file instead of stdout.")
@click.option("--force", is_flag=True, help="Replace OUT if it is there.")
def export(  # noqa: PLR0913  # one argument for each option of the command
    *, file: Path, to: str, leaf: str | None, full: bool, redact: bool, output: Path | None, force: bool
) -> None:
    """Write what a model would be shown of a conversation. FILE may also be a recording that `promptkit import` reads."""
    from promptkit.transcript.redaction import redact_secrets

    if output is not None and output.exists() and not force:
        usage_error(f"{output} is there already: name another file, or pass --force to replace it.")
    with show_spinner(f"Reading {escape_control_chars(str(file))}"):
        transcript = _read(file)
    path = _path(transcript, leaf)
    pieces = _pieces(transcript, path, to=to, full=full, redact=redact_secrets if redact else None)
    if output is None:
        for piece in pieces:
            sys.stdout.write(piece.decode("utf-8", errors="surrogatepass"))
    else:
        _write(output, pieces)


def _read(file: Path) -> Transcript:
    from promptkit.recordings.importing import read_recording
    from promptkit.transcript.store import InMemoryStore
    from promptkit.transcript.transcript import Transcript

    entries = [entry for _, batch in read_recording(file) for entry in batch.entries]
    if not entries:
        usage_error(f"{file} holds nothing that could be written.")
    return Transcript(InMemoryStore(entries))


def _path(transcript: Transcript, leaf: str | None) -> tuple[Entry, ...]:
    """The entries up to a leaf, which its id, the beginning of it, or a label names. A label names the end of its conversation."""
    if leaf is None or leaf in transcript:
        return transcript.path(leaf)
    found = [entry.id for entry in transcript.entries if entry.id.startswith(leaf)]
    if leaf in transcript.labels:
        target = transcript.labels[leaf]
        paths = (transcript.path(end.id) for end in transcript.leaves())
        through = (path for path in paths if any(entry.id == target for entry in path))
        return max(through, key=len, default=transcript.path(target))
    if len(found) != 1:
        usage_error(f"{leaf!r} names {'no entry and no label' if not found else f'{len(found):,} entries'} of this transcript.")
    return transcript.path(found[0])


def _pieces(
    transcript: Transcript, path: tuple[Entry, ...], *, to: str, full: bool, redact: Callable[[str], str] | None
) -> Iterable[bytes]:
    from promptkit.recordings.exporting import encode_transcript, messages_from_entries, to_anthropic_json, to_openai_json

    if to == "promptkit":
        return encode_transcript(transcript.entries if full else path, redact=redact)
    messages = messages_from_entries(path, full=full, redact=redact)
    made = to_openai_json(messages) if to == "openai" else to_anthropic_json(messages)
    text = json.dumps(made, ensure_ascii=False, indent=2)
    return [f"{text}\n".encode("utf-8", errors="backslashreplace")]


def _write(output: Path, pieces: Iterable[bytes]) -> None:
    from promptkit.transcript.jsonl.store import replace_file

    try:
        replace_file(output, lambda out: out.writelines(pieces))
    except OSError as error:
        usage_error(f"{output} cannot be written: {error.strerror}.")
