"""mini-swe-agent's trajectories: chat messages with what the agent notes beside them, in a file of their own or in one with settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import Message, OpaquePart, Part, ToolCall
from promptkit.recordings.reading.conversations import ConversationWriter, walk
from promptkit.recordings.reading.json_values import object_of, objects_of, rest, seconds, text_of, usage_of
from promptkit.recordings.reading.messages import read_chat
from promptkit.transcript.entries import Custom, MessageEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.codec import Batch, Head
    from promptkit.recordings.reading.json_values import Record
    from promptkit.recordings.reading.source import Source
    from promptkit.transcript.entries import Payload

__all__ = ["MiniSweAgent"]

NAME = "mini_swe_agent"
PROVIDER = "responses"


class MiniSweAgent:
    """Reads mini-swe-agent's trajectories."""

    name = NAME
    about = "mini-swe-agent trajectory JSON"

    def detects(self, head: Head) -> bool:
        """The name of the format, the settings of an agent beside messages, or the ending of the file's name."""
        named = any(fact.startswith("trajectory_format=mini-swe-agent") for fact in head.facts)
        settings = "messages.item.role" in head.facts and bool({"info.config", "info.mini_version", "info.exit_status"} & head.facts)
        listed = head.name.endswith(".traj.json") and bool({"item.role", "messages.item.role"} & head.facts)
        return named or settings or listed

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        talks = ConversationWriter(NAME)
        for member in walk(source, [(None,), ("messages", None)]):
            talks.turn(member.talk)
            if member.pattern is None:
                yield talks.beside(member)
            elif isinstance(member.value, Mapping):
                time = seconds(object_of(member.value.get("extra")).get("timestamp"))
                said = _of_responses(member.value)
                is_said = bool(said) or isinstance(member.value.get("role"), str)
                yield talks.add(said or _said(member.value), messages=int(is_said), time=time)
            else:
                yield talks.unread(member, "no JSON object.")


def _said(record: Record) -> list[Payload]:
    """A message. How the agent ended is one in the recording, but nothing that a model is shown."""
    response = object_of(object_of(record.get("extra")).get("response"))
    choices = objects_of(response.get("choices"))
    finish = text_of(choices[0].get("finish_reason")) if choices else None
    said = read_chat(record, NAME, usage=usage_of(response.get("usage")), model=text_of(response.get("model")), finish=finish)
    return said or [Custom(name=f"{NAME}.{text_of(record.get('role')) or 'message'}", data=record)]


def _of_responses(record: Record) -> list[Payload]:
    """A message as OpenAI's responses interface has it: an answer of several items, or the output of a call. None for any other."""
    if record.get("type") == "function_call_output":
        text, call = text_of(record.get("output")), text_of(record.get("call_id"))
        if text is None or call is None:
            return []
        said: list[Payload] = [MessageEntry(message=Message(role="tool", tool_call_id=call, content=(text,) if text else ()))]
        left = rest(record, {"type", "output", "call_id"})
    elif record.get("object") == "response" and isinstance(record.get("output"), list):
        said = [
            MessageEntry(
                message=_answer(objects_of(record.get("output"))), usage=usage_of(record.get("usage")), model=text_of(record.get("model"))
            )
        ]
        left = rest(record, {"object", "output", "model"})
    else:
        return []
    return [*said, Custom(name=f"{NAME}.fields", data=left)] if left else said


def _answer(items: list[Record]) -> Message:
    content: list[Part] = []
    calls: list[ToolCall] = []
    for item in items:
        match item:
            case {"type": "function_call", "call_id": str(call), "name": str(name), "arguments": str(arguments)}:
                calls.append(ToolCall(id=call, name=name, arguments=arguments))
            case {"type": "message", "content": list()}:
                for block in objects_of(item.get("content")):
                    text = text_of(block.get("text")) if block.get("type") == "output_text" else None
                    content.append(OpaquePart(value=block, provider=PROVIDER) if text is None else text)
            case _:
                content.append(OpaquePart(value=item, provider=PROVIDER))
    return Message(role="assistant", content=tuple(content), tool_calls=tuple(calls))
