"""Gemini CLI's session files: messages that hold the calls of an answer together with their results.

Older ones are one JSON object. Newer ones have a line for each message, written again whenever it grows, and lines that take messages back.

Google's contents, as Gemini CLI's checkpoints hold them: turns of parts, in which calls and their results may have no ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import ImagePart, Message, OpaquePart, Part, ToolCall, Usage
from promptkit.recordings.reading.codec import Batch, read_head
from promptkit.recordings.reading.conversations import ConversationWriter, EntryChain, IdAllocator, walk_members
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
from promptkit.transcript.entries import CustomEntry, MessageEntry, Setting
from promptkit.transcript.store import ReadProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json
    from promptkit.recordings.reading.codec import FileHead
    from promptkit.recordings.reading.conversations import PathPattern
    from promptkit.recordings.reading.json_values import JsonObject
    from promptkit.recordings.reading.source import RecordingSource
    from promptkit.transcript.entries import EntryPayload

__all__ = ["PROVIDER", "Contents", "GeminiCliFormat", "parts_of", "result_parts"]


PROVIDER = "gemini_cli"


class Contents:
    """Reads turns one after the other, and remembers which calls without an id wait for their result."""

    def __init__(self) -> None:
        self._calls = 0
        self._waiting: dict[str, list[str]] = {}  # names of tools → ids of calls, oldest first

    def said(self, turn: JsonObject) -> list[EntryPayload]:
        """The messages of a turn: results, then what is said. None for what is no turn."""
        role, parts = turn.get("role"), turn.get("parts")
        if role not in ("user", "model") or not isinstance(parts, list):
            return []
        results: list[EntryPayload] = []
        calls: list[ToolCall] = []
        content: list[Part] = []
        for part in as_list(parts):
            match part:
                case {"functionCall": Mapping() as call} if role == "model":
                    calls.append(self._call(as_object(call)))
                case {"functionResponse": Mapping() as response}:
                    results.append(MessageEntry(message=self._result(as_object(response), part)))
                case _:
                    content += parts_of(part)
        said: list[EntryPayload] = results
        if content or calls or not results:
            message = Message(role="user" if role == "user" else "assistant", content=tuple(content), tool_calls=tuple(calls))
            said = [*results, MessageEntry(message=message)]
        left = omit_fields(turn, {"role", "parts"})
        return [*said, CustomEntry(name=f"{PROVIDER}.fields", data=left)] if left else said

    def _call(self, call: JsonObject) -> ToolCall:
        self._calls += 1
        name, own = as_text(call.get("name")) or "", as_text(call.get("id"))
        if not own:
            own = f"call-{self._calls}"
            self._waiting.setdefault(name, []).append(own)
        return ToolCall(id=own, name=name, arguments=dump_json(call.get("args") or {}))

    def _result(self, response: JsonObject, part: Json) -> Message:
        name, own = as_text(response.get("name")), as_text(response.get("id"))
        waiting = self._waiting.get(name or "")
        if not own:
            own = waiting.pop(0) if waiting else ""
        return Message(role="tool", tool_call_id=own, name=name, content=tuple(result_parts(part)))


def result_parts(part: Json) -> list[Part]:
    """What a result says, out of a part with a `functionResponse`, or another one."""
    response = as_object(as_object(as_object(part).get("functionResponse")).get("response"))
    if not response:
        return parts_of(part)
    if len(response) == 1 and (text := as_text(next(iter(response.values())))) is not None:
        return [text] if text else []  # `output`, or `error`
    return [dump_json(response)]


def parts_of(content: Json) -> list[Part]:
    """Content: a text, or Google's parts."""
    made: list[Part] = []
    for part in as_list(content) if isinstance(content, list) else [content]:
        match part:
            case None | "" | {"text": ""}:
                continue
            case str(text):
                made.append(text)
            case {"text": str(text)} if as_object(part).get("thought") is not True:
                made.append(text)
            case {"inlineData": {"mimeType": str(kind), "data": str(data)}} if kind.startswith("image/"):
                made.append(ImagePart(url=f"data:{kind};base64,{data}", media_type=kind))
            case {"thought": True}:
                made.append(OpaquePart(value={"type": "thought", **as_object(part)}, provider=PROVIDER))
            case _:
                made.append(OpaquePart(value=part, provider=PROVIDER))
    return made


