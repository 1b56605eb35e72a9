"""SWE-agent's trajectories, with the agent's steps as custom entries, and those of mini-swe-agent: chat messages with the agent's notes, alone or together with its settings."""

from __future__ import annotations

from collections.abc import Iterator

from promptkit.lab.recordings.reading.files import (
    Batch,
    ConversationWriter,
    FileHead,
    JsonFormat,
    JsonMember,
    RecordingSource,
    read_head,
    walk_members,
)
from promptkit.lab.recordings.reading.values import (
    JsonObject,
    as_object,
    as_objects,
    as_text,
    keep_fields,
    omit_fields,
    parse_time,
    read_chat_message,
    usage_from_openai,
)
from promptkit.messages import Message, OpaquePart, Part, ToolCall
from promptkit.transcript import CustomEntry, EntryPayload, MessageEntry

NAME = "swe_agent"
HISTORY, STEPS = ("history", None), ("trajectory", None)
"""The paths of the messages and of the agent's steps."""


class SweAgentFormat(JsonFormat):
    """Read SWE-agent's trajectories."""

    name = NAME
    patterns = (HISTORY, STEPS)

    def matches(self, head: FileHead) -> bool:
        """Return whether the file contains a history and a trajectory, or steps with an action and an observation."""
        return {"history.item.role", "trajectory"} <= head.json_paths or {
            "trajectory.item.action",
            "trajectory.item.observation",
        } <= head.json_paths

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a file, message by message; of a file without a history, step by step."""
        has_history = "history.item" in read_head(source).json_paths or any(
            member.pattern == HISTORY for member in walk_members(source, [HISTORY])
        )
        return super().read(source) if has_history else _StepFormat().read(source)

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Read a message. A step, which repeats messages of the history, becomes a custom entry."""
        return (
            writer.add([CustomEntry(name=f"{NAME}.step", data=member.value)])
            if member.pattern == STEPS
            else super().read_record(writer, member)
        )


class _StepFormat(JsonFormat):
    """Read trajectories that have no history."""

    name = NAME
    patterns = (STEPS,)

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        said = [*_read_step(member.record)]
        extra = keep_fields(NAME, omit_fields(member.record, {"response", "observation"}))
        return writer.add([*said, *extra], messages=len(said))


def _read_step(step: JsonObject) -> Iterator[EntryPayload]:
    """Read a step as two messages: the action and the observation."""
    if response := as_text(step.get("response")) or as_text(step.get("action")):
        yield MessageEntry(message=Message(role="assistant", content=(response,)))
    if observation := as_text(step.get("observation")):
        yield MessageEntry(message=Message(role="user", content=(observation,)))


MINI = "mini_swe_agent"
PROVIDER = "responses"


class MiniSweAgentFormat(JsonFormat):
    """Read mini-swe-agent's trajectories."""

    name = MINI
    patterns = ((None,), ("messages", None))

    def matches(self, head: FileHead) -> bool:
        """Return whether the file names the format, has an agent's settings with messages, or has the suffix `.traj.json`."""
        named = any(fact.startswith("trajectory_format=mini-swe-agent") for fact in head.json_paths)
        settings = "messages.item.role" in head.json_paths and bool(
            {"info.config", "info.mini_version", "info.exit_status"} & head.json_paths
        )
        listed = head.name.endswith(".traj.json") and bool(
            {"item.role", "messages.item.role"} & head.json_paths
        )
        return named or settings or listed

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Read a message, or an item of OpenAI's Responses API."""
        record = member.record
        time = parse_time(as_object(record.get("extra")).get("timestamp"))
        payloads = _read_responses_item(record)
        messages = int(bool(payloads) or isinstance(record.get("role"), str))
        return writer.add(payloads or _read_message(record), messages=messages, time=time)


def _read_message(record: JsonObject) -> list[EntryPayload]:
    """Read a message.

    The agent's exit, the last message, is one of the user, as it was before the agent had a role
    for it.
    """
    response = as_object(as_object(record.get("extra")).get("response"))
    choices = as_objects(response.get("choices"))
    finish = as_text(choices[0].get("finish_reason")) if choices else None
    if record.get("role") == "exit":
        message, *_ = read_chat_message({"role": "user", "content": record.get("content")}, MINI)
        return [message, CustomEntry(name=f"{MINI}.exit", data=omit_fields(record, {"content"}))]
    return read_chat_message(
        record,
        MINI,
        usage=usage_from_openai(response.get("usage")),
        model=as_text(response.get("model")),
        finish=finish,
    ) or [CustomEntry(name=f"{MINI}.{as_text(record.get('role')) or 'message'}", data=record)]


def _read_responses_item(record: JsonObject) -> list[EntryPayload]:
    """Read a reply of several items or the output of a call, as OpenAI's Responses API has them.

    Empty for any other record.
    """
    if record.get("type") == "function_call_output":
        text, call = as_text(record.get("output")), as_text(record.get("call_id"))
        if text is None or call is None:
            return []
        payloads: list[EntryPayload] = [
            MessageEntry(
                message=Message(role="tool", tool_call_id=call, content=(text,) if text else ())
            )
        ]
        extra = omit_fields(record, {"type", "output", "call_id"})
    elif record.get("object") == "response" and isinstance(record.get("output"), list):
        payloads = [
            MessageEntry(
                message=_read_reply(as_objects(record.get("output"))),
                usage=usage_from_openai(record.get("usage")),
                model=as_text(record.get("model")),
            )
        ]
        extra = omit_fields(record, {"object", "output", "model"})
    else:
        return []
    return [*payloads, *keep_fields(MINI, extra)]


def _read_reply(items: list[JsonObject]) -> Message:
    content: list[Part] = []
    calls: list[ToolCall] = []
    for item in items:
        match item:
            case {
                "type": "function_call",
                "call_id": str(call),
                "name": str(name),
                "arguments": str(arguments),
            }:
                calls.append(ToolCall(id=call, name=name, arguments=arguments))
            case {"type": "message", "content": list()}:
                content += map(_read_block, as_objects(item.get("content")))
            case _:
                content.append(OpaquePart(value=item, provider=PROVIDER))
    return Message(role="assistant", content=tuple(content), tool_calls=tuple(calls))


def _read_block(block: JsonObject) -> Part:
    text = as_text(block.get("text")) if block.get("type") == "output_text" else None
    return OpaquePart(value=block, provider=PROVIDER) if text is None else text
