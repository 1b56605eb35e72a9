"""mini-swe-agent's trajectories: chat messages with what the agent notes beside them, in a file of their own or in one with settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import Message, OpaquePart, Part, ToolCall
from promptkit.recordings.reading.conversations import ConversationWriter, walk_members
from promptkit.recordings.reading.json_values import as_object, as_objects, omit_fields, parse_time, as_text, usage_from_openai
from promptkit.recordings.reading.messages import read_chat_message
from promptkit.transcript.entries import CustomEntry, MessageEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.codec import Batch, FileHead
    from promptkit.recordings.reading.json_values import JsonObject
    from promptkit.recordings.reading.source import RecordingSource
    from promptkit.transcript.entries import EntryPayload

__all__ = ["MiniSweAgentFormat"]

NAME = "mini_swe_agent"
PROVIDER = "responses"


class MiniSweAgentFormat:
    """Reads mini-swe-agent's trajectories."""

    name = NAME
    about = "mini-swe-agent trajectory JSON"

    def detects(self, head: FileHead) -> bool:
        """The name of the format, the settings of an agent beside messages, or the ending of the file's name."""
        named = any(fact.startswith("trajectory_format=mini-swe-agent") for fact in head.json_paths)
        settings = "messages.item.role" in head.json_paths and bool({"info.config", "info.mini_version", "info.exit_status"} & head.json_paths)
        listed = head.name.endswith(".traj.json") and bool({"item.role", "messages.item.role"} & head.json_paths)
        return named or settings or listed

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        talks = ConversationWriter(NAME)
        for member in walk_members(source, [(None,), ("messages", None)]):
            talks.switch(member.conversation)
            if member.pattern is None:
                yield talks.keep(member)
            elif isinstance(member.value, Mapping):
                time = parse_time(as_object(member.value.get("extra")).get("timestamp"))
                said = _of_responses(member.value)
                is_said = bool(said) or isinstance(member.value.get("role"), str)
                yield talks.add(said or _said(member.value), messages=int(is_said), time=time)
            else:
                yield talks.keep_unreadable(member, "no JSON object.")


def _said(record: JsonObject) -> list[EntryPayload]:
    """A message. How the agent ended is one in the recording, but nothing that a model is shown."""
    response = as_object(as_object(record.get("extra")).get("response"))
    choices = as_objects(response.get("choices"))
    finish = as_text(choices[0].get("finish_reason")) if choices else None
    said = read_chat_message(record, NAME, usage=usage_from_openai(response.get("usage")), model=as_text(response.get("model")), finish=finish)
    return said or [CustomEntry(name=f"{NAME}.{as_text(record.get('role')) or 'message'}", data=record)]


def _of_responses(record: JsonObject) -> list[EntryPayload]:
    """A message as OpenAI's responses interface has it: an answer of several items, or the output of a call. None for any other."""
    if record.get("type") == "function_call_output":
        text, call = as_text(record.get("output")), as_text(record.get("call_id"))
        if text is None or call is None:
            return []
        said: list[EntryPayload] = [MessageEntry(message=Message(role="tool", tool_call_id=call, content=(text,) if text else ()))]
        left = omit_fields(record, {"type", "output", "call_id"})
    elif record.get("object") == "response" and isinstance(record.get("output"), list):
        said = [
            MessageEntry(
                message=_answer(as_objects(record.get("output"))), usage=usage_from_openai(record.get("usage")), model=as_text(record.get("model"))
            )
        ]
        left = omit_fields(record, {"object", "output", "model"})
    else:
        return []
    return [*said, CustomEntry(name=f"{NAME}.fields", data=left)] if left else said


def _answer(items: list[JsonObject]) -> Message:
    content: list[Part] = []
    calls: list[ToolCall] = []
    for item in items:
        match item:
            case {"type": "function_call", "call_id": str(call), "name": str(name), "arguments": str(arguments)}:
                calls.append(ToolCall(id=call, name=name, arguments=arguments))
            case {"type": "message", "content": list()}:
                for block in as_objects(item.get("content")):
                    text = as_text(block.get("text")) if block.get("type") == "output_text" else None
                    content.append(OpaquePart(value=block, provider=PROVIDER) if text is None else text)
            case _:
                content.append(OpaquePart(value=item, provider=PROVIDER))
    return Message(role="assistant", content=tuple(content), tool_calls=tuple(calls))
