"""The second call of an Expandable is checked like the first, and its errors say where."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from promptkit import tag
from promptkit.elements import IfEmpty
from promptkit.elements.builtin import (
    AssistantMessage,
    Expandable,
    First,
    Group,
    Image,
    KeepWith,
    Reserve,
    Text,
    TextChunk,
    TokenLimit,
    ToolMessage,
    UserMessage,
)
from promptkit.errors import BadChildError, BudgetExceededError
from promptkit.messages import ToolCall
from promptkit.rendering.renderer import render, render_async
from promptkit.testing import WordTokenizer
from tests.behaviour.tokenizers import Bounded

if TYPE_CHECKING:
    from promptkit.elements.element import Child, PromptElement, Sizing
    from promptkit.tokens import Tokenizer


def second(value: Callable[[], object], *, is_async: bool) -> UserMessage:
    """An Expandable that is a string at first, and later what a function returns."""
    calls: list[int] = []

    def now(sizing: Sizing) -> object:
        calls.append(sizing.token_budget)
        return "first" if len(calls) == 1 else value()

    async def later(sizing: Sizing) -> object:
        await asyncio.sleep(0)
        return now(sizing)

    make: Callable[[Sizing], str] = later if is_async else now  # type: ignore[assignment]  # callers may be unchecked
    return UserMessage()["text ", Group()[Expandable(value=make)]]


def plain(prompt: Child) -> str:
    return render(prompt, budget=50, tokenizer=WordTokenizer()).messages[0].text


def awaited(prompt: Child) -> str:
    async def inside() -> str:
        return (await render_async(prompt, budget=50, tokenizer=WordTokenizer())).messages[0].text

    return asyncio.run(inside())


def fails() -> object:
    raise LookupError("no such file")


BOTH = pytest.mark.parametrize("is_async", [False, True])
RUNS = pytest.mark.parametrize("run", [plain, awaited])


@RUNS
@BOTH
def test_an_error_of_the_second_call_says_where(
    run: Callable[[Child], str], is_async: bool
) -> None:
    with pytest.raises(LookupError, match="no such file") as caught:
        run(second(fails, is_async=is_async))
    assert caught.value.__notes__ == ["in element UserMessage > Group[1] > Expandable"]


@RUNS
@BOTH
@pytest.mark.parametrize("value", [None, 7, ("a", "b"), UserMessage()["a"]])
def test_a_second_value_that_is_no_string_is_refused(
    run: Callable[[Child], str], is_async: bool, value: object
) -> None:
    with pytest.raises(BadChildError, match="must be a string") as caught:
        run(second(lambda: value, is_async=is_async))
    assert caught.value.path == "UserMessage > Group[1] > Expandable"


@RUNS
@BOTH
def test_a_second_string_is_shown(run: Callable[[Child], str], is_async: bool) -> None:
    assert run(second(lambda: "longer and longer", is_async=is_async)) == "text longer and longer"


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [(WordTokenizer(), [5, 5, 10, 8]), (Bounded(), [4, 4, 4, 2])],
    ids=["", "overhead"],
)
def test_what_grew_leaves_the_next_one_the_rest(tokenizer: Tokenizer, expected: list[int]) -> None:
    budgets: list[int] = []

    def value(sizing: Sizing) -> str:
        budgets.append(sizing.token_budget)
        return "a" if len(budgets) <= 2 else "a b c"

    render(
        UserMessage()[Expandable(value=value), Expandable(value=value)],
        budget=11,
        tokenizer=tokenizer,
    )
    assert budgets == expected


@RUNS
@BOTH
def test_a_first_value_that_is_no_string_is_refused(
    run: Callable[[Child], str], is_async: bool
) -> None:
    async def later(_: Sizing) -> object:
        return Group()["text"]

    def now(_: Sizing) -> object:
        return Group()["text"]

    expandable = Expandable(value=str).replace(value=later if is_async else now)
    with pytest.raises(BadChildError, match="must be a string, not Group"):
        run(UserMessage()[expandable])


def test_a_break_behind_one_character_is_one() -> None:
    prompt = UserMessage()[TextChunk(break_on=" ")["a bcd"], " q"]
    made = render(prompt, budget=2, tokenizer=WordTokenizer())
    assert made.messages[0].text.split() == ["a", "q"]


def test_text_behind_an_empty_tag_starts_a_line() -> None:
    assert plain(UserMessage()["a ", tag.rule()[()], Group()["b"]]) == "a \n<rule />\nb"


def test_what_is_sized_after_an_awaited_text_is_shown() -> None:
    prompt = second(lambda: "first", is_async=True)
    text = awaited(prompt.replace(children=(*prompt.children, Text(flex_grow=1)[" last"])))
    assert text.split() == ["text", "first", "last"]


AROUND: dict[str, tuple[Callable[[PromptElement], Child], list[int]]] = {
    "a group": (lambda it: Group()[it], [19, 19]),
    "a choice that does not fit": (
        lambda it: First()[Group()[it, TextChunk()["b " * 30]], Text()["x"]],
        [9],
    ),
    "a fallback": (lambda it: KeepWith(group=1, fallback=it)[Text()["x"]], [19]),
    "a limit of nothing": (lambda it: TokenLimit(max_tokens=0)[it], [0]),
    "a limit with room": (lambda it: TokenLimit(max_tokens=5)["b b ", it], [3, 3, 3]),
    "a full limit": (lambda it: TokenLimit(max_tokens=3)["b b ", it], [1]),
}


@pytest.mark.parametrize("name", AROUND)
def test_an_expandable_is_asked_again_only_where_it_is_shown_and_has_room(name: str) -> None:
    around, expected = AROUND[name]
    budgets: list[int] = []

    def value(sizing: Sizing) -> str:
        budgets.append(sizing.token_budget)
        return "a" if sizing.token_budget else ""

    prompt = UserMessage()["q ", around(Expandable(value=value))]
    render(prompt, budget=20, tokenizer=WordTokenizer())
    assert budgets == expected


CALL = ToolCall(id="1", name="f")
SAYS_SOMETHING: dict[str, tuple[Child, bool]] = {
    "a message": (UserMessage()["a"], True),
    "a blank message": (UserMessage()[" "], False),
    "a message of chunks": (Group()[UserMessage()[TextChunk()["a"]]], True),
    "a message of an image": (UserMessage()[Image(url="https://example.org/a.png")], True),
    "a message of calls, and an empty result": (
        [AssistantMessage(tool_calls=[CALL]), ToolMessage(tool_call_id="1")],
        True,
    ),
    "an empty result": (ToolMessage(tool_call_id="1"), True),
    "a reserve": (Group()[Reserve(tokens=1)], True),
    "a fallback": (KeepWith(group=1, fallback=UserMessage()["a"])[()], False),
    "an empty tag": (UserMessage()[Group()[()], Group()[" "]], False),
    "what is not empty itself": (IfEmpty(alt=None)[UserMessage()["a"]], True),
    "what is empty itself": (IfEmpty(alt=None)[UserMessage()[" "]], False),
    "what is empty before what is not": (
        [IfEmpty(alt=None)[UserMessage()[" "]], IfEmpty(alt=None)[UserMessage()["a"]]],
        True,
    ),
}


@pytest.mark.parametrize("name", SAYS_SOMETHING)
def test_an_alternative_stands_where_nothing_is_said(name: str) -> None:
    child, says_something = SAYS_SOMETHING[name]
    prompt = IfEmpty(alt=UserMessage()["alternative"])[child], UserMessage()["q"]
    made = render(prompt, budget=50, tokenizer=WordTokenizer(), pairing="lenient")
    texts = [message.text for message in made.messages]
    assert ("alternative" in texts) == (not says_something)


@pytest.mark.parametrize(("budget", "room"), [(3, 1), (2, 0), (1, 0)])
def test_a_component_has_the_room_that_the_request_leaves_and_never_less_than_none(
    budget: int, room: int
) -> None:
    budgets: list[int] = []

    def value(sizing: Sizing) -> str:
        budgets.append(sizing.token_budget)
        return ""

    with contextlib.suppress(BudgetExceededError):
        render(UserMessage()[Expandable(value=value)], budget=budget, tokenizer=Bounded())
    assert budgets[0] == room
