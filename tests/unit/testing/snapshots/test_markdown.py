"""A prompt as Markdown: readable, and nothing in a prompt can be taken for anything but its text.

No character of a prompt is invisible in a snapshot, and none is taken for another.
"""

from __future__ import annotations

import doctest
import json
from base64 import b64encode

import pytest
from hypothesis import given, strategies as st

from promptkit import DocumentPart, ImagePart, Message, OpaquePart, ToolCall
from promptkit.messages import CacheBreakpointPart
from promptkit.testing.snapshots import markdown
from promptkit.testing.snapshots.markdown import (
    escape_json,
    escape_text,
    format_headline,
    format_markdown,
    has_invisible,
    iter_outside_fences,
    quote_inline,
)

PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 100
CALL = ToolCall(id="call_1", name="read_file", arguments='{"path":"cart.py","lines":[1,20]}')

SHOWN = """\
## System

```
You are a coding agent.
```

--- cache boundary: ephemeral, 5m ---

## User ada

```
What is this?
```

Image: image/png, 108 bytes, sha256 a1f76d954944, 3 by 2 pixels, detail low

Image: https://example.org/a.png

Document: application/pdf, 3 bytes, sha256 a135fc158ef9, 70 tokens, a.pdf

## Assistant

```
I look at it.
```

### Call read_file (call_1)

```json
{
  "path": "cart.py",
  "lines": [
    1,
    20
  ]
}
```

## Tool read_file (call_1)

(empty)"""


def test_every_part_of_a_conversation_has_its_form() -> None:
    messages = [
        Message(
            role="system",
            content=("You are a coding agent.", CacheBreakpointPart(kind="ephemeral", ttl="5m")),
        ),
        Message(
            role="user",
            name="ada",
            content=(
                "What is this?",
                ImagePart(
                    url=f"data:image/png;base64,{b64encode(PIXEL).decode()}",
                    detail="low",
                    width=3,
                    height=2,
                ),
                ImagePart(url="https://example.org/a.png"),
                DocumentPart(
                    data=b64encode(b"%PD").decode(),
                    media_type="application/pdf",
                    name="a.pdf",
                    tokens=70,
                ),
            ),
        ),
        Message(role="assistant", content=("I look at it.",), tool_calls=(CALL,)),
        Message(role="tool", tool_call_id="call_1"),
    ]
    assert format_markdown(messages) == SHOWN


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    shown = format_markdown([Message(role="user", content=("````python\n## User\n````",))])
    assert shown == "## User\n\n`````\n````python\n## User\n````\n`````"


def test_opaque_parts_are_shown_as_json() -> None:
    shown = format_markdown(
        [
            Message(
                role="user",
                content=(
                    OpaquePart(value={"type": "x", "of": [1]}, provider="anthropic", tokens=3),
                ),
            )
        ]
    )
    assert "Opaque part: anthropic, 3 tokens\n\n```json\n{" in shown


@pytest.mark.parametrize("arguments", ["{not json", '{"a": 1e999}', "", "[" * 100_000])
def test_arguments_that_are_no_plain_json_stand_as_they_are(arguments: str) -> None:
    shown = format_markdown(
        [Message(role="assistant", tool_calls=(ToolCall(id="c", name="f", arguments=arguments),))]
    )
    assert shown == f"## Assistant\n\n### Call f (c), arguments as written\n\n```\n{arguments}\n```"


def test_what_is_no_base64_says_so() -> None:
    shown = format_markdown(
        [Message(role="user", content=(DocumentPart(data="not base64!", media_type="text/plain"),))]
    )
    assert "no base64" in shown


def test_another_image_has_another_hash() -> None:
    one, two = (
        format_markdown(
            [Message(role="user", content=(ImagePart(url=f"data:image/png;base64,{data}"),))]
        )
        for data in ("AAAA", "AAAB")
    )
    assert one != two


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message(role="user", content=("one\n  two\tthree",)), "one two three"),
        (Message(role="user", content=("word " * 100,)), ("word " * 100)[:70] + "w…"),
        (Message(role="user", content=("\u202eevil",)), "\\u202eevil"),
        (Message(role="assistant", tool_calls=(CALL,)), f"calls read_file {CALL.arguments}"),
        (
            Message(role="user", content=(ImagePart(url="https://example.org/a.png"),)),
            "Image: https://example.org/a.png",
        ),
        (Message(role="tool", tool_call_id="c"), "(empty)"),
    ],
)
def test_a_headline_is_one_short_line(message: Message, expected: str) -> None:
    assert format_headline(message) == expected


