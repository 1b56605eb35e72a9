"""The recordings of other projects: the figures of an import against figures that are counted here without any of its code."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest

from promptkit import JsonlStore, Transcript
from promptkit.lab.recordings.importing import import_recording
from promptkit.transcript import build_view
from promptkit.transcript.stores.jsonl.reader import TranscriptReader, find_problems
from tests.paths import SHARED, needs_shared

TRANSCRIPTS = SHARED / "transcripts"
FILES = sorted(path for path in TRANSCRIPTS.glob("*/*") if path.is_file())

pytestmark = needs_shared("transcripts")


@attrs.define
class Plain:
    """Figures, added up in the plainest way."""

    messages: int = 0
    calls: list[str] = attrs.field(factory=list[str])
    results: list[str] = attrs.field(factory=list[str])
    attachments: int = 0
    errors: int = 0
    images: int = 0
    thinking: int = 0
    compactions: int = 0
    skipped: int = 0

    @property
    def figures(self) -> dict[str, int]:
        calls, results = set(self.calls), set(self.results)
        return {
            "messages": self.messages,
            "attachments": self.attachments,
            "tool_calls": len(self.calls),
            "tool_results": len(self.results),
            "tool_errors": self.errors,
            "unanswered": len(calls - results),
            "orphaned": len(results - calls),
            "repeated_ids": sum(count > 1 for count in Counter(self.calls).values()),
            "images": self.images,
            "thinking": self.thinking,
            "compactions": self.compactions,
            "skipped_lines": self.skipped,
        }


def fields(value: Any) -> dict[str, Any]:
    return value if hasattr(value, "items") else {}


def listed(value: Any) -> list[Any]:
    return value if hasattr(value, "append") else []


def blocks(plain: Plain, content: object) -> None:
    for block in map(fields, listed(content)):
        kind = block.get("type")
        plain.images += kind == "image"
        plain.thinking += kind in ("thinking", "redacted_thinking")
        if kind in ("tool_use", "toolCall"):
            plain.calls.append(block["id"])
        if kind == "tool_result":
            plain.results.append(block["tool_use_id"])
            plain.errors += block.get("is_error") is True
            blocks(plain, block.get("content"))


def objects(path: Path, plain: Plain) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip():
            try:
                value = json.loads(line)
            except ValueError:
                value = None
            plain.skipped += not isinstance(value, dict)
            found += [fields(value)] if fields(value) else []
    return found


def claude_code(path: Path) -> Plain:
    plain = Plain()
    answers: set[str] = set()
    for outer in objects(path, plain):
        record = (
            outer["data"]["message"]
            if outer.get("type") == "progress" and "message" in outer["data"]
            else outer
        )
        message = fields(record.get("message"))
        plain.compactions += record.get("subtype") == "compact_boundary"
        if message:
            plain.messages += record["type"] == "user"
            answers |= {message["id"]} if record["type"] == "assistant" else set()
            blocks(plain, message.get("content"))
    plain.messages += len(answers)
    queued: list[str] = []
    for record in objects(path, Plain()):
        queued += [record.get("content", "")] if record.get("operation") == "enqueue" else []
        taken = (
            queued.pop(0) if record.get("operation") in ("dequeue", "remove") and queued else "/"
        )
        plain.attachments += record.get("operation") == "remove" and not taken.startswith("/")
        plain.attachments += "agentId" in fields(record.get("toolUseResult"))
    return plain


def pi(path: Path) -> Plain:
    plain = Plain()
    for record in objects(path, plain):
        plain.compactions += record["type"] == "compaction"
        plain.messages += record["type"] in ("message", "compaction")
        message = record.get("message", {})
        blocks(plain, message.get("content"))
        plain.errors += message.get("isError") is True
        plain.results += [message["toolCallId"]] if message.get("role") == "toolResult" else []
    return plain


def chat(messages: list[dict[str, Any]]) -> Plain:
    plain = Plain(messages=len(messages))
    for message in messages:
        plain.calls += [call["id"] for call in listed(message.get("tool_calls"))]
        plain.results += (
            [message["tool_call_id"]]
            if message.get("tool_call_id")
            else message.get("tool_call_ids") or []
        )
    return plain


def json_text(path: Path) -> Plain:
    value: Any = json.loads(path.read_text(encoding="utf-8"))
    if path.parent.name == "tau-bench":
        return total([chat(task["traj"]) for task in value])
    if path.parent.name == "gemini-cli":
        said = [
            fields(message)
            for message in value["messages"]
            if message["type"] in ("user", "gemini")
        ]
        calls = [fields(call) for message in said for call in listed(message.get("toolCalls"))]
        plain = Plain(messages=len(said), calls=[call["id"] for call in calls])
        plain.results = [call["id"] for call in calls if call.get("result")]
        plain.errors = sum(call.get("status") == "error" for call in calls)
        plain.thinking = sum(len(message.get("thoughts", [])) for message in said)
        return plain
    return chat(listed(value) or fields(value).get("history") or fields(value)["messages"])


def total(parts: list[Plain]) -> Plain:
    """Call ids of one conversation have nothing to do with those of another."""
    plain = Plain(messages=sum(part.messages for part in parts))
    for number, part in enumerate(parts):
        plain.calls += [f"{number} {call}" for call in part.calls]
        plain.results += [f"{number} {call}" for call in part.results]
    return plain


COUNTERS = {"claude-code": claude_code, "pi": pi}


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.name}" for path in FILES])
def test_the_figures_are_those_of_the_file(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "talk.jsonl"
    made = import_recording(path, out)
    figures = attrs.asdict(made.counts)
    assert made.format == path.parent.name.replace("-", "_")
    assert figures == COUNTERS.get(path.parent.name, json_text)(path).figures | {
        "conversations": figures["conversations"]
    }
    assert list(find_problems(TranscriptReader(out))) == []
    transcript = Transcript(JsonlStore(out))
    assert transcript.problems == ()
    for leaf in transcript.leaves():
        view = build_view(transcript.path(leaf.id))
        assert {repair.kind for repair in view.repairs} <= {"missing result", "repeated call id"}


README = {
    "claude-code/entire-91-b42542f24f-0-compaction-small.jsonl": {
        "messages": 147,
        "tool_calls": 85,
        "compactions": 1,
    },
    "claude-code/spotter-8463c716-a2ea-4c14-9efa-87158ebd9f20.jsonl": {
        "messages": 355,
        "tool_calls": 196,
        "compactions": 1,
    },
    "claude-code/sessionshare-general-tool-calls.jsonl": {"repeated_ids": 45, "unanswered": 1},
    "claude-code/sessionshare-images-in-user-messages.jsonl": {"images": 2, "unanswered": 2},
    "pi/before-compaction.jsonl": {
        "messages": 992,
        "tool_calls": 454,
        "compactions": 2,
        "unanswered": 6,
    },
    "tau-bench/gpt-4o-airline-first20.json": {"conversations": 20},
}


@pytest.mark.parametrize("name", README)
def test_the_figures_are_those_that_came_with_the_files(name: str) -> None:
    figures = attrs.asdict(import_recording(TRANSCRIPTS / name).counts)
    assert {key: figures[key] for key in README[name]} == README[name]


def test_what_the_agent_was_shown_after_a_compaction_is_shown() -> None:
    path = TRANSCRIPTS / "claude-code" / "entire-91-b42542f24f-0-compaction-small.jsonl"
    records = objects(path, Plain())
    start = next(at for at, record in enumerate(records) if record.get("isCompactSummary"))
    behind = [record for record in records[start + 1 :] if record["type"] in ("user", "assistant")]
    answers = {record["message"]["id"] for record in behind if record["type"] == "assistant"}
    from promptkit.lab.recordings.importing import read_recording
    from promptkit.transcript.stores.store import InMemoryStore

    transcript = Transcript(
        InMemoryStore([entry for _, batch in read_recording(path) for entry in batch.entries])
    )
    view = build_view(transcript.path())
    assert records[start]["message"]["content"] in view.messages[0].text
    assert len(view.messages) == 1 + len(answers) + sum(
        record["type"] == "user" for record in behind
    )
