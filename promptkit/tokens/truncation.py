"""Text truncated to a number of tokens, with a marker where something is missing, at line and grapheme boundaries."""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs

from promptkit.tokens.tokenizer import Tokenizer

_LINE = 0.15  # share of the kept text that may be dropped to end at a line
_LOOK_BACK = 64  # characters
_COUNTED = 6  # characters for each token that is left, up to which a text is counted as a whole


def truncate_text(
    text: str,
    tokens: int,
    *,
    head: float = 1.0,
    marker: str = "[…]",
    tokenizer: Tokenizer,
) -> str:
    """Truncate a text to at most `tokens`, marker included. A text that fits is returned as it is.

    The cut is at the end of a line where one is near (within 15 % of the kept text), and never
    inside a grapheme cluster.

    Args:
        text: The text.
        tokens: The most tokens that the result may have.
        head: The share of the tokens for the head of the text. 1 keeps the head alone, 0 the tail.
        marker: The text that replaces what is cut.
        tokenizer: Counts the tokens.

    Returns:
        The truncated text; the empty string if not even the marker fits.
    """
    if tokens <= 0 or not text:
        return ""
    if len(text) <= _COUNTED * tokens:
        if tokenizer.count(text) <= tokens:
            return text
    elif len(tokenizer.truncate(text, tokens)) == len(text):
        return text
    return cut_text(text, tokens, head=head, marker=marker, tokenizer=tokenizer)


def cut_text(text: str, tokens: int, *, head: float, marker: str, tokenizer: Tokenizer) -> str:
    """Truncate a text of more than `tokens` as `truncate_text` does."""
    room = tokens - tokenizer.count(marker)
    if room < 0:
        return ""
    while room > 0:
        head_room = int(room * head)
        tail_room = room - head_room
        end = len(tokenizer.truncate(text, head_room, keep="head")) if head_room > 0 else 0
        start = cut_head(text, end, marker)
        rest = text[len(start) :]
        kept = len(tokenizer.truncate(rest, tail_room, keep="tail")) if tail_room > 0 else 0
        cut = start + marker + _cut_tail(rest, len(rest) - kept, marker)
        over = tokenizer.count(cut) - tokens
        if over <= 0:
            return cut
        room -= over  # tokens that the joins with the marker cost
    return marker


def list_shorter_texts(text: str, length: int, *, head: float, marker: str) -> list[str]:
    """List ever shorter truncations of a text, the longest first. The last is the marker.

    Each keeps a third of the characters of the one before it. A marker that is blank, or no
    shorter than what is shown, is none.

    Args:
        text: The text.
        length: The characters of the text that are shown.
        head: The share for the head, as in `truncate_text`.
        marker: As there.
    """
    found: list[str] = []
    room = length // 3
    while room >= max(_SHORTEST, len(marker)):
        head_room = int(room * head)
        start = cut_head(text, head_room, marker)
        rest = text[len(start) :]
        found.append(start + marker + _cut_tail(rest, len(rest) - (room - head_room), marker))
        room //= 3
    found.append(marker)
    return [each for each in found if len(each) < length and not each.isspace() and each]


_SHORTEST = 64  # characters of a text that is not worth to be shortened any more


def cut_head(text: str, end: int, marker: str) -> str:
    """Keep the head of a text up to about a place: to the end of a line near it, else to a boundary of grapheme clusters."""
    line = text.rfind("\n", int(end * (1 - _LINE)), end) + 1
    if line == 0:
        return text[: _last_boundary(text, end)]
    if marker.startswith("\n"):  # the marker brings the line break itself
        line -= 2 if text.endswith("\r\n", 0, line) else 1
    return text[:line]


def _cut_tail(text: str, start: int, marker: str) -> str:
    line = text.find("\n", start, start + int((len(text) - start) * _LINE))
    if line < 0:
        place = _last_boundary(text, start)
        if place < start:
            place = _patterns().cluster.match(text, place).end()
        return text[place:]
    if marker.endswith("\n"):
        return text[line + 1 :]
    if text.startswith("\r", line - 1):
        # a line break of two characters is one cluster
        line = line - 1 if line > start else line + 1
    return text[line:]


@attrs.frozen
class _Patterns:
    cluster: Any  # regex has no types
    certain: Any  # as above
    flags: Any  # as above


@cache
def _patterns() -> _Patterns:
    import regex  # type: ignore[import-untyped]  # a dependency of tiktoken, without types

    # Where clusters always end (UAX 29): between characters that neither extend, join nor pair with
    # anything.
    plain, flag = r"[\p{GCB=Other}\p{GCB=LV}\p{GCB=LVT}]", r"\p{GCB=Regional_Indicator}"
    certain = rf"(?r)(?<={plain})(?=(?:{plain}|{flag}))|(?<={flag})(?={plain})"
    return _Patterns(regex.compile(r"\X"), regex.compile(certain), regex.compile(rf"(?r){flag}+"))


def _last_boundary(text: str, place: int) -> int:
    """Return the last boundary of a grapheme cluster at or before a place."""
    if place <= 0 or place >= len(text):
        return place
    for match in _patterns().cluster.finditer(text, _earlier_boundary(text, place)):
        if match.end() >= place:
            return place if match.end() == place else int(match.start())
    return place


def _earlier_boundary(text: str, place: int) -> int:
    """Return a boundary before a place, near it if there is a certain one."""
    patterns = _patterns()
    size = _LOOK_BACK
    while size < place:
        found = patterns.certain.search(text, place - size, place)
        if found:
            return int(found.start())
        if patterns.flags.search(text, place - size, place):
            # Flags are pairs, counted from the start of their run; \X would count again at each of
            # them.
            run = patterns.flags.search(text, 0, place)
            if pairs := (run.end() - run.start() - 1) // 2:
                return int(run.start() + 2 * pairs)
        size *= 8
    return 0
