"""OpenAI's chat messages and Anthropic's as JSON: a list of messages, a request with such a list, a list of requests, or one of these per line; and tau-bench's results, whose tasks have such lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from promptkit.errors import TranscriptFormatError
from promptkit.lab.recordings.reading.files import (
    Batch,
    ConversationWriter,
    FileHead,
    JsonFormat,
    JsonMember,
    JsonPath,
    PathPattern,
    RecordingSource,
    read_head,
    walk_members,
)
from promptkit.lab.recordings.reading.values import (
    ANTHROPIC,
    JsonObject,
    as_object,
    as_text,
    keep_fields,
    omit_fields,
    read_anthropic_content,
    usage_from_anthropic,
)
from promptkit.messages import Message
from promptkit.providers.anthropic.api import FINISHES
from promptkit.transcript import EntryPayload, MessageEntry

LAYOUTS: Mapping[str, tuple[PathPattern, int]] = {
    "item.role": ((None,), 0),
    "messages.item.role": (("messages", None), 0),
    "item.messages.item.role": ((None, "messages", None), 1),
    "item.item.role": ((None, None), 1),
    "role": ((), -1),
}
"""For each JSON path of a role the path of the messages and the depth at which conversations
begin."""


def find_layout(head: FileHead) -> tuple[PathPattern, int] | None:
    """Find the path of the messages in a file and the depth at which conversations begin; None if there are no messages."""
    return next((layout for fact, layout in LAYOUTS.items() if fact in head.json_paths), None)


class OpenAIChatFormat(JsonFormat):
    """Read OpenAI chat messages."""

    name = "openai_chat"

    def matches(self, head: FileHead) -> bool:
        """Return whether the file contains objects with a role at one of the paths of `LAYOUTS`."""
        return find_layout(head) is not None

    def find_members(self, source: RecordingSource) -> Iterator[JsonMember]:
        """Yield the values of a file, messages one by one."""
        pattern, depth = find_layout(read_head(source)) or ((None,), 0)
        return walk_members(source, [pattern], depth=depth)

    def keep(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Keep a value next to the messages as a setting."""
        return writer.keep_setting(member)


NAME = ANTHROPIC
MESSAGE_FIELDS = {"role", "content", "model", "stop_reason", "usage"}
BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document")
BLOCK_PATHS = (
    "content.item.type",
    "item.content.item.type",
    "messages.item.content.item.type",
    "item.messages.item.content.item.type",
)
OPENAI_ROLES = {"system", "developer", "tool", "function"}


class AnthropicFormat(JsonFormat):
    """Read Anthropic messages."""

    name = NAME

    def matches(self, head: FileHead) -> bool:
        """Return whether messages have Anthropic's blocks or a separate system prompt, and none of OpenAI's roles."""
        return (
            find_layout(head) is not None
            and not any(
                path.rpartition("role=")[2] in OPENAI_ROLES
                for path in head.json_paths
                if "role=" in path
            )
            and (
                any(f"{path}={kind}" in head.json_paths for path in BLOCK_PATHS for kind in BLOCKS)
                or bool({"system", "system.item.text", "item.system"} & head.json_paths)
            )
        )

    def find_members(self, source: RecordingSource) -> Iterator[JsonMember]:
        """Yield the values of a file, messages one by one, and a system prompt before its messages."""
        pattern, depth = find_layout(read_head(source)) or ((None,), 0)
        late = _find_late_prompts(source, pattern, depth)
        previous: JsonPath | None = None
        for member in walk_members(source, [pattern], depth=depth):
            prompt = late.get(member.conversation)
            if prompt is not None and member.conversation != previous:
                yield prompt
            previous = member.conversation
            if prompt is None or not _is_prompt(member):
                yield member

    def keep(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Keep a value next to the messages: the system prompt as a message, others as settings."""
        if not _is_prompt(member):
            return writer.keep_setting(member)
        prompt = Message(role="system", content=tuple(read_anthropic_content(member.value).parts))
        return writer.add([MessageEntry(message=prompt)], messages=0)

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Read a message."""
        return writer.add_record(member, _read_message(member.record))


def _is_prompt(member: JsonMember) -> bool:
    return member.pattern is None and member.key == "system"


def _find_late_prompts(
    source: RecordingSource, pattern: PathPattern, depth: int
) -> dict[JsonPath, JsonMember]:
    """Find the system prompts that are after their messages in the file.

    This reads the file one more time.
    """
    late: dict[JsonPath, JsonMember] = {}
    if pattern != ("messages", None):
        return late
    seen: JsonPath | None = None
    with suppress(TranscriptFormatError):  # reading the messages will report it
        for member in walk_members(source, [pattern], depth=depth):
            if member.pattern is not None:
                seen = member.conversation
            elif member.key == "system" and member.conversation == seen:
                late[member.conversation] = member
    return late


def _read_message(record: JsonObject) -> list[EntryPayload]:
    role = record.get("role")
    if role not in ("user", "assistant", "system"):
        return []
    blocks = read_anthropic_content(record.get("content"))
    payloads: list[EntryPayload] = [MessageEntry(message=result) for result in blocks.results]
    if blocks.parts or blocks.calls or not payloads:
        reason = as_text(record.get("stop_reason"))
        payloads.append(
            MessageEntry(
                message=Message(
                    role="assistant"
                    if role == "assistant"
                    else "system"
                    if role == "system"
                    else "user",
                    content=tuple(blocks.parts),
                    tool_calls=tuple(blocks.calls) if role == "assistant" else (),
                ),
                usage=usage_from_anthropic(as_object(record.get("usage"))),
                model=as_text(record.get("model")),
                finish=FINISHES.get(reason or "", reason),
            )
        )
    return [*payloads, *keep_fields(NAME, omit_fields(record, MESSAGE_FIELDS))]


class TauBenchFormat(JsonFormat):
    """Read tau-bench's results. Each task is a conversation."""

    name = "tau_bench"

    def matches(self, head: FileHead) -> bool:
        """Return whether the file contains objects with a trajectory of messages."""
        return bool({"item.traj.item.role", "traj.item.role"} & head.json_paths)

    def find_members(self, source: RecordingSource) -> Iterator[JsonMember]:
        """Yield the values of a file, messages one by one."""
        listed = "item.traj.item.role" in read_head(source).json_paths
        pattern = (None, "traj", None) if listed else ("traj", None)
        return walk_members(source, [pattern], depth=int(listed))

    def keep(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Keep a value in a custom entry. The task's id is the conversation's title."""
        if member.key == "task_id":
            writer.title = f"task {member.value}"
        return super().keep(writer, member)
