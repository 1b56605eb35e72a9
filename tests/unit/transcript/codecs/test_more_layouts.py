"""Layouts in which agents write the formats that are known: a line for each message, one task by itself, events of the program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from promptkit.transcript.codecs.counts import Counts
from promptkit.transcript.entries import Custom
from tests.unit.transcript.codecs.samples import lines, read_text

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.messages import Json
    from tests.unit.transcript.codecs.samples import Read

SESSION: dict[str, Json] = {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-01T10:00:00Z", "kind": "main"}
ASKED: dict[str, Json] = {"id": "1", "timestamp": "2026-01-01T10:00:01Z", "type": "user", "content": [{"text": "Look."}]}
CALLING: dict[str, Json] = {"id": "2", "timestamp": "2026-01-01T10:00:02Z", "type": "gemini", "content": "I look."}
CALL: dict[str, Json] = {"id": "c1", "name": "read_file", "args": {"path": "a.py"}}
GAVE: list[Json] = [{"functionResponse": {"id": "c1", "name": "read_file", "response": {"output": "x = 1"}}}]
DONE: dict[str, Json] = {"id": "3", "timestamp": "2026-01-01T10:00:03Z", "type": "gemini", "content": "It is 1."}
TASK: dict[str, Json] = {
    "task_id": 7,
    "reward": 1.0,
    "traj": [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello to you."}],
}


def shown(made: Read) -> list[str]:
    return [message.role for message in made.shown]


def kept(made: Read) -> list[str]:
    return [entry.payload.name for entry in made.entries if isinstance(entry.payload, Custom)]


class TestLinesOfGeminiCli:
    def test_a_message_that_is_written_again_is_one_with_what_it_has_in_the_end(self, tmp_path: Path) -> None:
        grown = ({**CALLING, "toolCalls": [CALL]}, {**CALLING, "toolCalls": [{**CALL, "result": GAVE}]})
        made = read_text(tmp_path, lines([SESSION, ASKED, CALLING, {"$set": {"lastUpdated": "x"}}, *grown, DONE]))
        assert (made.format, made.counts) == ("gemini_cli", Counts(conversations=1, messages=3, tool_calls=1, tool_results=1))
        assert shown(made) == ["user", "assistant", "tool", "assistant"]

    def test_what_was_taken_back_is_no_longer_shown_and_is_still_there(self, tmp_path: Path) -> None:
        other: dict[str, Json] = {"id": "4", "type": "user", "content": "Something else."}
        made = read_text(tmp_path, lines([SESSION, ASKED, DONE, {"$rewindTo": "1"}, other]))
        assert made.counts.messages == 3
        assert shown(made) == ["user"]
        assert kept(made) == ["gemini_cli.rewind"]

    def test_messages_that_are_set_again_are_read_once_and_kept(self, tmp_path: Path) -> None:
        made = read_text(tmp_path, lines([SESSION, ASKED, {"$set": {"messages": [ASKED, DONE]}}, ASKED]))
        assert made.counts.messages == 2
        assert kept(made) == ["gemini_cli.set", "gemini_cli.update"]

    def test_a_line_that_cannot_be_read_is_counted_and_kept(self, tmp_path: Path) -> None:
        made = read_text(tmp_path, lines([SESSION, ASKED]) + "{broken\n" + lines([DONE]))
        assert (made.counts.messages, made.counts.skipped_lines) == (2, 1)
        assert kept(made) == ["gemini_cli.bad_line"]


CONTENTS: list[Json] = [
    {"role": "user", "parts": [{"text": "Look."}]},
    {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"functionCall": {"name": "read_file", "args": {"path": "a.py"}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "read_file", "response": {"output": "x = 1"}}}]},
    {"role": "model", "parts": [{"text": "It is 1."}]},
]


@pytest.mark.parametrize("content", [CONTENTS, {"history": CONTENTS, "authType": "x"}], ids=["list", "history"])
def test_a_checkpoint_of_gemini_cli_has_calls_with_their_results(content: Json, tmp_path: Path) -> None:
    made = read_text(tmp_path, json.dumps(content))
    assert (made.format, made.counts) == ("gemini_cli", Counts(conversations=1, messages=4, tool_calls=1, tool_results=1, thinking=1))
    assert shown(made) == ["user", "assistant", "tool", "assistant"]
    assert made.shown[2].content == ("x = 1",)


@pytest.mark.parametrize(("text", "count"), [(json.dumps(TASK), 1), (lines([TASK, TASK]), 2)], ids=["one", "lines"])
def test_tasks_of_tau_bench_need_no_list(text: str, count: int, tmp_path: Path) -> None:
    made = read_text(tmp_path, text)
    assert (made.format, made.counts) == ("tau_bench", Counts(conversations=count, messages=2 * count))


def test_a_condensation_of_openhands_is_no_call_of_a_tool(tmp_path: Path) -> None:
    said = {"id": 0, "source": "user", "action": "message", "args": {"content": "Hello."}}
    condensed = {"id": 1, "source": "agent", "action": "condensation", "args": {"forgotten_event_ids": [0], "summary": "Greeted."}}
    made = read_text(tmp_path, json.dumps([said, condensed]))
    assert made.counts == Counts(conversations=1, messages=1)
    assert kept(made) == ["openhands.fields", "openhands.condensation"]


def test_mini_swe_agent_over_the_responses_interface_has_calls_and_results(tmp_path: Path) -> None:
    items: list[Json] = [
        {"type": "reasoning", "summary": []},
        {"type": "message", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"},
    ]
    answer: dict[str, Json] = {"object": "response", "model": "m", "output": items, "usage": {"input_tokens": 5, "output_tokens": 2}}
    output = {"type": "function_call_output", "call_id": "c1", "output": "x = 1", "extra": {"returncode": 0}}
    asked = {"role": "user", "content": "Look."}
    made = read_text(tmp_path, json.dumps({"trajectory_format": "mini-swe-agent-1.1", "messages": [asked, answer, output]}))
    assert made.counts == Counts(conversations=1, messages=3, tool_calls=1, tool_results=1, thinking=1)
    assert shown(made) == ["user", "assistant", "tool"]
    assert made.shown[1].content[1:] == ("I look.",)
