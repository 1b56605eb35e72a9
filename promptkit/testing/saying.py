"""Whether an element says anything, as far as that can be told without rendering it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.elements.chat import AssistantMessage, SystemMessage, UserMessage
from promptkit.elements.layout import Chunk, First, Group, IfEmpty, Isolate, KeepWith, LegacyPrioritization, PrioritizedList, TokenLimit
from promptkit.elements.media import Metadata, Reference
from promptkit.elements.text import Tag, Text, TextChunk

if TYPE_CHECKING:
    from promptkit.element import PromptElement

__all__ = ["meant", "says"]

_SAYS_WHAT_ITS_CHILDREN_SAY = (
    Chunk,
    First,
    Group,
    Isolate,
    KeepWith,
    LegacyPrioritization,
    PrioritizedList,
    SystemMessage,
    Text,
    TextChunk,
    TokenLimit,
    UserMessage,
)


def meant(element: PromptElement) -> PromptElement:
    """The element, required only if it says something: that nothing must stay is a contradiction that no test should turn on."""
    return element.replace(required=False) if element.required and not says(element) else element


def says(element: PromptElement) -> bool:
    """Whether an element shows anything but white space. What only a render can tell is taken to."""
    stack: list[str | PromptElement | None] = [element]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if item.strip():
                return True
        elif (
            isinstance(item, _SAYS_WHAT_ITS_CHILDREN_SAY)
            or (isinstance(item, AssistantMessage) and not item.tool_calls)
            or (isinstance(item, Tag | IfEmpty) and item.children)
        ):
            stack.extend(item.children)
        elif item is not None and not isinstance(item, Reference | Metadata):
            return True
    return False
