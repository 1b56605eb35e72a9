"""Gemini CLI's session files: one JSON object, whose messages hold the calls of an answer together with their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import ImagePart, Message, OpaquePart, Part, ToolCall, Usage
from promptkit.transcript.codecs.talks import Talks, walk
from promptkit.transcript.codecs.values import number_of, object_of, objects_of, rest, seconds, text_of, values_of, written
from promptkit.transcript.entries import Custom, Said, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json
    from promptkit.transcript.codecs.codec import Batch
    from promptkit.transcript.codecs.head import Head
    from promptkit.transcript.codecs.source import Source
    from promptkit.transcript.codecs.values import Record
    from promptkit.transcript.entries import Payload

__all__ = ["GeminiCli"]

NAME = "gemini_cli"
PLACED = {"id", "timestamp", "type", "content"}
OF_CALL = {"id", "name", "args", "result"}


class GeminiCli:
    """Reads Gemini CLI's session files."""

    name = NAME
    about = "Gemini CLI session JSON"

    def detects(self, head: Head) -> bool:
        """A session with messages that have a type instead of a role."""
        typed = {"messages.item.type=user", "messages.item.type=gemini"} & head.facts
        return "sessionId" in head.facts and bool(typed) and "messages.item.role" not in head.facts

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        talks = Talks(NAME)
        for member in walk(source, [("messages", None)]):
            talks.turn(member.talk)
            if member.pattern is None:
                yield talks.add([Setting(name=f"{NAME}.{member.key}", value=member.value)])
            elif isinstance(member.value, Mapping):
                record = member.value
                payloads = _said(record)
                is_said = any(isinstance(payload, Said) for payload in payloads)
                when, own = seconds(record.get("timestamp")), text_of(record.get("id"))
                yield talks.add(payloads, messages=int(is_said), time=when, entry_id=own)
            else:
                yield talks.unread(member, "no JSON object.")


def _said(record: Record) -> list[Payload]:
    """A message, and the results of its calls. What the program told the person is no message."""
    left = rest(record, PLACED)
    match record.get("type"):
        case "user":
            payloads: list[Payload] = [Said(message=Message(role="user", content=tuple(_parts(record.get("content")))))]
        case "gemini":
            calls = objects_of(record.get("toolCalls"))
            payloads = [_answer(record, calls)]
            payloads += [Said(message=result) for call in calls if (result := _result(call))]
            more = {text_of(call.get("id")) or "": extra for call in calls if (extra := rest(call, OF_CALL))}
            left = {**rest(left, {"toolCalls", "thoughts", "model"}), **({"calls": more} if more else {})}
        case kind:
            return [Custom(name=f"{NAME}.{kind if isinstance(kind, str) else 'message'}", data=record)]
    return [*payloads, Custom(name=f"{NAME}.fields", data=left)] if left else payloads


def _answer(record: Record, calls: list[Record]) -> Payload:
    thoughts = [OpaquePart(value={"type": "thought", **thought}, provider=NAME) for thought in objects_of(record.get("thoughts"))]
    made = tuple(
        ToolCall(id=text_of(call.get("id")) or "", name=text_of(call.get("name")) or "", arguments=written(call.get("args") or {}))
        for call in calls
    )
    message = Message(role="assistant", content=(*thoughts, *_parts(record.get("content"))), tool_calls=made)
    return Said(message=message, usage=_usage(object_of(record.get("tokens"))), model=text_of(record.get("model")))


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
        response = object_of(object_of(object_of(part).get("functionResponse")).get("response"))
        if not response:
            parts += _parts(part)
        elif len(response) == 1 and (text := text_of(next(iter(response.values())))) is not None:
            parts += [text] if text else []  # `output`, or `error`
        else:
            parts.append(written(response))
    return Message(role="tool", tool_call_id=text_of(call.get("id")) or "", name=text_of(call.get("name")), content=tuple(parts))


def _parts(content: Json) -> list[Part]:
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
                made.append(OpaquePart(value={"type": "thought", **object_of(part)}, provider=NAME))
            case _:
                made.append(OpaquePart(value=part, provider=NAME))
    return made
