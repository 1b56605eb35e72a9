"""`promptkit transcript`: what is in a transcript's file, and whether it is as it should be."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptkit.cli.output.errors import usage_error
from promptkit.cli.output.messages import print_json
from promptkit.cli.output.terminal import clip, escape_control_chars, show_spinner

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.messages import Message

__all__ = ["transcript"]

# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit transcript show talk.jsonl
  promptkit transcript show talk.jsonl --all --full
  promptkit transcript grep "TypeError|AssertionError" talk.jsonl
  promptkit transcript validate talk.jsonl && promptkit transcript stats talk.jsonl
"""

FILE = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")


@click.group(short_help="Look into a transcript: show, validate, grep, stats.", epilog=EXAMPLES)
def transcript() -> None:
    """Look into a transcript and the archives that belong to it. Nothing is written.

    Ids are shown by their beginning, which is enough wherever an id is asked for.
    """


@transcript.command(short_help="Show a conversation, or all of them.")
@FILE
@click.option("--leaf", metavar="ID|LABEL", help="The entry that the conversation ends with; the last one written if it is left out.")
@click.option("--all", "everything", is_flag=True, help="Show every branch, in the order in which it was written.")
@click.option("--full", is_flag=True, help="Show all entries, with all that they say; else long lists and long texts are folded.")
@JSON
def show(*, file: Path, leaf: str | None, everything: bool, full: bool, as_json: bool) -> None:
    """Show the entries from the first to a leaf, one line each.

    With --json there is one JSON object a line: the entry as it is written, and its line in the file.
    """
    from promptkit.cli.output.transcript import show_entries

    show_entries(_existing(file), leaf=leaf, everything=everything, full=full, as_json=as_json)


@transcript.command(short_help="Check that a transcript is as it should be.")
@FILE
@JSON
@click.pass_context
def validate(ctx: click.Context, *, file: Path, as_json: bool) -> None:
    """Say what cannot be read, and what refers to an entry that is not there. Exits with 1 if there is any of that.

    A last line or batch that was cut short when its writer was killed is no problem: the next one who writes takes it away.
    """
    from promptkit.transcript.jsonl.reader import TranscriptReader
    from promptkit.transcript.jsonl.validate import find_problems

    going = TranscriptReader(_existing(file))
    name = escape_control_chars(str(file))
    count = 0
    listed: list[dict[str, object]] = []
    with show_spinner(f"Reading {name}"):
        for problem in find_problems(going):
            count += 1
            if as_json:
                listed.append({"line": problem.line, "detail": problem.detail})
            else:
                click.echo(f"{name}:{problem.line}: {escape_control_chars(problem.detail)}")
    lines = going.position.line_count if going.position else 0
    if as_json:
        print_json({"file": str(file), "lines": lines, "torn_bytes": going.torn_bytes, "problems": listed})
    else:
        if going.torn_bytes:
            click.echo(f"{name}: the last {going.torn_bytes:,} bytes are of a write that was cut short; they are of no entry.")
        click.echo(f"{name}: {lines:,} lines, {f'{count:,} problem' if count else 'no problem'}{'' if count == 1 else 's'}")
    ctx.exit(1 if count else 0)


@transcript.command(short_help="Find text in all that was said.")
@click.argument("pattern")
@FILE
@click.option("-i", "--ignore-case", is_flag=True, help="Do not tell upper from lower case.")
@click.option("-F", "--fixed", is_flag=True, help="Take the pattern as a text, not as a regular expression.")
@JSON
@click.pass_context
def grep(ctx: click.Context, *, pattern: str, file: Path, ignore_case: bool, fixed: bool, as_json: bool) -> None:  # noqa: PLR0913  # one argument for each option of the command
    """Print the lines of messages, tool calls, tool results and summaries that a pattern is found in. Exits with 1 if there is none.

    Before each stand the line in the file, the id of the entry and who said it. With --json there is one JSON object a line.
    """
    from promptkit.cli.output.transcript import entry_role, entry_texts, short_id
    from promptkit.transcript.jsonl.reader import StoredEntry, TranscriptReader

    try:
        wanted = re.compile(re.escape(pattern) if fixed else pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, RecursionError, OverflowError) as error:
        usage_error(f"{pattern!r} is no regular expression: {error}. With --fixed it is taken as a text.")
    count = 0
    for item in TranscriptReader(_existing(file)):
        if not isinstance(item, StoredEntry):
            continue
        for text in entry_texts(item.entry):
            for line in filter(wanted.search, text.split("\n")):
                count += 1
                if as_json:
                    found = {"line": item.line, "archive": item.archive, "id": item.entry.id, "who": entry_role(item.entry), "text": line}
                    click.echo(json.dumps(found))
                    continue
                place = f"{item.archive}:{item.line}" if item.archive else f"{item.line}"
                click.echo(f"{place}:{short_id(item.entry.id)}:{entry_role(item.entry)}: {_around(line, wanted)}")
    ctx.exit(0 if count else 1)


@transcript.command(short_help="Count entries, messages, tokens and branches.")
@FILE
@click.option("--model", help="The model whose tokens are counted.")
@JSON
def stats(*, file: Path, model: str | None, as_json: bool) -> None:
    """Say what a transcript comes to: all that was ever said, and what a model would be shown of it now."""
    from promptkit.cli.commands.transcript_stats import collect_stats, print_stats

    with show_spinner(f"Counting {escape_control_chars(str(file))}"):
        figures = collect_stats(_existing(file), count=_counter(model))
    if as_json:
        print_json(figures)
    else:
        print_stats(figures)


def _existing(file: Path) -> Path:
    if not file.exists():
        usage_error(f"there is no file {file}.")
    return file


def _counter(model: str | None) -> Callable[[Message], int]:
    from promptkit.cli.output.messages import message_tokens
    from promptkit.tokens.models import tokenizer_for

    tokenizer = tokenizer_for(model)
    return lambda message: message_tokens(message, tokenizer)


def _around(line: str, wanted: re.Pattern[str]) -> str:
    """A line, or where it is long what stands around the first match."""
    match = wanted.search(line)
    start = max(match.start() - 60, 0) if match and len(line) > 200 else 0  # noqa: PLR2004  # characters that a line may have
    return ("…" if start else "") + clip(escape_control_chars(line[start : start + 400]).replace("\t", " "), 200)
