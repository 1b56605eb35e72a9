"""Write a run as an HTML page: the drawing, and the same figures as tables for screen readers and for copying."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from promptkit.bench.results import Run, Sweep

STYLE = """
:root { color-scheme: light dark; }
body { margin: 2rem auto; padding: 0 1rem; max-width: 70rem; font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; }
figure { margin: 0; padding: 1rem; background: #fff; border-radius: 6px; overflow-x: auto; }
@media (prefers-color-scheme: dark) { figure { background: #16181d; } }
figure svg { width: 100%; min-width: 40rem; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 1px solid; }
"""


def render_page(run: Run, svg: str) -> str:
    """Return a self-contained HTML page without scripts.

    All text of the run is escaped; `svg` is inserted as it is.
    """
    drawing = svg[svg.index("<svg") :].replace(
        "<svg",
        '<svg role="img" aria-label="Kept share of each element, and curves. The tables contain the same figures."',
        1,
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(run.target)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(run.target)}</h1>\n<figure>\n{drawing}</figure>\n"
        f"{''.join(map(_tables, run.sweeps))}</body>\n</html>\n"
    )


def _tables(sweep: Sweep) -> str:
    title = f"{sweep.model} ({sweep.tokenizer})" if sweep.model else sweep.tokenizer
    budgets = [f"{point.budget:,}" for point in sweep.points]
    timed = bool(sweep.floor)
    points = [
        (budget, f"needs {point.required:,}")
        if point.required is not None
        else (
            budget,
            f"{point.used:,}",
            f"{point.utilisation or 0:.0%}",
            f"{point.removed:,}",
            f"{sweep.dropped_tokens(at):,}",
            f"{point.stable_prefix:,}",
            *(_time(sweep, seconds) for seconds in (point.cold, point.warm) if timed),
        )
        for at, (budget, point) in enumerate(zip(budgets, sweep.points, strict=True))
    ]
    head = (
        "budget",
        "used",
        "filled",
        "elements removed",
        "tokens dropped",
        "stable prefix",
        *(("cold", "warm") if timed else ()),
    )
    kept = [
        (element.path, f"{element.whole:,}", *map(_tokens, element.kept))
        for element in sweep.elements
    ]
    return (
        f"<h2>{escape(title)}</h2>\n<p>{sweep.whole:,} tokens in {sweep.messages:,} messages without a budget.</p>\n"
        f"{_table('Figures at each budget', head, points)}{_table('Tokens kept of each element', ('element', 'tokens', *budgets), kept)}"
    )


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    heading = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    return f'<h3>{title}</h3>\n<div class="wide"><table>\n<thead><tr>{heading}</tr></thead>\n<tbody>\n{"".join(lines)}</tbody></table></div>\n'


def _time(sweep: Sweep, seconds: float | None) -> str:
    ratio = sweep.over_floor(seconds)
    return (
        ""
        if seconds is None
        else f"{seconds * 1000:,.1f} ms" + (f" ({ratio:.2f}x)" if ratio else "")
    )


def _tokens(kept: int | None) -> str:
    return "" if kept is None else f"{kept:,}"