NAME = PROVIDER
PLACED = {"id", "timestamp", "type", "content"}
OF_CALL = {"id", "name", "args", "result"}
OF_MODEL = ("user", "gemini")


class GeminiCliFormat:
    """Reads Gemini CLI's session files."""

    name = NAME
    about = "Gemini CLI session JSON"

    def detects(self, head: FileHead) -> bool:
        """A session with messages that have a type instead of a role, inside it or on the lines behind it."""
        if _is_lines(head) or _turns(head):
            return True
        typed = {"messages.item.type=user", "messages.item.type=gemini"} & head.json_paths
        return "sessionId" in head.json_paths and bool(typed) and "messages.item.role" not in head.json_paths

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        head = read_head(source)
        if _is_lines(head):
            yield from _Lines().read(source)
            return
        if place := _turns(head):
            yield from _read_turns(source, place)
            return
        talks = ConversationWriter(NAME)
        for member in walk_members(source, [("messages", None)]):
            talks.switch(member.conversation)
            if member.pattern is None:
                yield talks.add([Setting(name=f"{NAME}.{member.key}", value=member.value)])
            elif isinstance(member.value, Mapping):
                record = member.value
                payloads = _said(record)
                is_said = any(isinstance(payload, MessageEntry) for payload in payloads)
                when, own = parse_time(record.get("timestamp")), as_text(record.get("id"))
                yield talks.add(payloads, messages=int(is_said), time=when, entry_id=own)
            else:
                yield talks.keep_unreadable(member, "no JSON object.")


def _turns(head: FileHead) -> PathPattern | None:
    """Where a checkpoint has its turns: a file that is a list of Google's contents, or has one by the name of history."""
    for place, pattern in (("item", (None,)), ("history.item", ("history", None))):
        if f"{place}.parts" in head.json_paths and f"{place}.role" in head.json_paths:
            return pattern
    return None


def _read_turns(source: RecordingSource, place: PathPattern) -> Iterator[Batch]:
    talks, contents = ConversationWriter(NAME), Contents()
    for member in walk_members(source, [place]):
        talks.switch(member.conversation)
        if member.pattern is None:
            yield talks.add([Setting(name=f"{NAME}.{member.key}", value=member.value)])
        elif isinstance(member.value, Mapping):
            said = contents.said(member.value)
            yield talks.add(said or [CustomEntry(name=f"{NAME}.message", data=member.value)], messages=int(bool(said)))
        else:
            yield talks.keep_unreadable(member, "no JSON object.")


def _is_lines(head: FileHead) -> bool:
    session = any(isinstance(record.get("sessionId"), str) and "projectHash" in record for record in head.records[:1])
    return session and any(_is_message(record) or "$set" in record or "$rewindTo" in record for record in head.records[1:])


def _is_message(record: JsonObject) -> bool:
    return isinstance(record.get("id"), str) and isinstance(record.get("type"), str)


