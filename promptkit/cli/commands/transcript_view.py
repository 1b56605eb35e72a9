"""Write the page of `promptkit transcript view`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptkit.cli.output.files import check_place, write_file
from promptkit.cli.output.terminal import (
    count_nouns,
    escape_control_chars,
    show_spinner,
    usage_error,
)
from promptkit.lab.replay import LogOptions, conversation_to_html, find_policy, log_conversation
from promptkit.lab.replay.conversation_log import RECORDED
from promptkit.tokens import read_prices

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SOURCES = 2
"""Policies that a page shows side by side."""


def write_view(  # noqa: PLR0913  # one argument for each option of the command
    file: Path | str,
    output: Path,
    *,
    sources: Sequence[str],
    window: int | None,
    model: str | None,
    branch: int | None,
) -> None:
    """Write the page, and print what it shows.

    Args:
        file: The recording, or the URL of a transcript.
        output: The page; `-` is stdout.
        sources: `recorded` and names of policies. Empty: only what was recorded.
        window: The context window in tokens. None: that of the model.
        model: The model whose tokenizer, prices and prompt cache are used. None: that of the
            recording.
        branch: The number of the conversation in its file, from 1. None: the one that was written
            last.
    """
    names = tuple(dict.fromkeys(sources)) or (RECORDED,)
    if len(names) > MAX_SOURCES:
        usage_error(
            f"a page shows at most {MAX_SOURCES} policies side by side, and {len(names)} are named."
        )
    for name in names:
        if name != RECORDED:
            find_policy(name)
    check_place(output)
    if isinstance(file, Path) and str(output) != "-" and output.resolve() == file.resolve():
        usage_error(f"{output} is the recording itself: name another file.")
    options = LogOptions(
        prices=read_prices(), sources=names, model=model, window=window, branch=branch
    )
    shown = escape_control_chars(str(file))
    with show_spinner(f"Reading {shown}"):
        log = log_conversation(file, options)
        page = conversation_to_html(log, title=Path(file).name if isinstance(file, Path) else file)
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
        checkpoints = sum(request.checkpoint for request in each.requests)
        click.echo(
            f"{output}: {each.name}: {count_nouns(len(each.requests), 'request')}, {count_nouns(checkpoints, 'checkpoint')}{price}"
        )
    if log.branches > 1:
        click.echo(f"conversation {log.branch:,} of {log.branches:,}; --conversation shows another")
