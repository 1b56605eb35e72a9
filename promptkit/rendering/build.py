"""Nodes and leaves made from elements, and what is checked on the way.

Elements that need no node: a message that is one text, a piece of text, an image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.element import PromptElement, flatten
from promptkit.elements import chat, layout, media
from promptkit.elements.chat import AssistantMessage
from promptkit.elements.media import Document, Image, Opaque
from promptkit.elements.text import Text, TextChunk
from promptkit.errors import BadChildError, BadPropError, TreeError
from promptkit.messages import DocumentPart, ImagePart, OpaquePart
from promptkit.rendering.tree import STARTS_LINE_ALWAYS, STARTS_LINE_FIRST, HIGHEST_PRIORITY, STARTS_LINE_NEVER, TextMessage, Leaf, Node, format_path

if TYPE_CHECKING:
    from promptkit.element import Child
    from promptkit.messages import Role

__all__ = ["PLAIN_LEAVES", "clear_node", "wrap_in_group", "make_node", "build_part", "build_leaf", "build_text_message", "read_priority", "add_text"]


def wrap_in_group(child: Child, node: Node) -> PromptElement:
    """A container around a child that is a prop."""
    try:
        children = flatten(child, type(node.element).__name__)
    except BadChildError as error:
        error.locate(format_path(node))
        raise
    return layout.Group().replace(children=children)


def read_priority(element: PromptElement, parent: Node) -> float:
    """An element's priority, where it has one."""
    priority = element.priority
    if priority is None:
        return 0 if element.pass_priority else HIGHEST_PRIORITY
    if not _is_number(priority):
        problem = f"priority must be a number, not {priority!r}."
        raise BadPropError(problem, path=f"{format_path(parent)} > {type(element).__name__}".removeprefix(" > "))
    return priority


def _is_number(value: object) -> bool:
    """Whether a prop that checkers take for a number is one: callers may be unchecked, and NaN is a float."""
    return isinstance(value, int | float) and value == value  # noqa: PLR0124  # NaN differs from itself


def make_node(element: PromptElement, parent: Node) -> Node:
    """A node for an element, standing as the parent's next item."""
    node = Node(element, parent, read_priority(element, parent))
    if element.priority is None:
        node.text_priority = HIGHEST_PRIORITY
    if element.pass_priority:
        node.passes_priority = True
    if element.required:
        node.required = True
    if parent.in_fallback:
        node.in_fallback = True
    parent.adopt(node)
    _check(element, node)
    if isinstance(element, _ARRANGING):
        _arrange(element, node)
    return node


_ARRANGING = (
    layout.Chunk,
    layout.Isolate,
    layout.KeepWith,
    layout.LegacyPrioritization,
    layout.Reserve,
    layout.TokenLimit,
    chat.ToolRound,
)


def _arrange(element: PromptElement, node: Node) -> None:
    """What an element of layout.py asks of pruning."""
    if isinstance(element, layout.TokenLimit):
        _at_least_0("max_tokens", element.max_tokens, node)
        node.limit = element.max_tokens
    elif isinstance(element, layout.Isolate):
        _at_least_0("tokens", element.tokens, node)
        node.limit = node.budget = element.tokens
        node.atomic = True
    elif isinstance(element, layout.Reserve):
        _at_least_0("tokens", element.tokens, node)
        if node.in_fallback:
            message = "a Reserve cannot stand in a fallback: room is kept from the start, or not at all."
            raise BadPropError(message, path=format_path(node))
        node.reserve = element.tokens
        node.required = True
    elif isinstance(element, layout.KeepWith):
        node.keep_groups = (element.group,)
    elif isinstance(element, layout.LegacyPrioritization):
        node.legacy = True
    else:
        node.atomic = not node.passes_priority


def _at_least_0(prop: str, tokens: int, node: Node) -> None:
    if not tokens >= 0:
        message = f"{prop} must be at least 0 tokens, not {tokens}."
        raise BadPropError(message, path=format_path(node))


