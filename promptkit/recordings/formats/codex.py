"""Codex CLI's rollout files: a line for each item of the conversation, for each event around it, and for each compaction.

What was said is there twice, as items and as events: items are read, events are kept. The items of one answer (reasoning, text, calls)
are one message here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from promptkit.messages import ImagePart, Message, OpaquePart, Part, Role, ToolCall, Usage
from promptkit.recordings.reading.codec import Batch
from promptkit.recordings.reading.conversations import EntryChain, IdAllocator
from promptkit.recordings.reading.json_values import (
    keep_bad_line,
    dump_json,
    as_object,
    as_objects,
    parse_object,
    omit_fields,
    parse_time,
    as_text,
    usage_from_openai,
    as_list,
)
from promptkit.transcript.entries import Checkpoint, CustomEntry, Entry, MessageEntry, Setting
from promptkit.transcript.store import ReadProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json
    from promptkit.recordings.reading.codec import FileHead
    from promptkit.recordings.reading.json_values import JsonObject
    from promptkit.recordings.reading.source import RecordingSource
    from promptkit.transcript.entries import EntryPayload

__all__ = ["CodexFormat"]

NAME = "codex"
PROVIDER = "responses"
LINES = {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
CALLS = {"function_call", "custom_tool_call", "local_shell_call"}
OUTPUTS = {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "mcp_tool_call_output"}
ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}

MAX_USER_CHARACTERS = 80_000
"""Of the user's own messages that a compaction of older versions keeps beside its summary: the latest, 20,000 tokens of four characters."""


