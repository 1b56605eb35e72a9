"""Compare a run with a baseline, an earlier run of the same prompt, and format the differences as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

import attrs

from promptkit.bench.results import Run, Sweep
from promptkit.errors import PromptKitError
from promptkit.reprs import describe_fields

Kind = Literal["fits", "lost", "kept", "utilisation", "cold", "warm"]

ROUNDING = 1e-9
"""Allowance for floating-point errors in the comparison with a tolerance."""


class BaselineMismatchError(PromptKitError):
    """The baseline has other budgets, models or depth than the run, so they cannot be compared."""


@attrs.frozen(kw_only=True)
class Change:
    """One figure at one budget that differs by more than the tolerance."""

    kind: Kind
    """What differs.

    * `fits`: whether the required elements fit the budget. Figures: required tokens, 0 if they fit.
    * `lost`: an element that was kept, at least partly, is not kept at all. Figures: shares.
    * `kept`: the share of an element that is kept.
    * `utilisation`: the share of the budget that is used.
    * `cold`, `warm`: the render time as a multiple of the floor.
    """
    model: str | None
    budget: int
    element: str | None = None
    """The path of the element, for `lost` and `kept`."""
    before: float
    """The figure of the baseline."""
    now: float
    """The figure of the run."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class Comparison:
    """The differences between a baseline and a run."""

    worse: tuple[Change, ...]
    better: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    """Remarks about the comparison, one sentence each."""

    __repr__ = describe_fields


def compare(
    run: Run, baseline: Run, *, tolerance: float = 0.05, time_tolerance: float | None = 0.5
) -> Comparison:
    """Compare a run with a baseline.

    A run is worse if, at any budget, the required elements no longer fit; an element that was kept,
    wholly or partly, is not kept at all; the kept share of an element, or the utilisation of a
    budget that something was removed for, decreased by more than `tolerance`; or a time over the
    floor increased by more than `time_tolerance`. It is better in the reverse cases.

    Args:
        run: The new run.
        baseline: The earlier run.
        tolerance: Tolerated decrease of shares, as a fraction of 1: 0.05 is 5 percentage points.
        time_tolerance: Tolerated relative increase of times: 0.5 is 50 %. None: times are not
            compared.

    Returns:
        The differences.

    Raises:
        BaselineMismatchError: The runs have different budgets, models or depths.
    """
    check_comparable(
        baseline, budgets=run.budgets, models=[sweep.model for sweep in run.sweeps], depth=run.depth
    )
    pairs = list(zip(baseline.sweeps, run.sweeps, strict=True))
    return Comparison(
        worse=tuple(
            change for old, new in pairs for change in _worse(old, new, tolerance, time_tolerance)
        ),
        better=tuple(
            attrs.evolve(change, before=change.now, now=change.before)
            for old, new in pairs
            for change in _worse(new, old, tolerance, time_tolerance)
        ),
        notes=tuple(_notes(baseline, run, timed=time_tolerance is not None)),
    )


def check_comparable(
    baseline: Run, *, budgets: Sequence[int], models: Sequence[str | None], depth: int
) -> None:
    """Raise BaselineMismatchError unless a baseline can be compared with a run of these budgets, models and depth."""
    settings = {
        "budgets": (_join(baseline.budgets), _join(budgets)),
        "models": (_join(sweep.model for sweep in baseline.sweeps), _join(models)),
        "depth": (str(baseline.depth), str(depth)),
    }
    for name, (old, new) in settings.items():
        if old != new:
            raise BaselineMismatchError(
                f"the {name} of the baseline ({old}) and of this run ({new}) differ: use the same, or write a new baseline."
            )


def _worse(
    old: Sweep, new: Sweep, tolerance: float, time_tolerance: float | None
) -> Iterator[Change]:
    """Yield what is worse in `new`."""
    elements = {element.path: element for element in new.elements}
    for at, (was, point) in enumerate(zip(old.points, new.points, strict=True)):
        change = partial(Change, model=new.model, budget=point.budget)
        if was.required is not None:
            continue
        if point.required is not None:
            yield change(kind="fits", before=0, now=point.required)
            continue
        for element in old.elements:
            found = elements.get(element.path)
            before, now = element.kept_share(at) or 0, (found and found.kept_share(at)) or 0
            if before and (not now or before - now > tolerance + ROUNDING):
                yield change(
                    kind="kept" if now else "lost", element=element.path, before=before, now=now
                )
        before, now = was.utilisation or 0, point.utilisation or 0
        if new.dropped_tokens(at) and before - now > tolerance + ROUNDING:
            yield change(kind="utilisation", before=before, now=now)
        for kind, before, now in _times(old, new, at) if time_tolerance is not None else ():
            if now > before * (1 + (time_tolerance or 0)):
                yield change(kind=kind, before=before, now=now)


