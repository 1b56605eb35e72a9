"""pi's session files, versions 1 to 3: one JSON object a line, since version 2 each naming the one before it.

Version 1 has no ids: lines follow each other, and a compaction names what it kept by its place in the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import ImagePart, Message, OpaquePart, Part, ToolCall, Usage
from promptkit.recordings.reading.codec import Batch
from promptkit.recordings.reading.conversations import EntryChain, Ids
from promptkit.recordings.reading.json_values import (
    bad_line,
    json_text,
    number_of,
    object_of,
    objects_of,
    record_of,
    rest,
    seconds,
    text_of,
    values_of,
)
from promptkit.recordings.reading.messages import ANTHROPIC
from promptkit.transcript.entries import BranchSummary, Checkpoint, Custom, CustomMessage, Label, MessageEntry, Setting
from promptkit.transcript.store import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json
    from promptkit.recordings.reading.codec import Head
    from promptkit.recordings.reading.json_values import Record
    from promptkit.recordings.reading.source import Source
    from promptkit.transcript.entries import Payload

__all__ = ["Pi"]

NAME = "pi"
PLACED = {"type", "id", "parentId", "timestamp"}
FINISHES = {"stop": "stop", "length": "length", "toolUse": "tool_calls", "error": "error", "aborted": "aborted"}
SETTINGS = ("model_change", "thinking_level_change", "session_info")
KEPT = 500
"""Messages that a compaction may keep by their number."""


class Pi:
    """Reads pi's session files."""

    name = NAME
    about = "pi session JSONL, versions 1 to 3"

    def detects(self, head: Head) -> bool:
        """A header, or messages in lines that name no session."""
        return any(
            (record.get("type") == "session" and isinstance(record.get("id"), str) and "message" not in record)
            or (record.get("type") == "message" and isinstance(record.get("message"), Mapping) and "sessionId" not in record)
            for record in head.records
        )

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a file, line by line."""
        reading = _Reading()
        for number, line in source.lines():
            yield reading.line(number, line)


class _Reading:
    """One pass through a file."""

    def __init__(self) -> None:
        self._chain = EntryChain(Ids())
        self._by_index: list[str | None] = []  # of version 1: the entry of each object of the file
        self._known: dict[str, tuple[str, str]] = {}  # ids of lines → the first and the last entry of each
        self._latest: deque[str] = deque(maxlen=KEPT)
        self._begun = False
        self._session = 0
        self._mended: list[Problem] = []

    def line(self, number: int, line: bytes) -> Batch:
        """The entries of a line."""
        record = record_of(line)
        if isinstance(record, str):
            kept = self._chain.add(bad_line(NAME, number, line, record))
            return Batch(entries=kept, skipped=(Problem(line=number, detail=record),), scope=str(self._session))
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
        own = text_of(record.get("id"))
        if own is not None and record.get("type") != "session":
            self._chain.tail = self._parent(record, number)
        payloads = self._payloads(record)
        entries = self._chain.add(*payloads, time=seconds(record.get("timestamp")), entry_id=own)
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
            scope=str(self._session),
            mended=tuple(self._mended),
        )

    def _parent(self, record: Record, number: int) -> str | None:
        """The entry that a line stands behind."""
        named = record.get("parentId")
        if named is None and "parentId" in record and self._known:
            return None
        if isinstance(named, str) and named in self._known:
            return self._known[named][1]
        if named is not None:
            where = f"behind {self._chain.tail!r}" if self._chain.tail else "at the beginning"
            self._mended.append(Problem(line=number, detail=f"the entry before it, {named!r}, is not before it; it stands {where}."))
        return self._chain.tail

    def _payloads(self, record: Record) -> list[Payload]:
        """What a line holds; what is not understood is kept as it is."""
        kind = text_of(record.get("type")) or "unknown"
        left = rest(record, PLACED)
        if kind == "session":
            return [Setting(name=f"{NAME}.session", value=dict(record))]
        if kind in SETTINGS:
            return [Setting(name=f"{NAME}.{kind}", value=left)]
        return self._shown(record, left) or self._pointing(record) or [Custom(name=f"{NAME}.{kind}", data=record)]

    def _shown(self, record: Record, left: dict[str, Json]) -> list[Payload]:
        """What the model is shown of a line."""
        message, summary = record.get("message"), text_of(record.get("summary"))
        match record.get("type"):
            case "message" if isinstance(message, Mapping):
                return _said(message)
            case "compaction" if summary is not None:
                return [self._checkpoint(record, summary), *_fields(rest(left, {"summary", "tokensBefore", "firstKeptEntryId"}))]
            case "custom_message":
                name = text_of(record.get("customType")) or NAME
                made = Message(role="user", content=_parts(record.get("content"), ""))
                return [CustomMessage(name=name, message=made), *_fields(rest(left, {"customType", "content"}))]
            case _:
                return []

    def _pointing(self, record: Record) -> list[Payload]:
        """What a line says about another one."""
        target = self._known.get(text_of(record.get("targetId")) or text_of(record.get("fromId")) or "")
        label, summary = text_of(record.get("label")), text_of(record.get("summary"))
        if target and record.get("type") == "branch_summary" and summary is not None:
            return [BranchSummary(summary=summary, leaf=target[1], facts=object_of(record.get("details")))]
        if target and record.get("type") == "label" and label is not None:
            return [Label(target=target[0], label=label)]
        return []

    def _checkpoint(self, record: Record, summary: str) -> Checkpoint:
        index, last = number_of(record.get("firstKeptEntryIndex")), number_of(record.get("keepLastMessages"))
        first = None
        if (named := text_of(record.get("firstKeptEntryId"))) is not None:
            first = self._known[named][0] if named in self._known else None
        elif index is not None:
            first = self._by_index[index] if 0 < index < len(self._by_index) else None
        elif last and self._latest:
            first = self._latest[-min(last, len(self._latest))]
        return Checkpoint(
            summary=summary,
            first_kept=first,
            trigger="extension" if record.get("fromHook") is True or record.get("fromExtension") is True else "unknown",
            tokens_before=number_of(record.get("tokensBefore")),
            facts=object_of(record.get("details")),
        )


def _said(message: Record) -> list[Payload]:
    """A message of the conversation."""
    left = rest(message, {"role", "content", "timestamp"})
    content = message.get("content")
    match message.get("role"):
        case "user":
            return [MessageEntry(message=Message(role="user", content=_parts(content, ""))), *_fields(left)]
        case "assistant":
            return _answer(message, left)
        case "toolResult":
            call, name = text_of(message.get("toolCallId")), text_of(message.get("toolName"))
            made = Message(role="tool", content=_parts(content, ""), tool_call_id=call or "", name=name)
            return [MessageEntry(message=made), *_fields(rest(left, {"toolCallId", "toolName"}))]
        case "custom" | "hookMessage":
            name = text_of(message.get("customType")) or NAME
            return [
                CustomMessage(name=name, message=Message(role="user", content=_parts(content, ""))),
                *_fields(rest(left, {"customType"})),
            ]
        case "bashExecution" if message.get("excludeFromContext") is not True:
            return [MessageEntry(message=Message(role="user", content=(_shell(message),))), *_fields(left)]
        case _:
            return [Custom(name=f"{NAME}.message", data=message)]


def _answer(message: Record, left: dict[str, Json]) -> list[Payload]:
    api = text_of(message.get("api")) or "unknown"
    calls: list[ToolCall] = []
    more: dict[str, Json] = {}
    for block in objects_of(message.get("content")):
        if block.get("type") == "toolCall":
            arguments = block.get("arguments")
            calls.append(
                ToolCall(
                    id=text_of(block.get("id")) or "",
                    name=text_of(block.get("name")) or "",
                    arguments=arguments if isinstance(arguments, str) else json_text(arguments if arguments is not None else {}),
                )
            )
            if extra := rest(block, {"type", "id", "name", "arguments"}):
                more[calls[-1].id] = extra
    said = MessageEntry(
        message=Message(role="assistant", content=_parts(message.get("content"), api), tool_calls=tuple(calls)),
        usage=_usage(object_of(message.get("usage"))),
        model=text_of(message.get("model")),
        finish=FINISHES.get(text_of(message.get("stopReason")) or "", text_of(message.get("stopReason"))),
    )
    return [said, *_fields({**rest(left, {"model", "stopReason"}), **({"calls": more} if more else {})})]


def _parts(content: Json, api: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    for block in values_of(content) if isinstance(content, list) else [content]:
        match block:
            case None | "" | {"type": "toolCall"} | {"type": "text", "text": ""}:
                continue
            case str(text) | {"type": "text", "text": str(text)}:
                parts.append(text)
            case {"type": "image", "data": str(data), "mimeType": str(media_type)}:
                parts.append(ImagePart(url=f"data:{media_type};base64,{data}", media_type=media_type))
            case {"type": "thinking", "thinking": str(thinking)} if api.startswith("anthropic"):
                signature = object_of(block).get("thinkingSignature")
                value: Record = {"type": "thinking", "thinking": thinking, **({"signature": signature} if signature else {})}
                parts.append(OpaquePart(value=value, provider=ANTHROPIC))
            case _:
                parts.append(OpaquePart(value=block, provider=f"{NAME}.{api}"))
    return tuple(parts)


def _usage(data: Record) -> Usage | None:
    fresh = number_of(data.get("input"))
    if fresh is None:
        return None
    cached, made = number_of(data.get("cacheRead")) or 0, number_of(data.get("cacheWrite")) or 0
    return Usage(input_tokens=fresh + cached + made, output_tokens=number_of(data.get("output")) or 0, cached_tokens=cached)


def _shell(message: Record) -> str:
    """A command that the user ran, as the model was shown it."""
    output, code = text_of(message.get("output")), number_of(message.get("exitCode"))
    lines = [f"Ran `{text_of(message.get('command')) or ''}`", f"```\n{output}\n```" if output else "(no output)"]
    if message.get("cancelled") is True:
        lines.append("\n(command cancelled)")
    elif code:
        lines.append(f"\nCommand exited with code {code}")
    if message.get("truncated") is True and (path := text_of(message.get("fullOutputPath"))):
        lines.append(f"\n[Output truncated. Full output: {path}]")
    return "\n".join(lines)


def _fields(left: dict[str, Json]) -> list[Payload]:
    return [Custom(name=f"{NAME}.fields", data=left)] if left else []
