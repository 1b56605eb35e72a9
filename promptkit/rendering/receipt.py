"""The receipt: what was removed, in which order, why, and what it would have cost."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from promptkit.messages import BoundaryPart
from promptkit.rendering.assemble import leaves_of, measure, message_of, placed
from promptkit.rendering.joints import separator
from promptkit.rendering.journal import CallTaken, Op, Taken
from promptkit.rendering.tree import Atom, Leaf, Node, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.rendering.order import Step
    from promptkit.rendering.pruned import Pruned

__all__ = ["Removal", "SourceSpan", "removals_of", "spans_of"]


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
    _node: Node = attrs.field(alias="node", repr=False, eq=False)
    _position: int = attrs.field(alias="position", repr=False, eq=False)
    _state: int = attrs.field(alias="state", repr=False, eq=False)
    _pruned: Pruned = attrs.field(alias="pruned", repr=False, eq=False)

    @property
    def step(self) -> int:
        """The step of the removal order that made it, counted from 0; -1 for a limit, which prunes whatever the budget."""
        return self._state

    @property
    def place(self) -> tuple[Node, int]:
        """For the engine: the node that it stood in and its place there, or the message and -1 less the index of its call."""
        return self._node, self._position

    @cached_property
    def tokens(self) -> int:
        """The tokens that it had when it went, counted when first read."""
        sizer = self._pruned.sizer
        if self._position < 0:
            return sizer.node_frame(self._node, self._state, text=True) - sizer.node_frame(self._node, self._state + 1, text=True)
        item = self._node.items[self._position]
        if type(item) is Atom:
            return sizer.atom(item)
        if type(item) is Leaf:
            return sizer.leaf(item)
        return measure(item, sizer, self._state) if type(item) is Node else 0


@attrs.frozen(kw_only=True)
class SourceSpan:
    """Where text came from: characters `start` to `end` of part `part` of message `message` were written by the element at `path`."""

    message: int
    part: int
    start: int
    end: int
    path: str


def removals_of(pruned: Pruned) -> tuple[Removal, ...]:
    """The removals of a render: those of limits first, then those of the budget, in order."""
    made: list[Removal] = []
    for _, steps in pruned.limited:
        for step in steps:
            made.extend(_of_step(pruned, step, -1, "limit", len(made)))
    for index, step in enumerate(pruned.scan.steps[: pruned.k]):
        made.extend(_of_step(pruned, step, index, pruned.reason, len(made)))
    return tuple(made)


def _of_step(pruned: Pruned, step: Step, state: int, reason: str, before: int) -> Iterator[Removal]:
    if isinstance(step, tuple):
        _, _, _, parent, position = step
        yield Removal(
            order=before + 1,
            path=path_of(parent, position),
            priority=step[0],
            reason=reason,
            node=parent,
            position=position,
            state=state,
            pruned=pruned,
        )
        return
    emptied: dict[Node, Taken] = {}
    taken: dict[Node, set[int]] = {}
    for op in step:
        if isinstance(op, Taken):
            taken.setdefault(op.parent, set()).add(op.position)
            emptied.setdefault(op.parent, op)
    order = before
    for op in step:
        shown = _outermost(op, taken)
        if shown is None:
            continue
        order += 1
        node, position, why, partner = shown
        cause: Taken | None = None
        while why == "empty":
            item = node.items[position]
            cause = emptied.get(item) if type(item) is Node and cause is None else emptied.get(_node_at(cause)) if cause else None
            if cause is None:
                why = "budget"
            else:
                why, partner = cause.reason, cause.partner
        item = node.items[position] if position >= 0 else node
        yield Removal(
            order=order,
            path=path_of(node, position) if position >= 0 else f"{path_of(node)} > call {node.calls[-position - 1].id}",
            priority=item.priority,
            reason=reason if why == "budget" else why,
            partner=path_of(partner) if partner else None,
            node=node,
            position=position,
            state=state,
            pruned=pruned,
        )


def _node_at(cause: Taken) -> Node:
    item = cause.parent.items[cause.position]
    return item if type(item) is Node else cause.parent


def _outermost(op: Op, taken: dict[Node, set[int]]) -> tuple[Node, int, str, Node | None] | None:
    """What an op shows in the receipt: nothing, where something around it went in the same step."""
    if isinstance(op, Taken):
        node = op.parent
        shown = (op.parent, op.position, op.reason, op.partner)
    elif isinstance(op, CallTaken):
        node = op.message
        shown = (op.message, -op.index - 1, op.reason, op.partner)
    else:
        return None
    while node.parent is not None:
        if node.position in taken.get(node.parent, ()):
            return None
        node = node.parent
    return shown


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
            part += not (bounded and isinstance(leaf.part, BoundaryPart))  # of adjacent boundaries one is left
            bounded = isinstance(leaf.part, BoundaryPart)
            before, start = None, 0
            continue
        if before is not None:
            start += len(separator(before, leaf, nearest))
        path = path_of(leaf.parent, leaf.position) if leaf.element else path_of(leaf.parent)
        yield SourceSpan(message=number, part=part, start=start, end=start + len(leaf.text), path=path)
        start += len(leaf.text)
        before = nearest = leaf
        bounded = False
