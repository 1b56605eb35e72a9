"""Gemini CLI's session files: messages that hold the calls of an answer together with their results.

Older ones are one JSON object. Newer ones have a line for each message, written again whenever it grows, and lines that take messages back.

Google's contents, as Gemini CLI's checkpoints hold them: turns of parts, in which calls and their results may have no ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import ImagePart, Message, OpaquePart, Part, ToolCall, Usage
from promptkit.recordings.reading.codec import Batch, head_of
from promptkit.recordings.reading.conversations import ConversationWriter, EntryChain, Ids, walk
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
from promptkit.transcript.entries import Custom, MessageEntry, Setting
from promptkit.transcript.store import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json
    from promptkit.recordings.reading.codec import Head
    from promptkit.recordings.reading.conversations import Pattern
    from promptkit.recordings.reading.json_values import Record
    from promptkit.recordings.reading.source import Source
    from promptkit.transcript.entries import Payload

__all__ = ["PROVIDER", "Contents", "GeminiCli", "parts_of", "result_parts"]


PROVIDER = "gemini_cli"


class Contents:
    """Reads turns one after the other, and remembers which calls without an id wait for their result."""

    def __init__(self) -> None:
        self._calls = 0
        self._waiting: dict[str, list[str]] = {}  # names of tools → ids of calls, oldest first

    def said(self, turn: Record) -> list[Payload]:
        """The messages of a turn: results, then what is said. None for what is no turn."""
        role, parts = turn.get("role"), turn.get("parts")
        if role not in ("user", "model") or not isinstance(parts, list):
            return []
        results: list[Payload] = []
        calls: list[ToolCall] = []
        content: list[Part] = []
        for part in values_of(parts):
            match part:
                case {"functionCall": Mapping() as call} if role == "model":
                    calls.append(self._call(object_of(call)))
                case {"functionResponse": Mapping() as response}:
                    results.append(MessageEntry(message=self._result(object_of(response), part)))
                case _:
                    content += parts_of(part)
        said: list[Payload] = results
        if content or calls or not results:
            message = Message(role="user" if role == "user" else "assistant", content=tuple(content), tool_calls=tuple(calls))
            said = [*results, MessageEntry(message=message)]
        left = rest(turn, {"role", "parts"})
        return [*said, Custom(name=f"{PROVIDER}.fields", data=left)] if left else said

    def _call(self, call: Record) -> ToolCall:
        self._calls += 1
        name, own = text_of(call.get("name")) or "", text_of(call.get("id"))
        if not own:
            own = f"call-{self._calls}"
            self._waiting.setdefault(name, []).append(own)
        return ToolCall(id=own, name=name, arguments=json_text(call.get("args") or {}))

    def _result(self, response: Record, part: Json) -> Message:
        name, own = text_of(response.get("name")), text_of(response.get("id"))
        waiting = self._waiting.get(name or "")
        if not own:
            own = waiting.pop(0) if waiting else ""
        return Message(role="tool", tool_call_id=own, name=name, content=tuple(result_parts(part)))


def result_parts(part: Json) -> list[Part]:
    """What a result says, out of a part with a `functionResponse`, or another one."""
    response = object_of(object_of(object_of(part).get("functionResponse")).get("response"))
    if not response:
        return parts_of(part)
    if len(response) == 1 and (text := text_of(next(iter(response.values())))) is not None:
        return [text] if text else []  # `output`, or `error`
    return [json_text(response)]


def parts_of(content: Json) -> list[Part]:
    """Content: a text, or Google's parts."""
    made: list[Part] = []
    for part in values_of(content) if isinstance(content, list) else [content]:
        match part:
            case None | "" | {"text": ""}:
                continue
            case str(text):
                made.append(text)
            case {"text": str(text)} if object_of(part).get("thought") is not True:
                made.append(text)
            case {"inlineData": {"mimeType": str(kind), "data": str(data)}} if kind.startswith("image/"):
                made.append(ImagePart(url=f"data:{kind};base64,{data}", media_type=kind))
            case {"thought": True}:
                made.append(OpaquePart(value={"type": "thought", **object_of(part)}, provider=PROVIDER))
            case _:
                made.append(OpaquePart(value=part, provider=PROVIDER))
    return made


