"""Anthropic's content blocks: one for each part, tool call and tool result."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from promptkit.emitters.arguments import arguments_object
from promptkit.emitters.media import parse_data_url
from promptkit.emitters.parts import WireDict, formless, plain, refusal
from promptkit.messages import DocumentPart, ImagePart, Message, OpaquePart, Part, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["block", "is_blank", "tool_result", "tool_use"]

IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def is_blank(part: Part) -> bool:
    """Whether a part is text without a visible character: the API rejects a block of it."""
    return isinstance(part, str) and not part.strip()


def block(index: int, message: Message, part: Part) -> WireDict:
    """The block of one part of `messages[index]`. Raises EmitError where the part or its role has no form."""
    match part:
        case str():
            return {"type": "text", "text": part}
        case OpaquePart():
            return plain(part.value)  # type: ignore[no-any-return]  # an opaque part is the caller's word for it
        case ImagePart() if message.role in ("user", "tool"):
            return {"type": "image", "source": _image_source(index, message, part)}
        case DocumentPart() if message.role in ("user", "tool"):
            title = {} if part.name is None else {"title": part.name}
            return {"type": "document", "source": _document_source(index, message, part), **title}
        case _:
            raise formless(index, message, part, "anthropic")


def tool_use(index: int, message: Message, call: ToolCall) -> WireDict:
    """The block of a tool call. Raises EmitError, with the call's id, for arguments that are no JSON object."""
    try:
        arguments = arguments_object(call.arguments)
    except ValueError as error:
        what = f"a call {call.id!r} of {call.name} with arguments that cannot be sent as an object ({error})"
        raise refusal(index, message, what, "anthropic", "mend the arguments or leave out the call with its result") from error
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def tool_result(index: int, message: Message, parts: Sequence[Part]) -> WireDict:
    """The block of a tool message with these parts. All text is one string; without content the key is absent."""
    result: WireDict = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    if all(isinstance(part, str) for part in parts):
        text = "".join(part for part in parts if isinstance(part, str))
        return result if is_blank(text) else result | {"content": text}
    return result | {"content": [block(index, message, part) for part in parts if not is_blank(part)]}


def _image_source(index: int, message: Message, part: ImagePart) -> WireDict:
    inline = parse_data_url(part.url)
    if inline is None:
        if part.url[:8].lower().startswith(("https://", "http://")):
            return {"type": "url", "url": part.url}
        what = f"an image at {part.url[:40]!r}"
        raise refusal(index, message, what, "anthropic", "give an http or https URL, or the bytes as a base64 data: URL")
    if not inline.is_base64:
        raise refusal(index, message, "an image in a data: URL without base64", "anthropic", "encode its bytes in base64")
    media_type = inline.media_type or part.media_type or "nothing"
    media_type = "image/jpeg" if media_type == "image/jpg" else media_type
    if media_type not in IMAGES:
        raise refusal(index, message, f"an image of the type {media_type}", "anthropic", "convert it to PNG, JPEG, GIF or WebP")
    return {"type": "base64", "media_type": media_type, "data": inline.data}


def _document_source(index: int, message: Message, part: DocumentPart) -> WireDict:
    media_type = part.media_type.partition(";")[0].strip().lower()
    if media_type == "application/pdf":
        return {"type": "base64", "media_type": media_type, "data": part.data}
    if not media_type.startswith("text/"):
        what = f"a document of the type {part.media_type}"
        raise refusal(index, message, what, "anthropic", "give it as a PDF or as text")
    try:
        text = base64.b64decode(part.data, validate=True).decode()
    except ValueError as error:
        what = f"a document of the type {part.media_type} that is no UTF-8 in base64"
        raise refusal(index, message, what, "anthropic", "encode its text in UTF-8, then in base64") from error
    return {"type": "text", "media_type": "text/plain", "data": text}
