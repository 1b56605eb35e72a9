"""What Claude Code showed the model beside the messages of a session: attachments, queued commands, the last answers of subagents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit.lab.replay.recordings import recordings_from_entries
from promptkit.messages import ImagePart
from promptkit.transcript.log.entries import CustomEntry, CustomMessage, MessageEntry
from tests.unit.lab.recordings.samples import (
    PNG,
    WHEN,
    Record,
    answer,
    lines,
    read_text,
    result,
    text,
    use,
    user,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.lab.recordings.samples import Read


def attachment(uuid: str, parent: str | None, kind: str, **fields: object) -> Record:
    return {
        "type": "attachment",
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s",
        "timestamp": WHEN,
    } | {"attachment": {"type": kind, **fields}}


def queue(operation: str, content: str | None = None) -> Record:
    return {
        "type": "queue-operation",
        "operation": operation,
        "timestamp": WHEN,
        "sessionId": "s",
    } | ({} if content is None else {"content": content})


def talk(*between: Record, last: str = "r") -> list[Record]:
    """A session with these lines before the model's last answer, which follows the line `last`."""
    return [
        user("u", None, "look"),
        answer("a", "u", "m1", use("c1")),
        user("r", "a", result("c1")),
        *between,
        answer("b", last, "m2", text("Done.")),
    ]


def shown(made: Read) -> list[tuple[str, str]]:
    (recording,) = recordings_from_entries(made.entries)
    return [(message.role, message.text) for message in recording.messages]


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("queued_command", {"prompt": "and the tests", "commandMode": "prompt"}, "and the tests"),
        ("queued_command", {"prompt": [text("see"), text("this")]}, "seethis"),
        (
            "hook_additional_context",
            {"content": ["Use tabs.", "Be brief."]},
            "Use tabs.\nBe brief.",
        ),
        (
            "hook_blocking_error",
            {"blockingError": {"blockingError": "lint failed", "command": "lint"}},
            "lint failed",
        ),
        ("hook_success", {"hookEvent": "SessionStart", "content": "Branch: main"}, "Branch: main"),
        ("edited_text_file", {"filename": "/w/a.py", "snippet": "1 x = 2"}, "/w/a.py\n1 x = 2"),
        (
            "file",
            {
                "filename": "/w/a.py",
                "content": {"type": "text", "file": {"filePath": "/w/a.py", "content": "x = 1"}},
            },
            "/w/a.py\nx = 1",
        ),
        (
            "nested_memory",
            {"path": "/w/NOTES.md", "content": {"content": "Use tabs."}},
            "/w/NOTES.md\nUse tabs.",
        ),
        (
            "invoked_skills",
            {"skills": [{"name": "s", "path": "/s", "content": "Do this."}]},
            "/s\nDo this.",
        ),
        (
            "diagnostics",
            {"files": [{"uri": "a.py", "diagnostics": [{"message": "unused"}]}]},
            "a.py\nunused",
        ),
    ],
)
def test_an_attachment_with_a_text_is_a_message_in_its_place(
    kind: str, fields: Record, said: str, tmp_path: Path
) -> None:
    made = read_text(tmp_path, lines(talk(attachment("x", "r", kind, **fields), last="x")))
    assert shown(made) == [
        ("user", "look"),
        ("assistant", ""),
        ("tool", "done"),
        ("user", said),
        ("assistant", "Done."),
    ]
    assert (
        made.counts.messages,
        made.counts.attachments,
        made.counts.conversations,
        made.problems,
    ) == (4, 1, 1, [])
    (entry,) = (entry for entry in made.entries if entry.id == "x")
    assert isinstance(entry.payload, MessageEntry if kind == "queued_command" else CustomMessage)
    assert [each.payload.name for each in made.entries if isinstance(each.payload, CustomEntry)][
        -2
    ] == f"claude_code.attachment.{kind}"


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("todo_reminder", {"content": [], "itemCount": 0}),
        ("plan_mode", {"planFilePath": "/w/plan.md"}),
        ("hook_success", {"hookEvent": "PostToolUse", "content": "formatted"}),
        ("hook_success", {"hookEvent": "SessionStart", "content": ""}),
        ("file", {"filename": "/w/a.py", "content": 3}),
        ("diagnostics", {"files": 3}),
        ("queued_command", {"prompt": None}),
    ],
)
def test_an_attachment_without_a_text_for_the_model_is_kept_and_no_message(
    kind: str, fields: Record, tmp_path: Path
) -> None:
    made = read_text(tmp_path, lines(talk(attachment("x", "r", kind, **fields), last="x")))
    assert (len(shown(made)), made.counts.attachments) == (4, 0)
    assert f"claude_code.attachment.{kind}" in [
        each.payload.name for each in made.entries if isinstance(each.payload, CustomEntry)
    ]


def test_what_newer_versions_write_as_they_sent_it_is_taken_from_there(tmp_path: Path) -> None:
    line = attachment("x", "r", "plan_mode") | {
        "rendered": [{"role": "user", "content": "<system-reminder>Plan only.</system-reminder>"}]
    }
    assert shown(read_text(tmp_path, lines(talk(line, last="x"))))[3] == (
        "user",
        "<system-reminder>Plan only.</system-reminder>",
    )


