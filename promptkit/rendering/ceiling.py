"""Upper bounds of sizes: what surely fits needs no search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.rendering.tree import Atom, Leaf

if TYPE_CHECKING:
    from promptkit.rendering.layout import Sizer
    from promptkit.rendering.materialize import Tree

__all__ = ["set_ceilings"]

_NO_CEILING = 1 << 60


def set_ceilings(tree: Tree, sizer: Sizer) -> None:
    """Give every node a number of tokens that it surely does not exceed, without counting its text."""
    ceiling = sizer.tokenizer.ceiling
    for node in reversed(tree.nodes):
        total = sizer.node_frame(node, 0, text=True) if node.role else 0
        for item in node.items:
            if type(item) is Atom:
                bound = item.tokens if item.tokens >= 0 else ceiling(item.text)
                total += _NO_CEILING if bound is None else bound + sizer.frame(item.role, item.name)
            elif type(item) is Leaf:
                bound = sizer.leaf(item) if item.part else ceiling(item.text)
                total += _NO_CEILING if bound is None else bound + 1  # a line break
            if total >= _NO_CEILING:
                break
        total += sum(child.ceiling or 0 for child in node.nodes)
        node.ceiling = min(total, _NO_CEILING)
