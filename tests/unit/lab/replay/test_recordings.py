"""The conversations of a file: every branch, nothing twice, all that was said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from promptkit import Message, ToolDefinition, Transcript
from promptkit.errors import TranscriptError
from promptkit.lab.replay.recordings import read_recordings, recordings_from_entries
from promptkit.messages import OpaquePart, Usage
from promptkit.transcript.log.entries import Checkpoint, CustomEntry, Edit, MessageEntry, Setting
from tests.conversations import assistant_message, result_message, user_message
from tests.unit.lab.replay.conversations import (
    long_conversation,
    recording_of,
    run_call,
    write_transcript,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit.lab.replay.recordings import Recording
    from promptkit.messages import Json


def texts(recording: Recording) -> list[str]:
    return [message.text for message in recording.messages]


def test_each_branch_is_a_conversation_and_none_only_begins_another() -> None:
    transcript = Transcript()
    (first,) = transcript.append_messages(user_message("one"))
    transcript.append_messages(assistant_message("two"))
    transcript.append(CustomEntry(name="note"))
    transcript.rewind(first.id)
    transcript.append_messages(assistant_message("other"), user_message("more"))
    transcript.append(Setting(name="model", value="gpt-5"))
    assert [texts(each) for each in recordings_from_entries(transcript.entries)] == [
        ["one", "two"],
        ["one", "other", "more"],
    ]


def test_branches_name_what_an_earlier_one_has_and_their_conversation() -> None:
    transcript = Transcript()
    transcript.append_messages(user_message("one"), Message(role="assistant"), run_call("a"))
    (result,) = transcript.append_messages(result_message("a", "out"))
    transcript.append_messages(assistant_message("two"), user_message("three"))
    transcript.rewind(result.id)
    transcript.append_messages(assistant_message("other"))
    transcript.rewind(None)
    transcript.append_messages(user_message("apart"), assistant_message("yes"))
    found = list(recordings_from_entries(transcript.entries))
    assert [(each.conversation, each.shared) for each in found] == [
        (0, 0),
        (0, 3),
        (1, 0),
    ]


def test_what_the_recordings_own_agent_left_out_is_there() -> None:
    transcript = Transcript()
    first, second = transcript.append_messages(user_message("one"), assistant_message("two"))
    transcript.append(Edit(target=second.id, content=None, reason="pruned"))
    transcript.append(Checkpoint(summary="All of it.", first_kept=None))
    transcript.append_messages(user_message("three"))
    assert first.id != second.id
    assert [texts(each) for each in recordings_from_entries(transcript.entries)] == [
        ["one", "two", "three"]
    ]


def test_calls_and_results_are_whole_and_times_stay_with_their_messages() -> None:
    rules = Message(role="system", content=("Rules.",))
    talk = [
        rules,
        user_message("one"),
        run_call("a"),
        run_call("b"),
        result_message("b", "out"),
        result_message("x", "orphan"),
        assistant_message("done"),
    ]
    recording = recording_of(talk, [0.5, 1, 2, 3, 4, 5, 6])
    assert [message.role for message in recording.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert recording.times == (1, 2, 2, 3, 4, 6)


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ({"type": "thinking", "thinking": "", "signature": "x"}, True),
        ({"type": "thinking", "thinking": "I look.", "signature": "x"}, False),
        (
            {
                "type": "thinking",
                "thinking": "digest",
                "thinkingSignature": '{"encrypted_content": "zz"}',
            },
            True,
        ),
        ({"type": "redacted_thinking", "data": "zz"}, True),
        ({"type": "thought", "subject": "Looking", "description": "digest"}, True),
        ({"type": "reasoning", "summary": [], "encrypted_content": "zz"}, True),
        ({"type": "reasoning", "text": "I look."}, False),
        ({"type": "refusal", "refusal": "No."}, False),
    ],
)
def test_the_reported_output_counts_where_the_text_of_thinking_is_missing(
    value: Mapping[str, Json], hidden: bool
) -> None:
    reply = Message(role="assistant", content=(OpaquePart(value=value), "two"))
    transcript = Transcript()
    transcript.append(
        MessageEntry(message=Message(role="system", content="Rules.")),
        MessageEntry(message=user_message("one")),
    )
    transcript.append(MessageEntry(message=reply, usage=Usage(input_tokens=9, output_tokens=70)))
    transcript.append(
        MessageEntry(
            message=assistant_message("three"), usage=Usage(input_tokens=9, output_tokens=70)
        )
    )
    (recording,) = recordings_from_entries(transcript.entries)
    assert recording.reported == (0, 70 if hidden else 0, 0)


def test_times_of_zero_are_unknown() -> None:
    numbers = iter([0.0, 5.0])
    transcript = Transcript(clock=lambda: next(numbers))
    transcript.append_messages(user_message("one"))
    transcript.append_messages(assistant_message("two"))
    assert next(iter(recordings_from_entries(transcript.entries))).times == (None, 5.0)


def test_instructions_stand_apart_and_tools_are_those_that_a_setting_names() -> None:
    transcript = Transcript()
    transcript.append_messages(
        Message(role="system", content=("Rules.",)), user_message("one"), assistant_message("two")
    )
    transcript.append(
        Setting(
            name="openhands.kwargs",
            value={
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "run", "parameters": {"type": "object"}},
                    }
                ]
            },
        )
    )
    (recording,) = recordings_from_entries(transcript.entries)
    assert [message.text for message in recording.system] == ["Rules."]
    assert recording.tools == (ToolDefinition(name="run", parameters={"type": "object"}),)


@pytest.mark.parametrize("value", [None, 3, [3, {"function": 3}, {"name": 4}], {"tools": "x"}, "x"])
def test_settings_that_hold_no_tools_are_none(value: object) -> None:
    transcript = Transcript()
    transcript.append_messages(user_message("one"))
    transcript.append(Setting(name="some.tools", value=value))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # JSON of others
    (recording,) = recordings_from_entries(transcript.entries)
    assert recording.tools == ()


def test_our_own_log_is_read_with_its_times(tmp_path: Path) -> None:
    file = write_transcript(tmp_path / "talk.jsonl", long_conversation(2))
    (recording,) = read_recordings(file)
    assert list(recording.messages) == long_conversation(2)
    assert recording.times[:2] == (1_767_225_600.0, 1_767_225_660.0)


def test_another_agents_file_is_read_and_what_is_none_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "chat.json"
    other.write_text(
        '[{"role": "system", "content": "Rules."}, {"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]'
    )
    (recording,) = read_recordings(other)
    assert texts(recording) == ["one", "two"]
    (tmp_path / "none.txt").write_text("hello")
    with pytest.raises(TranscriptError):
        list(read_recordings(tmp_path / "none.txt"))
