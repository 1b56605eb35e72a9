"""What is settled once an element's subtree is there: which alternative is taken, how much of a text is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.elements import layout, text
from promptkit.errors import BadChildError
from promptkit.rendering.assemble import is_empty, measure, text_of
from promptkit.rendering.making import clear, text_leaf
from promptkit.rendering.tree import ALWAYS, FIRST, STAYS, Node, path_of
from promptkit.tokens.truncation import truncate_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.element import Children
    from promptkit.rendering.expand import Expansion

__all__ = ["close_node", "write_expandable"]


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
        closing = text_leaf(node, f"</{element.tag}>", ALWAYS)
        closing.frame = closing.closes = True
        node.gone.append(STAYS)
        node.nodes[0].label = "content"
        if is_empty(node.nodes[0]):
            keep_attached(node, node.nodes, shown=False)
            clear(node)
    return None


def _close_truncate(expansion: Expansion, node: Node) -> Children | None:
    element = node.element
    if isinstance(element, text.Truncate):
        content = text_of(node)
        if content is None:
            message = "Truncate takes text, and something in it is no text: move images and documents out of it."
            raise BadChildError(message, path=path_of(node))
        tokens = expansion.sizer.budget(node) if element.tokens is None else element.tokens
        cut = truncate_text(
            content, tokens, keep=element.keep, ratio=element.ratio, marker=element.marker, tokenizer=expansion.sizer.tokenizer
        )
        keep_attached(node, node.nodes, shown=True)
        clear(node)
        if cut:
            text_leaf(node, cut, FIRST)
            node.gone = [STAYS]
    return None


def _close_if_empty(expansion: Expansion, node: Node) -> Children | None:
    _ = expansion
    otherwise, given = node.nodes
    otherwise.label, given.label = "alt", "children"
    taken, other = (otherwise, given) if is_empty(given) else (given, otherwise)
    taken.position = 0
    keep_attached(node, [other], shown=False)
    node.items, node.nodes, node.gone = [taken], [taken], [STAYS]
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
    if not node.variants:
        return None
    if measure(node, expansion.sizer) <= expansion.sizer.budget(node):
        node.variants = []
        return None
    keep_attached(node, node.nodes, shown=False)
    clear(node)
    return node.variants.pop()


def write_expandable(node: Node, value: object) -> None:
    """Set an Expandable's text. Raises BadChildError for anything but a string."""
    if not isinstance(value, str):
        message = f"an Expandable's value must be a string, not {type(value).__name__}."
        raise BadChildError(message, path=path_of(node))
    clear(node)
    text_leaf(node, value, FIRST)
    node.gone = [STAYS]


_CLOSERS: dict[type, Callable[[Expansion, Node], Children | None] | None] = {
    text.Tag: _close_tag,
    text.Truncate: _close_truncate,
    layout.IfEmpty: _close_if_empty,
    layout.First: _close_first,
}
