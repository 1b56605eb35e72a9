"""Props from JSON: plain values, and what a component's annotations say is made of them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace, UnionType
from typing import TypeGuard, Union, get_args, get_origin, get_type_hints

import attrs

from promptkit.cli.wire import known_fields, read_message, read_tool_call, read_tool_definition
from promptkit.element import PromptElement
from promptkit.messages import Message, ToolCall, ToolDefinition

__all__ = ["convert", "hints_of"]


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


def hints_of(owner: Callable[..., object]) -> Mapping[str, object]:
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


def convert(value: object, hint: object, where: str) -> object:
    """A JSON value as its annotation wants it: an object becomes a Message, ToolCall, ToolDefinition or frozen value, a list a tuple.

    What no annotation speaks about stays as it is. Raises click.UsageError, naming `where`, for an object that does not fit.
    """
    if get_origin(hint) in (Union, UnionType):
        options = (convert(value, option, where) for option in get_args(hint))
        return next((made for made in options if made is not value), value)
    if _is_object(value):
        return _from_object(value, hint, where)
    if _is_list(value) and (item_hint := _items(hint, Sequence)):
        made = [convert(item, item_hint, f"{where}[{index}]") for index, item in enumerate(value)]
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
        return {key: convert(item, item_hint, f"{where}.{key}") for key, item in given.items()}
    if inspect.isclass(hint) and attrs.has(hint) and not issubclass(hint, PromptElement):
        hints = hints_of(hint)
        names = {field.alias or field.name: field.name for field in attrs.fields(hint) if field.init}
        data = known_fields(given, tuple(names), where)
        return hint(**{name: convert(item, hints.get(names[name]), f"{where}.{name}") for name, item in data.items()})
    return given


def _items(hint: object, kind: type) -> object:
    origin = get_origin(hint)
    arguments = [argument for argument in get_args(hint) if argument is not Ellipsis]
    return arguments[-1] if arguments and inspect.isclass(origin) and issubclass(origin, kind) else None