def _times(old: Sweep, new: Sweep, at: int) -> Iterator[tuple[Kind, float, float]]:
    """Yield the times over the floor that both sweeps have at a budget."""
    was, point = old.points[at], new.points[at]
    times: Sequence[tuple[Kind, float | None, float | None]] = (
        ("cold", old.over_floor(was.cold), new.over_floor(point.cold)),
        ("warm", old.over_floor(was.warm), new.over_floor(point.warm)),
    )
    for kind, before, now in times:
        if before is not None and now is not None:
            yield kind, before, now


def _notes(before: Run, now: Run, *, timed: bool) -> Iterator[str]:
    if before.target != now.target:
        yield f"The baseline was measured with {before.target}."
    for old, new in zip(before.sweeps, now.sweeps, strict=True):
        if old.whole != new.whole:
            yield f"Without a budget{_of(new.model)}: {old.whole:,} tokens before, {new.whole:,} now."
        if old.tokenizer != new.tokenizer:
            yield f"Counted with {old.tokenizer} before, with {new.tokenizer} now{_of(new.model)}."
    if timed and bool(before.repeat) != bool(now.repeat):
        yield f"Times were not compared: {'this run' if before.repeat else 'the baseline'} has none."
    elif timed and before.repeat:
        for name, old_version, new_version in (
            ("Python", before.versions.python, now.versions.python),
            ("tiktoken", before.versions.tiktoken, now.versions.tiktoken),
        ):
            if old_version != new_version:
                yield f"The baseline was timed with {name} {old_version}, this run with {new_version}."


def _of(model: str | None) -> str:
    return f", for {model}" if model else ""


def _join(settings: Iterable[object]) -> str:
    return ", ".join(str(setting or "none") for setting in settings)


MIN_SHARE = 0.01
"""Smaller shares are printed as "under 1%"."""

FIGURES: dict[Kind, str] = {
    "fits": "(fits at all)",
    "utilisation": "(utilisation)",
    "cold": "(cold render over the floor)",
    "warm": "(warm render over the floor)",
}


def format_comparison(comparison: Comparison) -> str:
    """Format the differences as a table, one line for each element or figure: at how many budgets, and the largest difference.

    The notes follow the table.
    """
    return "\n".join(
        [
            *([] if comparison.worse or comparison.better else ["As good as the baseline."]),
            *_table("Worse than the baseline", comparison.worse),
            *_table("Better than the baseline", comparison.better),
            *comparison.notes,
        ]
    )


def _table(title: str, changes: Sequence[Change]) -> list[str]:
    if not changes:
        return []
    groups: dict[tuple[str | None, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.model, change.element or FIGURES[change.kind]), []).append(change)
    several = len({model for model, _ in groups}) > 1
    rows = [
        ("element or figure", "budgets", "largest difference"),
        *(
            (f"{model}: {what}" if several else what, _budgets(found), _largest_change(found))
            for (model, what), found in groups.items()
        ),
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [
        f"{title}:",
        *(f"  {what:<{widths[0]}}  {budgets:<{widths[1]}}  {most}" for what, budgets, most in rows),
    ]


def _budgets(changes: Sequence[Change]) -> str:
    budgets = [change.budget for change in changes]
    return (
        f"{budgets[0]:,}"
        if len(budgets) == 1
        else f"{len(budgets)}, from {budgets[0]:,} to {budgets[-1]:,}"
    )


def _largest_change(changes: Sequence[Change]) -> str:
    change = max(changes, key=_size)
    return f"{_figure(change, change.before)} → {_figure(change, change.now)}" + (
        f" at {change.budget:,}" if len(changes) > 1 else ""
    )


def _size(change: Change) -> float:
    """Return a sort key for the changes of one element or figure.

    A lost element counts more than any decrease.
    """
    return abs(change.before - change.now) + (change.kind == "lost")


def _figure(change: Change, value: float) -> str:
    match change.kind:
        case "fits":
            return f"needs {value:,.0f}" if value else "fits"
        case "cold" | "warm":
            return f"{value:.2f}x"
        case _:
            return "nothing" if not value else f"{value:.0%}" if value >= MIN_SHARE else "under 1%"
