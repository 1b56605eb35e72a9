"""Small recordings of every format, written by hand from what is known of the formats, and reading them."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import attrs

from promptkit import Transcript
from promptkit.lab.recordings.importing import FORMATS, RecordingTotals, read_recording
from promptkit.transcript import InMemoryStore, build_view

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from promptkit import Message
    from promptkit.lab.recordings.importing import RecordingCounts
    from promptkit.lab.recordings.reading.files import Batch
    from promptkit.transcript.log.entries import Entry

Record = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WHEN = "2026-01-01T00:00:00Z"


@attrs.frozen(kw_only=True)
class Read:
    """What came of a recording."""

    format: str
    batches: tuple[Batch, ...]

    @property
    def entries(self) -> list[Entry]:
        return [entry for batch in self.batches for entry in batch.entries]

    @property
    def counts(self) -> RecordingCounts:
        totals = RecordingTotals()
        list(totals.read_entries((FORMATS[self.format](), batch) for batch in self.batches))
        return totals.result.counts

    @property
    def transcript(self) -> Transcript:
        return Transcript(InMemoryStore(self.entries))

    @property
    def shown(self) -> tuple[Message, ...]:
        return build_view(self.transcript.path()).messages

    @property
    def problems(self) -> list[str]:
        return [
            problem.detail
            for batch in self.batches
            for problem in (*batch.skipped, *batch.relocated)
        ]


def read(path: Path, codec: str = "auto") -> Read:
    """Read a file; entries must have ids of their own, and parents before them."""
    pairs = list(read_recording(path, format_name=codec))
    made = Read(
        format=pairs[0][0].name if pairs else "", batches=tuple(batch for _, batch in pairs)
    )
    seen: set[str] = set()
    for entry in made.entries:
        assert entry.id
        assert entry.id not in seen
        assert entry.parent_id is None or entry.parent_id in seen
        seen.add(entry.id)
    assert made.transcript.problems == ()
    return made


def read_text(
    folder: Path, text: str | bytes, codec: str = "auto", name: str = "recording"
) -> Read:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read(path, codec)


def lines(records: Sequence[Record]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


def user(uuid: str, parent: str | None, content: object, **more: object) -> Record:
    message = {"role": "user", "content": content}
    return {
        "type": "user",
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s",
        "timestamp": WHEN,
        "message": message,
        **more,
    }


def answer(
    uuid: str, parent: str | None, message_id: str, *blocks: Record, **more: object
) -> Record:
    usage = {
        "input_tokens": 20,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 2,
        "output_tokens": 3,
    }
    message: Record = {
        "role": "assistant",
        "id": message_id,
        "model": "claude",
        "content": list(blocks),
        "usage": usage,
    }
    message["stop_reason"] = more.pop("stop_reason", None)
    return {
        "type": "assistant",
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s",
        "timestamp": WHEN,
        "message": message,
        **more,
    }


def text(said: str) -> Record:
    return {"type": "text", "text": said}


def use(call: str, name: str = "Read") -> Record:
    return {"type": "tool_use", "id": call, "name": name, "input": {"path": "x"}}


def result(call: str, said: object = "done") -> list[Record]:
    return [{"type": "tool_result", "tool_use_id": call, "content": said}]


CLAUDE: list[Record] = [
    {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
    user(
        "u1",
        None,
        [
            text("look"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ],
    ),
    answer("a1", "u1", "m1", {"type": "thinking", "thinking": "hm", "signature": "sig"}),
    answer("a2", "a1", "m1", text("I read."), use("c1")),
    user("r1", "a2", result("c1"), toolUseResult={"lines": 3}),
    answer("a3", "a2", "m1", use("c2"), stop_reason="tool_use"),
    {
        "type": "progress",
        "uuid": "p1",
        "parentUuid": "a3",
        "sessionId": "s",
        "data": {"type": "hook_progress"},
    },
    user(
        "r2",
        "a3",
        result(
            "c2",
            [
                text("two"),
                {"type": "image", "source": {"type": "url", "url": "https://host/x.png"}},
            ],
        ),
    ),
    answer("a4", "r2", "m2", text("Done.")),
    {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "b1",
        "parentUuid": None,
        "logicalParentUuid": "a4",
        "sessionId": "s",
    }
    | {"compactMetadata": {"trigger": "auto", "preTokens": 155_025, "postTokens": 9_000}},
    user("s1", "b1", "We read x.", isCompactSummary=True, isVisibleInTranscriptOnly=True),
    user("u2", "s1", "go on"),
    answer("a5", "u2", "m3", text("Yes.")),
    {"type": "summary", "summary": "UsageReading", "leafUuid": "a5"},
]

PI: list[Record] = [
    {"type": "session", "version": 3, "id": "p", "timestamp": WHEN, "cwd": "/w"},
    {
        "type": "message",
        "id": "a1",
        "parentId": None,
        "timestamp": WHEN,
        "message": {"role": "user", "content": "hi"},
    },
    {"type": "message", "id": "a2", "parentId": "a1", "timestamp": WHEN}
    | {
        "message": {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"},
                {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "x"}},
            ],
            "api": "anthropic-messages",
            "model": "m",
            "usage": {"input": 9, "output": 3, "cacheRead": 4, "cacheWrite": 1, "totalTokens": 17},
            "stopReason": "toolUse",
        }
    },
    {"type": "message", "id": "a3", "parentId": "a2", "timestamp": WHEN}
    | {
        "message": {
            "role": "toolResult",
            "toolCallId": "c1",
            "toolName": "read",
            "content": [text("found")],
            "isError": False,
        }
    },
    {"type": "message", "id": "a4", "parentId": "a3", "timestamp": WHEN}
    | {
        "message": {
            "role": "bashExecution",
            "command": "ls",
            "output": "x",
            "exitCode": 1,
            "cancelled": False,
            "truncated": False,
        }
    },
    {
        "type": "compaction",
        "id": "a5",
        "parentId": "a4",
        "timestamp": WHEN,
        "summary": "Read x.",
        "firstKeptEntryId": "a4",
    }
    | {"tokensBefore": 180_000, "details": {"readFiles": ["x"], "modifiedFiles": []}},
    {
        "type": "message",
        "id": "a6",
        "parentId": "a5",
        "timestamp": WHEN,
        "message": {"role": "user", "content": [text("next")]},
    },
    {
        "type": "branch_summary",
        "id": "a7",
        "parentId": "a1",
        "timestamp": WHEN,
        "fromId": "a6",
        "summary": "Went astray.",
    },
    {
        "type": "custom_message",
        "id": "a8",
        "parentId": "a7",
        "timestamp": WHEN,
        "customType": "note",
        "content": "heed",
        "display": True,
    },
    {
        "type": "label",
        "id": "a9",
        "parentId": "a8",
        "timestamp": WHEN,
        "targetId": "a1",
        "label": "start",
    },
    {
        "type": "model_change",
        "id": "b1",
        "parentId": "a9",
        "timestamp": WHEN,
        "provider": "q",
        "modelId": "n",
    },
    {"type": "novelty", "id": "b2", "parentId": "b1", "timestamp": WHEN, "what": 1},
]


def item(**payload: object) -> Record:
    return {"timestamp": WHEN, "type": "response_item", "payload": payload}


def said_item(role: str, said: str) -> Record:
    return item(
        type="message",
        role=role,
        content=[{"type": "output_text" if role == "assistant" else "input_text", "text": said}],
    )


CODEX: list[Record] = [
    {"timestamp": WHEN, "type": "session_meta", "payload": {"id": "u-1", "cwd": "/w"}},
    {"timestamp": WHEN, "type": "turn_context", "payload": {"model": "gpt-5-codex"}},
    said_item("user", "list"),
    {
        "timestamp": WHEN,
        "type": "event_msg",
        "payload": {"type": "user_message", "message": "list"},
    },
    item(type="reasoning", summary=[], encrypted_content="zz"),
    said_item("assistant", "I look."),
    item(type="function_call", call_id="c1", name="shell", arguments='{"cmd":"ls"}'),
    item(type="custom_tool_call", call_id="c2", name="apply_patch", input="*** Begin Patch"),
    {"timestamp": WHEN, "type": "event_msg"}
    | {
        "payload": {
            "type": "token_count",
            "info": {
                "last_token_usage": {
                    "input_tokens": 90,
                    "cached_input_tokens": 40,
                    "output_tokens": 7,
                }
            },
        }
    },
    item(type="function_call_output", call_id="c1", output="a.py"),
    item(
        type="custom_tool_call_output",
        call_id="c2",
        output=[{"type": "input_text", "text": "Done"}],
    ),
    item(
        type="local_shell_call",
        call_id="c3",
        status="completed",
        action={"type": "exec", "command": ["ls"]},
    ),
    said_item("assistant", "There."),
    {
        "timestamp": WHEN,
        "type": "compacted",
        "payload": {"message": "Listed files.", "window_number": 1},
    },
    said_item("user", "thanks"),
    item(type="novelty", what=1),
]

CHAT: list[Record] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            text("see"),
            {"type": "image_url", "image_url": {"url": "https://host/x.png", "detail": "low"}},
        ],
    },
    {"role": "assistant", "content": None}
    | {
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "read", "arguments": '{"path": "x"}'},
            }
        ]
    },
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
    {"role": "assistant", "content": "Found it."},
]

ANTHROPIC: Record = {
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "see"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                use("t1"),
                use("t2"),
            ],
        },
        {"role": "user", "content": [*result("t1"), *result("t2"), text("and?")]},
        {"role": "assistant", "content": [text("Both.")]},
    ],
}

GEMINI: Record = {
    "sessionId": "g",
    "projectHash": "h",
    "startTime": WHEN,
    "messages": [
        {"id": "1", "timestamp": WHEN, "type": "user", "content": [{"text": "write"}]},
        {"id": "2", "timestamp": WHEN, "type": "gemini", "content": "I write.", "model": "gemini-x"}
        | {
            "thoughts": [{"subject": "s", "description": "d"}],
            "tokens": {"input": 50, "output": 5, "cached": 20, "thoughts": 2},
        }
        | {
            "toolCalls": [
                {
                    "id": "w1",
                    "name": "write_file",
                    "args": {"path": "x"},
                    "status": "success",
                    "displayName": "WriteFile",
                }
                | {
                    "result": [
                        {
                            "functionResponse": {
                                "id": "w1",
                                "name": "write_file",
                                "response": {"output": "written"},
                            }
                        }
                    ]
                },
                {"id": "w2", "name": "shell", "args": {}, "status": "cancelled"},
            ]
        },
        {"id": "3", "timestamp": WHEN, "type": "info", "content": "An update is there."},
    ],
}

SWE: Record = {
    "environment": "main",
    "trajectory": [{"action": "ls", "observation": "x", "response": "I look.", "state": {}}],
    "history": [
        {"role": "system", "content": "You fix.", "agent": "main"},
        {"role": "assistant", "content": "I look.", "action": "ls"}
        | {
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
            ]
        },
        {"role": "tool", "content": "x", "tool_call_ids": ["c"]},
        {
            "role": "assistant",
            "content": "Again.",
            "tool_calls": [{"id": "c", "function": {"name": "bash", "arguments": "{}"}}],
        },
        {"role": "tool", "content": [text("y")], "tool_call_ids": ["c"]},
    ],
    "info": {"exit_status": "submitted"},
}

MINI: Record = {
    "info": {"config": {}, "mini_version": "2", "exit_status": "Submitted"},
    "messages": [
        {"role": "system", "content": "You fix."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "c", "function": {"name": "bash", "arguments": "{}"}}],
        }
        | {
            "extra": {
                "timestamp": 1_780_680_349.5,
                "response": {
                    "model": "deep",
                    "usage": {
                        "prompt_tokens": 100,
                        "completion_tokens": 9,
                        "prompt_tokens_details": {"cached_tokens": 64},
                    },
                    "choices": [{"finish_reason": "tool_calls"}],
                },
            }
        },
        {"role": "tool", "content": "x", "tool_call_id": "c"},
        {"role": "exit", "content": "diff"},
    ],
    "trajectory_format": "mini-swe-agent-1.1",
}

OPENHANDS: Record = {
    "messages": [
        *CHAT[:1],
        {"role": "user", "content": [text("fix") | {"cache_control": {"type": "ephemeral"}}]},
        *CHAT[2:4],
    ],
    "response": {
        "choices": [{"message": {"role": "assistant", "content": "Next."}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 1},
    },
    "args": [],
    "kwargs": {"tools": []},
    "cost": 0.1,
}

EVENTS: list[Record] = [
    {
        "id": 0,
        "timestamp": "2026-01-01T00:00:00.5",
        "source": "user",
        "action": "message",
        "args": {"content": "fix", "image_urls": None},
    },
    {"id": 1, "source": "agent", "action": "run", "args": {"command": "ls", "thought": "I look."}},
    {
        "id": 2,
        "source": "agent",
        "observation": "run",
        "content": "x",
        "cause": 1,
        "extras": {"exit_code": 0},
    },
    {
        "id": 3,
        "source": "environment",
        "observation": "agent_state_changed",
        "content": "",
        "cause": 1,
    },
    {"id": 4, "source": "agent", "action": "message", "args": {"content": "Done."}},
]

TAU: list[Record] = [
    {"task_id": 0, "reward": 0.0, "traj": CHAT},
    {"task_id": 1, "reward": 1.0, "traj": [CHAT[0], {"role": "user", "content": "b"}, *CHAT[2:4]]},
]

SAMPLES: dict[str, tuple[str, str]] = {
    "claude_code": ("claude_code", lines(CLAUDE)),
    "pi": ("pi", lines(PI)),
    "codex": ("codex", lines(CODEX)),
    "openai_chat": ("openai_chat", json.dumps(CHAT)),
    "openai_chat_request": ("openai_chat", json.dumps({"model": "m", "messages": CHAT})),
    "openai_chat_lines": ("openai_chat", lines([{"messages": CHAT}, {"messages": CHAT}])),
    "anthropic": ("anthropic", json.dumps(ANTHROPIC)),
    "gemini_cli": ("gemini_cli", json.dumps(GEMINI, indent=2)),
    "swe_agent": ("swe_agent", json.dumps(SWE, indent=2)),
    "mini_swe_agent": ("mini_swe_agent", json.dumps(MINI)),
    "openhands": ("openhands", json.dumps(OPENHANDS)),
    "openhands_events": ("openhands", json.dumps(EVENTS)),
    "tau_bench": ("tau_bench", json.dumps(TAU)),
}
"""By name: the format, and a recording of it."""
