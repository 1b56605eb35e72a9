"""The results of a bench, their JSON file, and the comparison of a run with a baseline, an earlier run of the same prompt, as a table.

A Run measures one prompt. It has a Sweep for each model; a sweep has a Point for each budget and an
Element for each part of the prompt. The JSON has one line for each point and element, so that
changes are easy to review.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from promptkit.errors import PromptKitError
from promptkit.reprs import describe_fields


@attrs.frozen(kw_only=True)
class Point:
    """One render at one budget.

    Sizes are in tokens, times in seconds of processor time; a time is None if it was not measured.
    """

    budget: int
    required: int | None = None
    """The tokens that are required, if these do not fit the budget. There is no render then, and
    the other figures are 0."""
    used: int = 0
    """The tokens of the request."""
    messages: int = 0
    """The number of messages in the request."""
    removed: int = 0
    """The number of elements that were removed, as listed in `Rendered.removals`."""
    stable_prefix: int = 0
    """The tokens of the leading messages that are identical to those of a render without a
    budget."""
    cold: float | None = None
    """The time of a render with a new Renderer and an empty tokenizer cache."""
    warm: float | None = None
    """The time of the next render of the same prompt with the same Renderer."""

    __repr__ = describe_fields

    @property
    def utilisation(self) -> float | None:
        """The share of the budget that is used. None: there is no render."""
        return None if self.required is not None else self.used / self.budget


@attrs.frozen(kw_only=True)
class Element:
    """The tokens that are kept of one element, or of all elements with the same path, at each budget."""

    path: str
    """The element path without positions: `AgentPrompt > History > KeepWith`."""
    whole: int
    """Tokens without a budget. For an element that exists only within a budget, the most at any
    budget."""
    kept: tuple[int | None, ...]
    """Tokens at each budget. None: there is no render."""

    __repr__ = describe_fields

    def kept_share(self, at: int) -> float | None:
        """Return the share of its tokens that is kept at the budget with index `at`, at most 1.

        None: there is no render.
        """
        kept = self.kept[at]
        return None if kept is None else min(1.0, kept / self.whole) if self.whole else 1.0


@attrs.frozen(kw_only=True)
class Sweep:
    """One prompt at every budget, counted for one model."""

    model: str | None
    """None: the default tokenizer, as in a render without a model."""
    tokenizer: str
    """The name of the tokenizer."""
    whole: int
    """The tokens of the request without a budget."""
    messages: int
    """The number of messages in that request."""
    floor: float | None = None
    """Seconds of processor time to tokenise every text of that request once, in the same run. None:
    no times were measured."""
    points: tuple[Point, ...]
    """One for each budget, in order."""
    elements: tuple[Element, ...]
    """In the order of the prompt. Together they cover all of it."""

    __repr__ = describe_fields

    def over_floor(self, seconds: float | None) -> float | None:
        """Return a time as a multiple of the floor, which is comparable between machines.

        None: there is no time or no floor.
        """
        return seconds / self.floor if seconds is not None and self.floor else None

    def dropped_tokens(self, at: int) -> int:
        """Return the tokens of all elements that are not kept at the budget with index `at`."""
        return sum(max(0, element.whole - (element.kept[at] or 0)) for element in self.elements)


@attrs.frozen(kw_only=True)
class Versions:
    """The versions of the software that made a run."""

    promptkit: str
    python: str
    tiktoken: str


@attrs.frozen(kw_only=True)
class Run:
    """The measurements of one prompt, at every budget and for every model."""

    target: str
    """The name of the prompt, such as `prompt.py:Review`."""
    budgets: tuple[int, ...]
    """In tokens."""
    depth: int
    """The length of the element paths. Deeper elements are added to the element that contains
    them."""
    repeat: int
    """How often each time was measured. 0: no times were measured."""
    versions: Versions
    sweeps: tuple[Sweep, ...]

    __repr__ = describe_fields


SCHEMA = 1
"""The version of the file format."""

Value: TypeAlias = "dict[str, Value] | list[Value] | tuple[Value, ...] | str | int | float | None"

LEVELS = 4
"""Levels of lists and objects whose items begin new lines: the run, its sweeps, a sweep, its
points. A point is one line."""


class UnreadableRunError(PromptKitError):
    """A file cannot be read as a run."""


def run_to_json(run: Run) -> str:
    """Return a run as JSON in ASCII, with one line for each point and each element.

    Of fields that are None, only `model` is written.
    """
    fields: dict[str, Value] = attrs.asdict(
        run, filter=lambda field, value: value is not None or field.name == "model"
    )
    return f"{_lines({'schema': SCHEMA, **fields}, 0)}\n"


def read_run(path: Path) -> Run:
    """Read a run from a file that `run_to_json` wrote. Raises UnreadableRunError."""
    from cattrs import BaseValidationError, structure, transform_error

    try:
        found: Value = json.loads(path.read_bytes())
    except OSError as error:
        raise UnreadableRunError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableRunError(f"{path} is not JSON.") from error
    if not isinstance(found, dict) or "schema" not in found:
        raise UnreadableRunError(f"{path} is not a run of promptkit bench.")
    if found["schema"] != SCHEMA:
        raise UnreadableRunError(
            f"{path} has schema {found['schema']!r}, but this version of promptkit reads {SCHEMA}: write a new baseline."
        )
    try:
        run = structure(found, Run)
    except BaseValidationError as error:
        raise UnreadableRunError(
            f"{path} is damaged: {transform_error(error, path='run')[0]}."
        ) from error
    if any(
        tuple(point.budget for point in sweep.points) != run.budgets
        or any(len(each.kept) != len(run.budgets) for each in sweep.elements)
        for sweep in run.sweeps
    ):
        raise UnreadableRunError(f"{path} is damaged: its figures are not those of its budgets.")
    return run


def _lines(value: Value, level: int) -> str:
    """Return JSON with a new line for each item, down to LEVELS."""
    below = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else ()
    )
    if level >= LEVELS or not any(isinstance(item, dict | list | tuple) for item in below):
        return json.dumps(value, allow_nan=False)
    indent = "  " * level
    start, end = "{}" if isinstance(value, dict) else "[]"
    items = (
        [f"{json.dumps(name)}: {_lines(item, level + 1)}" for name, item in value.items()]
        if isinstance(value, dict)
        else [_lines(item, level + 1) for item in below]
    )
    return f"{start}\n{indent}  " + f",\n{indent}  ".join(items) + f"\n{indent}{end}"


Kind = Literal["fits", "lost", "kept", "utilisation", "cold", "warm"]

ROUNDING = 1e-9
"""Allowance for floating-point errors in the comparison with a tolerance."""


class BaselineMismatchError(PromptKitError):
    """The baseline has other budgets, models or depth than the run, so they cannot be compared."""


@attrs.frozen(kw_only=True)
class Change:
    """One figure at one budget that differs by more than the tolerance."""

    kind: Kind
    """The kind of the difference.

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
        times: Sequence[tuple[Kind, float | None, float | None]] = (
            ("cold", old.over_floor(was.cold), new.over_floor(point.cold)),
            ("warm", old.over_floor(was.warm), new.over_floor(point.warm)),
        )
        for kind, earlier, later in times if time_tolerance is not None else ():
            if (
                earlier is not None
                and later is not None
                and later > earlier * (1 + (time_tolerance or 0))
            ):
                yield change(kind=kind, before=earlier, now=later)


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
