"""The receipt: what was removed, in which order, why, and what it would have cost.

A tree at one state of its removal order: what assembling and the receipt look at.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import attrs

from promptkit.messages import CacheBreakpointPart
from promptkit.rendering.assemble import leaves_of, measure, message_of, placed
from promptkit.rendering.text_joins import separator
from promptkit.rendering.tree import Atom, Leaf, Node, path_of
from promptkit.rendering.undo_log import Buried, CallTaken, Taken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.rendering.counting import Scan
    from promptkit.rendering.materialize import RenderTree
    from promptkit.rendering.removal_order import Step
    from promptkit.rendering.sizing import Sizer

__all__ = ["Gone", "Pruned", "Removal", "SourceSpan", "call_path", "gone_of", "removals_of", "spans_of", "tokens_of"]


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
    _gone: Gone = attrs.field(alias="gone", repr=False, eq=False)
    _pruned: Pruned = attrs.field(alias="pruned", repr=False, eq=False)

    @cached_property
    def tokens(self) -> int:
        """The tokens that it had when it went, counted when first read."""
        return tokens_of(self._gone, self._pruned.sizer)


@attrs.frozen(kw_only=True)
class SourceSpan:
    """Where text came from: characters `start` to `end` of part `part` of message `message` were written by the element at `path`."""

    message: int
    part: int
    start: int
    end: int
    path: str


class Gone(NamedTuple):
    """One removal, as the engine knows it: a node and the place in it, or a message and -1 less the index of its call."""

    order: int
    node: Node
    position: int
    state: int
    priority: float
    reason: str
    partner: Node | None


def gone_of(pruned: Pruned) -> Iterator[Gone]:
    """The removals of a render: those of limits first, then those of the budget, in order. Linear in what was removed."""
    order = 0
    for _, steps in pruned.limited:
        for step in steps:
            for each in _of_step(step, -1, "limit"):
                order += 1
                yield each._replace(order=order)
    for index, step in enumerate(pruned.scan.steps[: pruned.k]):
        for each in _of_step(step, index, pruned.reason):
            order += 1
            yield each._replace(order=order)


def removals_of(pruned: Pruned) -> tuple[Removal, ...]:
    """The same for people: with paths."""
    return tuple(
        Removal(
            order=gone.order,
            path=_path(gone),
            priority=gone.priority,
            reason=gone.reason,
            partner=path_of(gone.partner) if gone.partner else None,
            gone=gone,
            pruned=pruned,
        )
        for gone in gone_of(pruned)
    )


def call_path(message: str, node: Node, position: int) -> str:
    """The path of a tool call that left its message."""
    return f"{message} > call {node.calls[-position - 1].id}"


def _path(gone: Gone) -> str:
    if gone.position < 0:
        return call_path(path_of(gone.node), gone.node, gone.position)
    return path_of(gone.node, gone.position)


def tokens_of(gone: Gone, sizer: Sizer) -> int:
    """The tokens that something had when it went."""
    node, position, state = gone.node, gone.position, gone.state
    if position < 0:
        return sizer.node_frame(node, state, text=True) - sizer.node_frame(node, state + 1, text=True)
    item = node.items[position]
    if type(item) is Atom:
        return sizer.atom(item)
    if type(item) is Leaf:
        return sizer.leaf(item)
    return measure(item, sizer, state) if type(item) is Node else 0


def _of_step(step: Step, state: int, reason: str) -> Iterator[Gone]:
    if isinstance(step, tuple):
        _, _, _, parent, position = step
        yield Gone(0, parent, position, state, step[0], reason, None)
        return
    buried: set[Node] = set()
    emptied: dict[Node, Taken] = {}
    for op in step:
        if isinstance(op, Taken):
            emptied.setdefault(op.parent, op)
        elif isinstance(op, Buried):
            buried.update(op.nodes)
    for op in step:
        # What stood in something that went in the same step is not told of apart.
        if isinstance(op, Taken) and op.parent not in buried:
            node, position, why, partner = op.parent, op.position, op.reason, op.partner
        elif isinstance(op, CallTaken) and op.message not in buried:
            node, position, why, partner = op.message, -op.index - 1, op.reason, op.partner
        else:
            continue
        cause: Taken | None = None
        while why == "empty":
            item = node.items[position]
            cause = emptied.get(item) if type(item) is Node and cause is None else emptied.get(_node_at(cause)) if cause else None
            if cause is None:
                why = "budget"
            else:
                why, partner = cause.reason, cause.partner
        item = node.items[position] if position >= 0 else node
        yield Gone(0, node, position, state, item.priority, reason if why == "budget" else why, partner)


def _node_at(cause: Taken) -> Node:
    item = cause.parent.items[cause.position]
    return item if type(item) is Node else cause.parent


def spans_of(pruned: Pruned) -> tuple[SourceSpan, ...]:
    """Where each piece of text of a render came from."""
    spans: list[SourceSpan] = []
    k = pruned.k
    number = 0
    for parent, position in placed(pruned.tree.root, k):
        item = parent.items[position]
        if type(item) is Atom:
            spans.append(SourceSpan(message=number, part=0, start=0, end=len(item.text), path=path_of(parent, position)))
            number += 1
        elif type(item) is Node and message_of(item, k) is not None:
            spans.extend(_of_message(item, number, k))
            number += 1
    return tuple(spans)


def _of_message(node: Node, number: int, k: int) -> Iterator[SourceSpan]:
    part = 0
    start = 0
    before: Leaf | None = None
    nearest: Leaf | None = None
    bounded = False
    for leaf in leaves_of(node, k):
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
            start += len(separator(before, leaf, nearest))
        path = path_of(leaf.parent, leaf.position) if leaf.element else path_of(leaf.parent)
        yield SourceSpan(message=number, part=part, start=start, end=start + len(leaf.text), path=path)
        start += len(leaf.text)
        before = nearest = leaf
        bounded = False


@attrs.frozen(kw_only=True)
class Pruned:
    """A tree at one state: the first `k` steps of its removal order taken."""

    tree: RenderTree
    sizer: Sizer
    scan: Scan
    k: int
    tokens: int
    budget: int
    reason: str
    """Why the scan's steps were taken: `budget`, or `limit`."""

    limited: tuple[tuple[Node, list[Step]], ...]
    """What limits removed before: (the limit's node, its steps)."""
