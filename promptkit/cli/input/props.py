"""Props from JSON: plain values, and what a component's annotations say is made of them.

Messages and tools from the JSON forms that people have them in.
The props of a command line: a JSON object in a file, or on stdin.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, TypeGuard, Union, cast, get_args, get_origin, get_type_hints

import attrs

from promptkit.cli.output.errors import usage_error
from promptkit.element import PromptElement
from promptkit.messages import ImagePart, Json, Message, Part, Role, ToolCall, ToolDefinition

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["convert_prop", "resolve_hints", "check_fields", "read_message", "read_props", "read_tool_call", "read_tool_definition"]


def read_message(given: Mapping[str, object], where: str) -> Message:
    """A Message from `{"role", "content", "name", "tool_calls", "tool_call_id"}`, the form of OpenAI's chat endpoint.

    The content is a string or a list of `text` and `image_url` parts.
    """
    data = check_fields(given, ("role", "content", "name", "tool_calls", "tool_call_id"), where)
    role = data.get("role")
    if not _is_role(role):
        usage_error(f"{where}.role is {role!r}: it is one of system, user, assistant, tool.")
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
    data = check_fields(_unwrapped(given, where), ("id", "name", "arguments"), where)
    arguments = data.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id=_text(data, "id", where), name=_text(data, "name", where), arguments=text)


def read_tool_definition(given: Mapping[str, object], where: str) -> ToolDefinition:
    """A ToolDefinition from `{"name", "description", "parameters", "strict"}`, or with these under `function`."""
    data = check_fields(_unwrapped(given, where), ("name", "description", "parameters", "strict"), where)
    parameters = data.get("parameters")
    strict = data.get("strict")
    return ToolDefinition(
        name=_text(data, "name", where),
        description=_optional_text(data, "description", where),
        parameters=None if parameters is None else cast("Mapping[str, Json]", _object(parameters, f"{where}.parameters")),  # came from JSON
        strict=None if strict is None else bool(strict),
    )


def check_fields(given: Mapping[str, object], allowed: Sequence[str], where: str) -> Mapping[str, object]:
    """The object itself. Refuses a field that is not allowed: a misspelt one would be lost silently."""
    for name in given:
        if name not in allowed:
            usage_error(f"{where} has no field {name!r}; its fields are {', '.join(allowed)}.")
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
                usage_error(f"{where}[{index}] has the type {other.get('type')!r}: it is a text with `text` or an image_url with `url`.")
    return parts


def _object(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        usage_error(f"{where} is {json.dumps(value)[:40]}: an object is wanted.")
    return cast("dict[str, object]", value)  # JSON objects have string keys


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        usage_error(f"{where} is {json.dumps(value)[:40]}: a list is wanted.")
    return cast("list[object]", value)  # of JSON values


def _text(data: Mapping[str, object], name: str, where: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        usage_error(f"{where}.{name} is {json.dumps(value)[:40]}: a string is wanted.")
    return value


def _optional_text(data: Mapping[str, object], name: str, where: str) -> str | None:
    return None if data.get(name) is None else _text(data, name, where)


class _Unresolved:
    """Stands for a name in an annotation that exists for type checkers only."""

    def __class_getitem__(cls, item: object) -> type[_Unresolved]:
        """The same, whatever it is of."""
        _ = item
        return cls


# A module may import these for type checkers only; by name they are still what its author means.
VOCABULARY: Mapping[str, object] = {
    "Mapping": Mapping,
    "Message": Message,
    "Sequence": Sequence,
    "ToolCall": ToolCall,
    "ToolDefinition": ToolDefinition,
}

MAKERS: Mapping[object, Callable[[Mapping[str, object], str], object]] = {
    Message: read_message,
    ToolCall: read_tool_call,
    ToolDefinition: read_tool_definition,
}


def resolve_hints(owner: Callable[..., object]) -> Mapping[str, object]:
    """The annotations of a component, a value class or a function, as types, without those that cannot be resolved."""
    owners = reversed(owner.__mro__) if inspect.isclass(owner) else [owner]
    return {
        name: hint
        for each in owners
        for name, annotation in inspect.get_annotations(each).items()
        if (hint := _resolved(annotation, _names_of(each))) is not _Unresolved
    }


def _names_of(owner: object) -> Mapping[str, object]:
    module = sys.modules.get(getattr(owner, "__module__", None) or "")
    return vars(module) if module else {}


def _resolved(annotation: object, names: Mapping[str, object]) -> object:
    missing: dict[str, object] = {}
    while True:
        # One at a time: an annotation that only a type checker understands must not hide the others.
        lone = SimpleNamespace(__annotations__={"hint": annotation})
        try:
            return get_type_hints(lone, globalns=dict(names), localns=missing)["hint"]
        except NameError as error:
            if not error.name or error.name in missing:
                return _Unresolved
            missing[error.name] = VOCABULARY.get(error.name, _Unresolved)
        except (AttributeError, SyntaxError, TypeError):
            return _Unresolved


def convert_prop(value: object, hint: object, where: str) -> object:
    """A JSON value as its annotation wants it: an object becomes a Message, ToolCall, ToolDefinition or frozen value, a list a tuple.

    What no annotation speaks about stays as it is. Raises click.UsageError, naming `where`, for an object that does not fit.
    """
    if get_origin(hint) in (Union, UnionType):
        options = (convert_prop(value, option, where) for option in get_args(hint))
        return next((made for made in options if made is not value), value)
    if _is_object(value):
        return _from_object(value, hint, where)
    if _is_list(value) and (item_hint := _items(hint, Sequence)):
        made = [convert_prop(item, item_hint, f"{where}[{index}]") for index, item in enumerate(value)]
        return made if get_origin(hint) is list else tuple(made)
    return value


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _from_object(given: dict[str, object], hint: object, where: str) -> object:
    if maker := MAKERS.get(hint):
        return maker(given, where)
    if item_hint := _items(hint, Mapping):
        return {key: convert_prop(item, item_hint, f"{where}.{key}") for key, item in given.items()}
    if inspect.isclass(hint) and attrs.has(hint) and not issubclass(hint, PromptElement):
        hints = resolve_hints(hint)
        names = {field.alias or field.name: field.name for field in attrs.fields(hint) if field.init}
        data = check_fields(given, tuple(names), where)
        return hint(**{name: convert_prop(item, hints.get(names[name]), f"{where}.{name}") for name, item in data.items()})
    return given


def _items(hint: object, kind: type) -> object:
    origin = get_origin(hint)
    arguments = [argument for argument in get_args(hint) if argument is not Ellipsis]
    return arguments[-1] if arguments and inspect.isclass(origin) and issubclass(origin, kind) else None


def read_props(path: Path | None) -> Mapping[str, object]:
    """The props that a file holds; `-` is stdin, None is no props. Refuses what is no JSON object."""
    if path is None:
        return {}
    try:
        text = (sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()).decode("utf-8")
    except OSError as error:
        usage_error(f"{path} cannot be read: {error.strerror}.")
    except UnicodeDecodeError:
        usage_error(f"{path} is no UTF-8 text.")
    try:
        props: object = json.loads(text)
    except json.JSONDecodeError as error:
        usage_error(f"{path}:{error.lineno}:{error.colno}: no JSON: {error.msg}.")
    except RecursionError:
        usage_error(f"{path}: nested too deeply.")
    if not isinstance(props, dict):
        usage_error(f"{path} holds a JSON {type(props).__name__}: props are an object, name to value.")
    return cast("dict[str, object]", props)  # JSON objects have string keys
