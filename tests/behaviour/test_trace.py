"""The record of a render says what happened, and what would happen at any other budget; recording changes nothing."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Child,
    Group,
    KeepWith,
    Message,
    PromptElement,
    Reserve,
    Sizing,
    SystemMessage,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    Truncate,
    UserMessage,
    component,
    render,
    render_async,
)
from promptkit.elements.builtin import Rounds
from promptkit.fitting import RecordedMessages
from promptkit.messages import ImagePart
from promptkit.rendering.paths import MAX_PATH_STEPS
from promptkit.testing import WordTokenizer
from promptkit.tokens import Count, OpenAITokenizer
from promptkit.tracing.trace import Trace
from tests.behaviour.strategies import prompts, tokenizers
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit import Rendered
    from promptkit.messages import Role
    from promptkit.tokens import Tokenizer

TOOLS = (ToolDefinition(name="read", description="Reads a file."),)


def traced(
    prompt: Child, budget: int, tokenizer: Tokenizer, prune_step: int = 0
) -> tuple[Rendered | None, Trace | None]:
    """The render and its record, or the record of one that does not fit."""
    try:
        rendered = render(
            prompt,
            budget=budget,
            tokenizer=tokenizer,
            prune_step=prune_step,
            pairing="lenient",
            trace=True,
        )
    except BudgetExceededError as error:
        return None, error.trace if isinstance(error.trace, Trace) else None
    return rendered, rendered.trace


@settings(max_examples=examples(150))
@given(
    prompt=prompts(),
    tokenizer=tokenizers(),
    budget=st.integers(0, 60),
    step=st.sampled_from([0, 0, 3, 10]),
)
@pytest.mark.slow
def test_a_record_chooses_the_state_that_a_render_ends_in(
    prompt: Child, tokenizer: Tokenizer, budget: int, step: int
) -> None:
    rendered, trace = traced(prompt, budget, tokenizer, step)
    if trace is None:
        return  # a limit does not hold: there is no whole to record
    if rendered is None:
        assert trace.state is None
        assert trace.state_at(budget) is None
        return
    assert trace.state is not None
    assert trace.counts[trace.state] == rendered.tokens
    for other in range(61):
        state = trace.state_at(other)
        try:
            again = rendered.at_budget(other)
        except BudgetExceededError:
            assert state is None
            continue
        assert again.trace is not None
        assert (state, trace.counts[state or 0]) == (again.trace.state, again.tokens)


@settings(max_examples=examples(100))
@given(prompt=prompts(), tokenizer=tokenizers(), budget=st.integers(0, 60))
def test_recording_changes_nothing(prompt: Child, tokenizer: Tokenizer, budget: int) -> None:
    rendered, _ = traced(prompt, budget, tokenizer)
    try:
        plain = render(prompt, budget=budget, tokenizer=tokenizer, pairing="lenient")
    except BudgetExceededError:
        assert rendered is None
        return
    assert rendered == plain
    assert rendered is not None
    assert rendered.removals == plain.removals
    assert [removal.tokens for removal in rendered.removals] == [
        removal.tokens for removal in plain.removals
    ]


@settings(max_examples=examples(100))
@given(prompt=prompts(), tokenizer=tokenizers(), budget=st.integers(0, 60))
def test_what_a_record_keeps_is_what_the_messages_say(
    prompt: Child, tokenizer: Tokenizer, budget: int
) -> None:
    rendered, trace = traced(prompt, budget, tokenizer)
    if rendered is None or trace is None or trace.state is None:
        return
    texts: list[str] = []
    for span in rendered.source_map:
        part = rendered.messages[span.message].content[span.part]
        assert isinstance(part, str)
        texts.append(part[span.start : span.end])
    shown = {
        item.id for item in trace.kept(trace.state) if item.role and not _is_blank(trace, item.id)
    }
    kept = [
        item.text
        for item in trace.kept(trace.state)
        if item.text and _message(trace, item.id) in shown
    ]
    assert kept == texts


def _message(trace: Trace, number: int) -> int:
    at: int | None = number
    while at is not None and trace.items[at].role is None:
        at = trace.items[at].parent
    return -1 if at is None else at


def _is_blank(trace: Trace, number: int) -> bool:
    message = trace.items[number]
    state = trace.state or 0
    inside = [item for item in trace.items[message.id : message.end] if item.kept(state)]
    calls = [call for call in message.calls if call.until is None or state <= call.until]
    return (
        message.role != "tool"
        and not calls
        and not any(item.part or (item.text and not item.text.isspace()) for item in inside)
    )


@settings(max_examples=examples(100))
@given(prompt=prompts(), tokenizer=tokenizers())
def test_the_removals_of_a_record_are_those_of_a_render_that_loses_all(
    prompt: Child, tokenizer: Tokenizer
) -> None:
    rendered, trace = traced(prompt, 10_000, tokenizer)
    if rendered is None or trace is None:
        return  # a limit does not hold
    smallest = min(
        (budget for budget in range(200) if trace.state_at(budget) is not None), default=None
    )
    assert smallest is not None
    removals = rendered.at_budget(smallest).removals
    state = trace.state_at(smallest)
    assert state is not None
    recorded = [removal for removal in trace.removals if removal.step < state]
    facts = [
        (each.order, each.path, each.priority, each.reason, each.partner, each.tokens)
        for each in removals
    ]
    assert [
        (each.order, each.path, each.priority, each.reason, each.partner, each.tokens)
        for each in recorded
    ] == facts
    for removal in recorded:
        item = trace.items[removal.item]
        if removal.call is None:
            assert item.path == removal.path
            assert not item.kept(max(0, removal.step + 1))
        else:
            assert item.calls[removal.call].until == removal.step


@settings(max_examples=examples(100))
@given(prompt=prompts(), tokenizer=tokenizers())
def test_a_record_is_a_tree_in_written_order(prompt: Child, tokenizer: Tokenizer) -> None:
    _, trace = traced(prompt, 10_000, tokenizer)
    if trace is None:
        return  # a limit does not hold
    walked: list[int] = []
    stack = [trace.items[0]]
    while stack:
        item = stack.pop()
        walked.append(item.id)
        children = list(trace.children(item))
        assert [child.parent for child in children] == [item.id] * len(children)
        assert [child.position for child in children] == list(range(len(children)))
        stack.extend(reversed(children))
    assert walked == [item.id for item in trace.items]


@component
class Topic(PromptElement):
    """A text on a topic."""

    topic: str

    def render(self, sizing: Sizing) -> Child:
        return f"on the {self.topic}"


@component
class Filler(PromptElement):
    """As many words as it may have."""

    def render(self, sizing: Sizing) -> Child:
        return UserMessage()[" ".join(["word"] * sizing.token_budget)]


def test_epochs_say_who_was_given_how_much_and_who_used_it() -> None:
    prompt = (
        UserMessage(flex_grow=1)["one two three"],
        Filler(flex_grow=2, flex_basis=2),
        Filler(flex_grow=2),
        Group(flex_grow=1, flex_reserve=10)[UserMessage()["four"], UserMessage()["five six"]],
    )
    trace = render(prompt, budget=100, tokenizer=WordTokenizer(), trace=True).trace
    assert trace is not None
    first, second = [epoch for epoch in trace.flex_groups if epoch.container == 0]
    assert (first.grow, first.available, first.reserved) == (2, 100, 10)
    assert [(share.basis, share.budget, share.used) for share in first.members] == [
        (2, 60, 60),
        (1, 30, 30),
    ]
    assert (second.grow, second.available, second.reserved) == (1, 10, 0)
    assert [(share.budget, share.used) for share in second.members] == [(5, 3), (5, 3)]
    assert [trace.items[share.item].element for share in first.members] == ["Filler", "Filler"]


class Unsure(WordTokenizer):
    """Has a longer request with a system message."""

    def count_overhead(
        self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
    ) -> Count:
        return Count(5 if system else 1)


TALK: tuple[tuple[str, int, Role], ...] = (
    ("a", 12, "assistant"),
    ("b", 12, "assistant"),
    ("c", 1, "assistant"),
    ("d", 1, "user"),
    ("e", 12, "assistant"),
)
TURNS = [Message(role=role, content=(f"{name} " * size,)) for name, size, role in TALK]
CHOSEN: dict[str, Child] = {
    "messages": [UserMessage(priority=at)["w " * at] for at in range(1, 6)],
    "a limit around a fallback that exceeds it": [
        TokenLimit(max_tokens=3)[
            UserMessage(priority=1, fallback=UserMessage(priority=3)["a b c d"])["e f g"],
        ],
        UserMessage(priority=2)["h i j k"],
        UserMessage()["q"],
    ],
    "a conversation that leaves tokens free": [
        UserMessage(priority=-1)["w w w"],
        RecordedMessages(messages=TURNS),
        UserMessage()["q"],
    ],
    "a system message that leaves": [
        SystemMessage(priority=1)["rules of it"],
        UserMessage(priority=2)["a b"],
        UserMessage()["q"],
    ],
}


@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize("name", CHOSEN)
def test_a_record_says_which_state_each_budget_gets(name: str, step: int) -> None:
    for budget in (12, 24, 28):
        try:
            made = render(
                CHOSEN[name], budget=budget, tokenizer=Unsure(), prune_step=step, trace=True
            )
        except BudgetExceededError:
            continue
        assert made.trace is not None
        for other in range(40):
            state = made.trace.state_at(other)
            try:
                again = made.at_budget(other)
            except BudgetExceededError:
                assert state is None
            else:
                assert state is not None
                assert made.trace.counts[state] == again.tokens
                assert again.trace is not None
                assert again.trace.state == state


@pytest.mark.parametrize(("budget", "available"), [(10, 6), (3, 0)])
def test_what_a_message_says_itself_is_not_available_to_its_children(
    budget: int, available: int
) -> None:
    prompt = UserMessage()["four words of text", Truncate(flex_grow=1, marker="")["a " * 30]]
    trace: object = None
    try:
        trace = render(prompt, budget=budget, tokenizer=WordTokenizer(), trace=True).trace
    except BudgetExceededError as error:
        trace = error.trace
    assert isinstance(trace, Trace)
    (group,) = [each for each in trace.flex_groups if each.grow == 1]
    assert group.available == available


def test_the_labels_of_a_record_are_those_of_the_receipt() -> None:
    made = render(
        UserMessage()[Topic(topic="parser", priority=1), "q"],
        budget=1,
        tokenizer=WordTokenizer(),
        trace=True,
    )
    assert made.trace is not None
    assert [each.label for each in made.trace.removals] == ["UserMessage > Topic(parser)[0]"]
    assert [each.label for each in made.removals] == ["UserMessage > Topic(parser)[0]"]


def test_a_recorded_conversation_is_a_round_of_messages_of_parts_with_its_markers() -> None:
    image = ImagePart(url="https://example.org/a.png")
    turns = [
        Message(role="user", content=("a b",)),
        Message(role="assistant", content=("c",), tool_calls=(ToolCall(id="c", name="f"),)),
        Message(role="tool", content=("d e",), tool_call_id="c"),
        Message(role="user", content=("g h i", image, "j")),
        Message(role="assistant", content=("k",)),
    ]
    conversation = RecordedMessages(messages=turns, marker=lambda count: f"{count} left out")
    tokenizer = WordTokenizer(per_message=1, per_image=5, per_call=3)
    prompt = conversation, UserMessage()["q"]
    trace = render(prompt, budget=99, tokenizer=tokenizer, trace=True).trace
    assert trace is not None
    around = "RecordedMessages[0] > Rounds > "
    shown = [
        (
            item.path.removeprefix(around),
            trace.items[item.parent or 0].label,
            item.position,
            item.kind,
            item.text or item.part,
            item.tokens,
            item.until,
        )
        for item in trace.items[3:-1]
    ]
    one, two = "turn 1 · f result", "turn 2 · request"
    assert shown == [
        ("turn 1 · request", "Rounds", 0, "message", "a b", 3, 1),
        ("marker", "Rounds", 0, "message", "3 left out", 4, 2),
        (one, "Rounds", 1, "container", None, 0, 0),
        (f"{one} > AssistantMessage[0]", one, 0, "message", "c", 5, 0),
        (f"{one} > ToolMessage[1]", one, 1, "message", "d e", 3, 0),
        ("marker", "Rounds", 1, "message", "2 left out", 4, 1),
        (two, "Rounds", 2, "message", None, 1, 4),
        (f"{two} > text[0]", two, 0, "text", "g h i", 3, 4),
        (f"{two} > ImagePart[1]", two, 1, "part", image, 5, 4),
        (f"{two} > text[2]", two, 2, "text", "j", 1, 4),
        ("marker", "Rounds", 2, "message", "5 left out", 4, 5),
        ("turn 2 · reply", "Rounds", 3, "message", "k", 2, 2),
        ("marker", "Rounds", 3, "message", "4 left out", 4, 3),
    ]
    assert [item.role for item in trace.items if item.kind == "message"][1:4] == [
        "user",
        "assistant",
        "tool",
    ]


def test_members_that_have_no_share_of_their_own_are_recorded_together() -> None:
    prompt = UserMessage()["a b"], Filler(), Filler(flex_grow=1), Filler(flex_grow=0)
    trace = render(prompt, budget=20, tokenizer=WordTokenizer(), trace=True).trace
    assert trace is not None
    assert trace.items[0].passes_on
    assert [
        (group.available, group.plain, group.plain_share, group.plain_used)
        for group in trace.flex_groups
        if group.container == 0
    ] == [(20, 1, 10, 2), (8, 0, 0, 0), (0, 0, 0, 0)]


def test_a_message_with_calls_costs_in_a_record_what_it_costs_with_all_of_them() -> None:
    calls = [ToolCall(id=each, name="f") for each in "12"]
    prompt = (
        [
            (
                AssistantMessage(tool_calls=calls)[said],
                ToolMessage(tool_call_id="1", priority=0)["r"],
                ToolMessage(tool_call_id="2")["s"],
            )
            for said in ((), TextChunk()["one text"])
        ],
        UserMessage()["q"],
    )
    tokenizer = WordTokenizer(per_message=1, per_call=3)
    trace = render(prompt, budget=99, tokenizer=tokenizer, trace=True).trace
    assert trace is not None
    assert [item.tokens for item in trace.items if item.calls] == [6, 7]


def test_what_a_leaf_and_a_message_say_of_themselves() -> None:
    prompt = (
        UserMessage()[
            "a ",
            Group(label="notes", required=True)["b", TextChunk()["c"]],
            KeepWith(group=1, fallback="short")["d"],
        ],
        UserMessage()[" ", KeepWith(group=2, fallback="long")[()]],
    )
    tokenizer = WordTokenizer(per_message=1)
    trace = render(prompt, budget=99, tokenizer=tokenizer, trace=True).trace
    assert trace is not None
    texts = [
        (item.text, item.starts_line, item.tokens) for item in trace.items if item.kind == "text"
    ]
    assert texts[:3] == [("a ", "first", 1), ("b", "first", 1), ("c", "always", 1)]
    assert [
        (item.element, item.element_label, item.passes_on, item.tokens)
        for item in trace.items
        if item.kind in {"message", "container"} and not item.fallback and item.element
    ] == [
        ("UserMessage", None, False, 1),
        ("Group", "notes", True, 0),
        ("KeepWith", None, True, 0),
        ("UserMessage", None, False, 0),
        ("KeepWith", None, True, 0),
    ]
    assert {
        item.text: [state for state in range(len(trace.counts)) if item.kept(state)]
        for item in trace.items
        if item.fallback and item.text
    } == {"short": [], "long": [1]}


def test_stages_and_components_are_timed() -> None:
    began = perf_counter()
    trace = render(Filler(), budget=10, tokenizer=WordTokenizer(), trace=True).trace
    assert trace is not None
    assert [timing.stage for timing in trace.timings] == ["expand", "limit", "prune", "assemble"]
    assert all(timing.seconds >= 0 for timing in trace.timings)
    assert sum(timing.seconds for timing in trace.timings) <= perf_counter() - began
    filler, message = trace.items[1:3]
    assert filler.seconds is not None
    assert 0 < filler.seconds <= perf_counter() - began
    assert message.seconds is None


@component
class Waits(PromptElement):
    """Awaits for a moment."""

    async def render(self, sizing: Sizing) -> Child:
        await asyncio.sleep(0.01)
        return UserMessage()["late"]


def test_the_time_of_a_component_that_awaits_is_the_time_until_it_is_done() -> None:
    began = perf_counter()
    rendered = asyncio.run(render_async(Waits(), budget=10, tokenizer=WordTokenizer(), trace=True))
    assert rendered.trace is not None
    assert 0.009 <= (rendered.trace.items[1].seconds or 0) <= perf_counter() - began


def test_a_prompt_that_does_not_fit_leaves_its_record_with_the_error() -> None:
    with pytest.raises(BudgetExceededError) as caught:
        render(
            (UserMessage(required=True)["one two"], UserMessage(priority=1)["three"]),
            budget=1,
            tokenizer=WordTokenizer(),
            trace=True,
        )
    trace = caught.value.trace
    assert isinstance(trace, Trace)
    assert (trace.state, trace.counts) == (None, (3, 2))
    assert trace.state_at(2) == 1


def test_a_limit_that_removed_something_did_so_in_every_state() -> None:
    rendered = render(
        UserMessage()[TokenLimit(max_tokens=1)["one", TextChunk(priority=1)["two"]]],
        budget=10,
        tokenizer=WordTokenizer(),
        trace=True,
    )
    trace = rendered.trace
    assert trace is not None
    (removal,) = trace.removals[:1]
    assert (removal.step, removal.reason) == (-1, "limit")
    assert not trace.items[removal.item].kept(0)


@pytest.mark.parametrize("ends", [("Be brief.", "Be kind."), ("Be brief.", "Be kind!*")])
def test_what_tools_cost_is_counted_in_every_state(ends: tuple[str, str]) -> None:
    prompt = (
        SystemMessage(priority=5)[ends[0], TextChunk(priority=1)[ends[1]]],
        UserMessage(priority=9)["Hello"],
    )
    rendered = render(prompt, budget=1_000, tools=TOOLS, trace=True)
    assert rendered.trace is not None
    for budget in range(20, 90):
        state = rendered.trace.state_at(budget)
        if state is not None:
            assert rendered.trace.counts[state] == rendered.at_budget(budget).tokens


def test_tool_calls_say_in_which_states_they_are_there() -> None:
    call = ToolCall(id="a", name="read", arguments="{}")
    prompt = (
        AssistantMessage(tool_calls=(call,), priority=5)["Reading."],
        ToolMessage(tool_call_id="a", priority=1)["text"],
        UserMessage(priority=9)["Go on."],
        Reserve(tokens=3),
    )
    trace = render(prompt, budget=100, tokenizer=WordTokenizer(), trace=True).trace
    assert trace is not None
    assert trace.reserved == 3
    message = next(item for item in trace.items if item.calls)
    assert message.calls[0].until == 0


def test_the_path_of_what_is_very_deep_leaves_out_the_middle_as_the_receipt_does() -> None:
    prompt: PromptElement = UserMessage(priority=1)["deep", "er"]
    for _ in range(3 * MAX_PATH_STEPS):
        prompt = Group()[prompt]
    trace = render(
        (prompt, UserMessage(priority=2)["kept"]), budget=1, tokenizer=WordTokenizer(), trace=True
    ).trace
    assert trace is not None
    assert any("more …" in item.path for item in trace.items)
    assert [trace.items[removal.item].path for removal in trace.removals] == [
        removal.path for removal in trace.removals
    ]


def marked_rounds(*priorities: int) -> Rounds:
    """Rounds that are removed in written order, and a marker of how many are gone."""
    rounds = [Message(role="user", content=(text,)) for text in ("a b", "c d", "e f")]
    return Rounds(
        rounds=rounds,
        order=[0, 1, 2],
        priorities=priorities,
        marker=lambda count: f"{count} left out",
        pass_priority=True,
    )


def markers(prompt: Child) -> list[tuple[str | None, int, int | None, bool]]:
    trace = render(prompt, budget=100, tokenizer=WordTokenizer(), trace=True).trace
    assert trace is not None
    return [
        (item.text, item.since, item.until, item.fallback)
        for item in trace.items
        if item.label == "marker"
    ]


def test_a_marker_is_there_from_the_removal_of_its_round_to_that_of_the_next() -> None:
    """Before the last round it leaves, which it must not cost its place."""
    assert markers((marked_rounds(1, 2, 3), UserMessage()["q"])) == [
        ("1 left out", 1, 1, True),
        ("2 left out", 2, 2, True),
        ("3 left out", 4, 4, True),
    ]


@pytest.mark.parametrize(
    ("priorities", "expected"),
    [
        ((1, 8, 9), [("1 left out", 1, 1, True)]),
        ((1, 2, 9), [("1 left out", 1, 1, True), ("2 left out", 2, 2, True)]),
    ],
)
def test_a_marker_leaves_with_its_conversation(
    priorities: tuple[int, ...], expected: list[tuple[str, int, int, bool]]
) -> None:
    prompt = (
        KeepWith(group=1, priority=5)[AssistantMessage()["x"]],
        KeepWith(group=1, pass_priority=True)[marked_rounds(*priorities)],
        UserMessage(priority=9)["q"],
    )
    assert markers(prompt) == expected


@pytest.mark.parametrize("system", ["Be brief.", "Be brief", "Be brief;", "Be brief\n"])
def test_tools_after_a_system_message_cost_the_same_with_a_record(system: str) -> None:
    prompt = (SystemMessage()[system], UserMessage(priority=1)["Hello"])
    plain = render(prompt, budget=1_000, tools=TOOLS)
    made = render(prompt, budget=1_000, tools=TOOLS, trace=True)
    tokenizer = OpenAITokenizer("o200k_base")
    apart = (
        render(prompt, budget=1_000, tokenizer=tokenizer).tokens
        - tokenizer.count_overhead((), system=system).tokens
    )
    assert (
        made.tokens == plain.tokens == apart + tokenizer.count_overhead(TOOLS, system=system).tokens
    )
