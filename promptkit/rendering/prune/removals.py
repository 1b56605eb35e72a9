"""The removals of a render: what was removed, in which order and why, and how many tokens it had."""

from __future__ import annotations

from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple

import attrs

from promptkit.elements import Truncate
from promptkit.rendering.paths import Paths
from promptkit.rendering.prune.removal_order import CallRemoved, Change, ItemRemoved, SubtreeRemoved
from promptkit.rendering.subtree import measure
from promptkit.rendering.tree import (
    Leaf,
    MessageItem,
    Node,
    find_marker,
    is_item_alive,
    read_given_priority,
)
from promptkit.reprs import describe_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from promptkit.rendering.expand.materialize import RenderTree
    from promptkit.rendering.expand.sizing import Sizer
    from promptkit.rendering.prune.counting import BackwardScan
    from promptkit.rendering.prune.removal_order import Step


@attrs.frozen(kw_only=True)
class Removal:
    """An element, a text or a tool call that was removed from a prompt.

    A fallback that replaces something is none.
    """

    order: int
    """Its place in the order of removal, counted from 1."""

    path: str
    """The element path, such as `AgentPrompt > History > UserMessage[12]`."""

    label: str
    """The name of the element in receipts: `outer label > label`, or the path from the innermost
    labelled ancestor, without grouping elements."""

    priority: float | None
    """The priority of the element. None means no priority, which ranks highest."""

    reason: str
    """Why it was removed.

    * `budget`: it had the lowest priority when the prompt exceeded the budget.
    * `limit`: it had the lowest priority when a TokenLimit around it was exceeded.
    * `cut`: it is a Truncate, which was shortened and not removed yet.
    * `kept-with`: its KeepWith group was removed.
    * `tool-pair`: the tool call or the tool result that it belongs to was removed.
    * `share`: it is literal text around elements whose shares of the budget hold none of their
      content.
    """

    partner: str | None = None
    """The path of the element whose removal caused this one, if the reason is `kept-with` or
    `tool-pair`."""

    partner_label: str | None = None
    """The name of that element in receipts."""

    _item: RemovedItem = attrs.field(alias="item", repr=False, eq=False)
    _pruned: PrunedTree = attrs.field(alias="pruned", repr=False, eq=False)

    __repr__ = describe_fields

    @cached_property
    def tokens(self) -> int:
        """The tokens that it had when it was removed. Counted when first read."""
        return count_removed(self._item, self._pruned.sizer)


@attrs.frozen(kw_only=True)
class PrunedTree:
    """A tree in one state: the first `state` steps of its removal order have been taken."""

    tree: RenderTree
    sizer: Sizer
    scan: BackwardScan
    state: int
    tokens: int
    budget: int
    reason: str
    """The reason of the scan's steps: `budget` or `limit`."""

    limit_steps: Sequence[tuple[Node, list[Step]]]
    """The steps that were taken before, by limits and because of shares of nothing: (the node of
    the limit, or the root, its steps)."""


class RemovedItem(NamedTuple):
    """A removed item: the item at `position` of `node`.

    Of a removed tool call, `node` is the message, and `position` is -1 minus the index of the call.
    """

    order: int
    node: Node
    position: int
    state: int
    priority: float
    reason: str
    partner: Node | None


def iter_removed(pruned: PrunedTree) -> Iterator[RemovedItem]:
    """Yield the removed items of a render: first those of limits, then those of the budget, each in order.

    A fallback is no removal of its own, nor is a shorter text of a Truncate, nor is an element of which nothing else was left: what it
    replaced was removed before it. So what is kept with a fallback, such as the next message with a
    marker, was removed for the reason of the fallback.
    """
    taken = chain(
        ((step, -1, "limit") for _, steps in pruned.limit_steps for step in steps),
        (
            (step, index, pruned.reason)
            for index, step in enumerate(pruned.scan.steps[: pruned.state])
        ),
    )
    orders = count(1)
    for step, state, reason in taken:
        for each in _read_step(step, state, reason):
            if not _is_fallback_only(each):
                removed = each._replace(order=next(orders))
                truncate = removed.node
                if isinstance(truncate.element, Truncate) and truncate.parent is not None:
                    removed = removed._replace(
                        node=truncate.parent, position=truncate.position, reason="cut"
                    )
                elif each.partner is not None and each.partner.in_fallback:
                    removed = removed._replace(reason=reason, partner=None)
                yield removed


