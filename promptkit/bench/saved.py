"""A run as JSON: written so that a change reads well in a review, and read back with care."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs

from promptkit.bench.run import Run, Sweep
from promptkit.errors import PromptKitError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SCHEMA", "UnreadableRunError", "read_run", "run_as_text"]

SCHEMA = 1
"""The form of the file. Another number is another form."""

Value: TypeAlias = "dict[str, Value] | list[Value] | tuple[Value, ...] | str | int | float | None"
Fields: TypeAlias = "dict[str, Value]"

LEVELS = 4
"""Of lists and objects that begin new lines: the run, its sweeps, a sweep, its points; a point is one line."""


class UnreadableRunError(PromptKitError):
    """A file that cannot be read as a run."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}.")


def run_as_text(run: Run) -> str:
    """A run as JSON in ASCII, with a line for each point and each element. Times are seconds; of what is None only the model is said."""
    fields = attrs.asdict(run, filter=lambda field, value: value is not None or field.name == "model")
    return f"{_lines({'schema': SCHEMA, **cast('Fields', fields)}, 0)}\n"  # a run holds nothing but these


def read_run(path: Path) -> Run:
    """The run that a file holds, as `run_as_text` wrote it. Raises UnreadableRunError."""
    from cattrs import BaseValidationError, structure, transform_error

    try:
        found: Value = json.loads(path.read_bytes())
    except OSError as error:
        raise UnreadableRunError(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableRunError(path, "is no JSON") from error
    if not isinstance(found, dict) or "schema" not in found:
        raise UnreadableRunError(path, "holds no run of a bench")
    if found["schema"] != SCHEMA:
        raise UnreadableRunError(path, f"has the schema {found['schema']!r}, and this version of promptkit reads {SCHEMA}: write it again")
    try:
        run = structure(found, Run)
    except BaseValidationError as error:
        raise UnreadableRunError(path, f"is damaged: {transform_error(error, path='run')[0]}") from error
    if not all(_is_whole(sweep, run.budgets) for sweep in run.sweeps):
        raise UnreadableRunError(path, "is damaged: its figures are not those of its budgets")
    return run


def _is_whole(sweep: Sweep, budgets: tuple[int, ...]) -> bool:
    return tuple(point.budget for point in sweep.points) == budgets and all(len(each.kept) == len(budgets) for each in sweep.elements)


def _lines(value: Value, level: int) -> str:
    """JSON that begins a new line for each item down to LEVELS."""
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if level >= LEVELS or not any(isinstance(item, dict | list | tuple) for item in below):
        return json.dumps(value, allow_nan=False)
    indent = "  " * level
    if isinstance(value, dict):
        start, items, end = "{", [f"{json.dumps(name)}: {_lines(item, level + 1)}" for name, item in value.items()], "}"
    else:
        start, items, end = "[", [_lines(item, level + 1) for item in below], "]"
    return f"{start}\n{indent}  " + f",\n{indent}  ".join(items) + f"\n{indent}{end}"
