"""OpenHands' files: the log of one request to a model with its reply, or the events of a session.

A completion log holds the conversation as it was sent. The reply to it is in the next log of the session as a message; here it is kept
beside the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import ImagePart, Message, Part, ToolCall
from promptkit.recordings.reading.conversations import ConversationWriter, walk
from promptkit.recordings.reading.json_values import (
    json_text,
    number_of,
    object_of,
    objects_of,
    rest,
    seconds,
    text_of,
    usage_of,
    values_of,
)
from promptkit.recordings.reading.messages import read_chat
from promptkit.transcript.entries import Custom, MessageEntry, Observation, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json
    from promptkit.recordings.reading.codec import Batch, Head
    from promptkit.recordings.reading.json_values import Record
    from promptkit.recordings.reading.source import Source
    from promptkit.transcript.entries import Payload

__all__ = ["OpenHands"]

NAME = "openhands"
EVENTS = ("item.action", "item.observation", "history.item.action", "history.item.observation", "history.item.item.action")
SILENT = {"null", "change_agent_state", "recall", "condensation", "condensation_request"}
"""Actions that no model asked for."""


class OpenHands:
    """Reads OpenHands' completion logs and event lists."""

    name = NAME
    about = "OpenHands completion log or events JSON"

    def detects(self, head: Head) -> bool:
        """Messages beside a response and the arguments of the request; or events with an action or what was observed."""
        logged = "messages.item.role" in head.facts and "response" in head.facts and bool({"kwargs", "args", "cost"} & head.facts)
        acted = any(fact in head.facts for fact in EVENTS) and "trajectory" not in head.facts
        sourced = {"item.source", "history.item.source", "history.item.item.source"} & head.facts
        return logged or (acted and bool(sourced))

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        talks = ConversationWriter(NAME)
        for member in walk(source, [("messages", None), (None,), ("history", None)]):
            talks.turn(member.talk)
            if member.pattern == ("messages", None) and isinstance(member.value, Mapping):
                said = read_chat(member.value, NAME)
                yield talks.add(said or [Custom(name=f"{NAME}.message", data=member.value)], messages=int(bool(said)))
            elif member.pattern is None:
                yield _beside(talks, member.key, member.value)
            elif isinstance(member.value, Mapping | list):
                # In older files an action and what was observed stand together, as a list.
                for event in objects_of(member.value if isinstance(member.value, list) else [member.value]):
                    said = _event(event)
                    is_said = any(isinstance(payload, MessageEntry) for payload in said)
                    yield talks.add(said, messages=int(is_said), time=seconds(event.get("timestamp")))
            else:
                yield talks.unread(member, "no JSON object.")


def _beside(talks: ConversationWriter, key: str, value: Json) -> Batch:
    if key == "response":
        response = object_of(value)
        usage = usage_of(response.get("usage"))
        data: dict[str, Json] = {"response": value}
        if usage:
            data["usage"] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "cached_tokens": usage.cached_tokens}
        return talks.add([Observation(name=f"{NAME}.response", data=data)])
    if key in ("kwargs", "args"):
        return talks.add([Setting(name=f"{NAME}.{key}", value=value)])
    return talks.add([Custom(name=f"{NAME}.{key}", data=value)])


def _event(event: Record) -> list[Payload]:
    """What an event says: to the model, by it, or beside the conversation."""
    action, args = text_of(event.get("action")), object_of(event.get("args"))
    said: list[Payload] = []
    if action == "system" and (text := text_of(args.get("content"))):
        said = [MessageEntry(message=Message(role="system", content=(text,)))]
    elif action == "message":
        text = text_of(args.get("content")) or text_of(event.get("message")) or ""
        images = [ImagePart(url=url) for url in values_of(args.get("image_urls")) if isinstance(url, str)]
        content: tuple[Part, ...] = (*([text] if text else []), *images)
        said = [MessageEntry(message=Message(role="assistant" if event.get("source") == "agent" else "user", content=content))]
    elif action is not None and action not in SILENT and event.get("source") == "agent":
        said = [_action(event, action, args)]
    elif "observation" in event and (call := _answered(event)):
        text = text_of(event.get("content")) or ""
        said = [MessageEntry(message=Message(role="tool", tool_call_id=call, content=(text,) if text else ()))]
    if not said:
        return [Custom(name=f"{NAME}.{action or text_of(event.get('observation')) or 'event'}", data=event)]
    left = rest(event, {"timestamp", "content", "source"})
    return [*said, Custom(name=f"{NAME}.fields", data=left)] if left else said


def _action(event: Record, action: str, args: Record) -> Payload:
    """A call of the model. Without what its interface said, the event's number names it."""
    about = object_of(event.get("tool_call_metadata"))
    response = object_of(about.get("model_response"))
    call, arguments = text_of(about.get("tool_call_id")), None
    for choice in objects_of(response.get("choices")):
        for made in objects_of(object_of(choice.get("message")).get("tool_calls")):
            if call is not None and made.get("id") == call:
                arguments = text_of(object_of(made.get("function")).get("arguments"))
    thought = text_of(args.get("thought"))
    message = Message(
        role="assistant",
        content=(thought,) if thought else (),
        tool_calls=(
            ToolCall(
                id=call or f"event-{number_of(event.get('id'))}",
                name=text_of(about.get("function_name")) or action,
                arguments=arguments or json_text(rest(args, {"thought"})),
            ),
        ),
    )
    return MessageEntry(message=message, usage=usage_of(response.get("usage")), model=text_of(response.get("model")))


def _answered(event: Record) -> str | None:
    """The call that was observed; None for what happened by itself."""
    call = text_of(object_of(event.get("tool_call_metadata")).get("tool_call_id"))
    cause = number_of(event.get("cause"))
    if call is not None or event.get("observation") in (*SILENT, "agent_state_changed"):
        return call
    return None if cause is None else f"event-{cause}"
