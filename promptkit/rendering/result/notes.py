"""Notes about a render: what it did that its author may not have meant."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import isfinite

from promptkit.rendering.expand.materialize import RenderTree, is_content
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.paths import Paths
from promptkit.rendering.prune.removals import PrunedTree, iter_removed
from promptkit.rendering.tree import Node, is_item_alive, is_literal, is_node_alive


def list_notes(pruned: PrunedTree) -> tuple[str, ...]:
    """List the notes about a tree in a state: where only literal text is left, and which shares are not meant to be so."""
    paths = Paths(described=True)
    bare = dict.fromkeys(removed.node for removed in iter_removed(pruned) if removed.position >= 0)
    # what its share leaves nothing of was never there to be removed
    bare |= dict.fromkeys(node for node in pruned.tree.nodes if node.is_cut_away)
    return (
        *(note for node in bare for note in _list_bare(node, pruned.state, paths)),
        *list_share_notes(pruned.tree, pruned.sizer),
    )


def _list_bare(node: Node, state: int, paths: Paths) -> Iterator[str]:
    """Yield a note if literal text is all that is left of a node, or on both sides of what has left."""
    if node.message is None or not is_node_alive(node, state):
        return
    left = [at for at in range(len(node.items)) if _is_left(node, at, state)]
    texts = {at for at in left if is_literal(node.items[at])}
    if not node.calls and left and len(left) == len(texts):
        yield f"of {paths.shorten(node)} only its literal text is left."
    elif any(
        before in texts and after in texts and _has_left(node, range(before + 1, after), state)
        for before, after in pairwise(left)
    ):
        yield f"in {paths.shorten(node)} nothing is left between literal texts."


def _has_left(node: Node, positions: range, state: int) -> bool:
    """Return whether a child at one of these positions was removed, or has a share that holds none of its content."""
    return any(
        not is_literal(item) and (removed_at < state or (type(item) is Node and item.is_cut_away))
        for item, removed_at in zip(
            node.items[positions.start : positions.stop],
            node.removed_at[positions.start : positions.stop],
            strict=True,
        )
    )


def _is_left(node: Node, position: int, state: int) -> bool:
    """Return whether an item with content is left of a node."""
    item = node.items[position]
    return is_item_alive(item, node.removed_at[position], state) and bool(
        item.items if type(item) is Node else is_content(item)
    )


def list_share_notes(tree: RenderTree, sizer: Sizer) -> Iterator[str]:
    """Yield a note for each node that fills an equal share of the budget because it has no `flex_grow`, though what is in it would take more.

    That is a node with a child that has `flex_grow`, or a message with a text that was cut to its share.
    """
    paths = Paths(described=True)
    cut = {node.message for node in tree.nodes if node.is_cut}
    for node in tree.nodes:
        around, element = node.parent, node.element
        if (
            around is None
            or around.layout is None
            or element is None
            or element.flex_grow is not None
            or node.budget is None
            or node.in_fallback
            or not (node in cut or _has_flex_child(node))
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


def _has_flex_child(node: Node) -> bool:
    """Return whether the children of a node are sized one after the other."""
    return node.layout is not None and any(isfinite(group.grow) for group in node.layout.groups)


_NEARLY = 0.8  # of its share: a truncated text may end at a line before
