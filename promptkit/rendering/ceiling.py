"""Upper bounds of sizes: what surely fits needs no search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.rendering.tree import Atom, Leaf

if TYPE_CHECKING:
    from promptkit.rendering.layout import Sizer
    from promptkit.rendering.materialize import Tree
    from promptkit.rendering.tree import Node

__all__ = ["set_ceilings", "surely_fits"]

_NO_CEILING = 1 << 60


def surely_fits(tree: Tree, sizer: Sizer, room: int) -> bool:
    """Whether a whole tree fits, by its bytes. Gives up as soon as it may not."""
    total = 0
    for node in tree.nodes:
        total += _own(node, sizer, room)
        if total > room:
            return False
    return True


def set_ceilings(tree: Tree, sizer: Sizer) -> None:
    """Give every node a number of tokens that it surely does not exceed, without counting its text."""
    for node in reversed(tree.nodes):
        total = _own(node, sizer, _NO_CEILING) + sum(child.ceiling or 0 for child in node.nodes)
        node.ceiling = min(total, _NO_CEILING)


def _own(node: Node, sizer: Sizer, enough: int) -> int:
    """A ceiling for what stands in a node itself; where it is more than `enough`, any number that is."""
    ceiling = sizer.tokenizer.ceiling
    total = sizer.node_frame(node, 0, text=True) if node.role else 0
    for item in node.items:
        if total > enough:
            break
        if type(item) is Atom:
            bound = item.tokens if item.tokens >= 0 else ceiling(item.text)
            total += _NO_CEILING if bound is None else bound + sizer.frame(item.role, item.name)
        elif type(item) is Leaf:
            bound = sizer.leaf(item) if item.part else ceiling(item.text)
            total += _NO_CEILING if bound is None else bound + 1  # a line break
    return total
