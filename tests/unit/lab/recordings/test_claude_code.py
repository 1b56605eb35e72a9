"""Claude Code's files: answers over several lines, branches, subagents, compactions, and lines that nobody can read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from promptkit.lab.recordings.importing import RecordingCounts
from promptkit.messages import DocumentPart, ImagePart, OpaquePart, Usage
from promptkit.transcript import Checkpoint, build_view
from promptkit.transcript.log.entries import CustomEntry, MessageEntry, Setting
from tests.unit.lab.recordings.samples import (
    CLAUDE,
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

    from promptkit import Message
    from promptkit.messages import Json
    from tests.unit.lab.recordings.samples import Read, Record


def read(folder: Path, *records: Record) -> Read:
    return read_text(folder, lines(records))


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [
        message.text or ",".join(call.id for call in message.tool_calls) for message in messages
    ]


def branch(made: Read, leaf: str) -> list[str]:
    return texts(build_view(made.transcript.path(leaf)).messages)


class TestAnswers:
    def test_lines_of_one_answer_are_one_message_with_its_results_behind_it(
        self, tmp_path: Path
    ) -> None:
        made = read(tmp_path, *CLAUDE[:9])
        asked, said, first, second, done = made.shown
        assert asked.content[0] == "look"
        assert [call.id for call in said.tool_calls] == ["c1", "c2"]
        assert said.content == (
            OpaquePart(
                value={"type": "thinking", "thinking": "hm", "signature": "sig"},
                provider="anthropic",
            ),
            "I read.",
        )
        assert (first.tool_call_id, second.tool_call_id) == ("c1", "c2")
        assert done.text == "Done."
        assert build_view(made.transcript.path()).repairs == ()

    def test_usage_model_and_reason_of_an_answer_are_read(self, tmp_path: Path) -> None:
        made = read(tmp_path, *CLAUDE[:9])
        said = next(
            entry.payload
            for entry in made.entries
            if isinstance(entry.payload, MessageEntry) and entry.payload.message.tool_calls
        )
        assert (said.usage, said.model, said.finish) == (
            Usage(input_tokens=27, output_tokens=3, cached_tokens=5, written_tokens=2),
            "claude",
            "tool_calls",
        )
        assert {
            entry.time for entry in made.entries if isinstance(entry.payload, MessageEntry)
        } == {1_767_225_600.0}

    def test_a_piece_that_comes_after_the_next_answer_is_a_message_of_its_own_and_counts_no_second_time(
        self, tmp_path: Path
    ) -> None:
        made = read(
            tmp_path,
            user("u1", None, "a"),
            answer("a1", "u1", "m1", text("one")),
            answer("a2", "a1", "m2", text("two")),
            answer("a3", "a2", "m1", text("late")),
        )
        assert (texts(made.shown), made.counts.messages) == (["a", "one", "two", "late"], 3)

    def test_what_an_error_of_the_interface_said_is_marked(self, tmp_path: Path) -> None:
        made = read(
            tmp_path,
            user("u1", None, "a"),
            answer("a1", "u1", "m1", text("API Error"), isApiErrorMessage=True),
        )
        assert [
            entry.payload.finish
            for entry in made.entries
            if isinstance(entry.payload, MessageEntry)
        ] == [None, "error"]

    def test_images_documents_and_what_is_not_known_keep_their_place(self, tmp_path: Path) -> None:
        pdf: Json = {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
            "title": "t",
        }
        novelty: Json = {"type": "novelty", "what": 1}
        made = read(tmp_path, user("u1", None, [text("a"), pdf, novelty, text("b"), "plain"]))
        assert made.shown[0].content == (
            "a",
            DocumentPart(data="JVBERg==", media_type="application/pdf", name="t"),
            OpaquePart(value=novelty, provider="anthropic"),
            "b",
            "plain",
        )
        assert read(tmp_path, *CLAUDE[:9]).counts.images == 2
        assert ImagePart(url="https://host/x.png") in [
            part for message in read(tmp_path, *CLAUDE[:9]).shown for part in message.content
        ]


class TestBranches:
    def test_a_message_that_was_edited_begins_a_branch(self, tmp_path: Path) -> None:
        made = read(
            tmp_path,
            user("u1", None, "a"),
            answer("a1", "u1", "m1", text("one")),
            user("u2", "a1", "first try"),
            answer("a2", "u2", "m2", text("two")),
            user("u3", "a1", "second try"),
            answer("a3", "u3", "m3", text("three")),
        )
        assert texts(made.shown) == ["a", "one", "second try", "three"]
        assert ["a", "one", "first try", "two"] in [
            branch(made, leaf.id) for leaf in made.transcript.leaves()
        ]
        assert made.counts.conversations == 1

    def test_a_second_beginning_is_a_root_of_its_own(self, tmp_path: Path) -> None:
        made = read(
            tmp_path,
            user("u1", None, "a"),
            answer("a1", "u1", "m1", text("one")),
            user("u2", None, "b"),
            answer("a2", "u2", "m2", text("two")),
        )
        assert texts(made.shown) == ["b", "two"]
        assert made.counts.conversations == 1

    def test_lines_that_name_no_other_follow_each_other(self, tmp_path: Path) -> None:
        made = read(
            tmp_path,
            user("u1", None, "a"),
            answer("a1", None, "m1", use("c")),
            user("u2", None, result("c")),
            user("u3", None, "b"),
        )
        assert texts(made.shown) == ["a", "c", "done", "b"]

    def test_what_is_noted_about_an_earlier_line_leaves_the_conversation_where_it_is(
        self, tmp_path: Path
    ) -> None:
        noted = {
            "type": "progress",
            "uuid": "p1",
            "parentUuid": "u1",
            "sessionId": "s",
            "data": {"type": "hook_progress"},
        }
        made = read(
            tmp_path,
            user("u1", None, "a"),
            answer("a1", "u1", "m1", text("one")),
            user("u2", "a1", "b"),
            noted,
            {"type": "novelty"},
        )
        assert texts(made.shown) == ["a", "one", "b"]

    def test_several_sessions_are_conversations_with_names(self, tmp_path: Path) -> None:
        made = read(
            tmp_path,
            user("u1", None, "a"),
            user("u2", None, "b", sessionId="t"),
            user("u3", "u1", "c"),
        )
        assert made.counts.conversations == 2
        assert set(made.transcript.labels) == {"session s", "session t"}
        assert texts(made.shown) == ["a", "c"]

    def test_a_session_that_goes_on_in_another_is_one_conversation(self, tmp_path: Path) -> None:
        made = read(tmp_path, user("u1", None, "a"), user("u2", "u1", "b", sessionId="t"))
        assert (made.counts.conversations, texts(made.shown)) == (1, ["a", "b"])

    def test_a_line_whose_parent_is_missing_is_mended_and_told(self, tmp_path: Path) -> None:
        made = read(tmp_path, user("u1", None, "a"), user("u2", "gone", "b"))
        assert texts(made.shown) == ["a", "b"]
        assert made.problems == [
            "its parent line 'gone' is not in this file; it was placed after 'u1'."
        ]

    def test_lines_that_name_each_other_in_a_circle_are_read(self, tmp_path: Path) -> None:
        made = read(tmp_path, user("u1", "u2", "a"), user("u2", "u1", "b"), user("u3", "u3", "c"))
        assert texts(made.shown) == ["a", "b", "c"]

    def test_a_uuid_that_occurs_twice_costs_no_message(self, tmp_path: Path) -> None:
        made = read(tmp_path, user("u1", None, "a"), user("u1", None, "b"), user("u2", "u1", "c"))
        assert made.counts.messages == 3


class TestSubagents:
    def test_a_side_chain_is_a_branch_with_a_name(self, tmp_path: Path) -> None:
        made = read(
            tmp_path,
            user("u1", None, "a"),
            answer("a1", "u1", "m1", use("task", "Task")),
            user("x1", None, "search", isSidechain=True),
            answer("x2", "x1", "n1", use("c"), isSidechain=True),
            user("x3", "x2", result("c"), isSidechain=True),
            answer("x4", "x3", "n2", text("found"), isSidechain=True),
            user("r1", "a1", result("task")),
        )
        assert texts(made.shown) == ["a", "task", "done"]
        assert branch(made, made.transcript.labels["subagent x1"]) == ["search"]
        assert ["search", "c", "done", "found"] in [
            branch(made, leaf.id) for leaf in made.transcript.leaves()
        ]
        assert (made.counts.conversations, made.counts.messages, made.counts.tool_calls) == (
            1,
            7,
            2,
        )

    def test_a_subagent_inside_the_progress_of_its_call_is_one_too(self, tmp_path: Path) -> None:
        def progress(uuid: str, parent: str, inner: Record) -> Record:
            data = {"type": "agent_progress", "agentId": "z", "message": inner, "prompt": "search"}
            line = {
                "type": "progress",
                "uuid": uuid,
                "parentUuid": parent,
                "sessionId": "s",
                "parentToolUseID": "task",
                "data": data,
            }
            return line | {"timestamp": "2026-01-01T00:00:00Z"}

        asked, said = user("i1", None, "search"), answer("i2", None, "n1", text("found"))
        made = read(
            tmp_path,
            user("u1", None, "a"),
            answer("a1", "u1", "m1", use("task", "Task")),
            progress("p1", "a1", {"type": "user", "uuid": "i1", "message": asked["message"]}),
            progress("p2", "p1", {"type": "assistant", "uuid": "i2", "message": said["message"]}),
            user("r1", "a1", result("task")),
            answer("a2", "p2", "m2", text("thanks")),
        )
        assert texts(made.shown) == ["a", "task", "done", "thanks"]
        assert ["search", "found"] in [branch(made, leaf.id) for leaf in made.transcript.leaves()]
        assert "subagent z" in made.transcript.labels
        assert made.counts == RecordingCounts(
            conversations=1, messages=6, tool_calls=1, tool_results=1
        )

    def test_a_file_of_one_subagent_is_a_conversation(self, tmp_path: Path) -> None:
        made = read(
            tmp_path,
            user("u1", None, "a", isSidechain=True, agentId="q"),
            answer("a1", "u1", "m", text("b"), isSidechain=True, agentId="q"),
        )
        assert (made.counts.conversations, made.counts.messages) == (1, 2)

    def test_texts_and_reminders_of_a_subagent_in_progress_lines_are_messages_of_it(
        self, tmp_path: Path
    ) -> None:
        def progress(uuid: str, **data: Json) -> Record:
            return {
                "type": "progress",
                "uuid": uuid,
                "parentUuid": "a1",
                "sessionId": "s",
                "data": {"type": "agent_progress", "agentId": "x", **data},
            }

        reminder: Json = {"type": "critical_system_reminder", "content": "Only read."}
        made = read(
            tmp_path,
            CLAUDE[0],
            answer("a1", "u1", "m1", text("I ask.")),
            progress("p1", message={"type": "user", "message": {"role": "user", "content": "Go."}}),
            progress("p2", message={"type": "attachment", "attachment": reminder}),
            progress(
                "p3",
                message={
                    "type": "assistant",
                    "message": {"role": "assistant", "content": [{"type": "text", "text": "Hm."}]},
                },
            ),
            progress("p4", message="Nearly done."),
            progress(
                "p5",
                normalizedMessages=[
                    {"type": "assistant", "message": {"role": "assistant", "content": "Done."}}
                ],
            ),
        )
        shown = [
            entry.message.text
            for entry in made.entries
            if entry.message and not entry.message.tool_calls
        ]
        for said in ("Go.", "Only read.", "Hm.", "Nearly done.", "Done."):
            assert sum(said in each for each in shown) == 1, said

    def test_a_line_without_a_message_among_a_subagents_lines_counts_none(
        self, tmp_path: Path
    ) -> None:
        listed: list[Json] = [
            {"type": "assistant", "message": {"role": "assistant", "content": "Done."}},
            {"type": "attachment", "attachment": {"type": "date_change"}},
        ]
        progress: Record = {
            "type": "progress",
            "uuid": "p1",
            "parentUuid": "a1",
            "sessionId": "s",
            "data": {"type": "agent_progress", "agentId": "x", "normalizedMessages": listed},
        }
        made = read(tmp_path, CLAUDE[0], answer("a1", "u1", "m1", text("I ask.")), progress)
        assert made.counts.messages == 2


class TestCompactions:
    def test_what_stood_before_is_shown_as_the_summary(self, tmp_path: Path) -> None:
        made = read(tmp_path, *CLAUDE)
        checkpoint = next(
            entry.payload for entry in made.entries if isinstance(entry.payload, Checkpoint)
        )
        assert checkpoint == Checkpoint(
            summary="We read x.", trigger="auto", tokens_before=155_025, tokens_after=9_000
        )
        summary, *behind = texts(made.shown)
        assert "We read x." in summary
        assert behind == ["go on", "Yes."]
        assert made.counts.compactions == 1

    def test_a_segment_that_was_kept_is_shown_behind_the_summary(self, tmp_path: Path) -> None:
        boundary = CLAUDE[9] | {
            "logicalParentUuid": "u2",
            "compactMetadata": {"preservedSegment": {"headUuid": "a1", "tailUuid": "u2"}},
        }
        made = read(
            tmp_path,
            user("u1", None, "a"),
            answer("a1", "u1", "m1", text("kept")),
            user("u2", "a1", "kept, too"),
            boundary,
            user("s1", "b1", "Summary.", isCompactSummary=True),
            answer("a2", "u2", "m2", text("on")),
        )
        summary, *behind = texts(made.shown)
        assert "Summary." in summary
        assert behind == ["kept", "kept, too", "on"]

    def test_a_boundary_without_a_summary_and_a_summary_without_a_boundary_are_compactions(
        self, tmp_path: Path
    ) -> None:
        made = read(
            tmp_path,
            user("u1", None, "a"),
            CLAUDE[9] | {"logicalParentUuid": "u1"},
            user("u2", "b1", "b"),
        )
        assert (texts(made.shown), made.counts.compactions, made.counts.messages) == (["b"], 1, 2)
        made = read(
            tmp_path, user("s1", None, "Before.", isCompactSummary=True), user("u1", "s1", "a")
        )
        assert (len(made.shown), made.counts.compactions, made.counts.messages) == (2, 1, 2)
        assert read(tmp_path, user("u1", None, "a"), CLAUDE[9]).counts.compactions == 1


class TestNothingIsLost:
    def test_a_file_that_begins_with_marks_alone_is_told(self, tmp_path: Path) -> None:
        marks = [
            {
                "type": "queue-operation",
                "operation": "enqueue",
                "timestamp": "2026-01-01T00:00:00Z",
                "sessionId": "s",
            }
        ] * 100
        assert read(tmp_path, *marks, user("u1", None, "a")).counts == RecordingCounts(
            conversations=1, messages=1
        )

    def test_every_field_of_every_line_is_in_an_entry(self, tmp_path: Path) -> None:
        made = read(tmp_path, *CLAUDE)
        kept = json.dumps(
            [entry.payload.data for entry in made.entries if isinstance(entry.payload, CustomEntry)]
        )
        for word in (
            "toolUseResult",
            "snapshot",
            "hook_progress",
            "isVisibleInTranscriptOnly",
            "cache_creation_input_tokens",
            "m1",
        ):
            assert word in kept
        assert next(
            entry.payload.value for entry in made.entries if isinstance(entry.payload, Setting)
        ) == {"sessionId": "s"}
        assert made.transcript.labels == {"UsageReading": "a5"}

    def test_lines_that_cannot_be_read_are_kept_told_and_counted(self, tmp_path: Path) -> None:
        bad = ["// a comment", '"text"', "[1]", '{"type": "user", "mess']
        made = read_text(tmp_path, "\n".join([bad[0], json.dumps(CLAUDE[1]), *bad[1:]]))
        assert made.counts.skipped_lines == 4
        assert [problem.line for batch in made.batches for problem in batch.skipped] == [1, 3, 4, 5]
        data = [
            entry.payload.data
            for entry in made.entries
            if isinstance(entry.payload, CustomEntry) and entry.payload.name.endswith("bad_line")
        ]
        assert [record["text"] for record in data if isinstance(record, dict)] == bad

    def test_two_objects_on_one_line_are_both_read(self, tmp_path: Path) -> None:
        first, second = (
            lines([user("u1", None, "look")]).strip(),
            lines([user("u9", "u1", "and } { more")]).strip(),
        )
        made = read_text(tmp_path, f"{first}{second}\n{second[:-1]}")
        assert [message.text for message in made.shown] == ["look", "and } { more"]

    def test_a_message_that_is_none_is_kept(self, tmp_path: Path) -> None:
        made = read(
            tmp_path,
            user("u1", None, "a"),
            {**user("u2", "u1", "b"), "message": "error"},
            {"silly": "this"},
            user("u3", "u2", "c"),
        )
        assert (texts(made.shown), made.counts.messages) == (["a", "c"], 2)
        assert {"claude_code.user", "claude_code.unknown"} <= {
            entry.payload.name for entry in made.entries if isinstance(entry.payload, CustomEntry)
        }
