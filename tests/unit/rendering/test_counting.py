"""A state is counted as it is sent, whatever was removed before it, and none that fits is passed over."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Chunk,
    Group,
    History,
    ImagePart,
    KeepWith,
    Message,
    PromptElement,
    Rendered,
    Renderer,
    Sizing,
    SystemMessage,
    TextChunk,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
    component,
    count_request,
)
from promptkit.elements.builtin import Rounds
from promptkit.fitting import RecordedMessages
from promptkit.rendering.expand.sizing import Sizer
from promptkit.testing import WordTokenizer
from promptkit.tokens.tokenizer import count_message
from promptkit.wire.chat import tools_to_chat

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit import Child
    from promptkit.rendering.renderer import Defaults

TOOL = ToolDefinition(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}},
)
LONG = "word " * 8_000  # more tokens than the budget, by its length alone


def call(name: str) -> ToolCall:
    return ToolCall(id=name, name="read_file", arguments="{}")


@component
class Same(PromptElement):
    """Its children, by a component: what it shows is expanded."""

    def render(self, sizing: Sizing) -> Child:
        return self.children


SHAPES: dict[str, Callable[[str, int], Child]] = {
    "message": lambda text, priority: UserMessage(priority=priority)[text],
    "message of a chunk": lambda text, priority: UserMessage(priority=priority)[TextChunk()[text]],
    "group": lambda text, priority: Group(priority=priority)[
        UserMessage()[text], Group()[UserMessage()[text]]
    ],
    "chunk": lambda text, priority: UserMessage()[
        TextChunk(priority=priority)[text], TextChunk(priority=3.5)["beside"]
    ],
    "chunk of chunks": lambda text, priority: UserMessage()[
        Chunk(priority=priority)[TextChunk()["a"], TextChunk()[text]],
        TextChunk(priority=3.5)["beside"],
    ],
    "result": lambda text, priority: [
        AssistantMessage(priority=priority, tool_calls=[call(text[:6] + str(priority))]),
        ToolMessage(priority=priority, tool_call_id=text[:6] + str(priority))[text],
    ],
    "message with a fallback": lambda text, priority: UserMessage(
        priority=priority, fallback=UserMessage()["short"]
    )[text],
}


@pytest.mark.parametrize("trace", [False, True], ids=["", "trace"])
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_what_fits_beside_a_text_that_is_too_long_stays(
    shape: str, place: int, *, trace: bool
) -> None:
    build = SHAPES[shape]
    prompt = [build(LONG if at == place else f"text {at}", at + 1) for at in range(3)]
    renderer = Renderer(budget=200, model="gpt-4o", trace=trace)
    shown = " ".join(
        message.text
        for message in renderer.render([*prompt, UserMessage(required=True)["z"]]).messages
    )
    assert [f"text {at}" in shown for at in range(3)] == [at > place for at in range(3)]
    assert shown.endswith("z")
    assert "word" not in shown


def test_what_was_beside_a_text_that_is_too_long_stays_when_both_were_removed_one_after_the_other() -> (
    None
):
    prompt = (
        Group(priority=1)[UserMessage(priority=1)[LONG], UserMessage(priority=2)["beside"]],
        UserMessage(required=True)["z"],
    )
    made = Renderer(budget=200, model="gpt-4o", trace=True).render(prompt)
    assert [message.text for message in made.messages] == ["beside", "z"]


@pytest.mark.parametrize("long", [LONG, TextChunk()[LONG]], ids=["text", "chunk"])
def test_what_has_a_fallback_that_is_too_long_stays_if_it_fits_itself(long: Child) -> None:
    prompt = (
        UserMessage(priority=1)["leaves " * 200],
        UserMessage(priority=2, fallback=UserMessage()[long])["stays"],
        UserMessage()[TextChunk(priority=2, fallback=LONG)["this too"], TextChunk(priority=9)["z"]],
    )
    made = Renderer(budget=200, model="gpt-4o").render(prompt)
    assert [message.text for message in made.messages] == ["stays", "this too\nz"]


class Words(WordTokenizer):
    """Knows without counting how many tokens a text has."""

    def lower_bound(self, text: str) -> int:
        return text.count(" ") + 1


@pytest.mark.parametrize("trace", [False, True], ids=["", "trace"])
def test_a_long_text_of_as_many_tokens_as_the_budget_stays(*, trace: bool) -> None:
    text = " ".join(["word"] * 3_000)
    for long in (UserMessage(priority=2)[text], UserMessage()[TextChunk(priority=2)[text]]):
        prompt = UserMessage(priority=1)["a"], long
        made = Renderer(budget=3_000, tokenizer=Words(), trace=trace, defaults="prompt-tsx").render(
            prompt
        )
        assert [message.text for message in made.messages] == [text]


TALK = (
    Message(role="user", content=("Fix the parser, please.",)),
    Message(role="assistant", content=("I look at it.",), tool_calls=(call("t1"),)),
    Message(role="tool", content=("def parse(text): ...",), tool_call_id="t1"),
    Message(role="assistant", content=("It is fixed.",)),
    Message(role="user", content=("And the tests?",)),
    Message(role="assistant", content=("They pass.",)),
)
PROMPTS: dict[str, Child] = {
    "a conversation": [UserMessage(priority=1)["before it"], History(turns=TALK)],
    "a fallback of a conversation": [
        Group(priority=1, fallback=History(turns=TALK))[UserMessage()["a long text " * 20]],
        UserMessage(priority=9)["go on"],
    ],
    "a fallback of a conversation with a system message": [
        Group(
            priority=1,
            fallback=RecordedMessages(
                messages=[Message(role="system", content=("Be brief.",)), *TALK]
            ),
        )[UserMessage()["a long text " * 20]],
        UserMessage(priority=9)["go on"],
    ],
    "a conversation that is kept with a message": [
        UserMessage(priority=1)[KeepWith(group=1)["first"]],
        Group(priority=2)[KeepWith(group=1)[History(turns=TALK), UserMessage()["second"]]],
        UserMessage(priority=9)["go on"],
    ],
    "a group that is kept with a message": [
        UserMessage(priority=1)[KeepWith(group=1)["first"]],
        KeepWith(group=1)[
            Group(priority=2)[
                UserMessage(priority=1)["second"], UserMessage()[TextChunk(priority=2)["third"]]
            ],
        ],
        UserMessage(priority=9)["go on"],
    ],
    "system messages that are kept with a message": [
        UserMessage(priority=1)[KeepWith(group=1)["first"]],
        KeepWith(group=1)[SystemMessage(priority=2)["second"]],
        KeepWith(group=1)[Group()[SystemMessage(priority=2)["third"]]],
        UserMessage(priority=9)["go on"],
    ],
    "a conversation that is kept with what must stay": [
        KeepWith(group=1)[History(turns=TALK)],
        KeepWith(group=1)[UserMessage(required=True)["go on"]],
    ],
    "a conversation that is kept with a message that leaves after some of it": [
        KeepWith(group=1, priority=5)[UserMessage()["a question of some words"]],
        KeepWith(group=1, pass_priority=True)[
            Rounds(
                rounds=TALK[3:],
                order=[0, 1, 2],
                priorities=[1, 8, 9],
                marker=lambda count: f"{count} left out",
                pass_priority=True,
            )
        ],
        UserMessage(priority=9)["go on"],
    ],
    "a message with calls that is kept with a message": [
        KeepWith(group=1, priority=1)[UserMessage()["a question of some words"]],
        KeepWith(group=1)[
            AssistantMessage(tool_calls=[call("c1"), call("c2")])[TextChunk()["now"]]
        ],
        ToolMessage(tool_call_id="c1")["a result"],
        ToolMessage(tool_call_id="c2", priority=0)["another result"],
        UserMessage(priority=4)["go on"],
    ],
    "a fallback of messages": [
        UserMessage(priority=1, fallback=[SystemMessage()["x"], UserMessage()["y"]])["z " * 20],
        UserMessage(priority=2, fallback=UserMessage(priority=3)[TextChunk()["w"]])["v " * 20],
        UserMessage(priority=9)["go on"],
    ],
    "no system message": [
        Same()[UserMessage(priority=1)["one two"]],
        UserMessage(priority=2)["three"],
        UserMessage(priority=3)["four five six"],
    ],
    "a system message": [
        SystemMessage(priority=9)["be brief"],
        Same()[UserMessage(priority=1)["one two"], UserMessage(priority=2)["three"]],
        UserMessage(priority=3)["four five six"],
    ],
    "a system message that leaves": [
        Same()[SystemMessage(priority=1)["be brief"]],
        UserMessage(priority=2)["three"],
        UserMessage(priority=3)["four five six"],
    ],
    "a fallback that is a system message": [
        UserMessage(priority=1, fallback=SystemMessage()["brief"])["a long text of some words"],
        UserMessage(priority=3)["four five six"],
    ],
    "many lines": UserMessage()[[TextChunk(priority=at)["a"] for at in range(8)]],
    "a fallback alone": UserMessage(fallback=UserMessage()[TextChunk()["w"]])["v " * 20],
    "two system messages": [
        Same()[SystemMessage()["be brief"]],
        SystemMessage(priority=1)["be kind"],
        UserMessage(priority=2)["three"],
        UserMessage(priority=3)["four five six"],
    ],
    "a system message of chunks and one of text": [
        SystemMessage()[TextChunk(priority=2)["be brief"]],
        SystemMessage(priority=3)["be kind"],
        UserMessage(priority=1)["three"],
        UserMessage(priority=4)["four five six"],
    ],
    "calls that leave after one of them": [
        AssistantMessage(priority=2, tool_calls=[call("c1"), call("c2")])["now"],
        ToolMessage(priority=1, tool_call_id="c1")["a result"],
        ToolMessage(priority=3, tool_call_id="c2")["another result"],
        UserMessage(priority=4)["go on"],
    ],
    "calls": [
        AssistantMessage(priority=1, tool_calls=[call("c1"), call("c2")])[
            TextChunk(priority=0)["now"]
        ],
        ToolMessage(priority=2, tool_call_id="c1")["a result"],
        ToolMessage(priority=3, tool_call_id="c2")["another result"],
        UserMessage(priority=4)["go on"],
    ],
}


@pytest.mark.parametrize("defaults", ["promptkit", "prompt-tsx"])
@pytest.mark.parametrize("tools", [(), (TOOL,)], ids=["", "tools"])
@pytest.mark.parametrize("name", PROMPTS)
def test_a_render_costs_what_its_request_costs_and_fits_in_that(
    name: str, tools: tuple[ToolDefinition, ...], defaults: Defaults
) -> None:
    def render(budget: int) -> Rendered:
        renderer = Renderer(budget=budget, model="gpt-4o", tools=tools, defaults=defaults)
        return renderer.render(PROMPTS[name])

    budget = 1_000
    with contextlib.suppress(BudgetExceededError):
        while budget >= 0:
            made = render(budget)
            again = render(made.tokens)
            assert (again.messages, again.tokens) == (made.messages, made.tokens)
            if made.messages:
                sent = {"messages": made.to_chat(), "tools": tools_to_chat(tools)}
                assert made.tokens == count_request({"model": "gpt-4o", **sent}).tokens
            budget = made.tokens - 1
    assert budget < render(1_000).tokens


def test_messages_that_are_counted_together_have_the_tokens_of_each_and_every_text_is_counted_once() -> (
    None
):
    counted: list[str] = []

    class Noting(WordTokenizer):
        def count(self, text: str) -> int:
            counted.append(text)
            return super().count(text)

    messages = [
        Message(role="user", content=("one", ImagePart(url="https://example.org/a.png"), "two")),
        Message(role="assistant", content=("three",)),
        Message(role="user"),
    ]
    tokenizer = Noting(per_message=3, per_image=7)
    sizer = Sizer(tokenizer)
    expected = [
        count_message(message, WordTokenizer(per_message=3, per_image=7)) for message in messages
    ]
    assert sizer.count_messages(messages[:2]) == expected[:2]
    assert sizer.count_messages(messages) == expected
    sizer.start_next_render()
    assert sizer.count_messages(messages) == expected
    assert list(map(sizer.count_message, messages)) == expected
    assert counted == ["one", "two", "three"]


def test_messages_whose_count_fails_are_not_held() -> None:
    class Failing(WordTokenizer):
        def count(self, text: str) -> int:
            raise ValueError(text)

    sizer = Sizer(Failing())
    message = Message(role="user", content=("one",))
    held = weakref.ref(message)
    with contextlib.suppress(ValueError):
        sizer.count_messages([message])
    del message
    gc.collect()
    assert held() is None
