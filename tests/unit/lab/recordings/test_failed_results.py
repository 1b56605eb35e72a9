"""Results of tools that failed, and what ended a run: imported with their content, and counted as what they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import Message
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.summarizers.facts import extend_facts
from promptkit.lab.recordings.exporting import to_anthropic_json
from promptkit.tools import is_error_result
from promptkit.transcript.log.view import ViewItem
from tests.unit.lab.recordings.samples import (
    MINI,
    WHEN,
    Record,
    answer,
    item,
    lines,
    read_text,
    result,
    text,
    use,
    user,
)

if TYPE_CHECKING:
    from pathlib import Path

FAILED = [{**result("c1", "no such file: x.py")[0], "is_error": True}]
CALL: Record = {"id": "c1", "name": "read", "args": {}, "status": "error"}
RESPONSE = {
    "functionResponse": {"id": "c1", "name": "read", "response": {"error": "no such file: x.py"}}
}


def pi(**fields: object) -> Record:
    return {"type": "message", "timestamp": WHEN, "message": fields}


RECORDED: dict[str, str] = {
    "claude_code": lines(
        [user("u", None, "look"), answer("a", "u", "m", use("c1")), user("r", "a", FAILED)]
    ),
    "anthropic": json.dumps(
        {
            "messages": [
                {"role": "assistant", "content": [use("c1")]},
                {"role": "user", "content": FAILED},
            ]
        }
    ),
    "pi": lines(
        [
            {"type": "session", "id": "p", "timestamp": WHEN},
            pi(
                role="assistant",
                content=[{"type": "toolCall", "id": "c1", "name": "read", "arguments": "{}"}],
            ),
            pi(
                role="toolResult",
                toolCallId="c1",
                toolName="read",
                content=[text("no such file: x.py")],
                isError=True,
            ),
        ]
    ),
    "gemini_cli": json.dumps(
        {
            "sessionId": "g",
            "messages": [
                {
                    "id": "1",
                    "type": "gemini",
                    "content": "",
                    "toolCalls": [{**CALL, "result": [RESPONSE]}],
                }
            ],
        }
    ),
    "gemini_cli checkpoint": json.dumps(
        [
            {
                "role": "model",
                "parts": [{"functionCall": {"id": "c1", "name": "read", "args": {}}}],
            },
            {"role": "user", "parts": [RESPONSE]},
        ]
    ),
    "codex": lines(
        [
            {"timestamp": WHEN, "type": "session_meta", "payload": {"id": "u-1", "cwd": "/w"}},
            item(type="function_call", call_id="c1", name="shell", arguments="{}"),
            item(
                type="function_call_output",
                call_id="c1",
                output={"content": "no such file: x.py", "success": False},
            ),
        ]
    ),
    "openhands": json.dumps(
        [
            {"id": 1, "source": "agent", "action": "read", "args": {"path": "x.py"}},
            {
                "id": 2,
                "source": "agent",
                "observation": "error",
                "content": "no such file: x.py",
                "cause": 1,
            },
        ]
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_result_that_is_an_error_stays_one(name: str, tmp_path: Path) -> None:
    made = read_text(tmp_path, RECORDED[name])
    assert (made.format, made.problems) == (name.split(maxsplit=1)[0], [])
    (failed,) = (message for message in made.shown if message.role == "tool")
    assert (failed.text, is_error_result(failed)) == ("no such file: x.py", True)
    assert made.counts.tool_results == made.counts.tool_errors == 1
    assert '"is_error": true' in json.dumps(to_anthropic_json(made.shown))
    items = [ViewItem(message=message, entry_id=str(at)) for at, message in enumerate(made.shown)]
    assert extend_facts(Facts(), items).errors


def test_results_of_tools_that_worked_are_no_errors(tmp_path: Path) -> None:
    records = [
        user("u", None, "look"),
        answer("a", "u", "m", use("c1")),
        user("r", "a", [{**FAILED[0], "is_error": False}]),
    ]
    assert read_text(tmp_path, lines(records)).counts.tool_errors == 0


def test_an_error_of_openhands_without_a_call_is_what_the_model_was_told(tmp_path: Path) -> None:
    events = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "fix"}},
        {"id": 1, "source": "agent", "observation": "error", "content": "The reply was no action."},
    ]
    made = read_text(tmp_path, json.dumps(events))
    assert made.shown[1] == Message(role="user", content="The reply was no action.")
    assert made.counts.messages == 2


def test_the_exit_of_mini_swe_agent_is_a_message_with_its_content(tmp_path: Path) -> None:
    exit_record = {
        "role": "exit",
        "content": "diff --git a b",
        "extra": {"exit_status": "Submitted"},
    }
    made = read_text(
        tmp_path, json.dumps({**MINI, "messages": [*MINI["messages"][:3], exit_record]})
    )
    assert (made.shown[-1].role, made.shown[-1].text, made.counts.messages) == (
        "user",
        "diff --git a b",
        4,
    )
    assert "Submitted" in repr([attrs.asdict(entry.payload) for entry in made.entries])
