"""The changes that a step of the removal order makes, so that they can be undone, last change first, and redone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from promptkit.rendering.tree import NEVER_REMOVED, EntryTaken, Item, Leaf, Node


class ItemRemoved(NamedTuple):
    """An item was removed."""

    parent: Node
    position: int
    reason: str
    """`budget`, `kept-with`, `tool-pair`, `share` or `empty`."""
    partner: Node | None
    """The node whose removal caused this one."""
    counted: bool
    """Whether the item was one of its parent's `live_items`."""


class SubtreeRemoved(NamedTuple):
    """The active nodes of a removed subtree were deactivated."""

    nodes: list[Node]


class LeafUnlinked(NamedTuple):
    """A leaf was taken out of its message's chain."""

    leaf: Leaf


class LeafLinked(NamedTuple):
    """A leaf of a fallback was put into its message's chain."""

    leaf: Leaf


class CallRemoved(NamedTuple):
    """A tool call was removed from its message."""

    message: Node
    call: int
    reason: str
    partner: Node | None


class FallbackActivated(NamedTuple):
    """A fallback was activated."""

    fallback: Node
    nodes: list[Node]
    """The nodes of its subtree that became active."""
    counted: list[Node]
    """The nodes that are now one of their parents' `live_items`: the fallback, and the containers
    around it that were empty before."""


Change: TypeAlias = (
    ItemRemoved
    | SubtreeRemoved
    | LeafUnlinked
    | LeafLinked
    | CallRemoved
    | FallbackActivated
    | EntryTaken
)


def apply(change: Change, *, taken: bool) -> None:
    """Undo a change in the current state, or with `taken` redo one that was undone.

    The steps (`removed_at`, `activated_at`) are left to `mark_step`.
    """
    if isinstance(change, ItemRemoved):
        change.parent.live_items += -change.counted if taken else change.counted
    elif isinstance(change, LeafUnlinked | LeafLinked):
        if isinstance(change, LeafLinked) is taken:
            _relink(change.leaf)
        else:
            unlink(change.leaf)
    elif isinstance(change, SubtreeRemoved):
        for node in change.nodes:
            node.is_active = not taken
    elif isinstance(change, FallbackActivated):
        for node in change.nodes:
            node.is_active = taken
        for node in change.counted:
            set_counted(node, counted=taken)


def set_counted(node: Node, *, counted: bool) -> None:
    """Set whether a node is one of its parent's `live_items`."""
    node.is_counted = counted
    if node.parent is not None:
        node.parent.live_items += 1 if counted else -1


def mark_step(change: Change, step: int) -> None:
    """Set the step that makes a change."""
    if isinstance(change, ItemRemoved):
        change.parent.removed_at[change.position] = step
    elif isinstance(change, CallRemoved):
        change.message.calls_removed_at[change.call] = step
    elif isinstance(change, FallbackActivated):
        change.fallback.activated_at = step
    elif isinstance(change, EntryTaken) and step == NEVER_REMOVED:
        del change.run.steps[-1:]


def unlink(leaf: Leaf) -> None:
    """Take a leaf out of its message's chain.

    The leaf keeps the references to its neighbours, so that `_relink` can put it back, if leaves
    are relinked in reverse order.
    """
    _set_neighbours(leaf, leaf.following, leaf.previous)


def _relink(leaf: Leaf) -> None:
    """Link a leaf between its former neighbours, which it still refers to."""
    _set_neighbours(leaf, leaf, leaf)


def _set_neighbours(leaf: Leaf, following: Leaf | None, previous: Leaf | None) -> None:
    """Set what follows the leaf before a leaf, and what precedes the leaf after it."""
    before, after = leaf.previous, leaf.following
    if before is not None:
        before.following = following
    elif leaf.parent.message is not None:
        leaf.parent.message.first_leaf = following
    if after is not None:
        after.previous = previous


def link_fallback(fallback: Node, last: Leaf | None) -> Iterator[Leaf]:
    """Put the leaves of a fallback into its message's chain and yield them in order.

    `last` is the leaf that was taken out at this place directly before, if there was one.
    """
    message = fallback.message
    if message is None or fallback.role is not None:
        return
    before, after = (last.previous, last.following) if last else _find_neighbours(message, fallback)
    stack: list[Iterator[Item]] = [
        iter([fallback.placeholder] if fallback.placeholder else fallback.items)
    ]
    while stack:
        for item in stack[-1]:
            if type(item) is Leaf:
                item.previous, item.following = before, after
                _relink(item)
                yield item
                before = item
            elif type(item) is Node and item.is_active:
                stack.append(iter([item.placeholder] if item.placeholder else item.items))
                break
        else:
            stack.pop()


def _find_neighbours(message: Node, fallback: Node) -> tuple[Leaf | None, Leaf | None]:
    """Find the living leaves before and after a fallback, by their index in the message."""
    start = fallback.first_leaf_index
    before: Leaf | None = None
    leaf = message.first_leaf
    while leaf is not None and leaf.index < start:
        before, leaf = leaf, leaf.following
    return before, leaf
