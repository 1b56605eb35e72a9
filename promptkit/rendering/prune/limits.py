"""Prune the subtree of a limit: find the shortest prefix of its removal order that fits, and make it final.

The order is the same for every limit; what differs is the end that is counted from. From the last
state back takes the time of everything that is kept. Where limits are nested, each would count
again what the one inside it kept, so a limit that contains another one is counted from its first
state on: the tokens of the limits inside are known, and steps are taken until it holds. That takes
the time of what is new in it and of what it removes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from promptkit.rendering.prune.counting import BackwardScan, Overhead
from promptkit.rendering.prune.undo_log import CallRemoved, Change, ItemRemoved
from promptkit.rendering.subtree import iter_message_places, measure
from promptkit.rendering.tree import NEVER_REMOVED, MessageItem, Node, Run, is_below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.rendering.expand.sizing import Sizer
    from promptkit.rendering.prune.removal_order import RemovalOrder, Step

_MOST_LEAVES: Final = 8
"""Largest number of leaves of a message that is counted again after each removal."""

_MOST_NEW: Final = 4
"""Highest ratio of the content's upper bound to the limit at which the steps are counted one by
one. Above it most of the content is removed, so counting starts from the last state."""


def prune_from_last(
    order: RemovalOrder, root: Node, limit: int, sizer: Sizer, recorded: Sequence[Run]
) -> list[Step] | BackwardScan:
    """Count the states below a limit from the last one back, and make the first one that fits final.

    Returns:
        The steps that were taken, or the scan if not even the last state fits.
    """
    steps = order.run(root)
    scan = BackwardScan(root, steps, sizer, Overhead(), recorded)
    state = scan.find_first_fit(limit)
    if state is None:
        return scan
    order.settle(steps, state, scan.state)
    root.settled_tokens = scan.tokens_at(state) if root.message is None else None
    for step in steps[:state]:
        if isinstance(step, list):
            _forget_settled(step, root)
    return steps[:state]


def prune_from_first(
    order: RemovalOrder, root: Node, limit: int, sizer: Sizer
) -> list[Step] | None:
    """Take steps below a limit that contains other limits, until its content fits.

    Returns None, with nothing changed, if it must be counted from the last state.

    Needs a tree without fallbacks and cache breakpoints, and upper bounds of its nodes.
    """
    if (
        root.message is not None
        or root.token_bound is None
        or root.token_bound > _MOST_NEW * limit
        or not _contains_limit(root)
    ):
        return None
    tokens = _count(root, sizer)
    steps: list[Step] = []
    taken = order.take_steps(root, steps, batch=False)
    while tokens > limit:
        saved = (
            None
            if next(taken, _END) is _END
            else _count_saved(steps[-1], len(steps) - 1, root, sizer)
        )
        if saved is None:
            order.take_back(steps)
            return None
        tokens -= saved
    taken.close()
    order.make_final(steps)
    root.settled_tokens = tokens
    return steps


_END: Final = object()


def _contains_limit(root: Node) -> bool:
    """Return whether a node, or a group inside it, directly contains a limit that is already pruned."""
    nodes = [*root.nodes]
    for node in nodes:  # grows while it is walked
        if node.limit is not None and node.is_active:
            return True
        if node.role is None:
            nodes += node.nodes
    return False


def _count(root: Node, sizer: Sizer) -> int:
    """Count the tokens of the living messages below a limit.

    The tokens of a limit inside it are counted once and kept.
    """
    total = 0
    stack = [root]
    while stack:
        node = stack.pop()
        for item, removed_at in zip(node.items, node.removed_at, strict=True):
            if removed_at != NEVER_REMOVED:
                continue
            if isinstance(item, MessageItem):
                total += sizer.count_item(item)
            elif not isinstance(item, Node):
                continue
            elif item.role is not None:
                total += measure(item, sizer)
            elif item.settled_tokens is None:
                stack.append(item)
            else:
                if item.settled_tokens == _UNKNOWN:
                    item.settled_tokens = measure(item, sizer)
                total += item.settled_tokens
    return total


_UNKNOWN: Final = -1
"""Token count of a limit that a step of another limit has made stale."""


def _count_saved(step: Step, state: int, root: Node, sizer: Sizer) -> int | None:
    """Count the tokens of the messages below a limit that a step removed.

    Returns None if it removed a part of a long message.
    """
    if isinstance(step, tuple):
        run, entry = step
        removed = run.find_item(entry)
        return 0 if removed is None else sizer.count_item(removed)
    _forget_settled(step, root)
    saved = 0
    for item in _list_messages(step, state, root):
        if isinstance(item, MessageItem):
            saved += sizer.count_item(item)
        elif item.is_active and item.leaf_count > _MOST_LEAVES:
            return None
        else:
            saved += measure(item, sizer, state) - (
                measure(item, sizer, state + 1) if item.is_active else 0
            )
    return saved


def _list_messages(step: list[Change], state: int, root: Node) -> list[MessageItem | Node]:
    """List the messages below a limit that a step changed, each once."""
    places: dict[tuple[Node, int], None] = {}
    for change in step:
        message = (
            change.message
            if isinstance(change, CallRemoved)
            else change.parent.message
            if isinstance(change, ItemRemoved)
            else None
        )
        if message is not None and message.parent is not None:
            places[message.parent, message.position] = None
        elif isinstance(change, ItemRemoved):
            item = change.parent.items[change.position]
            if isinstance(item, Node) and item.role is None:
                places.update(
                    dict.fromkeys(
                        (parent, position)
                        for parent, position, _ in iter_message_places(item, state)
                    )
                )
            else:
                places[change.parent, change.position] = None
    return [
        item
        for parent, position in places
        if is_below(parent, root) and isinstance(item := parent.items[position], MessageItem | Node)
    ]


def _forget_settled(step: list[Change], root: Node) -> None:
    """Mark stale the token counts of outer limits that a removal below `root` touched."""
    for change in step:
        node = (
            change.parent
            if isinstance(change, ItemRemoved)
            else change.message
            if isinstance(change, CallRemoved)
            else None
        )
        while node is not None and not is_below(node, root):
            if node.settled_tokens is not None:
                node.settled_tokens = _UNKNOWN
            node = node.parent
