"""A recorded message as an element: a pure function, so that the same message always gives the same element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit import (
    AssistantMessage,
    BoundaryPart,
    Child,
    Document,
    DocumentPart,
    Image,
    ImagePart,
    Message,
    Opaque,
    OpaquePart,
    PromptElement,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from promptkit_components.cut import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["recorded"]


def recorded(message: Message, *, priority: float | None = None, truncate_at: int | None = None, fallback: Child = None) -> PromptElement:
    """The element that renders as `message`; cache boundaries in it are left out. `truncate_at` tokens limit a tool message's text."""
    content = [_part(part) for part in message.content]
    match message.role:
        case "system":
            return SystemMessage(priority=priority, fallback=fallback, name=message.name)[content]
        case "user":
            return UserMessage(priority=priority, fallback=fallback, name=message.name)[content]
        case "assistant":
            return AssistantMessage(priority=priority, fallback=fallback, name=message.name, tool_calls=message.tool_calls)[content]
        case "tool":
            bare = ToolMessage(priority=priority, fallback=fallback, name=message.name, tool_call_id=message.tool_call_id or "")
            return bare[_cut_text(content, truncate_at)]


def _part(part: str | ImagePart | DocumentPart | OpaquePart | BoundaryPart) -> str | PromptElement | None:
    match part:
        case str():
            return part
        case ImagePart():
            return Image(src=part.url, detail=part.detail, media_type=part.media_type, width=part.width, height=part.height)
        case DocumentPart():
            return Document(data=part.data, media_type=part.media_type, filename=part.name, tokens=part.tokens)
        case OpaquePart():
            return Opaque(value=part.value, tokens=part.tokens, provider=part.provider)
        case BoundaryPart():
            return None


def _cut_text(content: Sequence[str | PromptElement | None], truncate_at: int | None) -> Child:
    if truncate_at is None:
        return content
    text = "".join(part for part in content if isinstance(part, str))
    media = [part for part in content if not isinstance(part, str)]
    return (cut(text, truncate_at) if text else None, media)
