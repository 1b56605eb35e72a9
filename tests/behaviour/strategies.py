"""Prompts of every shape that the grammar allows, small enough for the oracle, with a different set of features each time."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import attrs
from hypothesis import strategies as st

from promptkit import (
    AssistantMessage,
    CacheBoundary,
    Chunk,
    Group,
    Image,
    KeepWith,
    LegacyPrioritization,
    Opaque,
    PrioritizedList,
    PromptElement,
    Reserve,
    SystemMessage,
    Text,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.behaviour.nodes import Node, build, is_empty
from tests.behaviour.tokenizers import Chars, Runs, Words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

    from promptkit import Child, Tokenizer

__all__ = ["FEATURES", "prompts", "tokenizers"]

FEATURES = ("required", "fallback", "boundary", "limit", "keep", "reserve", "legacy", "tools", "pass", "media", "blank")
PRIORITIES = (None, None, None, 0, 1, 2, 3, 7, -1, 1.5)
TEXTS = ("{}", "{} ", " {}", "{}\n", "{}.{}", "{} b c", "long{}words 12")
BLANKS = ("", " ", "\n")
Props = dict[str, Any]  # Any: keyword arguments of different types


def tokenizers() -> SearchStrategy[Tokenizer]:
    """Additive ones with and without framing, and one that is additive nowhere."""
    made: tuple[Tokenizer, ...] = (Words(), Words(2, 1, 3), Chars(1, 2, 3), Runs(1, 1, 2), Runs())
    return st.sampled_from(made)


@st.composite
def prompts(draw: DrawFn, features: Sequence[str] = FEATURES, size: int = 14) -> Child:
    """A well-formed prompt of up to `size` pieces, with some of these features."""
    on = {feature for feature in features if draw(st.booleans())}
    grower = _Grower(draw, on, draw(st.integers(1, size)))
    items: list[Child] = []
    while grower.left > 0:
        items.append(grower.top(0))
    return tuple(items)


def meant(element: PromptElement) -> PromptElement:
    """The element, required only if it says something: that nothing must stay is a contradiction that no test should turn on."""
    root = Node(key=0)
    build(element, root, Words(), itertools.count(1))
    return element.replace(required=False) if element.required and is_empty(root) else element


@attrs.define
class _Grower:
    draw: DrawFn
    on: set[str]
    left: int
    serial: int = 0
    answered: list[str] = attrs.field(factory=list[str])

    def chance(self, percent: int, feature: str = "") -> bool:
        return (not feature or feature in self.on) and self.draw(st.integers(0, 99)) >= 100 - percent

    def pick(self, *options: Callable[[], Child]) -> Child:
        return self.draw(st.sampled_from(options))()

    def props(self, *, inside: bool, tool: str = "") -> Props:
        made: Props = {"priority": self.draw(st.sampled_from(PRIORITIES))}
        if self.chance(12, "required"):
            made["required"] = True
        if self.chance(20, "fallback"):
            made["fallback"] = self.instead(inside=inside, tool=tool)
        return made

    def instead(self, *, inside: bool, tool: str) -> Child:
        if tool:
            return ToolMessage(tool_call_id=tool)["cut"] if self.chance(50) else UserMessage()["instead"]
        if not inside:
            return UserMessage(priority=self.draw(st.sampled_from(PRIORITIES)))["instead"]
        options: tuple[Child, ...] = ("…", TextChunk()["short"], (Text(priority=1)["one "], TextChunk(priority=0)["two"]))
        return self.draw(st.sampled_from(options))

    def scoped(self) -> Props:
        return {"pass_priority": True} if self.chance(25, "pass") else {}

    def text(self) -> str:
        self.left -= 1
        self.serial += 1
        if self.chance(20, "blank"):
            return self.draw(st.sampled_from(BLANKS))
        return self.draw(st.sampled_from(TEXTS)).format(f"w{self.serial}", self.serial)

    def top(self, depth: int) -> Child:
        options: list[Callable[[], Child]] = [self.message, self.message]
        if "tools" in self.on:
            options += [self.round, self.round]
        if "reserve" in self.on and depth == 0:
            options.append(lambda: Reserve(tokens=self.draw(st.integers(0, 5))))
            self.left -= 1
        if depth < 3:
            options.append(lambda: self.container(depth, inside=False, child=self.top))
        return self.pick(*options)

    def container(self, depth: int, *, inside: bool, child: Callable[[int], Child]) -> Child:
        props = {**self.props(inside=inside), **self.scoped()}
        kinds: list[Callable[[], PromptElement]] = [
            lambda: Group(**props),
            lambda: Chunk(**props),
            lambda: PrioritizedList(descending=self.draw(st.booleans()), **props),
        ]
        if "keep" in self.on:
            kinds += [lambda: KeepWith(group=self.draw(st.integers(1, 2)), **props)] * 3
        if "limit" in self.on:
            kinds += [lambda: TokenLimit(max_tokens=self.draw(st.integers(1, 14)), **props)] * 2
        if "legacy" in self.on:
            kinds.append(lambda: LegacyPrioritization(priority=props["priority"]))
        made = self.draw(st.sampled_from(kinds))()
        children = [child(depth + 1) for _ in range(self.draw(st.integers(0, 3)))]
        if not children:
            self.left -= 1
        return meant(made[children] if children else made)

    def message(self) -> Child:
        role = self.draw(st.sampled_from((UserMessage, SystemMessage, AssistantMessage)))
        made = role(name=self.draw(st.sampled_from((None, None, "n"))), **self.props(inside=False))
        return meant(made[self.content()])

    def content(self) -> list[Child]:
        children = [self.inline(0) for _ in range(self.draw(st.integers(0, 3)))]
        if self.chance(20, "boundary"):
            children.insert(self.draw(st.integers(0, len(children))), CacheBoundary())
        self.left -= not children
        return children

    def inline(self, depth: int) -> Child:
        options: list[Callable[[], Child]] = [
            self.text,
            lambda: meant(Text(**self.props(inside=True))[self.text()]),
            lambda: meant(TextChunk(**self.props(inside=True))[self.text()]),
            lambda: meant(TextChunk(**self.props(inside=True))[self.text()]),
        ]
        if "media" in self.on:
            self.left -= 1
            options.append(lambda: Image(src="https://x/y.png", **self.props(inside=True)))
            options.append(lambda: Opaque(value={"a": 1}, tokens=2, **self.props(inside=True)))
        if depth < 3:
            options += [lambda: self.container(depth, inside=True, child=self.inline)] * 2
        return self.pick(*options)

    def round(self) -> Child:
        ids: list[str] = []
        for _ in range(self.draw(st.integers(1, 2))):
            self.serial += 1
            again = [known for known in self.answered if known not in ids]
            ids.append(self.draw(st.sampled_from(again)) if again and self.chance(15) else f"c{self.serial}")
        calls = [ToolCall(id=made, name="f") for made in ids]
        said = AssistantMessage(tool_calls=calls, **self.props(inside=False))[self.content()]
        results = [self.wrapped(ToolMessage(tool_call_id=made, **self.props(inside=False, tool=made))[self.content()]) for made in ids]
        self.answered += ids
        return self.wrapped((said, *results))

    def wrapped(self, child: Child) -> Child:
        if not self.chance(25):
            return child
        props = {**self.props(inside=False), **self.scoped()}
        return self.pick(
            lambda: Chunk(**props)[child],
            lambda: Group(**props)[child],
            lambda: KeepWith(group=1, **props)[child] if "keep" in self.on else child,
        )
