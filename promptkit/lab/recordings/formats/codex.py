"""Codex CLI's rollout files: a line for each item of the conversation, for each event, and for each compaction.

Messages are in these files twice, as items and as events. Items are read, events become custom
entries. The items of one answer (reasoning, text, calls) are one message here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from promptkit.lab.recordings.reading.files import FileHead, LineFormat
from promptkit.lab.recordings.reading.values import (
    JsonObject,
    as_blocks,
    as_object,
    as_objects,
    as_text,
    dump_arguments,
    dump_json,
    mark_error,
    omit_fields,
    parse_time,
    usage_from_openai,
)
from promptkit.messages import ImagePart, Json, Message, OpaquePart, Part, Role, ToolCall, Usage
from promptkit.transcript import (
    Checkpoint,
    CustomEntry,
    EntryPayload,
    MessageEntry,
    Setting,
)

NAME = "codex"
PROVIDER = "responses"
LINE_TYPES = {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
CALL_TYPES = {"function_call", "custom_tool_call", "local_shell_call"}
OUTPUT_TYPES = {
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "mcp_tool_call_output",
}
ROLES: Mapping[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}

MAX_USER_CHARACTERS = 80_000
"""Characters of the latest user messages that a compaction of older versions keeps with its
summary: 20,000 tokens of four characters."""


def _is_item(record: JsonObject) -> bool:
    kind = as_text(record.get("type"))
    return "payload" not in record and (
        (kind in CALL_TYPES | OUTPUT_TYPES and "call_id" in record)
        or (kind == "message" and "role" in record)
    )


@attrs.define
class _HeldAnswer:
    """An answer of the model, as far as it was read, and the entries after it."""

    time: float | None
    parts: list[Part] = attrs.field(factory=list[Part])
    calls: list[ToolCall] = attrs.field(factory=list[ToolCall])
    usage: Usage | None = None
    followers: list[EntryPayload] = attrs.field(factory=list["EntryPayload"])


class CodexFormat(LineFormat):
    """Read Codex CLI's rollout files."""

    name = NAME

    def __init__(self) -> None:
        super().__init__()
        self._answer: _HeldAnswer | None = None
        self._model: str | None = None
        self._has_begun = False
        self._time: float | None = None
        self._user_texts: list[str] = []  # the latest user messages, as many as a compaction keeps

    def matches(self, head: FileHead) -> bool:
        """Return whether lines have a known type and a payload, or, in old files, are items themselves."""
        return any(
            (
                as_text(record.get("type")) in LINE_TYPES
                and isinstance(record.get("payload"), Mapping)
            )
            or _is_item(record)
            or "record_type" in record
            for record in head.records
        )

    def read_record(self, record: JsonObject, size: int) -> None:
        """Read a line. An earlier answer that was held may be complete then."""
        self.batch.conversations += not self._has_begun
        self._has_begun = True
        self._time = parse_time(record.get("timestamp")) or self._time
        has_payload = isinstance(record.get("payload"), Mapping)
        payload = as_object(record.get("payload"))
        match record.get("type") if has_payload else None:
            case "response_item":
                self._read_item(payload)
            case "compacted":
                self._read_compaction(payload)
            case "session_meta" | "turn_context" as kind:
                self._model = as_text(payload.get("model")) or self._model
                self._write(Setting(name=f"{NAME}.{kind}", value=dict(payload)))
            case "event_msg":
                if payload.get("type") == "token_count" and self._answer:
                    self._answer.usage = (
                        usage_from_openai(as_object(payload.get("info")).get("last_token_usage"))
                        or self._answer.usage
                    )
                name = as_text(payload.get("type")) or "unknown"
                self.keep(CustomEntry(name=f"{NAME}.event_msg.{name}", data=payload))
            case _ if not has_payload and (_is_item(record) or record.get("type") == "reasoning"):
                self._read_item(record)
            case _ if not has_payload and "instructions" in record and "type" not in record:
                self._write(Setting(name=f"{NAME}.session_meta", value=dict(record)))
            case _:
                name = as_text(record.get("type")) or "unknown"
                self.keep(CustomEntry(name=f"{NAME}.{name}", data=record))

    def _read_item(self, item: JsonObject) -> None:
        """Read an item of the conversation."""
        kind = as_text(item.get("type")) or "unknown"
        role = ROLES.get(as_text(item.get("role")) or "")
        if kind == "message" and role == "assistant":
            self._hold_answer().parts.extend(_read_parts(item.get("content")))
        elif kind == "message" and role:
            message = Message(role=role, content=tuple(_read_parts(item.get("content"))))
            self._write(MessageEntry(message=message))
            self.batch.messages += 1
            if role == "user" and message.text:
                self._add_user_text(message.text)
        elif kind in CALL_TYPES:
            self._hold_answer().calls.append(_read_call(item))
        elif kind in OUTPUT_TYPES:
            self._write(MessageEntry(message=_read_result(item)))
            self.batch.messages += 1
        elif kind in {"reasoning", "compaction", "compaction_summary"} or kind.endswith("_call"):
            self._hold_answer().parts.append(OpaquePart(value=item, provider=PROVIDER))
        else:
            self.keep(CustomEntry(name=f"{NAME}.{kind}", data=item))

    def _read_compaction(self, payload: JsonObject) -> None:
        text = as_text(payload.get("message")) or ""
        history = payload.get("replacement_history")
        replacement = (
            tuple(map(_read_history_item, as_objects(history)))
            if isinstance(history, list)
            else tuple(
                Message(role="user", content=(each,)) for each in (*self._user_texts, text) if each
            )
        )
        self._write(
            Checkpoint(
                summary=text,
                replacement=replacement,
                trigger="unknown",
                model=self._model,
                facts=omit_fields(payload, {"message", "replacement_history"}),
            )
        )
        self.batch.messages += bool(text)

    def _add_user_text(self, text: str) -> None:
        self._user_texts.append(text[:MAX_USER_CHARACTERS])
        while sum(map(len, self._user_texts)) > MAX_USER_CHARACTERS:
            del self._user_texts[0]

    def _hold_answer(self) -> _HeldAnswer:
        if self._answer is None:
            self._answer = _HeldAnswer(time=self._time)
            self.batch.messages += 1
        return self._answer

    def keep(self, payload: EntryPayload) -> None:
        """Add a payload that does not end an answer. It is written after the answer."""
        if self._answer:
            self._answer.followers.append(payload)
        else:
            self.batch.entries += self.chain.add(payload, time=self._time)

    def _write(self, payload: EntryPayload) -> None:
        self.finish()
        self.batch.entries += self.chain.add(payload, time=self._time)

    def finish(self) -> None:
        """Write the answer that is held."""
        answer, self._answer = self._answer, None
        if answer:
            reply = MessageEntry(
                message=Message(
                    role="assistant", content=tuple(answer.parts), tool_calls=tuple(answer.calls)
                ),
                usage=answer.usage,
                model=self._model,
                finish="tool_calls" if answer.calls else None,
            )
            self.batch.entries += self.chain.add(reply, time=answer.time)
            self.batch.entries += self.chain.add(*answer.followers)


