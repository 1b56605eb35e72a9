"""The input filters and the session for OpenAI Agents: what is sent, what stays the run's own, and what is kept."""

from __future__ import annotations

import asyncio
import copy
import importlib
import sys
from typing import TYPE_CHECKING, Any

import attrs
import pytest

pytest.importorskip(
    "agents", reason="the framework is not installed: pip install '.[openai-agents]'"
)

from agents import Agent, function_tool
from agents.memory import Session, SessionSettings
from agents.run_config import CallModelData, ModelInputData

from promptkit import ContextBudget, JsonlStore, OpaquePart, Transcript
from promptkit.integrations.openai_agents import (
    TranscriptSession,
    compaction_input_filter,
    fit_input_filter,
)
from promptkit.wire import messages_from_responses
from promptkit.wire.responses import group_responses
from tests.conversations import words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from promptkit.integrations.openai_agents import Filter

Item = dict[str, Any]  # Any: JSON
BUDGET = ContextBudget(window=2_000, reserved_output_tokens=200)


@function_tool
def read_file(path: str) -> str:
    """Read a file."""
    return path


def talk(rounds: int, *, long: int = 400) -> list[Item]:
    """Rounds of a question, reasoning with a call, its long output and an answer, and a last question."""
    items: list[Item] = []
    for n in range(rounds):
        items += [
            {"role": "user", "content": f"Review {n}."},
            {
                "type": "reasoning",
                "id": f"rs_{n}",
                "summary": [],
                "encrypted_content": f"secret {n}",
            },
            {
                "type": "function_call",
                "id": f"fc_{n}",
                "call_id": f"c{n}",
                "name": "read_file",
                "arguments": "{}",
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": f"c{n}", "output": words(long)},
            {
                "type": "message",
                "id": f"msg_{n}",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": f"{n} is sound.", "annotations": []}],
            },
        ]
    return [*items, {"role": "user", "content": "And now?"}]


def data(items: Sequence[Item], context: object = None) -> CallModelData[Any]:
    agent = Agent[Any](name="reviewer", model="gpt-4.1", tools=[read_file])
    given: Any = list(items)  # Any: a union of TypedDicts
    return CallModelData(
        model_data=ModelInputData(input=given, instructions="You review code."),
        agent=agent,
        context=context,
    )


def call(filter_input: Filter, items: Sequence[Item], context: object = None) -> list[Item]:
    async def run() -> ModelInputData:
        return await filter_input(data(items, context))

    sent: Any = asyncio.run(run()).input  # Any: a union of TypedDicts
    return list(sent)


MAKE = pytest.mark.parametrize(
    "make",
    [lambda: fit_input_filter(budget=1_500), lambda: compaction_input_filter(budget=BUDGET)],
    ids=["fit", "compaction"],
)


class TestFilters:
    @MAKE
    def test_a_conversation_that_fits_is_sent_as_it_is(self, make: Callable[[], Filter]) -> None:
        items = talk(2)
        sent = call(make(), items)
        assert len(sent) == len(items)
        assert all(one is other for one, other in zip(sent, items, strict=True))

    @MAKE
    def test_items_are_the_runs_own_and_outputs_alone_are_shortened(
        self, make: Callable[[], Filter]
    ) -> None:
        items = talk(8)
        before = copy.deepcopy(items)
        sent = call(make(), items)
        assert items == before
        own = {id(item) for item in items}
        changed = [item for item in sent if id(item) not in own]
        outputs = {
            item["call_id"] for item in changed if item.get("type") == "function_call_output"
        }
        # a summary is a message
        assert all(
            item.get("type") == "function_call_output" or item["role"] == "user" for item in changed
        )
        assert outputs <= {f"c{n}" for n in range(8)}
        assert sent[-1] is items[-1]
        assert len(str(sent)) < len(str(items)) / 1.5

    @MAKE
    @pytest.mark.parametrize("calls", [1, 2])
    @pytest.mark.parametrize("rounds", [3, 12])
    def test_ids_of_calls_that_a_server_uses_again_stay_those_of_their_results(
        self, make: Callable[[], Filter], rounds: int, calls: int
    ) -> None:
        items: list[Item] = []
        for n in range(rounds):
            names = [f"call_{each}" for each in range(calls)]
            items.append({"role": "user", "content": f"Review {n}."})
            items += [
                {
                    "type": "function_call",
                    "call_id": each,
                    "name": "read_file",
                    "arguments": f'{{"path":"{n}"}}',
                }
                for each in names
            ]
            text = f"{n}:" + words(20 if rounds == 3 else 300)
            items += [
                {"type": "function_call_output", "call_id": each, "output": text} for each in names
            ]
        sent = call(make(), items)
        called = {
            item["call_id"]: item["arguments"]
            for item in sent
            if item.get("type") == "function_call"
        }
        outputs = {
            item["call_id"]: item["output"]
            for item in sent
            if item.get("type") == "function_call_output"
        }
        assert called.keys() == outputs.keys()
        assert len(called) == sum(item.get("type") == "function_call" for item in sent) > 0
        assert all(
            f'"{text.partition(":")[0]}"' in called[each]
            for each, text in outputs.items()
            if text[0].isdigit()
        )

    @MAKE
    def test_reasoning_leaves_with_the_call_that_it_led_to(
        self, make: Callable[[], Filter]
    ) -> None:
        sent = call(make(), talk(20))
        kinds = {
            kind: {item["id"].split("_")[1] for item in sent if item.get("type") == kind}
            for kind in ("reasoning", "function_call")
        }
        assert kinds["reasoning"] == kinds["function_call"]
        assert {item["call_id"] for item in sent if item.get("type") == "function_call_output"} == {
            f"c{n}" for n in kinds["function_call"]
        }

    def test_a_conversation_that_grows_stays_one_branch(self) -> None:
        transcript = Transcript()
        filter_input = compaction_input_filter(budget=BUDGET, transcripts=lambda _: transcript)
        items = talk(6)
        for end in (1, 4, 6, 9, 11, 31):
            call(filter_input, items[:end])
        assert len(transcript.leaves()) == 1
        assert sum(entry.kind == "message" for entry in transcript.path()) == 6 * 4 + 1

    def test_conversations_are_told_apart_by_the_programs_context(self) -> None:
        opened: list[str] = []

        def open_transcript(name: str) -> Transcript:
            opened.append(name)
            return Transcript()

        def find_user(data: CallModelData[Any]) -> str:  # Any: the context below
            return str(data.context["user"]) if data.context else ""

        filter_input = compaction_input_filter(
            budget=BUDGET, thread=find_user, transcripts=open_transcript
        )
        for name in ("ada", "bob", "ada"):
            call(filter_input, talk(1), {"user": name})
        assert opened == ["ada", "bob"]


class TestGroups:
    def test_groups_are_the_messages_with_all_items_in_order(self) -> None:
        answers = [
            {"type": "message", "role": "assistant", "content": "One."},
            {"type": "message", "role": "assistant", "content": "Two."},
        ]
        items = [
            *talk(2),
            *answers,
            {"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"},
        ]
        groups = group_responses(items)
        assert [message for message, _ in groups] == messages_from_responses(items)
        assert [at for _, indices in groups for at in indices] == list(range(len(items)))
        assert any(isinstance(part, OpaquePart) for part in groups[1][0].content)


class TestSession:
    def test_items_are_kept_word_for_word_on_the_disk(self, tmp_path: Path) -> None:
        async def run() -> None:
            session = TranscriptSession(
                session_id="talk", transcript=Transcript(JsonlStore(tmp_path / "talk.jsonl"))
            )
            assert isinstance(session, Session)
            items: Any = talk(2)  # Any: a union of TypedDicts
            await session.add_items(items[:6])
            await session.add_items([])
            await session.add_items(items[6:])
            again = TranscriptSession(
                session_id="talk", transcript=Transcript(JsonlStore(tmp_path / "talk.jsonl"))
            )
            assert await again.get_items() == items
            assert await again.get_items(2) == items[-2:]
            assert await again.get_items(0) == []
            again.session_settings = SessionSettings(limit=3)
            assert await again.get_items() == items[-3:]

        asyncio.run(run())

    def test_items_are_taken_back_and_stay_in_the_transcript(self) -> None:
        async def run() -> None:
            session = TranscriptSession(session_id="talk", transcript=Transcript())
            assert await session.pop_item() is None
            items: Any = talk(1)  # Any: a union of TypedDicts
            await session.add_items(items)
            assert await session.pop_item() == items[-1]
            assert await session.pop_item() == items[-2]
            assert await session.get_items() == items[:-2]
            await session.clear_session()
            assert await session.get_items() == []
            assert await session.pop_item() is None
            await session.add_items(items[:1])
            assert await session.get_items() == items[:1]
            recorded = [attrs.asdict(entry.payload) for entry in session.transcript.entries]
            assert "2 is sound" not in str(recorded)
            assert "0 is sound" in str(recorded)

        asyncio.run(run())


def test_without_the_framework_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "promptkit.integrations.openai_agents")
    monkeypatch.setitem(sys.modules, "agents", None)
    with pytest.raises(ImportError, match=r"\.\[openai-agents\]"):
        importlib.import_module("promptkit.integrations.openai_agents")
