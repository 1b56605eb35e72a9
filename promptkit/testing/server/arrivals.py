"""The order in which requests came: a script's steps are for requests in that order, whichever of them is counted faster."""

from __future__ import annotations

from threading import Condition

__all__ = ["Arrivals"]


class Arrivals:
    """Requests that have come and have not had their step yet, by their numbers. For many threads at once."""

    def __init__(self) -> None:
        self._waiting: set[int] = set()
        self._changed = Condition()

    def come(self, number: int) -> None:
        """A request has come."""
        with self._changed:
            self._waiting.add(number)

    def wait(self, number: int) -> None:
        """Wait until no request that came before is to have a step any more. At once, for one that is not waiting itself."""
        with self._changed:
            self._changed.wait_for(lambda: number not in self._waiting or number <= min(self._waiting))

    def gone(self, number: int) -> None:
        """A request has had its step, or will have none."""
        with self._changed:
            self._waiting.discard(number)
            self._changed.notify_all()
