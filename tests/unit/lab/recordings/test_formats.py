"""The other formats: what a recording in each of them comes to.

Layouts in which agents write the formats that are known: a line for each message, one task by
itself, events of the program.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from promptkit import Message
from promptkit.errors import TranscriptFormatError
from promptkit.lab.recordings import importing
from promptkit.lab.recordings.formats.codex import MAX_USER_CHARACTERS
from promptkit.lab.recordings.importing import RecordingCounts
from promptkit.lab.recordings.reading import files
from promptkit.messages import CacheBreakpointPart, ImagePart, OpaquePart, ToolCall, Usage
from promptkit.transcript import Checkpoint, build_view
from promptkit.transcript.log.entries import (
    BranchSummary,
    CustomEntry,
    CustomMessage,
    MessageEntry,
    Observation,
    Setting,
)
from tests.unit.lab.recordings.samples import (
    ANTHROPIC,
    CHAT,
    CODEX,
    EVENTS,
    MINI,
    PI,
    SAMPLES,
    SWE,
    WHEN,
    item,
    lines,
    packed,
    read_text,
    said_item,
    text,
    use,
)

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.messages import Json
    from tests.unit.lab.recordings.samples import Read, Record


CHAT_COUNTS = RecordingCounts(conversations=1, messages=5, tool_calls=1, tool_results=1, images=1)

EXPECTED = {
    "claude_code": RecordingCounts(
        conversations=1,
        messages=8,
        tool_calls=2,
        tool_results=2,
        images=2,
        thinking=1,
        compactions=1,
    ),
    "pi": RecordingCounts(
        conversations=1, messages=8, tool_calls=1, tool_results=1, thinking=1, compactions=1
    ),
    "codex": RecordingCounts(
        conversations=1,
        messages=7,
        tool_calls=3,
        tool_results=2,
        unanswered=1,
        thinking=1,
        compactions=1,
    ),
    "openai_chat": CHAT_COUNTS,
    "openai_chat_request": CHAT_COUNTS,
    "openai_chat_lines": RecordingCounts(
        conversations=2, messages=10, tool_calls=2, tool_results=2, images=2
    ),
    "anthropic": RecordingCounts(
        conversations=1, messages=4, tool_calls=2, tool_results=2, thinking=1
    ),
    "gemini_cli": RecordingCounts(
        conversations=1, messages=2, tool_calls=2, tool_results=1, unanswered=1, thinking=1
    ),
    "swe_agent": RecordingCounts(
        conversations=1, messages=5, tool_calls=2, tool_results=2, repeated_ids=1
    ),
    "mini_swe_agent": RecordingCounts(conversations=1, messages=4, tool_calls=1, tool_results=1),
    "openhands": RecordingCounts(conversations=1, messages=4, tool_calls=1, tool_results=1),
    "openhands_events": RecordingCounts(conversations=1, messages=4, tool_calls=1, tool_results=1),
    "tau_bench": RecordingCounts(
        conversations=2, messages=9, tool_calls=2, tool_results=2, images=1
    ),
}


def sample(name: str, folder: Path) -> Read:
    return read_text(folder, SAMPLES[name][1])


def payloads(made: Read, kind: type) -> list[object]:
    return [entry.payload for entry in made.entries if isinstance(entry.payload, kind)]


def said(made: Read) -> list[MessageEntry]:
    return [entry.payload for entry in made.entries if isinstance(entry.payload, MessageEntry)]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_told_and_counted(name: str, tmp_path: Path) -> None:
    made = sample(name, tmp_path)
    assert (made.format, made.counts) == (SAMPLES[name][0], EXPECTED[name])
    assert read_text(tmp_path, SAMPLES[name][1], SAMPLES[name][0]).counts == EXPECTED[name]
    assert {repair.kind for repair in build_view(made.transcript.path()).repairs} <= {
        "missing result",
        "repeated call id",
    }


@pytest.mark.parametrize("name", SAMPLES)
def test_a_compressed_file_with_a_byte_order_mark_and_other_line_ends_is_the_same(
    name: str, tmp_path: Path
) -> None:
    plain = sample(name, tmp_path)
    windows = "\ufeff" + SAMPLES[name][1].replace("\n", "\r\n")
    assert read_text(tmp_path, packed(windows), name="x.gz").entries == plain.entries


@pytest.mark.parametrize("name", SAMPLES)
def test_the_same_file_always_gives_the_same_ids(name: str, tmp_path: Path) -> None:
    assert sample(name, tmp_path).entries == sample(name, tmp_path).entries


class TestPi:
    def test_messages_of_all_kinds_are_shown_as_the_agent_showed_them(self, tmp_path: Path) -> None:
        made = read_text(tmp_path, lines(PI[:5]))
        asked, answered, result, ran = made.shown
        assert asked == Message(role="user", content=("hi",))
        thinking = OpaquePart(
            value={"type": "thinking", "thinking": "hm", "signature": "sig"}, provider="anthropic"
        )
        assert answered == Message(
            role="assistant",
            content=(thinking,),
            tool_calls=(ToolCall(id="c1", name="read", arguments='{"path": "x"}'),),
        )
        assert result == Message(role="tool", content=("found",), tool_call_id="c1", name="read")
        assert ran.text == "Ran `ls`\n```\nx\n```\n\nCommand exited with code 1"
        assert said(made)[1].usage == Usage(
            input_tokens=14, output_tokens=3, cached_tokens=4, written_tokens=1
        )
        assert said(made)[1].finish == "tool_calls"

    def test_a_compaction_keeps_what_it_names(self, tmp_path: Path) -> None:
        made = read_text(tmp_path, lines(PI[:7]))
        (checkpoint,) = payloads(made, Checkpoint)
        assert isinstance(checkpoint, Checkpoint)
        assert (checkpoint.first_kept, checkpoint.tokens_before, checkpoint.facts) == (
            "a4",
            180_000,
            PI[5]["details"],
        )
        assert [message.text for message in made.shown][1:] == [
            "Ran `ls`\n```\nx\n```\n\nCommand exited with code 1",
            "next",
        ]

    def test_a_branch_goes_on_from_its_summary(self, tmp_path: Path) -> None:
        made = sample("pi", tmp_path)
        assert [message.text for message in made.shown] == [
            "hi",
            "<branch-summary>\nWent astray.\n</branch-summary>",
            "heed",
        ]
        assert payloads(made, BranchSummary) == [BranchSummary(summary="Went astray.", leaf="a6")]
        assert len(payloads(made, CustomMessage)) == 1
        assert made.transcript.labels == {"start": "a1"}
        assert "pi.novelty" in [
            custom.name for custom in payloads(made, CustomEntry) if isinstance(custom, CustomEntry)
        ]

    def test_an_entry_without_a_parent_begins_a_branch_and_one_with_a_missing_parent_is_told(
        self, tmp_path: Path
    ) -> None:
        again = {
            "type": "message",
            "id": "z",
            "parentId": None,
            "message": {"role": "user", "content": "anew"},
        }
        assert [message.text for message in read_text(tmp_path, lines([*PI[:2], again])).shown] == [
            "anew"
        ]
        made = read_text(tmp_path, lines([*PI[:2], again | {"parentId": "gone"}]))
        assert [message.text for message in made.shown] == ["hi", "anew"]
        assert made.problems == ["its parent 'gone' is not before it; it was placed after 'a1'."]

    def test_version_1_has_places_instead_of_ids(self, tmp_path: Path) -> None:
        old = [
            {
                key: value
                for key, value in record.items()
                if key not in ("id", "parentId", "version")
            }
            for record in PI[:7]
        ]
        old[0]["id"] = "p"
        del old[5]["firstKeptEntryId"]
        made = read_text(tmp_path, lines([*old[:5], old[5] | {"firstKeptEntryIndex": 4}, old[6]]))
        assert [message.text[:4] for message in made.shown][1:] == ["Ran ", "next"]
        made = read_text(tmp_path, lines([*old[:5], old[5] | {"keepLastMessages": 2}, old[6]]))
        # a result without its call is not shown
        assert [message.role for message in made.shown] == ["user", "user", "user"]
        assert made.counts.compactions == 1

    def test_a_number_of_kept_messages_does_not_reach_behind_an_earlier_compaction(
        self, tmp_path: Path
    ) -> None:
        def said(*texts: str) -> list[Record]:
            return [{"type": "message", "message": {"role": "user", "content": t}} for t in texts]

        def compacted(summary: str, kept: int) -> Record:
            return {"type": "compaction", "summary": summary, "keepLastMessages": kept}

        first = [*said("a", "b"), compacted("first", 1)]
        made = read_text(tmp_path, lines([*first, *said("c"), compacted("second", 3), *said("d")]))
        assert [message.text for message in made.shown][1:] == ["c", "d"]
        made = read_text(tmp_path, lines([*first, compacted("second", 3), *said("d")]))
        assert [message.text for message in made.shown][1:] == ["d"]
        other = {"type": "session", "id": "q"}
        made = read_text(tmp_path, lines([*said("a", "b"), other, *said("c"), compacted("s", 3)]))
        assert [message.text for message in made.shown][1:] == ["c"]

    def test_more_kept_messages_than_can_be_counted_are_refused_with_a_sentence(
        self, tmp_path: Path
    ) -> None:
        many: list[Record] = [
            {"type": "message", "message": {"role": "user", "content": str(number)}}
            for number in range(700)
        ]
        for kept, shown in ((500, 501), (600, 700)):
            end = {"type": "compaction", "summary": "S", "keepLastMessages": kept}
            made = read_text(tmp_path, lines([*many, end]))
            assert len(made.shown) == shown
        (problem,) = made.problems
        assert problem.startswith("keepLastMessages is 600, and a compaction can keep 500 messages")
        assert made.counts.compactions == 0

    def test_version_2_names_hooks_otherwise(self, tmp_path: Path) -> None:
        hook = {
            "type": "message",
            "id": "h",
            "parentId": None,
            "message": {"role": "hookMessage", "customType": "k", "content": "c"},
        }
        made = read_text(tmp_path, lines([PI[0] | {"version": 2}, hook]))
        assert payloads(made, CustomMessage) == [
            CustomMessage(name="k", message=Message(role="user", content=("c",)))
        ]

    def test_two_sessions_in_a_file_are_two_conversations(self, tmp_path: Path) -> None:
        made = read_text(tmp_path, lines([*PI[:3], PI[0] | {"id": "q"}, PI[1]]))
        assert (made.counts.conversations, len(made.shown)) == (2, 1)


class TestCodex:
    def test_the_items_of_one_answer_are_one_message(self, tmp_path: Path) -> None:
        made = read_text(tmp_path, lines(CODEX[:11]))
        asked, answered, first, second = made.shown
        assert asked.text == "list"
        assert [call.name for call in answered.tool_calls] == ["shell", "apply_patch"]
        assert answered.tool_calls[1].arguments == '{"input": "*** Begin Patch"}'
        assert answered.content[0] == OpaquePart(value=CODEX[4]["payload"], provider="responses")
        assert (first.text, second.text) == ("a.py", "Done")
        assert said(made)[1].usage == Usage(input_tokens=90, output_tokens=7, cached_tokens=40)
        assert said(made)[1].model == "gpt-5-codex"

    def test_a_compaction_without_a_history_keeps_what_the_user_said(self, tmp_path: Path) -> None:
        made = sample("codex", tmp_path)
        assert [message.text for message in made.shown] == ["list", "Listed files.", "thanks"]
        long = lines(
            [said_item("user", "x" * MAX_USER_CHARACTERS), said_item("user", "later"), CODEX[13]]
        )
        assert [message.text for message in read_text(tmp_path, long).shown] == [
            "later",
            "Listed files.",
        ]

    def test_a_compaction_with_a_history_is_shown_as_that(self, tmp_path: Path) -> None:
        history = [CODEX[2]["payload"], {"type": "compaction", "encrypted_content": "zz"}]
        compacted = {
            "type": "compacted",
            "payload": {"message": "", "replacement_history": history},
        }
        made = read_text(tmp_path, lines([*CODEX[:3], compacted]))
        asked, opaque = made.shown
        assert (asked.text, opaque.content[0]) == (
            "list",
            OpaquePart(value=history[1], provider="responses"),
        )
        assert (made.counts.messages, made.counts.compactions) == (1, 1)

    def test_old_files_of_bare_items_are_read(self, tmp_path: Path) -> None:
        bare = [
            {"id": "u", "timestamp": WHEN, "instructions": None},
            {"record_type": "state"},
            *(record["payload"] for record in (CODEX[2], CODEX[6], CODEX[9])),
        ]
        made = read_text(tmp_path, lines(bare))
        assert (made.format, made.counts) == (
            "codex",
            RecordingCounts(conversations=1, messages=3, tool_calls=1, tool_results=1),
        )

    def test_what_is_said_twice_is_read_once_and_kept(self, tmp_path: Path) -> None:
        made = sample("codex", tmp_path)
        assert [message.text for message in made.shown].count("list") == 1
        names = [
            custom.name for custom in payloads(made, CustomEntry) if isinstance(custom, CustomEntry)
        ]
        assert {
            "codex.event_msg.user_message",
            "codex.event_msg.token_count",
            "codex.novelty",
        } <= set(names)

    def test_images_and_searches_keep_their_place(self, tmp_path: Path) -> None:
        image = item(
            type="message",
            role="user",
            content=[{"type": "input_image", "image_url": "data:image/png;base64,AA"}],
        )
        search = item(type="web_search_call", status="completed", action={"query": "q"})
        made = read_text(tmp_path, lines([image, search]))
        assert made.shown[0].content == (ImagePart(url="data:image/png;base64,AA"),)
        assert made.shown[1].content == (OpaquePart(value=search["payload"], provider="responses"),)


class TestJsonTexts:
    def test_a_result_in_gemini_stands_in_the_message_that_called(self, tmp_path: Path) -> None:
        made = sample("gemini_cli", tmp_path)
        asked, answered, result, missing = made.shown
        assert (asked.text, answered.text, result.text) == ("write", "I write.", "written")
        assert missing.tool_call_id == "w2"
        assert said(made)[1].usage == Usage(input_tokens=50, output_tokens=7, cached_tokens=20)
        assert "gemini_cli.info" in [
            custom.name for custom in payloads(made, CustomEntry) if isinstance(custom, CustomEntry)
        ]

    def test_steps_of_swe_agent_are_read_where_there_is_no_history(self, tmp_path: Path) -> None:
        made = read_text(tmp_path, json.dumps({"trajectory": SWE["trajectory"], "info": {}}))
        assert (made.format, [message.text for message in made.shown]) == (
            "swe_agent",
            ["I look.", "x"],
        )

    def test_mini_swe_agent_says_what_a_request_cost(self, tmp_path: Path) -> None:
        answered = said(sample("mini_swe_agent", tmp_path))[1]
        assert (answered.usage, answered.model) == (
            Usage(input_tokens=100, output_tokens=9, cached_tokens=64),
            "deep",
        )
        made = read_text(tmp_path, json.dumps(MINI["messages"][:3]), name="x.traj.json")
        assert (made.format, made.counts.messages) == ("mini_swe_agent", 3)

    def test_the_reply_in_a_log_of_openhands_is_kept_beside_the_conversation(
        self, tmp_path: Path
    ) -> None:
        made = sample("openhands", tmp_path)
        (seen,) = payloads(made, Observation)
        assert isinstance(seen, Observation)
        assert "Next." in json.dumps(seen.data)
        assert made.shown[1].content == ("fix", CacheBreakpointPart(kind="ephemeral"))

    def test_events_of_openhands_are_calls_and_results(self, tmp_path: Path) -> None:
        made = sample("openhands_events", tmp_path)
        assert [message.role for message in made.shown] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert made.shown[1].tool_calls == (
            ToolCall(id="event-1", name="run", arguments='{"command": "ls"}'),
        )
        pairs = read_text(tmp_path, json.dumps([EVENTS[0:1], EVENTS[1:3]]), "openhands")
        assert pairs.counts.tool_results == 1

    def test_each_task_of_tau_bench_is_a_root_with_a_name(self, tmp_path: Path) -> None:
        made = sample("tau_bench", tmp_path)
        assert set(made.transcript.labels) == {"task 0", "task 1"}
        assert sum(entry.parent_id is None for entry in made.transcript.entries) == 2
        assert [message.text for message in made.shown][1] == "b"

    def test_a_system_prompt_behind_the_messages_comes_first(self, tmp_path: Path) -> None:
        late = {"messages": ANTHROPIC["messages"], "model": "m", "system": [text("Be brief.")]}
        made = read_text(tmp_path, json.dumps(late))
        assert (made.format, made.shown[0]) == (
            "anthropic",
            Message(role="system", content=("Be brief.",)),
        )
        assert Setting(name="anthropic.model", value="m") in payloads(made, Setting)

    def test_results_of_one_turn_come_before_what_is_said_with_them(self, tmp_path: Path) -> None:
        made = sample("anthropic", tmp_path)
        assert [message.role for message in made.shown] == [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
            "assistant",
        ]

    def test_chat_messages_of_gateways_are_read(self, tmp_path: Path) -> None:
        messages = [
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    text("a"),
                    {
                        "type": "file",
                        "file": {
                            "file_data": "data:application/pdf;base64,JVBERg==",
                            "filename": "f",
                        },
                    },
                ],
            },
            {
                "role": "assistant",
                "reasoning_content": "hm",
                "content": "",
                "function_call": {"name": "f", "arguments": "{}"},
            },
            {"role": "function", "name": "f", "content": "1"},
            {"role": "assistant", "content": [text("b"), use("t")]},
            {"role": "critic", "content": "no"},
        ]
        made = read_text(tmp_path, json.dumps(messages))
        assert made.counts == RecordingCounts(
            conversations=1, messages=5, tool_calls=2, tool_results=1, unanswered=1, thinking=1
        )
        assert [message.role for message in made.shown] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
        ]

    def test_lists_of_lists_and_messages_one_a_line_are_read(self, tmp_path: Path) -> None:
        assert read_text(tmp_path, json.dumps([CHAT, CHAT])).counts.conversations == 2
        assert read_text(tmp_path, lines(CHAT)).counts == CHAT_COUNTS

    def test_a_message_that_is_no_object_is_told_and_kept(self, tmp_path: Path) -> None:
        made = read_text(tmp_path, json.dumps([*CHAT, "what", 7]))
        assert (made.counts.skipped_lines, made.counts.messages) == (2, 5)
        assert made.problems == ["5: no JSON object.", "6: no JSON object."]


def test_our_own_transcripts_are_read(tmp_path: Path) -> None:
    made = read_text(
        tmp_path,
        '{"promptkit":"transcript","version":1}\n{"id":"a","parent_id":null,"kind":"message","time":1,"data":{"message":{"role":"user","content":["a"]}}}\n',
    )
    assert (made.format, made.counts) == ("promptkit", RecordingCounts(conversations=1, messages=1))
    assert (
        read_text(
            tmp_path,
            packed((tmp_path / "recording").read_text(encoding="utf-8")),
            name="x.jsonl.gz",
        ).entries
        == made.entries
    )


def test_a_file_of_no_known_format_is_refused_with_a_list(tmp_path: Path) -> None:
    for content in ("hello", '{"a": 1}', "[]", "[[]]", "\x00\x01"):
        with pytest.raises(
            TranscriptFormatError,
            match=r"no known format. Known formats are promptkit, claude_code, .*--format",
        ):
            read_text(tmp_path, content)
    with pytest.raises(TranscriptFormatError, match="the file is empty"):
        read_text(tmp_path, "")


def test_a_first_line_that_is_too_long_to_be_looked_at_is_named_with_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_RECORD_BYTES", 1_000)
    monkeypatch.setattr(importing, "MAX_RECORD_BYTES", 1_000)
    for content in ('{"a": "' + "x" * 1_000 + '"}\n{"b": 1}\n', "x" * 1_000):
        with pytest.raises(
            TranscriptFormatError,
            match=r"its first line has more than 1,000 bytes, so the format cannot be detected. `promptkit import --format NAME`",
        ):
            read_text(tmp_path, content)


SESSION: dict[str, Json] = {
    "sessionId": "s",
    "projectHash": "p",
    "startTime": "2026-01-01T10:00:00Z",
    "kind": "main",
}
ASKED: dict[str, Json] = {
    "id": "1",
    "timestamp": "2026-01-01T10:00:01Z",
    "type": "user",
    "content": [{"text": "Look."}],
}
CALLING: dict[str, Json] = {
    "id": "2",
    "timestamp": "2026-01-01T10:00:02Z",
    "type": "gemini",
    "content": "I look.",
}
CALL: dict[str, Json] = {"id": "c1", "name": "read_file", "args": {"path": "a.py"}}
GAVE: list[Json] = [
    {"functionResponse": {"id": "c1", "name": "read_file", "response": {"output": "x = 1"}}}
]
DONE: dict[str, Json] = {
    "id": "3",
    "timestamp": "2026-01-01T10:00:03Z",
    "type": "gemini",
    "content": "It is 1.",
}
TASK: dict[str, Json] = {
    "task_id": 7,
    "reward": 1.0,
    "traj": [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hello to you."},
    ],
}


def shown(made: Read) -> list[str]:
    return [message.role for message in made.shown]


def kept(made: Read) -> list[str]:
    return [entry.payload.name for entry in made.entries if isinstance(entry.payload, CustomEntry)]


class TestLinesOfGeminiCli:
    def test_a_message_that_is_written_again_is_one_with_what_it_has_in_the_end(
        self, tmp_path: Path
    ) -> None:
        grown = (
            {**CALLING, "toolCalls": [CALL]},
            {**CALLING, "toolCalls": [{**CALL, "result": GAVE}]},
        )
        made = read_text(
            tmp_path, lines([SESSION, ASKED, CALLING, {"$set": {"lastUpdated": "x"}}, *grown, DONE])
        )
        assert (made.format, made.counts) == (
            "gemini_cli",
            RecordingCounts(conversations=1, messages=3, tool_calls=1, tool_results=1),
        )
        assert shown(made) == ["user", "assistant", "tool", "assistant"]

    def test_what_was_taken_back_is_no_longer_shown_and_is_still_there(
        self, tmp_path: Path
    ) -> None:
        other: dict[str, Json] = {"id": "4", "type": "user", "content": "Something else."}
        made = read_text(tmp_path, lines([SESSION, ASKED, DONE, {"$rewindTo": "1"}, other]))
        assert made.counts.messages == 3
        assert shown(made) == ["user"]
        assert kept(made) == ["gemini_cli.rewind"]

    def test_messages_that_are_set_again_are_read_once_and_kept(self, tmp_path: Path) -> None:
        made = read_text(
            tmp_path, lines([SESSION, ASKED, {"$set": {"messages": [ASKED, DONE]}}, ASKED])
        )
        assert made.counts.messages == 2
        assert kept(made) == ["gemini_cli.set", "gemini_cli.update"]

    def test_a_line_that_cannot_be_read_is_counted_and_kept(self, tmp_path: Path) -> None:
        made = read_text(tmp_path, lines([SESSION, ASKED]) + "{broken\n" + lines([DONE]))
        assert (made.counts.messages, made.counts.skipped_lines) == (2, 1)
        assert kept(made) == ["gemini_cli.bad_line"]


CONTENTS: list[Json] = [
    {"role": "user", "parts": [{"text": "Look."}]},
    {
        "role": "model",
        "parts": [
            {"text": "Hm.", "thought": True},
            {"functionCall": {"name": "read_file", "args": {"path": "a.py"}}},
        ],
    },
    {
        "role": "user",
        "parts": [{"functionResponse": {"name": "read_file", "response": {"output": "x = 1"}}}],
    },
    {"role": "model", "parts": [{"text": "It is 1."}]},
]


@pytest.mark.parametrize(
    "content", [CONTENTS, {"history": CONTENTS, "authType": "x"}], ids=["list", "history"]
)
def test_a_checkpoint_of_gemini_cli_has_calls_with_their_results(
    content: Json, tmp_path: Path
) -> None:
    made = read_text(tmp_path, json.dumps(content))
    assert (made.format, made.counts) == (
        "gemini_cli",
        RecordingCounts(conversations=1, messages=4, tool_calls=1, tool_results=1, thinking=1),
    )
    assert shown(made) == ["user", "assistant", "tool", "assistant"]
    assert made.shown[2].content == ("x = 1",)


@pytest.mark.parametrize(
    ("text", "count"), [(json.dumps(TASK), 1), (lines([TASK, TASK]), 2)], ids=["one", "lines"]
)
def test_tasks_of_tau_bench_need_no_list(text: str, count: int, tmp_path: Path) -> None:
    made = read_text(tmp_path, text)
    assert (made.format, made.counts) == (
        "tau_bench",
        RecordingCounts(conversations=count, messages=2 * count),
    )


def test_a_condensation_of_openhands_is_no_call_of_a_tool(tmp_path: Path) -> None:
    said = {"id": 0, "source": "user", "action": "message", "args": {"content": "Hello."}}
    condensed = {
        "id": 1,
        "source": "agent",
        "action": "condensation",
        "args": {"forgotten_event_ids": [0], "summary": "Greeted."},
    }
    made = read_text(tmp_path, json.dumps([said, condensed]))
    assert made.counts == RecordingCounts(conversations=1, messages=1)
    assert kept(made) == ["openhands.fields", "openhands.condensation"]


def test_mini_swe_agent_over_the_responses_interface_has_calls_and_results(tmp_path: Path) -> None:
    items: list[Json] = [
        {"type": "reasoning", "summary": []},
        {"type": "message", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"},
    ]
    answer: dict[str, Json] = {
        "object": "response",
        "model": "m",
        "output": items,
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }
    output = {
        "type": "function_call_output",
        "call_id": "c1",
        "output": "x = 1",
        "extra": {"returncode": 0},
    }
    asked = {"role": "user", "content": "Look."}
    made = read_text(
        tmp_path,
        json.dumps(
            {"trajectory_format": "mini-swe-agent-1.1", "messages": [asked, answer, output]}
        ),
    )
    assert made.counts == RecordingCounts(
        conversations=1, messages=3, tool_calls=1, tool_results=1, thinking=1
    )
    assert shown(made) == ["user", "assistant", "tool"]
    assert made.shown[1].content[1:] == ("I look.",)
