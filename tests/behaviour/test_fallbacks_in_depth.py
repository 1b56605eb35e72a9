"""Fallbacks inside fallbacks, beside calls, and below limits."""

from __future__ import annotations

import itertools

import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Group,
    Image,
    KeepWith,
    Message,
    Reserve,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    count_request,
    render,
)
from promptkit.errors import BadPropError
from promptkit.fitting import RecordedMessages
from promptkit.testing import WordTokenizer


def test_a_fallback_message_may_hold_an_element_with_a_fallback_of_its_own() -> None:
    inner = UserMessage()["see ", TextChunk(priority=0, fallback="[cut]")["outline of the file"]]
    prompt = (
        UserMessage(priority=1, fallback=inner)["whole file " * 20],
        UserMessage(priority=2)["q"],
    )
    assert [message.text for message in render(prompt, budget=30).messages] == [
        "see \noutline of the file",
        "q",
    ]


def test_a_result_with_a_fallback_is_counted_as_it_is_sent_at_every_budget() -> None:
    calls = [ToolCall(id="c1", name="f"), ToolCall(id="c2", name="f")]
    prompt = (
        AssistantMessage(tool_calls=calls),
        ToolMessage(tool_call_id="c1", fallback=ToolMessage(tool_call_id="c1")["cut"])["some text"],
        ToolMessage(tool_call_id="c2", priority=5)["x"],
        UserMessage(priority=9)["q"],
    )
    for budget in range(10, 70):
        # which sends no message where none fits
        made = render(prompt, budget=budget, model="gpt-4o", defaults="prompt-tsx")
        sent = (
            count_request({"model": "gpt-4o", "messages": made.to_chat()}).tokens
            if made.messages
            else 0
        )
        assert made.tokens == sent <= budget


def test_a_limit_holds_when_a_fallback_takes_its_place_inside_later() -> None:
    long = UserMessage()["one two three four five six seven eight nine ten eleven twelve"]
    prompt = (
        UserMessage(priority=0)[KeepWith(group=1)["drop me " * 20]],
        TokenLimit(priority=9, max_tokens=10)[
            KeepWith(group=1, fallback=long)[UserMessage()["in"]]
        ],
    )
    assert render(prompt, budget=40, defaults="prompt-tsx").messages == ()


@pytest.mark.parametrize("limits", [*itertools.product(range(3), repeat=2)])
@pytest.mark.parametrize("step", [0, 1])
def test_of_two_limits_each_holds_when_fallbacks_take_their_places_inside_later(
    limits: tuple[int, int], step: int
) -> None:
    """The fallback of the first limit would leave before that of the second."""
    empty = Image(url="https://example.org/a.png")  # which counts nothing here
    prompt = (
        UserMessage(priority=0)[KeepWith(group=1)["drop me " * 20]],
        *(
            TokenLimit(priority=9, max_tokens=limit)[
                KeepWith(group=1, fallback=UserMessage()[name])[UserMessage()[empty]]
            ]
            for name, limit in zip("ab", limits, strict=True)
        ),
        UserMessage(required=True)["stays here"],
    )
    shown = ["b"] * (limits[1] >= 1)
    shown = ["a"] * (bool(shown) and limits[0] >= 1) + shown
    made = render(prompt, budget=20, tokenizer=WordTokenizer(), prune_step=step)
    assert [message.text for message in made.messages] == [*shown, "stays here"]
    with pytest.raises(BudgetExceededError):
        render(prompt, budget=1, tokenizer=WordTokenizer(), prune_step=step)


@pytest.mark.parametrize("limit", range(4))
def test_a_limit_holds_when_a_text_takes_the_place_of_the_last_element_in_it(limit: int) -> None:
    empty = Image(url="https://example.org/a.png")  # which counts nothing here
    prompt = (
        UserMessage(priority=0)[KeepWith(group=1)["drop me " * 20]],
        AssistantMessage(priority=9)[
            "so ", TokenLimit(max_tokens=limit)[KeepWith(group=1, fallback="one two")[empty]]
        ],
        UserMessage(required=True)["stays here"],
    )
    made = render(prompt, budget=20, tokenizer=WordTokenizer())
    answer = "so one two" if limit >= 2 else "so "
    assert [message.text for message in made.messages] == [answer, "stays here"]


@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_request_fits_where_a_limit_only_holds_beside_another_longer_fallback(step: int) -> None:
    empty = Image(url="https://example.org/a.png")  # which counts nothing here
    kept_with = KeepWith(group=1, priority=1, fallback="one two")[empty]
    longer = UserMessage()[TextChunk(priority=5)["these four words more"]]
    prompt = (
        UserMessage(priority=0)[KeepWith(group=1)["drop me " * 20]],
        AssistantMessage(priority=1)[
            TokenLimit(max_tokens=1, priority=1)[kept_with], TextChunk(priority=9)["so"]
        ],
        UserMessage(priority=1, fallback=longer)[TextChunk(priority=0)["x"]],
        UserMessage(required=True)["stays here"],
    )
    for budget in range(2, 10):
        made = render(prompt, budget=budget, tokenizer=WordTokenizer(), prune_step=step)
        assert made.tokens <= budget


def test_the_marker_of_a_conversation_that_stands_by_costs_nothing_before_it_is_shown() -> None:
    talk = [Message(role="user", content=(f"{number} a",)) for number in range(10)]
    conversation = RecordedMessages(
        messages=talk, marker=lambda count: f"[{count} left out]", shorten=False
    )
    prompt = (
        UserMessage(priority=1)["one"],
        Group(priority=5, fallback=TokenLimit(max_tokens=8)[conversation])[
            UserMessage(priority=3)["w " * 12]
        ],
        UserMessage()["q"],
    )
    shown = {
        budget: [message.text for message in made.messages]
        for budget in (14, 13, 12)
        for made in [render(prompt, budget=budget, tokenizer=WordTokenizer())]
    }
    assert shown == {
        14: ["one", "w " * 12, "q"],
        13: ["w " * 12, "q"],
        12: ["[8 left out]", "8 a", "9 a", "q"],
    }


def test_a_reserve_cannot_stand_by() -> None:
    with pytest.raises(BadPropError, match="fallback"):
        render(UserMessage(fallback=Reserve(tokens=5))["x"], budget=9)
