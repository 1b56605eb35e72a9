"""Read the props of a component from JSON, and convert them to the types of the component's annotations.

The conversion is lenient: plain values are passed on as they are, because the component validates
them, and annotations that exist only for type checkers are skipped. Errors name the place in the
JSON, such as `history[1].content`.
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
from promptkit.elements.element import PromptElement
from promptkit.messages import ImagePart, Json, Message, Part, Role, ToolCall, ToolDefinition

if TYPE_CHECKING:
    from pathlib import Path


def read_message(json_object: Mapping[str, object], where: str) -> Message:
    """Convert `{"role", "content", "name", "tool_calls", "tool_call_id"}`, the format of OpenAI's chat endpoint, to a Message.

    The content is a string, or a list of `text` and `image_url` parts. `where` is the place in the
    JSON, for error messages.
    """
    data = check_fields(
        json_object, ("role", "content", "name", "tool_calls", "tool_call_id"), where
    )
    role = data.get("role")
    if not _is_role(role):
        usage_error(f"invalid {where}.role {role!r}: use system, user, assistant or tool.")
    calls = _list(data.get("tool_calls") or [], f"{where}.tool_calls")
    return Message(
        role=role,
        content=tuple(_parts(data.get("content"), f"{where}.content")),
        name=_optional_text(data, "name", where),
        tool_calls=tuple(
            read_tool_call(
                _object(call, f"{where}.tool_calls[{index}]"), f"{where}.tool_calls[{index}]"
            )
            for index, call in enumerate(calls)
        ),
        tool_call_id=_optional_text(data, "tool_call_id", where),
    )


def read_tool_call(json_object: Mapping[str, object], where: str) -> ToolCall:
    """Convert `{"id", "name", "arguments"}`, or OpenAI's `{"id", "type", "function": {"name", "arguments"}}`, to a ToolCall."""
    data = check_fields(_unwrap_function(json_object, where), ("id", "name", "arguments"), where)
    arguments = data.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id=_text(data, "id", where), name=_text(data, "name", where), arguments=text)


def read_tool_definition(json_object: Mapping[str, object], where: str) -> ToolDefinition:
    """Convert `{"name", "description", "parameters", "strict"}`, or an object with these under `function`, to a ToolDefinition."""
    data = check_fields(
        _unwrap_function(json_object, where), ("name", "description", "parameters", "strict"), where
    )
    parameters = data.get("parameters")
    strict = data.get("strict")
    return ToolDefinition(
        name=_text(data, "name", where),
        description=_optional_text(data, "description", where),
        # came from JSON
        parameters=None
        if parameters is None
        else cast("Mapping[str, Json]", _object(parameters, f"{where}.parameters")),
        strict=None if strict is None else bool(strict),
    )


def check_fields(
    json_object: Mapping[str, object], allowed: Sequence[str], where: str
) -> Mapping[str, object]:
    """Return the object, or fail for a field that is not allowed: a misspelt field would be ignored silently."""
    for name in json_object:
        if name not in allowed:
            usage_error(f"unknown field {name!r} in {where}: use {', '.join(allowed)}.")
    return json_object


def _is_role(value: object) -> TypeGuard[Role]:
    return value in ("system", "user", "assistant", "tool")


def _unwrap_function(json_object: Mapping[str, object], where: str) -> Mapping[str, object]:
    rest = {key: value for key, value in json_object.items() if key not in ("type", "function")}
    return (
        rest | dict(_object(json_object["function"], f"{where}.function"))
        if "function" in json_object
        else rest
    )


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
                usage_error(
                    f"invalid {where}[{index}] of type {other.get('type')!r}: use text with `text`, or image_url with `url`."
                )
    return parts


