"""What all emitters share: checks, the selection of parts, errors, JSON copies, tool call arguments and `data:` URLs."""

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
    "Payload",
    "WireDict",
    "WireFormat",
    "check_messages",
    "copy_json",
    "parse_arguments",
    "parse_data_url",
    "select_parts",
    "unsupported_error",
    "unsupported_part_error",
]


WireFormat: TypeAlias = Literal["chat", "responses", "anthropic"]
"""The wire format of a provider's API."""

WireDict: TypeAlias = dict[str, Any]  # Any: a dict is assignable to the SDKs' TypedDicts only if its values are Any
"""One JSON object of a request."""

Payload: TypeAlias = list[Any]  # Any: a list of dicts is not assignable to the SDKs' lists of TypedDicts, a list of Any is
"""One JSON array of a request, such as its messages."""


def check_messages(messages: Sequence[Message], target: WireFormat) -> None:
    """Raise EmitError if a message has tool calls but is not an assistant message, or if a tool message has no call id."""
    for index, message in enumerate(messages):
        if message.tool_calls and message.role != "assistant":
            raise unsupported_error(
                index, message, "tool calls", target, "only assistant messages have tool calls, so use the role assistant"
            )
        if message.role == "tool" and message.tool_call_id is None:
            raise unsupported_error(
                index, message, "no tool_call_id", target, "set it to the id of the tool call that this message answers"
            )


def select_parts(message: Message, target: WireFormat, *, cache: bool = True) -> list[Part]:
    """Select the parts of a message that a wire format can express.

    Adjacent texts are joined. Empty texts and opaque parts of other providers are dropped. Texts on either side of a part that is
    dropped stay apart, because they are counted apart.

    Args:
        message: The message.
        target: The wire format.
        cache: Whether cache breakpoints are kept.
    """
    parts: list[Part] = []
    text: list[str] = []
    for part in message.content:
        if isinstance(part, str):
            text.append(part)
            continue
        if joined := "".join(text):
            parts.append(joined)
        text = []
        dropped = (isinstance(part, OpaquePart) and part.provider not in (None, target)) or (
            isinstance(part, CacheBreakpointPart) and not cache
        )
        if not dropped:
            parts.append(part)
    if joined := "".join(text):
        parts.append(joined)
    return parts


def unsupported_error(index: int, message: Message, what: str, target: WireFormat, advice: str) -> EmitError:
    """Create the error for content that a wire format does not accept.

    Args:
        index: The index of the message.
        message: The message.
        what: The content, as a noun phrase.
        target: The wire format.
        advice: What to do instead, as an imperative clause.
    """
    return EmitError(f"messages[{index}] ({message.role}) has {what}, which {FORMAT_NAMES[target]} does not accept: {advice}.")


def unsupported_part_error(index: int, message: Message, part: Part, target: WireFormat) -> EmitError:
    """Create the error for an image or a document in a message whose role does not allow it."""
    advice = "put it into a user message after the tool results" if message.role == "tool" else "put it into a user message"
    return unsupported_error(index, message, "an image" if isinstance(part, ImagePart) else "a document", target, advice)


FORMAT_NAMES: Mapping[WireFormat, str] = {
    "chat": "Chat Completions",
    "responses": "the Responses API",
    "anthropic": "Anthropic's Messages API",
}


def copy_json(value: Json) -> Any:  # noqa: ANN401  # Any: the result is passed where the SDKs declare TypedDicts
    """Copy a JSON value deeply into dicts and lists, whatever mappings it consists of. Works without recursion."""
    root: list[Json] = [value]
    todo: list[list[Json] | dict[str, Json]] = [root]
    while todo:
        holder = todo.pop()
        if isinstance(holder, dict):
            for key, item in holder.items():
                holder[key] = _copy_item(item, todo)
        else:
            holder[:] = [_copy_item(item, todo) for item in holder]
    return root[0]


def _copy_item(item: Json, todo: list[list[Json] | dict[str, Json]]) -> Json:
    if isinstance(item, Mapping):
        todo.append(dict(item))
    elif isinstance(item, list | tuple):
        todo.append(list(item))
    else:
        return item
    return todo[-1]


def parse_arguments(text: str) -> dict[str, Json]:
    """Parse the arguments of a tool call, for wire formats that need an object instead of the model's text.

    Empty text, which some models write for no arguments, is an empty object. Integers keep every digit; a fraction becomes the
    nearest double, as in every JSON reader.

    Raises:
        ValueError: The text is not a JSON object, or the model would receive it changed: an object has a key twice, a number is
            beyond the range of doubles, or a number is NaN.
    """
    if not text.strip():
        return {}
    try:
        value: object = json.loads(text, object_pairs_hook=_build_object, parse_float=_parse_finite_float, parse_constant=_reject_constant)
    except RecursionError:
        message = "they are nested too deeply"
        raise ValueError(message) from None
    if not isinstance(value, dict):
        message = f"they are JSON but not an object: {text[:40]}{'…' if len(text) > 40 else ''}"  # noqa: PLR2004  # characters
        raise ValueError(message)  # noqa: TRY004  # the caller handles one kind of error
    return cast("dict[str, Json]", value)  # json.loads returns JSON


def _build_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result: dict[str, Json] = {}
    for key, value in pairs:
        if key in result:
            message = f"the key {key!r} occurs twice in one object"
            raise ValueError(message)
        result[key] = value
    return result


def _parse_finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        message = f"the number {digits} is beyond the range of doubles"
        raise ValueError(message)
    return number


def _reject_constant(name: str) -> Json:
    message = f"{name} is not JSON"
    raise ValueError(message)


class DataUrl(NamedTuple):
    """The components of a `data:` URL (RFC 2397). `media_type` is empty if the URL has none; `data` is not decoded."""

    media_type: str
    is_base64: bool
    data: str


def parse_data_url(url: str) -> DataUrl | None:
    """Parse a `data:` URL. Returns None for any other URL."""
    if url[:5].lower() != "data:":
        return None
    head, _, data = url[5:].partition(",")
    media_type, *fields = head.split(";")
    return DataUrl(media_type.strip().lower(), is_base64="base64" in {field.strip().lower() for field in fields}, data=data)
