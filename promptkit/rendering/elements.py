"""What each element of the grammar is made of: its children, or the work of its component.

What is settled once an element's subtree is there: which alternative is taken, how much of a text is shown.
Text cut between pieces, so that it fits a share.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from promptkit.element import Children, PromptElement
from promptkit.elements import chat, layout, media, text
from promptkit.errors import BadChildError, BadPropError, TreeError
from promptkit.rendering.assemble import is_empty, measure, read_text
from promptkit.rendering.build import clear_node, wrap_in_group, build_part, add_text
from promptkit.rendering.tree import STARTS_LINE_ALWAYS, STARTS_LINE_FIRST, STARTS_LINE_NEVER, NEVER_REMOVED, Leaf, Node, format_path
from promptkit.tokens.truncation import truncate_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.rendering.expand import Expansion
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["close_node", "cut_to_budget", "open_node", "write_expandable"]


def close_node(expansion: Expansion, node: Node) -> Children | None:
    """Settle what depends on a node's finished subtree. Children are returned where it has to be filled again (First)."""
    if node.element is None:
        return None
    cls = type(node.element)
    if cls not in _CLOSERS:
        _CLOSERS[cls] = next((_CLOSERS[base] for base in cls.__mro__ if base in _CLOSERS), None)
    closer = _CLOSERS[cls]
    return closer(expansion, node) if closer else None


def _close_tag(expansion: Expansion, node: Node) -> Children | None:
    _ = expansion
    element = node.element
    if isinstance(element, text.Tag) and element.children:
        closing = add_text(node, f"</{element.tag}>", STARTS_LINE_ALWAYS)
        closing.is_frame = closing.ends_line = True
        node.removed_at.append(NEVER_REMOVED)
        node.nodes[0].label = "content"
        if is_empty(node.nodes[0]):
            keep_attached(node, node.nodes, shown=False)
            clear_node(node)
    return None


def _close_truncate(expansion: Expansion, node: Node) -> Children | None:
    element = node.element
    if isinstance(element, text.Truncate):
        content = read_text(node)
        if content is None:
            message = "Truncate takes text, and something in it is no text: move images and documents out of it."
            raise BadChildError(message, path=format_path(node))
        tokens = expansion.sizer.budget_of(node) if element.tokens is None else element.tokens
        cut = truncate_text(
            content, tokens, keep=element.keep, ratio=element.ratio, marker=element.marker, tokenizer=expansion.sizer.tokenizer
        )
        keep_attached(node, node.nodes, shown=True)
        clear_node(node)
        if cut:
            add_text(node, cut, STARTS_LINE_FIRST)
            node.removed_at = [NEVER_REMOVED]
    return None


def _close_if_empty(expansion: Expansion, node: Node) -> Children | None:
    _ = expansion
    otherwise, given = node.nodes
    otherwise.label, given.label = "alt", "children"
    taken, other = (otherwise, given) if is_empty(given) else (given, otherwise)
    taken.position = 0
    keep_attached(node, [other], shown=False)
    node.items, node.nodes, node.removed_at = [taken], [taken], [NEVER_REMOVED]
    return None


def keep_attached(node: Node, tops: list[Node], *, shown: bool) -> None:
    """Keep what is attached below a node that is about to lose its subtree: all if the content is still shown, else what is not local."""
    nodes = list(tops)
    for each in nodes:  # grows while it is walked
        nodes.extend(each.nodes)
    metadata = [value for each in nodes for value in each.metadata or () if shown or not value[1]]
    references = [reference for each in nodes for reference in each.references or () if shown]
    if metadata:
        node.metadata = [*(node.metadata or ()), *metadata]
    if references:
        node.references = [*(node.references or ()), *references]


def _close_first(expansion: Expansion, node: Node) -> Children | None:
    if not node.alternatives:
        return None
    if measure(node, expansion.sizer) <= expansion.sizer.budget_of(node):
        node.alternatives = []
        return None
    keep_attached(node, node.nodes, shown=False)
    clear_node(node)
    return node.alternatives.pop()


def write_expandable(node: Node, value: object) -> None:
    """Set an Expandable's text. Raises BadChildError for anything but a string."""
    if not isinstance(value, str):
        message = f"an Expandable's value must be a string, not {type(value).__name__}."
        raise BadChildError(message, path=format_path(node))
    clear_node(node)
    add_text(node, value, STARTS_LINE_FIRST)
    node.removed_at = [NEVER_REMOVED]


