"""Anthropic messages as JSON: a request with its system prompt, a list of messages, or one of these a line."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from promptkit.errors import TranscriptFormatError
from promptkit.messages import Message
from promptkit.recordings.formats.claude_code import FINISH_REASONS, usage_from_anthropic
from promptkit.recordings.formats.openai_chat import find_layout
from promptkit.recordings.reading.codec import read_head
from promptkit.recordings.reading.conversations import ConversationWriter, walk_members
from promptkit.recordings.reading.json_values import as_object, omit_fields, as_text
from promptkit.recordings.reading.messages import ANTHROPIC, read_anthropic_content
from promptkit.transcript.entries import CustomEntry, MessageEntry, Observation, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json
    from promptkit.recordings.reading.codec import Batch, FileHead
    from promptkit.recordings.reading.conversations import PathPattern
    from promptkit.recordings.reading.json_stream import JsonPath
    from promptkit.recordings.reading.json_values import JsonObject
    from promptkit.recordings.reading.source import RecordingSource
    from promptkit.transcript.entries import EntryPayload

__all__ = ["AnthropicFormat"]

NAME = ANTHROPIC
KNOWN = {"role", "content", "model", "stop_reason", "usage"}
BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document")
PLACES = ("content.item.type", "item.content.item.type", "messages.item.content.item.type", "item.messages.item.content.item.type")
OF_OPENAI = {"system", "developer", "tool", "function"}


class AnthropicFormat:
    """Reads Anthropic messages."""

    name = NAME
    about = "Anthropic messages JSON"

    def detects(self, head: FileHead) -> bool:
        """Messages in which blocks have Anthropic's types, or that have a system prompt beside them; and none of OpenAI's roles."""
        if find_layout(head) is None or any(fact.rpartition("role=")[2] in OF_OPENAI for fact in head.json_paths if "role=" in fact):
            return False
        blocks = any(f"{place}={kind}" in head.json_paths for place in PLACES for kind in BLOCKS)
        return blocks or bool({"system", "system.item.text", "item.system"} & head.json_paths)

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        pattern, depth = find_layout(read_head(source)) or ((None,), 0)
        late = _late_prompts(source, pattern, depth)
        talks = ConversationWriter(NAME)
        told: JsonPath | None = None
        for member in walk_members(source, [pattern], depth=depth):
            talks.switch(member.conversation)
            if member.conversation != told and member.conversation in late:
                yield talks.add([_prompt(late[member.conversation])])
            told = member.conversation
            if member.pattern is None and member.key == "system":
                if member.conversation not in late:
                    yield talks.add([_prompt(member.value)])
            elif member.pattern is None:
                yield talks.add([Setting(name=f"{NAME}.{member.key}", value=member.value)])
            elif not isinstance(member.value, Mapping):
                yield talks.keep_unreadable(member, "no JSON object.")
            elif payloads := _said(member.value):
                yield talks.add(payloads, messages=1)
            else:
                yield talks.add([CustomEntry(name=f"{NAME}.message", data=member.value)])


def _late_prompts(source: RecordingSource, pattern: PathPattern, depth: int) -> dict[JsonPath, Json]:
    """System prompts that stand behind the messages that they come before, which costs a pass of their own."""
    late: dict[JsonPath, Json] = {}
    if pattern != ("messages", None):
        return late
    seen: JsonPath | None = None
    with suppress(TranscriptFormatError):  # the pass that reads the messages says where
        for member in walk_members(source, [pattern], depth=depth):
            if member.pattern is not None:
                seen = member.conversation
            elif member.key == "system" and member.conversation == seen:
                late[member.conversation] = member.value
    return late


def _prompt(value: Json) -> EntryPayload:
    return MessageEntry(message=Message(role="system", content=tuple(read_anthropic_content(value).parts)))


def _said(record: JsonObject) -> list[EntryPayload]:
    role = record.get("role")
    if role not in ("user", "assistant", "system"):
        return []
    blocks = read_anthropic_content(record.get("content"))
    payloads: list[EntryPayload] = [MessageEntry(message=result) for result in blocks.results]
    if blocks.parts or blocks.calls or not payloads:
        reason = as_text(record.get("stop_reason"))
        message = Message(
            role="assistant" if role == "assistant" else "system" if role == "system" else "user",
            content=tuple(blocks.parts),
            tool_calls=tuple(blocks.calls) if role == "assistant" else (),
        )
        usage = usage_from_anthropic(as_object(record.get("usage")))
        payloads.append(
            MessageEntry(message=message, usage=usage, model=as_text(record.get("model")), finish=FINISH_REASONS.get(reason or "", reason))
        )
    payloads.extend(Observation(name="tool_error", data={"call": call}) for call in blocks.failed)
    if left := omit_fields(record, KNOWN):
        payloads.append(CustomEntry(name=f"{NAME}.fields", data=left))
    return payloads
