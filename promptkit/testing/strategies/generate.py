"""How random prompts grow: piece by piece, each drawn as a whole, so that hypothesis can take it out again when it shrinks.

Whether an element says anything, as far as that can be told without rendering it.
Elements that stand for users' own in random prompts: a component that looks at its room, and the value of an Expandable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import attrs
from hypothesis import strategies as st

from promptkit.element import Child, PromptElement, Sizing, component
from promptkit.elements.chat import AssistantMessage, SystemMessage, ToolMessage, ToolRound, UserMessage
from promptkit.elements.layout import (
    CacheBreakpoint,
    Chunk,
    First,
    Group,
    IfEmpty,
    Isolate,
    KeepWith,
    LegacyPrioritization,
    PrioritizedList,
    Reserve,
    TokenLimit,
)
from promptkit.elements.media import Document, Image, Metadata, Opaque, Reference
from promptkit.elements.template.template import Template
from promptkit.elements.text import Expandable, Tag, Text, TextChunk, Truncate
from promptkit.messages import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

__all__ = ["DEPTH", "Feature", "Filled", "Grower", "Sized", "meant", "says"]


_SAYS_WHAT_ITS_CHILDREN_SAY = (
    Chunk,
    First,
    Group,
    Isolate,
    KeepWith,
    LegacyPrioritization,
    PrioritizedList,
    SystemMessage,
    Text,
    TextChunk,
    TokenLimit,
    UserMessage,
)


def meant(element: PromptElement) -> PromptElement:
    """The element, required only if it says something: that nothing must stay is a contradiction that no test should turn on."""
    return element.replace(required=False) if element.required and not says(element) else element


def says(element: PromptElement) -> bool:
    """Whether an element shows anything but white space. What only a render can tell is taken to."""
    stack: list[str | PromptElement | None] = [element]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if item.strip():
                return True
        elif (
            isinstance(item, _SAYS_WHAT_ITS_CHILDREN_SAY)
            or (isinstance(item, AssistantMessage) and not item.tool_calls)
            or (isinstance(item, Tag | IfEmpty) and item.children)
        ):
            stack.extend(item.children)
        elif item is not None and not isinstance(item, Reference | Metadata):
            return True
    return False


@component
class Sized(PromptElement):
    """A component that looks at its room: its text where there is some, a word where there is none."""

    text: str
    """What it says where it has room."""

    def render(self, sizing: Sizing) -> Child:
        """The text, if it may fill anything."""
        return self.text if sizing.token_budget else "full"


@attrs.frozen
class Filled:
    """The value of an Expandable: as many words as there is room for, up to `most`."""

    word: str
    most: int

    def __call__(self, sizing: Sizing) -> str:
        """The words, with single spaces between them."""
        return " ".join([self.word] * min(self.most, sizing.token_budget))


Feature: TypeAlias = Literal[
    "alternatives",
    "attached",
    "blank",
    "breakpoint",
    "components",
    "cuts",
    "documents",
    "fallback",
    "flex",
    "isolate",
    "keep",
    "legacy",
    "limit",
    "media",
    "names",
    "pass",
    "required",
    "reserve",
    "rounds",
    "tags",
    "templates",
    "tools",
]

PRIORITIES = (None, None, None, 0, 1, 2, 3, 7, -1, 1.5)
TEXTS = ("{}", "{} ", " {}", "{}\n", "{}.{}", "{} b c", "long{}words 12")
BLANKS = ("", " ", "\n")
DEPTH = 3
Props = dict[str, Any]  # Any: keyword arguments of different types
T = TypeVar("T")

_KEEPS: SearchStrategy[Literal["head", "tail", "middle"]] = st.sampled_from(("head", "tail", "middle"))


@st.composite
def _whole(draw: DrawFn, grow: Callable[[DrawFn], T]) -> T:
    return grow(draw)


@attrs.define
class Grower:
    """One prompt that grows: which features it may have, how many pieces it still may, and what ids and texts it has had."""

    draw: DrawFn
    on: set[Feature]
    left: int
    serial: int = 0
    answered: list[str] = attrs.field(factory=list[str])

    def prompt(self) -> tuple[Child, ...]:
        """The whole: at least one piece at the top."""
        return tuple(self._several(lambda: self._top(0), least=1, most=self.left, percent=90))

    def _chance(self, percent: int, feature: Feature | None = None) -> bool:
        """Whether something happens; in the smallest example it does not."""
        return (feature is None or feature in self.on) and self.draw(st.integers(0, 99)) >= 100 - percent

    def _several(self, grow: Callable[[], Child], *, least: int = 0, most: int = DEPTH, percent: int = 70) -> list[Child]:
        """Up to `most` pieces, and none when no more are left. Each is drawn as one thing."""
        made: list[Child] = []

        def one(_: DrawFn) -> tuple[Child, ...]:
            wanted = self.left > 0 and self._chance(percent)  # drawn for the first as well, so that any other can take its place
            return (grow(),) if wanted or len(made) < least else ()

        while len(made) < most and (piece := self.draw(_whole(one))):
            made += piece
        return made

    def _pick(self, options: Sequence[Callable[[], T]]) -> T:
        """One of these; the first in the smallest example."""
        return options[self.draw(st.integers(0, len(options) - 1))]()

    def _one_of(self, *values: T) -> T:
        return self.draw(st.sampled_from(values))

    def _props(self, *, inside: bool, tool: str = "") -> Props:
        """Props that every element has."""
        made: Props = {"priority": self.draw(st.sampled_from(PRIORITIES))}
        if self._chance(12, "required"):
            made["required"] = True
        if self._chance(20, "fallback"):
            made["fallback"] = self._instead(inside=inside, tool=tool)
        if self._chance(25, "flex"):
            made["flex_grow"] = self._one_of(None, 1, 2, 0)
            made["flex_basis"] = self._one_of(1, 2, 0, 0.5)
            made["flex_reserve"] = self._one_of(None, 2, "/2", "/3")
        return made

    def _scoped(self) -> Props:
        """Props that only make a difference on containers."""
        made: Props = {"pass_priority": True} if self._chance(25, "pass") else {}
        if self._chance(25, "names"):
            made["name"] = self._marked("n{1}")
        return made

    def _instead(self, *, inside: bool, tool: str) -> Child:
        if tool:
            return ToolMessage(tool_call_id=tool)["cut"] if self._chance(50) else UserMessage()["instead"]
        if not inside:
            return UserMessage(priority=self.draw(st.sampled_from(PRIORITIES)))["instead"]
        short: tuple[Child, ...] = ("…", TextChunk()["short"], (Text(priority=1)["one "], TextChunk(priority=0)["two"]))
        return self._one_of(*short)

    def _marked(self, form: str) -> str:
        """A text with a mark that no other text of the prompt has."""
        self.serial += 1
        return form.format(f"w{self.serial}", self.serial)

    def _text(self) -> str:
        self.left -= 1
        if self._chance(20, "blank"):
            return self._one_of(*BLANKS)
        return self._marked(self._one_of(*TEXTS))

    def _top(self, depth: int) -> Child:
        """A piece that may stand outside messages."""
        options: list[Callable[[], Child]] = [self._message, self._message]
        if "tools" in self.on:
            options += [self._round, self._round]
        if "rounds" in self.on:
            options.append(self._tool_round)
        if "reserve" in self.on and depth == 0:
            options.append(self._reserve)
        if "attached" in self.on:
            options.append(self._attached)
        if depth < DEPTH:
            options.append(lambda: self._container(depth, inside=False, child=self._top))
        return self._pick(options)

    def _container(self, depth: int, *, inside: bool, child: Callable[[int], Child]) -> Child:
        """Something around pieces that may stand where it stands."""
        props = {**self._props(inside=inside), **self._scoped()}
        kinds: list[Callable[[], PromptElement]] = [
            lambda: Group(**props),
            lambda: Chunk(**props),
            lambda: PrioritizedList(descending=self.draw(st.booleans()), **props),
        ]
        if "keep" in self.on:
            kinds += [lambda: KeepWith(group=self._one_of(1, 2), **props)] * 3
        if "limit" in self.on:
            kinds += [lambda: TokenLimit(max_tokens=self.draw(st.integers(1, 14)), **props)] * 2
        if "legacy" in self.on:
            kinds.append(lambda: LegacyPrioritization(priority=props["priority"]))
        if "isolate" in self.on:
            kinds.append(lambda: Isolate(tokens=self.draw(st.integers(0, 14)), **props))
        if "alternatives" in self.on:
            kinds += [lambda: First(**props), lambda: IfEmpty(alt=self._instead(inside=inside, tool=""), **props)]
        if "tags" in self.on and inside:
            kinds += [lambda: Tag(tag="t", attributes=self._one_of({}, {"of": '"a" & b'}), **props)] * 2
        made = self._pick(kinds)
        children = self._several(lambda: child(depth + 1))
        if isinstance(made, First):  # whose children are alternatives: what belongs together is one of them
            children = [Group()[each] if isinstance(each, tuple) else each for each in children]
            children += [None] * self._chance(30)
        self.left -= not children
        return meant(made[children] if children else made)

    def _message(self) -> Child:
        role = self._one_of(UserMessage, SystemMessage, AssistantMessage)
        made = role(name=self._one_of(None, None, "n"), **self._props(inside=False))
        return meant(made[self._content()])

    def _content(self) -> list[Child]:
        """What stands in a message."""
        children = self._several(lambda: self._inline(0))
        if self._chance(20, "breakpoint"):
            made = CacheBreakpoint() if self._chance(70) else CacheBreakpoint(kind="ephemeral", ttl="1h")
            children.insert(self.draw(st.integers(0, len(children))), made)
        self.left -= not children
        return children

    def _inline(self, depth: int) -> Child:
        """A piece that may stand in a message."""
        options: list[Callable[[], Child]] = [
            self._text,
            lambda: meant(Text(**self._props(inside=True))[self._text()]),
            lambda: meant(TextChunk(**self._props(inside=True))[self._text()]),
            lambda: meant(TextChunk(**self._props(inside=True))[self._text()]),
        ]
        if "media" in self.on:
            options.append(lambda: self._part(Image(src="https://x/y.png", **self._props(inside=True))))
            options.append(lambda: self._part(Opaque(value={"a": 1}, tokens=2, **self._props(inside=True))))
        if "documents" in self.on:
            options.append(lambda: self._part(Document(data="aGk=", media_type="text/plain", tokens=3, **self._props(inside=True))))
        if "attached" in self.on:
            options.append(self._attached)
        if "cuts" in self.on:
            options += [self._truncated, self._broken]
            options.append(lambda: Expandable(value=Filled(self._text(), self.draw(st.integers(0, 5))), **self._props(inside=True)))
        if "components" in self.on:
            options.append(lambda: Sized(text=self._text(), **self._props(inside=True), **self._scoped()))
        if "templates" in self.on:
            options.append(lambda: Template(source="{{ text }} {{ text }}", values={"text": self._text()}, **self._props(inside=True)))
        if depth < DEPTH:
            options += [lambda: self._container(depth, inside=True, child=self._inline)] * 2
        return self._pick(options)

    def _part(self, made: PromptElement) -> Child:
        self.left -= 1
        return made

    def _reserve(self) -> Child:
        return self._part(Reserve(tokens=self.draw(st.integers(0, 5))))

    def _attached(self) -> Child:
        to = self._marked("{}.py")
        return self._part(Reference(to=to) if self._chance(50) else Metadata(value=to, local=self.draw(st.booleans())))

    def _truncated(self) -> Child:
        tokens = self._one_of(None, 0, 1, 3)
        keep = self.draw(_KEEPS)
        texts = [self._text(), *self._several(self._text)]
        return Truncate(keep=keep, tokens=tokens, marker=self._one_of("[…]", ""), **self._props(inside=True))[texts]

    def _broken(self) -> Child:
        words = " ".join([self._text(), *(self._marked("{}") for _ in range(self.draw(st.integers(0, 3))))])
        cut: Props = self._one_of({"break_on_whitespace": True}, {"break_on": " "}, {"break_on": "\n"})
        return TextChunk(**cut, **self._props(inside=True))[words]

    def _calls(self) -> list[ToolCall]:
        """One call or two; now and then with an id that was answered before."""
        ids: list[str] = []
        for _ in range(self.draw(st.integers(1, 2))):
            fresh = self._marked("c{1}")
            again = [known for known in self.answered if known not in ids]
            ids.append(self.draw(st.sampled_from(again)) if again and self._chance(15) else fresh)
        self.answered += ids
        return [ToolCall(id=made, name="f") for made in ids]

    def _round(self) -> Child:
        """An assistant message with calls, and their results behind it, each perhaps in a container of its own."""
        calls = self._calls()
        groups = {call.id: self._one_of(1, 2) for call in calls if self._chance(30, "keep")}
        said = AssistantMessage(tool_calls=calls, keep_with=groups, **self._props(inside=False))[self._content()]
        results = [
            self._wrapped(ToolMessage(tool_call_id=call.id, **self._props(inside=False, tool=call.id))[self._content()]) for call in calls
        ]
        return self._wrapped((said, *results))

    def _tool_round(self) -> Child:
        calls = self._calls()
        results: dict[str, Child] = {call.id: self._content() if self._chance(80) else None for call in calls}
        return ToolRound(calls=calls, results=results, text=self._content() if self._chance(50) else None, **self._props(inside=False))

    def _wrapped(self, child: Child) -> Child:
        if not self._chance(25):
            return child
        props = {**self._props(inside=False), **self._scoped()}
        kinds: list[PromptElement] = [Chunk(**props), Group(**props)]
        if "keep" in self.on:
            kinds.append(KeepWith(group=1, **props))
        return self._one_of(*kinds)[child]
