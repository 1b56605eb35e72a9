"""Counts remembered by text, bounded by the bytes that the texts take."""

from __future__ import annotations

__all__ = ["CountCache"]

_ENTRY = 120  # bytes that a dict entry and its key's slot take beside the text, about


class CountCache:
    """Text → tokens for the texts used last, of at most `max_bytes` together.

    Two generations: what is found in the old one moves to the young one, and when the young one is full the old one is
    dropped. So nothing is reordered on a hit, and a race between threads costs at most a second count of one text.
    """

    __slots__ = ("_half", "_old", "_room", "_young")

    def __init__(self, max_bytes: int) -> None:
        self._half = self._room = max_bytes // 2
        self._young: dict[str, int] = {}
        self._old: dict[str, int] = {}

    def get(self, text: str) -> int | None:
        """The tokens of a text, if they are remembered."""
        tokens = self._young.get(text)
        if tokens is None and self._old:
            tokens = self._old.pop(text, None)
            if tokens is not None:
                self.put(text, tokens)
        return tokens

    def put(self, text: str, tokens: int) -> None:
        """Remember a count; a text larger than half of the cache is not kept."""
        size = text.__sizeof__() + _ENTRY
        if size > self._half:
            return
        room = self._room - size
        if room < 0:
            self._old, self._young = self._young, {}
            room = self._half - size
        self._room = room
        self._young[text] = tokens

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
