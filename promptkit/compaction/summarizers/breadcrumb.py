"""The breadcrumb: a note after a summary that tells the model where to read the full transcript."""

from __future__ import annotations

import json

__all__ = ["add_breadcrumb", "strip_breadcrumb"]

_BREADCRUMB_START = "\n\nEverything that was said before, tool results in full included, is kept in the transcript "
_BREADCRUMB_HINT = "Where a detail is missing here (code, an error text, an output), look it up there: "


def add_breadcrumb(summary: str, *, location: str | None, lines: int | None = None, tool: str = "read_file", argument: str = "path") -> str:
    """Append the location of the full transcript to a summary.

    The breadcrumb is added once, when the summary is made. The text keeps the same bytes from then on.

    Args:
        summary: The summary's text.
        location: Where the model can read the transcript. None: the summary is returned unchanged.
        lines: Length of the file in lines, after everything before the summary was written. None: not mentioned.
        tool: Name of the tool by which the model reads a file.
        argument: Name of the tool's argument for the path.
    """
    if location is None:
        return summary
    size = f" It had {lines:,} lines when this summary was written." if lines is not None else ""
    return f"{summary}{_BREADCRUMB_START}{_quote(location)}.{size} {_BREADCRUMB_HINT}{tool}({_quote({argument: location})})"


def strip_breadcrumb(summary: str) -> str:
    """Return the summary without its breadcrumb. The next summary is made from it and gets its own."""
    start = summary.rfind(_BREADCRUMB_START)
    return summary[:start] if start >= 0 and _BREADCRUMB_HINT in summary[start:] and "\n" not in summary[start + 2 :] else summary


def _quote(value: str | dict[str, str]) -> str:
    """Return a value as JSON in one line, without tags."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
