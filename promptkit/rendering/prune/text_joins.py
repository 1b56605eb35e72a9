"""Joins of adjacent texts: the line break between them, and exact token counts without counting whole messages again.

The tokens of a leaf are counted once. A join with a neighbour changes the count only in a small
window around it: from the last safe cut before the join to the first safe cut after it. Outside the
window, counts add up (`Tokenizer.safe_cut`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from promptkit.rendering.tree import STARTS_LINE_ALWAYS, STARTS_LINE_FIRST, Leaf

if TYPE_CHECKING:
    import re

    from promptkit.tokens import Tokenizer

# characters at the end of a text in which the last safe cut is looked for first
_SEARCH_LENGTH = 48


def find_separator(before: Leaf, leaf: Leaf, nearest: Leaf | None) -> str:
    """Return the separator of two adjacent texts of one run: a line break or nothing.

    `nearest` is the leaf directly before the second text: the first text, or an empty leaf. The
    rules are those of prompt-tsx. A TextChunk starts on a new line. So does the first text of a
    container, unless text of the outer container stands directly before it. After a text that ends
    in a line break nothing is added.
    """
    starts_line = leaf.starts_line == STARTS_LINE_ALWAYS or before.ends_line
    if leaf.starts_line == STARTS_LINE_FIRST and not starts_line:
        starts_line = not (nearest and _follows_outer_text(nearest, leaf))
    return "\n" if starts_line and not before.text.endswith("\n") else ""


def _follows_outer_text(nearest: Leaf, leaf: Leaf) -> bool:
    """Return whether the first text of a container stands directly after text of a container around it."""
    if nearest.is_element:
        return False
    around = leaf.parent if leaf.is_element else leaf.parent.parent
    while around is not None and around is not nearest.parent and around.role is None:
        around = around.parent
    return around is nearest.parent


class LeafRange(NamedTuple):
    """A range of the leaves of a message: all of them, or those below one node."""

    low: int
    high: int

    def find_before(self, leaf: Leaf) -> Leaf | None:
        """Return the living text before a leaf in the same run and in this range, or None."""
        found = leaf.previous
        while found is not None and found.is_empty:
            found = found.previous
        return (
            found if found is not None and found.index >= self.low and found.part is None else None
        )

    def find_after(self, leaf: Leaf) -> Leaf | None:
        """Return the living text after a leaf in the same run and in this range, or None."""
        found = leaf.following
        while found is not None and found.is_empty:
            found = found.following
        return (
            found if found is not None and found.index < self.high and found.part is None else None
        )


class TextJoins:
    """Counts text at joins for one tokenizer, whose counts add up: the `base` of one that scales them.

    Each result is (tokens, shrinkable): the change of a message's tokens, and the part of it that
    may still shrink when other leaves come back.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.cut = tokenizer.safe_cut

    def count_text(self, leaf: Leaf, span: LeafRange) -> tuple[int, int]:
        """Count the tokens that a newly linked text adds to its run."""
        before, after = span.find_before(leaf), span.find_after(leaf)
        if (
            self._starts_at_safe_cut(leaf)
            and (before is None or self._starts_at_safe_cut(before))
            and (after is None or self._starts_at_safe_cut(after))
        ):
            return self._count_line(leaf, before, after)
        count = self.tokenizer.count
        head = self._read_end(before, span) if before else ""
        tail = self._read_start(after, span) if after else ""
        was = (
            count(head + find_separator(before, after, _previous_without(leaf, after)) + tail)
            if before and after
            else count(head or tail)
        )
        left = head + find_separator(before, leaf, leaf.previous) if before else ""
        right = find_separator(leaf, after, after.previous) + tail if after else ""
        text = leaf.text
        first, last = self._find_cuts(leaf)
        if not first:
            now = count(left + text + right)
            return now - was, now - was
        start, end = text[:first], text[last:]
        windows = count(left + start) + count(end + right)
        return count(text) - count(start) - count(end) + windows - was, windows - was

    def count_around(self, leaf: Leaf, span: LeafRange) -> tuple[int, int]:
        """Count the change in the surrounding text when a part or an empty leaf is linked, without the tokens of the part.

        A part divides the text. An empty leaf may alter the line break between its neighbours.
        """
        before, after = span.find_before(leaf), span.find_after(leaf)
        if before is None or after is None:
            return 0, 0
        old = find_separator(before, after, _previous_without(leaf, after))
        new = None if leaf.part else find_separator(before, after, after.previous)
        if old == new:
            return 0, 0
        head, tail = self._read_end(before, span), self._read_start(after, span)
        count = self.tokenizer.count
        now = count(head) + count(tail) if new is None else count(head + new + tail)
        change = now - count(head + old + tail)
        return change, change

    def _count_line(self, leaf: Leaf, before: Leaf | None, after: Leaf | None) -> tuple[int, int]:
        """Count a text that starts a line, between such texts.

        The start of each of these lines is a safe cut, whatever stands before it.
        """
        if after is not None:
            text = leaf.text
            return self.tokenizer.count(text if text.endswith("\n") else f"{text}\n"), 0
        count = self.tokenizer.count
        tokens, loose = count(leaf.text), count(self._read_tail(leaf))
        if before is not None:
            tail = self._read_tail(before)
            if not before.text.endswith("\n"):
                tokens += count(f"{tail}\n") - count(tail)
            loose -= count(tail)
        return tokens, loose

    def _read_tail(self, leaf: Leaf) -> str:
        """Return the end of a leaf's text, from its last safe cut, or the whole of it."""
        return leaf.text[self._find_cuts(leaf)[1] :]

    def _starts_at_safe_cut(self, leaf: Leaf) -> bool:
        """Return whether a text always starts a line, and the line break before it is a safe cut."""
        result = leaf.starts_at_safe_cut
        if result is None:
            result = leaf.starts_at_safe_cut = (
                leaf.starts_line == STARTS_LINE_ALWAYS and is_safe_line_start(self.cut, leaf.text)
            )
        return result

    def _read_end(self, leaf: Leaf, span: LeafRange) -> str:
        """Return the end of the run up to and including this leaf, from its last safe cut."""
        last = self._find_cuts(leaf)[1]
        if last:
            return leaf.text[last:]
        text = leaf.text
        while (before := span.find_before(leaf)) is not None:
            text = before.text + find_separator(before, leaf, leaf.previous) + text
            cut_at = find_last_cut(self.cut, text)
            if cut_at:
                return text[cut_at:]
            leaf = before
        return text

    def _read_start(self, leaf: Leaf, span: LeafRange) -> str:
        """Return the start of the run that begins with this leaf, up to its first safe cut."""
        first = self._find_cuts(leaf)[0]
        if first:
            return leaf.text[:first]
        text = leaf.text
        while (after := span.find_after(leaf)) is not None:
            text = text + find_separator(leaf, after, after.previous) + after.text
            cut_at = self._find_first_cut(text)
            if cut_at:
                return text[:cut_at]
            leaf = after
        return text

    def _find_cuts(self, leaf: Leaf) -> tuple[int, int]:
        """Return the positions of the first and the last safe cut inside a leaf's text, or 0 if there is none."""
        cuts = leaf.safe_cuts
        if cuts is None:
            first = self._find_first_cut(leaf.text)
            cuts = leaf.safe_cuts = first, find_last_cut(self.cut, leaf.text) if first else 0
        return cuts

    def _find_first_cut(self, text: str) -> int:
        """Return the position of the first safe cut inside a text, or 0 if there is none."""
        match = self.cut.search(text, 1) if self.cut else None
        return match.start() if match and match.start() < len(text) else 0