def test_a_picture_that_was_attached_is_one(tmp_path: Path) -> None:
    line = attachment(
        "x",
        "r",
        "file",
        filename="a.png",
        content={"type": "image", "file": {"base64": PNG, "type": "image/png"}},
    )
    made = read_text(tmp_path, lines(talk(line, last="x")))
    assert made.shown[3].content == (
        ImagePart(url=f"data:image/png;base64,{PNG}", media_type="image/png"),
    )


def test_a_command_that_was_taken_from_the_queue_is_shown_once(tmp_path: Path) -> None:
    queued = [queue("enqueue", "draft PR please"), queue("remove")]
    older = read_text(tmp_path, lines(talk(*queued)))
    newer = read_text(
        tmp_path,
        lines(
            talk(
                *queued, attachment("x", "r", "queued_command", prompt="draft PR please"), last="x"
            )
        ),
    )
    for made in (older, newer):
        assert shown(made)[3:] == [("user", "draft PR please"), ("assistant", "Done.")]
        assert made.counts.attachments == 1


@pytest.mark.parametrize(
    "operations",
    [
        [queue("enqueue", "/mcp"), queue("remove")],
        [queue("enqueue", "go on"), queue("popAll"), queue("remove")],
        [queue("enqueue", "go on"), queue("dequeue")],
        [queue("remove")],
    ],
)
def test_a_command_that_the_model_was_not_shown_so_is_no_message(
    operations: list[Record], tmp_path: Path
) -> None:
    made = read_text(tmp_path, lines(talk(*operations)))
    assert (len(shown(made)), made.counts.attachments) == (4, 0)


def test_what_the_program_queued_is_not_said_by_a_person(tmp_path: Path) -> None:
    line = attachment(
        "x",
        "r",
        "queued_command",
        prompt="<task-notification>ended</task-notification>",
        commandMode="task-notification",
    )
    made = read_text(tmp_path, lines(talk(line, last="x")))
    (payload,) = (entry.payload for entry in made.entries if entry.id == "x")
    assert isinstance(payload, CustomMessage)


def test_attachments_between_parallel_results_leave_calls_and_results_together(
    tmp_path: Path,
) -> None:
    records = [
        user("u", None, "look"),
        answer("a1", "u", "m1", use("c1")),
        user("r1", "a1", result("c1", "one")),
        attachment("x", "r1", "hook_additional_context", content=["Use tabs."]),
        answer("a2", "a1", "m1", use("c2")),
        user("r2", "a2", result("c2", "two")),
        answer("b", "r2", "m2", text("Done.")),
    ]
    made = read_text(tmp_path, lines(records))
    assert [said for _, said in shown(made)] == ["look", "", "one", "two", "Use tabs.", "Done."]


def test_a_session_that_begins_with_attachments_is_one_conversation(tmp_path: Path) -> None:
    records = [
        attachment("x", None, "hook_success", hookEvent="SessionStart", content="Branch: main"),
        user("u", "x", "look"),
    ]
    made = read_text(tmp_path, lines([*records, answer("a", "u", "m", text("Done."))]))
    assert (shown(made)[0], made.counts.conversations) == (("user", "Branch: main"), 1)


def agent_lines(*, status: str = "completed") -> list[Record]:
    def progress(**inner: object) -> Record:
        data = {
            "type": "agent_progress",
            "agentId": "z",
            "prompt": "search",
            "message": {"timestamp": WHEN, **inner},
        }
        return {
            "type": "progress",
            "parentUuid": "a",
            "parentToolUseID": "c1",
            "sessionId": "s",
            "timestamp": WHEN,
            "data": data,
        }

    told = {
        "agentId": "z",
        "status": status,
        "content": [text("Found it in a.py.")],
        "usage": {"input_tokens": 5, "output_tokens": 4},
    }
    return [
        user("u", None, "look"),
        answer("a", "u", "m1", use("c1", "Task")),
        progress(type="user", uuid="s1", message={"role": "user", "content": "search"}),
        progress(
            type="assistant",
            uuid="s2",
            message={"id": "m9", "role": "assistant", "content": [use("c9")]},
        ),
        progress(type="user", uuid="s3", message={"role": "user", "content": result("c9")}),
        user(
            "r",
            "a",
            result("c1", [text("Found it in a.py."), text("agentId: z")]),
            toolUseResult=told,
        ),
        answer("b", "r", "m2", text("Done.")),
    ]


def test_the_last_answer_of_a_subagent_is_read_from_the_result_of_its_call(tmp_path: Path) -> None:
    made = read_text(tmp_path, lines(agent_lines()))
    main, subagent = sorted(
        recordings_from_entries(made.entries), key=lambda each: each.messages[0].text
    )
    assert [message.text for message in subagent.messages] == [
        "search",
        "",
        "done",
        "Found it in a.py.",
    ]
    assert main.messages[-1].text == "Done."
    assert (made.counts.attachments, made.problems) == (1, [])


def test_a_subagent_that_is_not_done_or_has_answered_gets_no_other_answer(tmp_path: Path) -> None:
    assert read_text(tmp_path, lines(agent_lines(status="async_launched"))).counts.attachments == 0
    records = agent_lines()
    said = answer("s4", "s3", "m10", text("Found it in a.py."), isSidechain=True, agentId="z")
    assert read_text(tmp_path, lines([*records[:5], said, *records[5:]])).counts.attachments == 0
