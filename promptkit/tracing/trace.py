"""The trace of one render: the tree, the budget of each element, and every state of the removal order.

A trace consists of plain values without a reference to the renderer, so it can be stored, walked,
drawn and sent elsewhere.

A state is a number: in state k, the first k steps of the removal order have been applied. The order
is the same for every budget. A budget only determines the number of steps, which `Trace.state_at`
returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import attrs

from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    OpaquePart,
    Role,
    ToolCall,
)
from promptkit.reprs import describe_fields

Kind = Literal["container", "message", "text", "part"]


@attrs.frozen(kw_only=True)
class Trace:
    """The trace of one render, which also tells what any other budget would keep."""

    items: tuple[TraceItem, ...]
    """The tree in document order; `items[0]` is the root."""
    flex_groups: tuple[TraceFlexGroup, ...]
    """The flex groups, in the order of their containers and, within a container, in the order of
    rendering."""
    removals: tuple[TraceRemoval, ...]
    """All possible removals, in order. Those with `step < state` were applied."""
    counts: tuple[int, ...]
    """The exact number of tokens of the request in each state."""
    costs: tuple[int, ...]
    """The tokens that decide which state is chosen. They equal `counts` except with `prune_step`,
    which compares whole joints only."""
    unfit: frozenset[int] = frozenset()
    """The states that no budget may choose, because a fallback would exceed a token limit."""
    state: int | None
    """The state of this render; None if not even the last state fits the budget."""
    budget: int
    """The budget in tokens."""
    reserved: int
    """The tokens that Reserve elements keep free."""
    notes: tuple[str, ...] = ()
    """Where a share of the budget is small only because `flex_grow` is missing."""
    prune_step: int = 0
    """The multiple of tokens to which removals were rounded up; 0: not rounded."""
    model: str | None = None
    """The name of the model, if the render had one."""
    tokenizer: str
    """The name of the tokenizer."""
    timings: tuple[TraceTiming, ...]
    """The duration of each stage."""

    __repr__ = describe_fields

    def state_at(self, budget: int) -> int | None:
        """Return the state of a render with this budget (tokens), as `Rendered.at_budget` does.

        None if no state fits.
        """
        room = budget - self.reserved
        fitting = [state for state, cost in enumerate(self.costs) if cost <= room]
        first = self._round_up_to_step(fitting, room) if fitting and self.prune_step else 0
        return next(
            (state for state in fitting if state >= first and state not in self.unfit), None
        )

    def kept(self, state: int) -> Iterator[TraceItem]:
        """Iterate over the items that are kept in a state, in document order."""
        return (item for item in self.items if item.kept(state))

    def children(self, item: TraceItem) -> Iterator[TraceItem]:
        """Iterate over the direct children of an item, in document order."""
        at = item.id + 1
        while at < item.end:
            child = self.items[at]
            yield child
            at = child.end

    def _round_up_to_step(self, fitting: Sequence[int], room: int) -> int:
        """Return the first of the fitting states that removes the next multiple of `prune_step` tokens, or the first of all if none does."""
        costs, first = self.costs, fitting[0]
        surplus = costs[0] - room
        if surplus <= 0:
            return first
        target = costs[0] - -(-surplus // self.prune_step) * self.prune_step
        return next((state for state in fitting if costs[state] <= target), first)


@attrs.frozen(kw_only=True)
class TraceItem:
    """One item of the tree: a container, a message, a text, or another part.

    Sizes are in tokens.
    """

    id: int
    """The index in `Trace.items`."""
    parent: int | None
    """The id of the parent; None for the root."""
    end: int
    """The id after the last descendant: `items[id:end]` is the subtree."""
    position: int
    """The index among the children of the parent."""
    label: str
    """The last segment of the path."""
    path: str
    kind: Kind
    element: str
    """The name of the element's class; empty for plain text and for the root."""
    element_label: str | None = None
    """The label of the element, if it has one. Receipts show it in place of the path."""
    passes_on: bool = False
    """True if the item only groups its children, so that receipts leave it out of paths if it is an
    only child."""
    priority: float | None
    """None: it has none, which is the highest."""
    required: bool = False
    fallback: bool = False
    """True if the item is a fallback, or part of one."""
    since: int = 0
    """The first state that keeps the item: later than 0 for a fallback."""
    until: int | None = None
    """The last state that keeps the item. None: every state keeps it. -1: a token limit removes it
    at every budget."""
    tokens: int = 0
    """The tokens of the text, the part or the message framing, without descendants and without
    joints."""
    budget: int | None = None
    """The budget of the item; None if it is not a member of a flex group."""
    used: int | None = None
    """The tokens that the item reported to its container: at most its budget, unless it always
    stays."""
    limit: int | None = None
    """The token limit of a TokenLimit."""
    reserve: int = 0
    """The tokens that the item keeps free."""
    seconds: float | None = None
    """The duration of its `render`; None if it has none or its children were re-used."""
    role: Role | None = None
    """The role of a message."""
    name: str | None = None
    """The name of the item."""
    calls: tuple[TraceCall, ...] = ()
    """The tool calls of a message."""
    call_id: str | None = None
    """The id of the tool call that a tool message answers."""
    text: str | None = None
    """The text of a text item, or of a message that consists of one text."""
    part: ImagePart | DocumentPart | OpaquePart | CacheBreakpointPart | None = None
    starts_line: Literal["never", "always", "first"] = "never"
    """When a text starts on a new line. `first`: unless text of the container around its own
    container is right before it."""
    ends_line: bool = False
    """Whether the item after a text starts on a new line."""
    is_element: bool = False
    """Whether a text is an element of its own (TextChunk, Text). Its priority is compared like that
    of a container."""

    __repr__ = describe_fields

    def kept(self, state: int) -> bool:
        """Return whether a state keeps the item."""
        return self.since <= state and (self.until is None or state <= self.until)


