"""A prompt without components is planned, not expanded.

What it shows is what the expanded tree shows, and it costs what is new in it.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import example, given, note, settings, strategies as st

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Child,
    Group,
    KeepWith,
    PromptElement,
    Rendered,
    Renderer,
    SystemMessage,
    TextChunk,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from promptkit.errors import TreeError
from promptkit.testing import WordTokenizer
from promptkit.tokens import Count, tokenizer_for
from tests.behaviour.strategies import tokenizers
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

    from promptkit.messages import Role
    from promptkit.tokens import Tokenizer

PRIORITIES = st.none() | st.integers(0, 4)
MESSAGES = (SystemMessage, UserMessage, AssistantMessage)
TEXTS = st.sampled_from(
    ["a", "two words", "some (more) words", "ends\n", "x" * 9, "and, so on;", "0 1 2"]
)
ODD_TEXTS = st.sampled_from(["", " ", " spaced", "/", "\n"])
TOOL = ToolDefinition(name="read_file", description="Read a file.")


@st.composite
def static_prompts(draw: DrawFn) -> tuple[Child, ...]:
    """Messages, lines, calls with their results, and groups of them.

    In two of three prompts nothing stands in the way of a plan.
    """
    numbers = count()
    is_odd = draw(st.sampled_from([False, False, True]))
    texts = TEXTS | ODD_TEXTS if is_odd else TEXTS
    priorities: SearchStrategy[float | None] = PRIORITIES if is_odd else st.integers(0, 10**6)

    def message(
        kind: type[PromptElement], text: str, priority: float | None, required: int
    ) -> Child:
        return kind(priority=priority, required=is_odd and required == 0)[text]

    def lines(lines: list[tuple[str, float | None]], priority: float | None) -> Child:
        return UserMessage(priority=priority)[
            [TextChunk(priority=each)[text] for text, each in lines]
        ]

    def call(
        arguments: str, text: str, priority: float | None, other: float | None, between: list[Child]
    ) -> Child:
        made = ToolCall(id=f"c{next(numbers)}", name="read_file", arguments=arguments)
        result = ToolMessage(tool_call_id=made.id, priority=other)[text]
        return [AssistantMessage(tool_calls=[made], priority=priority), *between, result]

    kinds = st.sampled_from(
        [UserMessage, AssistantMessage, UserMessage, SystemMessage]
        if is_odd
        else [UserMessage, AssistantMessage]
    )
    leaves = st.builds(message, kinds, texts, priorities, st.integers(0, 5)) | st.builds(
        lines, st.lists(st.tuples(texts, priorities), min_size=1, max_size=4), priorities
    )
    calls = st.builds(
        call,
        st.sampled_from(["{}", '{"path": "a.py"}']),
        texts,
        priorities,
        priorities,
        st.lists(leaves, max_size=1),
    )

    def group(inner: list[Child], priority: float | None) -> Child:
        return Group(priority=priority)[inner]

    level = st.lists(leaves | calls, min_size=1, max_size=4)
    for _ in range(2):
        level = st.lists(
            leaves | calls | st.builds(group, level, priorities), min_size=1, max_size=4
        )
    system: list[Child] = draw(
        st.sampled_from([[], [SystemMessage()["be brief"]], [UserMessage(required=True)["stays"]]])
    )
    return *system, *draw(level)


def outcome(renderer: Renderer, prompt: Child) -> Rendered | str:
    try:
        return renderer.render(prompt)
    except (BudgetExceededError, TreeError) as error:
        return str(error)


def check_same(
    prompt: tuple[Child, ...], tokenizer: Tokenizer, percent: int, tools: tuple[ToolDefinition, ...]
) -> None:
    whole = Renderer(budget=10_000, tokenizer=tokenizer, tools=tools).render(prompt).tokens
    budget = round(whole * percent / 100)
    note(f"{prompt!r}\n{tokenizer!r}, {budget}")
    compare(prompt, tokenizer, budget, tools)


def compare(
    prompt: tuple[Child, ...],
    tokenizer: Tokenizer,
    budget: int,
    tools: tuple[ToolDefinition, ...] = (),
) -> None:
    """Compare what the plan of a prompt gives with what its expanded tree gives."""
    planned = outcome(Renderer(budget=budget, tokenizer=tokenizer, tools=tools), prompt)
    # a trace needs the tree
    expanded = outcome(
        Renderer(budget=budget, tokenizer=tokenizer, tools=tools, trace=True), prompt
    )
    assert planned == expanded
    if isinstance(planned, Rendered) and isinstance(expanded, Rendered):
        assert planned.removals == expanded.removals
        assert planned.source_map == expanded.source_map
        for other in (budget * 3 // 4, budget * 2):
            assert at_budget(planned, other) == at_budget(expanded, other)


def at_budget(rendered: Rendered, budget: int) -> Rendered | str:
    try:
        return rendered.at_budget(budget)
    except BudgetExceededError as error:
        return str(error)


TOOLS = st.sampled_from([(), (TOOL,)])
LOWER_LINE = UserMessage()[
    TextChunk(priority=0)["a"], TextChunk(priority=2)["b c"], TextChunk(priority=1)["d e"]
]


@pytest.mark.long
@settings(max_examples=examples(300))
@example((LOWER_LINE,), WordTokenizer(), 80, ())
@example(
    (
        Group(priority=1)[UserMessage(priority=1)["a"], UserMessage(priority=2)["b"]],
        UserMessage(priority=2)["c"],
    ),
    WordTokenizer(),
    70,
    (),
)
@given(static_prompts(), tokenizers(), st.integers(20, 105), TOOLS)
def test_a_static_prompt_shows_what_its_expanded_tree_shows(
    prompt: tuple[Child, ...], tokenizer: Tokenizer, percent: int, tools: tuple[ToolDefinition, ...]
) -> None:
    check_same(prompt, tokenizer, percent, tools)


@pytest.mark.slow
@settings(max_examples=examples(4_000))
@given(
    static_prompts(), tokenizers() | st.just(tokenizer_for("gpt-4o")), st.integers(20, 105), TOOLS
)
def test_a_static_prompt_shows_what_its_expanded_tree_shows_thoroughly(
    prompt: tuple[Child, ...], tokenizer: Tokenizer, percent: int, tools: tuple[ToolDefinition, ...]
) -> None:
    check_same(prompt, tokenizer, percent, tools)


class Marked(str):
    """A text of a program that marks its texts by their class."""

    __slots__ = ()


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_text_of_a_subclass_of_str_is_a_text_as_any_other(kind: type[PromptElement]) -> None:
    prompt = kind(priority=4)[Marked("and so on")], AssistantMessage(required=True)["s"]
    for budget in range(5):
        compare(prompt, WordTokenizer(), budget)
    assert [
        type(part)
        for part in Renderer(budget=100, tokenizer=WordTokenizer())
        .render(prompt)
        .messages[0]
        .content
    ] == [str]


class EmptyCall(ToolCall):
    """A program's own call that is false, as one with the length of its arguments may be."""

    def __bool__(self) -> bool:
        return False

    def model_dump(self, **_: object) -> dict[str, object]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"type": "function", "id": self.id, "function": function}


