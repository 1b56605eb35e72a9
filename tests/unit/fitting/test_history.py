"""`History`: the newest turns stay, pairs stay whole, and the gap is named."""

from __future__ import annotations

import doctest
import re

import pytest
from hypothesis import assume, given, settings, strategies as st

from promptkit import (
    BudgetExceededError,
    History,
    Message,
    PromptElement,
    Rendered,
    Renderer,
    SystemMessage,
    ToolCall,
    UserMessage,
    render,
)
from promptkit.fitting import history
from promptkit.messages import CacheBreakpointPart, Repair
from promptkit.pairing import MISSING_TOOL_RESULT
from promptkit.rendering.expand import expansion
from promptkit.rendering.expand.build import show_message
from tests.examples import examples, keep_first

MARKER = re.compile(r"\[([\d,]+) messages? omitted\]")


def said(text: str) -> Message:
    return Message(role="user", content=(text,))


def answered(text: str) -> Message:
    return Message(role="assistant", content=(text,))


def called(*ids: str, text: str = "") -> Message:
    return Message(
        role="assistant",
        content=(text,) if text else (),
        tool_calls=tuple(ToolCall(id=i, name="read") for i in ids),
    )


def calling(ids: list[str], text: str) -> Message:
    return called(*ids, text=text)


def returned(key: str, text: str = "ok") -> Message:
    return Message(role="tool", content=(text,), tool_call_id=key)


def chat(turns: int) -> list[Message]:
    return [
        m
        for i in range(turns)
        for m in (
            said(f"Question {i} about the parser?"),
            answered(f"Answer {i}, which is a little longer."),
        )
    ]


def agent(rounds: int) -> list[Message]:
    work = [
        m
        for i in range(rounds)
        for m in (called(f"c{i}", text=f"Step {i}."), returned(f"c{i}", f"Output {i} of the tool."))
    ]
    return [said("Fix the parser."), *work, answered("Done.")]


def texts(rendered: Rendered) -> list[str]:
    return [message.text for message in rendered.messages]


def markers(rendered: Rendered) -> list[str]:
    return [text for text in texts(rendered) if MARKER.fullmatch(text)]


def assert_paired(rendered: Rendered) -> None:
    open_ids: list[str | None] = []
    for message in rendered.messages:
        if message.role == "tool":
            assert message.tool_call_id in open_ids
            open_ids.remove(message.tool_call_id)
        else:
            assert not open_ids
            open_ids = [call.id for call in message.tool_calls]
    assert not open_ids


