"""Format a comparison as tables, for a terminal and for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.peers.peer import OWN
from benchmarks.peers.runs import SHARES
from benchmarks.peers.work import SHAPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.figures import Case, Comparison, Outcome
    from benchmarks.peers.peer import Peer

__all__ = ["SHAPE_TITLES", "markdown", "table"]

SHAPE_TITLES: Final = {
    "messages": "messages of some 80 words",
    "tools": "messages, every turn with a call and its result",
    "chunks": "lines of some 10 words in one message",
    "history": "instructions, messages with calls and results, a long log, the request",
}
"""Shape → a description of its items."""


def table(comparison: Comparison) -> str:
    """Return tables for a terminal, one for each shape, and a legend."""
    blocks = [
        _terminal(shape, _rows(comparison, shape)) for shape in SHAPES if _cases(comparison, shape)
    ]
    return "\n\n".join([*blocks, *_bars(comparison), _about(comparison)])


def markdown(comparison: Comparison) -> str:
    """Return Markdown tables, one for each shape, and a legend."""
    blocks: list[str] = []
    for shape in SHAPES:
        if _cases(comparison, shape):
            head, *rows = _rows(comparison, shape)
            rule = ["---", *("---:" for _ in head[1:])]
            lines = [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]
            blocks.append(f"**{shape}**: {SHAPE_TITLES[shape]}\n\n" + "\n".join(lines))
    return "\n\n".join([*blocks, *_bars(comparison), _about(comparison)])


def _bars(comparison: Comparison) -> list[str]:
    """Return a block with the figures that have a bar, or nothing if there are none."""
    titles = {peer.name: peer.title for peer in comparison.peers}
    lines = [
        f"{each.case}: promptkit takes {each.figure:.2f} of the time of {titles[each.peer]}, bar {each.bar:g}  {'MISSED' if each.missed else 'ok'}"
        for each in comparison.verdicts()
    ]
    return ["\n".join(lines)] if lines else []


def _cases(comparison: Comparison, shape: str) -> list[Case]:
    return [case for case in comparison.cases if case.shape == shape]


def _rows(comparison: Comparison, shape: str) -> list[list[str]]:
    """Return the cells, header first: times by size, results for the largest size that a peer finished, and its probes."""
    cases = _cases(comparison, shape)
    head = [
        "",
        *(case.name for case in cases),
        "over promptkit",
        "over tokenising",
        "kept",
        "of budget",
        "it says",
        "fits",
        "sound",
    ]
    return [head, *(_row(comparison, shape, cases, peer) for peer in comparison.peers)]


def _row(comparison: Comparison, shape: str, cases: Sequence[Case], peer: Peer) -> list[str]:
    times = [_time(case.outcomes[peer.name], case.size) for case in cases]
    ran = [case for case in cases if case.outcomes[peer.name].status == "ran"]
    if not ran:
        return [peer.title, *times, *[""] * 7]
    last = ran[-1]
    outcome, at = last.outcomes[peer.name], "" if last is cases[-1] else f" at {last.name}"
    own, floor = last.over_own(peer.name), last.over_floor(peer.name)
    probe = comparison.probes.get(shape, {}).get(peer.name)
    return [
        peer.title,
        *times,
        ("1" if peer.name == OWN else "" if own is None else _ratio(own)) + at,
        "" if floor is None else _ratio(floor),
        f"{outcome.kept:,} of {last.most:,}",
        f"{100 * outcome.tokens / last.budget:.1f} %",
        "" if outcome.claim is None else f"{100 * outcome.claim / last.budget:.1f} %",
        f"{100 * probe.fits / probe.budgets:.4g} %" if probe else "",
        f"{100 * probe.sound / probe.budgets:.4g} %" if probe else "",
    ]


def _time(outcome: Outcome, size: int) -> str:
    match outcome.status:
        case "over":
            return outcome.note.removesuffix(f" at {size:,}")
        case "lacks":
            return "-"
        case "failed":
            return f"failed: {outcome.note}"
        case "ran":
            milliseconds = 1000 * (outcome.seconds or 0)
            return f"{milliseconds:,.1f} ms" if milliseconds < 10 else f"{milliseconds:,.0f} ms"


def _ratio(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"


def _terminal(shape: str, rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([f"{shape}: {SHAPE_TITLES[shape]}", *(line.rstrip() for line in lines)])


def _about(comparison: Comparison) -> str:
    return (
        f"Medians of at least {comparison.rounds} runs in turns, processor time; a run that takes over {comparison.limit:g} s is ended. "
        f"`fits` and `sound`: at how many of {len(SHARES)} budgets, 40 to 60 % of {comparison.probe_size:,} items. "
        f"Python {comparison.python}, Node {comparison.node}, {comparison.machine}."
    )
