"""Print a replay of the demo: requests as bars, the first lines of the summary, and its breadcrumb."""

from __future__ import annotations

from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from promptkit.cli.output.terminal import clip, escape_control_chars
from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.compaction.planning.breadcrumb import strip_breadcrumb
from promptkit.compaction.run.events import CompactionFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.cli.demo.replay import DemoReplay, DemoRequest
    from promptkit.compaction.run.events import CompactionCommitted
    from promptkit.transcript.log.entries import Checkpoint

BAR = 20
"""Columns of a bar."""

SUMMARY_LINES = 7
"""Lines of the summary that are printed."""

WIDTH = 78
"""Columns of a line at most."""


def print_replay(title: str, replay: DemoReplay) -> None:
    """Print a replay under a title."""
    console = Console(highlight=False)
    limit = replay.budget.render_budget or 0
    console.print(Text(title, style="bold"))
    console.print(
        f"{len(replay.turns):,} turns, replayed in a window of {replay.budget.window or 0:,} tokens\n"
    )
    _print(
        console,
        f"{_describe_start(replay, limit)} "
        "No model is called: the replies are the recorded ones, and the summaries are extracted from the conversation.",
    )
    _print(
        console, "\nEach request with its turn, its tokens, and how much of the budget they fill:"
    )
    console.print("\n  request  turn  tokens")
    for request in _notable_requests(replay):
        _print_request(console, request, limit)
    if replay.summaries:
        _print_summary(console, replay.summaries[-1], replay.entries)
    _print(console, f"\n{_describe_last_request(replay, limit)}")


def replay_to_json(replay: DemoReplay) -> dict[str, object]:
    """Return the figures of a replay as a JSON object. All figures are tokens or counts."""
    return {
        "window": replay.budget.window,
        "limit": replay.budget.render_budget,
        "full_request_tokens": replay.full_request_tokens,
        "turns": len(replay.turns),
        "requests": [request.tokens for request in replay.requests],
        "summaries": [
            {
                "trigger": each.trigger,
                "tokens_before": each.tokens_before,
                "tokens_after": each.tokens_after,
            }
            for each in replay.summaries
        ],
    }


def _describe_start(replay: DemoReplay, limit: int) -> str:
    figures = f"A request with all messages would have {replay.full_request_tokens:,} tokens, and may have {limit:,}."
    return f"{figures} {'A session summarizes the older messages.' if replay.full_request_tokens > limit else 'All messages fit.'}"


def _notable_requests(replay: DemoReplay) -> Iterator[DemoRequest]:
    """Yield the first request, the last, and those at which a summary was started, applied or failed."""
    ends = {1, len(replay.requests)}
    return (
        request
        for request in replay.requests
        if request.number in ends or request.before or request.after
    )


def _print_request(console: Console, request: DemoRequest, limit: int) -> None:
    full, empty = "█░" if console.encoding.startswith("utf") else "#."
    filled = min(BAR, round(BAR * request.tokens / limit)) if limit else BAR
    notes = [_describe_end(each) for each in request.before]
    notes += [f"{each.messages:,} messages: summary started" for each in request.after]
    start = f"  {request.number:>7}  {request.turn:>4}  {request.tokens:>6,}  "
    line = Text.assemble(start, (full * filled, "green"), (empty * (BAR - filled), "bright_black"))
    for note in notes:
        if line.cell_len + 2 + len(note) > console.width:
            console.print(line, soft_wrap=True)
            line = Text(" " * (len(start) - 2))
        line.append(f"  {note}", "magenta")
    console.print(line, soft_wrap=True)


def _describe_end(event: CompactionCommitted | CompactionFailed) -> str:
    if isinstance(event, CompactionFailed):
        return f"no summary ({event.reason})"
    return f"summary applied: {event.tokens_before:,} → {event.tokens_after:,}"


def _print_summary(console: Console, checkpoint: Checkpoint, entries: int) -> None:
    summary = escape_control_chars(strip_breadcrumb(checkpoint.summary))
    lines = summary.splitlines()
    console.print(f"\nThe last summary is a message of {len(lines):,} lines:\n")
    for line in lines[:SUMMARY_LINES]:
        console.print(Text(clip(f"  {line}", _width(console)), style="green"), soft_wrap=True)
    console.print(
        f"  …  {len(lines) - SUMMARY_LINES:,} more\n" if len(lines) > SUMMARY_LINES else ""
    )
    _print(
        console,
        f"It ends with a breadcrumb. No message was lost: all {entries:,} entries are in the transcript.",
    )
    console.print()
    for line in wrap(
        escape_control_chars(
            checkpoint.summary[len(strip_breadcrumb(checkpoint.summary)) :]
        ).strip(),
        _width(console) - 2,
    ):
        console.print(Text(f"  {line}", style="green"), soft_wrap=True)


def _describe_last_request(replay: DemoReplay, limit: int) -> str:
    messages = replay.last.messages if replay.last else ()
    roles = Counter[str](
        message.role for message in messages if extract_summary_text(message) is None
    )
    contents = [
        "the summary"
        if any(extract_summary_text(message) is not None for message in messages)
        else "",
        *(f"{count:,} {names[count != 1]}" for role, names in NAMES if (count := roles[role])),
    ]
    tokens = replay.last.tokens if replay.last else 0
    return f"The last request contains {', '.join(filter(None, contents))}: {tokens:,} of {limit:,} tokens."


NAMES = (
    ("user", ("user message", "user messages")),
    ("assistant", ("reply", "replies")),
    ("tool", ("tool result", "tool results")),
)


def _print(console: Console, text: str) -> None:
    for paragraph in text.split("\n"):
        for line in wrap(paragraph, _width(console)) or [""]:
            console.print(line, soft_wrap=True)


def _width(console: Console) -> int:
    return max(1, min(WIDTH, console.width - 2))
