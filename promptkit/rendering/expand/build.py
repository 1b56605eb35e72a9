"""Build nodes, leaves and text messages from elements, and check the props that all elements have."""

from __future__ import annotations

from math import isnan

import attrs

from promptkit.elements.builtin import (
    AssistantMessage,
    Document,
    Group,
    Image,
    MessageElement,
    Opaque,
    Text,
    TextChunk,
)
from promptkit.elements.element import Child, PromptElement, flatten
from promptkit.errors import BadPropError, TreeError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    Role,
)
from promptkit.rendering.paths import format_path
from promptkit.rendering.tree import (
    HIGHEST_PRIORITY,
    STARTS_LINE_ALWAYS,
    STARTS_LINE_FIRST,
    STARTS_LINE_NEVER,
    Leaf,
    MessageItem,
    Node,
)
from promptkit.reprs import clip


def build_node(element: PromptElement, parent: Node) -> Node:
    """Build a node for an element and append it to the items of its parent."""
    node = Node(element, parent, read_priority(element, parent))
    if element.priority is None:
        node.text_priority = HIGHEST_PRIORITY
    elif not element.pass_priority:
        node.in_prioritized = True
    node.passes_priority = element.pass_priority
    node.required = element.required
    node.in_fallback = parent.in_fallback
    parent.append_node(node)
    _check_flex(element, node)
    return node


def read_priority(element: PromptElement, parent: Node) -> float:
    """Return the priority of an element, or the default.

    Raises BadPropError if it is not a number.
    """
    priority = element.priority
    if priority is None:
        return 0 if element.pass_priority else HIGHEST_PRIORITY
    if not _is_number(priority):
        raise BadPropError(
            f"priority must be a number, not {priority!r}.",
            path=f"{format_path(parent)} > {type(element).__name__}".removeprefix(" > "),
        )
    return priority


def _is_number(value: object) -> bool:
    """Return whether a value is a number. Callers may not be type-checked, and NaN is a float."""
    return isinstance(value, int) or (isinstance(value, float) and not isnan(value))


def _check_flex(element: PromptElement, node: Node) -> None:
    """Raise BadPropError if a flex prop is not valid."""
    if element.flex_basis == 1 and element.flex_reserve is None and element.flex_grow is None:
        return
    if element.flex_grow is not None and not _is_number(element.flex_grow):
        raise BadPropError(
            f"flex_grow must be a number, not {element.flex_grow!r}: write a number, or leave it out.",
            path=format_path(node),
        )
    if not (_is_number(element.flex_basis) and 0 <= element.flex_basis < float("inf")):
        raise BadPropError(
            f"flex_basis must be a finite number of at least 0, not {element.flex_basis!r}.",
            path=format_path(node),
        )
    reserve = element.flex_reserve
    if isinstance(reserve, str):
        if not (
            reserve.startswith("/")
            and reserve[1:].isdecimal()
            and len(reserve) <= _MAX_RESERVE
            and int(reserve[1:])
        ):
            raise BadPropError(
                f'flex_reserve must be a number of tokens or "/N", not {clip(reserve, _MAX_RESERVE)!r}: write 500 or "/4".',
                path=format_path(node),
            )
    elif reserve is not None and not (
        _is_number(reserve) and reserve >= 0 and float(reserve).is_integer()
    ):
        raise BadPropError(
            f'flex_reserve must be a whole number of tokens, or "/N" for one Nth of what is left, not {reserve!r}: write 500 or "/4".',
            path=format_path(node),
        )


_MAX_RESERVE = 20
"""Characters of `"/N"`: Python refuses to read a number of thousands of digits."""


def build_message_item(element: MessageElement, role: Role, parent: Node) -> MessageItem | None:
    """Build a MessageItem, or return None if the message needs a node.

    It needs none if its only child is a text that is not blank, and if it has no props that sizing
    or pruning must look at.
    """
    children = element.children
    if len(children) != 1:
        return None
    text = children[0]
    if (
        type(text) is not str
        or not text
        or text.isspace()
        or not is_plain(element)
        or (isinstance(element, AssistantMessage) and element.tool_calls)
        # it depends on the containers around it whether it is ever removed, and renders share text
        # messages
        or (element.priority is None and role == "system")
        # pruning activates and deactivates fallbacks, which a text message does not record
        or parent.in_fallback
    ):
        return None
    return MessageItem(element, role, text, read_priority(element, parent), element.name)


