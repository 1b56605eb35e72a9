"""Print the requests of a conversation as a table, with a bar for each: its size by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from promptkit.cli.output.terminal import escape_control_chars, read_width
from promptkit.lab.replay.request_log import PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.lab.replay.request_log import ConversationLog, LoggedRequest

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
    shown = choose_requests(rows)
    checkpoints = sum(request.checkpoint for request in rows)
    prices = (
        "" if requests.price is None else f", ${requests.price:.4f} at the prices of {log.model}"
    )
    click.echo()
    after = f", {checkpoints:,} of them after a checkpoint" if checkpoints else ""
    click.echo(f"requests      {len(rows):,}{after}{escape_control_chars(prices)}")
    head = f"{'request':>8} {'tokens':>9} {'cached':>9} {'price so far':>13}  "
    width = min(max(read_width(0) - len(head), 10), 80) if read_width(0) else BAR_WIDTH
    most = max(1, *(sum(request.parts) for request in rows))
    if log.limit is not None and log.limit < 2 * most:
        most = max(most, log.limit)
    click.echo(head + "size by part")
    for at in shown:
        request = rows[at]
        mark = "▼" if request.checkpoint else " "
        price = "" if request.price is None else f"${request.price:.4f}"
        bar = draw_bar(request, most=most, width=width, limit=log.limit)
        click.echo(
            f"{mark}{at + 1:>7,} {request.tokens:>9,} {request.billed.cached_tokens:>9,} {price:>13}  {bar}"
        )
    used = [part for at, part in enumerate(PARTS) if any(request.parts[at] for request in rows)]
    names = ", ".join(
        f"{LETTERS[part]} {'not in the recording' if part == 'unrecorded' else part}"
        for part in used
    )
    limit = f"; | the limit of {log.limit:,}" if log.limit is not None and log.limit <= most else ""
    click.echo(f"{names}{limit}{'; ▼ after a checkpoint' if checkpoints else ''}")


def choose_requests(requests: Sequence[LoggedRequest]) -> list[int]:
    """Return the numbers of the requests to print: all, or evenly spread ones and those around checkpoints, as many as fit."""
    count = len(requests)
    if count <= MAX_ROWS:
        return list(range(count))
    checkpoints = [at for at, request in enumerate(requests) if request.checkpoint]
    around = [at for checkpoint in checkpoints for at in (checkpoint - 1, checkpoint) if at >= 0]
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
