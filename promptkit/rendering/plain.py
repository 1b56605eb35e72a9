"""Elements that need no node: a message that is one text, a piece of text, an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.elements.chat import AssistantMessage
from promptkit.elements.media import Document, Image, Opaque
from promptkit.elements.text import Text, TextChunk
from promptkit.rendering.making import part_of, priority_of
from promptkit.rendering.tree import ALWAYS, FIRST, NEVER, Atom, Leaf, Node

if TYPE_CHECKING:
    from promptkit.element import PromptElement
    from promptkit.messages import Role

__all__ = ["PLAIN_LEAVES", "plain_leaf", "plain_message"]

PLAIN_LEAVES = frozenset({TextChunk, Text, Image, Document, Opaque})


def _is_plain(element: PromptElement) -> bool:
    """Whether an element has no layout props but a priority."""
    return (
        not element.required
        and element.fallback is None
        and element.flex_grow is None
        and element.flex_basis == 1
        and element.flex_reserve is None
        and not element.pass_priority
    )


def plain_message(element: PromptElement, role: Role, parent: Node) -> Atom | None:
    """A message that is one text that is not blank, without props that pruning or sizing would have to look at."""
    children = element.children
    if len(children) != 1:
        return None
    text = children[0]
    if type(text) is not str or not text or text.isspace() or not _is_plain(element):
        return None
    if isinstance(element, AssistantMessage) and element.tool_calls:
        return None
    if parent.standby:
        return None  # a fallback may go when more comes back, which only a node can tell
    priority = priority_of(element, parent)
    return Atom(element, role, text, priority)


def plain_leaf(parent: Node, element: PromptElement) -> Leaf | None:
    """An element that can stand in its container as a bare leaf: a TextChunk or Text of strings, an image, a document, an opaque part."""
    if not _is_plain(element):
        return None
    priority = priority_of(element, parent)
    if isinstance(element, TextChunk | Text):
        if isinstance(element, TextChunk) and (element.break_on is not None or element.break_on_whitespace):
            return None
        strings = [child for child in element.children if isinstance(child, str)]
        if len(strings) != len([child for child in element.children if child is not None]):
            return None
        text = strings[0] if len(strings) == 1 else "".join(strings)
        return Leaf(parent, text, priority, ALWAYS if isinstance(element, TextChunk) else FIRST, element=element)
    leaf = Leaf(parent, "", priority, NEVER, part=part_of(element), element=element)
    leaf.sized = not isinstance(element, Opaque)
    return leaf