def show_message(message: Message) -> Message | None:
    """Return a recorded message as a prompt shows it; None for a blank one.

    Cache breakpoints are dropped: the prompt sets its own.
    """
    role, call_id, parts = message.role, message.tool_call_id, message.content
    # most messages are one text, or calls alone, and need no change
    text = parts[0] if parts else message.tool_calls and "calls"
    if (
        len(parts) <= 1
        and isinstance(text, str)
        and text
        and not text.isspace()
        and (role == "assistant" or not message.tool_calls)
        and (call_id is None) is (role != "tool")
        and message.name != ""
    ):
        return message
    calls = message.tool_calls if role == "assistant" else ()
    call_id = (call_id or "") if role == "tool" else None
    content: list[Part] = []
    for part in message.content:
        if isinstance(part, str) and content and isinstance(content[-1], str):
            content[-1] += part
        elif part and not isinstance(part, CacheBreakpointPart):
            content.append(
                attrs.evolve(part, url=_find_url(part)) if isinstance(part, ImagePart) else part
            )
    if not (calls or role == "tool") and all(
        isinstance(part, str) and part.isspace() for part in content
    ):
        return None
    shown, name = tuple(content), message.name or None
    if (
        shown == message.content
        and calls == message.tool_calls
        and call_id == message.tool_call_id
        and name == message.name
    ):
        return message
    return Message(role=role, content=shown, name=name, tool_calls=calls, tool_call_id=call_id)


LEAF_ELEMENTS = frozenset({TextChunk, Text, Image, Document, Opaque})
"""The elements that `build_leaf` may turn into a leaf."""


def build_leaf(parent: Node, element: PromptElement) -> Leaf | None:
    """Build the leaf of a TextChunk, a Text or a media element, or return None if the element needs a node."""
    if not is_plain(element):
        return None
    priority = read_priority(element, parent)
    if isinstance(element, TextChunk | Text):
        strings = [child for child in element.children if isinstance(child, str)]
        if len(strings) != len([child for child in element.children if child is not None]) or (
            isinstance(element, TextChunk)
            and (element.break_on is not None or element.break_on_whitespace)
        ):
            return None
        return Leaf(
            parent,
            "".join(strings),
            priority,
            STARTS_LINE_ALWAYS if isinstance(element, TextChunk) else STARTS_LINE_FIRST,
            element=element,
        )
    leaf = Leaf(parent, "", priority, STARTS_LINE_NEVER, part=build_part(element), element=element)
    leaf.takes_share = not isinstance(element, Opaque)
    return leaf


def is_plain(element: PromptElement, *, required: bool = False) -> bool:
    """Return whether an element has no layout props other than a priority.

    With `required`, it may be required, too.
    """
    return (required or not element.required) and element.fallback is None and _is_unsized(element)


def _is_unsized(element: PromptElement) -> bool:
    """Return whether an element has no flex props, and does not pass its priority on."""
    return (
        element.flex_grow is None
        and element.flex_basis == 1
        and element.flex_reserve is None
        and not element.pass_priority
    )


def build_part(element: PromptElement) -> ImagePart | DocumentPart | OpaquePart:
    """Build the content part of a media element."""
    match element:
        case Image():
            return ImagePart(
                url=_find_url(element),
                detail=element.detail,
                media_type=element.media_type,
                width=element.width,
                height=element.height,
            )
        case Document():
            return DocumentPart(
                data=element.data,
                media_type=element.media_type,
                name=element.name,
                tokens=element.tokens,
            )
        case Opaque():
            return OpaquePart(value=element.value, tokens=element.tokens, provider=element.provider)
        case _:
            raise TypeError(
                f"{type(element).__name__} is not a media element: use Image, Document or Opaque."
            )


def _find_url(image: Image | ImagePart) -> str:
    """Return the URL of an image: a data URL of bare base64."""
    prefixes = _MEDIA_TYPES_BY_PREFIX.items()
    found = next((kind for prefix, kind in prefixes if image.url.startswith(prefix)), None)
    return f"data:{image.media_type or found};base64,{image.url}" if found else image.url


_MEDIA_TYPES_BY_PREFIX = {
    "/9j/": "image/jpeg",
    "iVBOR": "image/png",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}


def add_text(node: Node, content: str, starts_line: int) -> Leaf:
    """Append a text to the items of a node.

    Raises TreeError if the node is outside a message and the text is not blank.
    """
    if node.message is None and not node.fragment and content.strip():
        raise TreeError(
            f"{content[:40]!r} is outside a message: put it into a message.", path=format_path(node)
        )
    leaf = Leaf(node, content, node.text_priority, starts_line)
    node.items.append(leaf)
    return leaf


def clear_node(node: Node) -> None:
    """Remove all items of a node, with the sizes that depend on them."""
    node.items = []
    node.nodes = []
    node.removed_at = []
    node.run = node.layout = None
    node.used = node.own_size = node.token_bound = None


def read_fallback(element: PromptElement, node: Node) -> PromptElement | None:
    """Return the fallback of a node's element, or None if it has none.

    It is a Group around the prop's value. A Group whose only prop is a fallback of its own stays as
    it is: then both are fallbacks in the same container, one after the other.
    """
    child = element.fallback
    if child is None:
        return None
    if (
        type(child) is Group
        and child.fallback is not None
        and child.priority is None
        and not child.required
        and _is_unsized(child)
    ):
        return child
    return wrap_in_group(child, node)


def wrap_in_group(child: Child, node: Node) -> PromptElement:
    """Return a Group around a child that is the value of a prop of the node's element."""
    try:
        children = flatten(child, type(node.element).__name__)
    except TreeError as error:
        error.locate(format_path(node))
        raise
    return Group().replace(children=children)