def test_a_call_that_is_false_is_removed_as_any_other() -> None:
    def render(call: ToolCall, budget: int) -> tuple[int, list[str]]:
        rendered = Renderer(budget=budget, tokenizer=WordTokenizer(per_call=3)).render(
            (
                AssistantMessage(tool_calls=[call], priority=0),
                ToolMessage(tool_call_id="c", priority=0)["r"],
                UserMessage(priority=1)["a b c d e f g h i"],
                UserMessage()["q"],
            )
        )
        return rendered.tokens, [message.text for message in rendered.messages]

    for budget in (1, 5, 10, 14, 20):
        assert render(EmptyCall(id="c", name="f"), budget) == render(
            ToolCall(id="c", name="f"), budget
        )


def asked(name: str, priority: float | None = None) -> Child:
    return AssistantMessage(tool_calls=[ToolCall(id=name, name="read_file")], priority=priority)


def told(name: str, priority: float | None = None) -> Child:
    return ToolMessage(tool_call_id=name, priority=priority)["a result"]


USER = UserMessage(priority=9)["the task"]
LEANING: dict[str, tuple[Child, ...]] = {
    "calls around calls": (
        asked("c1", 5),
        Group(priority=2)[asked("c2", 1), told("c2", 1)],
        told("c1", 3),
        USER,
    ),
    "one id around itself": (
        asked("c1", 5),
        Group(priority=2)[asked("c1", 1), told("c1", 1)],
        told("c1", 3),
        USER,
    ),
    "one id twice": (asked("c1", 1), asked("c1", 2), told("c1", 3), told("c1", 4), USER),
    "fixed in a group": (
        Group(priority=1)[UserMessage(required=True)["stays"], UserMessage(priority=2)["goes"]],
        USER,
    ),
    "ties with a call": (
        asked("c1", 1),
        told("c1", 1),
        UserMessage(priority=1)["a b"],
        AssistantMessage(priority=1)["c"],
        USER,
    ),
    "a call and its result around a tie with both": (
        asked("c1"),
        AssistantMessage()["a b"],
        told("c1"),
        UserMessage()["the task"],
    ),
    "system": (SystemMessage(priority=1)["be brief"], AssistantMessage(priority=2)["a b c"], USER),
    "unsafe lines": (
        UserMessage()[
            [
                TextChunk(priority=each)[text]
                for each, text in enumerate(["a.", "/x", " y", "\nz", "'s"])
            ]
        ],
    ),
    "the user in lines": (
        UserMessage(priority=1)[TextChunk(priority=2)["a b"], TextChunk(priority=1)["c"]],
        AssistantMessage(priority=2)["d"],
    ),
    "two users": (
        UserMessage(required=True)["stays"],
        UserMessage(priority=1)["a b c"],
        AssistantMessage(priority=2)["d e"],
    ),
    "no user": (AssistantMessage(priority=1)["a b"], AssistantMessage(priority=2)["c d"]),
}