_CLOSERS: dict[type, Callable[[Expansion, Node], Children | None] | None] = {
    text.Tag: _close_tag,
    text.Truncate: _close_truncate,
    layout.IfEmpty: _close_if_empty,
    layout.First: _close_first,
}


def cut_to_budget(text: str, separator: str | re.Pattern[str], budget: int, tokenizer: Tokenizer) -> str:
    """The longest run of leading pieces that fits `budget` tokens; the first piece that does not fit ends it.

    A separator stays at the start of the piece behind it, as in prompt-tsx. Counts go on from the last safe cut, so that a
    long text is counted once.
    """
    fitting = 0
    counted = 0  # tokens up to `settled`
    settled = 0
    cut = tokenizer.safe_cut
    for end in _ends(text, separator):
        tokens = tokenizer.count(text[settled:end])
        if counted + tokens > budget:
            break
        fitting = end
        place = _last_cut(cut, text, settled + 1, end) if cut is not None else None
        if place is not None:
            counted += tokens - tokenizer.count(text[place:end])
            settled = place
    return text[:fitting]


def _ends(text: str, separator: str | re.Pattern[str]) -> Iterator[int]:
    pattern = re.compile(re.escape(separator)) if isinstance(separator, str) else separator
    for match in pattern.finditer(text):
        if match.start() > 0:
            yield match.start()
    if text:
        yield len(text)


def _last_cut(cut: re.Pattern[str], text: str, start: int, end: int) -> int | None:
    place = None
    for match in cut.finditer(text, start, end):
        if match.start() < end:
            place = match.start()
    return place


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
    raise BadPropError(message, path=format_path(node))


def _run_component(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    return expansion.run_component(node, element)


def _open_group(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion, node
    return element.children


def _open_message(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if node.message is not None:
        outer = f"{type(element).__name__} stands inside another message ({format_path(node.message)}): messages cannot be nested."
        raise TreeError(outer, path=format_path(node))
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
        node.calls_removed_at = [NEVER_REMOVED] * len(node.calls)
    return element.children


def _open_tool_round(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if not isinstance(element, chat.ToolRound):
        return None
    if not element.calls:
        message = "a ToolRound needs at least one call: use an AssistantMessage for text alone."
        raise BadPropError(message, path=format_path(node))
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
            raise BadChildError(message, path=format_path(node))
    return strings, attached


def _open_text(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    strings, attached = _strings(node, element)
    joined = "".join(strings)
    if isinstance(element, text.TextChunk) and (element.break_on is not None or element.break_on_whitespace):
        separator = _WHITESPACE if element.break_on is None else element.break_on
        joined = cut_to_budget(joined, separator, expansion.sizer.budget_of(node), expansion.sizer.tokenizer)
        if not joined:
            return tuple(attached)
    add_text(node, joined, STARTS_LINE_ALWAYS if isinstance(element, text.TextChunk) else STARTS_LINE_FIRST)
    return tuple(attached)


def _open_tag(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if not isinstance(element, text.Tag):
        return None
    attributes = "".join(f' {key}="{_escaped(value)}"' for key, value in element.attributes.items())
    if not element.children:
        add_text(node, f"<{element.tag}{attributes} />", STARTS_LINE_ALWAYS).ends_line = True
        return ()
    opening = add_text(node, f"<{element.tag}{attributes}>\n", STARTS_LINE_ALWAYS)
    opening.is_frame = True
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
        raise BadPropError(problem, path=format_path(node))
    return element.children


def _open_if_empty(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    if not isinstance(element, layout.IfEmpty):
        return None
    otherwise = wrap_in_group(element.alt, node)
    return (otherwise, layout.Group(flex_grow=1).replace(children=element.children))


def _open_first(expansion: Expansion, node: Node, element: PromptElement) -> Children | None:
    _ = expansion
    node.alternatives = [(child,) for child in reversed(element.children)]
    return node.alternatives.pop() if node.alternatives else ()


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
    node.is_expandable = True
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
        raise TreeError(message, path=format_path(node))
    node.items.append(Leaf(node, "", node.text_priority, STARTS_LINE_NEVER, part=build_part(element), element=None))
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
