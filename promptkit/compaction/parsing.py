"""The summary in what a model answered: it may think aloud first, and forget to close what it opened."""

from __future__ import annotations

import re

__all__ = ["extract_summary", "without_analysis"]

_OPEN = re.compile(r"<summary>", re.IGNORECASE)
_CLOSE = re.compile(r"</summary>", re.IGNORECASE)
_THINKING = re.compile(r"<analysis>", re.IGNORECASE)
_THOUGHT = re.compile(r"</analysis>", re.IGNORECASE)
_BOTH = re.compile(r"</analysis>\s*+(?=<summary>)", re.IGNORECASE)


def extract_summary(text: str) -> str | None:
    """What stands between the summary tags, without the white space around it; None where nothing was tagged.

    A summary that is mentioned while the model thinks is none: the block right behind `</analysis>` counts, else the first one behind
    the last `</analysis>` that has one behind it, else the first of all. A block that is not closed ends with the text; one that is
    opened in thoughts that do not end is no block. Linear.

    >>> extract_summary("<analysis>A <summary> is due.</analysis><summary> Done. </summary>")
    'Done.'
    """
    opened = _OPEN.search(text, _thought(text))
    if opened is None:
        return None
    closed = _CLOSE.search(text, opened.end())
    if closed is None and _THINKING.search(text, 0, opened.start()) and not _THOUGHT.search(text):
        return None
    return text[opened.end() : closed.start() if closed else len(text)].strip()


def without_analysis(text: str) -> str:
    """The text without thoughts between analysis tags, without white space around it; thoughts that do not end go to the end."""
    kept: list[str] = []
    at = 0
    while opened := _THINKING.search(text, at):
        kept.append(text[at : opened.start()])
        closed = _THOUGHT.search(text, opened.end())
        at = closed.end() if closed else len(text)
    return "".join([*kept, text[at:]]).strip()


def _thought(text: str) -> int:
    """Where the thoughts end that the model has before it writes the summary; 0 where it has none."""
    both = _BOTH.search(text)
    if both is not None:
        return both.end()
    last = max((match.start() for match in _OPEN.finditer(text)), default=0)
    return max((match.end() for match in _THOUGHT.finditer(text, 0, last)), default=0)
