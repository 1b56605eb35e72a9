"""Where promptkit mends a fault of prompt-tsx: one test per row of the table of deviations."""

from __future__ import annotations

import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    CacheBreakpoint,
    Child,
    Expandable,
    Group,
    KeepWith,
    Message,
    PrioritizedList,
    Sizing,
    SystemMessage,
    Text,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    render,
)
from promptkit.rendering import from_json, to_json
from promptkit.testing import WordTokenizer


def texts(prompt: Child, budget: int, tokenizer: WordTokenizer | None = None) -> list[str]:
    return [
        message.text
        for message in render(
            prompt, budget=budget, tokenizer=tokenizer or WordTokenizer()
        ).messages
    ]


def call(made: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(id=made, name="f", arguments=arguments)


@pytest.mark.spec("D1")
class TestALimitAlwaysHolds:
    def test_also_when_it_exceeds_the_budget(self) -> None:
        prompt = TokenLimit(max_tokens=3)[
            UserMessage(priority=1)["a a"],
            UserMessage(priority=2)["b"],
            UserMessage(priority=3)["c"],
        ]
        assert texts(prompt, 100) == texts(prompt, 3) == texts(prompt, 2) == ["b", "c"]

    def test_so_a_smaller_budget_brings_nothing_back(self) -> None:
        prompt = (
            TokenLimit(max_tokens=4)[UserMessage(priority=1)["five words are too many"]],
            UserMessage()["x"],
        )
        assert [texts(prompt, budget) for budget in (100, 5, 4, 3, 1)] == [["x"]] * 5


@pytest.mark.spec("D2")
class TestAnExpandableStaysInItsLimit:
    def test_however_much_budget_is_left(self) -> None:
        seen: list[int] = []

        def fill(sizing: Sizing) -> str:
            seen.append(sizing.token_budget)
            return "e " * sizing.token_budget

        prompt = UserMessage()[
            TokenLimit(max_tokens=10)[Expandable(value=fill)], TextChunk()["x y z"]
        ]
        assert len(texts(prompt, 50)[0].split()) <= 10 + 3
        assert max(seen) <= 10

    def test_and_grows_outside_of_one(self) -> None:
        prompt = UserMessage()[
            Expandable(value=lambda sizing: "e " * sizing.token_budget), TextChunk()["smaller"]
        ]
        made = render(prompt, budget=50, tokenizer=WordTokenizer())
        assert made.tokens == 50


@pytest.mark.spec("D3")
def test_a_count_is_never_that_of_calls_that_have_gone() -> None:
    prompt = (
        AssistantMessage(priority=5, tool_calls=[call("1")], keep_with={"1": "k"})["text"],
        KeepWith(group="k", priority=1)[ToolMessage(tool_call_id="1")["r r r"]],
        UserMessage(priority=9)["q"],
    )
    made = render(prompt, budget=11, tokenizer=WordTokenizer(per_call=7))
    assert (made.tokens, [message.text for message in made.messages]) == (2, ["text", "q"])


@pytest.mark.spec("D4")
class TestABreakpointProtectsWhatStandsBeforeIt:
    def test_but_a_later_sibling_is_still_pruned(self) -> None:
        prompt = (
            UserMessage(priority=1)["stable one", CacheBreakpoint()],
            UserMessage(priority=2)["prunable tail two"],
        )
        made = render(prompt, budget=3, tokenizer=WordTokenizer())
        assert [message.text for message in made.messages] == ["stable one"]

    def test_and_so_is_the_very_next_element(self) -> None:
        prompt = UserMessage()[
            "stable",
            CacheBreakpoint(),
            TextChunk(priority=1)["next"],
            TextChunk(priority=2)["last"],
        ]
        assert texts(prompt, 2) == ["stablelast"]

    def test_and_what_it_protects_is_never_pruned(self) -> None:
        prompt = (
            SystemMessage(priority=0)["a b"],
            UserMessage(priority=0)["c", CacheBreakpoint()],
            UserMessage(priority=1)["d"],
        )
        assert texts(prompt, 3) == ["a b", "c"]
        with pytest.raises(BudgetExceededError):
            texts(prompt, 2)

    def test_and_says_nothing_about_priorities(self) -> None:
        # Of two messages of one priority the one with the lowest direct child goes first: a
        # breakpoint is as high as can be.
        prompt = (
            UserMessage(priority=0)[CacheBreakpoint(), Text()["a"]],
            UserMessage(priority=0)["b"],
        )
        assert texts(prompt, 1) == ["a"]

    def test_a_call_before_it_stays_with_its_result_after_it(self) -> None:
        prompt = (
            AssistantMessage(tool_calls=[call("1"), call("2")])["a"],
            ToolMessage(tool_call_id="1")["r", CacheBreakpoint()],
            ToolMessage(tool_call_id="2")["s"],
        )
        with pytest.raises(BudgetExceededError):
            texts(prompt, 2)


@pytest.mark.spec("D5")
@pytest.mark.parametrize(
    ("limit", "kept"), [(1, "head\nc"), (2, "head\nb\nc"), (3, "head\na\nb\nc")]
)
def test_a_limit_inside_a_message_keeps_as_much_as_fits(limit: int, kept: str) -> None:
    pieces = [TextChunk(priority=rank)[text] for rank, text in enumerate("abc")]
    assert texts(UserMessage()[TextChunk()["head"], TokenLimit(max_tokens=limit)[pieces]], 100) == [
        kept
    ]


@pytest.mark.spec("D6")
class TestCallAndResultLeaveTogether:
    def test_the_call_with_its_result(self) -> None:
        prompt = (
            AssistantMessage(tool_calls=[call("1"), call("2")])["said"],
            ToolMessage(tool_call_id="1", priority=1)["r r"],
            ToolMessage(tool_call_id="2")["s"],
        )
        made = render(prompt, budget=2, tokenizer=WordTokenizer())
        assert [[call.id for call in message.tool_calls] for message in made.messages] == [
            ["2"],
            [],
        ]
        assert [message.text for message in made.messages] == ["said", "s"]

    def test_the_results_with_the_message_that_called(self) -> None:
        prompt = (
            AssistantMessage(priority=1, tool_calls=[call("1"), call("2")]),
            ToolMessage(tool_call_id="1")["r"],
            ToolMessage(tool_call_id="2")["s"],
            UserMessage()["q"],
        )
        assert texts(prompt, 1) == ["q"]

    def test_the_message_that_called_when_it_says_nothing_else(self) -> None:
        prompt = (
            AssistantMessage(tool_calls=[call("1")]),
            ToolMessage(tool_call_id="1", priority=1)["r r"],
            UserMessage()["q"],
        )
        assert texts(prompt, 2) == ["q"]

    def test_an_empty_result_is_sent_as_an_empty_result(self) -> None:
        prompt = (
            AssistantMessage(tool_calls=[call("1")]),
            ToolMessage(tool_call_id="1"),
            UserMessage()["q"],
        )
        made = render(prompt, budget=10, tokenizer=WordTokenizer())
        assert made.messages[1] == Message(role="tool", tool_call_id="1")

    def test_an_id_may_be_used_again_in_a_later_round(self) -> None:
        one = (
            AssistantMessage(priority=1, tool_calls=[call("1")]),
            ToolMessage(tool_call_id="1")["old"],
        )
        two = (
            AssistantMessage(priority=2, tool_calls=[call("1")]),
            ToolMessage(tool_call_id="1")["new"],
        )
        assert texts((*one, *two), 1) == ["", "new"]


@pytest.mark.spec("D7")
class TestNothingLeavesNoLineBreak:
    def test_a_chunk_that_fits_nothing(self) -> None:
        prompt = UserMessage()["a b c", TextChunk(break_on_whitespace=True, flex_grow=1)["d e"]]
        assert texts(prompt, 3) == ["a b c"]

    @pytest.mark.parametrize("nothing", ["", TextChunk()[""], Text()[""], Group()[""]])
    def test_empty_text(self, nothing: Child) -> None:
        assert texts(UserMessage()["a", nothing], 9) == ["a"]

    def test_empty_text_between_texts_of_one_line(self) -> None:
        assert (
            texts(UserMessage()["a", "", Text()["b"]], 9)
            == texts(UserMessage()["a", Text()["b"]], 9)
            == ["ab"]
        )


@pytest.mark.spec("D8")
class TestJsonKeepsEverything:
    def test_whole_messages_calls_limits_and_breakpoints(self) -> None:
        prompt = (
            SystemMessage(priority=9)["sys", CacheBreakpoint(kind="ephemeral")],
            TokenLimit(max_tokens=3)[
                UserMessage(priority=1)["a a"], UserMessage(priority=2)["b b"]
            ],
            AssistantMessage(tool_calls=[call("1", '{"x": 1}')])["said"],
            ToolMessage(tool_call_id="1")["r"],
            UserMessage(required=True)["q"],
        )
        travelled = from_json(to_json(prompt, tokenizer=WordTokenizer(), budget=50))
        for budget in (50, 6, 4):
            assert (
                render(travelled, budget=budget, tokenizer=WordTokenizer()).messages
                == render(prompt, budget=budget, tokenizer=WordTokenizer()).messages
            )

    def test_an_embedded_tree_counts_in_sizing(self) -> None:
        seen: list[int] = []
        travelled = from_json(
            to_json(Group()["three words here"], tokenizer=WordTokenizer(), budget=50)
        )

        def note(sizing: Sizing) -> str:
            seen.append(sizing.token_budget)
            return ""

        render(
            UserMessage()[travelled, Expandable(flex_grow=1, value=note)],
            budget=10,
            tokenizer=WordTokenizer(),
        )
        assert seen[0] == 7


@pytest.mark.spec("D9")
class TestNothingIsSharedBetweenRenders:
    def test_components_are_never_mutated(self) -> None:
        children = [TextChunk(priority=5)["a"], TextChunk(priority=6)["b"]]
        prompt = UserMessage()[PrioritizedList(priority=1)[children]]
        before = repr(prompt)
        render(prompt, budget=1, tokenizer=WordTokenizer())
        assert repr(prompt) == before
        assert [child.priority for child in children] == [5, 6]

    def test_groups_of_one_render_are_not_those_of_another(self) -> None:
        pair = UserMessage()[
            KeepWith(group=1, priority=1)["a "],
            KeepWith(group=1, priority=2)["b "],
            Text(priority=3)["c"],
        ]
        assert texts(pair, 1) == ["c"]
        assert texts(pair, 3)[0].split() == ["a", "b", "c"]


@pytest.mark.spec("D10")
class TestNoRecursionLimit:
    @pytest.mark.slow
    def test_a_depth_of_ten_thousand(self) -> None:
        deep: Child = Text()["deep"]
        for _ in range(10_000):
            deep = Group()[deep]
        assert texts(UserMessage()[deep], 5) == ["deep"]
        assert texts((UserMessage()[deep], UserMessage()["x"]), 1) == ["x"]

    @pytest.mark.parametrize("count", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
    def test_very_many_children(self, count: int) -> None:
        many = [f"{index} " for index in range(count)]
        made = render(
            Group(priority=1)[UserMessage(pass_priority=True)[many]],
            budget=1_000,
            tokenizer=WordTokenizer(),
        )
        assert made.tokens == 1_000
        assert made.messages[0].text.split() == [
            str(index) for index in range(count - 1_000, count)
        ]
