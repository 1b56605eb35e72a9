"""The values of a bench: a run over one prompt, a sweep for each model, a point for each budget, a row for each element.

A run as JSON: written so that a change reads well in a review, and read back with care.
Files that are there whole or not at all.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs

from promptkit.errors import PromptKitError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SCHEMA", "Element", "Point", "Run", "Sweep", "UnreadableRunError", "Versions", "read_run", "run_to_json", "write_atomically"]


@attrs.frozen(kw_only=True)
class Point:
    """One render, at one budget. Figures are tokens; times are processor seconds, None where none were taken."""

    budget: int
    required: int | None = None
    """What must be kept, where that does not fit the budget: then there is no render, and the other figures are 0."""
    used: int = 0
    """The tokens of the request."""
    messages: int = 0
    """The messages of the request: a number of them."""
    removed: int = 0
    """The pieces that were removed: a number of them, as in the receipt."""
    stable_prefix: int = 0
    """The tokens of the leading messages that are the same, byte for byte, as with room for everything."""
    cold: float | None = None
    """A new Renderer and a tokenizer that remembers nothing."""
    warm: float | None = None
    """The Renderer that was kept, given the same prompt again."""

    @property
    def utilisation(self) -> float | None:
        """The share of the budget that is used; None where there is no render."""
        return None if self.required is not None else self.used / self.budget


@attrs.frozen(kw_only=True)
class Element:
    """What is kept of one element, or of all that stand under one path, at each budget."""

    path: str
    """As in the receipt but without positions: `AgentPrompt > History > KeepWith`."""
    whole: int
    """Tokens with room for everything; for what is not there then, the most at any budget."""
    kept: tuple[int | None, ...]
    """Tokens at each budget; None where there is no render."""

    def kept_share(self, at: int) -> float | None:
        """The share of its tokens that is kept at the budget of this index, at most 1; None where there is no render."""
        kept = self.kept[at]
        return None if kept is None else min(1.0, kept / self.whole) if self.whole else 1.0


@attrs.frozen(kw_only=True)
class Sweep:
    """One prompt as one model counts it, at every budget."""

    model: str | None
    """None: the default tokenizer, as in a render without a model."""
    tokenizer: str
    whole: int
    """The tokens of the request with room for everything."""
    messages: int
    """Its messages: a number of them."""
    floor: float | None = None
    """Processor seconds to tokenise every text of it once, in the same run; None where no times were taken."""
    points: tuple[Point, ...]
    elements: tuple[Element, ...]
    """In written order. Together they are the whole prompt."""

    def over_floor(self, seconds: float | None) -> float | None:
        """A time as a multiple of the floor, which means the same on every machine; None where there is none."""
        return seconds / self.floor if seconds is not None and self.floor else None

    def dropped_tokens(self, at: int) -> int:
        """The tokens of all elements that are not kept at the budget of this index."""
        return sum(max(0, element.whole - (element.kept[at] or 0)) for element in self.elements)


@attrs.frozen(kw_only=True)
class Versions:
    """What a run was made with."""

    promptkit: str
    python: str
    tiktoken: str


@attrs.frozen(kw_only=True)
class Run:
    """One prompt, at every budget, for every model."""

    target: str
    """What was measured, as it was named."""
    budgets: tuple[int, ...]
    depth: int
    """The steps of a path after which elements are summed up."""
    repeat: int
    """How often every time was taken; 0: none were."""
    versions: Versions
    sweeps: tuple[Sweep, ...]


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


def run_to_json(run: Run) -> str:
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


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file beside its place, make sure that it is on the disk, and put it there: nobody ever reads half of it.

    A link stays a link; what is no regular file, such as a pipe, is written to as it is. Raises OSError.
    """
    place = path.resolve()
    if place.exists() and not place.is_file():
        place.write_bytes(content)
        return
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
