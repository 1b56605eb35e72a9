"""Text cut between pieces, so that it fits a share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["cut_to_budget"]


def cut_to_budget(text: str, separator: str | re.Pattern[str], budget: int, tokenizer: Tokenizer) -> str:
    """The longest run of leading pieces that fits `budget` tokens; the first piece that does not fit ends it.

    A separator stays at the start of the piece behind it, as in prompt-tsx. Counts go on from the last safe cut, so that a
    long text is counted once.
    """
    fitting = 0
    counted = 0  # tokens up to `settled`
    settled = 0
    cut = tokenizer.safe_cut
    for end in _ends(text, separator):
        tokens = tokenizer.count(text[settled:end])
        if counted + tokens > budget:
            break
        fitting = end
        place = _last_cut(cut, text, settled + 1, end) if cut is not None else None
        if place is not None:
            counted += tokens - tokenizer.count(text[place:end])
            settled = place
    return text[:fitting]


def _ends(text: str, separator: str | re.Pattern[str]) -> Iterator[int]:
    pattern = re.compile(re.escape(separator)) if isinstance(separator, str) else separator
    for match in pattern.finditer(text):
        if match.start() > 0:
            yield match.start()
    if text:
        yield len(text)


def _last_cut(cut: re.Pattern[str], text: str, start: int, end: int) -> int | None:
    place = None
    for match in cut.finditer(text, start, end):
        if match.start() < end:
            place = match.start()
    return place
