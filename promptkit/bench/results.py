"""The results of a bench, and their JSON file.

A Run measures one prompt. It has a Sweep for each model; a sweep has a Point for each budget and an
Element for each part of the prompt. The JSON has one line for each point and element, so that
changes are easy to review.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

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

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}.")


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
        raise UnreadableRunError(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableRunError(path, "is not JSON") from error
    if not isinstance(found, dict) or "schema" not in found:
        raise UnreadableRunError(path, "is not a run of promptkit bench")
    if found["schema"] != SCHEMA:
        raise UnreadableRunError(
            path,
            f"has schema {found['schema']!r}, but this version of promptkit reads {SCHEMA}: write a new baseline",
        )
    try:
        run = structure(found, Run)
    except BaseValidationError as error:
        raise UnreadableRunError(
            path, f"is damaged: {transform_error(error, path='run')[0]}"
        ) from error
    if any(
        tuple(point.budget for point in sweep.points) != run.budgets
        or any(len(each.kept) != len(run.budgets) for each in sweep.elements)
        for sweep in run.sweeps
    ):
        raise UnreadableRunError(path, "is damaged: its figures are not those of its budgets")
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
