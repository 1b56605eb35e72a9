"""`promptkit demo` shows a compaction of the recorded conversation: a real one, without a key, the same every time."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from promptkit_components.demo import load_demo

from promptkit import Message, ToolCall
from promptkit.cli.demo.replay import END_OF_RECORDING, DemoReplay
from promptkit.cli.main import main
from promptkit.compaction.planning.blocks import extract_summary_text
from tests.processes import run_program

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["demo", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def plain(*arguments: str, **environment: str) -> str:
    known = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    environment = {"COLUMNS": "80", "PYTHONUTF8": "1", **environment}
    done = run_program(
        "promptkit", "demo", *arguments, folder=Path.cwd(), environment=known | environment
    )
    assert done.returncode == 0
    assert done.stderr == ""
    return done.stdout


def replayed(conversation: Sequence[Message], window: int) -> DemoReplay:
    replay = DemoReplay(conversation, window=window)
    asyncio.run(replay.run())
    return replay


class TestReplay:
    def test_the_conversation_outgrows_the_window_and_no_request_does(self) -> None:
        found = replayed(load_demo().conversation, window=12_000)

        limit = found.session.compaction.budget.render_budget
        assert limit is not None
        assert found.full_request_tokens > limit
        assert all(sent.tokens <= limit for sent in found.requests)
        assert len(found.requests) == sum(
            message.role == "assistant" for message in load_demo().conversation
        )
        assert found.turns == [
            message.text for message in load_demo().conversation if message.role == "user"
        ]

    def test_the_summaries_are_made_beside_it_and_make_it_smaller(self) -> None:
        found = replayed(load_demo().conversation, window=12_000)

        assert [each.trigger for each in found.summaries] == ["background", "background"]
        assert all(
            (each.tokens_after or 0) < (each.tokens_before or 0) / 2 for each in found.summaries
        )
        notes = [(sent.number, note) for sent in found.requests for note in sent.notes]
        begun = [number for number, note in notes if "summary started" in note]
        ended = [number for number, note in notes if "summary applied" in note]
        assert all(start < end for start, end in zip(begun, ended, strict=True))

    def test_the_last_request_holds_the_summary_with_the_way_back(self) -> None:
        found = replayed(load_demo().conversation, window=12_000)

        assert found.session.last_rendered is not None
        summary = extract_summary_text(found.session.last_rendered.messages[0])
        assert summary is not None
        assert summary == found.summaries[-1].summary
        assert summary.endswith('recall({"query": "test_hints.py"})')
        assert load_demo().conversation[0].text[:60] in found.session.last_rendered.messages[0].text

    def test_the_results_are_those_of_the_recorded_calls(self) -> None:
        found = replayed(load_demo().conversation, window=1_000_000)

        assert found.session.last_rendered is not None
        assert found.summaries == []
        assert found.session.last_rendered.messages == load_demo().conversation[:-1]

    def test_a_recording_with_gaps_is_replayed_as_far_as_it_goes(self) -> None:
        call = Message(role="assistant", tool_calls=(ToolCall(id="c", name="read"),))
        said = [
            Message(role="assistant", content=("Hello.",)),
            *(Message(role="user", content=(text,)) for text in ("one", "two")),
        ]

        found = replayed([*said, call], window=10_000)

        assert found.turns == ["two"]
        assert found.session.last_rendered is not None
        assert [message.text for message in found.session.last_rendered.messages] == [
            "two",
            "",
            END_OF_RECORDING,
        ]

    def test_where_no_summary_fits_the_oldest_leave(self) -> None:
        found = replayed(load_demo().conversation, window=450)

        assert found.summaries == []
        assert all(sent.tokens <= 337 for sent in found.requests)


class TestCommand:
    def test_the_story_is_told_in_a_screen_of_80_columns(self) -> None:
        shown = plain("--window", "12k")

        lines = shown.splitlines()
        assert len(lines) <= 40
        assert max(map(len, lines)) <= 80
        assert "\x1b" not in shown
        for line in (
            "6 turns, replayed in a window of 12,000 tokens",
            "       14     2   7,316  ██████████████████░░  31 messages: summary started",
            "       15     2     949  ██░░░░░░░░░░░░░░░░░░  summary applied: 7,287 → 792",
            "  1. Conversation Overview",
            "  59 messages are summarized here. What the person said stands after this sum…",
            '  look it up there: recall({"query": "test_hints.py"})',
            "results: 5,197 of 8,115 tokens.",
        ):
            assert line in lines

    def test_it_is_the_same_every_time_with_a_key_and_without(self) -> None:
        assert plain("--window", "8k") == plain(
            "--window",
            "8k",
            OPENAI_API_KEY="none",
            OPENAI_BASE_URL="http://127.0.0.1:9",
            PYTHONHASHSEED="7",
        )

    def test_alone_it_shows_one_render_and_then_the_replay(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, out, err = run(capsys)

        assert (status, err) == (0, "")
        assert (
            out.index("rendered at 1 budget")
            < out.index("replayed in a window of 12,000 tokens")
            < out.index("summary applied")
        )

    def test_all_budgets_are_shown_on_request(self, capsys: pytest.CaptureFixture[str]) -> None:
        every = [f"{budget:,} tokens" for budget in load_demo().budgets]
        alone, asked = run(capsys)[1], run(capsys, "--all")[1]
        assert [size for size in every if f" {size}  █" in alone] == ["4,000 tokens"]
        assert [size for size in every if f" {size}  █" in asked] == every
        assert len(alone.splitlines()) < 80

    def test_a_budget_shows_only_renders_and_a_window_only_the_replay(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "replayed" not in run(capsys, "--budget", "2k")[1]
        assert "rendered" not in run(capsys, "--window", "8k")[1]
        both = run(capsys, "--budget", "2k", "--window", "8k")[1]
        assert "rendered at 1 budget" in both
        assert "replayed in a window of 8,000 tokens" in both

    def test_machines_get_the_figures(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = json.loads(run(capsys, "--window", "12k", "--json")[1])

        assert found["renders"] == []
        assert (found["replay"]["window"], found["replay"]["limit"], found["replay"]["turns"]) == (
            12_000,
            8_115,
            6,
        )
        assert len(found["replay"]["requests"]) == 34
        assert [each["trigger"] for each in found["replay"]["summaries"]] == [
            "background",
            "background",
        ]
        assert json.loads(run(capsys, "--budget", "2k", "--json")[1])["replay"] is None

    def test_a_window_of_nothing_is_a_mistake(self, capsys: pytest.CaptureFixture[str]) -> None:
        status, out, err = run(capsys, "--window", "0")

        assert (status, out, err) == (2, "", "promptkit: --window must be at least 1 token.\n")
