"""Messages as elements: the element that renders as a given message."""

from __future__ import annotations

from collections.abc import Callable

from promptkit.elements.builtin import (
    AssistantMessage,
    Document,
    Image,
    Opaque,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from promptkit.elements.element import Child, PromptElement
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
)


def element_from_message(
    message: Message,
    *,
    priority: float | None = None,
    required: bool = False,
    fallback: Child = None,
    text: Callable[[str], Child] | None = None,
) -> PromptElement:
    """Return the element that renders as a message.

    Cache breakpoints of the message are dropped: the prompt sets its own.

    Args:
        message: The message.
        priority: The priority of the element.
        required: Whether the element is never pruned.
        fallback: The replacement of the element once it is pruned.
        text: Returns what to show for the message's text, for example a truncated text. The text
            parts are then joined and come before the other parts. None shows all parts as they are.

    >>> element_from_message(Message(role="user", content=("Fix the parser.",)), priority=5)
    """
    content = _build_content(message, text)
    name = message.name or None
    match message.role:
        case "system":
            element: PromptElement = SystemMessage(name=name)
        case "user":
            element = UserMessage(name=name)
        case "assistant":
            element = AssistantMessage(name=name, tool_calls=message.tool_calls)
        case "tool":
            element = ToolMessage(name=name, tool_call_id=message.tool_call_id or "")
    return element.layout(priority=priority, required=required, fallback=fallback)[content]


def _build_content(message: Message, text: Callable[[str], Child] | None) -> Child:
    parts = [_build_part(part) for part in message.content]
    if text is None:
        return parts
    return text(message.text) if message.text else None, [
        part for part in parts if not isinstance(part, str)
    ]


def _build_part(part: Part) -> str | PromptElement | None:
    match part:
        case str():
            return part
        case ImagePart():
            return Image(
                url=part.url,
                detail=part.detail,
                media_type=part.media_type,
                width=part.width,
                height=part.height,
            )
        case DocumentPart():
            return Document(
                data=part.data, media_type=part.media_type, name=part.name, tokens=part.tokens
            )
        case OpaquePart():
            return Opaque(value=part.value, tokens=part.tokens, provider=part.provider)
        case CacheBreakpointPart():
            return None