def budgets(element: PromptElement, step: int = 1) -> range:
    return range(-(-find_least_budget(element) // step) * step, render(element).tokens + step, step)


def find_least_budget(element: PromptElement) -> int:
    """The smallest budget at which something is rendered."""
    with pytest.raises(BudgetExceededError) as caught:
        render(element, budget=0)
    return caught.value.required


class TestWhatIsShown:
    def test_everything_where_it_fits(self) -> None:
        turns = [*chat(3), *agent(2)]
        assert render(History(turns=turns)).messages == tuple(turns)

    def test_no_system_message_of_the_recording(self) -> None:
        turns = [Message(role="system", content=("Be brief.",)), *chat(1)]
        assert render(History(turns=turns)).messages == tuple(turns[1:])

    def test_system_messages_where_asked_for(self) -> None:
        turns = [Message(role="system", content=("Be brief.",)), *chat(1)]
        assert render(History(turns=turns, keep_system=True)).messages == tuple(turns)

    def test_no_cache_breakpoint_of_the_recording(self) -> None:
        turns = [
            Message(role="user", content=("one", CacheBreakpointPart(kind="ephemeral"))),
            answered("two"),
        ]
        assert [m.content for m in render(History(turns=turns)).messages] == [("one",), ("two",)]

    def test_an_empty_result_is_an_empty_result(self) -> None:
        turns = [said("go"), called("a"), Message(role="tool", tool_call_id="a")]
        assert render(History(turns=turns)).messages == tuple(turns)

    def test_nothing_of_nothing(self) -> None:
        assert render(History(turns=[])).messages == ()

    def test_a_result_cut_in_the_middle(self) -> None:
        long = "\n".join(f"line {i}" for i in range(500))
        shown = (
            render(History(turns=[said("go"), called("a"), returned("a", long)], truncate_at=60))
            .messages[-1]
            .text
        )
        assert shown.startswith("line 0\n")
        assert shown.endswith("line 499")
        assert "[… cut …]" in shown
        assert len(shown) < 400

    def test_nothing_of_a_result_that_may_have_one_token(self) -> None:
        rendered = render(
            History(turns=[said("go"), called("a"), returned("a", "word " * 9)], truncate_at=1)
        )
        assert [message.role for message in rendered.messages] == ["user", "assistant", "tool"]


class TestWhatLeaves:
    def test_the_oldest_turn_first(self) -> None:
        history = History(turns=chat(6), omitted_marker=False)
        whole = texts(render(history))
        # each answer before its question
        order = [whole[at + 1 - 2 * (at % 2)] for at in range(len(whole))]
        for budget in budgets(history, 5):
            kept = texts(render(history, budget=budget))
            expected = [text for text in whole if text in order[len(order) - len(kept) :]]
            assert all(
                "[… cut …]" in text or text == full
                for text, full in zip(kept, expected, strict=True)
            )

    def test_an_answer_never_stands_without_its_question(self) -> None:
        history = History(turns=chat(5))
        for budget in budgets(history, 3):
            kept = texts(render(history, budget=budget))
            for text in kept:
                if found := re.match(r"Answer (\d)", text):
                    assert f"Question {found[1]} about the parser?" in kept

    def test_the_oldest_step_of_a_turn_before_its_request(self) -> None:
        history = History(turns=agent(8), omitted_marker=False)
        for budget in budgets(history, 7):
            kept = texts(render(history, budget=budget))
            assert not kept or kept[0] == "Fix the parser."
            steps = [int(text[5:-1]) for text in kept if text.startswith("Step")]
            assert steps == list(range(8 - len(steps), 8))

    def test_a_call_and_its_results_together(self) -> None:
        turns = [
            said("go"),
            called("a", "b", text="both"),
            returned("a", "one"),
            returned("b", "two"),
            answered("done"),
        ]
        history = History(turns=turns)
        for budget in budgets(history):
            assert_paired(render(history, budget=budget))

    def test_required_turns_never(self) -> None:
        history = History(turns=chat(4), keep_turns=1)
        needed = render(History(turns=chat(4)[-2:])).tokens
        assert texts(render(history, budget=needed)) == texts(render(History(turns=chat(4)[-2:])))

    @pytest.mark.parametrize("turns", [3, 4])
    def test_no_turn_where_as_many_are_required_as_there_are(self, turns: int) -> None:
        history = History(turns=chat(3), keep_turns=turns)
        assert find_least_budget(history) == render(history).tokens

    def test_a_long_result_is_shortened_before_its_call_leaves(self) -> None:
        turns = [
            said("go"),
            called("a"),
            returned("a", "word " * 300),
            said("and now?"),
            answered("done"),
        ]
        rendered = render(History(turns=turns), budget=100)
        assert len(rendered.messages) == len(turns)
        assert "[… cut …]" in texts(rendered)[2]
        assert_paired(rendered)


class TestLabels:
    def test_two_histories_with_labels_are_told_apart_in_a_receipt(self) -> None:
        both = [History(turns=chat(2), label="team"), History(turns=chat(2), label="mine")]
        rendered = render(both, budget=40)
        labels = [removal.label for removal in rendered.removals]
        assert "team > turn 1 · reply" in labels
        assert "mine > turn 1 · reply" in labels
        assert labels[0] in rendered.explain()

    def test_an_error_names_no_private_component(self) -> None:
        both = [History(turns=chat(2), keep_turns=2), History(turns=chat(2), keep_turns=2)]
        with pytest.raises(BudgetExceededError) as caught:
            render(both, budget=5)
        assert "turn 1 · reply" in str(caught.value)
        assert not re.search(r"\b_[A-Za-z]", str(caught.value))


class TestMarker:
    @pytest.mark.parametrize(
        "turns",
        keep_first(1, [*chat(3), *agent(5)], chat(8), agent(8)),
        ids=["both", "chat", "agent"],
    )
    def test_counts_what_is_gone_and_stands_once(self, turns: list[Message]) -> None:
        history = History(turns=turns)
        seen = 0
        for budget in budgets(history, 2):
            rendered = render(history, budget=budget)
            marks = markers(rendered)
            assert len(marks) <= 1
            if marks and (found := MARKER.fullmatch(marks[0])):
                seen += 1
                assert len(rendered.messages) - 1 == len(turns) - int(found[1])
        assert seen

    @pytest.mark.parametrize(
        "turns",
        keep_first(1, [*chat(3), *agent(5)], chat(8), agent(8)),
        ids=["both", "chat", "agent"],
    )
    def test_is_there_wherever_something_is_gone_and_it_fits(self, turns: list[Message]) -> None:
        history = History(turns=turns)
        marker = render(UserMessage()["[99 messages omitted]"]).tokens
        for budget in range(marker + find_least_budget(history), render(history).tokens, 3):
            rendered = render(history, budget=budget)
            assert bool(markers(rendered)) == (
                len(rendered.messages) - len(markers(rendered)) < len(turns)
            )

    def test_can_be_switched_off(self) -> None:
        history = History(turns=chat(8), omitted_marker=False)
        assert not any(markers(render(history, budget=budget)) for budget in budgets(history, 5))

    def test_can_be_worded(self) -> None:
        history = History(turns=chat(8), omitted_marker=lambda count: f"({count} gone)")
        assert any(
            "(4 gone)" in texts(render(history, budget=budget)) for budget in budgets(history, 2)
        )


class TestRepairs:
    def test_are_made_and_reported(self) -> None:
        turns = [
            said("go"),
            called("a"),
            said("what now?"),
            returned("b"),
            called("a"),
            returned("a"),
        ]
        rendered = render(History(turns=turns))
        assert_paired(rendered)
        assert texts(rendered) == ["go", "", MISSING_TOOL_RESULT, "what now?", "", "ok"]
        assert [repair.kind for repair in rendered.repairs] == [
            "missing result",
            "orphan result",
            "repeated call id",
        ]
        assert all(isinstance(repair, Repair) for repair in rendered.repairs)

    def test_are_reported_also_where_the_messages_were_pruned(self) -> None:
        assert [
            r.kind for r in render(History(turns=[called("a"), *chat(4)]), budget=60).repairs
        ] == ["missing result"]

    def test_are_listed_in_the_explanation(self) -> None:
        assert "missing result" in render(History(turns=[said("go"), called("a")])).explain()


keys = st.sampled_from(["a", "b", "c"])
any_messages = st.lists(
    st.one_of(
        st.builds(said, st.sampled_from(["hello there", "go on"])),
        st.builds(answered, st.sampled_from(["I see.", "Done with all of it."])),
        st.builds(calling, st.lists(keys, max_size=3), st.sampled_from(["", "I look."])),
        st.builds(returned, keys, st.sampled_from(["", "one", "a longer result of some words"])),
    ),
    max_size=12,
)


class TestLaws:
    @settings(max_examples=examples(60))
    @given(any_messages, st.floats(0, 1))
    def test_whatever_was_recorded_is_well_paired_and_within_the_budget(
        self, turns: list[Message], part: float
    ) -> None:
        history = History(turns=turns)
        assume(render(history).messages)
        budget = max(int(render(history).tokens * part), find_least_budget(history))
        rendered = render(history, budget=budget)
        assert rendered.tokens <= budget
        assert_paired(rendered)
        assert len(markers(rendered)) <= 1

    def test_a_renderer_gives_the_same_bytes_for_the_same_history(self) -> None:
        renderer = Renderer(budget=120)
        for turns in (4, 5, 6):
            tree = (SystemMessage(required=True)["Be brief."], History(turns=chat(turns)))
            assert renderer.render(tree).messages == render(tree, budget=120).messages

    def test_a_first_render_looks_at_each_message_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[Message] = []

        def look(message: Message) -> Message | None:
            seen.append(message)
            return show_message(message)

        monkeypatch.setattr(history, "show_message", look)
        monkeypatch.setattr(expansion, "show_message", look)
        turns = chat(3)
        render(History(turns=turns), budget=1_000)
        assert list(map(id, seen)) == list(map(id, turns))


def test_the_example_in_the_docstring_prints_what_it_says() -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(History, globs={})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
