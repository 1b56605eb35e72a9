"""Google's contents, as Gemini CLI's checkpoints hold them: turns of parts, in which calls and their results may have no ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import ImagePart, Message, OpaquePart, Part, ToolCall
from promptkit.transcript.codecs.values import object_of, rest, text_of, values_of, written
from promptkit.transcript.entries import Custom, Said

if TYPE_CHECKING:
    from promptkit.messages import Json
    from promptkit.transcript.codecs.values import Record
    from promptkit.transcript.entries import Payload

__all__ = ["PROVIDER", "Contents", "parts_of", "result_parts"]

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
                    results.append(Said(message=self._result(object_of(response), part)))
                case _:
                    content += parts_of(part)
        said: list[Payload] = results
        if content or calls or not results:
            message = Message(role="user" if role == "user" else "assistant", content=tuple(content), tool_calls=tuple(calls))
            said = [*results, Said(message=message)]
        left = rest(turn, {"role", "parts"})
        return [*said, Custom(name=f"{PROVIDER}.fields", data=left)] if left else said

    def _call(self, call: Record) -> ToolCall:
        self._calls += 1
        name, own = text_of(call.get("name")) or "", text_of(call.get("id"))
        if not own:
            own = f"call-{self._calls}"
            self._waiting.setdefault(name, []).append(own)
        return ToolCall(id=own, name=name, arguments=written(call.get("args") or {}))

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
    return [written(response)]


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
