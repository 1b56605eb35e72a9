"""The SDKs' own parameter types, made strict: an unknown key, a missing one or a wrong value anywhere inside fails at once.

As they stand, pydantic would ignore unknown keys of their TypedDicts and look into their Iterables
lazily, that is never.
"""

from __future__ import annotations

import collections.abc
import types
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import anthropic.types
import openai.types.chat
import openai.types.responses
from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import TypedDict, is_typeddict

if TYPE_CHECKING:
    from collections.abc import Mapping

Hint: TypeAlias = Any  # Any: there is no type of type expressions


Kind: TypeAlias = Literal[
    "chat",
    "responses",
    "anthropic",
    "anthropic system",
    "chat tools",
    "responses tools",
    "anthropic tools",
]

ITEMS: Mapping[Kind, Hint] = {
    "chat": openai.types.chat.ChatCompletionMessageParam,
    "responses": openai.types.responses.ResponseInputItemParam,
    "anthropic": anthropic.types.MessageParam,
    "anthropic system": anthropic.types.TextBlockParam,
    "chat tools": openai.types.chat.ChatCompletionToolUnionParam,
    "responses tools": openai.types.responses.ToolParam,
    "anthropic tools": anthropic.types.ToolUnionParam,
}


@cache
def adapter(kind: Kind) -> TypeAdapter[Any]:
    """Validates a whole list: `adapter(kind).validate_python(emitted, strict=True)`."""
    return TypeAdapter(_subscribed(list, strict(ITEMS[kind], {})))


def strict(hint: Hint, seen: dict[Hint, Hint]) -> Hint:
    """The same type, with TypedDicts that forbid unknown keys, lists for Iterables, and no response models in its unions."""
    if is_typeddict(hint):
        # none of the SDKs' types holds itself; one that did would end in a RecursionError, not in a
        # lax check
        if hint not in seen:
            seen[hint] = _strict_dict(hint, seen)
        return seen[hint]
    origin: Hint = get_origin(hint)
    arguments = get_args(hint)
    if origin in (Union, types.UnionType):
        kept = tuple(strict(argument, seen) for argument in arguments if not _is_model(argument))
        return Union[kept]  # noqa: UP007  # of members that are found at run time
    if origin is Annotated:
        return strict(arguments[0], seen)
    if origin is collections.abc.Iterable or getattr(origin, "__name__", "") == "SequenceNotStr":
        return _subscribed(list, strict(arguments[0], seen))
    if origin in (list, dict):
        return _subscribed(origin, *(strict(argument, seen) for argument in arguments))
    return hint


def _subscribed(generic: Hint, *arguments: Hint) -> Hint:
    return generic[arguments]


def _strict_dict(hint: Hint, seen: dict[Hint, Hint]) -> Hint:
    fields: dict[str, Hint] = {}
    for key, value in get_type_hints(hint, include_extras=True).items():
        # The SDKs' annotations are strings, in which the TypedDict itself does not see Required.
        origin: Hint = get_origin(value)
        wrapped = origin in (Required, NotRequired)
        required = origin is Required if wrapped else key in hint.__required_keys__
        fields[key] = (Required if required else NotRequired)[
            strict(get_args(value)[0] if wrapped else value, seen)
        ]
    make: Hint = TypedDict  # to a checker, a TypedDict whose fields are found at run time is none
    made = make(hint.__name__, fields)
    made.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    return made


def _is_model(hint: Hint) -> bool:
    origin: Hint = get_origin(hint)
    members = get_args(get_args(hint)[0]) if origin is Annotated else (hint,)
    return any(isinstance(member, type) and issubclass(member, BaseModel) for member in members)
