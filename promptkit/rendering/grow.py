"""Expandables written again, longer, where budget is left: within every TokenLimit around them (D2)."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING

from promptkit.element import Sizing
from promptkit.elements.text import Expandable
from promptkit.rendering.assemble import measure
from promptkit.rendering.closing import write_expandable
from promptkit.rendering.expand import locate
from promptkit.rendering.tree import STAYS, Node

if TYPE_CHECKING:
    from promptkit.rendering.expand import Expansion, Outcome, Started

__all__ = ["grow"]


def grow(expansion: Expansion, scope: Node, limit: int) -> Generator[Started, Outcome, bool]:
    """Grow the Expandables below a node, in render order, until `limit` tokens are used. Whether any was written again.

    Raises what an Expandable raises, and BadChildError where its value is no string.
    """
    inside = [node for node, _ in expansion.expandables if _below(node, scope)]
    if not inside:
        return False
    sizer = expansion.sizer
    used = measure(scope, sizer)
    grown = False
    for node in inside:
        element = node.element
        if used >= limit:
            break
        if not isinstance(element, Expandable):
            continue
        size = sizer.used(node)  # what it reported: never more than its share, as in prompt-tsx
        room = limit - used
        for above in _limits(node, scope):
            room = min(room, (above.limit or 0) - measure(above, sizer))
        if room <= 0:
            continue
        sizing = Sizing(partial(int, room + size), sizer.tokenizer, expansion.model)
        try:
            value: object = element.value(sizing)
            if inspect.isawaitable(value):
                ((_, value, failure),) = yield [(node, value)]
                if failure is not None:
                    raise failure  # noqa: TRY301  # as if it had been raised at once
            write_expandable(node, value)
        except Exception as error:
            locate(error, node)
            raise
        used += min(room + size, measure(node, sizer)) - size
        grown = True
    return grown


def _below(node: Node, scope: Node) -> bool:
    """Whether a node is alive below another."""
    at = node
    while at is not scope:
        parent = at.parent
        if parent is None or at.standby or parent.items[at.position : at.position + 1] != [at] or parent.gone[at.position] != STAYS:
            return False  # removed, or in an alternative that was not taken
        at = parent
    return True


def _limits(node: Node, scope: Node) -> list[Node]:
    found: list[Node] = []
    at = node.parent
    while at is not None and at is not scope:
        if at.limit is not None:
            found.append(at)
        at = at.parent
    return found
