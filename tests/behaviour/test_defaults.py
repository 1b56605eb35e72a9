"""The rules for elements without a priority: system messages (D11), literal text (D12), the last user message (D13). `defaults="prompt-tsx"`
switches them off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, note, strategies as st

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    CacheBreakpoint,
    Child,
    Chunk,
    ContextWindow,
    Expandable,
    First,
    Group,
    Image,
    Isolate,
    KeepWith,
    Message,
    PrioritizedList,
    PromptElement,
    Provide,
    Renderer,
    Sizing,
    SystemMessage,
    Tag,
    Text,
    TextChunk,
    TokenLimit,
    Tool,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    Truncate,
    UserMessage,
    component,
    render,
    render_async,
    tag,
    tool,
)
from promptkit.bench.sweep import measure
from promptkit.elements import LegacyPrioritization
from promptkit.elements.builtin import Rounds
from promptkit.errors import InvalidArgumentError
from promptkit.rendering import Removal, from_json, to_json
from promptkit.testing import WordTokenizer
from promptkit.testing.snapshots.documents import (
    SnapshotOptions,
    StabilizeOptions,
    Stabilizer,
    render_levels,
)
from promptkit.tracing.trace import Trace
from tests.behaviour.strategies import prompts, tokenizers

if TYPE_CHECKING:
    from promptkit.agent import ConversationView
    from promptkit.rendering.renderer import Defaults
    from promptkit.tokens import Tokenizer

WORDS = WordTokenizer()


def texts(prompt: Child, budget: int, defaults: Defaults = "promptkit") -> list[str]:
    return [
        message.text
        for message in render(prompt, budget=budget, tokenizer=WORDS, defaults=defaults).messages
    ]


def failure(prompt: Child, budget: int) -> BudgetExceededError:
    with pytest.raises(BudgetExceededError) as caught:
        render(prompt, budget=budget, tokenizer=WORDS)
    return caught.value


@component
class Instructions(PromptElement):
    def render(self, sizing: Sizing) -> Child:
        return SystemMessage()[self.children]


@component
class Question(PromptElement):
    def render(self, sizing: Sizing) -> Child:
        return UserMessage()[self.children]


@pytest.mark.spec("D11")
class TestSystemMessages:
    def test_one_without_a_priority_outlives_what_has_none_either(self) -> None:
        prompt = (
            SystemMessage()["be brief"],
            AssistantMessage()["hello there"],
            UserMessage()["question"],
        )
        assert texts(prompt, 3) == ["be brief", "question"]
        assert texts(prompt, 3, "prompt-tsx") == ["hello there", "question"]

    def test_one_that_does_not_fit_is_reported_and_not_dropped(self) -> None:
        error = failure((SystemMessage()["be brief"], AssistantMessage()["hello"]), 1)
        assert (error.required, error.largest, error.last_message) == (
            2,
            {"SystemMessage[0]": 2},
            "",
        )

    @pytest.mark.parametrize(
        "system",
        [
            SystemMessage(priority=1)["be brief"],
            PrioritizedList()[SystemMessage(priority=1)["be brief"]],
        ],
    )
    def test_one_with_a_priority_of_its_own_is_pruned_like_anything_else(
        self, system: Child
    ) -> None:
        assert texts((system, UserMessage()["question"]), 2) == ["question"]

    @pytest.mark.parametrize(
        "system",
        [
            Group(priority=1)[SystemMessage()["be brief"]],
            Group(priority=1)[Group()[SystemMessage()["be brief"]]],
            Chunk(priority=1)[SystemMessage()["be brief"]],
            Instructions(priority=1)["be brief"],
            LegacyPrioritization(priority=1)[SystemMessage()["be brief"]],
        ],
    )
    def test_the_last_one_in_a_container_with_a_priority_stays_too(self, system: Child) -> None:
        prompt = (
            system,
            AssistantMessage(priority=9)["old"],
            UserMessage()["question"],
        )
        assert texts(prompt, 3) == ["be brief", "question"]
        assert failure(prompt, 2).required == 3
        assert texts(prompt, 2, "prompt-tsx") == ["old", "question"]

    def test_of_several_in_containers_with_priorities_the_one_that_is_removed_last_stays(
        self,
    ) -> None:
        prompt = Group(priority=1)[
            Group(priority=8)[SystemMessage()["a"], SystemMessage()["b"]],
            Group(priority=3)[SystemMessage()["c"]],
            UserMessage()["q"],
        ]
        assert [texts(prompt, budget) for budget in (4, 3, 2)] == [
            ["a", "b", "c", "q"],
            ["a", "b", "q"],
            ["b", "q"],
        ]
        assert failure(prompt, 1).required == 2

    def test_beside_one_that_stays_those_in_containers_with_priorities_are_pruned(self) -> None:
        prompt = (
            SystemMessage()["a"],
            Group(priority=1)[SystemMessage()["b"]],
            UserMessage()["q"],
        )
        assert texts(prompt, 2) == ["a", "q"]

    def test_a_root_with_a_priority_keeps_what_has_none_in_its_message(self) -> None:
        prompt = Group(priority=1)[
            SystemMessage()["rules ", Text(priority=2)["example "], Tag(tag="t")["x"]],
            UserMessage()["q"],
        ]
        assert texts(prompt, 5) == ["rules \n<t>\nx\n</t>", "q"]

    def test_a_priority_that_is_passed_on_is_none(self) -> None:
        prompt = (
            Group(priority=1, pass_priority=True)[SystemMessage()["a"]],
            AssistantMessage()["b"],
            UserMessage()["q"],
        )
        assert texts(prompt, 2) == ["a", "q"]

    def test_children_with_priorities_are_pruned_and_all_else_in_it_stays(self) -> None:
        prompt = (
            SystemMessage()[
                "rules",
                TextChunk()["more"],
                TextChunk(priority=1)["example one"],
                Tag(tag="t")["inner", Text(priority=2)[" example"]],
                Chunk()["whole ", Text(priority=0)["chunk"]],
                Image(url="https://x/y.png"),
            ],
            UserMessage()["q"],
        )
        full = render(prompt, budget=99, tokenizer=WORDS)
        small = render(prompt, budget=full.tokens - 3, tokenizer=WORDS)
        assert small.messages[0].text == "rules\nmore\n<t>\ninner\n</t>\nwhole chunk"
        assert len(small.messages[0].content) == 2  # the image, too
        assert [removal.path for removal in small.removals] == [
            "SystemMessage[0] > TextChunk[2]",
            "SystemMessage[0] > Tag[3] > content > Text[1]",
        ]
        assert failure(prompt, small.tokens - 1).largest["SystemMessage[0]"] == small.tokens - 1

    def test_if_all_children_have_priorities_the_last_one_stays(self) -> None:
        prompt = (SystemMessage()[PrioritizedList()["one", "two", "three"]], UserMessage()["q"])
        assert [texts(prompt, budget) for budget in (4, 3, 2)] == [
            ["one\ntwo\nthree", "q"],
            ["two\nthree", "q"],
            ["three", "q"],
        ]
        assert failure(prompt, 1).required == 2

    def test_the_last_one_stays_in_a_prioritized_list(self) -> None:
        rules = SystemMessage(label="rules")["be brief"]
        prompt = (
            PrioritizedList()[SystemMessage()["hi"], rules, UserMessage()["a"]],
            UserMessage()["q"],
        )
        assert [texts(prompt, budget) for budget in (5, 4, 3)] == [
            ["hi", "be brief", "a", "q"],
            ["be brief", "a", "q"],
            ["be brief", "q"],
        ]
        assert failure(prompt, 2).required == 3
        assert texts(from_json(to_json(prompt)), 3) == ["be brief", "q"]
        assert texts(prompt, 2, "prompt-tsx") == ["a", "q"]
        small = render(prompt, budget=3, tokenizer=WORDS)
        assert [removal.label for removal in small.removals] == [
            "PrioritizedList[0] > SystemMessage[0]",
            "PrioritizedList[0] > UserMessage[2]",
        ]
        prioritized = PrioritizedList()[SystemMessage(priority=1)["hi"], UserMessage()["q"]]
        assert texts(prioritized, 1) == ["q"]

    def test_a_group_does_not_take_it_along(self) -> None:
        prompt = (
            KeepWith(group=1)[SystemMessage()["about x"]],
            KeepWith(group=1, priority=1)[UserMessage()["x"]],
            UserMessage()["q"],
        )
        assert texts(prompt, 9) == ["about x", "x", "q"]
        assert failure(prompt, 2).required == 4  # the question, too

    def test_a_limit_around_it_or_in_it_does_not_remove_it(self) -> None:
        for prompt in (
            TokenLimit(max_tokens=1)[SystemMessage()["be brief"]],
            SystemMessage()[TokenLimit(max_tokens=1)["be brief"]],
            Isolate(tokens=1)[SystemMessage()["be brief"]],
        ):
            assert failure((prompt, UserMessage()["q"]), 99).where

    def test_as_a_marker_it_is_as_prunable_as_what_it_replaces(self) -> None:
        prompt = (
            UserMessage(priority=1, fallback=SystemMessage()["omitted"])["old question"],
            UserMessage()["q"],
        )
        assert [texts(prompt, budget) for budget in (3, 2, 1)] == [
            ["old question", "q"],
            ["omitted", "q"],
            ["q"],
        ]

    def test_the_same_element_is_kept_in_one_place_and_pruned_in_another(self) -> None:
        system = SystemMessage()["be brief"]
        renderer = Renderer(budget=3, tokenizer=WORDS)
        pruned = (SystemMessage()["a"], Group(priority=1)[system], UserMessage()["q"])
        assert [message.text for message in renderer.render(pruned).messages] == ["a", "q"]
        renderer = Renderer(budget=2, tokenizer=WORDS)
        with pytest.raises(BudgetExceededError):
            renderer.render((system, UserMessage()["q"]))

    def test_a_tree_that_went_through_json_keeps_it(self) -> None:
        prompt = (SystemMessage()["a"], AssistantMessage()["b"], UserMessage()["q"])
        assert texts(from_json(to_json(prompt)), 2) == ["a", "q"]

    def test_in_prompt_tsx_it_is_the_first_of_those_without_a_priority(self) -> None:
        assert texts((SystemMessage()["a"], UserMessage()["q"]), 1, "prompt-tsx") == ["q"]


@pytest.mark.spec("D12")
class TestLiteralText:
    def test_a_heading_outlives_its_list(self) -> None:
        prompt = (
            UserMessage(priority=1)["Notes:", PrioritizedList()["one", "two"]],
            UserMessage()["q"],
        )
        assert [texts(prompt, budget)[0] for budget in (4, 3, 2, 1)] == [
            "Notes:\none\ntwo",
            "Notes:\ntwo",
            "Notes:",
            "q",
        ]
        assert texts(prompt, 3, "prompt-tsx")[0] == "one\ntwo"

    @pytest.mark.parametrize("priority", [None, 0, 5, 2**60])
    def test_it_outlives_siblings_of_any_priority(self, priority: float | None) -> None:
        assert texts(UserMessage(priority=3)["Notes:", TextChunk(priority=priority)["one"]], 1) == [
            "Notes:"
        ]
        assert texts(
            UserMessage(priority=3)[TextChunk(priority=priority)["one"], " Notes:"], 1
        ) == [" Notes:"]
        assert texts(
            UserMessage(priority=3)["Notes:", Group(priority=priority)[TextChunk()["one"]]], 1
        ) == ["Notes:"]

    def test_texts_of_one_element_leave_in_written_order(self) -> None:
        prompt = (UserMessage(priority=1)["a ", "c ", TextChunk()["b"]], UserMessage()["q"])
        assert [texts(prompt, budget)[0] for budget in (4, 3, 2, 1)] == [
            "a c \nb",
            "a c ",
            "c ",
            "q",
        ]

    @pytest.mark.parametrize(
        "inner",
        [
            TextChunk()["code"],
            Truncate(marker="")["code"],
            Group()[TextChunk(priority=1)["code"]],
            Group()[Chunk()[" ", Text()["code"]]],
            Provide(1)[TextChunk()["code"]],
            Group()["code"],
            TextChunk(fallback=None)["code"],
        ],
    )
    def test_on_both_sides_of_what_can_leave_it_leaves_with_the_last_of_it(
        self, inner: Child
    ) -> None:
        prompt = (UserMessage(priority=1)["<file> ", inner, " </file>"], UserMessage()["q"])
        assert [[len(text.split()) for text in texts(prompt, budget)] for budget in (4, 3)] == [
            [3, 1],
            [1],
        ]
        assert texts(prompt, 3, "prompt-tsx") != ["q"]

    def test_on_both_sides_of_several_children_it_leaves_with_the_last_of_them(self) -> None:
        prompt = (
            UserMessage(priority=1)["<a> ", PrioritizedList()["one", "two"], "-", "three", " </a>"],
            UserMessage()["q"],
        )
        assert [texts(prompt, budget)[0] for budget in (5, 4, 3)] == [
            "<a> \none\ntwo-three </a>",
            "<a> \ntwo-three </a>",
            "q",
        ]

    def test_on_both_sides_of_some_of_the_children_it_leaves_with_the_last_of_these(self) -> None:
        prompt = (
            UserMessage(priority=1)[
                TextChunk(priority=9)["intro"],
                "<a> ",
                TextChunk(priority=1)["one"],
                TextChunk(priority=2)["two"],
                " </a>",
                " and",
                TextChunk(priority=8)["outro"],
            ],
            UserMessage()["q"],
        )
        assert texts(prompt, 6)[0] == "intro<a> \ntwo </a> and\noutro"
        assert texts(prompt, 5)[0] == texts(prompt, 4)[0] == "intro and\noutro"

    def test_a_text_between_two_children_may_be_the_label_of_the_second_and_stays(self) -> None:
        prompt = (
            UserMessage(priority=1)[
                "Notes: ",
                TextChunk(priority=1)["one"],
                " Question: ",
                TextChunk(priority=2)["why?"],
            ],
            UserMessage()["q"],
        )
        made = render(prompt, budget=4, tokenizer=WordTokenizer())
        assert made.messages[0].text == "Notes:  Question: \nwhy?"
        assert made.notes == ("in UserMessage[0] nothing is left between literal texts.",)

    def test_each_pair_leaves_with_what_is_in_it(self) -> None:
        prompt = (
            UserMessage(priority=1)[
                "<a>",
                TextChunk(priority=1)["one"],
                "</a> ",
                "<b>",
                TextChunk(priority=2)["two"],
                "</b>",
            ],
            UserMessage()["q"],
        )
        assert texts(prompt, 4)[0] == texts(prompt, 3)[0] == "<b>\ntwo</b>"
        assert texts(prompt, 2)[0] == "q"

    def test_one_text_between_two_children_leaves_with_the_last_of_both(self) -> None:
        for first, second in ((1, 2), (2, 1)):
            prompt = (
                UserMessage(priority=1)[
                    "<a> ",
                    TextChunk(priority=first)["one"],
                    " </a> <b> ",
                    TextChunk(priority=second)["two"],
                    " </b>",
                ],
                UserMessage()["q"],
            )
            assert len(texts(prompt, 6)[0].split()) == 5
            assert texts(prompt, 5) == ["q"]

    @pytest.mark.parametrize(
        "inner",
        [
            TextChunk(break_on="\n")["code of many words"],
            TextChunk(break_on_whitespace=True, flex_grow=1)["code of"],
            Group(flex_grow=1)[tag.code()[TextChunk(break_on="\n")["code of many words"]]],
            Group()[
                "<code>", TextChunk(break_on="\n", flex_grow=1)["code of many words"], "</code>"
            ],
            First(flex_grow=1)["code of many words " * 9, None],
        ],
    )
    def test_on_both_sides_of_what_has_a_share_of_nothing_it_is_not_sent(
        self, inner: Child
    ) -> None:
        prompt = (
            UserMessage(priority=1, flex_grow=1)["<file> ", inner, " </file>"],
            UserMessage()["q " * 5],
        )
        made = render(prompt, budget=6, tokenizer=WordTokenizer())
        assert [message.text for message in made.messages] == ["q " * 5]
        assert made.tokens == 5
        assert [(row.reason, row.path) for row in made.removals] == [("share", "UserMessage[0]")]
        assert made.notes == ()
        assert texts(prompt, 99)[0] != "q " * 5
        assert "</" in texts(prompt, 6, "prompt-tsx")[0]

    def test_what_remains_beside_a_share_of_nothing_stays(self) -> None:
        prompt = (
            UserMessage(priority=1, flex_grow=1)[
                TextChunk()["intro"], "<a>", TextChunk(break_on=" ", flex_grow=1)["b c"], "</a>"
            ],
            UserMessage()["q"],
        )
        made = render(prompt, budget=2, tokenizer=WordTokenizer())
        assert [message.text for message in made.messages] == ["intro", "q"]
        assert [(row.reason, row.path) for row in made.removals] == [
            ("share", "UserMessage[0] > text[1]"),
            ("share", "UserMessage[0] > text[3]"),
        ]

    def test_the_only_user_message_does_not_leave_with_a_share_of_nothing(self) -> None:
        prompt = UserMessage(priority=1)["<a> ", TextChunk(break_on=" ")["b"], " </a>"]
        with pytest.raises(BudgetExceededError, match="budget of 0"):
            texts(prompt, 0)

    def test_where_it_stays_around_nothing_the_receipt_says_so(self) -> None:
        prompt = UserMessage()["<a> ", TextChunk(priority=1)["one"], " </a>", Text()["q"]]
        made = render(prompt, budget=2, tokenizer=WordTokenizer())
        assert made.messages[0].text == "<a>  </a>q"
        assert made.notes == ("in UserMessage nothing is left between literal texts.",)
        assert made.notes[0] in made.explain()

    def test_on_both_sides_of_what_must_stay_it_outlives_the_others(self) -> None:
        prompt = UserMessage(priority=1)[
            "<a> ", TextChunk()["more"], TextChunk(required=True)["code"], " </a>"
        ]
        assert texts((prompt, UserMessage()["q"]), 4)[0] == "<a> \ncode </a>"

    def test_on_both_sides_in_what_is_never_removed_it_stays(self) -> None:
        prompt = (
            SystemMessage()["<a> ", TextChunk(priority=1)["more"], " </a>"],
            UserMessage()["q"],
        )
        assert texts(prompt, 3)[0] == "<a>  </a>"

    def test_on_both_sides_of_a_fallback_it_stays_until_that_leaves(self) -> None:
        prompt = (
            UserMessage(priority=1)["<a> ", Text(fallback="short")["long text"], " </a>"],
            UserMessage()["q"],
        )
        assert [texts(prompt, budget)[0] for budget in (5, 4, 3)] == [
            "<a> long text </a>",
            "<a> short </a>",
            "q",
        ]

    def test_on_both_sides_of_a_limit_that_keeps_nothing_it_leaves(self) -> None:
        prompt = (
            UserMessage(priority=1)["<a> ", TokenLimit(max_tokens=0)[TextChunk()["b"]], " </a>"],
            UserMessage()["q"],
        )
        assert texts(prompt, 99) == ["q"]

    def test_it_leaves_with_the_element_around_it(self) -> None:
        prompt = UserMessage()[
            Group(priority=1)["heading", TextChunk(priority=9)["note"]],
            TextChunk(priority=2)["other"],
        ]
        assert [texts(prompt, budget)[0] for budget in (3, 2, 1)] == [
            "heading\nnote\nother",
            "heading\nother",
            "other",
        ]

    def test_in_a_chunk_it_leaves_with_the_chunk(self) -> None:
        assert texts(
            UserMessage()[Chunk(priority=1)["a ", Text(priority=0)["b"]], TextChunk()["c"]], 2
        ) == ["c"]

    def test_in_a_container_that_passes_its_priority_it_outlives_the_siblings_too(self) -> None:
        prompt = UserMessage()[
            Group(pass_priority=True, priority=0)["heading", TextChunk(priority=1)["a"]],
            TextChunk(priority=9)["b"],
        ]
        assert [texts(prompt, budget)[0] for budget in (2, 1)] == ["heading\nb", "heading"]

    def test_in_a_limit_it_outlives_the_rest_of_it(self) -> None:
        assert texts(
            UserMessage()[
                TokenLimit(max_tokens=2)[
                    "Notes:", TextChunk(priority=7)["one"], TextChunk(priority=8)["two"]
                ]
            ],
            9,
        ) == ["Notes:\ntwo"]

    def test_what_stands_before_a_cache_breakpoint_still_stays(self) -> None:
        assert texts(
            UserMessage()[
                TextChunk(priority=0)["a"], CacheBreakpoint(), "b", TextChunk(priority=9)["c"]
            ],
            2,
        ) == ["ab"]

    def test_ties_between_elements_are_as_before(self) -> None:
        prompt = (
            UserMessage(priority=1)[TextChunk(priority=0)["low"]],
            UserMessage(priority=1)["text"],
            UserMessage(required=True)["q"],
        )
        for defaults in ("promptkit", "prompt-tsx"):
            assert texts(prompt, 2, defaults) == ["text", "q"]


TOOL_STEP = (
    AssistantMessage(tool_calls=[ToolCall(id="1", name="f")]),
    ToolMessage(tool_call_id="1")["result"],
)

EARLIER = {
    "pinned by a cache breakpoint": UserMessage()["context", CacheBreakpoint()],
    "required": UserMessage(required=True)["context"],
    "a required round": Rounds(
        rounds=[[Message(role="user", content=("context",))]], order=[], priorities=[]
    ),
}
"""Prompts of one token that are never pruned. Each contains a user message."""

FORMS = {
    "a text": UserMessage()["the question"],
    "several parts": UserMessage()["the ", Group()["question"]],
    "in a group": Group()[UserMessage()["the question"]],
    "in a chunk": Chunk()[UserMessage()["the question"]],
    "in a group that passes its priority": Group(pass_priority=True, priority=1)[
        UserMessage()["the question"]
    ],
    "in a limit": TokenLimit(max_tokens=50)[UserMessage()["the question"]],
    "of a component": Question()["the question"],
    "among others": Group()[
        AssistantMessage()["a"], UserMessage()["the question"], AssistantMessage()["b"]
    ],
    "beside a container that passes its priority": (
        Group(pass_priority=True)[AssistantMessage(priority=5)["a"]],
        UserMessage()["the question"],
    ),
}


@pytest.mark.spec("D13")
class TestTheLastUserMessageWithoutAPriority:
    @pytest.mark.parametrize("question", FORMS.values(), ids=FORMS.keys())
    @pytest.mark.parametrize("earlier", EARLIER.values(), ids=EARLIER.keys())
    def test_stays_whatever_other_user_messages_stay(self, earlier: Child, question: Child) -> None:
        prompt = (SystemMessage()["rules"], earlier, question)
        for around in (Group(), LegacyPrioritization()):
            assert texts(around[prompt], 4) == ["rules", "context", "the question"]
            error = failure(around[prompt], 3)
            assert (error.required, error.over, error.last_message) == (4, 1, "")

    def test_outlives_what_has_any_priority(self) -> None:
        assert texts((UserMessage(priority=2**60)["context"], UserMessage()["question"]), 1) == [
            "question"
        ]

    def test_outlives_what_has_no_priority_either(self) -> None:
        assert texts(
            (UserMessage()["old"], UserMessage()["question"], AssistantMessage()["let me see"]), 1
        ) == ["question"]
        assert texts((UserMessage()["question"], *TOOL_STEP), 1) == ["question"]

    def test_may_stand_before_reminders_and_notes_that_have_priorities(self) -> None:
        prompt = (
            UserMessage()["question"],
            UserMessage(priority=9)["do not forget"],
            Group(priority=8)[UserMessage()["note"]],
        )
        assert [texts(prompt, budget) for budget in (5, 4, 1)] == [
            ["question", "do not forget", "note"],
            ["question", "do not forget"],
            ["question"],
        ]
        assert failure(prompt, 0).required == 1

    def test_is_another_one_if_what_stands_behind_it_is_blank_or_a_fallback(self) -> None:
        blank = UserMessage()[" ", None]
        marker = AssistantMessage(priority=1, fallback=UserMessage()["omitted"])["something old"]
        prompt = (UserMessage(required=True)["context"], UserMessage()["question"], blank, marker)
        assert [texts(prompt, budget) for budget in (3, 2)] == [
            ["context", "question", "omitted"],
            ["context", "question"],
        ]
        assert failure(prompt, 1).required == 2

    def test_may_be_required_itself_and_then_another_one_is_prunable(self) -> None:
        assert texts((UserMessage()["context"], UserMessage(required=True)["question"]), 1) == [
            "question"
        ]

    def test_may_be_in_a_round_that_is_required_and_then_another_one_is_prunable(self) -> None:
        rounds = [[Message(role="user", content=(text,))] for text in ("first", "second")]
        prompt = (UserMessage()["context"], Rounds(rounds=rounds, order=[0], priorities=[1]))
        assert texts(prompt, 1) == ["second"]
        assert texts(
            (UserMessage()["context"], Rounds(rounds=rounds, order=[0, 1], priorities=[1, 2])), 1
        ) == ["context"]

    def test_loses_its_children_that_have_priorities_and_nothing_else(self) -> None:
        prompt = UserMessage()[
            "question ",
            TextChunk()["file"],
            Group(priority=2)["note"],
            Chunk()["whole ", Text(priority=0)["chunk"]],
        ]
        assert [texts(prompt, budget) for budget in (5, 4)] == [
            ["question \nfile\nnote\nwhole chunk"],
            ["question \nfile\nwhole chunk"],
        ]
        assert failure(prompt, 3).required == 4

    def test_is_never_emptied(self) -> None:
        prompt = (
            UserMessage(required=True)["context"],
            UserMessage()[PrioritizedList()["one", "two"]],
        )
        assert texts(prompt, 2) == ["context", "two"]
        assert failure(prompt, 1).required == 2

    def test_says_in_the_error_what_to_do(self) -> None:
        assert str(failure((SystemMessage()["rules"], UserMessage()["far too long"]), 2)) == (
            "4 required tokens do not fit a budget of 2 (over by 2). Largest: UserMessage[1] 3; SystemMessage[0] 1. "
            "Make one of them prunable, give it a shorter variant, or raise the budget."
        )

    def test_holds_the_group_that_it_is_kept_with(self) -> None:
        prompt = (
            KeepWith(group=1, priority=1)[AssistantMessage()["a"]],
            KeepWith(group=1)[UserMessage()["q"]],
        )
        assert failure((UserMessage(required=True)["b"], prompt), 2).required == 3

    @pytest.mark.parametrize("limited", [TokenLimit(max_tokens=1), Isolate(tokens=1)])
    def test_is_not_removed_by_a_limit(self, limited: PromptElement) -> None:
        for prompt in (
            limited[UserMessage()["the question"]],
            UserMessage()[limited["the question"]],
        ):
            error = failure((UserMessage(required=True)["context"], prompt), 99)
            assert (error.budget, error.required, error.last_message) == (1, 2, "")

    def test_is_not_removed_for_what_an_expandable_adds(self) -> None:
        grows = AssistantMessage()[Expandable(value=lambda sizing: "x " * sizing.token_budget)]
        prompt = TokenLimit(max_tokens=9)[
            UserMessage(required=True)["context"], UserMessage()["the question"], grows
        ]
        assert texts(prompt, 20)[:2] == ["context", "the question"]

    def test_stays_in_the_limit_of_which_it_is_the_last(self) -> None:
        prompt = (
            UserMessage(required=True)["context"],
            TokenLimit(max_tokens=2)[AssistantMessage()["a a"], UserMessage()["the question"]],
        )
        assert texts(prompt, 99) == ["context", "the question"]

    def test_may_be_removed_with_the_defaults_of_prompt_tsx(self) -> None:
        prompt = (UserMessage(required=True)["context"], UserMessage()["question"])
        assert texts(prompt, 1, "prompt-tsx") == ["context"]


@pytest.mark.spec("D13")
class TestTheLastMessage:
    def test_a_prompt_is_never_emptied(self) -> None:
        error = failure(UserMessage(priority=1)["far too long"], 2)
        assert (error.required, error.over, error.last_message) == (3, 1, "UserMessage")
        assert str(error) == (
            "3 tokens do not fit a budget of 2 (over by 1), and what would be pruned next is the last user message, UserMessage. "
            "Largest: UserMessage 3. Give what may go before it a lower priority, shorten one of them, or raise the budget."
        )
        assert texts(UserMessage(priority=1)["far too long"], 2, "prompt-tsx") == []

    def test_instructions_are_never_sent_alone(self) -> None:
        prompt = (
            SystemMessage(priority=9)["rules"],
            AssistantMessage(priority=1)["old"],
            UserMessage(priority=5)["the question"],
        )
        assert texts(prompt, 3) == ["rules", "the question"]
        error = failure(prompt, 2)
        assert (error.required, error.last_message) == (3, "UserMessage[2]")
        assert [removal.path for removal in error.removed if isinstance(removal, Removal)] == [
            "AssistantMessage[1]"
        ]

    def test_the_last_user_message_is_the_one_that_would_be_left_last(self) -> None:
        prompt = (UserMessage(priority=9)["question"], UserMessage(priority=1)["do not forget"])
        assert texts(prompt, 1) == ["question"]
        assert failure(prompt, 0).last_message == "UserMessage[0]"

    def test_what_is_in_it_is_pruned_as_before(self) -> None:
        assert texts(UserMessage()["question", TextChunk(priority=1)["note"]], 1) == ["question"]

    def test_a_marker_in_a_fallback_does_not_stand_for_it(self) -> None:
        marker = UserMessage()["omitted"]
        prompt = (
            UserMessage(priority=1, fallback=marker)["old one"],
            UserMessage(priority=2, fallback=marker)["the newest question"],
        )
        assert texts(prompt, 4) == ["omitted", "the newest question"]
        assert texts(prompt, 3) == ["the newest question"]
        assert failure(prompt, 2).last_message == "UserMessage[2]"

    def test_a_shorter_variant_inside_it_does(self) -> None:
        prompt = UserMessage()[Group(priority=1, fallback="short")["a long question"]]
        assert texts(prompt, 1) == ["short"]

    def test_a_prompt_without_user_messages_keeps_its_last_message(self) -> None:
        prompt = (AssistantMessage(priority=1)["one"], AssistantMessage(priority=2)["two"])
        assert texts(prompt, 1) == ["two"]
        error = failure(prompt, 0)
        assert error.last_message == "AssistantMessage[1]"
        assert "the last message, AssistantMessage[1]" in str(error)

    @pytest.mark.parametrize("prompt", [(), None, UserMessage()[""], Group()[()]])
    def test_a_tree_without_messages_renders_none(self, prompt: Child) -> None:
        assert texts(prompt, 0) == []

    def test_a_group_takes_nothing_along_with_the_last_user_message(self) -> None:
        prompt = (
            KeepWith(group=1, priority=1)[UserMessage()["q"]],
            KeepWith(group=1)[AssistantMessage()["a a"]],
            *TOOL_STEP,
        )
        assert failure(prompt, 1).last_message == "UserMessage[0]"

    def test_a_user_message_in_a_chunk_counts(self) -> None:
        prompt = (
            Chunk(priority=5)[UserMessage()["q"], AssistantMessage()["a"]],
            AssistantMessage()["prefix"],
        )
        assert failure(prompt, 1).last_message == "Chunk[0] > UserMessage[0]"

    def test_a_limit_that_loses_it_is_named(self) -> None:
        prompt = (SystemMessage()["rules"], UserMessage()[TokenLimit(max_tokens=2)["far too long"]])
        error = failure(prompt, 99)
        assert (error.where, error.budget, error.required, error.last_message) == (
            "UserMessage[1] > TokenLimit",
            2,
            3,
            "",
        )
        assert texts(prompt, 99, "prompt-tsx") == ["rules"]
        assert texts((*prompt, UserMessage()["q"]), 99) == ["rules", "q"]
        prompt = (
            SystemMessage()["rules"],
            UserMessage(priority=1)[TokenLimit(max_tokens=2)["far too long"]],
        )
        assert failure(prompt, 99).last_message == "UserMessage[1]"

    def test_with_a_prune_step_too(self) -> None:
        prompt = (AssistantMessage(priority=1)["a"], UserMessage(priority=2)["q"])
        assert [
            m.text for m in render(prompt, budget=1, tokenizer=WORDS, prune_step=50).messages
        ] == ["q"]
        with pytest.raises(BudgetExceededError):
            render(prompt, budget=0, tokenizer=WORDS, prune_step=50)

    def test_other_budgets_traces_and_sweeps_call_it_too_small(self) -> None:
        prompt = (AssistantMessage(priority=1)["hello there"], UserMessage(priority=2)["question"])
        whole = render(prompt, budget=99)
        needed = whole.at_budget(render(prompt[1]).tokens).tokens
        with pytest.raises(BudgetExceededError) as caught:
            whole.at_budget(needed - 1)
        assert caught.value.required == needed
        points = measure(prompt, budgets=[needed - 1, needed]).sweeps[0].points
        assert [point.required for point in points] == [needed, None]
        with pytest.raises(BudgetExceededError) as caught:
            render(prompt, budget=needed - 1, trace=True)
        trace = caught.value.trace
        assert isinstance(trace, Trace)
        assert trace.counts[-1] == needed
        assert len(trace.removals) == 1


class TestTheOption:
    def test_is_checked(self) -> None:
        with pytest.raises(InvalidArgumentError, match='write "promptkit" or "prompt-tsx"'):
            render(UserMessage()["a"], budget=9, defaults="tsx")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # what is tested

    def test_renderers_and_asynchronous_renders_take_it(self) -> None:
        prompt = UserMessage()["far too long"]
        assert (
            Renderer(budget=2, tokenizer=WORDS, defaults="prompt-tsx").render(prompt).messages == ()
        )
        assert (
            asyncio.run(
                render_async(prompt, budget=2, tokenizer=WORDS, defaults="prompt-tsx")
            ).messages
            == ()
        )

    def test_other_budgets_of_a_render_keep_it(self) -> None:
        assert (
            render(UserMessage()["far too long"], budget=3, tokenizer=WORDS, defaults="prompt-tsx")
            .at_budget(2)
            .messages
            == ()
        )


def kept(prompt: Child, tokenizer: Tokenizer, budget: int) -> tuple[Message, ...] | None:
    try:
        return render(prompt, budget=budget, tokenizer=tokenizer).messages
    except BudgetExceededError:
        return None


@given(prompts(), tokenizers(), st.floats(0, 1))
def test_a_request_has_a_user_message_if_the_prompt_has_one_and_the_system_message_that_has_no_priority(
    prompt: Child, tokenizer: Tokenizer, share: float
) -> None:
    note(f"prompt = {prompt!r}\ntokenizer = {tokenizer!r}")
    prompt = (SystemMessage()["rules"], prompt, UserMessage(priority=1)["question"])
    whole = kept(prompt, tokenizer, 10_000)
    if whole is None:
        return
    messages = kept(
        prompt, tokenizer, int(share * sum(10 + len(message.text) for message in whole))
    )
    assert messages is None or (
        messages[0].text == "rules" and any(message.role == "user" for message in messages)
    )


PINNED = (UserMessage(required=True)["context"], UserMessage()["context", CacheBreakpoint()])


@given(prompts(), tokenizers(), st.floats(0, 1), st.sampled_from(PINNED))
def test_a_request_ends_with_the_question_if_that_has_no_priority(
    prompt: Child, tokenizer: Tokenizer, share: float, pinned: Child
) -> None:
    note(f"prompt = {prompt!r}\ntokenizer = {tokenizer!r}")
    prompt = (prompt, pinned, UserMessage()["question"])
    whole = kept(prompt, tokenizer, 10_000)
    if whole is None:
        return
    messages = kept(
        prompt, tokenizer, int(share * sum(10 + len(message.text) for message in whole))
    )
    assert messages is None or messages[-1].text == "question"


class TestDefaultsOfPromptTsx:
    PROMPT = (
        SystemMessage()["be brief"],
        AssistantMessage()["hello there"],
        UserMessage()["question"],
    )

    def test_in_a_snapshot(self) -> None:
        options = SnapshotOptions(budgets=(3,), tokenizer=WORDS, defaults="prompt-tsx")
        (level,) = render_levels(self.PROMPT, options, Stabilizer(StabilizeOptions()))
        assert [message.text for message in level.messages] == ["hello there", "question"]

    def test_in_a_bench(self) -> None:
        def used(defaults: Defaults) -> int:
            run = measure(self.PROMPT, budgets=[13], defaults=defaults)
            return run.sweeps[0].points[0].used

        assert used("prompt-tsx") == render(self.PROMPT, budget=13, defaults="prompt-tsx").tokens
        assert used("promptkit") == 0

    @pytest.mark.parametrize("defaults", ["promptkit", "prompt-tsx"])
    def test_in_a_window_the_request_stays(self, defaults: Defaults) -> None:
        def prompt(view: ConversationView) -> Child:
            _ = view
            return (
                SystemMessage()["You are brief and kind."],
                UserMessage()["the question of the user"],
                AssistantMessage()["a reply that was written last " * 3],
            )

        window = ContextWindow(
            model="gpt-5",
            prompt=prompt,
            tokenizer=WORDS,
            budget=18,
            defaults=defaults,
            enabled=False,
        )
        window.add(Message(role="user", content=("hello",)))
        shown = [message.text for message in asyncio.run(window.request()).messages]
        assert "the question of the user" in shown
        system = "You are brief and kind."
        assert (system in shown) is (defaults == "promptkit")

    def test_a_misspelt_name_is_refused(self) -> None:
        with pytest.raises(TypeError, match='defaults must be "promptkit" or "prompt-tsx"'):
            ContextWindow(model="gpt-5", defaults="prompttsx")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_neighbouring_system_messages_are_sent_as_one_with_merge_system() -> None:
    made = render(
        (SystemMessage()["a"], SystemMessage()["b"], UserMessage()["q"], SystemMessage()["c"])
    )
    assert [message["content"] for message in made.to_chat()] == ["a", "b", "q", "c"]
    merged = made.to_chat(merge_system=True)
    assert [message["content"] for message in merged] == ["a\nb", "q", "c"]
    assert [item["content"] for item in made.to_responses(merge_system=True)] == ["a\nb", "q", "c"]


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return path


@pytest.mark.parametrize("tools", [[], [read_file]])
@pytest.mark.parametrize("first", ["You are terse.", "You are terse.\n", "One   \n"])
def test_merged_system_messages_are_counted_as_they_are_sent(first: str, tools: list[Tool]) -> None:
    second, rest = "Answer in French.", (UserMessage()["q"], SystemMessage()["c"])
    made = render((SystemMessage()[first], SystemMessage()[second], *rest), tools=tools)
    sent = render((SystemMessage()[f"{first}\n{second}"], *rest), tools=tools)
    for target in ("chat", "responses"):
        assert made.count_tokens(target, merge_system=True) == sent.count_tokens(target)
        assert made.count_tokens(target, merge_system=True) < made.count_tokens(target)
    assert made.count_tokens("anthropic", merge_system=True) == made.count_tokens("anthropic")


def test_merged_system_messages_keep_their_cache_breakpoints() -> None:
    made = render(
        (SystemMessage()["a", CacheBreakpoint()], SystemMessage()["b"], UserMessage()["q"])
    )
    (system, _) = made.to_chat(merge_system=True)
    assert [part["text"] for part in system["content"]] == ["a", "\nb"]
    assert "prompt_cache_breakpoint" in system["content"][0]


def test_cache_breakpoints_are_sent_and_system_messages_are_not_merged_unless_it_is_said() -> None:
    made = render(
        (SystemMessage()["a", CacheBreakpoint()], SystemMessage()["b"], UserMessage()["q"])
    )
    assert made.to_chat() == made.to_chat(cache=True, merge_system=False)
    assert made.to_responses() == made.to_responses(cache=True, merge_system=False)
    assert made.to_anthropic() == made.to_anthropic(cache=True) != made.to_anthropic(cache=False)
    for send in (made.to_chat, made.to_responses):
        assert send() != send(cache=False)
        assert send() != send(merge_system=True)


@pytest.mark.parametrize("system", ["You help.", "You help!*", "Be"])
def test_a_render_records_nothing_and_rounds_nothing_unless_it_is_said(system: str) -> None:
    prompt = (
        SystemMessage()[system],
        AssistantMessage(priority=1)["one of many " * 5],
        UserMessage()["And now?"],
    )
    tools = [ToolDefinition(name="read")]
    whole = render(prompt, budget=999, model="gpt-4o", tools=tools)
    tight = asyncio.run(render_async(prompt, budget=whole.tokens, model="gpt-4o", tools=tools))
    assert (tight.messages, tight.trace, whole.trace) == (whole.messages, None, None)
