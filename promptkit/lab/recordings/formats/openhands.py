"""OpenHands' files: the log of one request to a model with its reply, or the events of a session.

A completion log contains the conversation as it was sent. Its reply becomes an observation and no
message, because the next log of the session contains it as a message.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from promptkit.lab.recordings.reading.files import (
    Batch,
    ConversationWriter,
    FileHead,
    JsonFormat,
    JsonMember,
    RecordingSource,
    walk_members,
)
from promptkit.lab.recordings.reading.values import (
    JsonObject,
    as_count,
    as_list,
    as_object,
    as_objects,
    as_text,
    dump_json,
    keep_fields,
    mark_error,
    omit_fields,
    parse_time,
    usage_from_openai,
)
from promptkit.messages import ImagePart, Json, Message, ToolCall
from promptkit.transcript import CustomEntry, EntryPayload, MessageEntry, Observation

NAME = "openhands"
MESSAGES, EVENT = ("messages", None), (None,)
"""The paths of the messages of a completion log, and of events."""

EVENTS = (
    "item.action",
    "item.observation",
    "history.item.action",
    "history.item.observation",
    "history.item.item.action",
)
SOURCES = {"item.source", "history.item.source", "history.item.item.source"}
INTERNAL_ACTIONS = {"null", "change_agent_state", "recall", "condensation", "condensation_request"}
"""Actions that are no tool calls of the model."""


class OpenHandsFormat(JsonFormat):
    """Read OpenHands' completion logs and event lists."""

    name = NAME

    def matches(self, head: FileHead) -> bool:
        """Return whether the file has messages, a response and the request's arguments, or events with an action or an observation."""
        logged = (
            "messages.item.role" in head.json_paths
            and "response" in head.json_paths
            and bool({"kwargs", "args", "cost"} & head.json_paths)
        )
        acted = (
            any(fact in head.json_paths for fact in EVENTS) and "trajectory" not in head.json_paths
        )
        return logged or (acted and bool(SOURCES & head.json_paths))

    def find_members(self, source: RecordingSource) -> Iterator[JsonMember]:
        """Yield the values of a file, messages and events one by one."""
        for member in walk_members(source, [MESSAGES, EVENT, ("history", None)]):
            if member.pattern is not None and isinstance(member.value, list):
                # In older files an action and its observation are one list.
                for event in as_objects(member.value):
                    yield attrs.evolve(member, value=event, pattern=EVENT)
            else:
                yield member

    def keep(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Keep a field of a completion log: the reply as an observation, the request's as settings."""
        if member.key == "response":
            data: dict[str, Json] = {"response": member.value}
            if usage := usage_from_openai(member.record.get("usage")):
                data["usage"] = {
                    "input_tokens": usage.input_tokens,
                    "output_tokens": usage.output_tokens,
                    "cached_tokens": usage.cached_tokens,
                }
            return writer.add([Observation(name=f"{NAME}.response", data=data)])
        return (
            writer.keep_setting(member) if member.key in ("kwargs", "args") else writer.keep(member)
        )

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Read a message of a completion log, or an event."""
        return (
            super().read_record(writer, member)
            if member.pattern == MESSAGES
            else writer.add(
                _read_event(member.record), time=parse_time(member.record.get("timestamp"))
            )
        )


def _read_event(event: JsonObject) -> list[EntryPayload]:
    """Read an event: a message, a tool call, a tool result, or a custom entry."""
    args = as_object(event.get("args"))
    match event:
        case {"action": "system", "args": {"content": str(text)}} if text:
            payload: EntryPayload = MessageEntry(message=Message(role="system", content=(text,)))
        case {"action": "message"}:
            text = as_text(args.get("content")) or as_text(event.get("message")) or ""
            payload = MessageEntry(
                message=Message(
                    role="assistant" if event.get("source") == "agent" else "user",
                    content=(
                        *([text] if text else []),
                        *(
                            ImagePart(url=url)
                            for url in as_list(args.get("image_urls"))
                            if isinstance(url, str)
                        ),
                    ),
                )
            )
        case {"action": str(action), "source": "agent"} if action not in INTERNAL_ACTIONS:
            payload = _read_action(event, action, args)
        case {"observation": kind} if call_id := _find_tool_call_id(event):
            text = as_text(event.get("content")) or ""
            result = Message(role="tool", tool_call_id=call_id, content=(text,) if text else ())
            payload = MessageEntry(message=mark_error(result, failed=kind == "error"))
        case {"observation": "error", "content": str(text)} if text:
            # the model is told of it as by the user
            payload = MessageEntry(message=Message(role="user", content=(text,)))
        case _:
            name = as_text(event.get("action")) or as_text(event.get("observation")) or "event"
            return [CustomEntry(name=f"{NAME}.{name}", data=event)]
    return [payload, *keep_fields(NAME, omit_fields(event, {"timestamp", "content", "source"}))]


def _read_action(event: JsonObject, action: str, args: JsonObject) -> EntryPayload:
    """Read a tool call.

    If the event does not have the call's id, the id is made of the event's number.
    """
    metadata = as_object(event.get("tool_call_metadata"))
    response = as_object(metadata.get("model_response"))
    call_id = as_text(metadata.get("tool_call_id"))
    arguments = [
        as_text(as_object(call.get("function")).get("arguments"))
        for choice in as_objects(response.get("choices"))
        for call in as_objects(as_object(choice.get("message")).get("tool_calls"))
        if call_id is not None and call.get("id") == call_id
    ]
    thought = as_text(args.get("thought"))
    return MessageEntry(
        message=Message(
            role="assistant",
            content=(thought,) if thought else (),
            tool_calls=(
                ToolCall(
                    id=call_id or f"event-{as_count(event.get('id'))}",
                    name=as_text(metadata.get("function_name")) or action,
                    arguments=next(filter(None, arguments), None)
                    or dump_json(omit_fields(args, {"thought"})),
                ),
            ),
        ),
        usage=usage_from_openai(response.get("usage")),
        model=as_text(response.get("model")),
    )


def _find_tool_call_id(event: JsonObject) -> str | None:
    """Return the id of the tool call that an observation answers; None for an observation without a call."""
    call_id = as_text(as_object(event.get("tool_call_metadata")).get("tool_call_id"))
    cause = as_count(event.get("cause"))
    is_internal = event.get("observation") in (*INTERNAL_ACTIONS, "agent_state_changed")
    return call_id if call_id is not None or is_internal or cause is None else f"event-{cause}"
