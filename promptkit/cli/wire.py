"""Messages and tools from the JSON forms that people have them in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeGuard, cast

from promptkit.cli.failure import refuse
from promptkit.messages import ImagePart, Json, Message, Part, Role, ToolCall, ToolDefinition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["known_fields", "read_message", "read_tool_call", "read_tool_definition"]


def read_message(given: Mapping[str, object], where: str) -> Message:
    """A Message from `{"role", "content", "name", "tool_calls", "tool_call_id"}`, the form of OpenAI's chat endpoint.

    The content is a string or a list of `text` and `image_url` parts.
    """
    data = known_fields(given, ("role", "content", "name", "tool_calls", "tool_call_id"), where)
    role = data.get("role")
    if not _is_role(role):
        refuse(f"{where}.role is {role!r}: it is one of system, user, assistant, tool.")
    calls = _list(data.get("tool_calls") or [], f"{where}.tool_calls")
    return Message(
        role=role,
        content=tuple(_parts(data.get("content"), f"{where}.content")),
        name=_optional_text(data, "name", where),
        tool_calls=tuple(
            read_tool_call(_object(call, f"{where}.tool_calls[{index}]"), f"{where}.tool_calls[{index}]")
            for index, call in enumerate(calls)
        ),
        tool_call_id=_optional_text(data, "tool_call_id", where),
    )


def read_tool_call(given: Mapping[str, object], where: str) -> ToolCall:
    """A ToolCall from `{"id", "name", "arguments"}` or OpenAI's `{"id", "type", "function": {"name", "arguments"}}`."""
    data = known_fields(_unwrapped(given, where), ("id", "name", "arguments"), where)
    arguments = data.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id=_text(data, "id", where), name=_text(data, "name", where), arguments=text)


def read_tool_definition(given: Mapping[str, object], where: str) -> ToolDefinition:
    """A ToolDefinition from `{"name", "description", "parameters", "strict"}`, or with these under `function`."""
    data = known_fields(_unwrapped(given, where), ("name", "description", "parameters", "strict"), where)
    parameters = data.get("parameters")
    strict = data.get("strict")
    return ToolDefinition(
        name=_text(data, "name", where),
        description=_optional_text(data, "description", where),
        parameters=None if parameters is None else cast("Mapping[str, Json]", _object(parameters, f"{where}.parameters")),  # came from JSON
        strict=None if strict is None else bool(strict),
    )


def known_fields(given: Mapping[str, object], allowed: Sequence[str], where: str) -> Mapping[str, object]:
    """The object itself. Refuses a field that is not allowed: a misspelt one would be lost silently."""
    for name in given:
        if name not in allowed:
            refuse(f"{where} has no field {name!r}; its fields are {', '.join(allowed)}.")
    return given


def _is_role(value: object) -> TypeGuard[Role]:
    return value in ("system", "user", "assistant", "tool")


def _unwrapped(given: Mapping[str, object], where: str) -> Mapping[str, object]:
    rest = {key: value for key, value in given.items() if key not in ("type", "function")}
    return rest | dict(_object(given["function"], f"{where}.function")) if "function" in given else rest


def _parts(content: object, where: str) -> list[Part]:
    if content is None or isinstance(content, str):
        return [content] if content else []
    parts: list[Part] = []
    for index, item in enumerate(_list(content, where)):
        match _object(item, f"{where}[{index}]"):
            case {"type": "text", "text": str(text)}:
                parts.append(text)
            case {"type": "image_url", "image_url": {"url": str(url), "detail": str(detail)}}:
                parts.append(ImagePart(url=url, detail=detail))
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                parts.append(ImagePart(url=url))
            case other:
                refuse(f"{where}[{index}] has the type {other.get('type')!r}: it is a text with `text` or an image_url with `url`.")
    return parts


def _object(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        refuse(f"{where} is {json.dumps(value)[:40]}: an object is wanted.")
    return cast("dict[str, object]", value)  # JSON objects have string keys


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        refuse(f"{where} is {json.dumps(value)[:40]}: a list is wanted.")
    return cast("list[object]", value)  # of JSON values


def _text(data: Mapping[str, object], name: str, where: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        refuse(f"{where}.{name} is {json.dumps(value)[:40]}: a string is wanted.")
    return value


def _optional_text(data: Mapping[str, object], name: str, where: str) -> str | None:
    return None if data.get(name) is None else _text(data, name, where)
