"""A replay as people read it: the requests as bars, the summary's first lines, the way back to what it left out."""

from __future__ import annotations

from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from promptkit.cli.output.terminal import clip, escape_control_chars
from promptkit.compaction.events import CompactionFailed
from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.compaction.summarizers.breadcrumb import strip_breadcrumb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.cli.demo.replay import DemoReplay, DemoRequest
    from promptkit.compaction.events import CompactionCommitted
    from promptkit.transcript.entries import Checkpoint

__all__ = ["print_replay", "replay_to_json"]

BAR = 20
"""Characters."""

LINES = 7
"""Lines of the summary that are shown."""

WIDTH = 78


def print_replay(title: str, replay: DemoReplay) -> None:
    """Print what came of a replay of the conversation of that title."""
    console = Console(highlight=False)
    limit = replay.budget.render_budget or 0
    console.print(Text(title, style="bold"))
    console.print(f"{len(replay.turns):,} turns, replayed in a window of {replay.budget.window or 0:,} tokens\n")
    _print(
        console,
        f"{_opening(replay, limit)} "
        "No model is asked: its answers are the recorded ones, and the summaries are made of the conversation's own words.",
    )
    console.print("\n  request  turn  tokens")
    for sent in _told(replay):
        _print_request(console, sent, limit)
    if replay.summaries:
        _print_summary(console, replay.summaries[-1], replay.entries)
    _print(console, f"\n{_ending(replay, limit)}")


def replay_to_json(replay: DemoReplay) -> dict[str, object]:
    """The figures of a replay, for machines. All are tokens or counts."""
    return {
        "window": replay.budget.window,
        "limit": replay.budget.render_budget,
        "whole": replay.full_request_tokens,
        "turns": len(replay.turns),
        "requests": [sent.tokens for sent in replay.requests],
        "summaries": [
            {"trigger": each.trigger, "tokens_before": each.tokens_before, "tokens_after": each.tokens_after} for each in replay.summaries
        ],
    }


def _opening(replay: DemoReplay, limit: int) -> str:
    figures = f"All of it would take {replay.full_request_tokens:,} tokens, and a request may have {limit:,}."
    return f"{figures} {'A session makes room on the way.' if replay.full_request_tokens > limit else 'That is room enough.'}"


def _told(replay: DemoReplay) -> Iterator[DemoRequest]:
    """The first request, the last, and those at which something happened."""
    ends = {1, len(replay.requests)}
    return (sent for sent in replay.requests if sent.number in ends or sent.before or sent.after)


def _print_request(console: Console, sent: DemoRequest, limit: int) -> None:
    full, empty = "█░" if console.encoding.startswith("utf") else "#."
    filled = min(BAR, round(BAR * sent.tokens / limit)) if limit else BAR
    notes = [_ended(each) for each in sent.before]
    notes += [f"{each.messages:,} messages: summary begun" for each in sent.after]
    line = Text.assemble(
        f"  {sent.number:>7}  {sent.turn:>4}  {sent.tokens:>6,}  ",
        (full * filled, "green"),
        (empty * (BAR - filled), "bright_black"),
        ("".join(f"  {note}" for note in notes), "magenta"),
    )
    console.print(line, soft_wrap=True)


def _ended(event: CompactionCommitted | CompactionFailed) -> str:
    if isinstance(event, CompactionFailed):
        return f"no summary ({event.reason})"
    return f"summary in place: {event.tokens_before:,} → {event.tokens_after:,}"


def _print_summary(console: Console, checkpoint: Checkpoint, entries: int) -> None:
    summary = escape_control_chars(strip_breadcrumb(checkpoint.summary))
    lines = summary.splitlines()
    console.print(f"\nThe latest summary is a message of {len(lines):,} lines:\n")
    for line in lines[:LINES]:
        console.print(Text(clip(f"  {line}", WIDTH), style="green"), soft_wrap=True)
    console.print(f"  …  {len(lines) - LINES:,} more\n" if len(lines) > LINES else "")
    _print(console, f"It ends with the way back: nothing was lost, all {entries:,} entries are in the transcript.")
    console.print()
    for line in wrap(escape_control_chars(checkpoint.summary[len(strip_breadcrumb(checkpoint.summary)) :]).strip(), WIDTH - 2):
        console.print(Text(f"  {line}", style="green"), soft_wrap=True)


def _ending(replay: DemoReplay, limit: int) -> str:
    messages = replay.last.messages if replay.last else ()
    roles = Counter[str](message.role for message in messages if extract_summary_text(message) is None)
    held = [
        "the summary" if any(extract_summary_text(message) is not None for message in messages) else "",
        *(f"{count:,} {names[count != 1]}" for role, names in NAMES if (count := roles[role])),
    ]
    tokens = replay.last.tokens if replay.last else 0
    return f"The last request holds {', '.join(filter(None, held))}: {tokens:,} of {limit:,} tokens."


NAMES = (("user", ("request", "requests")), ("assistant", ("answer", "answers")), ("tool", ("tool result", "tool results")))


def _print(console: Console, text: str) -> None:
    for paragraph in text.split("\n"):
        for line in wrap(paragraph, WIDTH) or [""]:
            console.print(line, soft_wrap=True)
