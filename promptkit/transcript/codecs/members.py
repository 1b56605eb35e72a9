"""A large JSON text, taken apart while it is read: the members of lists that hold a conversation come one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from promptkit.transcript.codecs.jsontext import is_deep
from promptkit.transcript.codecs.parser import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from promptkit.messages import Json
    from promptkit.transcript.codecs.source import Source

__all__ = ["Path", "members"]

Path: TypeAlias = tuple[str | int, ...]
"""Where a value stands: the number of the JSON text in the file, then keys and places in lists."""

STARTS, ENDS = ("start_map", "start_array"), ("end_map", "end_array")


def members(source: Source, split: Callable[[Path], bool]) -> Iterator[tuple[Path, Json]]:
    """The values of a file and where they stand; a list or object at a path for which `split` holds is given member by member.

    A value that is nested too deeply is replaced by a text that says so. Raises TranscriptFormatError, after all before it was given, where
    the text is no JSON.
    """
    at = _Place()
    value = _Value()
    for event, given in events(source):
        if value.is_open:
            value.take(event, given)
            if not value.is_open:
                yield at.path, value.whole
        elif event == "map_key":
            at.name(str(given))
        elif event in ENDS:
            at.leave()
        elif event not in STARTS:
            yield at.step(), given
        elif split(at.step()):
            at.enter(is_list=event == "start_array")
        else:
            value.take(event, given)


class _Place:
    """The path of the value that comes next."""

    def __init__(self) -> None:
        self._parts: list[str | int] = [-1]  # a place in a list is that of the member before, until the next one comes

    @property
    def path(self) -> Path:
        return tuple(self._parts)

    def step(self) -> Path:
        """The path of the value that begins now."""
        last = self._parts[-1]
        if isinstance(last, int):
            self._parts[-1] = last + 1
        return self.path

    def name(self, key: str) -> None:
        self._parts[-1] = key

    def enter(self, *, is_list: bool) -> None:
        self._parts.append(-1 if is_list else "")

    def leave(self) -> None:
        self._parts.pop()


class _Value:
    """A list or an object that is being put together."""

    def __init__(self) -> None:
        self._open: list[dict[str, Json] | list[Json]] = []  # containers, outermost first
        self._key = ""
        self._made: Json = None

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    @property
    def whole(self) -> Json:
        made, self._made = self._made, None
        return "nested too deeply" if is_deep(made) else made

    def take(self, event: str, given: Json) -> None:
        if event == "map_key":
            self._key = str(given)
        elif event in ENDS:
            self._made = self._open.pop()
        elif event in STARTS:
            container: dict[str, Json] | list[Json] = {} if event == "start_map" else []
            self._put(container)
            self._open.append(container)
        else:
            self._put(given)

    def _put(self, value: Json) -> None:
        inside = self._open[-1] if self._open else None
        if isinstance(inside, dict):
            inside[self._key] = value
        elif inside is not None:
            inside.append(value)
