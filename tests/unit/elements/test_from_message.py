"""`element_from_message`: an element that renders as the given message."""

from __future__ import annotations

import pytest

from promptkit import (
    BudgetExceededError,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    ToolCall,
    UserMessage,
    render,
)
from promptkit.elements import element_from_message
from promptkit.messages import CacheBreakpointPart
from promptkit.testing import WordTokenizer

PARTS = (
    "Look ",
    ImagePart(url="data:image/png;base64,AA==", detail="low", width=3, height=4),
    "closely.",
    DocumentPart(data="AA==", media_type="application/pdf", name="a.pdf", tokens=7),
    OpaquePart(value={"type": "thinking"}, tokens=5, provider="anthropic"),
)
CALL = Message(role="assistant", content=("I read.",), tool_calls=(ToolCall(id="c1", name="read"),))
MESSAGES = [
    Message(role="system", content=("You help.",)),
    Message(role="user", content=PARTS, name="ada"),
    CALL,
    Message(role="tool", content=("def parse(): ...",), tool_call_id="c1"),
]


def test_every_message_renders_as_itself() -> None:
    assert (
        list(
            render(
                [element_from_message(message) for message in MESSAGES], tokenizer=WordTokenizer()
            ).messages
        )
        == MESSAGES
    )


def test_the_same_message_gives_the_same_element() -> None:
    assert [element_from_message(message, priority=3) for message in MESSAGES] == [
        element_from_message(message, priority=3) for message in MESSAGES
    ]


def test_cache_breakpoints_are_left_out() -> None:
    message = Message(role="user", content=("a", CacheBreakpointPart()))

    assert render(element_from_message(message)).messages == (Message(role="user", content=("a",)),)


def test_text_is_joined_converted_and_comes_first() -> None:
    image = ImagePart(url="u", width=1, height=1)
    message = Message(role="user", content=("a", image, "b"))

    assert render(element_from_message(message, text=lambda text: f"[{text}]")).messages[
        0
    ].content == ("[ab]", image)
    assert render(
        element_from_message(Message(role="user", content=(image,)), text=lambda text: f"[{text}]")
    ).messages[0].content == (image,)


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_priority_fallback_and_being_required_are_the_elements(role: str) -> None:
    message = next(message for message in MESSAGES if message.role == role)
    element = element_from_message(message, priority=3, required=True, fallback="gone")

    assert (element.priority, element.required, element.fallback) == (3, True, "gone")


def test_what_is_required_stays_and_what_has_a_fallback_is_replaced() -> None:
    long = Message(role="user", content=("w " * 50,))

    with pytest.raises(BudgetExceededError):
        render(element_from_message(long, required=True), budget=20, tokenizer=WordTokenizer())
    prompt = (element_from_message(long, fallback=UserMessage()["gone"]), UserMessage()["Go on."])
    assert [
        message.text for message in render(prompt, budget=20, tokenizer=WordTokenizer()).messages
    ] == ["gone", "Go on."]
