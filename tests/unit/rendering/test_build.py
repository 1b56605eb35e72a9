"""Recorded messages as a prompt shows them."""

from __future__ import annotations

import pytest

from promptkit import AssistantMessage, Group, Tag, TextChunk, TokenLimit, UserMessage, render
from promptkit.elements.builtin import Rounds
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    Role,
    ToolCall,
)
from promptkit.rendering.expand.build import show_message
from promptkit.testing import WordTokenizer
from tests.behaviour.tokenizers import Bounded


def test_adjacent_texts_are_one_and_cache_breakpoints_are_gone() -> None:
    document = DocumentPart(data="", media_type="application/pdf")
    shown = show_message(
        Message(
            role="user",
            content=("one ", CacheBreakpointPart(), "two", "", document, "three", "four"),
        )
    )
    assert shown is not None
    assert shown.content == ("one two", document, "threefour")


@pytest.mark.parametrize(
    "content", [(), ("",), (" ",), (" ", "\n"), ("", CacheBreakpointPart(), "")]
)
def test_a_message_of_nothing_is_not_shown(content: tuple[str | CacheBreakpointPart, ...]) -> None:
    assert show_message(Message(role="user", content=content)) is None


CALLS = (ToolCall(id="c", name="f"),)


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        (
            Message(role="user", content=("a",), tool_calls=CALLS),
            Message(role="user", content=("a",)),
        ),
        (
            Message(role="user", content=("a",), tool_call_id="c"),
            Message(role="user", content=("a",)),
        ),
        (Message(role="user", content=("a",), name=""), Message(role="user", content=("a",))),
        (
            Message(role="tool", content=("a",)),
            Message(role="tool", content=("a",), tool_call_id=""),
        ),
        (Message(role="user", content=("a ", "b")), Message(role="user", content=("a b",))),
        (
            Message(role="assistant", content=(" ",), tool_calls=CALLS),
            Message(role="assistant", content=(" ",), tool_calls=CALLS),
        ),
        (
            Message(role="tool", content=(" ",), tool_call_id="c"),
            Message(role="tool", content=(" ",), tool_call_id="c"),
        ),
    ],
)
def test_a_message_shows_what_its_role_has(recorded: Message, shown: Message) -> None:
    assert show_message(recorded) == shown


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
@pytest.mark.parametrize("content", [("a",), ("a", OpaquePart(value=1))])
@pytest.mark.parametrize("name", [None, "Ann"])
def test_a_message_that_is_shown_as_it_is_stays_the_same_object(
    role: Role, content: tuple[Part, ...], name: str | None
) -> None:
    recorded = Message(
        role=role,
        content=content,
        name=name,
        tool_calls=CALLS if role == "assistant" else (),
        tool_call_id="c" if role == "tool" else None,
    )
    assert show_message(recorded) is recorded


ROUNDS = Rounds(
    rounds=[Message(role="user", content=(text,)) for text in ("a b", "c d", "e f")],
    order=[0, 1, 2],
    priorities=[0, 1, 2],
    marker=lambda count: f"{count} left out",
)
QUESTION = UserMessage(required=True)["q"]


def test_a_marker_counts_for_the_limit_around_its_conversation() -> None:
    made = render(
        (TokenLimit(max_tokens=5)[ROUNDS], QUESTION), budget=100, tokenizer=WordTokenizer()
    )
    assert [message.text for message in made.messages] == ["2 left out", "e f", "q"]
    assert made.tokens == 6


def test_a_marker_before_the_last_round_leaves_with_the_priority_of_what_it_replaces() -> None:
    rounds = Rounds(
        rounds=[Message(role="assistant", content=(text,)) for text in ("a a a", "b b b")],
        order=[0, 1],
        priorities=[1, 5],
        marker=lambda count: f"{count} gone",
        pass_priority=True,
    )
    prompt = (
        Group(pass_priority=True)[rounds],
        AssistantMessage(priority=3)["x x"],
        AssistantMessage(priority=6)["y y"],
        QUESTION,
    )
    made = render(prompt, budget=99, tokenizer=WordTokenizer())
    shown = {
        budget: [message.text for message in made.at_budget(budget).messages]
        for budget in (11, 10, 8, 6, 5, 3, 1)
    }
    assert shown == {
        11: ["a a a", "b b b", "x x", "y y", "q"],
        10: ["1 gone", "b b b", "x x", "y y", "q"],
        8: ["b b b", "x x", "y y", "q"],
        6: ["b b b", "y y", "q"],
        5: ["2 gone", "y y", "q"],
        3: ["y y", "q"],
        1: ["q"],
    }


def test_an_image_of_a_recorded_message_counts() -> None:
    image = ImagePart(url="https://example.org/a.png")
    rounds = Rounds(
        rounds=[Message(role="user", content=("a b", image))], order=[0], priorities=[0]
    )
    for tokenizer, overhead in ((WordTokenizer(per_image=7), 0), (Bounded(per_image=7), 2)):
        made = render((rounds, QUESTION), budget=100, tokenizer=tokenizer)
        assert made.tokens == 2 + 7 + 1 + overhead


def test_a_message_of_one_text_has_that_text_and_no_copy() -> None:
    text = "a text of a few words"
    (message,) = render(UserMessage(required=True)[text], trace=True).messages
    assert message.content[0] is text


def test_a_marker_counts_for_the_budget() -> None:
    for budget in range(1, 8):
        made = render((ROUNDS, QUESTION), budget=budget, tokenizer=WordTokenizer())
        assert made.tokens == sum(len(message.text.split()) for message in made.messages) <= budget


def test_bare_base64_in_an_image_of_a_recorded_message_becomes_a_data_url() -> None:
    image = ImagePart(url="iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB")
    shown = show_message(Message(role="user", content=("look", image)))
    assert shown is not None
    assert isinstance(shown.content[1], ImagePart)
    assert shown.content[1].url.startswith("data:image/png;base64,iVBORw0K")


def test_what_follows_a_tag_without_children_begins_a_line() -> None:
    for following in (TextChunk()["text"], Group()["text"], "text"):
        made = render(UserMessage()[Tag(tag="a"), following], tokenizer=WordTokenizer())
        assert made.messages[0].text == "<a />\ntext"
