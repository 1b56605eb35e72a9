"""What users write, and what a type checker must make of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_type

import attrs

from promptkit import (
    Child,
    PromptElement,
    Rendered,
    Sizing,
    SystemMessage,
    TextChunk,
    TokenLimit,
    UserMessage,
    component,
    render,
    render_async,
)


@attrs.frozen(kw_only=True)
class Turn:
    question: str
    answer: str


@component
class History(PromptElement):
    """A component with props; its `render` is plain."""

    turns: Sequence[Turn]
    newest_first: bool = False

    def render(self, sizing: Sizing) -> Child:
        room: int = sizing.token_budget
        cost: int = sizing.count_tokens("Hello")
        _ = room, cost
        return [UserMessage()[turn.question] for turn in self.turns]


@component
class Page(PromptElement):
    """A component that loads something; its `render` is async."""

    url: str

    async def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return TextChunk()[self.url]


@component
class ShortHistory(History):
    """Props are inherited, the layout props too."""

    limit: int = 10


@component(pure=True)
class Rules(PromptElement):
    """A pure component; its props are checked like those of any other."""

    rules: Sequence[str]
    title: str = "Rules"

    def render(self, sizing: Sizing) -> Child:
        _ = sizing
        return self.title, [TextChunk()[rule] for rule in self.rules]


@component(pure=False)
class ShortRules(Rules):
    """The decorator takes the argument whatever its value is."""

    limit: int


def macro(names: Sequence[str]) -> Iterator[Child]:
    """A plain function is as good as a component where nothing is sized."""
    for name in names:
        yield TextChunk()[name]


history = History(
    turns=[Turn(question="Why?", answer="Because.")], priority=1, flex_grow=1, flex_reserve="/4"
)
assert_type(history, History)
assert_type(history.turns, Sequence[Turn])
assert_type(history.priority, float | None)
assert_type(UserMessage(priority=2)["text"], UserMessage)
assert_type(
    UserMessage()[None, True, "a", ("b", ["c"]), TextChunk()["d"], macro(["e"])], UserMessage
)

short = ShortHistory(turns=(), limit=3, required=True, label="short")
assert_type(short.limit, int)

rules = ShortRules(rules=["Be brief."], limit=1, priority=2)
assert_type(rules, ShortRules)
assert_type(rules.rules, Sequence[str])
assert_type(Rules(rules=["Be brief."])["text"], Rules)

prompt: Child = (
    SystemMessage()["Be brief."],
    TokenLimit(max_tokens=10)[history],
    UserMessage()[Page(url="page")],
)


def rendered(element: PromptElement) -> Rendered:
    result = render(element, budget=10, model="gpt-5", reserved_output_tokens=100)
    assert_type(result.tokens, int)
    assert_type(result.messages[0].text, str)
    return result


async def rendered_async(element: PromptElement) -> Rendered:
    return await render_async((element, UserMessage()["a fragment"]), budget=10)
