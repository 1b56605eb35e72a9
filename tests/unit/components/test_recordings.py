"""`History` over what agents really recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from promptkit import BudgetExceededError, History, Message, Rendered, ToolCall, render
from tests.paths import SHARED, needs_shared

TRANSCRIPTS = SHARED / "transcripts"

pytestmark = needs_shared("transcripts")


def message(data: dict[str, Any]) -> Message:  # JSON of other projects
    content = data.get("content") or ""
    parts = (
        (content,)
        if isinstance(content, str)
        else tuple(part["text"] for part in content if part.get("type") == "text")
    )
    calls = tuple(
        ToolCall(id=c["id"], name=c["function"]["name"], arguments=c["function"]["arguments"])
        for c in data.get("tool_calls") or ()
    )
    ids = data.get("tool_call_ids") or [data.get("tool_call_id")]
    return Message(
        role=data["role"],
        content=tuple(p for p in parts if p),
        tool_calls=calls,
        tool_call_id=ids[0],
    )


def conversations() -> list[tuple[str, list[Message]]]:
    found: list[tuple[str, list[Message]]] = []
    for path in sorted(
        [
            *TRANSCRIPTS.glob("tau-bench/*.json"),
            *TRANSCRIPTS.glob("openhands/*.json"),
            *TRANSCRIPTS.glob("swe-agent/*.traj"),
        ]
    ):
        data: Any = json.loads(path.read_text(encoding="utf-8"))  # as above
        if path.parent.name == "tau-bench":
            found += [
                (f"{path.stem}-{number}", [message(m) for m in run["traj"]])
                for number, run in enumerate(data)
            ]
        else:
            found.append((path.stem, [message(m) for m in data.get("messages") or data["history"]]))
    return found


def calls_and_results(rendered: Rendered) -> tuple[list[str], list[str | None]]:
    calls = [call.id for m in rendered.messages for call in m.tool_calls]
    return calls, [m.tool_call_id for m in rendered.messages if m.role == "tool"]


@pytest.mark.parametrize(
    ("name", "turns"), conversations(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_recording_renders_well_paired_at_every_budget(name: str, turns: list[Message]) -> None:
    history = History(turns=turns)
    whole = render(history)
    results = [m for m in turns if m.role == "tool"]
    made = [call for m in turns for call in m.tool_calls]
    if len({call.id for call in made}) < len(made):
        assert "repeated call id" in {repair.kind for repair in whole.repairs}
    if len(results) < len(made):
        assert "missing result" in {repair.kind for repair in whole.repairs}
    with pytest.raises(BudgetExceededError) as caught:
        render(history, budget=0)
    least = caught.value.required  # of the last user message
    for part in (1.0, 0.7, 0.3, 0.05):
        budget = max(int(whole.tokens * part), least)
        rendered = render(history, budget=budget)
        calls, answers = calls_and_results(rendered)
        assert rendered.tokens <= budget
        assert sorted(calls) == sorted(key or "" for key in answers)
        assert rendered.repairs == whole.repairs
        newest = [m for m in rendered.messages if not m.text.endswith("omitted]")]
        assert not newest or part < 0.1 or budget == least or newest[-1] == whole.messages[-1], (
            "the newest stays"
        )
