"""What a step of the removal order changed, so that it can be taken back, last change first, and done again."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from promptkit.rendering.tree import Item, Leaf, Node

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SubtreeRemoved", "CallRemoved", "LeafLinked", "Change", "FallbackActivated", "ItemRemoved", "LeafUnlinked", "link_fallback", "mark_step", "redo", "undo", "unlink"]


class ItemRemoved:
    """An item went. `reason`: budget, kept-with, tool-pair, empty; `partner`: the node that took it along."""

    __slots__ = ("counted", "parent", "partner", "position", "reason")

    def __init__(self, parent: Node, position: int, reason: str, partner: Node | None, *, counted: bool) -> None:
        self.parent = parent
        self.position = position
        self.reason = reason
        self.partner = partner
        self.counted = counted


class SubtreeRemoved:
    """Nodes went down with the node that was taken."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes


class LeafUnlinked:
    """A leaf left its message's chain."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf


class LeafLinked:
    """A fallback's leaf joined its message's chain."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf


class CallRemoved:
    """A tool call left its message."""

    __slots__ = ("index", "message", "partner", "reason")

    def __init__(self, message: Node, index: int, reason: str, partner: Node | None) -> None:
        self.message = message
        self.index = index
        self.reason = reason
        self.partner = partner


class FallbackActivated:
    """A fallback took its place."""

    __slots__ = ("nodes", "spare")

    def __init__(self, spare: Node, nodes: list[Node]) -> None:
        self.spare = spare
        self.nodes = nodes


Change: TypeAlias = ItemRemoved | SubtreeRemoved | LeafUnlinked | LeafLinked | CallRemoved | FallbackActivated


def undo(op: Change) -> None:
    """Take a change back, as far as the forward run is concerned; `gone` and `born` are the caller's."""
    if isinstance(op, ItemRemoved):
        op.parent.live_items += op.counted
    elif isinstance(op, LeafUnlinked):
        relink(op.leaf)
    elif isinstance(op, SubtreeRemoved):
        for node in op.nodes:
            node.is_active = True
    elif isinstance(op, LeafLinked):
        unlink(op.leaf)
    elif isinstance(op, FallbackActivated):
        for node in op.nodes:
            node.is_active = False
        if op.spare.parent is not None:
            op.spare.parent.live_items -= op.spare.is_counted


def redo(op: Change) -> None:
    """Do a change again that was taken back."""
    if isinstance(op, ItemRemoved):
        op.parent.live_items -= op.counted
    elif isinstance(op, LeafUnlinked):
        unlink(op.leaf)
    elif isinstance(op, SubtreeRemoved):
        for node in op.nodes:
            node.is_active = False
    elif isinstance(op, LeafLinked):
        relink(op.leaf)
    elif isinstance(op, FallbackActivated):
        for node in op.nodes:
            node.is_active = True
        if op.spare.parent is not None:
            op.spare.parent.live_items += op.spare.is_counted


def mark_step(op: Change, step: int) -> None:
    """Set the step at which a change happens."""
    if isinstance(op, ItemRemoved):
        op.parent.removed_at[op.position] = step
    elif isinstance(op, CallRemoved):
        op.message.calls_removed_at[op.index] = step
    elif isinstance(op, FallbackActivated):
        op.spare.activated_at = step


def unlink(leaf: Leaf) -> None:
    """Take a leaf out of its message's chain. It remembers its neighbours, so `relink` puts it back if done in reverse order."""
    before, behind = leaf.previous, leaf.following
    if before is not None:
        before.following = behind
    elif leaf.parent.message is not None:
        leaf.parent.message.first_leaf = behind
    if behind is not None:
        behind.previous = before


def relink(leaf: Leaf) -> None:
    """Put a leaf back between the neighbours that it remembers."""
    before, behind = leaf.previous, leaf.following
    if before is not None:
        before.following = leaf
    elif leaf.parent.message is not None:
        leaf.parent.message.first_leaf = leaf
    if behind is not None:
        behind.previous = leaf


def link_fallback(spare: Node, last: Leaf | None) -> Iterator[Leaf]:
    """Link the leaves of a fallback into its message, where the leaf `last` was taken out just now; yields them in order."""
    message = spare.message
    if message is None or spare.role is not None:
        return
    before, behind = (last.previous, last.following) if last else _neighbours(message, spare)
    stack: list[Iterator[Item]] = [iter([spare.placeholder] if spare.placeholder else spare.items)]
    while stack:
        for item in stack[-1]:
            if type(item) is Leaf:
                item.previous, item.following = before, behind
                relink(item)
                yield item
                before = item
            elif type(item) is Node and item.is_active:
                stack.append(iter([item.placeholder] if item.placeholder else item.items))
                break
        else:
            stack.pop()


def _neighbours(message: Node, spare: Node) -> tuple[Leaf | None, Leaf | None]:
    """The living leaves around an empty place, found by their order in the message."""
    seq = spare.first_leaf_index
    before: Leaf | None = None
    leaf = message.first_leaf
    while leaf is not None and leaf.index < seq:
        before, leaf = leaf, leaf.following
    return before, leaf
