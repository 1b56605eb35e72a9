"""Where two pieces of text meet: the line break between them, and exact counts without counting everything again.

A leaf's own tokens are counted once. What a joint adds or saves shows in a small window around it, from the last safe cut
before it to the first safe cut behind it: outside the window counting is additive (`Tokenizer.safe_cut`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.rendering.tree import ALWAYS, FIRST, Leaf, Node, alive

if TYPE_CHECKING:
    import re

    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["Joints", "Range", "separator"]

_NEAR = 64  # characters in which a safe cut is looked for before the whole text is searched


def separator(before: Leaf, leaf: Leaf, k: int) -> str:
    """What stands between two living text leaves of one run at state k: a line break, or nothing.

    prompt-tsx: a TextChunk starts on a new line, and so does a container's first text unless text of the outer container
    stands right before it. A text that ends in a line break needs no other.
    """
    breaks = leaf.breaks == ALWAYS or before.closes or (leaf.breaks == FIRST and not _follows_text(before, leaf, k))
    return "\n" if breaks and not before.text.endswith("\n") else ""


def _follows_text(before: Leaf, leaf: Leaf, k: int) -> bool:
    """Whether a container's first text follows text of a container around it, with nothing between them that is alive."""
    if before.own:
        return False
    home = before.parent
    message = leaf.parent.message
    volatile = message is not None and message.volatile
    item: Leaf | Node = leaf if leaf.own else leaf.parent
    while True:
        parent = item.parent
        if parent is None:
            return False
        if volatile:  # elsewhere nothing without text can stand between two neighbours
            start = before.position + 1 if parent is home else 0
            if any(alive(parent.items[at], parent.gone[at], k) for at in range(start, item.position)):
                return False
        if parent is home:
            return item.position > before.position
        if parent.role is not None:
            return False
        item = parent


class Range:
    """A stretch of a message's leaves: all of them, or those below one node."""

    __slots__ = ("high", "low")

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high

    def previous(self, leaf: Leaf) -> Leaf | None:
        """The text leaf before this one in the same run, alive and in this stretch."""
        found = leaf.previous
        return found if found is not None and found.seq >= self.low and found.part is None else None

    def following(self, leaf: Leaf) -> Leaf | None:
        """The text leaf behind this one in the same run, alive and in this stretch."""
        found = leaf.following
        return found if found is not None and found.seq < self.high and found.part is None else None


class Joints:
    """Counts text at joints for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.cut = tokenizer.safe_cut

    def around(self, leaf: Leaf, span: Range, k: int) -> tuple[int, int]:
        """What a leaf that has just been linked in adds to its run: (tokens, change of the tokens inside windows)."""
        before, behind = span.previous(leaf), span.following(leaf)
        count = self.tokenizer.count
        head = self._before(before, span, k) if before else ""
        tail = self._behind(behind, span, k) if behind else ""
        old = ""
        if before and behind:
            old = head + separator(before, behind, k) + tail
        left = head + (separator(before, leaf, k) if before else "")
        right = (separator(leaf, behind, k) if behind else "") + tail
        was = count(old) if old else (count(head) if head else 0) + (count(tail) if tail else 0)
        text = leaf.text
        first, last = self._cuts(text)
        if first is None or last is None:
            now = count(left + text + right)
            return now - was, now - was
        start, end = text[:first], text[last:]
        edges = count(start) + count(end)
        windows = count(left + start) + count(end + right)
        return count(text) - edges + windows - was, windows - was

    def split(self, leaf: Leaf, span: Range, k: int) -> tuple[int, int]:
        """What a part that has just been linked in changes in the text around it, without its own tokens: likewise."""
        before, behind = span.previous(leaf), span.following(leaf)
        if not (before and behind):
            return 0, 0
        head, tail = self._before(before, span, k), self._behind(behind, span, k)
        count = self.tokenizer.count
        change = count(head) + count(tail) - count(head + separator(before, behind, k) + tail)
        return change, change

    def _before(self, leaf: Leaf, span: Range, k: int) -> str:
        """The end of the run up to and with this leaf, from its last safe cut."""
        text = leaf.text
        while True:
            place = self._last(text)
            if place is not None:
                return text[place:]
            before = span.previous(leaf)
            if before is None:
                return text
            text = before.text + separator(before, leaf, k) + text
            leaf = before

    def _behind(self, leaf: Leaf, span: Range, k: int) -> str:
        """The start of the run from this leaf, up to its first safe cut."""
        text = leaf.text
        while True:
            place = self._first(text)
            if place is not None:
                return text[:place]
            behind = span.following(leaf)
            if behind is None:
                return text
            text = text + separator(leaf, behind, k) + behind.text
            leaf = behind

    def _cuts(self, text: str) -> tuple[int | None, int | None]:
        first = self._first(text)
        return first, None if first is None else self._last(text)

    def _first(self, text: str) -> int | None:
        return _search(self.cut, text, 1) if self.cut else None

    def _last(self, text: str) -> int | None:
        """The last safe cut inside a text."""
        cut = self.cut
        if cut is None:
            return None
        start = len(text) - _NEAR
        while True:
            # Positions count in the whole text, so that what stands before `start` is still looked at.
            start = max(start, 1)
            place = None
            for match in cut.finditer(text, start):
                if match.start() < len(text):
                    place = match.start()
            if place is not None or start == 1:
                return place
            start = len(text) - 8 * (len(text) - start)


def _search(cut: re.Pattern[str], text: str, start: int) -> int | None:
    match = cut.search(text, start)
    return match.start() if match and match.start() < len(text) else None