class _Lines:
    """One pass through a file of lines. The latest message is held back: until another one comes, it may be written again."""

    def __init__(self) -> None:
        self._chain = EntryChain(IdAllocator())
        self._before: dict[str, str | None] = {}  # ids of messages → the entry that each stands behind
        self._held: list[JsonObject] = []
        self._begun = False

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of the file."""
        for number, line in source.lines():
            record = parse_object(line)
            if isinstance(record, str):
                yield from self._release()
                kept = self._chain.add(keep_bad_line(NAME, number, line, record))
                yield Batch(entries=kept, skipped=(ReadProblem(line=number, detail=record),))
            elif _is_message(record):
                yield from self._message(record)
            else:
                yield from self._about(record)
        yield from self._release()

    def _message(self, record: JsonObject) -> Iterator[Batch]:
        for at, held in enumerate(self._held):
            if held.get("id") == record.get("id"):
                self._held[at] = record
                return
        if record.get("id") in self._before:
            yield Batch(entries=self._chain.add(CustomEntry(name=f"{NAME}.update", data=record)))
            return
        if record.get("type") in OF_MODEL:
            yield from self._release()
        self._held.append(record)

    def _about(self, record: JsonObject) -> Iterator[Batch]:
        """A line that says something about the session, or takes a message back with all behind it. Both are kept, too."""
        patch, target = as_object(record.get("$set")), record.get("$rewindTo")
        if not isinstance(target, str) and "messages" not in patch:
            name = "set" if "$set" in record else "session"
            yield Batch(entries=self._chain.add(Setting(name=f"{NAME}.{name}", value=record)))
            return
        yield from self._release()
        yield Batch(entries=self._chain.add(CustomEntry(name=f"{NAME}.{'set' if patch else 'rewind'}", data=record)))
        if isinstance(target, str):
            self._chain.tail = self._before.get(target)
        for message in as_objects(patch.get("messages")):
            if _is_message(message) and message["id"] not in self._before:
                yield from self._message(message)

    def _release(self) -> Iterator[Batch]:
        for record in self._held:
            own = str(record["id"])
            self._before.setdefault(own, self._chain.tail)
            payloads = _said(record)
            is_said = any(isinstance(payload, MessageEntry) for payload in payloads)
            entries = self._chain.add(*payloads, time=parse_time(record.get("timestamp")), entry_id=own)
            yield Batch(entries=entries, messages=int(is_said), conversations=int(is_said and not self._begun))
            self._begun |= is_said
        self._held = []


def _said(record: JsonObject) -> list[EntryPayload]:
    """A message, and the results of its calls. What the program told the person is no message."""
    left = omit_fields(record, PLACED)
    match record.get("type"):
        case "user":
            payloads: list[EntryPayload] = [MessageEntry(message=Message(role="user", content=tuple(parts_of(record.get("content")))))]
        case "gemini":
            calls = as_objects(record.get("toolCalls"))
            payloads = [_answer(record, calls)]
            payloads += [MessageEntry(message=result) for call in calls if (result := _result(call))]
            more = {as_text(call.get("id")) or "": extra for call in calls if (extra := omit_fields(call, OF_CALL))}
            left = {**omit_fields(left, {"toolCalls", "thoughts", "model"}), **({"calls": more} if more else {})}
        case kind:
            return [CustomEntry(name=f"{NAME}.{kind if isinstance(kind, str) else 'message'}", data=record)]
    return [*payloads, CustomEntry(name=f"{NAME}.fields", data=left)] if left else payloads


def _answer(record: JsonObject, calls: list[JsonObject]) -> EntryPayload:
    thoughts = [OpaquePart(value={"type": "thought", **thought}, provider=NAME) for thought in as_objects(record.get("thoughts"))]
    made = tuple(
        ToolCall(id=as_text(call.get("id")) or "", name=as_text(call.get("name")) or "", arguments=dump_json(call.get("args") or {}))
        for call in calls
    )
    message = Message(role="assistant", content=(*thoughts, *parts_of(record.get("content"))), tool_calls=made)
    return MessageEntry(message=message, usage=_usage(as_object(record.get("tokens"))), model=as_text(record.get("model")))


def _usage(tokens: JsonObject) -> Usage | None:
    taken = as_count(tokens.get("input"))
    if taken is None:
        return None
    given = (as_count(tokens.get("output")) or 0) + (as_count(tokens.get("thoughts")) or 0)
    return Usage(input_tokens=taken, output_tokens=given, cached_tokens=min(as_count(tokens.get("cached")) or 0, taken))


def _result(call: JsonObject) -> Message | None:
    """What a call gave; None while it has given nothing."""
    result = call.get("result")
    if result in (None, []):
        return None
    parts: list[Part] = []
    for part in as_list(result) if isinstance(result, list) else [result]:
        parts += result_parts(part)
    return Message(role="tool", tool_call_id=as_text(call.get("id")) or "", name=as_text(call.get("name")), content=tuple(parts))
