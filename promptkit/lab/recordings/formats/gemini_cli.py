"""Gemini CLI's session files and checkpoints.

A session holds the tool calls of an answer together with their results. Older sessions are one JSON
object. Newer ones have a line for each message, written again when the message grows, and lines
that take messages back. Checkpoints hold Google's contents: turns of parts, in which calls and
results may have no ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from promptkit.lab.recordings.reading.files import (
    Batch,
    ConversationWriter,
    FileHead,
    JsonFormat,
    JsonMember,
    LineFormat,
    PathPattern,
    RecordingSource,
    read_head,
)
from promptkit.lab.recordings.reading.values import (
    JsonObject,
    as_blocks,
    as_count,
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
from promptkit.messages import ImagePart, Json, Message, OpaquePart, Part, ToolCall
from promptkit.transcript import CustomEntry, EntryPayload, MessageEntry, Setting

NAME = "gemini_cli"
MESSAGE_FIELDS = {"id", "timestamp", "type", "content"}
CALL_FIELDS = {"id", "name", "args", "result"}
MESSAGE_TYPES = ("user", "gemini")
"""The types of messages that the model is shown."""


class GeminiCliFormat:
    """Read Gemini CLI's session files and checkpoints."""

    name = NAME

    def matches(self, head: FileHead) -> bool:
        """Return whether the file is a session whose messages have a type instead of a role, or a checkpoint."""
        return (
            _has_lines(head)
            or _find_turns(head) is not None
            or (
                "sessionId" in head.json_paths
                and bool({"messages.item.type=user", "messages.item.type=gemini"} & head.json_paths)
                and "messages.item.role" not in head.json_paths
            )
        )

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a file, message by message."""
        head = read_head(source)
        return (
            _LineFormat()
            if _has_lines(head)
            else _TurnFormat(pattern)
            if (pattern := _find_turns(head))
            else _SessionFormat()
        ).read(source)


def _has_lines(head: FileHead) -> bool:
    """Return whether the file has a line for each message."""
    return any(
        isinstance(record.get("sessionId"), str) and "projectHash" in record
        for record in head.records[:1]
    ) and any(
        _is_message(record) or "$set" in record or "$rewindTo" in record
        for record in head.records[1:]
    )


def _is_message(record: JsonObject) -> bool:
    return isinstance(record.get("id"), str) and isinstance(record.get("type"), str)


def _find_turns(head: FileHead) -> PathPattern | None:
    """Return the path of a checkpoint's turns: the file is a list of Google's contents, or has one as `history`.

    None: no checkpoint.
    """
    patterns: dict[str, PathPattern] = {"item": (None,), "history.item": ("history", None)}
    return next(
        (
            pattern
            for path, pattern in patterns.items()
            if {f"{path}.parts", f"{path}.role"} <= head.json_paths
        ),
        None,
    )


class _SessionFormat(JsonFormat):
    """Read a session that is one JSON object."""

    name = NAME
    patterns: Sequence[PathPattern] = (("messages", None),)

    def keep(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        return writer.keep_setting(member)

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        return writer.add(
            _read_message(member.record),
            time=parse_time(member.record.get("timestamp")),
            entry_id=as_text(member.record.get("id")),
        )


class _LineFormat(LineFormat):
    """Read a session that is a file of lines.

    The latest messages are held, because they may be written again until the next turn begins.
    """

    name = NAME

    def __init__(self) -> None:
        super().__init__()
        # for each id of a message the entry that it follows
        self._parents: dict[str, str | None] = {}
        self._held: dict[str, JsonObject] = {}
        self._has_begun = False

    def read_record(self, record: JsonObject, size: int) -> None:
        """Read a message, or a line about the session."""
        if _is_message(record):
            self._hold(record)
        else:
            self._read_session_line(record)

    def keep(self, payload: EntryPayload) -> None:
        """Add a payload after the messages that are held."""
        self.finish()
        super().keep(payload)

    def _hold(self, record: JsonObject) -> None:
        """Hold a message. Earlier messages may be complete now."""
        message_id = str(record["id"])
        if message_id in self._parents:
            super().keep(CustomEntry(name=f"{NAME}.update", data=record))
            return
        if message_id not in self._held and record.get("type") in MESSAGE_TYPES:
            self.finish()
        self._held[message_id] = record

    def _read_session_line(self, record: JsonObject) -> None:
        """Read a line about the session, or one that takes back a message and all after it.

        The line itself is kept as well.
        """
        patch, target = as_object(record.get("$set")), record.get("$rewindTo")
        if not isinstance(target, str) and "messages" not in patch:
            name = f"{NAME}.{'set' if '$set' in record else 'session'}"
            super().keep(Setting(name=name, value=record))
            return
        self.keep(CustomEntry(name=f"{NAME}.{'set' if patch else 'rewind'}", data=record))
        if isinstance(target, str):
            self.chain.tail = self._parents.get(target)
        for message in as_objects(patch.get("messages")):
            if _is_message(message) and message["id"] not in self._parents:
                self._hold(message)

    def finish(self) -> None:
        """Add the messages that are held."""
        for message_id, record in self._held.items():
            self._parents.setdefault(message_id, self.chain.tail)
            payloads = _read_message(record)
            is_message = any(isinstance(payload, MessageEntry) for payload in payloads)
            self.batch.entries += self.chain.add(
                *payloads, time=parse_time(record.get("timestamp")), entry_id=message_id
            )
            self.batch.messages += is_message
            self.batch.conversations += is_message and not self._has_begun
            self._has_begun |= is_message
        self._held = {}


def _read_message(record: JsonObject) -> list[EntryPayload]:
    """Read a message and the results of its tool calls.

    What the program showed the user only becomes a custom entry.
    """
    extra = omit_fields(record, MESSAGE_FIELDS)
    match record.get("type"):
        case "user":
            payloads: list[EntryPayload] = [
                MessageEntry(
                    message=Message(role="user", content=tuple(_read_parts(record.get("content"))))
                )
            ]
        case "gemini":
            calls = as_objects(record.get("toolCalls"))
            payloads = [_read_answer(record, calls)]
            payloads += [
                MessageEntry(message=result) for call in calls if (result := _read_result(call))
            ]
            extra_by_call = {
                as_text(call.get("id")) or "": fields
                for call in calls
                if (fields := omit_fields(call, CALL_FIELDS))
            }
            extra = {
                **omit_fields(extra, {"toolCalls", "thoughts", "model"}),
                **({"calls": extra_by_call} if extra_by_call else {}),
            }
        case kind:
            return [
                CustomEntry(
                    name=f"{NAME}.{kind if isinstance(kind, str) else 'message'}", data=record
                )
            ]
    return [*payloads, *keep_fields(NAME, extra)]


def _read_answer(record: JsonObject, calls: list[JsonObject]) -> EntryPayload:
    tokens = as_object(record.get("tokens"))
    return MessageEntry(
        message=Message(
            role="assistant",
            content=(
                *(
                    OpaquePart(value={"type": "thought", **thought}, provider=NAME)
                    for thought in as_objects(record.get("thoughts"))
                ),
                *_read_parts(record.get("content")),
            ),
            tool_calls=tuple(
                ToolCall(
                    id=as_text(call.get("id")) or "",
                    name=as_text(call.get("name")) or "",
                    arguments=dump_json(call.get("args") or {}),
                )
                for call in calls
            ),
        ),
        usage=usage_from_openai(
            {
                "input_tokens": tokens.get("input"),
                "output_tokens": sum(
                    as_count(tokens.get(name)) or 0 for name in ("output", "thoughts")
                ),
                "cached_input_tokens": tokens.get("cached"),
            }
        ),
        model=as_text(record.get("model")),
    )


def _read_result(call: JsonObject) -> Message | None:
    """Read the result of a tool call; None if there is none yet."""
    result = call.get("result")
    if result in (None, []):
        return None
    return mark_error(
        Message(
            role="tool",
            tool_call_id=as_text(call.get("id")) or "",
            name=as_text(call.get("name")),
            content=tuple(part for each in as_blocks(result) for part in _read_result_parts(each)),
        ),
        failed=call.get("status") == "error",
    )


class _TurnFormat(_SessionFormat):
    """Read a checkpoint, and give calls without ids one that their results get as well."""

    def __init__(self, pattern: PathPattern) -> None:
        self.patterns = (pattern,)
        self._calls = 0
        self._open_calls: dict[str, list[str]] = {}  # names of tools → ids of calls, oldest first

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        return writer.add_record(member, self._read_turn(member.record))

    def _read_turn(self, turn: JsonObject) -> list[EntryPayload]:
        """Read the messages of a turn: tool results first. Empty for what is not a turn."""
        role, parts = turn.get("role"), turn.get("parts")
        if role not in ("user", "model") or not isinstance(parts, list):
            return []
        payloads: list[EntryPayload] = []
        calls: list[ToolCall] = []
        content: list[Part] = []
        for part in parts:
            match part:
                case {"functionCall": Mapping() as call} if role == "model":
                    calls.append(self._read_call(as_object(call)))
                case {"functionResponse": Mapping() as response}:
                    payloads.append(
                        MessageEntry(message=self._read_result(as_object(response), part))
                    )
                case _:
                    content += _read_parts(part)
        if content or calls or not payloads:
            payloads.append(
                MessageEntry(
                    message=Message(
                        role="user" if role == "user" else "assistant",
                        content=tuple(content),
                        tool_calls=tuple(calls),
                    )
                )
            )
        return [*payloads, *keep_fields(NAME, omit_fields(turn, {"role", "parts"}))]

    def _read_call(self, call: JsonObject) -> ToolCall:
        self._calls += 1
        name, call_id = as_text(call.get("name")) or "", as_text(call.get("id"))
        if not call_id:
            call_id = f"call-{self._calls}"
            self._open_calls.setdefault(name, []).append(call_id)
        return ToolCall(id=call_id, name=name, arguments=dump_json(call.get("args") or {}))

    def _read_result(self, response: JsonObject, part: Json) -> Message:
        name, call_id = as_text(response.get("name")), as_text(response.get("id"))
        open_calls = self._open_calls.get(name or "")
        if not call_id:
            call_id = open_calls.pop(0) if open_calls else ""
        return mark_error(
            Message(
                role="tool",
                tool_call_id=call_id,
                name=name,
                content=tuple(_read_result_parts(part)),
            ),
            failed=set(as_object(response.get("response"))) == {"error"},
        )


def _read_result_parts(part: Json) -> list[Part]:
    """Read the content of a tool result: a part with a `functionResponse`, or any other part."""
    response = as_object(as_object(as_object(part).get("functionResponse")).get("response"))
    if not response:
        return [*_read_parts(part)]
    text = as_text(next(iter(response.values()))) if len(response) == 1 else None
    # one text is `output`, or `error`
    return [dump_json(response)] if text is None else [text] if text else []


def _read_parts(content: Json) -> Iterator[Part]:
    """Read content: a text, or Google's parts."""
    for part in as_blocks(content):
        match part:
            case None | "" | {"text": ""}:
                continue
            case str(text):
                yield text
            case {"text": str(text)} if as_object(part).get("thought") is not True:
                yield text
            case {"inlineData": {"mimeType": str(kind), "data": str(data)}} if kind.startswith(
                "image/"
            ):
                yield ImagePart(url=f"data:{kind};base64,{data}", media_type=kind)
            case {"thought": True}:
                yield OpaquePart(value={"type": "thought", **as_object(part)}, provider=NAME)
            case _:
                yield OpaquePart(value=part, provider=NAME)
