"""What all emitters do with a message's parts before they give them a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from promptkit.errors import EmitError
from promptkit.messages import BoundaryPart, ImagePart, Json, Message, OpaquePart, Part

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Format", "Payload", "WireDict", "check", "formless", "plain", "refusal", "visible"]

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
        if isinstance(part, BoundaryPart) and not cache:
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
