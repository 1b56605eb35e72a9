"""Where entries of a recording stand: ids that are used once, and conversations that go on from entry to entry."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from promptkit.transcript.entries import Entry

if TYPE_CHECKING:
    from promptkit.transcript.entries import Payload

__all__ = ["Chain", "Ids"]


class Ids:
    """Ids of entries, each given out once."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._repeats: dict[str, int] = {}

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._used

    def take(self, wanted: str) -> str:
        """The wanted id, or where that is taken the next one like it."""
        entry_id = wanted
        while not entry_id or entry_id in self._used:
            self._repeats[wanted] = self._repeats.get(wanted, 1) + 1
            entry_id = f"{wanted or 'entry'}#{self._repeats[wanted]}"
        self._used.add(entry_id)
        return entry_id


class Chain:
    """A conversation without branches: each entry stands behind the one before.

    Entries without an id get one of their place and content, so that the same recording always gives the same ids. An entry without a
    time has that of the one before, the first 0.
    """

    def __init__(self, ids: Ids, *, name: str = "", tail: str | None = None, time: float = 0.0) -> None:
        self._ids = ids
        self._prefix = f"{name}-" if name else ""
        self._count = 0
        self._time = time
        self.tail = tail
        """The id of the last entry; the next one stands behind it."""

    def __len__(self) -> int:
        return self._count

    def add(self, *payloads: Payload, time: float | None = None, entry_id: str | None = None) -> tuple[Entry, ...]:
        """Entries of payloads; the first has the id that is given."""
        return tuple(self._one(payload, time, None if at else entry_id) for at, payload in enumerate(payloads))

    def _one(self, payload: Payload, time: float | None, entry_id: str | None) -> Entry:
        self._count += 1
        self._time = self._time if time is None else time
        entry = Entry(
            id=self._ids.take(entry_id or f"{self._prefix}{self._count}-{_digest(payload)}"),
            parent_id=self.tail,
            time=self._time,
            payload=payload,
        )
        self.tail = entry.id
        return entry


def _digest(payload: Payload) -> str:
    return hashlib.blake2s(repr(payload).encode("utf-8", errors="backslashreplace"), digest_size=4).hexdigest()