def _check(element: PromptElement, node: Node) -> None:
    if element.flex_basis == 1 and element.flex_reserve is None and element.flex_grow is None:
        return
    reserve = element.flex_reserve
    problem = ""
    if isinstance(reserve, str):
        if not (reserve.startswith("/") and reserve[1:].isdecimal() and int(reserve[1:])):
            problem = f'flex_reserve {reserve!r} is neither a number of tokens nor "/N".'
    elif reserve is not None and not reserve >= 0:
        problem = f"flex_reserve must be at least 0 tokens, not {reserve}."
    if not 0 <= element.flex_basis < float("inf"):
        problem = f"flex_basis must be a finite number of at least 0, not {element.flex_basis}."
    if element.flex_grow is not None and element.flex_grow != element.flex_grow:
        problem = "flex_grow is not a number: use a finite number, or leave it out."
    if problem:
        raise BadPropError(problem, path=format_path(node))


def add_text(node: Node, content: str, breaks: int) -> Leaf:
    """A node's next item: text. Raises TreeError outside a message."""
    if node.message is None and not node.fragment and content.strip():
        message = f"{content[:40]!r} stands outside a message: put it into a message."
        raise TreeError(message, path=format_path(node))
    leaf = Leaf(node, content, node.text_priority, breaks)
    node.items.append(leaf)
    return leaf


def clear_node(node: Node) -> None:
    """Take everything out of a node."""
    node.items = []
    node.nodes = []
    node.removed_at = []
    node.layout = None
    node.used = node.own_size = None


_MAGIC = {"/9j/": "image/jpeg", "iVBOR": "image/png", "R0lGOD": "image/gif", "UklGR": "image/webp"}


def build_part(element: PromptElement) -> ImagePart | DocumentPart | OpaquePart:
    """The content part that a media element stands for."""
    if isinstance(element, media.Image):
        found = next((kind for magic, kind in _MAGIC.items() if element.src.startswith(magic)), None)
        url = f"data:{element.media_type or found};base64,{element.src}" if found else element.src
        return ImagePart(url=url, detail=element.detail, media_type=element.media_type, width=element.width, height=element.height)
    if isinstance(element, media.Document):
        return DocumentPart(data=element.data, media_type=element.media_type, name=element.filename, tokens=element.tokens)
    if isinstance(element, media.Opaque):
        return OpaquePart(value=element.value, tokens=element.tokens, provider=element.provider)
    message = f"{type(element).__name__} is no media element."
    raise TypeError(message)


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


def build_text_message(element: PromptElement, role: Role, parent: Node) -> TextMessage | None:
    """A message that is one text that is not blank, without props that pruning or sizing would have to look at."""
    children = element.children
    if len(children) != 1:
        return None
    text = children[0]
    if type(text) is not str or not text or text.isspace() or not _is_plain(element):
        return None
    if isinstance(element, AssistantMessage) and element.tool_calls:
        return None
    if parent.in_fallback:
        return None  # a fallback may go when more comes back, which only a node can tell
    priority = read_priority(element, parent)
    return TextMessage(element, role, text, priority)


def build_leaf(parent: Node, element: PromptElement) -> Leaf | None:
    """An element that can stand in its container as a bare leaf: a TextChunk or Text of strings, an image, a document, an opaque part."""
    if not _is_plain(element):
        return None
    priority = read_priority(element, parent)
    if isinstance(element, TextChunk | Text):
        if isinstance(element, TextChunk) and (element.break_on is not None or element.break_on_whitespace):
            return None
        strings = [child for child in element.children if isinstance(child, str)]
        if len(strings) != len([child for child in element.children if child is not None]):
            return None
        text = strings[0] if len(strings) == 1 else "".join(strings)
        return Leaf(parent, text, priority, STARTS_LINE_ALWAYS if isinstance(element, TextChunk) else STARTS_LINE_FIRST, element=element)
    leaf = Leaf(parent, "", priority, STARTS_LINE_NEVER, part=build_part(element), element=element)
    leaf.takes_share = not isinstance(element, Opaque)
    return leaf
