"""What is required is never pruned; where it does not fit, the error says what would help."""

from __future__ import annotations

import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Child,
    Chunk,
    Group,
    KeepWith,
    Message,
    Metadata,
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
from promptkit.elements.builtin import Rounds
from promptkit.testing import WordTokenizer


def texts(prompt: Child, budget: int) -> list[str]:
    return [
        message.text
        for message in render(prompt, budget=budget, tokenizer=WordTokenizer()).messages
    ]


class TestWhatStays:
    def test_required_text_outlives_what_has_a_higher_priority(self) -> None:
        assert texts(
            UserMessage()[TextChunk(priority=0, required=True)["a"], TextChunk(priority=9)["b"]], 1
        ) == ["a"]

    def test_all_below_a_required_element_stays(self) -> None:
        prompt = (
            SystemMessage(priority=0, required=True)[Group()["a ", "b"], Chunk(priority=0)["c"]],
            AssistantMessage()["d"],
        )
        assert texts(prompt, 3) == ["a b\nc"]

    def test_a_chunk_with_something_required_is_kept_as_a_whole(self) -> None:
        assert texts(
            UserMessage(priority=1)[
                Chunk(priority=0)["a ", Text(required=True)["b"]], TextChunk()["c"]
            ],
            2,
        ) == ["a b"]

    def test_the_next_candidate_is_taken_instead(self) -> None:
        prompt = (
            UserMessage(priority=0)[Text(required=True)["a"]],
            UserMessage(priority=1)["b"],
            UserMessage(priority=2)["c"],
        )
        assert texts(prompt, 2) == ["a", "c"]

    def test_also_under_legacy_prioritization(self) -> None:
        prompt = LegacyPrioritization()[
            UserMessage()[
                Text(priority=0, required=True)["a "], Text(priority=1)["b "], Text(priority=2)["c"]
            ]
        ]
        assert texts(prompt, 2)[0].split() == ["a", "c"]

    def test_partners_of_something_required_stay_with_it(self) -> None:
        prompt = (
            KeepWith(group=1, priority=0)[UserMessage()["a"]],
            KeepWith(group=1, priority=9)[UserMessage(required=True)["b"]],
            UserMessage(priority=5)["c"],
        )
        assert texts(prompt, 2) == ["a", "b"]

    def test_the_call_of_a_required_result_stays(self) -> None:
        prompt = (
            AssistantMessage(priority=0, tool_calls=[ToolCall(id="1", name="f")])["a"],
            ToolMessage(tool_call_id="1", required=True)["r"],
            UserMessage(priority=5)["c"],
        )
        assert texts(prompt, 2) == ["", "r", "c"]

    def test_the_result_of_a_required_call_stays(self) -> None:
        prompt = (
            AssistantMessage(required=True, tool_calls=[ToolCall(id="1", name="f")]),
            ToolMessage(tool_call_id="1", priority=0)["r"],
            AssistantMessage(priority=5)["c"],
        )
        assert texts(prompt, 1) == ["", "r"]

    def test_a_request_that_a_conversation_must_keep_is_the_last_user_message(self) -> None:
        conversation = Rounds(rounds=[Message(role="user", content=("q",))])
        assert texts((UserMessage()["an earlier one"], conversation), 1) == ["q"]

    @pytest.mark.parametrize("order", [[0], [0, 1]])
    def test_a_conversation_without_such_a_request_leaves_the_last_user_message_where_it_is(
        self, order: list[int]
    ) -> None:
        rounds = [Message(role="user", content=("q",)), Message(role="assistant", content=("a",))]
        conversation = Rounds(rounds=rounds, order=order, priorities=order)
        assert texts((UserMessage()["an earlier one"], conversation), 4)[0] == "an earlier one"
        with pytest.raises(BudgetExceededError):
            texts((UserMessage()["an earlier one"], conversation), 2)

    def test_a_blank_request_that_a_conversation_must_keep_does_not_stand_for_the_last_user_message(
        self,
    ) -> None:
        conversation = Rounds(rounds=[Message(role="user", content=("",))])
        prompt = (
            UserMessage()["an earlier one"],
            conversation,
            UserMessage(priority=9, required=True)["b"],
        )
        assert texts(prompt, 4) == ["an earlier one", "b"]
        with pytest.raises(BudgetExceededError):
            texts(prompt, 3)

    def test_a_limit_takes_nothing_that_is_required(self) -> None:
        with pytest.raises(BudgetExceededError, match="TokenLimit"):
            texts(UserMessage(required=True)[TokenLimit(max_tokens=1)["a b c"]], 9)

    def test_required_text_does_not_hold_the_calls_beside_it(self) -> None:
        prompt = (
            AssistantMessage(tool_calls=[ToolCall(id="1", name="f")])[Text(required=True)["a"]],
            ToolMessage(tool_call_id="1", priority=0)["r"],
        )
        made = render(prompt, budget=1, tokenizer=WordTokenizer())
        assert [(message.text, message.tool_calls) for message in made.messages] == [("a", ())]


class TestTheError:
    def prompt(self) -> Child:
        return (
            SystemMessage(required=True)["one two three", Metadata(value="kept")],
            UserMessage(required=True)["four five"],
            UserMessage(priority=1)["six", Metadata(value="lost", local=True)],
        )

    def raised(self, prompt: Child, budget: int) -> BudgetExceededError:
        with pytest.raises(BudgetExceededError) as caught:
            render(prompt, budget=budget, tokenizer=WordTokenizer())
        return caught.value

    def test_says_by_how_much(self) -> None:
        error = self.raised(self.prompt(), 3)
        assert (error.budget, error.required, error.over) == (3, 5, 2)
        assert "over by 2" in str(error)

    def test_names_the_largest_elements_first(self) -> None:
        error = self.raised(self.prompt(), 3)
        assert list(error.largest.values()) == sorted(error.largest.values(), reverse=True)
        assert [(path.split("[")[0], tokens) for path, tokens in error.largest.items()] == [
            ("SystemMessage", 3),
            ("UserMessage", 2),
        ]

    def test_carries_the_unpruned_messages(self) -> None:
        assert [message.text for message in self.raised(self.prompt(), 3).messages] == [
            "one two three",
            "four five",
            "six",
        ]

    def test_carries_the_metadata_that_is_left_and_the_removals(self) -> None:
        error = self.raised(self.prompt(), 3)
        assert error.metadata == ("kept",)
        assert len(error.removed) == 1

    def test_says_which_limit_it_was(self) -> None:
        error = self.raised(TokenLimit(max_tokens=1)[UserMessage(required=True)["one two"]], 100)
        assert (error.budget, error.required) == (1, 2)
        assert "TokenLimit" in error.where
        assert "TokenLimit" in str(error)
