"""Where two pieces of text meet: the line break between them, and exact counts without counting everything again.

A leaf's own tokens are counted once. What a joint adds or saves shows in a small window around it, from the last safe cut
before it to the first safe cut behind it: outside the window counting is additive (`Tokenizer.safe_cut`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.rendering.tree import STARTS_LINE_ALWAYS, STARTS_LINE_FIRST, Leaf, Node

if TYPE_CHECKING:
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["Range", "TextJoins", "find_separator"]

_NEAR = 48  # characters in which a safe cut is looked for before more of the text is searched


def find_separator(before: Leaf, leaf: Leaf, nearest: Leaf | None) -> str:
    """What stands between two neighbouring texts of one run: a line break, or nothing.

    `nearest` is what stands right before the second one: the first one, or something empty. prompt-tsx: a TextChunk starts on
    a new line, and so does a container's first text unless text of the outer container stands right before it. A text that
    ends in a line break needs no other.
    """
    breaks = leaf.starts_line == STARTS_LINE_ALWAYS or before.ends_line or (leaf.starts_line == STARTS_LINE_FIRST and not (nearest and _follows_text(nearest, leaf)))
    return "\n" if breaks and not before.text.endswith("\n") else ""


def _follows_text(nearest: Leaf, leaf: Leaf) -> bool:
    """Whether a container's first text stands right behind text of a container around it."""
    if nearest.is_element:
        return False
    home = nearest.parent
    item: Leaf | Node = leaf if leaf.is_element else leaf.parent
    while True:
        parent = item.parent
        if parent is None:
            return False
        if parent is home:
            return item.position > nearest.position
        if parent.role is not None:
            return False
        item = parent


class Range:
    """A stretch of a message's leaves: all of them, or those below one node."""

    __slots__ = ("high", "low")

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high

    def before(self, leaf: Leaf) -> Leaf | None:
        """The text before a leaf in the same run, alive and in this stretch."""
        found = leaf.previous
        while found is not None and found.is_empty:
            found = found.previous
        return found if found is not None and found.index >= self.low and found.part is None else None

    def behind(self, leaf: Leaf) -> Leaf | None:
        """The text behind a leaf in the same run, alive and in this stretch."""
        found = leaf.following
        while found is not None and found.is_empty:
            found = found.following
        return found if found is not None and found.index < self.high and found.part is None else None


