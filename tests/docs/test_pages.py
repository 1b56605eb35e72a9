"""Every page of docs/ is in the contents, begins with what it is for, ends with what is next, and has no word too many."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))

WORDS = 30_000
"""The most words that the pages may have, without those of `UNCOUNTED`."""

UNCOUNTED = {"systems.md", "edge-cases.md", "changelog.md", "reference.md", "wishes.md"}
"""Pages to look something up in. They are not read from the beginning to the end."""

WITHOUT_NEXT = {"index.md", "changelog.md"}
"""Lists that lead to all pages or to none."""


def read_prose(page: Path, *, marks: bool = False) -> str:
    """Read a page without its code blocks and, without `marks`, its comments."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^(`{3,})[^\n]*\n.*?^\1[ ]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return (text if marks else re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)).strip()


def count_words(text: str) -> int:
    """Count the pieces between spaces that have a letter or a digit: no bars of tables, no dashes."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def test_the_pages_have_no_more_words_than_before() -> None:
    """A page that is shortened lowers `WORDS` in the same change."""
    pages = [page for page in (ROOT / "README.md", *PAGES) if page.name not in UNCOUNTED]
    counts = {page.name: count_words(read_prose(page)) for page in pages}
    longest = sorted(counts.items(), key=lambda item: -item[1])[:5]
    assert sum(counts.values()) <= WORDS, f"{sum(counts.values())} words; the longest: {longest}"


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_text_is_wrapped_at_120_columns(page: Path) -> None:
    """But for tables, pictures, and lines that end with a mark, which are generated."""
    long = [line for line in read_prose(page, marks=True).split("\n") if len(line) > 120]
    assert [
        line for line in long if not re.match(r"\||!\[|    ", line) and line[-3:] != "-->"
    ] == []


def test_every_page_is_in_the_list_and_in_the_contents() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    contents = re.findall(r"^([\w-]+)$", text, re.MULTILINE)
    names = [page.stem for page in PAGES if page.stem != "index"]
    assert [name for name in names if contents.count(name) != 1] == []
    assert [name for name in names if f"]({name}.md)" not in text] == []


@pytest.mark.parametrize("page", [each for each in PAGES if each.name not in WITHOUT_NEXT], ids=str)
def test_a_page_begins_with_what_it_is_for_and_ends_with_what_is_next(page: Path) -> None:
    paragraphs = read_prose(page).split("\n\n")
    assert paragraphs[0].startswith("# ")
    assert re.match(r"[\w`\[]", paragraphs[1]), "text follows the title"
    assert re.match(r"Next: .*\]\([\w-]+\.md", paragraphs[-1], re.DOTALL), (
        "its end leads to another page"
    )


@pytest.mark.parametrize("script", [".ci/run", ".github/workflows/site.yml"])
def test_the_site_is_built_strictly(script: str) -> None:
    (command,) = re.findall(
        r"^.*sphinx.* docs .*$", (ROOT / script).read_text(encoding="utf-8"), re.MULTILINE
    )
    assert " -W --keep-going " in command
    assert "\nnitpicky = True" in (DOCS / "conf.py").read_text(encoding="utf-8")
