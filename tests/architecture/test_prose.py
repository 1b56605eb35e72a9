"""Docstrings, comments, texts and pages say things in plain words: these are held out."""

from __future__ import annotations

import io
import re
import tokenize
from typing import TYPE_CHECKING

import pytest

from tests.architecture.source import PACKAGES, files, name_of, python_files, text_of

if TYPE_CHECKING:
    from pathlib import Path

INSTEAD = {
    r"somebody|someone else's": "say who: the user, the caller, the program",
    r"nobody": "say what does not happen, and to whom",
    r"(?:was|is|were|are) to be had": "say that it is missing, or that it failed",
    r"of no matter": "say that it is ignored, or discarded",
    r"is told so|are told so": "say which error is raised, or what is printed",
    r"stands? for what": "say what it is",
    r"in the making": "pending, running",
    r"ladder": "say the steps",
    r"furniture": "components",
}
"""What must not be written → what to write instead."""


@pytest.mark.static
def test_the_package_and_the_docs_are_in_plain_words() -> None:
    pages = [path for path in files("docs", "README.md") if path.suffix == ".md"]
    lines = [place for path in pages for place in enumerated(path, text_of(path), 1)]
    lines += [place for path in python_files(*PACKAGES) for place in prose_of(path)]
    found = [
        f"{place}: {match[0]!r}: {instead}"
        for words, instead in INSTEAD.items()
        for place, line in lines
        for match in re.finditer(rf"\b(?:{words})\b", line, re.IGNORECASE)
    ]
    assert not found, "\n".join(sorted(found))


def prose_of(path: Path) -> list[tuple[str, str]]:
    """Each line of a file's docstrings, comments and texts, with its place."""
    found: list[tuple[str, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(text_of(path)).readline):
        if token.type in _PROSE:
            found += enumerated(path, token.string, token.start[0])
    return found


# Python 3.12 cuts f-strings up
_PROSE = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def enumerated(path: Path, text: str, first: int) -> list[tuple[str, str]]:
    return [
        (f"{name_of(path)}:{number}", line) for number, line in enumerate(text.splitlines(), first)
    ]
