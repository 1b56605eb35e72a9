"""Anthropic messages as JSON: a request with its system prompt, a list of messages, or one of these a line."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from promptkit.errors import TranscriptFormatError
from promptkit.messages import Message
from promptkit.recordings.formats.claude_code import FINISHES, usage_of_answer
from promptkit.recordings.formats.openai_chat import layout_of
from promptkit.recordings.reading.codec import head_of
from promptkit.recordings.reading.conversations import ConversationWriter, walk
from promptkit.recordings.reading.json_values import object_of, rest, text_of
from promptkit.recordings.reading.messages import ANTHROPIC, read_blocks
from promptkit.transcript.entries import Custom, MessageEntry, Observation, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json
    from promptkit.recordings.reading.codec import Batch, Head
    from promptkit.recordings.reading.conversations import Pattern
    from promptkit.recordings.reading.json_stream import Path
    from promptkit.recordings.reading.json_values import Record
    from promptkit.recordings.reading.source import Source
    from promptkit.transcript.entries import Payload

__all__ = ["Anthropic"]

NAME = ANTHROPIC
KNOWN = {"role", "content", "model", "stop_reason", "usage"}
BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document")
PLACES = ("content.item.type", "item.content.item.type", "messages.item.content.item.type", "item.messages.item.content.item.type")
OF_OPENAI = {"system", "developer", "tool", "function"}


class Anthropic:
    """Reads Anthropic messages."""

    name = NAME
    about = "Anthropic messages JSON"

    def detects(self, head: Head) -> bool:
        """Messages in which blocks have Anthropic's types, or that have a system prompt beside them; and none of OpenAI's roles."""
        if layout_of(head) is None or any(fact.rpartition("role=")[2] in OF_OPENAI for fact in head.facts if "role=" in fact):
            return False
        blocks = any(f"{place}={kind}" in head.facts for place in PLACES for kind in BLOCKS)
        return blocks or bool({"system", "system.item.text", "item.system"} & head.facts)

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        pattern, depth = layout_of(head_of(source)) or ((None,), 0)
        late = _late_prompts(source, pattern, depth)
        talks = ConversationWriter(NAME)
        told: Path | None = None
        for member in walk(source, [pattern], depth=depth):
            talks.turn(member.talk)
            if member.talk != told and member.talk in late:
                yield talks.add([_prompt(late[member.talk])])
            told = member.talk
            if member.pattern is None and member.key == "system":
                if member.talk not in late:
                    yield talks.add([_prompt(member.value)])
            elif member.pattern is None:
                yield talks.add([Setting(name=f"{NAME}.{member.key}", value=member.value)])
            elif not isinstance(member.value, Mapping):
                yield talks.unread(member, "no JSON object.")
            elif payloads := _said(member.value):
                yield talks.add(payloads, messages=1)
            else:
                yield talks.add([Custom(name=f"{NAME}.message", data=member.value)])


def _late_prompts(source: Source, pattern: Pattern, depth: int) -> dict[Path, Json]:
    """System prompts that stand behind the messages that they come before, which costs a pass of their own."""
    late: dict[Path, Json] = {}
    if pattern != ("messages", None):
        return late
    seen: Path | None = None
    with suppress(TranscriptFormatError):  # the pass that reads the messages says where
        for member in walk(source, [pattern], depth=depth):
            if member.pattern is not None:
                seen = member.talk
            elif member.key == "system" and member.talk == seen:
                late[member.talk] = member.value
    return late


def _prompt(value: Json) -> Payload:
    return MessageEntry(message=Message(role="system", content=tuple(read_blocks(value).parts)))


def _said(record: Record) -> list[Payload]:
    role = record.get("role")
    if role not in ("user", "assistant", "system"):
        return []
    blocks = read_blocks(record.get("content"))
    payloads: list[Payload] = [MessageEntry(message=result) for result in blocks.results]
    if blocks.parts or blocks.calls or not payloads:
        reason = text_of(record.get("stop_reason"))
        message = Message(
            role="assistant" if role == "assistant" else "system" if role == "system" else "user",
            content=tuple(blocks.parts),
            tool_calls=tuple(blocks.calls) if role == "assistant" else (),
        )
        usage = usage_of_answer(object_of(record.get("usage")))
        payloads.append(
            MessageEntry(message=message, usage=usage, model=text_of(record.get("model")), finish=FINISHES.get(reason or "", reason))
        )
    payloads.extend(Observation(name="tool_error", data={"call": call}) for call in blocks.failed)
    if left := rest(record, KNOWN):
        payloads.append(Custom(name=f"{NAME}.fields", data=left))
    return payloads
