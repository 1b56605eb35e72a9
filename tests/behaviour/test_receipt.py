"""The receipt: what was removed, why, what another budget would have kept, and which element wrote what."""

from __future__ import annotations

from promptkit import (
    AssistantMessage,
    Child,
    Group,
    KeepWith,
    PromptElement,
    Rendered,
    Sizing,
    SystemMessage,
    Text,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    component,
    render,
)
from promptkit.testing import WordTokenizer


def rendered(prompt: Child, budget: int) -> Rendered:
    return render(prompt, budget=budget, tokenizer=WordTokenizer())


PROMPT = (
    SystemMessage(priority=9)["you help"],
    UserMessage(priority=1)["old question here"],
    AssistantMessage(priority=2)["old answer"],
    UserMessage(priority=8)["new question"],
)


class TestRemovals:
    def test_are_in_the_order_of_removal_with_priority_and_tokens(self) -> None:
        made = rendered(PROMPT, 4)
        assert [(r.order, r.path, r.priority, r.tokens, r.reason, r.partner) for r in made.removals] == [
            (1, "UserMessage[1]", 1, 3, "budget", None),
            (2, "AssistantMessage[2]", 2, 2, "budget", None),
        ]

    def test_nothing_removed_leaves_nothing_to_say(self) -> None:
        assert rendered(PROMPT, 9).removals == ()

    def test_of_a_limit_say_so(self) -> None:
        prompt = TokenLimit(max_tokens=2)[UserMessage(priority=1)["a a"], UserMessage(priority=2)["b b"]]
        assert [(r.reason, r.tokens) for r in rendered(prompt, 99).removals] == [("limit", 2)]

    def test_of_partners_name_who_took_them_along(self) -> None:
        prompt = (
            KeepWith(group=1, priority=1)[UserMessage()["question"]],
            KeepWith(group=1, priority=7)[AssistantMessage()["answer"]],
            UserMessage(priority=5)["more"],
        )
        made = rendered(prompt, 2)
        assert [(r.reason, r.partner) for r in made.removals] == [("budget", None), ("kept-with", made.removals[0].path)]

    def test_of_a_pair_name_who_took_them_along(self) -> None:
        prompt = (
            AssistantMessage(tool_calls=[ToolCall(id="1", name="f")])["said"],
            ToolMessage(tool_call_id="1", priority=1)["r r"],
        )
        made = rendered(prompt, 1)
        assert [r.reason for r in made.removals] == ["budget", "tool-pair"]
        assert made.removals[1].path.startswith("AssistantMessage[0]")
        assert made.removals[1].partner == "ToolMessage[1]"


class TestExplain:
    def test_names_the_removed_and_the_sums(self) -> None:
        text = rendered(PROMPT, 4).explain()
        for expected in ("UserMessage[1]", "AssistantMessage[2]", "4"):
            assert expected in text

    def test_says_so_when_everything_fits(self) -> None:
        assert "nothing was removed" in rendered(PROMPT, 9).explain()


class TestWhatif:
    def test_shows_another_budget(self) -> None:
        made = rendered(PROMPT, 9)
        assert [message.text for message in made.at_budget(4).messages] == ["you help", "new question"]
        assert made.at_budget(4).budget == 4
        assert len(made.messages) == 4

    def test_shows_a_larger_one_too(self) -> None:
        assert rendered(PROMPT, 4).at_budget(9).messages == rendered(PROMPT, 9).messages


@component
class Greeting(PromptElement):
    person: str

    def render(self, sizing: Sizing) -> Child:
        return f"Hello {self.person}!"


class TestSourceMap:
    def test_says_which_element_wrote_which_characters(self) -> None:
        made = rendered(UserMessage()["Well. ", Greeting(person="Ada"), Group()[TextChunk()["Bye."]]], 99)
        text = made.messages[0].text
        assert {(text[span.start : span.end].strip(), span.path.split(" > ")[-1].split("[")[0]) for span in made.source_map} == {
            ("Well.", "UserMessage"),
            ("Hello Ada!", "Greeting"),
            ("Bye.", "TextChunk"),
        }

    def test_knows_only_what_survived(self) -> None:
        made = rendered(UserMessage()[Text(priority=1)["a "], Text(priority=2)["b"]], 1)
        assert [(span.message, span.part, span.start, span.end) for span in made.source_map] == [(0, 0, 0, 1)]

    def test_paths_hold_labels(self) -> None:
        made = rendered(UserMessage()[Group(name="history")[Text()["a"]]], 9)
        assert made.source_map[0].path == "UserMessage > Group(history) > Text"
