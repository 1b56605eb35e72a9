"""Formats whose files are JSON texts with chat messages, or with steps and events between them.

* OpenAI's chat messages and Anthropic's: a list of messages, a request with such a list, a list of
  requests, or one of these per line.
* tau-bench's results: a list of tasks, each with its conversation; or one task, or one task per line.
* SWE-agent's trajectories, with the agent's steps as custom entries, and those of mini-swe-agent: chat
  messages with the agent's notes, alone or together with its settings.
* OpenHands' files: the log of one request to a model with its reply, or the events of a session. A
  completion log contains the conversation as it was sent. Its reply becomes an observation and no
  message, because the next log of the session contains it as a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import attrs

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
    read_anthropic_content,
    read_chat_message,
    usage_from_anthropic,
    usage_from_openai,
)
from promptkit.messages import ImagePart, Json, Message, OpaquePart, Part, ToolCall
from promptkit.providers.anthropic.api import FINISHES
from promptkit.transcript import CustomEntry, EntryPayload, MessageEntry, Observation

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


ANTHROPIC_FIELDS = {"role", "content", "model", "stop_reason", "usage"}
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

    name = ANTHROPIC

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
        return writer.add_record(member, _read_anthropic_message(member.record))


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


def _read_anthropic_message(record: JsonObject) -> list[EntryPayload]:
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
    return [*payloads, *keep_fields(ANTHROPIC, omit_fields(record, ANTHROPIC_FIELDS))]


class TauBenchFormat(JsonFormat):
    """Read tau-bench's results. Each task is a conversation."""

    name = "tau_bench"

    def matches(self, head: FileHead) -> bool:
        """Return whether the file contains objects with a trajectory of messages."""
        return bool({"item.traj.item.role", "traj.item.role"} & head.json_paths)

    def find_members(self, source: RecordingSource) -> Iterator[JsonMember]:
        """Yield the values of a file, messages one by one."""
        listed = "item.traj.item.role" in read_head(source).json_paths
        return walk_members(
            source, [(None, "traj", None) if listed else ("traj", None)], depth=int(listed)
        )

    def keep(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Keep a value in a custom entry. The task's id is the conversation's title."""
        if member.key == "task_id":
            writer.title = f"task {member.value}"
        return super().keep(writer, member)


SWE_AGENT = "swe_agent"
HISTORY, STEPS = ("history", None), ("trajectory", None)
"""The paths of the messages and of the agent's steps."""


class SweAgentFormat(JsonFormat):
    """Read SWE-agent's trajectories."""

    name = SWE_AGENT
    patterns: Sequence[PathPattern] = (HISTORY, STEPS)

    def matches(self, head: FileHead) -> bool:
        """Return whether the file contains a history and a trajectory, or steps with an action and an observation."""
        return {"history.item.role", "trajectory"} <= head.json_paths or {
            "trajectory.item.action",
            "trajectory.item.observation",
        } <= head.json_paths

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a file, message by message; of a file without a history, step by step."""
        if "history.item" not in read_head(source).json_paths and not any(
            member.pattern == HISTORY for member in walk_members(source, [HISTORY])
        ):
            self.patterns = (STEPS,)
        return super().read(source)

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Read a message, or a step.

        A step that repeats messages of the history becomes a custom entry.
        """
        if HISTORY in self.patterns:
            return (
                writer.add([CustomEntry(name=f"{SWE_AGENT}.step", data=member.value)])
                if member.pattern == STEPS
                else super().read_record(writer, member)
            )
        said = [*_read_step(member.record)]
        extra = keep_fields(SWE_AGENT, omit_fields(member.record, {"response", "observation"}))
        return writer.add([*said, *extra], messages=len(said))


def _read_step(step: JsonObject) -> Iterator[EntryPayload]:
    """Read a step as two messages: the action and the observation."""
    if response := as_text(step.get("response")) or as_text(step.get("action")):
        yield MessageEntry(message=Message(role="assistant", content=(response,)))
    if observation := as_text(step.get("observation")):
        yield MessageEntry(message=Message(role="user", content=(observation,)))


MINI_SWE_AGENT = "mini_swe_agent"
RESPONSES = "responses"


class MiniSweAgentFormat(JsonFormat):
    """Read mini-swe-agent's trajectories."""

    name = MINI_SWE_AGENT
    patterns = ((None,), ("messages", None))

    def matches(self, head: FileHead) -> bool:
        """Return whether the file names the format, has an agent's settings with messages, or has the suffix `.traj.json`."""
        return (
            any(fact.startswith("trajectory_format=mini-swe-agent") for fact in head.json_paths)
            or (
                "messages.item.role" in head.json_paths
                and bool({"info.config", "info.mini_version", "info.exit_status"} & head.json_paths)
            )
            or (
                head.name.endswith(".traj.json")
                and bool({"item.role", "messages.item.role"} & head.json_paths)
            )
        )

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Read a message, or an item of OpenAI's Responses API."""
        record = member.record
        payloads = _read_responses_item(record)
        return writer.add(
            payloads or _read_mini_message(record),
            messages=int(bool(payloads) or isinstance(record.get("role"), str)),
            time=parse_time(as_object(record.get("extra")).get("timestamp")),
        )


def _read_mini_message(record: JsonObject) -> list[EntryPayload]:
    """Read a message.

    The agent's exit, the last message, is one of the user, as it was before the agent had a role
    for it.
    """
    response = as_object(as_object(record.get("extra")).get("response"))
    choices = as_objects(response.get("choices"))
    if record.get("role") == "exit":
        message, *_ = read_chat_message(
            {"role": "user", "content": record.get("content")}, MINI_SWE_AGENT
        )
        return [
            message,
            CustomEntry(name=f"{MINI_SWE_AGENT}.exit", data=omit_fields(record, {"content"})),
        ]
    return read_chat_message(
        record,
        MINI_SWE_AGENT,
        usage=usage_from_openai(response.get("usage")),
        model=as_text(response.get("model")),
        finish=as_text(choices[0].get("finish_reason")) if choices else None,
    ) or [
        CustomEntry(
            name=f"{MINI_SWE_AGENT}.{as_text(record.get('role')) or 'message'}", data=record
        )
    ]


def _read_responses_item(record: JsonObject) -> list[EntryPayload]:
    """Read a reply of several items or the output of a call, as OpenAI's Responses API has them.

    Empty for any other record.
    """
    match record:
        case {"type": "function_call_output", "output": str(text), "call_id": str(call)}:
            return [
                MessageEntry(
                    message=Message(role="tool", tool_call_id=call, content=(text,) if text else ())
                ),
                *keep_fields(MINI_SWE_AGENT, omit_fields(record, {"type", "output", "call_id"})),
            ]
        case {"object": "response", "output": list()} if (
            record.get("type") != "function_call_output"
        ):
            return [
                MessageEntry(
                    message=_read_reply(as_objects(record.get("output"))),
                    usage=usage_from_openai(record.get("usage")),
                    model=as_text(record.get("model")),
                ),
                *keep_fields(MINI_SWE_AGENT, omit_fields(record, {"object", "output", "model"})),
            ]
        case _:
            return []


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
                content += map(_read_response_block, as_objects(item.get("content")))
            case _:
                content.append(OpaquePart(value=item, provider=RESPONSES))
    return Message(role="assistant", content=tuple(content), tool_calls=tuple(calls))


def _read_response_block(block: JsonObject) -> Part:
    text = as_text(block.get("text")) if block.get("type") == "output_text" else None
    return OpaquePart(value=block, provider=RESPONSES) if text is None else text


OPENHANDS = "openhands"
MESSAGES, EVENT = ("messages", None), (None,)
"""The paths of the messages of a completion log, and of events."""

EVENTS = {
    "item.action",
    "item.observation",
    "history.item.action",
    "history.item.observation",
    "history.item.item.action",
}
SOURCES = {"item.source", "history.item.source", "history.item.item.source"}
INTERNAL_ACTIONS = {"null", "change_agent_state", "recall", "condensation", "condensation_request"}
"""Actions that are no tool calls of the model."""


class OpenHandsFormat(JsonFormat):
    """Read OpenHands' completion logs and event lists."""

    name = OPENHANDS

    def matches(self, head: FileHead) -> bool:
        """Return whether the file has messages, a response and the request's arguments, or events with an action or an observation."""
        return (
            {"messages.item.role", "response"} <= head.json_paths
            and bool({"kwargs", "args", "cost"} & head.json_paths)
        ) or (
            bool(EVENTS & head.json_paths)
            and bool(SOURCES & head.json_paths)
            and "trajectory" not in head.json_paths
        )

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
            return writer.add([Observation(name=f"{OPENHANDS}.response", data=data)])
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
        case {"observation": kind} if call_id := _find_answered_call(event):
            text = as_text(event.get("content")) or ""
            result = Message(role="tool", tool_call_id=call_id, content=(text,) if text else ())
            payload = MessageEntry(message=mark_error(result, failed=kind == "error"))
        case {"observation": "error", "content": str(text)} if text:
            # the model is told of it as by the user
            payload = MessageEntry(message=Message(role="user", content=(text,)))
        case _:
            name = as_text(event.get("action")) or as_text(event.get("observation")) or "event"
            return [CustomEntry(name=f"{OPENHANDS}.{name}", data=event)]
    return [
        payload,
        *keep_fields(OPENHANDS, omit_fields(event, {"timestamp", "content", "source"})),
    ]


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


def _find_answered_call(event: JsonObject) -> str | None:
    """Return the id of the tool call that an observation answers; None for an observation without a call."""
    call_id = as_text(as_object(event.get("tool_call_metadata")).get("tool_call_id"))
    cause = as_count(event.get("cause"))
    is_internal = event.get("observation") in (*INTERNAL_ACTIONS, "agent_state_changed")
    return call_id if call_id is not None or is_internal or cause is None else f"event-{cause}"