@attrs.frozen(kw_only=True)
class TraceCall:
    """A tool call of a message."""

    call: ToolCall
    until: int | None = None
    """The last state that keeps the call. None: every state keeps it."""


@attrs.frozen(kw_only=True)
class TraceFlexGroup:
    """One flex group of one container. Sizes are in tokens."""

    container: int
    """The id of the container."""
    grow: float | None
    """The `flex_grow` of the group. None for the members without one, which are rendered first."""
    available: int
    """The tokens left over by the groups before this one."""
    reserved: int
    """The tokens of these that are reserved for later groups."""
    members: tuple[TraceShare, ...]
    plain: int = 0
    """The number of members that are one text or one part. Each has the same share."""
    plain_share: int = 0
    """The share of each such member."""
    plain_used: int = 0
    """The tokens that all such members used."""


@attrs.frozen(kw_only=True)
class TraceShare:
    """The share of one member of a flex group. Sizes are in tokens."""

    item: int
    """The id of the member."""
    basis: float
    """The `flex_basis` of the member."""
    budget: int
    """The tokens that the member could fill."""
    used: int
    """The tokens that the member filled."""


@attrs.frozen(kw_only=True)
class TraceRemoval:
    """One removal."""

    order: int
    """The position in the removal order."""
    step: int
    """The step that makes the removal, counted from 0. -1: a token limit makes it at every
    budget."""
    item: int
    """The id of the removed item."""
    call: int | None = None
    """The index of the tool call that is removed from the message `item`; None if the item is
    removed."""
    path: str
    label: str
    """The name of the item in receipts, as in `Removal.label`."""
    priority: float | None
    """None: it has none, which is the highest."""
    tokens: int
    reason: str
    partner: str | None = None
    """The path of the item whose removal caused this one."""
    partner_label: str | None = None
    """The name of that item in receipts."""


@attrs.frozen(kw_only=True)
class TraceTiming:
    """The duration of one stage of the render, in seconds."""

    stage: str
    seconds: float
