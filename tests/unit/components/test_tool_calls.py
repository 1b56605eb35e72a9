"""`ToolCalls`: this turn's rounds, cut and paired."""

from __future__ import annotations

from promptkit_components import ToolCalls

from promptkit import TextChunk, ToolCall, ToolRound, render
from promptkit.pairing import MISSING_TOOL_RESULT


def round_of(number: int, output: str = "ok") -> ToolRound:
    return ToolRound(
        calls=[ToolCall(id=f"c{number}", name="read")],
        results={f"c{number}": output},
        text=f"Step {number}.",
    )


class TestRounds:
    def test_are_shown_in_order(self) -> None:
        rendered = render(ToolCalls(rounds=[round_of(0, "one"), round_of(1, "two")]))
        assert [(m.role, m.text) for m in rendered.messages] == [
            ("assistant", "Step 0."),
            ("tool", "one"),
            ("assistant", "Step 1."),
            ("tool", "two"),
        ]

    def test_leave_whole_and_the_oldest_first(self) -> None:
        rounds = [round_of(number) for number in range(6)]
        element = ToolCalls(rounds=rounds)
        for budget in range(
            render(ToolCalls(rounds=rounds[-1:])).tokens, render(element).tokens + 1, 3
        ):
            kept = [m.text for m in render(element, budget=budget).messages]
            assert kept == [
                t for number in range(6 - len(kept) // 2, 6) for t in (f"Step {number}.", "ok")
            ]

    def test_keep_a_priority_of_their_own(self) -> None:
        first = ToolRound(calls=[ToolCall(id="a", name="read")], results={"a": "one"}, priority=100)
        element = ToolCalls(rounds=[first, round_of(1)])
        budget = render(ToolCalls(rounds=[first])).tokens
        assert [m.text for m in render(element, budget=budget).messages] == ["", "one"]


class TestTruncation:
    def test_keeps_the_head_and_more_of_the_tail(self) -> None:
        output = "\n".join(f"line {i}" for i in range(400))
        shown = render(ToolCalls(rounds=[round_of(0, output)], truncate_at=100)).messages[1].text
        head, tail = shown.split("[… output cut …]")
        assert head.startswith("line 0\n")
        assert tail.endswith("line 399")
        assert 0.25 < len(head) / len(shown) < 0.45

    def test_leaves_what_fits(self) -> None:
        assert (
            render(ToolCalls(rounds=[round_of(0, "short")], truncate_at=100)).messages[1].text
            == "short"
        )

    def test_leaves_elements_to_size_themselves(self) -> None:
        item = ToolRound(
            calls=[ToolCall(id="a", name="read")], results={"a": TextChunk()["word " * 100]}
        )
        assert render(ToolCalls(rounds=[item], truncate_at=10)).messages[1].text == "word " * 100


class TestRepairs:
    def test_a_call_without_a_result_is_answered(self) -> None:
        rendered = render(ToolCalls(rounds=[ToolRound(calls=[ToolCall(id="a", name="read")])]))
        assert rendered.messages[1].text == MISSING_TOOL_RESULT
        assert [repair.kind for repair in rendered.repairs] == ["missing result"]

    def test_a_result_without_a_call_is_dropped(self) -> None:
        rendered = render(
            ToolCalls(
                rounds=[
                    ToolRound(
                        calls=[ToolCall(id="a", name="read")], results={"a": "one", "b": "two"}
                    )
                ]
            )
        )
        assert [m.text for m in rendered.messages] == ["", "one"]
        assert [repair.kind for repair in rendered.repairs] == ["orphan result"]

    def test_an_empty_result_is_no_missing_one(self) -> None:
        rendered = render(
            ToolCalls(
                rounds=[ToolRound(calls=[ToolCall(id="a", name="read")], results={"a": None})]
            )
        )
        assert [m.text for m in rendered.messages] == ["", ""]
        assert not rendered.repairs
