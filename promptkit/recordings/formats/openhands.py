"""OpenHands' files: the log of one request to a model with its reply, or the events of a session.

A completion log holds the conversation as it was sent. The reply to it is in the next log of the session as a message; here it is kept
beside the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import ImagePart, Message, Part, ToolCall
from promptkit.recordings.reading.conversations import ConversationWriter, walk_members
from promptkit.recordings.reading.json_values import (
    dump_json,
    as_count,
    as_object,
    as_objects,
    omit_fields,
    parse_time,
    as_text,
    usage_from_openai,
    as_list,
)
from promptkit.recordings.reading.messages import read_chat_message
from promptkit.transcript.entries import CustomEntry, MessageEntry, Observation, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json
    from promptkit.recordings.reading.codec import Batch, FileHead
    from promptkit.recordings.reading.json_values import JsonObject
    from promptkit.recordings.reading.source import RecordingSource
    from promptkit.transcript.entries import EntryPayload

__all__ = ["OpenHandsFormat"]

NAME = "openhands"
EVENTS = ("item.action", "item.observation", "history.item.action", "history.item.observation", "history.item.item.action")
SILENT = {"null", "change_agent_state", "recall", "condensation", "condensation_request"}
"""Actions that no model asked for."""


class OpenHandsFormat:
    """Reads OpenHands' completion logs and event lists."""

    name = NAME
    about = "OpenHands completion log or events JSON"

    def detects(self, head: FileHead) -> bool:
        """Messages beside a response and the arguments of the request; or events with an action or what was observed."""
        logged = "messages.item.role" in head.json_paths and "response" in head.json_paths and bool({"kwargs", "args", "cost"} & head.json_paths)
        acted = any(fact in head.json_paths for fact in EVENTS) and "trajectory" not in head.json_paths
        sourced = {"item.source", "history.item.source", "history.item.item.source"} & head.json_paths
        return logged or (acted and bool(sourced))

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        talks = ConversationWriter(NAME)
        for member in walk_members(source, [("messages", None), (None,), ("history", None)]):
            talks.switch(member.conversation)
            if member.pattern == ("messages", None) and isinstance(member.value, Mapping):
                said = read_chat_message(member.value, NAME)
                yield talks.add(said or [CustomEntry(name=f"{NAME}.message", data=member.value)], messages=int(bool(said)))
            elif member.pattern is None:
                yield _beside(talks, member.key, member.value)
            elif isinstance(member.value, Mapping | list):
                # In older files an action and what was observed stand together, as a list.
                for event in as_objects(member.value if isinstance(member.value, list) else [member.value]):
                    said = _event(event)
                    is_said = any(isinstance(payload, MessageEntry) for payload in said)
                    yield talks.add(said, messages=int(is_said), time=parse_time(event.get("timestamp")))
            else:
                yield talks.keep_unreadable(member, "no JSON object.")


def _beside(talks: ConversationWriter, key: str, value: Json) -> Batch:
    if key == "response":
        response = as_object(value)
        usage = usage_from_openai(response.get("usage"))
        data: dict[str, Json] = {"response": value}
        if usage:
            data["usage"] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "cached_tokens": usage.cached_tokens}
        return talks.add([Observation(name=f"{NAME}.response", data=data)])
    if key in ("kwargs", "args"):
        return talks.add([Setting(name=f"{NAME}.{key}", value=value)])
    return talks.add([CustomEntry(name=f"{NAME}.{key}", data=value)])


def _event(event: JsonObject) -> list[EntryPayload]:
    """What an event says: to the model, by it, or beside the conversation."""
    action, args = as_text(event.get("action")), as_object(event.get("args"))
    said: list[EntryPayload] = []
    if action == "system" and (text := as_text(args.get("content"))):
        said = [MessageEntry(message=Message(role="system", content=(text,)))]
    elif action == "message":
        text = as_text(args.get("content")) or as_text(event.get("message")) or ""
        images = [ImagePart(url=url) for url in as_list(args.get("image_urls")) if isinstance(url, str)]
        content: tuple[Part, ...] = (*([text] if text else []), *images)
        said = [MessageEntry(message=Message(role="assistant" if event.get("source") == "agent" else "user", content=content))]
    elif action is not None and action not in SILENT and event.get("source") == "agent":
        said = [_action(event, action, args)]
    elif "observation" in event and (call := _answered(event)):
        text = as_text(event.get("content")) or ""
        said = [MessageEntry(message=Message(role="tool", tool_call_id=call, content=(text,) if text else ()))]
    if not said:
        return [CustomEntry(name=f"{NAME}.{action or as_text(event.get('observation')) or 'event'}", data=event)]
    left = omit_fields(event, {"timestamp", "content", "source"})
    return [*said, CustomEntry(name=f"{NAME}.fields", data=left)] if left else said


def _action(event: JsonObject, action: str, args: JsonObject) -> EntryPayload:
    """A call of the model. Without what its interface said, the event's number names it."""
    about = as_object(event.get("tool_call_metadata"))
    response = as_object(about.get("model_response"))
    call, arguments = as_text(about.get("tool_call_id")), None
    for choice in as_objects(response.get("choices")):
        for made in as_objects(as_object(choice.get("message")).get("tool_calls")):
            if call is not None and made.get("id") == call:
                arguments = as_text(as_object(made.get("function")).get("arguments"))
    thought = as_text(args.get("thought"))
    message = Message(
        role="assistant",
        content=(thought,) if thought else (),
        tool_calls=(
            ToolCall(
                id=call or f"event-{as_count(event.get('id'))}",
                name=as_text(about.get("function_name")) or action,
                arguments=arguments or dump_json(omit_fields(args, {"thought"})),
            ),
        ),
    )
    return MessageEntry(message=message, usage=usage_from_openai(response.get("usage")), model=as_text(response.get("model")))


def _answered(event: JsonObject) -> str | None:
    """The call that was observed; None for what happened by itself."""
    call = as_text(as_object(event.get("tool_call_metadata")).get("tool_call_id"))
    cause = as_count(event.get("cause"))
    if call is not None or event.get("observation") in (*SILENT, "agent_state_changed"):
        return call
    return None if cause is None else f"event-{cause}"
