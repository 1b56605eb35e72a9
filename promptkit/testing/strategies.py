"""Random prompts, messages and conversations for hypothesis, to test properties that hold for every prompt.

Needs hypothesis: `pip install 'hypothesis>=6.100'`. Each element of a prompt is one draw, so that
hypothesis can remove it when it shrinks an example.

>>> from hypothesis import given
>>> from promptkit.testing import strategies
>>> @given(strategies.conversations())
... def test_my_prompt_takes_every_conversation(history):
...     assert_fits(MyPrompt(history=history), budget=4_000)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from promptkit import (
    AssistantMessage,
    CacheBreakpoint,
    Child,
    Chunk,
    Document,
    DocumentPart,
    Expandable,
    First,
    Group,
    IfEmpty,
    Image,
    ImagePart,
    Isolate,
    KeepWith,
    Message,
    Metadata,
    Part,
    PrioritizedList,
    PromptElement,
    Reference,
    Reserve,
    Sizing,
    SystemMessage,
    Tag,
    Template,
    Text,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    ToolRound,
    Truncate,
    UserMessage,
    component,
)
from promptkit.elements import LegacyPrioritization, Opaque
from promptkit.messages import Role

__all__ = ["FEATURES", "ROLES", "Feature", "conversations", "messages", "prompts"]

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
    "labels",
    "legacy",
    "limit",
    "media",
    "pass",
    "required",
    "reserve",
    "rounds",
    "tags",
    "templates",
    "tools",
]

FEATURES: tuple[Feature, ...] = get_args(Feature)
"""What a prompt may have beside messages, text and containers with priorities."""

ROLES: tuple[Role, ...] = get_args(Role)

FEATURES_PER_DRAW = 6
"""Features that one number turns on and off: hypothesis draws small numbers evenly, and prefers the
low ones of a wide range."""

DrawnTurn: TypeAlias = "tuple[Message, list[tuple[str, list[tuple[str, str, str]]]], str | None]"
"""The user message; the rounds, each with the model's text and its tool calls (name, arguments,
text of the result); the answer."""


@st.composite
def prompts(
    draw: DrawFn, *, features: Collection[Feature] = FEATURES, size: int = 14
) -> tuple[Child, ...]:
    """Generate a well-formed prompt.

    It renders with every tokenizer, and at every budget that its required parts fit;
    `BudgetExceededError` is the only error that a render of it may raise. Every text has a mark of
    its own, `w1`, `w2` and so on, by which a test can tell what was kept.

    Args:
        draw: Passed by hypothesis.
        features: What a prompt may have beside messages, text and containers; each example uses
            some of them.
        size: About how many elements a prompt may have.

    Raises:
        ValueError: A feature is unknown.
    """
    if unknown := [feature for feature in features if feature not in FEATURES]:
        raise ValueError(f"unknown feature {unknown[0]!r}: use some of {', '.join(FEATURES)}.")
    enabled: set[Feature] = set()
    for start in range(0, len(features), FEATURES_PER_DRAW):
        group = tuple(features)[start : start + FEATURES_PER_DRAW]
        # one number for several features, because each draw takes time
        switches = draw(st.integers(0, 2 ** len(group) - 1))
        enabled.update(feature for index, feature in enumerate(group) if switches >> index & 1)
    return PromptGenerator(draw, enabled, draw(st.integers(1, size))).prompt()


def messages(
    *, roles: Sequence[Role] = ROLES, texts: SearchStrategy[str] | None = None
) -> SearchStrategy[Message]:
    """Return a strategy for single messages, with all that their roles may have: images and documents, tool calls, a name.

    Tool calls have no results here, and results no calls; `conversations` has both.

    Args:
        roles: The roles that a message may have.
        texts: A strategy for texts in place of the default.
    """
    content = _TEXTS if texts is None else texts
    return st.sampled_from(tuple(roles)).flatmap(lambda role: _generate_message(role, content))


def conversations(
    *,
    turns: int = 5,
    system: bool | None = None,
    tools: bool = True,
    texts: SearchStrategy[str] | None = None,
) -> SearchStrategy[tuple[Message, ...]]:
    """Return a strategy for conversations that every provider accepts.

    A turn is a user message, rounds of tool calls with all of their results right behind them, and
    the answer, which may be missing after the last turn only. The ids of tool calls are unique.

    Args:
        turns: The largest number of turns.
        system: Whether a system message comes first; None generates one now and then.
        tools: Whether there are tool calls.
        texts: A strategy for texts in place of the default. No text should be blank, because some
            providers refuse those.
    """
    content = _TEXTS if texts is None else texts
    calls = st.lists(st.tuples(_TOOLS, _ARGUMENTS, content), min_size=1, max_size=3)
    turn: SearchStrategy[DrawnTurn] = st.tuples(
        _generate_message("user", content),
        st.lists(st.tuples(st.just("") | content, calls), max_size=2 if tools else 0),
        st.none() | content,
    )
    return st.tuples(
        {None: st.none() | content, True: content, False: st.none()}[system],
        st.lists(turn, max_size=turns),
    ).map(_build_conversation)


# Texts with a meaning in JSON, XML, Markdown, Jinja, vocabularies or terminals, and texts that are
# hard to cut. Not `st.text()`: before its first example hypothesis prepares all of Unicode and
# searches the program for constants, which takes seconds on a busy machine.
_NARROW = (
    "a",
    "word",
    "two words",
    "42",
    "A sentence.",
    '"',
    "\\n",
    "</user>",
    "&amp;",
    "```",
    "{{ x }}",
    "<|im_end|>",
    "\u00e9",
    "e\u0301",
)
_WIDE = (
    "\u6f22\u5b57",
    "\u05d0\u05d1",
    "\U0001f389",
    "\U0001f469\u200d\U0001f52c",
    "\U0001f1e9\U0001f1ea",
    "\ufdfa",
    "\x1b[31m",
)
_REST = st.lists(
    st.sampled_from(
        [
            before + piece
            for before in (" ", "\n", "", "\r\n", "\t", "\u00a0", "\u200b", "\n\n")
            for piece in (*_NARROW, *_WIDE, "")
        ]
    ),
    max_size=3,
)
_TEXTS = st.tuples(st.sampled_from((*_NARROW, *_WIDE)), _REST).map(
    lambda pieces: pieces[0] + "".join(pieces[1])
)
_TOOLS: SearchStrategy[str] = st.sampled_from(("read", "search"))
_ARGUMENTS: SearchStrategy[str] = st.sampled_from(
    ("{}", '{"path": "a.py"}', '{ "query": "\\u00e9", "limit": 3 }', "")
)
_CALL_IDS = st.integers(1, 99).map("c{}".format)
_CALLS = st.builds(ToolCall, id=_CALL_IDS, name=_TOOLS, arguments=_ARGUMENTS)
_PARTS: SearchStrategy[Part] = st.sampled_from(
    (
        ImagePart(url="https://example.org/a.png", width=640, height=480),
        ImagePart(url="data:image/gif;base64,R0lGODlhAQABAAAAACw=", detail="low"),
        DocumentPart(data="JVBERi0=", media_type="application/pdf", name="a.pdf", tokens=20),
    )
)


def _generate_message(role: Role, texts: SearchStrategy[str]) -> SearchStrategy[Message]:
    parts = st.lists(_PARTS, max_size=2 if role == "user" else 0)
    others: Mapping[str, Mapping[str, SearchStrategy[object]]] = {
        "user": {"name": st.sampled_from((None, None, "ada"))},
        "assistant": {
            "tool_calls": st.lists(_CALLS, max_size=2, unique_by=lambda call: call.id).map(tuple)
        },
        "tool": {"tool_call_id": _CALL_IDS},
    }
    return st.builds(
        Message,
        role=st.just(role),
        content=st.tuples(texts, parts).map(lambda pair: (pair[0], *pair[1])),
        **others.get(role, {}),
    )


def _build_conversation(drawn: tuple[str | None, list[DrawnTurn]]) -> tuple[Message, ...]:
    system, turns = drawn
    messages = [] if system is None else [Message(role="system", content=(system,))]
    numbers = count(1)
    for index, (question, rounds, answer) in enumerate(turns):
        messages.append(question)
        for text, drawn_calls in rounds:
            calls = tuple(
                ToolCall(id=f"c{next(numbers)}", name=name, arguments=arguments)
                for name, arguments, _ in drawn_calls
            )
            messages += [
                Message(role="assistant", content=(text,) if text else (), tool_calls=calls),
                *(
                    Message(role="tool", content=(result,), tool_call_id=call.id)
                    for call, (_, _, result) in zip(calls, drawn_calls, strict=True)
                ),
            ]
        if answer is not None or index < len(turns) - 1:
            messages.append(Message(role="assistant", content=(answer or "Done.",)))
    return tuple(messages)


PRIORITIES = (None, None, None, 0, 1, 2, 3, 7, -1, 1.5)
TEXTS = ("{}", "{} ", " {}", "{}\n", "{}.{}", "{} b c", "long{}words 12")
MAX_DEPTH = 3
Props = dict[str, Any]  # Any: keyword arguments of different types
T = TypeVar("T")


@st.composite
def _draw_as_one(draw: DrawFn, generate: Callable[[DrawFn], T]) -> T:
    return generate(draw)


@attrs.define
class PromptGenerator:
    """Generates one prompt.

    Args:
        draw: hypothesis's function that draws a value.
        features: What the prompt may have beside messages, text and containers with priorities.
        left: How many elements it may still get.
        serial: The number of the last mark.
        answered: Ids of tool calls so far.
    """

    draw: DrawFn
    features: set[Feature]
    left: int
    serial: int = 0
    answered: list[str] = attrs.field(factory=list[str])

    def prompt(self) -> tuple[Child, ...]:
        """Generate the prompt, with at least one element at the top."""
        return tuple(
            self._generate_several(
                lambda: self._generate_top_level(0), min_items=1, max_items=self.left, percent=90
            )
        )

    def _draw_chance(self, percent: int, feature: Feature | None = None) -> bool:
        """Draw whether something happens; in the smallest example it does not."""
        return (feature is None or feature in self.features) and self.draw(
            st.integers(0, 99)
        ) >= 100 - percent

    def _generate_several(
        self,
        generate: Callable[[], Child],
        *,
        min_items: int = 0,
        max_items: int = MAX_DEPTH,
        percent: int = 70,
    ) -> list[Child]:
        """Generate up to `max_items` elements, none when none are left.

        Each is drawn as one value.
        """
        items: list[Child] = []

        def draw_one(_: DrawFn) -> tuple[Child, ...]:
            # drawn for the first as well, so that any other can take its place
            return (
                (generate(),)
                if (self.left > 0 and self._draw_chance(percent)) or len(items) < min_items
                else ()
            )

        while len(items) < max_items and (item := self.draw(_draw_as_one(draw_one))):
            items += item
        return items

    def _list_enabled(self, *options: tuple[Feature, Callable[[], T]]) -> list[Callable[[], T]]:
        """List the functions whose feature the prompt may have."""
        return [generate for feature, generate in options if feature in self.features]

    def _pick(self, options: Sequence[Callable[[], T]]) -> T:
        """Call one of these functions; the first in the smallest example."""
        return options[self.draw(st.integers(0, len(options) - 1))]()

    def _draw_one_of(self, *values: T) -> T:
        return self.draw(st.sampled_from(values))

    def _generate_props(self, *, inside: bool, tool: str = "") -> Props:
        """Generate props that every element has."""
        props: Props = {"priority": self.draw(st.sampled_from(PRIORITIES))}
        if self._draw_chance(12, "required"):
            props["required"] = True
        if self._draw_chance(20, "fallback"):
            props["fallback"] = self._generate_fallback(inside=inside, tool=tool)
        if self._draw_chance(25, "flex"):
            props["flex_grow"] = self._draw_one_of(None, 1, 2, 0)
            props["flex_basis"] = self._draw_one_of(1, 2, 0, 0.5)
            props["flex_reserve"] = self._draw_one_of(None, 2, "/2", "/3")
        return props

    def _generate_container_props(self) -> Props:
        """Generate props that only make a difference on containers."""
        props: Props = {"pass_priority": True} if self._draw_chance(25, "pass") else {}
        if self._draw_chance(25, "labels"):
            props["label"] = self._mark("n{1}")
        return props

    def _generate_fallback(self, *, inside: bool, tool: str) -> Child:
        if tool:
            return (
                ToolMessage(tool_call_id=tool)["cut"]
                if self._draw_chance(50)
                else UserMessage()["instead"]
            )
        if not inside:
            return UserMessage(priority=self.draw(st.sampled_from(PRIORITIES)))["instead"]
        short: tuple[Child, ...] = (
            "…",
            TextChunk()["short"],
            (Text(priority=1)["one "], TextChunk(priority=0)["two"]),
        )
        return self._draw_one_of(*short)

    def _mark(self, form: str) -> str:
        """Put a mark into a text that no other text of the prompt has."""
        self.serial += 1
        return form.format(f"w{self.serial}", self.serial)

    def _generate_text(self) -> str:
        self.left -= 1
        return (
            self._draw_one_of("", " ", "\n")
            if self._draw_chance(20, "blank")
            else self._mark(self._draw_one_of(*TEXTS))
        )

    def _generate_top_level(self, depth: int) -> Child:
        """Generate an element that may stand outside messages."""
        options: list[Callable[[], Child]] = [
            self._generate_message,
            self._generate_message,
            *self._list_enabled(
                ("tools", self._generate_round),
                ("tools", self._generate_round),
                ("rounds", self._generate_tool_round),
            ),
            *(
                self._list_enabled(
                    (
                        "reserve",
                        lambda: self._count_element(Reserve(tokens=self.draw(st.integers(0, 5)))),
                    )
                )
                if depth == 0
                else ()
            ),
            *self._list_enabled(("attached", self._generate_reference_or_metadata)),
        ]
        if depth < MAX_DEPTH:
            options.append(
                lambda: self._generate_container(
                    depth, inside=False, child=self._generate_top_level
                )
            )
        return self._pick(options)

    def _generate_container(
        self, depth: int, *, inside: bool, child: Callable[[int], Child]
    ) -> Child:
        """Generate a container with children that are allowed at the same place."""
        props = {**self._generate_props(inside=inside), **self._generate_container_props()}
        kinds: list[Callable[[], PromptElement]] = [
            lambda: Group(**props),
            lambda: Chunk(**props),
            lambda: PrioritizedList(descending=self.draw(st.booleans()), **props),
            *self._list_enabled(("keep", lambda: KeepWith(group=self._draw_one_of(1, 2), **props)))
            * 3,
            *self._list_enabled(
                ("limit", lambda: TokenLimit(max_tokens=self.draw(st.integers(1, 14)), **props))
            )
            * 2,
            *self._list_enabled(
                ("legacy", lambda: LegacyPrioritization(priority=props["priority"])),
                ("isolate", lambda: Isolate(tokens=self.draw(st.integers(0, 14)), **props)),
                ("alternatives", lambda: First(**props)),
                (
                    "alternatives",
                    lambda: IfEmpty(alt=self._generate_fallback(inside=inside, tool=""), **props),
                ),
            ),
            *self._list_enabled(
                (
                    "tags",
                    lambda: Tag(
                        tag="t", attributes=self._draw_one_of({}, {"of": '"a" & b'}), **props
                    ),
                )
            )
            * (2 * inside),
        ]
        container = self._pick(kinds)
        children = self._generate_several(lambda: child(depth + 1))
        # its children are alternatives, so calls and results that belong together are one child
        if isinstance(container, First):
            children = [Group()[each] if isinstance(each, tuple) else each for each in children]
            children += [None] * self._draw_chance(30)
        self.left -= not children
        return drop_empty_required(container[children] if children else container)

    def _generate_message(self) -> Child:
        message = self._draw_one_of(UserMessage, SystemMessage, AssistantMessage)(
            name=self._draw_one_of(None, None, "n"), **self._generate_props(inside=False)
        )
        return drop_empty_required(message[self._generate_content()])

    def _generate_content(self) -> list[Child]:
        """Generate the content of a message."""
        children = self._generate_several(lambda: self._generate_inline(0))
        if self._draw_chance(20, "breakpoint"):
            long: Props = {} if self._draw_chance(70) else {"kind": "ephemeral", "ttl": "1h"}
            children.insert(self.draw(st.integers(0, len(children))), CacheBreakpoint(**long))
        self.left -= not children
        return children

    def _generate_inline(self, depth: int) -> Child:
        """Generate an element that may stand inside a message."""
        options: list[Callable[[], Child]] = [
            self._generate_text,
            lambda: drop_empty_required(
                Text(**self._generate_props(inside=True))[self._generate_text()]
            ),
            lambda: drop_empty_required(
                TextChunk(**self._generate_props(inside=True))[self._generate_text()]
            ),
            lambda: drop_empty_required(
                TextChunk(**self._generate_props(inside=True))[self._generate_text()]
            ),
        ]
        options += self._list_enabled(
            (
                "media",
                lambda: self._count_element(
                    Image(url="https://x/y.png", **self._generate_props(inside=True))
                ),
            ),
            (
                "media",
                lambda: self._count_element(
                    Opaque(value={"a": 1}, tokens=2, **self._generate_props(inside=True))
                ),
            ),
            (
                "documents",
                lambda: self._count_element(
                    Document(
                        data="aGk=",
                        media_type="text/plain",
                        tokens=3,
                        **self._generate_props(inside=True),
                    )
                ),
            ),
            ("attached", self._generate_reference_or_metadata),
            ("cuts", self._generate_truncate),
            ("cuts", self._generate_breaking_chunk),
            (
                "cuts",
                lambda: Expandable(
                    value=RepeatedWord(self._generate_text(), self.draw(st.integers(0, 5))),
                    **self._generate_props(inside=True),
                ),
            ),
            (
                "components",
                lambda: SizedText(
                    text=self._generate_text(),
                    **self._generate_props(inside=True),
                    **self._generate_container_props(),
                ),
            ),
            (
                "templates",
                lambda: Template(
                    source="{{ text }} {{ text }}",
                    values={"text": self._generate_text()},
                    **self._generate_props(inside=True),
                ),
            ),
        )
        if depth < MAX_DEPTH:
            options += [
                lambda: self._generate_container(depth, inside=True, child=self._generate_inline)
            ] * 2
        return self._pick(options)

    def _count_element(self, made: PromptElement) -> Child:
        self.left -= 1
        return made

    def _generate_reference_or_metadata(self) -> Child:
        to = self._mark("{}.py")
        return self._count_element(
            Reference(to=to)
            if self._draw_chance(50)
            else Metadata(value=to, local=self.draw(st.booleans()))
        )

    def _generate_truncate(self) -> Child:
        return Truncate(
            keep=self._draw_one_of("head", "tail", "middle"),
            max_tokens=self._draw_one_of(None, 0, 1, 3),
            marker=self._draw_one_of("[…]", ""),
            **self._generate_props(inside=True),
        )[[self._generate_text(), *self._generate_several(self._generate_text)]]

    def _generate_breaking_chunk(self) -> Child:
        words = " ".join(
            [
                self._generate_text(),
                *(self._mark("{}") for _ in range(self.draw(st.integers(0, 3)))),
            ]
        )
        cut: Props = self._draw_one_of(
            {"break_on_whitespace": True}, {"break_on": " "}, {"break_on": "\n"}
        )
        return TextChunk(**cut, **self._generate_props(inside=True))[words]

    def _generate_calls(self) -> list[ToolCall]:
        """Generate one or two tool calls, now and then with an id that was answered before."""
        ids: list[str] = []
        for _ in range(self.draw(st.integers(1, 2))):
            fresh = self._mark("c{1}")
            again = [known for known in self.answered if known not in ids]
            ids.append(
                self.draw(st.sampled_from(again)) if again and self._draw_chance(15) else fresh
            )
        self.answered += ids
        return [ToolCall(id=call_id, name="f") for call_id in ids]

    def _generate_round(self) -> Child:
        """Generate an assistant message with tool calls and their results, each perhaps in a container of its own."""
        calls = self._generate_calls()
        message = AssistantMessage(
            tool_calls=calls,
            keep_with={
                call.id: self._draw_one_of(1, 2) for call in calls if self._draw_chance(30, "keep")
            },
            **self._generate_props(inside=False),
        )[self._generate_content()]
        return self._maybe_wrap(
            (
                message,
                *[
                    self._maybe_wrap(
                        ToolMessage(
                            tool_call_id=call.id, **self._generate_props(inside=False, tool=call.id)
                        )[self._generate_content()]
                    )
                    for call in calls
                ],
            )
        )

    def _generate_tool_round(self) -> Child:
        calls = self._generate_calls()
        return ToolRound(
            calls=calls,
            results={
                call.id: self._generate_content() if self._draw_chance(80) else None
                for call in calls
            },
            text=self._generate_content() if self._draw_chance(50) else None,
            **self._generate_props(inside=False),
        )

    def _maybe_wrap(self, child: Child) -> Child:
        if not self._draw_chance(25):
            return child
        props = {**self._generate_props(inside=False), **self._generate_container_props()}
        keep: list[PromptElement] = [KeepWith(group=1, **props)] if "keep" in self.features else []
        return self._draw_one_of(Chunk(**props), Group(**props), *keep)[child]


_SHOWS_ITS_CHILDREN = (
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


def drop_empty_required(element: PromptElement) -> PromptElement:
    """Make an element without visible content optional: a required element that shows nothing is a contradiction."""
    return (
        element.replace(required=False)
        if element.required and not has_visible_content(element)
        else element
    )


def has_visible_content(element: PromptElement) -> bool:
    """Return whether an element shows anything but white space.

    An element that only a render can decide counts as visible.
    """
    stack: list[str | PromptElement | None] = [element]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if item.strip():
                return True
        elif (
            isinstance(item, _SHOWS_ITS_CHILDREN)
            or (isinstance(item, AssistantMessage) and not item.tool_calls)
            or (isinstance(item, Tag | IfEmpty) and item.children)
        ):
            stack.extend(item.children)
        elif item is not None and not isinstance(item, Reference | Metadata):
            return True
    return False


@component
class SizedText(PromptElement):
    """A component that depends on its budget, as a user's own may: it shows its text, or the word "full" without a budget."""

    text: str
    """Shown if the component has a token budget."""

    def render(self, sizing: Sizing) -> Child:
        """Show the text, or "full" if the budget is 0."""
        return self.text if sizing.token_budget else "full"


@attrs.frozen
class RepeatedWord:
    """The value of an Expandable: one word, repeated as often as its budget allows, up to `max_words`."""

    word: str
    max_words: int

    def __call__(self, sizing: Sizing) -> str:
        """Repeat the word, with single spaces between."""
        return " ".join([self.word] * min(self.max_words, sizing.token_budget))
