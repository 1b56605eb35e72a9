"""The receipt: what was removed, in which order, why, and what it would have cost.

A tree at one state of its removal order: what assembling and the receipt look at.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import attrs

from promptkit.messages import CacheBreakpointPart
from promptkit.rendering.assemble import iter_leaves, measure, build_message, iter_message_places
from promptkit.rendering.text_joins import find_separator
from promptkit.rendering.tree import TextMessage, Leaf, Node, format_path
from promptkit.rendering.undo_log import SubtreeRemoved, CallRemoved, ItemRemoved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.rendering.counting import BackwardScan
    from promptkit.rendering.materialize import RenderTree
    from promptkit.rendering.removal_order import Step
    from promptkit.rendering.sizing import Sizer

__all__ = ["RemovedItem", "PrunedTree", "Removal", "SourceSpan", "format_call_path", "iter_removed", "list_removals", "map_sources", "count_removed"]


@attrs.frozen(kw_only=True)
class Removal:
    """Something that was removed.

    `order` counts from 1, in the order of removal. `reason` is `budget` (the lowest priority when room was needed), `limit` (likewise, for
    a TokenLimit around it), `kept-with` (its KeepWith group went), or `tool-pair` (the call or the result that it belongs to went);
    `partner` is then the path of what took it along.
    """

    order: int
    path: str
    priority: float
    reason: str
    partner: str | None = None
    _gone: RemovedItem = attrs.field(alias="gone", repr=False, eq=False)
    _pruned: PrunedTree = attrs.field(alias="pruned", repr=False, eq=False)

    @cached_property
    def tokens(self) -> int:
        """The tokens that it had when it went, counted when first read."""
        return count_removed(self._gone, self._pruned.sizer)


@attrs.frozen(kw_only=True)
class SourceSpan:
    """Where text came from: characters `start` to `end` of part `part` of message `message` were written by the element at `path`."""

    message: int
    part: int
    start: int
    end: int
    path: str


class RemovedItem(NamedTuple):
    """One removal, as the engine knows it: a node and the place in it, or a message and -1 less the index of its call."""

    order: int
    node: Node
    position: int
    state: int
    priority: float
    reason: str
    partner: Node | None


def iter_removed(pruned: PrunedTree) -> Iterator[RemovedItem]:
    """The removals of a render: those of limits first, then those of the budget, in order. Linear in what was removed."""
    order = 0
    for _, steps in pruned.limit_steps:
        for step in steps:
            for each in _of_step(step, -1, "limit"):
                order += 1
                yield each._replace(order=order)
    for index, step in enumerate(pruned.scan.steps[: pruned.state]):
        for each in _of_step(step, index, pruned.reason):
            order += 1
            yield each._replace(order=order)


def list_removals(pruned: PrunedTree) -> tuple[Removal, ...]:
    """The same for people: with paths."""
    return tuple(
        Removal(
            order=gone.order,
            path=_path(gone),
            priority=gone.priority,
            reason=gone.reason,
            partner=format_path(gone.partner) if gone.partner else None,
            gone=gone,
            pruned=pruned,
        )
        for gone in iter_removed(pruned)
    )


def format_call_path(message: str, node: Node, position: int) -> str:
    """The path of a tool call that left its message."""
    return f"{message} > call {node.calls[-position - 1].id}"


def _path(gone: RemovedItem) -> str:
    if gone.position < 0:
        return format_call_path(format_path(gone.node), gone.node, gone.position)
    return format_path(gone.node, gone.position)


def count_removed(gone: RemovedItem, sizer: Sizer) -> int:
    """The tokens that something had when it went."""
    node, position, state = gone.node, gone.position, gone.state
    if position < 0:
        return sizer.count_node_frame(node, state, text=True) - sizer.count_node_frame(node, state + 1, text=True)
    item = node.items[position]
    if type(item) is TextMessage:
        return sizer.count_text_message(item)
    if type(item) is Leaf:
        return sizer.count_leaf(item)
    return measure(item, sizer, state) if type(item) is Node else 0


def _of_step(step: Step, state: int, reason: str) -> Iterator[RemovedItem]:
    if isinstance(step, tuple):
        _, _, _, parent, position = step
        yield RemovedItem(0, parent, position, state, step[0], reason, None)
        return
    buried: set[Node] = set()
    emptied: dict[Node, ItemRemoved] = {}
    for op in step:
        if isinstance(op, ItemRemoved):
            emptied.setdefault(op.parent, op)
        elif isinstance(op, SubtreeRemoved):
            buried.update(op.nodes)
    for op in step:
        # What stood in something that went in the same step is not told of apart.
        if isinstance(op, ItemRemoved) and op.parent not in buried:
            node, position, why, partner = op.parent, op.position, op.reason, op.partner
        elif isinstance(op, CallRemoved) and op.message not in buried:
            node, position, why, partner = op.message, -op.index - 1, op.reason, op.partner
        else:
            continue
        cause: ItemRemoved | None = None
        while why == "empty":
            item = node.items[position]
            cause = emptied.get(item) if type(item) is Node and cause is None else emptied.get(_node_at(cause)) if cause else None
            if cause is None:
                why = "budget"
            else:
                why, partner = cause.reason, cause.partner
        item = node.items[position] if position >= 0 else node
        yield RemovedItem(0, node, position, state, item.priority, reason if why == "budget" else why, partner)


def _node_at(cause: ItemRemoved) -> Node:
    item = cause.parent.items[cause.position]
    return item if type(item) is Node else cause.parent


def map_sources(pruned: PrunedTree) -> tuple[SourceSpan, ...]:
    """Where each piece of text of a render came from."""
    spans: list[SourceSpan] = []
    k = pruned.state
    number = 0
    for parent, position in iter_message_places(pruned.tree.root, k):
        item = parent.items[position]
        if type(item) is TextMessage:
            spans.append(SourceSpan(message=number, part=0, start=0, end=len(item.text), path=format_path(parent, position)))
            number += 1
        elif type(item) is Node and build_message(item, k) is not None:
            spans.extend(_of_message(item, number, k))
            number += 1
    return tuple(spans)


def _of_message(node: Node, number: int, k: int) -> Iterator[SourceSpan]:
    part = 0
    start = 0
    before: Leaf | None = None
    nearest: Leaf | None = None
    bounded = False
    for leaf in iter_leaves(node, k):
        if leaf.is_empty:
            nearest = leaf
            continue
        if leaf.part is not None:
            part += before is not None
            part += not (bounded and isinstance(leaf.part, CacheBreakpointPart))  # of adjacent boundaries one is left
            bounded = isinstance(leaf.part, CacheBreakpointPart)
            before, start = None, 0
            continue
        if before is not None:
            start += len(find_separator(before, leaf, nearest))
        path = format_path(leaf.parent, leaf.position) if leaf.element else format_path(leaf.parent)
        yield SourceSpan(message=number, part=part, start=start, end=start + len(leaf.text), path=path)
        start += len(leaf.text)
        before = nearest = leaf
        bounded = False


@attrs.frozen(kw_only=True)
class PrunedTree:
    """A tree at one state: the first `k` steps of its removal order taken."""

    tree: RenderTree
    sizer: Sizer
    scan: BackwardScan
    state: int
    tokens: int
    budget: int
    reason: str
    """Why the scan's steps were taken: `budget`, or `limit`."""

    limit_steps: tuple[tuple[Node, list[Step]], ...]
    """What limits removed before: (the limit's node, its steps)."""
