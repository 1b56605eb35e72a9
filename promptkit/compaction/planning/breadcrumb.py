"""The breadcrumb: a note after a summary that tells the model how to look up the full transcript."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

from promptkit.transcript.log.view import INVISIBLE

_BREADCRUMB_LINE = (
    "Everything that was said before, tool results in full included, is kept in the transcript"
)
_BREADCRUMB_START = f"\n\n{_BREADCRUMB_LINE}"
BREADCRUMB_LOCATION = re.compile(
    rf'(?<={_BREADCRUMB_LINE} )("(?:[^"\\]|\\.)*")\.(?: It had [0-9,]+ entries when this summary was written\.)?'
)
"""The transcript's place in a breadcrumb, as JSON in the first group, and its number of entries."""

_BREADCRUMB_HINT = (
    "Where a detail is missing here (code, an error text, an output), look it up there: "
)


def add_breadcrumb(
    summary: str,
    *,
    location: str | None = None,
    entries: int | None = None,
    call: str | None = None,
) -> str:
    """Append to a summary where the full transcript is, and how to look something up there.

    The breadcrumb is added once, when the summary is made. The text keeps the same bytes from then
    on.

    Args:
        summary: The summary's text.
        location: The transcript's file or URL. None: not mentioned.
        entries: Entries of the transcript, after everything before the summary was written. None:
            not mentioned.
        call: An example call of a tool that the model has, as `format_call` writes it. None: not
            mentioned. Without a location and a call the summary is returned unchanged, since the
            model could not follow the breadcrumb.
    """
    if location is None and call is None:
        return summary
    where = "" if location is None else f" {_quote(location)}"
    size = (
        f" It had {entries:,} entries when this summary was written."
        if entries is not None and location is not None
        else ""
    )
    hint = "" if call is None else f" {_BREADCRUMB_HINT}{call}"
    return f"{summary}{_BREADCRUMB_START}{where}.{size}{hint}"


def remove_missing_call(text: str, tools: Collection[str]) -> str:
    """Return the text of a summary message without the example call of its breadcrumb, if that names a tool which is not one of `tools`.

    A conversation may be continued with other tools. Without a place and a call nothing of the
    breadcrumb stays. The same tools always give the same text, which the provider's prompt cache
    needs.
    """
    start = text.rfind(_BREADCRUMB_START)
    end = text.find("\n", start + 2)
    line = text[start : None if end < 0 else end]
    where, hint, call = line.partition(f" {_BREADCRUMB_HINT}")
    if start < 0 or not hint or call.partition("(")[0] in tools:
        return text
    return f"{text[:start]}{'' if where == f'{_BREADCRUMB_START}.' else where}{text[start + len(line) :]}"


def format_call(tool: str, arguments: Mapping[str, object]) -> str:
    """Format a tool call in one line, without tags.

    >>> format_call("recall", {"query": "parser.py"})
    'recall({"query": "parser.py"})'
    """
    return f"{tool}({_quote(dict(arguments))})"


def remove_breadcrumb_lines(summary: str) -> str:
    """Return a summary without lines that pose as a breadcrumb.

    A model copies an old one, or is told to by a text that it read.
    """
    lines = summary.split("\n")
    kept = [line for line in lines if not _poses_as_breadcrumb(line)]
    return summary if len(kept) == len(lines) else "\n".join(kept).rstrip()


def _poses_as_breadcrumb(line: str) -> bool:
    """Return whether a line reads as a breadcrumb, whatever its capitals, spaces and invisible characters are."""
    seen = re.sub(f"[{INVISIBLE}]", "", line)
    return _BREADCRUMB_LINE.casefold() in " ".join(seen.split()).casefold()


def strip_breadcrumb(summary: str) -> str:
    """Return the summary without its breadcrumb.

    The next summary is made from it and gets its own.
    """
    start = summary.rfind(_BREADCRUMB_START)
    return summary[:start] if start >= 0 and "\n" not in summary[start + 2 :] else summary


def _quote(value: str | dict[str, object]) -> str:
    """Return a value as JSON in one line, without tags."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