@pytest.mark.parametrize("tools", [(), (TOOL,)], ids=["", "tools"])
@pytest.mark.parametrize("name", LEANING)
def test_what_leans_on_other_elements_is_removed_with_them_at_every_budget(
    name: str, tools: tuple[ToolDefinition, ...]
) -> None:
    prompt = LEANING[name]
    for tokenizer in (WordTokenizer(per_message=1, per_call=1), tokenizer_for("gpt-4o")):
        whole = (
            Renderer(budget=1_000, tokenizer=tokenizer, tools=tools, pairing="lenient")
            .render(prompt)
            .tokens
        )
        for budget in range(max(0, whole - 16), whole + 1):
            compare(prompt, tokenizer, budget, tools)


@attrs.frozen(kw_only=True)
class Noting(WordTokenizer):
    """Notes every text that it counts, and every call that it frames. It keeps no counts."""

    seen: list[str]

    def count(self, text: str) -> int:
        self.seen.append(text)
        return len(text.split())

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        self.seen.extend(call.id for call in tool_calls)
        return Count(1)


def messages(numbers: range) -> tuple[Child, ...]:
    return tuple(UserMessage(priority=each)[f"message {each}"] for each in numbers)


def calls(numbers: range) -> tuple[Child, ...]:
    made: list[Child] = []
    for each in numbers:
        call = ToolCall(id=f"call {each}", name="read_file")
        made += [
            AssistantMessage(priority=each, tool_calls=[call]),
            ToolMessage(priority=each, tool_call_id=call.id)[f"result {each}"],
        ]
    return tuple(made)


def chain(numbers: range, inner: Child = ()) -> Child:
    for each in numbers:
        inner = Group(priority=0)[inner, UserMessage(priority=1)[f"message {each}"]]
    return inner


def lines(numbers: range) -> list[Child]:
    return [TextChunk(priority=each)[f"line {each}"] for each in numbers]