def _is_fallback_only(removed: RemovedItem) -> bool:
    """Return whether a removed item is in a fallback, or a container that held only fallbacks."""
    item = removed.node.items[removed.position] if removed.position >= 0 else removed.node
    if type(item) is not Node or removed.position < 0:
        return (item if type(item) is Node else removed.node).in_fallback
    has_fallback = item.in_fallback
    stack = [item]
    while stack:
        node = stack.pop()
        if node.calls or node.call_id is not None or isinstance(node.element, Truncate):
            return False  # what is left of a Truncate is no fallback of it
        if node.in_fallback:
            has_fallback = True
            continue
        if find_marker(node, removed.state) is not None:
            has_fallback = True  # a marker is what was left of a conversation
        for child, removed_at in zip(node.items, node.removed_at, strict=True):
            if not is_item_alive(child, removed_at, removed.state):
                continue
            if type(child) is Node:
                stack.append(child)
            elif type(child) is not Leaf or not child.is_empty:
                return False
    return has_fallback


def list_removals(pruned: PrunedTree) -> tuple[Removal, ...]:
    """Return what a render removed, with paths."""
    paths = Paths(described=True)
    return tuple(
        Removal(
            order=item.order,
            path=format_removed(item, paths.format),
            label=format_removed(item, paths.shorten),
            priority=read_given_priority(item.priority),
            reason=item.reason,
            partner=paths.format(item.partner) if item.partner else None,
            partner_label=paths.shorten(item.partner) if item.partner else None,
            item=item,
            pruned=pruned,
        )
        for item in iter_removed(pruned)
    )


def format_call_path(message: str, node: Node, position: int) -> str:
    """Format the path of a removed tool call, from the path of its message."""
    return f"{message} > call {node.calls[-position - 1].id}"


def format_removed(removed: RemovedItem, format_item: Callable[..., str]) -> str:
    """Format the path or the name of a removed item, given a method of `Paths`."""
    if removed.position < 0:
        return format_call_path(format_item(removed.node), removed.node, removed.position)
    return format_item(removed.node, removed.position)


def count_removed(removed: RemovedItem, sizer: Sizer) -> int:
    """Count the tokens that an item had when it was removed."""
    node, position, state = removed.node, removed.position, removed.state
    if position < 0:
        return sizer.count_node_frame(node, state, text=True) - sizer.count_node_frame(
            node, state + 1, text=True
        )
    item = node.items[position]
    if isinstance(item, MessageItem):
        return sizer.count_item(item)
    if isinstance(item, Leaf):
        return sizer.count_leaf(item)
    return measure(item, sizer, state)


def _read_step(step: Step, state: int, reason: str) -> Iterator[RemovedItem]:
    """Yield what one step removed. `reason` replaces the reason `budget`."""
    if isinstance(step, tuple):
        run, entry = step
        if run.find_item(entry) is not None:
            yield RemovedItem(
                0,
                run.node,
                run.order[entry],
                state,
                run.priorities[entry],
                reason,
                None,
            )
        return
    yield from _read_changes(step, state, reason)


def _read_changes(step: list[Change], state: int, reason: str) -> Iterator[RemovedItem]:
    removed_nodes = {
        node for change in step if isinstance(change, SubtreeRemoved) for node in change.nodes
    }
    first_removals = {
        change.parent: change for change in reversed(step) if isinstance(change, ItemRemoved)
    }
    for change in step:
        # An item inside something that the same step removed is not reported on its own.
        if isinstance(change, ItemRemoved) and change.parent not in removed_nodes:
            node, position = change.parent, change.position
        elif isinstance(change, CallRemoved) and change.message not in removed_nodes:
            node, position = change.message, -change.call - 1
        else:
            continue
        why, partner = change.reason, change.partner
        emptied = node.items[position] if why == "empty" else None
        # a container that was emptied has the reason of its first removed item
        while why == "empty":
            cause = first_removals.get(emptied) if type(emptied) is Node else None
            if cause is None:
                why = "budget"
            else:
                why, partner = cause.reason, cause.partner
                emptied = cause.parent.items[cause.position]
        yield RemovedItem(
            0,
            node,
            position,
            state,
            find_priority(node, position),
            reason if why == "budget" else why,
            partner,
        )


def find_priority(node: Node, position: int) -> float:
    """Return the priority of an item. At a negative position (a tool call), return that of its message."""
    if position < 0:
        return node.priority
    return (
        node.run.find_priority(position)
        if node.run is not None and node.run.is_recorded
        else node.items[position].priority
    )
