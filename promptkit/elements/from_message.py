"""A message as the element that renders as it: a pure function, so that the same message always gives the same element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.elements.chat import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from promptkit.elements.media import Document, Image, Opaque
from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, OpaquePart

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.element import Child, PromptElement
    from promptkit.messages import Message, Part

__all__ = ["element_from_message"]


def element_from_message(
    message: Message,
    *,
    priority: float | None = None,
    required: bool = False,
    fallback: Child = None,
    text: Callable[[str], Child] | None = None,
) -> PromptElement:
    """The element that renders as `message`; cache boundaries in it are left out, since what to cache is for the prompt to say.

    `text` says how its text is shown, such as cut: its text parts are joined then, and come before its other parts.

    >>> recorded(Message(role="user", content=("Fix the parser.",)), priority=5)
    """
    content = _content(message, text)
    match message.role:
        case "system":
            return SystemMessage(priority=priority, required=required, fallback=fallback, name=message.name)[content]
        case "user":
            return UserMessage(priority=priority, required=required, fallback=fallback, name=message.name)[content]
        case "assistant":
            said = AssistantMessage(
                priority=priority, required=required, fallback=fallback, name=message.name, tool_calls=message.tool_calls
            )
            return said[content]
        case "tool":
            result = ToolMessage(
                priority=priority, required=required, fallback=fallback, name=message.name, tool_call_id=message.tool_call_id or ""
            )
            return result[content]


def _content(message: Message, text: Callable[[str], Child] | None) -> Child:
    parts = [_part(part) for part in message.content]
    if text is None:
        return parts
    return text(message.text) if message.text else None, [part for part in parts if not isinstance(part, str)]


def _part(part: Part) -> str | PromptElement | None:
    match part:
        case str():
            return part
        case ImagePart():
            return Image(src=part.url, detail=part.detail, media_type=part.media_type, width=part.width, height=part.height)
        case DocumentPart():
            return Document(data=part.data, media_type=part.media_type, filename=part.name, tokens=part.tokens)
        case OpaquePart():
            return Opaque(value=part.value, tokens=part.tokens, provider=part.provider)
        case CacheBreakpointPart():
            return None
