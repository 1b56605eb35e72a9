"""`promptkit transcript`: show, validate, search, count and view a transcript, and list those at a place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from promptkit import tokens, transcript as transcripts
from promptkit.cli.input.params import (
    MODEL,
    POLICY,
    force_option,
    json_option,
    read_address,
    window_option,
)
from promptkit.cli.output.terminal import (
    check_output,
    clip,
    count_nouns,
    escape_control_chars,
    print_json,
    print_note,
    show_spinner,
    usage_error,
    write_file,
)
from promptkit.errors import TranscriptFormatError
from promptkit.lab import replay as replays

MAX_SOURCES = 2
"""Policies that a page shows side by side."""

MAX_EXCERPT = 200
"""Columns of the longest line that `grep` prints in full."""

FILE = click.argument("file", type=read_address, metavar="FILE")


@click.group(
    short_help="Inspect a transcript: show, validate, grep, stats, view, tree, list.",
    epilog="""
    Examples:
      promptkit transcript show talk.jsonl
      promptkit transcript show talk.jsonl --all --full
      promptkit transcript grep "TypeError|AssertionError" talk.jsonl
      promptkit transcript validate talk.jsonl && promptkit transcript stats talk.jsonl
      promptkit transcript view talk.jsonl -o talk.html
      promptkit transcript view session.jsonl --policy recorded --policy vscode --window 64k
      promptkit transcript list sqlite:///talks.db && promptkit transcript show sqlite:///talks.db#42
    """,
)
def transcript() -> None:
    """Inspect a transcript and its archives. Nothing is written.

    FILE is a transcript's file, or the URL of a conversation in a database or object storage:
    sqlite:///talks.db#42, postgresql://…, s3://bucket/talks#42, gs://…, az://….

    Only the beginning of each id is shown; options that take an id accept it.
    """


@transcript.command(short_help="Show one branch of a transcript, or all of them.")
@FILE
@click.option(
    "--leaf",
    metavar="ID|LABEL",
    help="The last entry of the branch to show. By default the last entry written.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show all branches, in the order in which they were written.",
)
@click.option(
    "--full",
    is_flag=True,
    help="Show all entries with their full text. By default long lists and long texts are shortened.",
)
@json_option
def show(
    *, file: Path | str, leaf: str | None, everything: bool, full: bool, as_json: bool
) -> None:
    """Show the entries of a branch, one line each: line number in the file, id, role or kind, text.

    With --json, print one JSON object per line: the entry as it is stored, and its line number in
    the file.
    """
    from promptkit.cli.output.transcript import show_entries

    show_entries(_check_exists(file), leaf=leaf, everything=everything, full=full, as_json=as_json)


@transcript.command(short_help="Check a transcript for errors.")
@FILE
@json_option
@click.pass_context
def validate(ctx: click.Context, *, file: Path | str, as_json: bool) -> None:
    """List entries that cannot be read, and references to entries that do not exist.

    Exits with 1 if there are any.

    An incomplete last line or batch, left by a process that was killed while it wrote, is no error:
    the next writer removes it.
    """
    from promptkit.transcript.stores.addresses import StoreReader, open_reader

    reader = open_reader(_check_exists(file))
    name = escape_control_chars(str(file))
    listed: list[dict[str, object]] = []
    with show_spinner(f"Reading {name}"):
        for problem in transcripts.find_problems(reader):
            listed.append({"line": problem.line, "detail": problem.detail})
            if not as_json:
                click.echo(f"{name}:{problem.line}: {escape_control_chars(problem.detail)}")
    lines = reader.position.line_count if reader.position else 0
    size = (
        f"{reader.entry_count:,} entries" if isinstance(reader, StoreReader) else f"{lines:,} lines"
    )
    if as_json:
        print_json(
            {"file": str(file), "lines": lines, "torn_bytes": reader.torn_bytes, "problems": listed}
        )
    else:
        if reader.torn_bytes:
            click.echo(
                f"{name}: the last {reader.torn_bytes:,} bytes are an incomplete write, and are ignored."
            )
        click.echo(
            f"{name}: {size}, {count_nouns(len(listed), 'problem') if listed else 'no problems'}"
        )
    ctx.exit(1 if listed else 0)


@transcript.command(short_help="Search the text of all entries.")
@click.argument("pattern")
@FILE
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore upper and lower case.")
@click.option(
    "-F",
    "--fixed",
    is_flag=True,
    help="Search for the pattern as plain text, not as a regular expression.",
)
@json_option
@click.pass_context
def grep(  # noqa: PLR0913  # one argument for each option of the command
    ctx: click.Context,
    *,
    pattern: str,
    file: Path | str,
    ignore_case: bool,
    fixed: bool,
    as_json: bool,
) -> None:
    """Print the lines of messages, tool calls, tool results and summaries that match a pattern.

    Exits with 1 if there are none.

    Each line is printed as LINE:ID:ROLE: TEXT, where LINE is the line number in the file. With
    --json, print one JSON object per line.
    """
    from promptkit.cli.output.transcript import entry_role, entry_texts, short_id
    from promptkit.transcript.stores.addresses import open_reader
    from promptkit.transcript.stores.jsonl.reader import StoredEntry

    try:
        regex = re.compile(
            re.escape(pattern) if fixed else pattern, re.IGNORECASE if ignore_case else 0
        )
    except (re.error, RecursionError, OverflowError) as error:
        usage_error(
            f"invalid regular expression {pattern!r}: {error}. Use --fixed to search for plain text."
        )
    status = 1
    for item in open_reader(_check_exists(file)):
        if not isinstance(item, StoredEntry):
            continue
        entry, place = item.entry, f"{item.archive}:{item.line}" if item.archive else item.line
        for line in (line for text in entry_texts(entry) for line in text.split("\n")):
            if not regex.search(line):
                continue
            status = 0
            click.echo(
                json.dumps(
                    {
                        "line": item.line,
                        "archive": item.archive,
                        "id": entry.id,
                        "role": entry_role(entry),
                        "text": line,
                    }
                )
                if as_json
                else f"{place}:{short_id(entry.id)}:{entry_role(entry)}: {_excerpt(line, regex)}"
            )
    ctx.exit(status)


@transcript.command(short_help="Count entries, messages, tokens and branches.")
@FILE
@click.option("--model", type=MODEL, help="The model whose tokenizer counts the tokens.")
@json_option
def stats(*, file: Path | str, model: str | None, as_json: bool) -> None:
    """Print the figures of a transcript: all entries ever written, what a model would receive now, and a table of the requests so far.

    The table has the requests of the branch that was written last. Of many, it has those around
    checkpoints and evenly spread ones; --json prints all. Of a recording in another format that
    `promptkit import` reads, the table is printed alone.
    """
    from promptkit.cli.commands.transcript_stats import (
        collect_recording_stats,
        collect_stats,
        print_requests,
        print_stats,
        requests_to_json,
    )

    with show_spinner(f"Counting {escape_control_chars(str(file))}"):
        try:
            figures, log = collect_stats(_check_exists(file), model=model)
        except TranscriptFormatError:
            if isinstance(file, str):
                raise
            figures, log = collect_recording_stats(file, model=model)
    if as_json:
        print_json(figures | {"requests": None if log is None else requests_to_json(log)})
    else:
        print_stats(figures)
        if log is not None:
            print_requests(log)


@transcript.command(short_help="Write a page that shows each request of a conversation.")
@FILE
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("conversation.html"),
    show_default=True,
    metavar="FILE.html",
    help="Where to write the page; - writes it to stdout.",
)
@force_option
@click.option(
    "--policy",
    "sources",
    multiple=True,
    type=POLICY,
    metavar="NAME",
    help="Show the requests of a replay under this policy instead of the recorded ones. Given twice, the page shows both side by side; "
    "`recorded` is one of the names. `promptkit replay --list` prints the others.",
)
@window_option
@click.option(
    "--model",
    type=MODEL,
    help="The model whose tokenizer, prices and prompt cache are used. By default that of the recording if it has a price, or gpt-5.",
)
@click.option(
    "--conversation",
    "branch",
    type=click.IntRange(min=1),
    metavar="N",
    help="Which conversation, or branch of a transcript, from 1. By default the one that was written last.",
)
def view(  # noqa: PLR0913  # one argument for each option of the command
    *,
    file: Path | str,
    output: Path,
    force: bool,
    sources: tuple[str, ...],
    window: int | None,
    model: str | None,
    branch: int | None,
) -> None:
    """Write one page with a strip of all requests: their size by part, cached and paid tokens, the price so far, and checkpoints.

    For each request, the page shows what the model was shown, what was dropped, and which summary
    stands for it. FILE is a transcript, or a recording in any format that `promptkit import` reads.
    The page needs no network and no server.
    """
    _check_exists(file)
    names = tuple(dict.fromkeys(sources)) or (replays.RECORDED,)
    if len(names) > MAX_SOURCES:
        usage_error(
            f"a page shows at most {MAX_SOURCES} policies side by side, and {len(names)} are named."
        )
    for name in names:
        if name != replays.RECORDED:
            replays.find_policy(name)
    if isinstance(file, Path) and str(output) != "-" and output.resolve() == file.resolve():
        usage_error(f"{output} is the recording itself: name another file.")
    check_output(output, force=force)
    with show_spinner(f"Reading {escape_control_chars(str(file))}"):
        log = replays.log_conversation(
            file,
            replays.LogOptions(
                prices=tokens.read_prices(),
                sources=names,
                model=model,
                window=window,
                branch=branch,
            ),
        )
        page = replays.conversation_to_html(
            log, title=file.name if isinstance(file, Path) else file
        )
    write_file(output, page.encode())
    if str(output) == "-":
        return
    for each in log.logs:
        price = (
            ""
            if each.price is None
            else f", ${each.price:,.2f}"
            if each.price >= 1
            else f", ${each.price:.4f}"
        )
        checkpoints = count_nouns(
            sum(request.checkpoint for request in each.requests), "checkpoint"
        )
        print_note(
            f"{output}: {each.name}: {count_nouns(len(each.requests), 'request')}, {checkpoints}{price}"
        )
    if log.bill:
        click.echo(log.bill.describe())
    if log.branches > 1:
        print_note(f"conversation {log.branch:,} of {log.branches:,}; --conversation shows another")


@transcript.command(short_help="Show the sub-agents and handoffs of a conversation.")
@FILE
@json_option
def tree(*, file: Path | str, as_json: bool) -> None:
    """Show a conversation and those that came of it: one line for each sub-agent and each handoff, with its task, its transcript and its size."""
    from promptkit.cli.output.transcript import show_tree

    show_tree(str(_check_exists(file)), as_json=as_json)


@transcript.command("list", short_help="List the transcripts at a place.")
@click.argument("place", type=read_address, metavar="PLACE")
@json_option
def list_(*, place: Path | str, as_json: bool) -> None:
    """Print the addresses of the transcripts in a folder, a database or object storage, one on each line."""
    if isinstance(place, Path) and not place.is_dir():
        usage_error(f"there is no folder {place}.")
    addresses = transcripts.list_transcripts(place)
    if as_json:
        print_json(addresses)
    else:
        for address in addresses:
            click.echo(escape_control_chars(address))


def _check_exists(file: Path | str) -> Path | str:
    if isinstance(file, Path) and not file.exists():
        usage_error(f"there is no file {file}.")
    return file


def _excerpt(line: str, regex: re.Pattern[str]) -> str:
    """Return a line, or of a long line the text around the first match."""
    match = regex.search(line)
    start = max(match.start() - 60, 0) if match and len(line) > MAX_EXCERPT else 0
    return ("…" if start else "") + clip(
        escape_control_chars(line[start : start + 400]).replace("\t", " "), MAX_EXCERPT
    )