def _read_call(item: JsonObject) -> ToolCall:
    kind, call_id = item.get("type"), as_text(item.get("call_id")) or as_text(item.get("id")) or ""
    match kind:
        case "local_shell_call":
            return ToolCall(
                id=call_id, name="local_shell", arguments=dump_json(item.get("action") or {})
            )
        case "custom_tool_call":
            return ToolCall(
                id=call_id,
                name=as_text(item.get("name")) or "",
                arguments=dump_json({"input": item.get("input")}),
            )
        case _:
            return ToolCall(
                id=call_id,
                name=as_text(item.get("name")) or "",
                arguments=dump_arguments(item.get("arguments")),
            )


def _read_result(item: JsonObject) -> Message:
    output = item.get("output")
    return mark_error(
        Message(
            role="tool",
            tool_call_id=as_text(item.get("call_id")) or "",
            content=_read_output(output),
        ),
        failed=as_object(output).get("success") is False,
    )


def _read_output(output: Json) -> tuple[Part, ...]:
    """Read the output of a tool: a text, items of content, or in older files an object that contains one of them."""
    match output:
        case {"content": str() | list() as content}:
            return tuple(_read_parts(content))
        case str() | list() | None:
            return tuple(_read_parts(output))
        case _:
            return (dump_json(output),)


def _read_history_item(item: JsonObject) -> Message:
    """Read an item of the history that replaces the messages before a compaction."""
    kind, role = as_text(item.get("type")) or "unknown", ROLES.get(as_text(item.get("role")) or "")
    if role and kind in {"message", "unknown"}:
        return Message(role=role, content=tuple(_read_parts(item.get("content"))))
    return (
        Message(role="assistant", tool_calls=(_read_call(item),))
        if kind in CALL_TYPES
        else _read_result(item)
        if kind in OUTPUT_TYPES
        else Message(role="assistant", content=(OpaquePart(value=item, provider=PROVIDER),))
    )


def _read_parts(content: Json) -> Iterator[Part]:
    for block in as_blocks(content):
        match block:
            case None | "" | {"text": ""}:
                continue
            case str(text) | {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                yield text
            case {"type": "input_image", "image_url": str(url)}:
                yield ImagePart(url=url, detail=as_text(as_object(block).get("detail")))
            case _:
                yield OpaquePart(value=block, provider=PROVIDER)
