"""The page as a file: one piece, nothing from outside, and content that cannot become anything but text."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import UserMessage, render
from promptkit.testing import WordTokenizer
from promptkit.tracing.page import SCRIPTS, VIEWER, page
from tests.browser.prompts import HOSTILE

if TYPE_CHECKING:
    from promptkit.tracing.record import Trace


class Parts(HTMLParser):
    """The elements of a page, and the text of those that hold one."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.tags[-1][0] if self.tags else "", []).append(data)


def trace_of(*texts: str) -> Trace:
    trace = render([UserMessage()[text] for text in texts], budget=100_000, tokenizer=WordTokenizer(), trace=True).trace
    assert trace
    return trace


def blocks(text: str) -> tuple[str, str, str]:
    """The style sheet, the record and the script."""
    style = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    data = re.findall(r'<script type="application/json" id="record">(.*?)</script>', text, re.DOTALL)
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert [len(style), len(data), len(script)] == [1, 1, 1]
    return style[0], data[0], script[0]


def test_the_policy_admits_the_one_script_and_the_one_style_sheet_by_hash_and_nothing_else() -> None:
    text = page(trace_of("Hello"))
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    style, _, script = blocks(text)
    hashes = [f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in (script, style)]
    assert policy.split("; ")[:3] == ["default-src 'none'", f"script-src {hashes[0]}", f"style-src {hashes[1]}"]
    assert "unsafe" not in policy
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script")


def test_nothing_is_fetched_from_anywhere() -> None:
    parts = Parts(page(trace_of("Hello")))
    outside = {"src", "href", "action", "data", "srcset", "style"}
    assert [(tag, attributes) for tag, attributes in parts.tags if outside & set(attributes)] == []
    assert [name for _, attributes in parts.tags for name in attributes if name.startswith("on")] == []
    assert {"link", "iframe", "object", "embed", "base", "img"} & {tag for tag, _ in parts.tags} == set()
    style, _, script = blocks(page(trace_of("Hello")))
    assert re.findall(r"url\(|@import|https?:", style) == []
    assert re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|fetch\(|XMLHttp|https?:", script) == []


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_content_stays_inside_of_its_block(text: str) -> None:
    trace = trace_of(text, "next")
    written = page(trace, title=text)
    _, data, _ = blocks(written)
    assert re.findall(r"[^ -~]|[<>&]", data) == []
    record: Any = json.loads(data)
    assert [said for said in record["items"]["text"] if said is not None] == [text, "next"]
    assert record["title"].encode() == text.encode("utf-8", "replace")
    assert [tag for tag, _ in Parts(written).tags] == [tag for tag, _ in Parts(page(trace_of("a", "b"))).tags]
    written.encode()  # can be written to a file


def test_every_script_of_the_viewer_is_in_the_page_once() -> None:
    assert sorted(SCRIPTS) == sorted(path.stem for path in VIEWER.glob("*.js"))
    _, _, script = blocks(page(trace_of("Hello")))
    for name in SCRIPTS:
        assert script.count((VIEWER / f"{name}.js").read_text(encoding="utf-8")) == 1


def test_a_page_says_the_same_as_the_method_of_the_record() -> None:
    trace = trace_of("Hello")
    assert trace.to_html(title="mine") == page(trace, title="mine")


@pytest.mark.parametrize("path", sorted(VIEWER.iterdir()), ids=lambda path: path.name)
def test_no_part_of_the_viewer_is_longer_than_it_can_be_read_at_once(path: Any) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
