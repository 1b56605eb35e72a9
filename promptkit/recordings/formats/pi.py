"""pi's session files, versions 1 to 3: one JSON object a line, since version 2 each naming the one before it.

Version 1 has no ids: lines follow each other, and a compaction names what it kept by its place in the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import ImagePart, Message, OpaquePart, Part, ToolCall, Usage
from promptkit.recordings.reading.codec import Batch
from promptkit.recordings.reading.conversations import EntryChain, IdAllocator
from promptkit.recordings.reading.json_values import (
    keep_bad_line,
    dump_json,
    as_count,
    as_object,
    as_objects,
    parse_object,
    omit_fields,
    parse_time,
    as_text,
    as_list,
)
from promptkit.recordings.reading.messages import ANTHROPIC
from promptkit.transcript.entries import BranchSummary, Checkpoint, CustomEntry, CustomMessage, Label, MessageEntry, Setting
from promptkit.transcript.store import ReadProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json
    from promptkit.recordings.reading.codec import FileHead
    from promptkit.recordings.reading.json_values import JsonObject
    from promptkit.recordings.reading.source import RecordingSource
    from promptkit.transcript.entries import EntryPayload

__all__ = ["PiFormat"]

NAME = "pi"
PLACED = {"type", "id", "parentId", "timestamp"}
FINISHES = {"stop": "stop", "length": "length", "toolUse": "tool_calls", "error": "error", "aborted": "aborted"}
SETTINGS = ("model_change", "thinking_level_change", "session_info")
KEPT = 500
"""Messages that a compaction may keep by their number."""


class PiFormat:
    """Reads pi's session files."""

    name = NAME
    about = "pi session JSONL, versions 1 to 3"

    def detects(self, head: FileHead) -> bool:
        """A header, or messages in lines that name no session."""
        return any(
            (record.get("type") == "session" and isinstance(record.get("id"), str) and "message" not in record)
            or (record.get("type") == "message" and isinstance(record.get("message"), Mapping) and "sessionId" not in record)
            for record in head.records
        )

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a file, line by line."""
        reading = _Reading()
        for number, line in source.lines():
            yield reading.line(number, line)


class _Reading:
    """One pass through a file."""

    def __init__(self) -> None:
        self._chain = EntryChain(IdAllocator())
        self._by_index: list[str | None] = []  # of version 1: the entry of each object of the file
        self._known: dict[str, tuple[str, str]] = {}  # ids of lines → the first and the last entry of each
        self._latest: deque[str] = deque(maxlen=KEPT)
        self._begun = False
        self._session = 0
        self._mended: list[ReadProblem] = []

    def line(self, number: int, line: bytes) -> Batch:
        """The entries of a line."""
        record = parse_object(line)
        if isinstance(record, str):
            kept = self._chain.add(keep_bad_line(NAME, number, line, record))
            return Batch(entries=kept, skipped=(ReadProblem(line=number, detail=record),), call_id_scope=str(self._session))
        self._mended = []
        begins = not self._begun and record.get("type") != "session"
        if record.get("type") == "session":
            if self._begun:
                self._chain.tail = None
                self._known.clear()
            self._by_index.clear()
            self._session += 1
            self._begun, begins = True, True
        self._begun = True
        own = as_text(record.get("id"))
        if own is not None and record.get("type") != "session":
            self._chain.tail = self._parent(record, number)
        payloads = self._payloads(record)
        entries = self._chain.add(*payloads, time=parse_time(record.get("timestamp")), entry_id=own)
        is_message = any(isinstance(entry.payload, MessageEntry | Checkpoint | CustomMessage | BranchSummary) for entry in entries)
        is_message = is_message or (record.get("type") == "message" and isinstance(record.get("message"), Mapping))
        if own is not None:
            self._known[own] = (entries[0].id, entries[-1].id)
        self._by_index.append(entries[0].id)
        if is_message:
            self._latest.append(entries[0].id)
        return Batch(
            entries=entries,
            messages=int(is_message),
            conversations=int(begins),
            call_id_scope=str(self._session),
            relocated=tuple(self._mended),
        )

    def _parent(self, record: JsonObject, number: int) -> str | None:
        """The entry that a line stands behind."""
        named = record.get("parentId")
        if named is None and "parentId" in record and self._known:
            return None
        if isinstance(named, str) and named in self._known:
            return self._known[named][1]
        if named is not None:
            where = f"behind {self._chain.tail!r}" if self._chain.tail else "at the beginning"
            self._mended.append(ReadProblem(line=number, detail=f"the entry before it, {named!r}, is not before it; it stands {where}."))
        return self._chain.tail

    def _payloads(self, record: JsonObject) -> list[EntryPayload]:
        """What a line holds; what is not understood is kept as it is."""
        kind = as_text(record.get("type")) or "unknown"
        left = omit_fields(record, PLACED)
        if kind == "session":
            return [Setting(name=f"{NAME}.session", value=dict(record))]
        if kind in SETTINGS:
            return [Setting(name=f"{NAME}.{kind}", value=left)]
        return self._shown(record, left) or self._pointing(record) or [CustomEntry(name=f"{NAME}.{kind}", data=record)]

    def _shown(self, record: JsonObject, left: dict[str, Json]) -> list[EntryPayload]:
        """What the model is shown of a line."""
        message, summary = record.get("message"), as_text(record.get("summary"))
        match record.get("type"):
            case "message" if isinstance(message, Mapping):
                return _said(message)
            case "compaction" if summary is not None:
                return [self._checkpoint(record, summary), *_fields(omit_fields(left, {"summary", "tokensBefore", "firstKeptEntryId"}))]
            case "custom_message":
                name = as_text(record.get("customType")) or NAME
                made = Message(role="user", content=_parts(record.get("content"), ""))
                return [CustomMessage(name=name, message=made), *_fields(omit_fields(left, {"customType", "content"}))]
            case _:
                return []

    def _pointing(self, record: JsonObject) -> list[EntryPayload]:
        """What a line says about another one."""
        target = self._known.get(as_text(record.get("targetId")) or as_text(record.get("fromId")) or "")
        label, summary = as_text(record.get("label")), as_text(record.get("summary"))
        if target and record.get("type") == "branch_summary" and summary is not None:
            return [BranchSummary(summary=summary, leaf=target[1], facts=as_object(record.get("details")))]
        if target and record.get("type") == "label" and label is not None:
            return [Label(target=target[0], label=label)]
        return []

    def _checkpoint(self, record: JsonObject, summary: str) -> Checkpoint:
        index, last = as_count(record.get("firstKeptEntryIndex")), as_count(record.get("keepLastMessages"))
        first = None
        if (named := as_text(record.get("firstKeptEntryId"))) is not None:
            first = self._known[named][0] if named in self._known else None
        elif index is not None:
            first = self._by_index[index] if 0 < index < len(self._by_index) else None
        elif last and self._latest:
            first = self._latest[-min(last, len(self._latest))]
        return Checkpoint(
            summary=summary,
            first_kept=first,
            trigger="extension" if record.get("fromHook") is True or record.get("fromExtension") is True else "unknown",
            tokens_before=as_count(record.get("tokensBefore")),
            facts=as_object(record.get("details")),
        )


def _said(message: JsonObject) -> list[EntryPayload]:
    """A message of the conversation."""
    left = omit_fields(message, {"role", "content", "timestamp"})
    content = message.get("content")
    match message.get("role"):
        case "user":
            return [MessageEntry(message=Message(role="user", content=_parts(content, ""))), *_fields(left)]
        case "assistant":
            return _answer(message, left)
        case "toolResult":
            call, name = as_text(message.get("toolCallId")), as_text(message.get("toolName"))
            made = Message(role="tool", content=_parts(content, ""), tool_call_id=call or "", name=name)
            return [MessageEntry(message=made), *_fields(omit_fields(left, {"toolCallId", "toolName"}))]
        case "custom" | "hookMessage":
            name = as_text(message.get("customType")) or NAME
            return [
                CustomMessage(name=name, message=Message(role="user", content=_parts(content, ""))),
                *_fields(omit_fields(left, {"customType"})),
            ]
        case "bashExecution" if message.get("excludeFromContext") is not True:
            return [MessageEntry(message=Message(role="user", content=(_shell(message),))), *_fields(left)]
        case _:
            return [CustomEntry(name=f"{NAME}.message", data=message)]


def _answer(message: JsonObject, left: dict[str, Json]) -> list[EntryPayload]:
    api = as_text(message.get("api")) or "unknown"
    calls: list[ToolCall] = []
    more: dict[str, Json] = {}
    for block in as_objects(message.get("content")):
        if block.get("type") == "toolCall":
            arguments = block.get("arguments")
            calls.append(
                ToolCall(
                    id=as_text(block.get("id")) or "",
                    name=as_text(block.get("name")) or "",
                    arguments=arguments if isinstance(arguments, str) else dump_json(arguments if arguments is not None else {}),
                )
            )
            if extra := omit_fields(block, {"type", "id", "name", "arguments"}):
                more[calls[-1].id] = extra
    said = MessageEntry(
        message=Message(role="assistant", content=_parts(message.get("content"), api), tool_calls=tuple(calls)),
        usage=_usage(as_object(message.get("usage"))),
        model=as_text(message.get("model")),
        finish=FINISHES.get(as_text(message.get("stopReason")) or "", as_text(message.get("stopReason"))),
    )
    return [said, *_fields({**omit_fields(left, {"model", "stopReason"}), **({"calls": more} if more else {})})]


def _parts(content: Json, api: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    for block in as_list(content) if isinstance(content, list) else [content]:
        match block:
            case None | "" | {"type": "toolCall"} | {"type": "text", "text": ""}:
                continue
            case str(text) | {"type": "text", "text": str(text)}:
                parts.append(text)
            case {"type": "image", "data": str(data), "mimeType": str(media_type)}:
                parts.append(ImagePart(url=f"data:{media_type};base64,{data}", media_type=media_type))
            case {"type": "thinking", "thinking": str(thinking)} if api.startswith("anthropic"):
                signature = as_object(block).get("thinkingSignature")
                value: JsonObject = {"type": "thinking", "thinking": thinking, **({"signature": signature} if signature else {})}
                parts.append(OpaquePart(value=value, provider=ANTHROPIC))
            case _:
                parts.append(OpaquePart(value=block, provider=f"{NAME}.{api}"))
    return tuple(parts)


def _usage(data: JsonObject) -> Usage | None:
    fresh = as_count(data.get("input"))
    if fresh is None:
        return None
    cached, made = as_count(data.get("cacheRead")) or 0, as_count(data.get("cacheWrite")) or 0
    return Usage(input_tokens=fresh + cached + made, output_tokens=as_count(data.get("output")) or 0, cached_tokens=cached)


def _shell(message: JsonObject) -> str:
    """A command that the user ran, as the model was shown it."""
    output, code = as_text(message.get("output")), as_count(message.get("exitCode"))
    lines = [f"Ran `{as_text(message.get('command')) or ''}`", f"```\n{output}\n```" if output else "(no output)"]
    if message.get("cancelled") is True:
        lines.append("\n(command cancelled)")
    elif code:
        lines.append(f"\nCommand exited with code {code}")
    if message.get("truncated") is True and (path := as_text(message.get("fullOutputPath"))):
        lines.append(f"\n[Output truncated. Full output: {path}]")
    return "\n".join(lines)


def _fields(left: dict[str, Json]) -> list[EntryPayload]:
    return [CustomEntry(name=f"{NAME}.fields", data=left)] if left else []