def _previous_without(leaf: Leaf, after: Leaf) -> Leaf | None:
    """Return the leaf that precedes `after` if `leaf` is removed."""
    return leaf.previous if after.previous is leaf else after.previous


def count_line_break(text: str, tokenizer: Tokenizer) -> tuple[int, int]:
    """Count what a line break adds to a text that may have one, and the end of the text, which the break may change."""
    end = text[find_last_cut(tokenizer.safe_cut, text) :]
    tokens = tokenizer.count(end)
    return (0 if end[-1:] == "\n" else tokenizer.count(f"{end}\n") - tokens), tokens


def is_safe_line_start(cut: re.Pattern[str] | None, text: str) -> bool:
    """Return whether the place between a line break and a text is a safe cut."""
    return cut is not None and cut.match(f"\n{text}", 1) is not None


def find_last_cut(cut: re.Pattern[str] | None, text: str) -> int:
    """Return the position of the last safe cut inside a text, or 0 if there is none."""
    if cut is None:
        return 0
    reach = _SEARCH_LENGTH
    while True:
        start = max(len(text) - reach, 1)
        cut_at = 0
        # with `start`, the pattern still sees the text before it
        for match in cut.finditer(text, start):
            if match.start() < len(text):
                cut_at = match.start()
        if cut_at or start == 1:
            return cut_at
        reach *= 8
