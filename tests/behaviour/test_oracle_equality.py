"""The engine, clever as it is, answers what the slow oracle answers."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import currently_in_test_context, given, note, settings

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    CacheBreakpoint,
    Chunk,
    Group,
    Image,
    KeepWith,
    PrioritizedList,
    SystemMessage,
    Text,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    render,
)
from promptkit.elements import LegacyPrioritization
from promptkit.testing import WordTokenizer
from promptkit.tokens import tokenizer_for
from tests.behaviour.oracle import DoesNotFitError, Oracle, State, oracle
from tests.behaviour.strategies import FEATURES, prompts, tokenizers
from tests.behaviour.tokenizers import Bounded, Runs
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit import Child
    from promptkit.rendering.renderer import Defaults
    from promptkit.testing.strategies import Feature
    from promptkit.tokens import Tokenizer


def budgets(answers: Oracle) -> list[int]:
    """Every budget at which the answer may change, its neighbours, and an ample one, at which limits alone remove something."""
    sizes = {state.tokens + state.reserved for state in answers.states}
    return sorted(
        {budget for size in sizes for budget in (size - 1, size, size + 1) if budget >= 0}
        | {0, 10_000},
        reverse=True,
    )


def check(prompt: Child, tokenizer: Tokenizer, *, defaults: Defaults = "promptkit") -> None:
    if currently_in_test_context():  # hypothesis prints values without their children
        note(f"prompt = {prompt!r}\ntokenizer = {tokenizer!r}")
    answers = oracle(prompt, tokenizer, prompt_tsx=defaults == "prompt-tsx")
    for budget in budgets(answers):
        try:
            want = answers.at(budget)
        except DoesNotFitError:
            want = None
        try:
            rendered = render(prompt, budget=budget, tokenizer=tokenizer, defaults=defaults)
        except BudgetExceededError:
            got = None
        else:
            got = State(rendered.messages, rendered.tokens, rendered.reserved)
        assert got == want, f"at {budget}: want {[s.tokens for s in answers.states]}"


@given(prompts(), tokenizers())
def test_equals_the_oracle_at_every_budget(prompt: Child, tokenizer: Tokenizer) -> None:
    check(prompt, tokenizer)


@settings(max_examples=examples(30))
@given(prompts(), tokenizers())
def test_equals_the_oracle_at_every_budget_with_the_defaults_of_prompt_tsx(
    prompt: Child, tokenizer: Tokenizer
) -> None:
    check(prompt, tokenizer, defaults="prompt-tsx")


@settings(max_examples=examples(30))
@given(prompts(size=10))
def test_equals_the_oracle_in_a_real_vocabulary(prompt: Child) -> None:
    check(prompt, tokenizer_for(None))


STAYS = UserMessage(required=True)["z"]


def chunk(priority: float, *inner: Child) -> Child:
    return Chunk(priority=priority)[inner] if inner else TextChunk(priority=priority)["b c"]


def message(priority: float, inner: float | None = None) -> Child:
    """A message of a text, or of a chunk with a text."""
    text = f"{priority} {inner}"
    return UserMessage(priority=priority)[
        text if inner is None else TextChunk(priority=inner)[text]
    ]


IMAGE = Image(url="https://example.org/a.png", priority=0)
PORTRAIT = Image(url="https://example.org/a.png", fallback="f")
TIES: dict[str, Child] = {
    "of two, by the lowest child": [message(1, 5), message(1, 3), STAYS],
    "of three, by the lowest child": [message(1, 5), message(1, 3), message(1, 4), STAYS],
    "of messages and a message of chunks": [message(1), message(1, 1), message(1), STAYS],
    "of messages and messages in a group": [
        Group(pass_priority=True)[message(1), message(1)],
        message(1, 1),
        STAYS,
    ],
    "of messages around an open group and a closed one": [
        message(1),
        Group(pass_priority=True)[message(1, 1), message(1, 1)],
        message(1),
        message(1, 1),
        message(1),
        STAYS,
    ],
    "of groups of messages, by turns": [
        Group(priority=1)[message(1), message(5), message(7)],
        Group(priority=1)[message(2), message(6), message(8)],
        STAYS,
    ],
    "of groups of messages in a group": Group(priority=1)[
        Group(priority=3)[message(1), message(5), message(7)],
        Group(priority=3)[message(2), message(6), message(8)],
        STAYS,
    ],
    "with one of several messages": [message(1), message(2), message(3), message(2, 9), STAYS],
    "with a message of one of two groups": [
        message(2, 9),
        Group(pass_priority=True)[message(1), message(2)],
        Group(pass_priority=True)[message(3), message(4)],
        STAYS,
    ],
    "of a call and a message": [
        AssistantMessage(priority=1, tool_calls=[ToolCall(id="c", name="f")]),
        ToolMessage(priority=5, tool_call_id="c")["a result"],
        message(1),
        STAYS,
    ],
    "of the last message of an open group and the one behind it": [
        Group(pass_priority=True)[message(1), message(2)],
        message(2, 2),
        message(3),
        STAYS,
    ],
    "with the fallback of an open group": [
        Group(pass_priority=True, fallback=UserMessage(priority=3)["short"])[message(-1)],
        message(0, 9),
        STAYS,
    ],
    "of a list and a message": [
        PrioritizedList(pass_priority=True)[UserMessage()["a"], UserMessage()["b"]],
        message(0.5),
        STAYS,
    ],
    "of a descending list": [
        PrioritizedList(descending=True)[UserMessage()["a"], UserMessage()["b"]],
        STAYS,
    ],
    "of the fallback of an open group and a message": [
        Group(pass_priority=True, fallback=UserMessage()["short"])[message(-1)],
        message(0.5),
        STAYS,
    ],
    "of an image and a chunk": UserMessage()[IMAGE, chunk(0), chunk(1)],
    "of a chunk and an image": UserMessage()[chunk(0), IMAGE, chunk(1)],
    "of a chunk and a text": UserMessage()[TextChunk()["b"], "a", chunk(9)],
    "of a text and an image with a fallback": UserMessage()["a", PORTRAIT, chunk(9)],
    "of an image with a fallback and a text": UserMessage()[PORTRAIT, "a", chunk(9)],
    "of chunks, one around an image": UserMessage()[
        chunk(1, IMAGE, chunk(9)), chunk(1, chunk(-0.5)), chunk(9)
    ],
    "of messages, one of a text and an image": [
        message(1, 3),
        UserMessage(priority=1)["a", IMAGE],
        STAYS,
    ],
    "of messages, one with a fallback of nothing": [
        UserMessage(priority=1)[TextChunk(priority=0, fallback="f")[""], chunk(5)],
        message(1, 3),
        STAYS,
    ],
    "with a fallback": [
        Group(pass_priority=True, priority=2, fallback=message(3))[message(1)],
        message(2, 9),
        STAYS,
    ],
    "with a message of calls alone in a group": [
        LegacyPrioritization()[
            Group()[
                AssistantMessage(priority=3, tool_calls=[ToolCall(id="c", name="f")])[chunk(0)],
                ToolMessage(priority=5, tool_call_id="c")["a result"],
            ],
            message(2),
        ],
        STAYS,
    ],
    "with a message of calls alone": [
        LegacyPrioritization()[
            AssistantMessage(priority=3, tool_calls=[ToolCall(id="c", name="f")])[chunk(0)],
            ToolMessage(priority=5, tool_call_id="c")["a result"],
            message(2),
            message(4),
        ],
        STAYS,
    ],
}


@pytest.mark.parametrize("defaults", ["promptkit", "prompt-tsx"])
@pytest.mark.parametrize("tie", TIES)
def test_equals_the_oracle_where_priorities_tie(tie: str, defaults: Defaults) -> None:
    for tokenizer in (WordTokenizer(per_message=1, per_image=2), Runs(per_message=1)):
        check(TIES[tie], tokenizer, defaults=defaults)


TOGETHER: dict[str, Child] = {
    "a call and its result that are also kept together, beside another message": [
        Group()[
            KeepWith(group=1, priority=1)[
                AssistantMessage(tool_calls=[ToolCall(id="c", name="f")])["x"]
            ],
            KeepWith(group=1)[ToolMessage(tool_call_id="c")["a result"]],
            message(5),
        ],
        STAYS,
    ],
    "a call that is kept with a message, and the shorter result that replaces its result": [
        KeepWith(group=1, priority=1)[UserMessage()["of the call"]],
        AssistantMessage(tool_calls=[ToolCall(id="c", name="f")], keep_with={"c": 1})["text"],
        ToolMessage(tool_call_id="c", fallback=ToolMessage(tool_call_id="c")["r"])["a result"],
        STAYS,
    ],
    "a group whose blank message leaves first": [
        Group()[UserMessage(priority=0)[" "], message(1), message(2)],
        KeepWith(group=1, priority=3)[message(1)],
        STAYS,
    ],
    "a call with a result that stays": [
        AssistantMessage(priority=1, tool_calls=[ToolCall(id="c", name="f")]),
        ToolMessage(required=True, tool_call_id="c")["a result"],
        message(2),
        message(3),
    ],
    "the last user message with its group, which it must not": [
        Group(priority=1)[UserMessage()["q"]],
        UserMessage(priority=2)["b"],
        Group(priority=3)[AssistantMessage(priority=1)["c"]],
    ],
    "the last user message behind one that stays": [
        STAYS,
        Group()[UserMessage()["q"], AssistantMessage()["a b c"]],
    ],
    "a call in a group with its result behind the group": [
        Group()[AssistantMessage(tool_calls=[ToolCall(id="c", name="f")]), message(1)],
        ToolMessage(priority=2, tool_call_id="c")["a result"],
        STAYS,
    ],
    "lines of a system message": [
        SystemMessage(priority=2)[chunk(1), chunk(0)],
        message(3),
        STAYS,
    ],
    "an image that costs more than what it replaces": UserMessage()[
        TextChunk(priority=1, fallback=IMAGE)["a b"],
        TextChunk(priority=2)["c"],
        TextChunk(required=True)["z"],
    ],
    "nothing but a fallback in a message, which comes": [
        UserMessage()[KeepWith(group=1, fallback="short")[()]],
        Group(priority=1)[KeepWith(group=1)[()]],
    ],
    "two system messages with lines": [
        SystemMessage()["a", chunk(1)],
        SystemMessage()["b", chunk(2)],
        message(3),
        STAYS,
    ],
    "texts around a child, inside and around which priorities are global": [
        LegacyPrioritization()[UserMessage(priority=1)["t ", chunk(2), "t "], message(4)],
        UserMessage(priority=1)[LegacyPrioritization()["t ", chunk(3), "t "]],
        STAYS,
    ],
    "texts on both sides of a child that stays, and a text before another": [
        UserMessage(priority=1)[
            "a ", chunk(1), TextChunk(required=True)["z"], "b ", "c ", chunk(2), TextChunk()["d"]
        ],
        STAYS,
    ],
    "lines of groups in a system message": [
        SystemMessage()[
            "a", Group()["b ", chunk(1)], Group()[chunk(2)], Group()[Group()[chunk(0)]]
        ],
        message(3),
        STAYS,
    ],
    "a system message beside one that is required": [
        SystemMessage(priority=1, required=True)["a"],
        Group(priority=2)[SystemMessage()["b"]],
        message(3),
        STAYS,
    ],
    "a text with a fallback of nothing, and one of nothing and a text": UserMessage()[
        "a",
        TextChunk(priority=1, fallback=Group()[()])["b c"],
        TextChunk(priority=2, fallback=[Group()[()], "f"])["d e"],
        Text()["z"],
    ],
    "a required group that replaces a message, and has a fallback itself": [
        UserMessage(
            priority=1,
            fallback=Group(required=True, fallback=UserMessage()["x"])[UserMessage()["s s"]],
        )["a b c"],
        message(2),
        STAYS,
    ],
    "texts of several strings": UserMessage()[
        TextChunk(priority=1)["a ", "b"], TextChunk(priority=2)["c", None, " d"], chunk(3)
    ],
    "a system message that replaces a message": [
        UserMessage(priority=1, fallback=SystemMessage(priority=5)["short"])["a long text of it"],
        message(3),
        STAYS,
    ],
    "nothing but a fallback, which comes": [
        KeepWith(group=1, fallback=[UserMessage()["short"], SystemMessage()["one"]])[()],
        Group(priority=1)[KeepWith(group=1)[()]],
    ],
    "blank messages behind the last one of a group": [
        Group()[message(1), UserMessage(priority=2)[" "], UserMessage(priority=3)[" "]],
        Group()[message(2), UserMessage(priority=4)[" "], UserMessage(required=True)["y"]],
        STAYS,
    ],
}


@pytest.mark.parametrize("defaults", ["promptkit", "prompt-tsx"])
@pytest.mark.parametrize("name", TOGETHER)
def test_equals_the_oracle_where_something_leaves_with(name: str, defaults: Defaults) -> None:
    for tokenizer in (Bounded(per_message=1, per_call=2, per_image=5), Runs(per_message=1)):
        check(TOGETHER[name], tokenizer, defaults=defaults)


SIBLINGS: dict[str, Callable[[int], Child]] = {
    "text": lambda _: "t ",
    "child": lambda place: TextChunk(priority=place)["c"],
    "required child": lambda _: TextChunk(required=True)["r"],
    "child with a fallback": lambda place: TextChunk(priority=place, fallback="f")["c c"],
    "blank child": lambda place: TextChunk(priority=place)[" "],
    "blank text": lambda _: " ",
    "image": lambda place: Image(url="https://example.org/a.png", priority=place),
    "breakpoint": lambda _: CacheBreakpoint(),
    "limit of nothing": lambda _: TokenLimit(max_tokens=0)[TextChunk()["c"]],
    "group of texts and a child": lambda place: Group(priority=place)[
        "t ", "t ", TextChunk(priority=9)["c"], "t "
    ],
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("other", "most"),
    [("child", 6), ("required child", 5), *((other, 4) for other in [*SIBLINGS][3:])],
)
def test_equals_the_oracle_with_texts_and_children_in_every_order(other: str, most: int) -> None:
    kinds = dict.fromkeys(["text", "child", other])
    for length in range(2, most + 1):
        for order in itertools.product(kinds, repeat=length):
            if {"text", "child"} <= {*order}:
                inside = [SIBLINGS[kind](place) for place, kind in enumerate(order)]
                check([UserMessage(priority=1)[inside], UserMessage()["q"]], WordTokenizer())


@pytest.mark.parametrize("tokenizer", [Bounded(), Runs()])
def test_equals_the_oracle_with_limits_among_other_texts_of_a_message(tokenizer: Tokenizer) -> None:
    for most in range(1, 6):
        inside = [
            *("a ", TextChunk()["x"], "b "),
            TokenLimit(max_tokens=most)[chunk(1), "t ", chunk(2), chunk(3)],
            *("z ", chunk(0)),
            TokenLimit(max_tokens=most)[chunk(1), chunk(2)],
            "w ",
        ]
        check([UserMessage(priority=1)[inside], STAYS], tokenizer)


COSTLY: dict[str, Child] = {
    "the fallback of what a limit removed": TokenLimit(max_tokens=30)[
        UserMessage(priority=1, fallback=UserMessage()["b " * 20])["a " * 50]
    ],
    "an image": UserMessage(priority=1)["a", IMAGE],
    "messages of lines": [
        UserMessage(priority=priority)["a", chunk(1)] for priority in range(1, 4)
    ],
    "a call": [
        AssistantMessage(priority=1, tool_calls=[ToolCall(id="c", name="f")])["x"],
        ToolMessage(tool_call_id="c")["r"],
    ],
}


@pytest.mark.parametrize("costly", COSTLY)
def test_equals_the_oracle_where_all_seems_to_fit_but_for(costly: str) -> None:
    check([COSTLY[costly], STAYS], Bounded(per_message=9, per_call=20, per_image=40))


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.slow
def test_equals_the_oracle_at_every_budget_feature_by_feature(feature: Feature) -> None:
    @settings(max_examples=int(os.environ.get("EXAMPLES", "60")))
    @given(prompts((feature,)), tokenizers())
    def law(prompt: Child, tokenizer: Tokenizer) -> None:
        check(prompt, tokenizer)
        check(prompt, tokenizer, defaults="prompt-tsx")

    law()
