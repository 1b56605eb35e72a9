"""The way out: what is exported and read again is what it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given, settings, strategies as st

from promptkit import JsonlStore, Message, ToolCall, Transcript
from promptkit.lab.recordings.exporting import (
    encode_transcript,
    messages_from_entries,
    to_anthropic_json,
    to_chat_json,
)
from promptkit.messages import DocumentPart, ImagePart, OpaquePart
from promptkit.transcript import Checkpoint, InMemoryStore, build_view
from promptkit.transcript.log.entries import MessageEntry
from tests.examples import examples
from tests.unit.lab.recordings.samples import CLAUDE, SAMPLES, lines, read_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

WORDS = st.text(alphabet='abc é\n\u2028{}"\\', min_size=1, max_size=8).filter(str.strip)
IMAGE = ImagePart(url="https://host/x.png")


@st.composite
def talks(draw: st.DrawFn) -> list[Message]:
    """A conversation in which every call is answered and speakers take turns."""
    said = [Message(role="system", content=(draw(WORDS),))] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 4))):
        said.append(
            Message(role="user", content=(draw(WORDS), *([IMAGE] if draw(st.booleans()) else [])))
        )
        calls = tuple(
            ToolCall(id=f"c{turn}_{number}", name="read", arguments='{"path": "x"}')
            for number in range(draw(st.integers(0, 3)))
        )
        content = (draw(WORDS),) if draw(st.booleans()) or not calls else ()
        said.append(Message(role="assistant", content=content, tool_calls=calls))
        said += [
            Message(role="tool", tool_call_id=call.id, content=(draw(WORDS),)) for call in calls
        ]
        if calls:
            said.append(Message(role="assistant", content=(draw(WORDS),)))
    return said


def transcript_of(messages: Sequence[Message]) -> Transcript:
    transcript = Transcript()
    transcript.append_messages(*messages)
    return transcript


def again(folder: Path, value: object, codec: str) -> list[Message]:
    made = read_text(folder, json.dumps(value), codec)
    assert made.problems == []
    return [
        entry.payload.message for entry in made.entries if isinstance(entry.payload, MessageEntry)
    ]


@settings(max_examples=examples(60))
@given(messages=talks())
def test_chat_messages_are_read_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message]
) -> None:
    value = to_chat_json(messages_from_entries(transcript_of(messages).path()))
    assert again(tmp_path_factory.mktemp("chat"), value, "openai_chat") == messages


@settings(max_examples=examples(60))
@given(messages=talks())
def test_anthropic_messages_are_read_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message]
) -> None:
    value = to_anthropic_json(messages_from_entries(transcript_of(messages).path()))
    assert again(tmp_path_factory.mktemp("anthropic"), value, "anthropic") == messages


def test_our_own_transcript_is_read_as_it_was(tmp_path: Path) -> None:
    for name, (_, content) in SAMPLES.items():
        made = read_text(tmp_path, content)
        out = tmp_path / f"{name}.jsonl"
        out.write_bytes(b"".join(encode_transcript(made.entries)))
        back = Transcript(JsonlStore(out))
        assert list(back.entries) == made.entries
        assert build_view(back.path()) == build_view(made.transcript.path())


def test_thinking_goes_back_to_its_provider_and_to_no_other(tmp_path: Path) -> None:
    messages = messages_from_entries(read_text(tmp_path, lines(CLAUDE[:9])).transcript.path())
    assert "sig" in json.dumps(to_anthropic_json(messages))
    assert "sig" not in json.dumps(to_chat_json(messages))


def test_what_a_tool_showed_stands_behind_the_results_where_a_format_takes_no_images_there() -> (
    None
):
    calls = (ToolCall(id="a", name="see"), ToolCall(id="b", name="read"))
    pdf = DocumentPart(data="JVBERg==", media_type="application/pdf", name="t.pdf")
    messages = [
        Message(role="user", content=("see",)),
        Message(role="assistant", tool_calls=calls),
        Message(role="tool", tool_call_id="a", content=("here", IMAGE, pdf)),
        Message(role="tool", tool_call_id="b", content=("text",)),
    ]
    made = to_chat_json(messages)
    assert [message["role"] for message in made] == ["user", "assistant", "tool", "tool", "user"]
    assert [block["text"] for block in made[2]["content"]] == [
        "here",
        "[an image, shown in the message behind the results]",
        "[the document t.pdf, shown in the message behind the results]",
    ]
    assert [part["type"] for part in made[4]["content"]] == ["image_url", "file"]
    assert [
        block["type"]
        for block in to_anthropic_json(messages)["messages"][2]["content"][0]["content"]
    ] == ["text", "image", "document"]


def test_texts_that_stand_apart_in_a_message_are_exported_apart() -> None:
    call = ToolCall(id="a", name="run")
    messages = [
        Message(role="system", content=("Rules.", "More rules.")),
        Message(role="user", content=("one", "two", IMAGE, "three")),
        Message(role="assistant", content=("I look.", "Now."), tool_calls=(call,)),
        Message(role="tool", tool_call_id="a", content=("found", "agentId: 1")),
        Message(role="assistant", content=("Done.",)),
    ]
    chat, anthropic = to_chat_json(messages), to_anthropic_json(messages)
    assert [
        [block["text"] for block in chat[at]["content"] if "text" in block] for at in range(4)
    ] == [
        ["Rules.", "More rules."],
        ["one", "two", "three"],
        ["I look.", "Now."],
        ["found", "agentId: 1"],
    ]
    assert [block["text"] for block in anthropic.get("system", [])] == ["Rules.", "More rules."]
    blocks = [
        [block.get("text", block.get("content")) for block in message["content"]]
        for message in anthropic["messages"][:2]
    ]
    assert blocks == [["one", "two", None, "three"], ["I look.", "Now.", None]]
    assert [block["text"] for block in anthropic["messages"][2]["content"][0]["content"]] == [
        "found",
        "agentId: 1",
    ]
    assert chat[4]["content"] == "Done."


def test_arguments_that_are_no_object_do_not_end_an_export() -> None:
    call = ToolCall(id="a", name="run", arguments="ls -l")
    made = to_anthropic_json(
        messages_from_entries(transcript_of([Message(role="assistant", tool_calls=(call,))]).path())
    )
    assert made["messages"][0]["content"][0]["input"] == {"arguments": "ls -l"}


def test_full_shows_what_a_compaction_hides(tmp_path: Path) -> None:
    path = read_text(tmp_path, lines(CLAUDE)).transcript.path()
    assert any(isinstance(entry.payload, Checkpoint) for entry in path)
    assert [message.text for message in messages_from_entries(path, full=True)][-2:] == [
        "go on",
        "Yes.",
    ]
    assert (len(messages_from_entries(path)), len(messages_from_entries(path, full=True))) == (3, 7)


def test_secrets_are_taken_out_of_all_that_leaves(tmp_path: Path) -> None:
    def redact(text: str) -> str:
        return text.replace("sesame", "[secret]")

    content = '{"path": "sesame"}'
    messages = [
        Message(role="user", content=("say sesame",)),
        Message(role="assistant", tool_calls=(ToolCall(id="a", name="run", arguments=content),)),
        Message(
            role="tool",
            tool_call_id="a",
            content=("sesame", OpaquePart(value={"type": "x", "text": "sesame"})),
        ),
    ]
    transcript = transcript_of(messages)
    transcript.append(Checkpoint(summary="sesame", facts={"files": ["sesame"]}))
    for leaving in (
        json.dumps(
            to_chat_json(messages_from_entries(transcript.path(), full=True, redact=redact))
        ),
        json.dumps(to_anthropic_json(messages_from_entries(transcript.path(), redact=redact))),
        b"".join(encode_transcript(transcript.entries, redact=redact)).decode(),
    ):
        assert "sesame" not in leaving
        assert "[secret]" in leaving
    out = tmp_path / "out.jsonl"
    out.write_bytes(b"".join(encode_transcript(transcript.entries, redact=redact)))
    assert Transcript(JsonlStore(out)).problems == ()
    assert [entry.id for entry in Transcript(InMemoryStore(transcript.entries)).entries] == [
        entry.id for entry in transcript.entries
    ]
