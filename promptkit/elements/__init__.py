"""The built-in elements. Every prompt consists of them, and components render to them.

* Messages: `SystemMessage`, `UserMessage`, `AssistantMessage`, `ToolMessage`, `ToolRound`
* Layout: `Group`, `Chunk`, `PrioritizedList`, `LegacyPrioritization`, `TokenLimit`, `KeepWith`, `IfEmpty`, `First`, `Reserve`,
  `Isolate`, `CacheBreakpoint`
* Text: `Text`, `TextChunk`, `Tag`, `Truncate`, `Expandable`
* Media: `Image`, `Document`, `Opaque`
* Data about a prompt: `Reference`, `Metadata`
* Templates: `Template`
* Recorded messages: `element_from_message`
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from promptkit.elements.chat import AssistantMessage, SystemMessage, ToolMessage, ToolRound, UserMessage
from promptkit.elements.layout import (
    CacheBreakpoint,
    Chunk,
    First,
    Group,
    IfEmpty,
    Isolate,
    KeepWith,
    LegacyPrioritization,
    PrioritizedList,
    Reserve,
    TokenLimit,
)
from promptkit.elements.media import Document, Image, Metadata, Opaque, Reference
from promptkit.elements.text import Expandable, Tag, Text, TextChunk, Truncate

if TYPE_CHECKING:
    from promptkit.elements.from_message import element_from_message
    from promptkit.elements.template.template import Template

__all__ = [
    "AssistantMessage",
    "CacheBreakpoint",
    "Chunk",
    "Document",
    "Expandable",
    "First",
    "Group",
    "IfEmpty",
    "Image",
    "Isolate",
    "KeepWith",
    "LegacyPrioritization",
    "Metadata",
    "Opaque",
    "PrioritizedList",
    "Reference",
    "Reserve",
    "SystemMessage",
    "Tag",
    "Template",
    "Text",
    "TextChunk",
    "TokenLimit",
    "ToolMessage",
    "ToolRound",
    "Truncate",
    "UserMessage",
    "element_from_message",
]

_LAZY = {"Template": "promptkit.elements.template.template", "element_from_message": "promptkit.elements.from_message"}
"""Names that `import promptkit` does not load → their modules."""


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(module), name)
    globals()[name] = value  # the next lookup finds it without this function
    return value