class TextJoins:
    """Counts text at joints for one tokenizer. Each result is (tokens, change of the tokens that may still shrink)."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.cut = tokenizer.safe_cut

    def count_text(self, leaf: Leaf, span: Range) -> tuple[int, int]:
        """What a text that has just been linked in adds to its run."""
        before, behind = span.before(leaf), span.behind(leaf)
        if self._is_solid(leaf) and (before is None or self._is_solid(before)) and (behind is None or self._is_solid(behind)):
            return self._line(leaf, before, behind)
        count = self.tokenizer.count
        head = self._end(before, span) if before else ""
        tail = self._start(behind, span) if behind else ""
        was = count(head + find_separator(before, behind, _without(leaf, behind)) + tail) if before and behind else count(head or tail)
        left = head + find_separator(before, leaf, leaf.previous) if before else ""
        right = find_separator(leaf, behind, behind.previous) + tail if behind else ""
        text = leaf.text
        first, last = self._cuts(leaf)
        if first < 0:
            now = count(left + text + right)
            return now - was, now - was
        start, end = text[:first], text[last:]
        windows = count(left + start) + count(end + right)
        return count(text) - count(start) - count(end) + windows - was, windows - was

    def count_part(self, leaf: Leaf, span: Range) -> tuple[int, int]:
        """What a part that has just been linked in changes in the text around it, without its own tokens."""
        before, behind = span.before(leaf), span.behind(leaf)
        if not (before and behind):
            return 0, 0
        head, tail = self._end(before, span), self._start(behind, span)
        count = self.tokenizer.count
        change = count(head) + count(tail) - count(head + find_separator(before, behind, _without(leaf, behind)) + tail)
        return change, change

    def count_empty(self, leaf: Leaf, span: Range) -> tuple[int, int]:
        """What something empty that has just been linked in changes: perhaps the line break between its neighbours."""
        before, behind = span.before(leaf), span.behind(leaf)
        if before is None or behind is None:
            return 0, 0
        old, new = find_separator(before, behind, _without(leaf, behind)), find_separator(before, behind, behind.previous)
        if old == new:
            return 0, 0
        head, tail = self._end(before, span), self._start(behind, span)
        change = self.tokenizer.count(head + new + tail) - self.tokenizer.count(head + old + tail)
        return change, change

    def _line(self, leaf: Leaf, before: Leaf | None, behind: Leaf | None) -> tuple[int, int]:
        """A text that starts on a line of its own, among such: every line's start is a safe cut, whatever stands before it."""
        tokens = self.tokenizer.count(leaf.text)
        if behind is not None:
            return tokens + self._line_break(leaf), 0
        loose = self.tokenizer.count(self._tail(leaf))
        if before is None:
            return tokens, loose
        return tokens + self._line_break(before), loose - self.tokenizer.count(self._tail(before))

    def _line_break(self, leaf: Leaf) -> int:
        """What a line break at the end of a text adds to it."""
        if leaf.text.endswith("\n"):
            return 0
        tail = self._tail(leaf)
        return self.tokenizer.count(tail + "\n") - self.tokenizer.count(tail)

    def _tail(self, leaf: Leaf) -> str:
        return leaf.text[max(0, self._cuts(leaf)[1]) :]

    def _is_solid(self, leaf: Leaf) -> bool:
        """Whether a text always starts a line, with a character before which the line break is a safe cut."""
        solid = leaf.starts_at_safe_cut
        if solid is None:
            cut = self.cut
            solid = leaf.starts_at_safe_cut = bool(leaf.starts_line == STARTS_LINE_ALWAYS and cut is not None and cut.match("\n" + leaf.text[:2], 1))
        return solid

    def _end(self, leaf: Leaf, span: Range) -> str:
        """The end of the run up to and with this leaf, from its last safe cut."""
        last = self._cuts(leaf)[1]
        if last >= 0:
            return leaf.text[last:]
        text = leaf.text
        while (before := span.before(leaf)) is not None:
            text = before.text + find_separator(before, leaf, leaf.previous) + text
            place = self._last(text)
            if place >= 0:
                return text[place:]
            leaf = before
        return text

    def _start(self, leaf: Leaf, span: Range) -> str:
        """The start of the run from this leaf, up to its first safe cut."""
        first = self._cuts(leaf)[0]
        if first >= 0:
            return leaf.text[:first]
        text = leaf.text
        while (behind := span.behind(leaf)) is not None:
            text = text + find_separator(leaf, behind, behind.previous) + behind.text
            place = self._first(text)
            if place >= 0:
                return text[:place]
            leaf = behind
        return text

    def _cuts(self, leaf: Leaf) -> tuple[int, int]:
        """The first and the last safe cut inside a leaf's text; -1 where there is none."""
        cuts = leaf.safe_cuts
        if cuts is None:
            first = self._first(leaf.text)
            cuts = leaf.safe_cuts = (first, self._last(leaf.text) if first >= 0 else -1)
        return cuts

    def _first(self, text: str) -> int:
        match = self.cut.search(text, 1) if self.cut else None
        return match.start() if match and match.start() < len(text) else -1

    def _last(self, text: str) -> int:
        """The last safe cut inside a text."""
        cut = self.cut
        if cut is None:
            return -1
        reach = _NEAR
        while True:
            start = max(len(text) - reach, 1)
            place = -1
            for match in cut.finditer(text, start):  # positions count in the whole text: what stands before `start` is looked at
                if match.start() < len(text):
                    place = match.start()
            if place >= 0 or start == 1:
                return place
            reach *= 8


def _without(leaf: Leaf, behind: Leaf) -> Leaf | None:
    """What would stand right before `behind` if `leaf` were not there."""
    return leaf.previous if behind.previous is leaf else behind.previous
