"""Notes about a render: what it did that its author may not have meant."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from promptkit.rendering.expand.materialize import RenderTree, is_content
from promptkit.rendering.paths import Paths
from promptkit.rendering.prune.removals import PrunedTree, iter_removed
from promptkit.rendering.tree import Node, is_item_alive, is_literal, is_node_alive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.rendering.expand.sizing import Sizer


def list_notes(pruned: PrunedTree) -> tuple[str, ...]:
    """List the notes about a tree in a state: where only literal text is left, and which shares are not meant to be so."""
    paths = Paths(described=True)
    bare = dict.fromkeys(removed.node for removed in iter_removed(pruned) if removed.position >= 0)
    return (
        *(
            f"of {paths.shorten(node)} only its literal text is left."
            for node in bare
            if _is_bare(node, pruned.state)
        ),
        *list_share_notes(pruned.tree, pruned.sizer),
    )


def _is_bare(node: Node, state: int) -> bool:
    """Return whether literal text is all that is left of a node."""
    if node.message is None or node.calls or not is_node_alive(node, state):
        return False
    left = [
        item
        for item, removed_at in zip(node.items, node.removed_at, strict=True)
        if is_item_alive(item, removed_at, state) and (type(item) is Node or is_content(item))
    ]
    return bool(left) and all(map(is_literal, left))


def list_share_notes(tree: RenderTree, sizer: Sizer) -> Iterator[str]:
    """Yield a note for each node that fills an equal share of the budget because it has no `flex_grow`, though a child of it has one."""
    paths = Paths(described=True)
    for node in tree.nodes:
        around, element = node.parent, node.element
        if (
            around is None
            or around.layout is None
            or element is None
            or element.flex_grow is not None
            or node.budget is None
            or node.in_fallback
            or node.layout is None
            or not any(isfinite(group.grow) for group in node.layout.groups)
        ):
            continue
        group = around.layout.groups[node.group_index]
        members = [member for member in group.nodes if member.replaces is None]
        others = len(members) + group.plain_members - 1
        if others and sizer.tokens_used(node) >= _NEARLY * node.budget:
            yield (
                f"{paths.shorten(node)} has no flex_grow, so it shares the budget with {others} sibling{'s' * (others > 1)} "
                f"and got {node.budget:,} tokens for its flexible children: write flex_grow=1 to give it what they leave."
            )


_NEARLY = 0.8  # of its share: a truncated text may end at a line before
