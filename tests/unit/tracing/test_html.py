"""The trace page: one self-contained file, whose content is only text, and its JSON."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest

from promptkit import AssistantMessage, Group, TextChunk, ToolCall, ToolMessage, UserMessage, render
from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, OpaquePart
from promptkit.testing import WordTokenizer
from promptkit.tracing.page import SCRIPTS, VIEWER, build_columns, describe_part, trace_to_html
from promptkit.tracing.trace import Trace, TraceItem
from tests.browser.prompts import HOSTILE


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
    trace = render(
        [UserMessage()[text] for text in texts],
        budget=100_000,
        tokenizer=WordTokenizer(),
        trace=True,
    ).trace
    assert trace
    return trace


def blocks(text: str) -> tuple[str, str, str]:
    """The style sheet, the record and the script."""
    style = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    data = re.findall(
        r'<script type="application/json" id="record">(.*?)</script>', text, re.DOTALL
    )
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert [len(style), len(data), len(script)] == [1, 1, 1]
    return style[0], data[0], script[0]


def test_the_policy_admits_the_one_script_and_the_one_style_sheet_by_hash_and_nothing_else() -> (
    None
):
    text = trace_to_html(trace_of("Hello"))
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    style, _, script = blocks(text)
    hashes = [
        f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in (script, style)
    ]
    assert policy.split("; ")[:3] == [
        "default-src 'none'",
        f"script-src {hashes[0]}",
        f"style-src {hashes[1]}",
    ]
    assert "unsafe" not in policy
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script")


def test_nothing_is_fetched_from_anywhere() -> None:
    parts = Parts(trace_to_html(trace_of("Hello")))
    outside = {"src", "href", "action", "data", "srcset", "style"}
    assert [(tag, attributes) for tag, attributes in parts.tags if outside & set(attributes)] == []
    assert [
        name for _, attributes in parts.tags for name in attributes if name.startswith("on")
    ] == []
    assert {"link", "iframe", "object", "embed", "base", "img"} & {
        tag for tag, _ in parts.tags
    } == set()
    style, _, script = blocks(trace_to_html(trace_of("Hello")))
    assert re.findall(r"url\(|@import|https?:", style) == []
    assert (
        re.findall(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|fetch\(|XMLHttp|https?:",
            script,
        )
        == []
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_content_stays_inside_of_its_block(text: str) -> None:
    trace = trace_of(text, "next")
    written = trace_to_html(trace, title=text)
    _, data, _ = blocks(written)
    assert re.findall(r"[^ -~]|[<>&]", data) == []
    record: Any = json.loads(data)
    assert [said for said in record["items"]["text"] if said is not None] == [text, "next"]
    assert record["title"].encode() == text.encode("utf-8", "replace")
    assert [tag for tag, _ in Parts(written).tags] == [
        tag for tag, _ in Parts(trace_to_html(trace_of("a", "b"))).tags
    ]
    written.encode()  # can be written to a file


def test_every_script_of_the_viewer_is_in_the_page_once() -> None:
    assert sorted(SCRIPTS) == sorted(path.stem for path in VIEWER.glob("*.js"))
    _, _, script = blocks(trace_to_html(trace_of("Hello")))
    for name in SCRIPTS:
        assert script.count((VIEWER / f"{name}.js").read_text(encoding="utf-8")) == 1


@pytest.mark.parametrize("path", sorted(VIEWER.iterdir()), ids=lambda path: path.name)
def test_no_file_of_the_viewer_is_longer_than_300_lines(path: Any) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x02\x80\x00\x00\x01\xe0"


def digest(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": sha256(content).hexdigest()[:12]}


@pytest.mark.parametrize(
    ("part", "facts"),
    [
        (CacheBreakpointPart(), {"kind": "cache breakpoint"}),
        (
            CacheBreakpointPart(kind="ephemeral", ttl="1h"),
            {"kind": "cache breakpoint", "type": "ephemeral", "ttl": "1h"},
        ),
        (
            ImagePart(url="https://x/y.png", width=8, height=4),
            {"kind": "image", "size": "8×4", "url": "https://x/y.png"},  # noqa: RUF001  # the sign between two sizes
        ),
        (
            ImagePart(url=f"data:image/png;base64,{b64encode(PNG).decode()}", detail="low"),
            {
                "kind": "image",
                "type": "image/png",
                "detail": "low",
                "size": "640×480",  # noqa: RUF001  # the sign between two sizes
                **digest(PNG),
            },
        ),
        (
            ImagePart(url="data:image/svg+xml,%3Csvg/%3E"),
            {"kind": "image", "type": "image/svg+xml", **digest(b"<svg/>")},
        ),
        (ImagePart(url="data:;base64,abcde"), {"kind": "image", **digest(b"abcde")}),
        (
            DocumentPart(
                data=b64encode(b"%PDF").decode(),
                media_type="application/pdf",
                name="a.pdf",
                tokens=9,
            ),
            {"kind": "document", "name": "a.pdf", "type": "application/pdf", **digest(b"%PDF")},
        ),
        (
            OpaquePart(value={"a": "é"}, provider="chat"),
            {"kind": "other content", "provider": "chat", "value": '{"a": "é"}'},
        ),
        (
            OpaquePart(value={"type": "thinking", "thinking": "So.", "signature": "x"}),
            {"kind": "thinking", "text": "So."},
        ),
        (
            OpaquePart(
                value={"type": "reasoning", "summary": [{"text": "One."}, {"text": "Two."}]}
            ),
            {"kind": "thinking", "text": "One.\nTwo."},
        ),
        (OpaquePart(value={"is_error": True}), {"kind": "error"}),
        (OpaquePart(value={"role": "developer"}), {"kind": "developer"}),
        (
            OpaquePart(value="x" * 9_998),
            {"kind": "other content", **digest(b'"' + b"x" * 9_998 + b'"')},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_part_is_described_by_type_size_and_hash(
    part: ImagePart | DocumentPart | OpaquePart | CacheBreakpointPart, facts: dict[str, Any]
) -> None:
    assert describe_part(part) == facts


def traced(*prompt: Any, budget: int = 100) -> Trace:
    trace = render(prompt, budget=budget, tokenizer=WordTokenizer(), trace=True).trace
    assert trace
    return trace


def test_no_path_is_written_and_every_name_once() -> None:
    trace = traced(
        Group(label="outer")[
            [Group(label="inner")[UserMessage(label="user")["a", "b"]] for _ in range(50)]
        ]
    )
    text = json.dumps(build_columns(trace))
    assert " > " not in text
    assert [text.count(word) for word in ("(outer)", "(inner)")] == [1, 1]


def test_a_removal_names_its_cause_by_item_id() -> None:
    call = ToolCall(id="a", name="read")
    trace = traced(
        AssistantMessage(priority=5, tool_calls=(call,))["reading"],
        ToolMessage(tool_call_id="a", priority=1)["text"],
    )
    written: Any = json.loads(json.dumps(build_columns(trace)))
    places: list[int | None] = [partner for *_, partner in written["removals"]]
    partners = [None if place is None else trace.items[place].path for place in places]
    assert partners == [removal.partner for removal in trace.removals]
    assert any(partners)


def test_a_priority_that_json_cannot_express_is_replaced() -> None:
    lowest = traced(
        UserMessage(priority=float("-inf"))["a"],
        UserMessage(priority=1e300)["b"],
        UserMessage()["c"],
    )
    written: Any = json.loads(json.dumps(build_columns(lowest), allow_nan=False))
    assert written["items"]["priority"] == [None, -1.7976931348623157e308, None, None]


def test_costs_are_written_only_where_they_differ_from_the_counts() -> None:
    trace = traced(UserMessage()[TextChunk()["one"]])
    same: Any = build_columns(trace)
    assert same["costs"] is None
    item = TraceItem(
        id=0,
        parent=None,
        end=1,
        position=0,
        label="",
        path="",
        kind="container",
        element="",
        priority=0,
    )
    other = Trace(
        items=(item,),
        flex_groups=(),
        removals=(),
        counts=(3,),
        costs=(4,),
        state=0,
        budget=9,
        reserved=0,
        tokenizer="words",
        timings=(),
    )
    assert build_columns(other)["costs"] == (4,)
