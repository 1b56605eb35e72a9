"""What a step of the removal order changed, so that it can be taken back, last change first, and done again."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from promptkit.rendering.tree import Item, Leaf, Node

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Buried", "CallTaken", "Linked", "Op", "Raised", "Taken", "Unlinked", "link_below", "mark_step", "redo", "undo", "unlink"]


class Taken:
    """An item went. `reason`: budget, kept-with, tool-pair, empty; `partner`: the node that took it along."""

    __slots__ = ("counted", "parent", "partner", "position", "reason")

    def __init__(self, parent: Node, position: int, reason: str, partner: Node | None, *, counted: bool) -> None:
        self.parent = parent
        self.position = position
        self.reason = reason
        self.partner = partner
        self.counted = counted


class Buried:
    """Nodes went down with the node that was taken."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes


class Unlinked:
    """A leaf left its message's chain."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf


class Linked:
    """A fallback's leaf joined its message's chain."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf


class CallTaken:
    """A tool call left its message."""

    __slots__ = ("index", "message", "partner", "reason")

    def __init__(self, message: Node, index: int, reason: str, partner: Node | None) -> None:
        self.message = message
        self.index = index
        self.reason = reason
        self.partner = partner


class Raised:
    """A fallback took its place."""

    __slots__ = ("nodes", "spare")

    def __init__(self, spare: Node, nodes: list[Node]) -> None:
        self.spare = spare
        self.nodes = nodes


Op: TypeAlias = Taken | Buried | Unlinked | Linked | CallTaken | Raised


def undo(op: Op) -> None:
    """Take a change back, as far as the forward run is concerned; `gone` and `born` are the caller's."""
    if isinstance(op, Taken):
        op.parent.live += op.counted
    elif isinstance(op, Unlinked):
        relink(op.leaf)
    elif isinstance(op, Buried):
        for node in op.nodes:
            node.up = True
    elif isinstance(op, Linked):
        unlink(op.leaf)
    elif isinstance(op, Raised):
        for node in op.nodes:
            node.up = False
        if op.spare.parent is not None:
            op.spare.parent.live -= op.spare.counted


def redo(op: Op) -> None:
    """Do a change again that was taken back."""
    if isinstance(op, Taken):
        op.parent.live -= op.counted
    elif isinstance(op, Unlinked):
        unlink(op.leaf)
    elif isinstance(op, Buried):
        for node in op.nodes:
            node.up = False
    elif isinstance(op, Linked):
        relink(op.leaf)
    elif isinstance(op, Raised):
        for node in op.nodes:
            node.up = True
        if op.spare.parent is not None:
            op.spare.parent.live += op.spare.counted


def mark_step(op: Op, step: int) -> None:
    """Set the step at which a change happens."""
    if isinstance(op, Taken):
        op.parent.gone[op.position] = step
    elif isinstance(op, CallTaken):
        op.message.calls_gone[op.index] = step
    elif isinstance(op, Raised):
        op.spare.born = step


def unlink(leaf: Leaf) -> None:
    """Take a leaf out of its message's chain. It remembers its neighbours, so `relink` puts it back if done in reverse order."""
    before, behind = leaf.previous, leaf.following
    if before is not None:
        before.following = behind
    elif leaf.parent.message is not None:
        leaf.parent.message.first = behind
    if behind is not None:
        behind.previous = before


def relink(leaf: Leaf) -> None:
    """Put a leaf back between the neighbours that it remembers."""
    before, behind = leaf.previous, leaf.following
    if before is not None:
        before.following = leaf
    elif leaf.parent.message is not None:
        leaf.parent.message.first = leaf
    if behind is not None:
        behind.previous = leaf


def link_below(spare: Node, last: Leaf | None) -> Iterator[Leaf]:
    """Link the leaves of a fallback into its message, where the leaf `last` was taken out just now; yields them in order."""
    message = spare.message
    if message is None or spare.role is not None:
        return
    before, behind = (last.previous, last.following) if last else _neighbours(message, spare)
    stack: list[Iterator[Item]] = [iter([spare.ghost] if spare.ghost else spare.items)]
    while stack:
        for item in stack[-1]:
            if type(item) is Leaf:
                item.previous, item.following = before, behind
                relink(item)
                yield item
                before = item
            elif type(item) is Node and item.up:
                stack.append(iter([item.ghost] if item.ghost else item.items))
                break
        else:
            stack.pop()


def _neighbours(message: Node, spare: Node) -> tuple[Leaf | None, Leaf | None]:
    """The living leaves around an empty place, found by their order in the message."""
    seq = spare.place
    before: Leaf | None = None
    leaf = message.first
    while leaf is not None and leaf.seq < seq:
        before, leaf = leaf, leaf.following
    return before, leaf
