"""What all emitters do with a message's parts before they give them a form.

Tool call arguments as a JSON object, for wire formats that want one instead of the model's text.
What stands in a `data:` URL.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from promptkit.errors import EmitError
from promptkit.messages import CacheBreakpointPart, ImagePart, Json, Message, OpaquePart, Part

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "DataUrl",
    "Format",
    "Payload",
    "WireDict",
    "arguments_object",
    "check",
    "formless",
    "parse_data_url",
    "plain",
    "refusal",
    "visible",
]


Format: TypeAlias = Literal["chat", "responses", "anthropic"]

WireDict: TypeAlias = dict[str, Any]  # Any: the SDKs' TypedDicts take a dict only where its values are Any
"""One JSON object of a request."""

Payload: TypeAlias = list[Any]  # Any: a list of dicts is assignable to no list of the SDKs' TypedDicts, a list of Any is
"""One JSON array of a request, such as its messages."""

FORMATS: Mapping[Format, str] = {"chat": "Chat Completions", "responses": "the Responses API", "anthropic": "Anthropic's Messages API"}


def visible(message: Message, target: Format, *, cache: bool = True) -> list[Part]:
    """The parts that have a say in a format: neighbouring text joined, empty text and other providers' opaque parts left out.

    Without `cache`, cache boundaries are left out, too.
    """
    parts: list[Part] = []
    text: list[str] = []
    for part in message.content:
        if isinstance(part, str):
            text.append(part)
            continue
        if isinstance(part, OpaquePart) and part.provider not in (None, target):
            continue
        if isinstance(part, CacheBreakpointPart) and not cache:
            continue
        if joined := "".join(text):
            parts.append(joined)
        text = []
        parts.append(part)
    if joined := "".join(text):
        parts.append(joined)
    return parts


def check(messages: Sequence[Message], target: Format) -> None:
    """Raise EmitError where a message has tool calls or misses a call id that its role does not allow."""
    for index, message in enumerate(messages):
        if message.tool_calls and message.role != "assistant":
            raise refusal(index, message, "tool calls", target, "only assistant messages make calls: give it the role assistant")
        if message.role == "tool" and message.tool_call_id is None:
            raise refusal(index, message, "no tool_call_id", target, "set it to the id of the call that this message answers")


def refusal(index: int, message: Message, what: str, target: Format, advice: str) -> EmitError:
    """The error that says which message (counted from 0) has what that has no form in a format, and what to do."""
    return EmitError(f"messages[{index}] ({message.role}) has {what}, which {FORMATS[target]} has no form for: {advice}.")


def formless(index: int, message: Message, part: Part, target: Format) -> EmitError:
    """The refusal of an image or a document in a role that cannot carry it."""
    advice = "put it into a user message after the results" if message.role == "tool" else "put it into a user message"
    return refusal(index, message, "an image" if isinstance(part, ImagePart) else "a document", target, advice)


def plain(value: Json) -> Any:  # noqa: ANN401  # Any: it goes where the SDKs ask for TypedDicts
    """A deep copy in dicts and lists, whatever mappings the value is made of; made without recursion."""
    root: list[Json] = [value]
    todo: list[list[Json] | dict[str, Json]] = [root]
    while todo:
        holder = todo.pop()
        if isinstance(holder, dict):
            for key, item in holder.items():
                holder[key] = _copied(item, todo)
        else:
            holder[:] = [_copied(item, todo) for item in holder]
    return root[0]


def _copied(item: Json, todo: list[list[Json] | dict[str, Json]]) -> Json:
    if isinstance(item, Mapping):
        todo.append(dict(item))
    elif isinstance(item, list | tuple):
        todo.append(list(item))
    else:
        return item
    return todo[-1]


def arguments_object(text: str) -> dict[str, Json]:
    """The object that arguments say; empty text, which some models write for no arguments, is an empty object.

    Integers keep every digit; a fraction becomes the nearest double, as in every JSON reader. Raises ValueError, with the reason,
    for anything that is no JSON object and for what would reach the model changed: a key twice in one object, a number beyond the
    range of doubles, NaN.
    """
    if not text.strip():
        return {}
    try:
        value: object = json.loads(text, object_pairs_hook=_object, parse_float=_finite, parse_constant=_constant)
    except RecursionError:
        message = "they are nested too deeply to be read"
        raise ValueError(message) from None
    if not isinstance(value, dict):
        message = f"they are JSON, but not an object: {text[:40]}{'…' if len(text) > 40 else ''}"  # noqa: PLR2004  # characters
        raise ValueError(message)  # noqa: TRY004  # one kind of error for one kind of failure
    return cast("dict[str, Json]", value)  # what json.loads returns is JSON


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in pairs:
        if key in found:
            message = f"the key {key!r} stands twice in one object"
            raise ValueError(message)
        found[key] = value
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        message = f"the number {digits} is beyond the range of doubles"
        raise ValueError(message)
    return number


def _constant(name: str) -> Json:
    message = f"{name} is no JSON"
    raise ValueError(message)


class DataUrl(NamedTuple):
    """A `data:` URL, taken apart (RFC 2397). `media_type` is empty where the URL names none; `data` is as it stands."""

    media_type: str
    is_base64: bool
    data: str


def parse_data_url(url: str) -> DataUrl | None:
    """The parts of a `data:` URL; None for any other URL."""
    if url[:5].lower() != "data:":
        return None
    head, _, data = url[5:].partition(",")
    media_type, *fields = head.split(";")
    return DataUrl(media_type.strip().lower(), is_base64="base64" in {field.strip().lower() for field in fields}, data=data)