NAME = PROVIDER
PLACED = {"id", "timestamp", "type", "content"}
OF_CALL = {"id", "name", "args", "result"}
OF_MODEL = ("user", "gemini")


class GeminiCli:
    """Reads Gemini CLI's session files."""

    name = NAME
    about = "Gemini CLI session JSON"

    def detects(self, head: Head) -> bool:
        """A session with messages that have a type instead of a role, inside it or on the lines behind it."""
        if _is_lines(head) or _turns(head):
            return True
        typed = {"messages.item.type=user", "messages.item.type=gemini"} & head.facts
        return "sessionId" in head.facts and bool(typed) and "messages.item.role" not in head.facts

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        head = head_of(source)
        if _is_lines(head):
            yield from _Lines().read(source)
            return
        if place := _turns(head):
            yield from _read_turns(source, place)
            return
        talks = ConversationWriter(NAME)
        for member in walk(source, [("messages", None)]):
            talks.turn(member.talk)
            if member.pattern is None:
                yield talks.add([Setting(name=f"{NAME}.{member.key}", value=member.value)])
            elif isinstance(member.value, Mapping):
                record = member.value
                payloads = _said(record)
                is_said = any(isinstance(payload, MessageEntry) for payload in payloads)
                when, own = seconds(record.get("timestamp")), text_of(record.get("id"))
                yield talks.add(payloads, messages=int(is_said), time=when, entry_id=own)
            else:
                yield talks.unread(member, "no JSON object.")


def _turns(head: Head) -> Pattern | None:
    """Where a checkpoint has its turns: a file that is a list of Google's contents, or has one by the name of history."""
    for place, pattern in (("item", (None,)), ("history.item", ("history", None))):
        if f"{place}.parts" in head.facts and f"{place}.role" in head.facts:
            return pattern
    return None


def _read_turns(source: Source, place: Pattern) -> Iterator[Batch]:
    talks, contents = ConversationWriter(NAME), Contents()
    for member in walk(source, [place]):
        talks.turn(member.talk)
        if member.pattern is None:
            yield talks.add([Setting(name=f"{NAME}.{member.key}", value=member.value)])
        elif isinstance(member.value, Mapping):
            said = contents.said(member.value)
            yield talks.add(said or [Custom(name=f"{NAME}.message", data=member.value)], messages=int(bool(said)))
        else:
            yield talks.unread(member, "no JSON object.")


def _is_lines(head: Head) -> bool:
    session = any(isinstance(record.get("sessionId"), str) and "projectHash" in record for record in head.records[:1])
    return session and any(_is_message(record) or "$set" in record or "$rewindTo" in record for record in head.records[1:])


def _is_message(record: Record) -> bool:
    return isinstance(record.get("id"), str) and isinstance(record.get("type"), str)


