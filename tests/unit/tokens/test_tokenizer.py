"""What the tokenizer's helpers say of messages: which counts are exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    ToolCall,
)
from promptkit.tokens import tokenizer_for
from promptkit.tokens.tokenizer import count_frame, count_opaque, is_exact

if TYPE_CHECKING:
    from promptkit.messages import Json, Part

GPT = tokenizer_for("gpt-4o")
KNOWN = DocumentPart(data="", media_type="application/pdf", tokens=7)
UNKNOWN = DocumentPart(data="", media_type="application/pdf")


@pytest.mark.parametrize(
    ("content", "exact"),
    [
        (("text",), True),
        (("text", CacheBreakpointPart(), "more"), True),
        (("text", KNOWN), True),
        (("text", UNKNOWN), False),
        ((KNOWN, UNKNOWN), False),
        ((UNKNOWN, KNOWN), False),
        ((), True),
    ],
)
def test_a_message_is_exact_if_all_of_its_parts_are(
    content: tuple[Part, ...], *, exact: bool
) -> None:
    assert is_exact(Message(role="user", content=content), GPT) == exact


def test_a_message_whose_framing_is_an_estimate_is_one() -> None:
    calls = tuple(ToolCall(id=each, name="read") for each in "ab")
    assert is_exact(Message(role="assistant", tool_calls=calls[:1]), GPT)
    assert not is_exact(Message(role="assistant", tool_calls=calls), GPT)
    assert not is_exact(Message(role="assistant", content=(KNOWN,), tool_calls=calls), GPT)


@pytest.mark.parametrize(
    ("value", "provider", "exact"),
    [
        ({"type": "refusal", "refusal": "No, I can not."}, "chat", True),
        ({"refusal": "No, I can not."}, "chat.message", True),
        ({"type": "refusal", "refusal": "No, I can not."}, "responses", False),
        ({"type": "refusal", "refusal": "No, I can not."}, None, False),
        ({"type": "refusal", "refusal": "No, I can not.", "id": "a"}, "chat", False),
        ({"type": "refusal", "refusal": ["No, I can not."]}, "chat", False),
        ({"type": "text", "text": "No, I can not."}, "chat", False),
        ({}, "chat", False),
        ("No, I can not.", "chat", False),
        (["No, I can not."], "chat", False),
    ],
)
def test_of_the_text_in_opaque_parts_only_a_refusal_in_chat_completions_is_exact(
    value: Json, provider: str | None, *, exact: bool
) -> None:
    counted = count_opaque(OpaquePart(value=value, provider=provider), GPT.count)
    assert counted.exact == exact
    told = OpaquePart(value=value, provider=provider, tokens=9)
    assert count_opaque(told, GPT.count) == (9, True)


def test_tool_calls_beside_a_text_and_an_image_are_framed_as_beside_a_text() -> None:
    calls = (ToolCall(id="a", name="read"),)
    frames = [
        count_frame(Message(role="assistant", content=content, tool_calls=calls), GPT)
        for content in (("Look:",), ("Look:", KNOWN), ())
    ]
    assert frames[0] == frames[1]
    assert frames[0] != frames[2]


def test_a_result_is_exact_without_images_which_chat_completions_is_sent_in_another_message() -> (
    None
):
    image = ImagePart(url="https://example.org/a.png")
    opaque = OpaquePart(value={}, tokens=9)
    for content, exact in (
        (("text",), True),
        ((opaque, "text"), True),
        ((KNOWN,), False),
        ((image, opaque), False),
        ((opaque, image), False),
    ):
        result = Message(role="tool", content=content, tool_call_id="a")
        assert is_exact(result, GPT) == exact