ANYTHING = st.text(
    st.sampled_from("`#U \n\t-\\\r\0\u202e\udc80aé") | st.characters(exclude_categories=())
)
TEXT = st.one_of(
    ANYTHING,
    st.lists(
        st.sampled_from(["```", "````", "## User", "---", "### Call f (c)", "(empty)", "", "text"])
    ).map("\n".join),
)
MESSAGES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant"]),
        content=st.lists(TEXT | st.just(CacheBreakpointPart()), max_size=3).map(tuple),
        tool_calls=st.lists(
            st.builds(ToolCall, id=ANYTHING, name=ANYTHING, arguments=TEXT), max_size=2
        ).map(tuple),
    )
)


def read(markdown: str) -> list[tuple[str, list[str]]]:
    """The headings below which something stands, and the texts and lines that stand there."""
    lines = markdown.split("\n")
    outside = dict(iter_outside_fences(lines))
    found: list[tuple[str, list[str]]] = []
    fence: list[str] = []
    for index, line in enumerate(lines):
        if index not in outside:
            fence.append(line)
        elif fence:
            text = "\n".join(fence[1:])
            if fence[0].endswith("escaped"):
                quoted = text.replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
                text = json.loads(f'"{quoted}"')
            found[-1][1].append(text)
            fence = []
        elif line.startswith("```"):
            fence = [line]
        elif line.startswith("#"):
            found.append((line, []))
        elif line:
            found[-1][1].append(line)
    return found


@given(MESSAGES)
def test_what_was_said_can_be_read_back_whatever_it_was(messages: list[Message]) -> None:
    sections = iter(read(format_markdown(messages)) if messages else [])
    for message in messages:
        heading, parts = next(sections)
        assert heading == f"## {message.role.capitalize()}"
        expected = [
            part if isinstance(part, str) else "--- cache boundary ---" for part in message.content
        ]
        assert parts == (expected or ([] if message.tool_calls else ["(empty)"]))
        for call in message.tool_calls:
            heading, (arguments,) = next(sections)
            assert heading.startswith("### Call ")
            assert arguments == call.arguments or json.loads(arguments) == json.loads(
                call.arguments
            )
    assert next(sections, None) is None


@given(MESSAGES)
def test_it_can_be_written_to_a_file_and_read_again(messages: list[Message]) -> None:
    markdown = format_markdown(messages)
    assert "\r" not in markdown
    assert markdown.encode("utf-8").decode("utf-8") == markdown
    assert markdown.splitlines() == markdown.split("\n")


UNSEEN = {
    "carriage return": "\r",
    "null": "\0",
    "escape": "\x1b",
    "next line": "\x85",
    "soft hyphen": "\xad",
    "zero width space": "\u200b",
    "line separator": "\u2028",
    "right-to-left override": "\u202e",
    "byte order mark": "\ufeff",
    "tag letter": "\U000e0041",
    "lone surrogate": "\udc80",
}
SEEN = ["plain", "tab\tand\nline", "Grüße", "日本語", "👩\u200d💻", "back\\slash"]


@pytest.mark.parametrize("text", UNSEEN.values(), ids=UNSEEN)
def test_what_shows_nothing_is_escaped(text: str) -> None:
    assert has_invisible(f"a{text}b")
    for written in (escape_text(f"a{text}b"), quote_inline(f"a{text}b")):
        assert "\\" in written
        assert text not in written
        assert written.encode("utf-8")


@pytest.mark.parametrize("text", SEEN)
def test_what_is_seen_stands_as_it_is(text: str) -> None:
    assert not has_invisible(text)


@given(st.text(st.characters(exclude_categories=())))
def test_an_escaped_text_is_read_back(text: str) -> None:
    quoted = escape_text(text).replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    assert json.loads(f'"{quoted}"') == text


@given(st.text(st.characters(exclude_categories=())))
def test_safe_json_is_the_same_value(text: str) -> None:
    written = escape_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(written) == text
    assert written.encode("utf-8").decode() == written
    assert len(written.splitlines()) == 1


@given(st.text(st.characters(exclude_categories=())))
def test_an_inline_text_is_one_line_and_no_two_look_alike(text: str) -> None:
    written = quote_inline(text)
    assert len(written.splitlines()) == 1
    assert (json.loads(written) if written.startswith('"') else written) == text


def test_the_examples_in_the_docstrings_print_what_they_say() -> None:
    failed, tried = doctest.testmod(markdown)
    assert tried
    assert not failed
