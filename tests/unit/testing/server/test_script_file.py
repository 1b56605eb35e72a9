"""A script in a file says what one in Python says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import Message, ToolCall, Usage
from promptkit.testing.server import (
    ConnectionReset,
    Delay,
    Hang,
    HttpAnswer,
    MalformedBody,
    Rule,
    ScriptedReply,
    TruncatedBody,
    echo,
    rate_limit_error,
    server_error,
)
from promptkit.testing.server.journal import Script, read_script

if TYPE_CHECKING:
    from pathlib import Path


def read(place: Path, value: object) -> Script:
    file = place / "script.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return read_script(file)


def test_a_list_is_its_steps(tmp_path: Path) -> None:
    assert read(tmp_path, ["one", "two"]) == Script(steps=("one", "two"))


def test_everything_can_be_said(tmp_path: Path) -> None:
    said = {
        "steps": [
            {
                "text": "Look.",
                "tool_calls": [
                    {"name": "read", "arguments": {"a": 1}},
                    {"id": "c2", "name": "read", "arguments": "{ }"},
                ],
            },
            {"text": "x", "finish": "length", "usage": {"input_tokens": 3, "cached_tokens": 2}},
        ],
        "rules": [{"match": "^x", "answer": {"fault": "hang"}}],
        "faults": {"3": {"fault": "reset"}},
        "after": "echo",
    }
    calls = (
        ToolCall(id="", name="read", arguments='{"a": 1}'),
        ToolCall(id="c2", name="read", arguments="{ }"),
    )
    assert read(tmp_path, said) == Script(
        steps=(
            ScriptedReply(message=Message(role="assistant", content=("Look.",), tool_calls=calls)),
            ScriptedReply(
                message=Message(role="assistant", content=("x",)),
                finish="length",
                usage=Usage(input_tokens=3, cached_tokens=2),
            ),
        ),
        rules=(Rule(match="^x", answer=Hang()),),
        faults={3: ConnectionReset()},
        after=echo,
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"fault": "hang"}, Hang()),
        ({"fault": "reset"}, ConnectionReset()),
        ({"fault": "truncated"}, TruncatedBody()),
        ({"fault": "malformed"}, MalformedBody()),
        ({"fault": "rate_limited"}, rate_limit_error()),
        ({"fault": "rate_limited", "retry_after": 2}, rate_limit_error(retry_after=2)),
        ({"fault": "server_error", "status": 503}, server_error(503)),
        (
            {"fault": "http", "status": 418, "body": {"a": [1, None]}, "headers": {"X": "y"}},
            HttpAnswer(status=418, body={"a": [1, None]}, headers={"X": "y"}),
        ),
        ({"fault": "delay", "seconds": 0.5}, Delay(seconds=0.5)),
        ({"fault": "delay", "between": 0.5}, Delay(between=0.5)),
        (
            {"fault": "delay", "seconds": 1, "answer": {"fault": "hang"}},
            Delay(seconds=1, answer=Hang()),
        ),
    ],
)
def test_every_fault_has_its_word(tmp_path: Path, said: dict[str, Any], meant: object) -> None:
    assert read(tmp_path, [said]).steps == (meant,)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("{", "the file is no valid JSON"),
        ("[" * 100_000, "the file is no valid JSON"),
        ("5", "not iterable"),
        ({"step": []}, r"\(step\) @ \$\."),
        ({"steps": ["a", {"txt": "b"}]}, r"\(txt\) @ \$\.steps\[1\]"),
        ({"steps": ["a", 5]}, r"@ \$\.steps\[1\]"),
        (
            {"steps": [{"fault": "bang"}]},
            r"a fault must be one of delay, .* not 'bang' @ \$\.steps\[0\]",
        ),
        ({"steps": [{"fault": "http"}]}, r"required field missing @ \$\.steps\[0\]\.status"),
        ({"steps": [{"text": "x", "finish": "done"}]}, r"@ \$\.steps\[0\]\.finish"),
        ({"rules": [{"answer": "x"}]}, r"required field missing @ \$\.rules\[0\]\.match"),
        ({"faults": {"first": {"fault": "hang"}}}, r"expected int @ \$\.faults\['first'\]"),
        ({"after": "nothing"}, r"@ \$\.after"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, said: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        read(tmp_path, said)
    assert str(caught.value).startswith(str(tmp_path / "script.json"))
    assert "\n" not in str(caught.value)