OLD, NEW = range(100), range(100, 102)
OLD_LINES = lines(OLD)
SHAPES: dict[str, tuple[Child, Callable[[Child], Child]]] = {
    "messages": (messages(OLD), lambda old: [old, messages(NEW)]),
    "tools": (calls(OLD), lambda old: [old, calls(NEW)]),
    "nested": (Group(priority=0)[messages(OLD)], lambda old: [old, messages(NEW)]),
    "deep": (chain(OLD), lambda old: chain(NEW, old)),
    "lines": (UserMessage()[OLD_LINES], lambda _: UserMessage()[OLD_LINES, lines(NEW)]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_next_render_counts_only_what_is_new(shape: str) -> None:
    old, extend = SHAPES[shape]
    seen: list[str] = []
    renderer = Renderer(budget=10_000, tokenizer=Noting(seen=seen))
    renderer.render(old)
    counted = [text.strip() for text in seen]
    # a call and its result
    assert len([text for text in counted if text.endswith(" 50")]) == (2 if shape == "tools" else 1)
    seen.clear()
    renderer.render(extend(old))
    known = ("", "0", "99", "line 99")  # the end of what was the last line: its line break is new
    assert {text.strip().rpartition(" ")[2] for text in seen} - {*known} == {"100", "101"}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_render_counts_no_text_twice_and_nothing_that_is_certainly_removed(shape: str) -> None:
    seen: list[str] = []
    rendered = Renderer(budget=60, tokenizer=Noting(seen=seen)).render(SHAPES[shape][0])
    long = [text.strip() for text in seen if " " in text.strip()]
    shown = {line for message in rendered.messages for line in message.text.split("\n")}
    assert len(long) == len({*long})
    assert rendered.tokens <= 60
    # what no longer fits is counted, calls beside results
    assert len({*long} - shown - {""}) <= 2 + len(long) // 2 * (shape == "tools")


def test_a_renderer_shows_a_prompt_as_a_new_one_does_however_much_it_has_shown_before() -> None:
    many = [UserMessage(priority=each)[f"message {each}"] for each in range(1_001)]
    old = lines(range(1_101))
    others = [TextChunk(priority=each)[f"other {each}"] for each in range(1, 1_101)]
    long, other = UserMessage(priority=1)[old], UserMessage(priority=1)[old[0], others]
    question = Group()[UserMessage()["q"]]
    tokenizer = WordTokenizer()
    renderer = Renderer(budget=60, tokenizer=tokenizer)
    prompts: tuple[Child, ...] = (
        [many, KeepWith(group=1)[question]],  # which is not static
        [long, question],
        [other, question],
        many,
        [long, question],
        [UserMessage(priority=1)["a"], question],
        [long, question],
    )
    for prompt in prompts:
        assert renderer.render(prompt) == Renderer(budget=60, tokenizer=tokenizer).render(prompt)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.lists(st.tuples(TEXTS, st.integers(0, 4)), min_size=1, max_size=3),
        ),
        min_size=2,
        max_size=6,
    ),
    tokenizers(),
    st.integers(1, 30),
)
def test_a_message_of_lines_shows_the_same_whatever_has_grown_from_it(
    steps: list[tuple[int, list[tuple[str, int]]]], tokenizer: Tokenizer, budget: int
) -> None:
    renderer = Renderer(budget=budget, tokenizer=tokenizer)
    # each one has grown from one of those before it
    grown = [UserMessage(priority=1)[TextChunk(priority=1)["first"]]]
    for base, new in steps:
        chunks = [TextChunk(priority=priority)[text] for text, priority in new]
        grown.append(UserMessage(priority=1)[grown[base % len(grown)].children, chunks])
    prompts = [(message, UserMessage()["q"]) for message in grown]
    rendered = [outcome(renderer, prompt) for prompt in (*prompts, *reversed(prompts))]
    for prompt, result in zip((*prompts, *reversed(prompts)), rendered, strict=True):
        alone = outcome(Renderer(budget=budget, tokenizer=tokenizer), prompt)
        assert result == alone
        if isinstance(result, Rendered) and isinstance(alone, Rendered):
            assert at_budget(result, 2 * budget) == at_budget(alone, 2 * budget)


def test_no_line_without_a_priority_leaves_the_last_user_message() -> None:
    lines = TextChunk(priority=1)["a a a"], TextChunk()["b b"], TextChunk()["c"]
    prompt = UserMessage(priority=1)["old"], UserMessage()[lines]
    for budget in range(3, 6):
        made = Renderer(budget=budget, tokenizer=WordTokenizer()).render(prompt)
        assert [message.text for message in made.messages] == ["b b\nc"]
    for budget in (1, 2):
        with pytest.raises(BudgetExceededError, match="3 required tokens"):
            Renderer(budget=budget, tokenizer=WordTokenizer()).render(prompt)


@attrs.frozen(kw_only=True)
class HalfKnown(WordTokenizer):
    """Knows of a text without counting it that it has half of its tokens."""

    def lower_bound(self, text: str) -> int:
        return self.count(text) // 2


def test_a_long_text_does_not_fit_a_budget_of_the_fewest_tokens_that_it_may_have() -> None:
    with pytest.raises(BudgetExceededError, match="5,000 required tokens"):
        Renderer(budget=2_500, tokenizer=HalfKnown()).render(UserMessage()["w " * 5_000])