def _object(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        usage_error(f"{where} must be an object, not {json.dumps(value)[:40]}.")
    return cast("dict[str, object]", value)  # JSON objects have string keys


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        usage_error(f"{where} must be a list, not {json.dumps(value)[:40]}.")
    return cast("list[object]", value)  # of JSON values


def _text(data: Mapping[str, object], name: str, where: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        usage_error(f"{where}.{name} must be a string, not {json.dumps(value)[:40]}.")
    return value


def _optional_text(data: Mapping[str, object], name: str, where: str) -> str | None:
    return None if data.get(name) is None else _text(data, name, where)


class _Unresolved:
    """Placeholder for a name in an annotation that exists only for type checkers."""

    def __class_getitem__(cls, item: object) -> type[_Unresolved]:
        """Return the placeholder for a subscription such as `Name[int]`, too."""
        _ = item
        return cls


# A module may import these for type checkers only. The names still identify them.
KNOWN_NAMES: Mapping[str, object] = {
    "Mapping": Mapping,
    "Message": Message,
    "Sequence": Sequence,
    "ToolCall": ToolCall,
    "ToolDefinition": ToolDefinition,
}

READERS: Mapping[object, Callable[[Mapping[str, object], str], object]] = {
    Message: read_message,
    ToolCall: read_tool_call,
    ToolDefinition: read_tool_definition,
}


def resolve_hints(owner: Callable[..., object]) -> Mapping[str, object]:
    """Return the annotations of a component, an attrs class or a function as types, without those that cannot be resolved."""
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
        # Each annotation is resolved on its own, so that one that cannot be resolved does not
        # affect the others.
        holder = SimpleNamespace(__annotations__={"hint": annotation})
        try:
            return get_type_hints(holder, globalns=dict(names), localns=missing)["hint"]
        except NameError as error:
            if not error.name or error.name in missing:
                return _Unresolved
            missing[error.name] = KNOWN_NAMES.get(error.name, _Unresolved)
        except (AttributeError, SyntaxError, TypeError):
            return _Unresolved


def convert_prop(value: object, hint: object, where: str) -> object:
    """Convert a JSON value to the type of its annotation.

    An object becomes a Message, ToolCall, ToolDefinition or attrs instance; a list becomes a tuple,
    or a list if the annotation says so. Values without a matching annotation are returned
    unchanged.

    Args:
        value: The JSON value.
        hint: The annotation, resolved by `resolve_hints`.
        where: The place in the JSON, for error messages.

    Returns:
        The converted value.

    Raises:
        click.UsageError: An object does not match its type.
    """
    if get_origin(hint) in (Union, UnionType):
        options = (convert_prop(value, option, where) for option in get_args(hint))
        return next((converted for converted in options if converted is not value), value)
    if _is_object(value):
        return _convert_object(value, hint, where)
    if _is_list(value) and (item_hint := _item_hint(hint, Sequence)):
        converted = [
            convert_prop(item, item_hint, f"{where}[{index}]") for index, item in enumerate(value)
        ]
        return converted if get_origin(hint) is list else tuple(converted)
    return value


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _convert_object(value: dict[str, object], hint: object, where: str) -> object:
    if reader := READERS.get(hint):
        return reader(value, where)
    if item_hint := _item_hint(hint, Mapping):
        return {key: convert_prop(item, item_hint, f"{where}.{key}") for key, item in value.items()}
    if inspect.isclass(hint) and attrs.has(hint) and not issubclass(hint, PromptElement):
        hints = resolve_hints(hint)
        names = {
            field.alias or field.name: field.name for field in attrs.fields(hint) if field.init
        }
        data = check_fields(value, tuple(names), where)
        return hint(
            **{
                name: convert_prop(item, hints.get(names[name]), f"{where}.{name}")
                for name, item in data.items()
            }
        )
    return value


def _item_hint(hint: object, kind: type) -> object:
    origin = get_origin(hint)
    arguments = [argument for argument in get_args(hint) if argument is not Ellipsis]
    return (
        arguments[-1]
        if arguments and inspect.isclass(origin) and issubclass(origin, kind)
        else None
    )


def read_props(path: Path | None) -> Mapping[str, object]:
    """Read props from a JSON file; `-` reads stdin, None is no props.

    Fails for anything but a JSON object.
    """
    if path is None:
        return {}
    try:
        text = (sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()).decode("utf-8")
    except OSError as error:
        usage_error(f"cannot read {path}: {error.strerror}.")
    except UnicodeDecodeError:
        usage_error(f"{path} is not UTF-8 text.")
    try:
        props: object = json.loads(text)
    except json.JSONDecodeError as error:
        usage_error(f"{path}:{error.lineno}:{error.colno}: invalid JSON: {error.msg}.")
    except RecursionError:
        usage_error(f"{path}: the JSON is nested too deeply.")
    if not isinstance(props, dict):
        usage_error(
            f'{path} contains a JSON {type(props).__name__}: use an object, such as {{"query": "…"}}.'
        )
    return cast("dict[str, object]", props)  # JSON objects have string keys
