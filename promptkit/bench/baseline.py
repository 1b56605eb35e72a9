"""A run held against an earlier one: what got worse, what got better.

What got worse and what got better, as a table for a terminal, a log or a failed test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from promptkit.errors import PromptKitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptkit.bench.results import Element, Run, Sweep

__all__ = ["Change", "Comparison", "Kind", "BaselineMismatchError", "compare", "format_comparison", "check_comparable"]


Kind = Literal["fits", "lost", "kept", "utilisation", "cold", "warm"]

NEARLY = 1e-9


class BaselineMismatchError(PromptKitError):
    """A baseline of other budgets, models or depth: there is nothing to compare."""


@attrs.frozen(kw_only=True)
class Change:
    """One figure at one budget that differs by more than is tolerated.

    `kind`: `fits` the required fits the budget (figures: the tokens that are required; 0 where they fit), `lost` an element is kept
    at all, `kept` the share of an element that is kept, `utilisation` the share of the budget that is used, `cold` and `warm` the
    time over the floor.
    """

    kind: Kind
    model: str | None
    budget: int
    element: str | None = None
    """The path of the element, for `lost` and `kept`."""
    before: float
    now: float


@attrs.frozen(kw_only=True)
class Comparison:
    """What differs between a baseline and a run. Better is never a failure."""

    worse: tuple[Change, ...]
    better: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    """What a reader of the differences should know besides, a sentence each."""


def compare(run: Run, baseline: Run, *, tolerance: float = 0.05, time_tolerance: float | None = 0.5) -> Comparison:
    """Hold a run against a baseline.

    Worse is, at any budget: the required no longer fits; an element that was kept, wholly or partly, is lost; the kept share of an
    element, or the utilisation where something is left out, is lower by more than `tolerance` (0.05 is 5 points of 100); a time over
    the floor is higher by more than `time_tolerance` (0.5 is half as much again; None: times are not compared). Better is the
    reverse. Raises OtherBaselineError.
    """
    check_comparable(baseline, budgets=run.budgets, models=[sweep.model for sweep in run.sweeps], depth=run.depth)
    pairs = list(zip(baseline.sweeps, run.sweeps, strict=True))
    return Comparison(
        worse=tuple(change for old, new in pairs for change in _worse(old, new, tolerance, time_tolerance)),
        better=tuple(
            attrs.evolve(change, before=change.now, now=change.before)
            for old, new in pairs
            for change in _worse(new, old, tolerance, time_tolerance)
        ),
        notes=tuple(_notes(baseline, run, timed=time_tolerance is not None)),
    )


def check_comparable(baseline: Run, *, budgets: Sequence[int], models: Sequence[str | None], depth: int) -> None:
    """Raise OtherBaselineError unless a baseline can be compared with a run of these budgets, models and depth."""
    settings = {
        "budgets": (_listed(baseline.budgets), _listed(budgets)),
        "models": (_models([sweep.model for sweep in baseline.sweeps]), _models(models)),
        "depth": (str(baseline.depth), str(depth)),
    }
    for name, (old, new) in settings.items():
        if old != new:
            message = f"the baseline has other {name} than this run ({old}, not {new}): ask for the same, or write the baseline anew."
            raise BaselineMismatchError(message)


def _worse(old: Sweep, new: Sweep, tolerance: float, time_tolerance: float | None) -> Iterator[Change]:
    """What is worse in `new`."""
    elements = {element.path: element for element in new.elements}
    for at, (was, point) in enumerate(zip(old.points, new.points, strict=True)):
        if was.required is not None:
            continue
        if point.required is not None:
            yield Change(kind="fits", model=new.model, budget=point.budget, before=0, now=point.required)
            continue
        for element in old.elements:
            yield from _less_kept(element, elements.get(element.path), at, tolerance, new)
        used = (was.utilisation or 0, point.utilisation or 0)
        if new.dropped_tokens(at) and used[0] - used[1] > tolerance + NEARLY:
            yield Change(kind="utilisation", model=new.model, budget=point.budget, before=used[0], now=used[1])
        if time_tolerance is not None:
            yield from _slower(old, new, at, time_tolerance)


def _less_kept(old: Element, new: Element | None, at: int, tolerance: float, sweep: Sweep) -> Iterator[Change]:
    before = old.kept_share(at) or 0
    now = (new.kept_share(at) or 0) if new else 0
    kind: Kind = "kept" if now else "lost"
    if before and (not now or before - now > tolerance + NEARLY):
        yield Change(kind=kind, model=sweep.model, budget=sweep.points[at].budget, element=old.path, before=before, now=now)


def _slower(old: Sweep, new: Sweep, at: int, tolerance: float) -> Iterator[Change]:
    was, point = old.points[at], new.points[at]
    kinds: tuple[Kind, Kind] = ("cold", "warm")
    for kind, seconds in zip(kinds, ((was.cold, point.cold), (was.warm, point.warm)), strict=True):
        before, now = old.over_floor(seconds[0]), new.over_floor(seconds[1])
        if before is not None and now is not None and now > before * (1 + tolerance):
            yield Change(kind=kind, model=new.model, budget=point.budget, before=before, now=now)


def _notes(before: Run, now: Run, *, timed: bool) -> Iterator[str]:
    if before.target != now.target:
        yield f"The baseline is of {before.target}."
    for old, new in zip(before.sweeps, now.sweeps, strict=True):
        if old.whole != new.whole:
            yield f"With room for everything{_of(new.model)}: {old.whole:,} tokens before, {new.whole:,} now."
        if old.tokenizer != new.tokenizer:
            yield f"Counted with {old.tokenizer} before, with {new.tokenizer} now{_of(new.model)}."
    if timed and bool(before.repeat) != bool(now.repeat):
        yield f"Times were not compared: {'this run' if before.repeat else 'the baseline'} has none."
    elif timed and before.repeat:
        for name, old_version, new_version in zip(("Python", "tiktoken"), _timed_with(before), _timed_with(now), strict=True):
            if old_version != new_version:
                yield f"The baseline was timed with {name} {old_version}, this run with {new_version}."


def _timed_with(run: Run) -> tuple[str, str]:
    return run.versions.python, run.versions.tiktoken


def _of(model: str | None) -> str:
    return f", for {model}" if model else ""


def _models(models: Sequence[str | None]) -> str:
    return ", ".join(model or "none" for model in models)


def _listed(budgets: Sequence[int]) -> str:
    return ", ".join(map(str, budgets))


Row: TypeAlias = "tuple[str, str, str]"

LEAST = 0.01

FIGURES: dict[Kind, str] = {
    "fits": "(fits at all)",
    "utilisation": "(utilisation)",
    "cold": "(cold render over the floor)",
    "warm": "(warm render over the floor)",
}


def format_comparison(comparison: Comparison) -> str:
    """The differences, an element or figure a line: at how many budgets, and how much where it is most. Notes stand below."""
    parts = [
        *_table("Worse than the baseline", comparison.worse),
        *_table("Better than the baseline", comparison.better),
        *comparison.notes,
    ]
    if not (comparison.worse or comparison.better):
        parts.insert(0, "As good as the baseline.")
    return "\n".join(parts)


def _table(title: str, changes: Sequence[Change]) -> list[str]:
    if not changes:
        return []
    groups: dict[tuple[str | None, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.model, change.element or FIGURES[change.kind]), []).append(change)
    several = len({model for model, _ in groups}) > 1
    rows: list[Row] = [("element or figure", "budgets", "largest difference")]
    rows += [(f"{model}: {what}" if several else what, _budgets(found), _most(found)) for (model, what), found in groups.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"{title}:", *(f"  {what:<{widths[0]}}  {budgets:<{widths[1]}}  {most}" for what, budgets, most in rows)]


def _budgets(changes: Sequence[Change]) -> str:
    budgets = [change.budget for change in changes]
    return f"{budgets[0]:,}" if len(budgets) == 1 else f"{len(budgets)}, from {budgets[0]:,} to {budgets[-1]:,}"


def _most(changes: Sequence[Change]) -> str:
    change = max(changes, key=_size)
    return f"{_figure(change, change.before)} → {_figure(change, change.now)}" + (f" at {change.budget:,}" if len(changes) > 1 else "")


def _size(change: Change) -> float:
    """How much a change weighs beside others of its element or figure: a loss more than any share."""
    return abs(change.before - change.now) + (change.kind == "lost")


def _figure(change: Change, value: float) -> str:
    if change.kind == "fits":
        return f"needs {value:,.0f}" if value else "fits"
    if change.kind in ("cold", "warm"):
        return f"{value:.2f}x"
    return "nothing" if not value else f"{value:.0%}" if value >= LEAST else "under 1%"