class CodexFormat:
    """Reads Codex CLI's rollout files."""

    name = NAME
    about = "Codex CLI rollout JSONL"

    def detects(self, head: FileHead) -> bool:
        """Lines of its types with a payload; in old files, the items themselves."""
        return any(
            (as_text(record.get("type")) in LINES and isinstance(record.get("payload"), Mapping))
            or _is_item(record)
            or "record_type" in record
            for record in head.records
        )

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a file, line by line."""
        reading = _Reading()
        for number, line in source.lines():
            yield reading.line(number, line)
        yield reading.take()


def _is_item(record: JsonObject) -> bool:
    kind = as_text(record.get("type"))
    return "payload" not in record and ((kind in CALLS | OUTPUTS and "call_id" in record) or (kind == "message" and "role" in record))


@attrs.define
class _Answer:
    """An answer of the model, as far as it was read, and what came between its items."""

    time: float | None
    parts: list[Part] = attrs.field(factory=list[Part])
    calls: list[ToolCall] = attrs.field(factory=list[ToolCall])
    usage: Usage | None = None
    behind: list[EntryPayload] = attrs.field(factory=list["Payload"])


class _Reading:
    """One pass through a file."""

    def __init__(self) -> None:
        self._chain = EntryChain(IdAllocator())
        self._answer: _Answer | None = None
        self._entries: list[Entry] = []
        self._messages = 0
        self._model: str | None = None
        self._begun = False
        self._time: float | None = None
        self._asked: list[str] = []  # by the user, as much as a compaction may keep

    def line(self, number: int, line: bytes) -> Batch:
        """What a line comes to. It may be nothing yet, or an answer that was held back before it."""
        record = parse_object(line)
        if isinstance(record, str):
            self._keep(keep_bad_line(NAME, number, line, record))
            return attrs.evolve(self._batch(), skipped=(ReadProblem(line=number, detail=record),))
        begins, self._begun = not self._begun, True
        self._time = parse_time(record.get("timestamp")) or self._time
        payload = record.get("payload")
        if isinstance(payload, Mapping):
            self._typed(record, payload)
        elif _is_item(record) or record.get("type") == "reasoning":
            self._item(record)
        elif "instructions" in record and "type" not in record:
            self._write(Setting(name=f"{NAME}.session_meta", value=dict(record)))
        else:
            self._keep(CustomEntry(name=f"{NAME}.{as_text(record.get('type')) or 'unknown'}", data=record))
        return attrs.evolve(self._batch(), conversations=int(begins))

    def take(self) -> Batch:
        """The answer that was held back to the end."""
        self._close()
        return self._batch()

    def _batch(self) -> Batch:
        made = Batch(entries=tuple(self._entries), messages=self._messages)
        self._entries, self._messages = [], 0
        return made

    def _typed(self, record: JsonObject, payload: JsonObject) -> None:
        match record.get("type"):
            case "response_item":
                self._item(payload)
            case "compacted":
                self._compacted(payload)
            case "session_meta" | "turn_context" as kind:
                self._model = as_text(payload.get("model")) or self._model
                self._write(Setting(name=f"{NAME}.{kind}", value=dict(payload)))
            case "event_msg":
                if payload.get("type") == "token_count" and self._answer:
                    self._answer.usage = usage_from_openai(as_object(payload.get("info")).get("last_token_usage")) or self._answer.usage
                self._keep(CustomEntry(name=f"{NAME}.event_msg.{as_text(payload.get('type')) or 'unknown'}", data=payload))
            case _:
                self._keep(CustomEntry(name=f"{NAME}.{as_text(record.get('type')) or 'unknown'}", data=record))

    def _item(self, item: JsonObject) -> None:
        """An item of the conversation."""
        kind = as_text(item.get("type")) or "unknown"
        role = ROLES.get(as_text(item.get("role")) or "")
        if kind == "message" and role == "assistant":
            self._held().parts.extend(_parts(item.get("content")))
        elif kind == "message" and role:
            message = Message(role=role, content=_parts(item.get("content")))
            self._write(MessageEntry(message=message))
            self._messages += 1
            if role == "user" and message.text:
                self._remember(message.text)
        elif kind in CALLS:
            self._held().calls.append(_call(item))
        elif kind in OUTPUTS:
            message = Message(role="tool", tool_call_id=as_text(item.get("call_id")) or "", content=_output(item.get("output")))
            self._write(MessageEntry(message=message))
            self._messages += 1
        elif kind in {"reasoning", "compaction", "compaction_summary"} or kind.endswith("_call"):
            self._held().parts.append(OpaquePart(value=item, provider=PROVIDER))
        else:
            self._keep(CustomEntry(name=f"{NAME}.{kind}", data=item))

    def _compacted(self, payload: JsonObject) -> None:
        text = as_text(payload.get("message")) or ""
        history = payload.get("replacement_history")
        if isinstance(history, list):
            replacement = tuple(message for item in as_objects(history) if (message := _message(item)))
        else:
            asked = tuple(Message(role="user", content=(said,)) for said in self._asked)
            replacement = (*asked, Message(role="user", content=(text,))) if text else asked
        left = omit_fields(payload, {"message", "replacement_history"})
        self._write(Checkpoint(summary=text, replacement=replacement, trigger="unknown", model=self._model, facts=left))
        self._messages += bool(text)

    def _remember(self, text: str) -> None:
        self._asked.append(text[:MAX_USER_CHARACTERS])
        while sum(map(len, self._asked)) > MAX_USER_CHARACTERS:
            del self._asked[0]

    def _held(self) -> _Answer:
        if self._answer is None:
            self._answer = _Answer(time=self._time)
            self._messages += 1
        return self._answer

    def _keep(self, payload: EntryPayload) -> None:
        """What is no item does not end an answer: it comes behind it."""
        if self._answer:
            self._answer.behind.append(payload)
        else:
            self._entries += self._chain.add(payload, time=self._time)

    def _write(self, payload: EntryPayload) -> None:
        self._close()
        self._entries += self._chain.add(payload, time=self._time)

    def _close(self) -> None:
        held, self._answer = self._answer, None
        if held:
            message = Message(role="assistant", content=tuple(held.parts), tool_calls=tuple(held.calls))
            finish = "tool_calls" if held.calls else None
            self._entries += self._chain.add(
                MessageEntry(message=message, usage=held.usage, model=self._model, finish=finish), time=held.time
            )
            self._entries += self._chain.add(*held.behind)


def _call(item: JsonObject) -> ToolCall:
    kind, call = item.get("type"), as_text(item.get("call_id")) or as_text(item.get("id")) or ""
    match kind:
        case "local_shell_call":
            return ToolCall(id=call, name="local_shell", arguments=dump_json(item.get("action") or {}))
        case "custom_tool_call":
            return ToolCall(id=call, name=as_text(item.get("name")) or "", arguments=dump_json({"input": item.get("input")}))
        case _:
            arguments = item.get("arguments")
            return ToolCall(
                id=call,
                name=as_text(item.get("name")) or "",
                arguments=arguments if isinstance(arguments, str) else dump_json(arguments if arguments is not None else {}),
            )


def _output(output: Json) -> tuple[Part, ...]:
    """What a tool gave: a text, items of content, or in older files an object that holds one of them."""
    match output:
        case {"content": str() | list() as content}:
            return _parts(content)
        case str() | list() | None:
            return _parts(output)
        case _:
            return (dump_json(output),)


def _message(item: JsonObject) -> Message | None:
    """An item of the history that stands for what was before."""
    kind, role = as_text(item.get("type")) or "unknown", ROLES.get(as_text(item.get("role")) or "")
    if role and kind in {"message", "unknown"}:
        return Message(role=role, content=_parts(item.get("content")))
    if kind in CALLS:
        return Message(role="assistant", tool_calls=(_call(item),))
    if kind in OUTPUTS:
        return Message(role="tool", tool_call_id=as_text(item.get("call_id")) or "", content=_output(item.get("output")))
    return Message(role="assistant", content=(OpaquePart(value=item, provider=PROVIDER),))


def _parts(content: Json) -> tuple[Part, ...]:
    parts: list[Part] = []
    for block in as_list(content) if isinstance(content, list) else [content]:
        match block:
            case None | "" | {"text": ""}:
                continue
            case str(text) | {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                parts.append(text)
            case {"type": "input_image", "image_url": str(url)}:
                parts.append(ImagePart(url=url, detail=as_text(as_object(block).get("detail"))))
            case _:
                parts.append(OpaquePart(value=block, provider=PROVIDER))
    return tuple(parts)
