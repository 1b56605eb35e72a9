"""What each element of the grammar is made of: its children, or the work of its component."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

from promptkit.element import Children, PromptElement
from promptkit.elements import chat, layout, media, text
from promptkit.errors import BadChildError, BadPropError, MisplacedElementError
from promptkit.rendering.breaking import cut_to_budget
from promptkit.rendering.closing import write_expandable
from promptkit.rendering.making import group_of, part_of, text_leaf
from promptkit.rendering.tree import ALWAYS, FIRST, NEVER, STAYS, Leaf, Node, path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.rendering.expand import Expansion

__all__ = ["open_node"]

KEEPS = ("head", "tail", "middle")
_WHITESPACE = re.compile(r"\s+")


def open_node(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    """The children of an element; None where a component, or an Expandable, has to be awaited."""
    cls = type(element)
    opener = _OPENERS.get(cls)
    if opener is None:
        opener = _OPENERS[cls] = _opener_for(cls)
    return opener(expansion, node, element)


def _opener_for(cls: type[PromptElement]) -> Callable[[Expansion, Node, PromptElement], Children | None]:
    """How an element of a user's class opens: as a component, or as the element of the grammar that it extends."""
    opener = next(_OPENERS[base] for base in cls.__mro__ if base in _GRAMMAR)
    if cls.render is PromptElement.render:
        return opener
    if opener is _open_message:
        return _open_rendered_message
    return _run_component if opener is _open_group else _refuse


def _open_rendered_message(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _open_message(expansion, node, element)
    return expansion.run_component(node, element)


def _refuse(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    base = next(base for base in type(element).__mro__ if base in _GRAMMAR)
    message = f"{type(element).__name__} defines render, and {base.__name__}, which it extends, is not made by one: extend PromptElement."
    raise BadPropError(message, path=path_of(node))


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
    text_leaf(node, joined, ALWAYS if isinstance(element, text.TextChunk) else FIRST)
    return tuple(attached)


def _open_tag(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if not isinstance(element, text.Tag):
        return None
    attributes = "".join(f' {key}="{_escaped(value)}"' for key, value in element.attributes.items())
    if not element.children:
        text_leaf(node, f"<{element.tag}{attributes} />", ALWAYS).closes = True
        return ()
    opening = text_leaf(node, f"<{element.tag}{attributes}>\n", ALWAYS)
    opening.frame = True
    return (layout.Group().replace(children=element.children),)


def _escaped(value: str) -> str:
    """An attribute value as XML wants it. The standard library's function would import its HTTP client on the way."""
    for character, entity in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ('"', "&quot;"),
        ("\n", "&#10;"),
        ("\r", "&#13;"),
        ("\t", "&#9;"),
    ):
        value = value.replace(character, entity)
    return value


def _open_truncate(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    problem = ""
    if isinstance(element, text.Truncate):
        if not 0 <= element.ratio <= 1:
            problem = f"ratio must be from 0 to 1, not {element.ratio}."
        elif element.keep not in KEEPS:
            problem = f"keep must be one of {', '.join(KEEPS)}, not {element.keep!r}."
        elif element.tokens is not None and not element.tokens >= 0:
            problem = f"tokens must be at least 0, not {element.tokens}."
    if problem:
        raise BadPropError(problem, path=path_of(node))
    return element.children


def _open_if_empty(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if not isinstance(element, layout.IfEmpty):
        return None
    otherwise = group_of(element.alt, node)
    return (otherwise, layout.Group(flex_grow=1).replace(children=element.children))


def _open_first(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    node.variants = [(child,) for child in reversed(element.children)]
    return node.variants.pop() if node.variants else ()


def _open_list(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion, node
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
            ranked.append(child.replace(priority=priority))
    return tuple(ranked)


def _open_expandable(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    if not isinstance(element, text.Expandable):
        return None
    node.expands = True
    sizing = expansion.sizing(node)
    expansion.expandables.append((node, sizing))
    value = element.value(sizing)
    if inspect.isawaitable(value):
        expansion.start(node, value, sizing)
        return None
    write_expandable(node, value)
    return ()


def _open_media(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if node.message is None and not node.fragment:
        message = f"{type(element).__name__} stands outside a message: put it into a message."
        raise MisplacedElementError(message, path=path_of(node))
    node.items.append(Leaf(node, "", node.text_priority, NEVER, part=part_of(element), element=None))
    return ()


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

_GRAMMAR = frozenset(_OPENERS)
