"""What each element of the grammar means for the tree: one small function for each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from promptkit.element import Children, PromptElement, flatten
from promptkit.elements import chat, layout, media, text
from promptkit.errors import BadChildError, BadPropError, MisplacedElementError
from promptkit.messages import DocumentPart, ImagePart, OpaquePart
from promptkit.rendering.breaking import cut_to_budget
from promptkit.rendering.assemble import is_empty, measure, text_of
from promptkit.rendering.tree import ALWAYS, FIRST, HIGHEST, NEVER, STAYS, Leaf, Node, path_of
from promptkit.tokens.truncation import truncate_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.element import Child
    from promptkit.rendering.expand import Expansion

__all__ = ["NAN", "close_node", "group_of", "make_node", "open_node", "part_of", "priority_of", "write_expandable"]

NAN = "priority is not a number: use a finite number, or leave it out."


def group_of(child: Child, node: Node) -> PromptElement:
    """A container around a child that is a prop."""
    return layout.Group()._with(children=flatten(child, path_of(node)))  # noqa: SLF001  # the element's own way to take children


def priority_of(element: PromptElement, parent: Node) -> float:
    """An element's priority, where it has one."""
    priority = element.priority
    if priority is None:
        return 0 if element.pass_priority else HIGHEST
    if priority != priority:  # noqa: PLR0124  # NaN is what differs from itself
        raise BadPropError(NAN, path=f"{path_of(parent)} > {type(element).__name__}".removeprefix(" > "))
    return priority


def make_node(element: PromptElement, parent: Node) -> Node:
    """A node for an element, standing as the parent's next item."""
    node = Node(element, parent, priority_of(element, parent))
    node.text_priority = HIGHEST if element.priority is None else element.priority
    node.passes = element.pass_priority
    node.required = element.required or isinstance(element, layout.Reserve)
    node.standby = parent.standby
    parent.items.append(node)
    parent.nodes.append(node)
    _check(element, node)
    if isinstance(element, layout.TokenLimit):
        node.limit = element.max_tokens
    elif isinstance(element, layout.Isolate):
        node.limit = node.budget = element.tokens
        node.atomic = True
    elif isinstance(element, layout.Reserve):
        node.reserve = element.tokens
    elif isinstance(element, layout.KeepWith):
        node.keep = (element.group,)
    elif isinstance(element, layout.LegacyPrioritization):
        node.legacy = True
    elif isinstance(element, layout.Chunk | chat.ToolRound):
        node.atomic = not node.passes
    return node


def _check(element: PromptElement, node: Node) -> None:
    reserve = element.flex_reserve
    problem = ""
    if isinstance(reserve, str):
        if not (reserve.startswith("/") and reserve[1:].isdecimal() and int(reserve[1:])):
            problem = f'flex_reserve {reserve!r} is neither a number of tokens nor "/N".'
    elif reserve is not None and not reserve >= 0:
        problem = f"flex_reserve must be at least 0 tokens, not {reserve}."
    if not 0 <= element.flex_basis < float("inf"):
        problem = f"flex_basis must be a finite number of at least 0, not {element.flex_basis}."
    if element.flex_grow is not None and element.flex_grow != element.flex_grow:  # noqa: PLR0124  # NaN is what differs from itself
        problem = "flex_grow is not a number: use a finite number, or leave it out."
    if isinstance(element, layout.TokenLimit) and not element.max_tokens >= 0:
        problem = f"max_tokens must be at least 0 tokens, not {element.max_tokens}."
    if isinstance(element, layout.Reserve | layout.Isolate) and not element.tokens >= 0:
        problem = f"tokens must be at least 0, not {element.tokens}."
    if problem:
        raise BadPropError(problem, path=path_of(node))