class _Lines:
    """One pass through a file of lines. The latest message is held back: until another one comes, it may be written again."""

    def __init__(self) -> None:
        self._chain = EntryChain(Ids())
        self._before: dict[str, str | None] = {}  # ids of messages → the entry that each stands behind
        self._held: list[Record] = []
        self._begun = False

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of the file."""
        for number, line in source.lines():
            record = record_of(line)
            if isinstance(record, str):
                yield from self._release()
                kept = self._chain.add(bad_line(NAME, number, line, record))
                yield Batch(entries=kept, skipped=(Problem(line=number, detail=record),))
            elif _is_message(record):
                yield from self._message(record)
            else:
                yield from self._about(record)
        yield from self._release()

    def _message(self, record: Record) -> Iterator[Batch]:
        for at, held in enumerate(self._held):
            if held.get("id") == record.get("id"):
                self._held[at] = record
                return
        if record.get("id") in self._before:
            yield Batch(entries=self._chain.add(Custom(name=f"{NAME}.update", data=record)))
            return
        if record.get("type") in OF_MODEL:
            yield from self._release()
        self._held.append(record)

    def _about(self, record: Record) -> Iterator[Batch]:
        """A line that says something about the session, or takes a message back with all behind it. Both are kept, too."""
        patch, target = object_of(record.get("$set")), record.get("$rewindTo")
        if not isinstance(target, str) and "messages" not in patch:
            name = "set" if "$set" in record else "session"
            yield Batch(entries=self._chain.add(Setting(name=f"{NAME}.{name}", value=record)))
            return
        yield from self._release()
        yield Batch(entries=self._chain.add(Custom(name=f"{NAME}.{'set' if patch else 'rewind'}", data=record)))
        if isinstance(target, str):
            self._chain.tail = self._before.get(target)
        for message in objects_of(patch.get("messages")):
            if _is_message(message) and message["id"] not in self._before:
                yield from self._message(message)

    def _release(self) -> Iterator[Batch]:
        for record in self._held:
            own = str(record["id"])
            self._before.setdefault(own, self._chain.tail)
            payloads = _said(record)
            is_said = any(isinstance(payload, MessageEntry) for payload in payloads)
            entries = self._chain.add(*payloads, time=seconds(record.get("timestamp")), entry_id=own)
            yield Batch(entries=entries, messages=int(is_said), conversations=int(is_said and not self._begun))
            self._begun |= is_said
        self._held = []


def _said(record: Record) -> list[Payload]:
    """A message, and the results of its calls. What the program told the person is no message."""
    left = rest(record, PLACED)
    match record.get("type"):
        case "user":
            payloads: list[Payload] = [MessageEntry(message=Message(role="user", content=tuple(parts_of(record.get("content")))))]
        case "gemini":
            calls = objects_of(record.get("toolCalls"))
            payloads = [_answer(record, calls)]
            payloads += [MessageEntry(message=result) for call in calls if (result := _result(call))]
            more = {text_of(call.get("id")) or "": extra for call in calls if (extra := rest(call, OF_CALL))}
            left = {**rest(left, {"toolCalls", "thoughts", "model"}), **({"calls": more} if more else {})}
        case kind:
            return [Custom(name=f"{NAME}.{kind if isinstance(kind, str) else 'message'}", data=record)]
    return [*payloads, Custom(name=f"{NAME}.fields", data=left)] if left else payloads


def _answer(record: Record, calls: list[Record]) -> Payload:
    thoughts = [OpaquePart(value={"type": "thought", **thought}, provider=NAME) for thought in objects_of(record.get("thoughts"))]
    made = tuple(
        ToolCall(id=text_of(call.get("id")) or "", name=text_of(call.get("name")) or "", arguments=json_text(call.get("args") or {}))
        for call in calls
    )
    message = Message(role="assistant", content=(*thoughts, *parts_of(record.get("content"))), tool_calls=made)
    return MessageEntry(message=message, usage=_usage(object_of(record.get("tokens"))), model=text_of(record.get("model")))


def _usage(tokens: Record) -> Usage | None:
    taken = number_of(tokens.get("input"))
    if taken is None:
        return None
    given = (number_of(tokens.get("output")) or 0) + (number_of(tokens.get("thoughts")) or 0)
    return Usage(input_tokens=taken, output_tokens=given, cached_tokens=min(number_of(tokens.get("cached")) or 0, taken))


def _result(call: Record) -> Message | None:
    """What a call gave; None while it has given nothing."""
    result = call.get("result")
    if result in (None, []):
        return None
    parts: list[Part] = []
    for part in values_of(result) if isinstance(result, list) else [result]:
        parts += result_parts(part)
    return Message(role="tool", tool_call_id=text_of(call.get("id")) or "", name=text_of(call.get("name")), content=tuple(parts))
