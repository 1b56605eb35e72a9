"""The way back: what a summary leaves out stands in the transcript, and the model is told where."""

from __future__ import annotations

import json

__all__ = ["add_breadcrumb", "strip_breadcrumb"]

_START = "\n\nEverything that was said before, tool results in full included, is kept in the transcript "
_LOOK = "Where a detail is missing here (code, an error text, an output), look it up there: "


def add_breadcrumb(summary: str, *, location: str | None, lines: int | None = None, tool: str = "read_file", argument: str = "path") -> str:
    """A summary with the place of the full transcript behind it; the summary itself where there is none to read.

    Written once, when the summary is made, and baked in: the same bytes from then on. `lines` is the length of the file at that
    moment, after everything was written; `tool` and `argument` say how the model reads a file.
    """
    if location is None:
        return summary
    written = f" It had {lines:,} lines when this summary was written." if lines is not None else ""
    return f"{summary}{_START}{_quoted(location)}.{written} {_LOOK}{tool}({_quoted({argument: location})})"


def strip_breadcrumb(summary: str) -> str:
    """The summary alone: the next one is made of it, and gets a breadcrumb of its own."""
    start = summary.rfind(_START)
    return summary[:start] if start >= 0 and _LOOK in summary[start:] and "\n" not in summary[start + 2 :] else summary


def _quoted(value: str | dict[str, str]) -> str:
    """As JSON in one line, in which nothing is a tag."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