def open_node(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    """The children of an element; None where a component, or an Expandable, has to be awaited."""
    cls = type(element)
    opener = _OPENERS.get(cls)
    if opener is None:
        opener = _OPENERS[cls] = _opener_for(cls)
    return opener(expansion, node, element)


def _opener_for(cls: type[PromptElement]) -> Callable[[Expansion, Node, PromptElement], Children | None]:
    if cls.render is PromptElement.render:
        for base in cls.__mro__:
            if base in _OPENERS:
                return _OPENERS[base]
        return _open_group
    return _run_component


def _run_component(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    return expansion.run_component(node, element)


def _open_group(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion, node
    return element.children


def _open_message(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if node.message is not None:
        outer = f"{type(element).__name__} stands inside another message ({path_of(node.message)}): messages cannot be nested."
        raise MisplacedElementError(outer, path=path_of(node))
    node.message = node
    node.name = element.name
    if isinstance(element, chat.SystemMessage):
        node.role = "system"
    elif isinstance(element, chat.UserMessage):
        node.role = "user"
    elif isinstance(element, chat.ToolMessage):
        node.role = "tool"
        node.call_id = element.tool_call_id
    elif isinstance(element, chat.AssistantMessage):
        node.role = "assistant"
        node.calls = tuple(element.tool_calls)
        node.calls_gone = [STAYS] * len(node.calls)
    return element.children


def _open_tool_round(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if not isinstance(element, chat.ToolRound):
        return None
    if not element.calls:
        message = "a ToolRound needs at least one call: use an AssistantMessage for text alone."
        raise BadPropError(message, path=path_of(node))
    said = chat.AssistantMessage(tool_calls=tuple(element.calls))[element.text]
    answers = [chat.ToolMessage(tool_call_id=call.id)[element.results[call.id]] for call in element.calls if call.id in element.results]
    strays = [key for key in element.results if key not in {call.id for call in element.calls}]
    return (said, *answers, *(chat.ToolMessage(tool_call_id=key)[element.results[key]] for key in strays))


def _strings(node: Node, element: PromptElement) -> tuple[list[str], list[PromptElement]]:
    """The text of an element that takes only text, and what is attached to it."""
    strings: list[str] = []
    attached: list[PromptElement] = []
    for child in element.children:
        if isinstance(child, str):
            strings.append(child)
        elif isinstance(child, media.Reference | media.Metadata):
            attached.append(child)
        elif child is not None:
            message = (
                f"{type(element).__name__} cannot have {type(child).__name__} as a child: "
                "it takes strings, References and Metadata. Use a Group or a Chunk around elements."
            )
            raise BadChildError(message, path=path_of(node))
    return strings, attached


def _open_text(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    strings, attached = _strings(node, element)
    joined = "".join(strings)
    if isinstance(element, text.TextChunk) and (element.break_on is not None or element.break_on_whitespace):
        separator = _WHITESPACE if element.break_on is None else element.break_on
        joined = cut_to_budget(joined, separator, expansion.sizer.budget(node), expansion.sizer.tokenizer)
        if not joined:
            return tuple(attached)
    _text_leaf(node, joined, ALWAYS if isinstance(element, text.TextChunk) else FIRST)
    return tuple(attached)


def _text_leaf(node: Node, content: str, breaks: int) -> Leaf:
    if node.message is None and not node.fragment and content.strip():
        message = f"{content[:40]!r} stands outside a message: put it into a message."
        raise MisplacedElementError(message, path=path_of(node))
    leaf = Leaf(node, content, node.text_priority, breaks)
    node.items.append(leaf)
    return leaf


def _open_tag(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if not isinstance(element, text.Tag):
        return None
    attributes = "".join(f" {key}={quoteattr(value)}" for key, value in element.attributes.items())
    if not element.children:
        _text_leaf(node, f"<{element.tag}{attributes} />", ALWAYS).closes = True
        return ()
    opening = _text_leaf(node, f"<{element.tag}{attributes}>\n", ALWAYS)
    opening.frame = True
    return (layout.Group()._with(children=element.children),)  # noqa: SLF001  # the element's own way to take children


def _close_tag(expansion: Expansion, node: Node) -> Children | None:
    _ = expansion
    element = node.element
    if isinstance(element, text.Tag) and element.children:
        closing = _text_leaf(node, f"</{element.tag}>", ALWAYS)
        closing.frame = closing.closes = True
        node.gone.append(STAYS)
        node.nodes[0].label = "content"
        if is_empty(node.nodes[0]):
            _clear(node)
    return None


def _open_truncate(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if isinstance(element, text.Truncate) and not 0 <= element.ratio <= 1:
        message = f"ratio must be from 0 to 1, not {element.ratio}."
        raise BadPropError(message, path=path_of(node))
    return element.children


def _close_truncate(expansion: Expansion, node: Node) -> Children | None:
    element = node.element
    if isinstance(element, text.Truncate):
        content = text_of(node)
        if content is None:
            message = "Truncate takes text, and something in it is no text: move images and documents out of it."
            raise BadChildError(message, path=path_of(node))
        tokens = expansion.sizer.budget(node) if element.tokens is None else min(element.tokens, expansion.sizer.budget(node))
        cut = truncate_text(
            content, tokens, keep=element.keep, ratio=element.ratio, marker=element.marker, tokenizer=expansion.sizer.tokenizer
        )
        _clear(node)
        if cut:
            _text_leaf(node, cut, FIRST)
            node.gone = [STAYS]
    return None


def _clear(node: Node) -> None:
    node.items = []
    node.nodes = []
    node.gone = []
    node.layout = None
    node.used = node.own_size = None


def _open_if_empty(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if not isinstance(element, layout.IfEmpty):
        return None
    otherwise = group_of(element.alt, node)
    return (otherwise, layout.Group(flex_grow=1)._with(children=element.children))  # noqa: SLF001  # the element's own way to take children


def _close_if_empty(expansion: Expansion, node: Node) -> Children | None:
    _ = expansion
    otherwise, given = node.nodes
    otherwise.label, given.label = "alt", "children"
    taken = otherwise if is_empty(given) else given
    taken.position = 0
    node.items, node.nodes, node.gone = [taken], [taken], [STAYS]
    return None


def _open_first(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    node.variants = [(child,) for child in reversed(element.children)]
    return node.variants.pop() if node.variants else ()


def _close_first(expansion: Expansion, node: Node) -> Children | None:
    if not node.variants:
        return None
    if measure(node, expansion.sizer) <= expansion.sizer.budget(node):
        node.variants = []
        return None
    _clear(node)
    return node.variants.pop()


def _open_list(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if not isinstance(element, layout.PrioritizedList):
        return None
    top = element.priority or 0
    count = len(element.children)
    ranked: list[str | PromptElement | None] = []
    for index, child in enumerate(element.children):
        priority = top - index if element.descending else top - count + index
        if isinstance(child, str):
            ranked.append(text.TextChunk(priority=priority)[child])
        elif child is not None:
            ranked.append(child._with(priority=priority))  # noqa: SLF001  # the element's own way to change
    return tuple(ranked)


def _open_expandable(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    if not isinstance(element, text.Expandable):
        return None
    node.expands = True
    sizing = expansion.sizing(node)
    expansion.expandables.append((node, sizing))
    value = element.value(sizing)
    if isinstance(value, str):
        write_expandable(node, (value,))
        return ()
    expansion.start(node, value, sizing)
    return None


def write_expandable(node: Node, children: Children) -> None:
    """Set an Expandable's text."""
    content = "".join(child for child in children if isinstance(child, str))
    _clear(node)
    _text_leaf(node, content, FIRST)
    node.gone = [STAYS]


def _open_media(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if node.message is None and not node.fragment:
        message = f"{type(element).__name__} stands outside a message: put it into a message."
        raise MisplacedElementError(message, path=path_of(node))
    node.items.append(Leaf(node, "", node.text_priority, NEVER, part=part_of(element), element=None))
    return ()


_WHITESPACE = re.compile(r"\s+")
_MAGIC = {"/9j/": "image/jpeg", "iVBOR": "image/png", "R0lGOD": "image/gif", "UklGR": "image/webp"}


def part_of(element: PromptElement) -> ImagePart | DocumentPart | OpaquePart:
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


def close_node(expansion: Expansion, node: Node) -> Children | None:
    """Settle what depends on a node's finished subtree. Children are returned where it has to be filled again (First)."""
    closer = _CLOSERS.get(type(node.element)) if node.element else None
    return closer(expansion, node) if closer else None


_OPENERS: dict[type[PromptElement], Callable[[Expansion, Node, PromptElement], Children | None]] = {
    PromptElement: _open_group,
    chat.SystemMessage: _open_message,
    chat.UserMessage: _open_message,
    chat.AssistantMessage: _open_message,
    chat.ToolMessage: _open_message,
    chat.ToolRound: _open_tool_round,
    text.Text: _open_text,
    text.TextChunk: _open_text,
    text.Tag: _open_tag,
    text.Truncate: _open_truncate,
    text.Expandable: _open_expandable,
    layout.IfEmpty: _open_if_empty,
    layout.First: _open_first,
    layout.PrioritizedList: _open_list,
    media.Image: _open_media,
    media.Document: _open_media,
    media.Opaque: _open_media,
}

_CLOSERS: dict[type[PromptElement], Callable[[Expansion, Node], Children | None]] = {
    text.Tag: _close_tag,
    text.Truncate: _close_truncate,
    layout.IfEmpty: _close_if_empty,
    layout.First: _close_first,
}
