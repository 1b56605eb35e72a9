"""Collect and print the figures of `promptkit transcript stats`, and its table of requests with a bar for each: its size by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import click

from promptkit.cli.output.terminal import echo_wrapped, escape_control_chars, read_width
from promptkit.cli.output.transcript import read_entries
from promptkit.lab.replay import (
    PARTS,
    ConversationLog,
    LoggedRequest,
    LogOptions,
    log_conversation,
    log_path,
)
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import read_prices, tokenizer_for
from promptkit.transcript import build_view
from promptkit.transcript.log.statistics import TranscriptTotals
from promptkit.transcript.stores.addresses import open_reader
from promptkit.transcript.stores.jsonl.reader import StoredEntry

Figures = dict[str, Any]  # Any: figures, and groups of them


MAX_REQUESTS = 5_000
"""Requests of a branch up to which they are counted one by one. `promptkit transcript view` shows
any number of them."""


def collect_stats(file: Path | str, *, model: str | None) -> tuple[Figures, ConversationLog | None]:
    """Return the figures of a transcript file and its archives, and the requests of the branch that was written last.

    Args:
        file: The transcript.
        model: The model whose tokenizer counts, and whose prices the requests have. None: OpenAI's
            newest for the messages, and for the requests that of the recording.

    Returns:
        The figures, of which `view` is what a model would receive now; and the log of the requests,
        if there are any and not too many.
    """
    count = Sizer(tokenizer_for(model)).count_message
    totals = TranscriptTotals(count_tokens=count)
    problems = 0
    reader = open_reader(file)
    for item in reader:
        totals.tree.partial = reader.partial
        if isinstance(item, StoredEntry):
            totals.add(item.entry)
        else:
            problems += 1
    tree = totals.tree
    path = [
        item.entry
        for item in read_entries(
            file, set(tree.walk_to_root(tree.last_id)) if tree.last_id else set[str]()
        )
    ]
    view = build_view(path)
    replies = sum(entry.message is not None and entry.message.role == "assistant" for entry in path)
    log = (
        log_path(path, LogOptions(prices=read_prices(), model=model))
        if 0 < replies <= MAX_REQUESTS
        else None
    )
    return {
        "file": str(file),
        "bytes": None if isinstance(file, str) else file.stat().st_size,
        "lines": reader.position.line_count if reader.position else None,
        "archives": [
            {
                "file": segment.file,
                "entries": segment.entries,
                "bytes": _size(Path(file).with_name(segment.file)),
            }
            for segment in reader.header.archives
        ],
        **attrs.asdict(totals.result),
        "view": {
            "messages": len(view.items),
            "tokens": sum(map(count, view.messages)),
            "checkpoint": view.checkpoint_id,
        },
        "problems": problems,
    }, log


def collect_recording_stats(file: Path, *, model: str | None) -> tuple[Figures, ConversationLog]:
    """Return the size of a recording in another format, and the requests of the conversation that was written last.

    Raises:
        TranscriptError: The file is no recording that promptkit can import.
    """
    log = log_conversation(file, LogOptions(prices=read_prices(), model=model))
    return {
        "file": str(file),
        "bytes": file.stat().st_size,
        "conversation": log.branch,
        "conversations": log.branches,
    }, log


def print_stats(figures: Figures) -> None:
    """Print the figures that `collect_stats` or `collect_recording_stats` returned, one line each."""
    if "lines" not in figures:
        click.echo(f"file          {figures['bytes']:,} bytes")
        if figures["conversations"] > 1:
            click.echo(f"conversation  {figures['conversation']:,} of {figures['conversations']:,}")
        return
    tokens, usage, view = figures["tokens"], figures["usage"], figures["view"]
    rows = {
        "file": ""
        if figures["bytes"] is None
        else f"{figures['bytes']:,} bytes, {figures['lines']:,} lines",
        "archives": ", ".join(
            f"{each['file']} ({each['entries']:,} entries)" for each in figures["archives"]
        ),
        "entries": _counts(figures["entries"], figures["kinds"]),
        "messages": _counts(sum(figures["roles"].values()), figures["roles"]),
        "tool calls": f"{figures['tool_calls']:,}",
        "tokens": _counts(sum(tokens.values()), tokens),
        "billed tokens": f"{usage['input_tokens']:,} input ({usage['cached_tokens']:,} of them cached), {usage['output_tokens']:,} output",
        "cache misses": _counts(sum(figures["cache_misses"].values()), figures["cache_misses"])
        if figures["cache_misses"]
        else "",
        "current view": f"{view['messages']:,} messages, {view['tokens']:,} tokens"
        + (", after a checkpoint" if view["checkpoint"] else ""),
        "checkpoints": f"{figures['checkpoints']:,}",
        "facts dropped": _counts(sum(figures["facts"].values()), figures["facts"])
        if figures["facts"]
        else "",
        "branches": f"{figures['branches']:,}",
        "written": f"{_when(figures['first'])} to {_when(figures['last'])}"
        if figures["first"] is not None
        else "",
        "problems": f"{figures['problems']:,}; list them with: promptkit transcript validate {figures['file']}"
        if figures["problems"]
        else "",
    }
    for name, text in rows.items():
        print_row(name, text)


def print_row(name: str, text: str) -> None:
    """Print a figure with its name, in as many lines as the terminal needs; nothing without a text."""
    if text:
        echo_wrapped(f"{name:<13} {escape_control_chars(text)}", indent=14)


def _size(archive: Path) -> int | None:
    return archive.stat().st_size if archive.exists() else None


def _counts(total: int, parts: Mapping[str, int]) -> str:
    listed = ", ".join(
        f"{count:,} {name}" for name, count in sorted(parts.items(), key=lambda item: -item[1])
    )
    return f"{total:,} ({listed})" if listed else f"{total:,}"


def _when(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s"


MAX_ROWS = 24
"""Requests that the table has. Of more, those at checkpoints and evenly spread ones are printed."""

LETTERS = dict(zip(PARTS, "stSuar?", strict=True))
"""The letter of each part in a bar."""

BAR_WIDTH = 40
"""Columns of a bar if stdout is not a terminal."""


def print_requests(log: ConversationLog) -> None:
    """Print the requests of a log, and a legend."""
    (requests,) = log.logs
    if not requests.requests:
        return
    rows = requests.requests
    checkpoints = sum(request.checkpoint for request in rows)
    after = f", {checkpoints:,} of them after a checkpoint" if checkpoints else ""
    prices = (
        "" if requests.price is None else f", ${requests.price:.4f} at the prices of {log.model}"
    )
    click.echo(f"\nrequests      {len(rows):,}{after}{escape_control_chars(prices)}")
    if log.bill:
        print_row("bill", log.bill.describe())
    head = f"{'request':>8} {'tokens':>9} {'cached':>9} {'price so far':>13}  "
    width = min(max(read_width(BAR_WIDTH + len(head)) - len(head), 10), 80)
    most = max(1, *(sum(request.parts) for request in rows))
    if log.limit is not None and most < log.limit < 2 * most:
        most = log.limit
    click.echo(head + "size by part")
    for at in choose_requests(rows):
        request = rows[at]
        mark = "▼" if request.checkpoint else " "
        price = "" if request.price is None else f"${request.price:.4f}"
        click.echo(
            f"{mark}{at + 1:>7,} {request.tokens:>9,} {request.billed.cached_tokens:>9,} {price:>13}  "
            + draw_bar(request, most=most, width=width, limit=log.limit)
        )
    names = ", ".join(
        f"{LETTERS[part]} {'not in the recording' if part == 'unrecorded' else part}"
        for at, part in enumerate(PARTS)
        if any(request.parts[at] for request in rows)
    )
    limit = f"; | the limit of {log.limit:,}" if log.limit is not None and log.limit <= most else ""
    click.echo(f"{names}{limit}{'; ▼ after a checkpoint' if checkpoints else ''}")


def choose_requests(requests: Sequence[LoggedRequest]) -> list[int]:
    """Return the numbers of the requests to print: all, or evenly spread ones and those around checkpoints, as many as fit."""
    count = len(requests)
    if count <= MAX_ROWS:
        return list(range(count))
    around = [
        at
        for number, request in enumerate(requests)
        if request.checkpoint
        for at in (number - 1, number)
        if at >= 0
    ]
    chosen = {0, count - 1, *around[: MAX_ROWS // 2]}
    spread = MAX_ROWS - len(chosen)
    return sorted(chosen | {(at + 1) * count // (spread + 1) for at in range(spread)})


def draw_bar(request: LoggedRequest, *, most: int, width: int, limit: int | None) -> str:
    """Draw the parts of a request as letters.

    Args:
        request: The request.
        most: The tokens of a bar of the full width.
        width: The columns of that bar.
        limit: The limit of the window in tokens, drawn as a line if it is within the width.
    """
    bar, tokens = "", 0
    for part, size in zip(PARTS, request.parts, strict=True):
        tokens += size
        bar += LETTERS[part] * (round(tokens * width / most) - len(bar))
    if limit is None or limit > most:
        return bar
    place = min(round(limit * width / most), width)
    return f"{bar:{place}}|" if len(bar) <= place else f"{bar[:place]}|{bar[place:]}"


def requests_to_json(log: ConversationLog) -> dict[str, object]:
    """Return the requests of a log as JSON values."""
    (requests,) = log.logs
    return {
        "model": log.model,
        "window": log.window,
        "limit": log.limit,
        "price": requests.price,
        **({} if log.bill is None else {"bill": log.bill.to_json()}),
        "list": [
            {
                "tokens": request.tokens,
                "cached_tokens": request.billed.cached_tokens,
                "written_tokens": request.billed.written_tokens,
                "output_tokens": request.billed.output_tokens,
                "price_so_far": request.price,
                "checkpoint": request.checkpoint,
                "simulated": request.simulated,
                "parts": dict(zip(PARTS, request.parts, strict=True)),
            }
            for request in requests.requests
        ],
    }
