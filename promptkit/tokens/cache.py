"""Counts remembered by text, bounded by the bytes that the texts take."""

from __future__ import annotations

__all__ = ["CountCache"]

_ENTRY = 120  # bytes that a dict's entry takes beside the text, about


class CountCache:
    """Text → tokens for the texts used last, of at most `max_bytes` together.

    Two generations: what is wanted again from the old one is put into the young one, and when the young one is full it becomes
    the old one. So nothing is reordered on a hit, and a race between threads costs at most a second count of one text.
    """

    __slots__ = ("_half", "_old", "_room", "young")

    def __init__(self, max_bytes: int) -> None:
        self._half = self._room = max_bytes // 2
        self.young: dict[str, int] = {}
        """What was used last: always the same dict, so that a counter may look into it directly."""
        self._old: dict[str, int] = {}

    def old(self, text: str) -> int | None:
        """The tokens of a text that was used before the last ones, if they are remembered."""
        return self._old.pop(text, None) if self._old else None

    def put(self, text: str, tokens: int) -> None:
        """Remember a count; a text larger than half of the cache is not kept."""
        size = text.__sizeof__() + _ENTRY
        if size > self._half:
            return
        self._room -= size
        if self._room < 0:
            self._old = self.young.copy()
            self.young.clear()
            self._room = self._half - size
        self.young[text] = tokens

    def __len__(self) -> int:
        return len(self.young) + len(self._old)
