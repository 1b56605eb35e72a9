"""The record of one render: the tree, who was given how much, and every state of the removal order.

Plain values without a link to the engine, so that a record can be kept, walked, drawn and sent elsewhere. A state is a number:
in state k the first k steps of the removal order have been taken. The order is the same for every budget; a budget only says
how many steps are taken, and `Trace.state_at` says it exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, OpaquePart, Role, ToolCall

__all__ = ["Epoch", "Share", "Timing", "Trace", "TraceCall", "TraceItem", "TraceRemoval"]

Kind = Literal["container", "message", "text", "part"]


@attrs.frozen(kw_only=True)
class TraceCall:
    """A tool call of a message, and the last state in which it is there (None: always)."""

    call: ToolCall
    until: int | None = None


@attrs.frozen(kw_only=True)
class TraceItem:
    """One thing in the tree: a container, a message, a text, or a part that is no text. Figures are tokens."""

    id: int
    """Its place in `Trace.items`."""
    parent: int | None
    """The id of what it stands in; None for the root."""
    end: int
    """The id behind the last item below it: `items[id:end]` is its subtree."""
    position: int
    """Its place among the items of its parent."""
    label: str
    """The last step of its path."""
    path: str
    kind: Kind
    element: str
    """The name of its element's class; empty for plain text and for the root."""
    priority: float
    required: bool = False
    since: int = 0
    """The first state in which it is there: later than 0 for a fallback."""
    until: int | None = None
    """The last state in which it is there; None: it stays in all. -1: a limit removed it, whatever the budget."""
    tokens: int = 0
    """Its own: the text, the part, or the framing of the message; without what stands below it and without joints."""
    budget: int | None = None
    """What it was given; None for what is no flex member."""
    used: int | None = None
    """What it reported to its container: never more than it was given."""
    limit: int | None = None
    """The limit of a TokenLimit."""
    reserve: int = 0
    """What it keeps free."""
    seconds: float | None = None
    """How long its `render` took; None where it has none, or where the result was remembered."""
    role: Role | None = None
    """The role of a message."""
    name: str | None = None
    calls: tuple[TraceCall, ...] = ()
    call_id: str | None = None
    text: str | None = None
    """The text of a text, and of a message that is nothing but one."""
    part: ImagePart | DocumentPart | OpaquePart | CacheBreakpointPart | None = None
    starts_line: Literal["never", "always", "first"] = "never"
    """When a text starts on a new line: `first` unless text of the container around its own stands right before it."""
    ends_line: bool = False
    """Whether what follows a text starts on a new line."""
    own: bool = False
    """Whether a text is an element of its own (a TextChunk, a Text), compared as a container of it would be."""

    def kept(self, state: int) -> bool:
        """Whether it is there in a state."""
        return self.since <= state and (self.until is None or state <= self.until)


@attrs.frozen(kw_only=True)
class Share:
    """What one member of a flex group was given, by its weight, and what it used. Tokens."""

    item: int
    basis: float
    budget: int
    used: int


@attrs.frozen(kw_only=True)
class Epoch:
    """One flex group of one container, in the order in which groups are rendered. Figures are tokens."""

    container: int
    """The id of the container."""
    grow: float | None
    """The group's `flex_grow`; None for members without one, which are rendered first."""
    available: int
    """What was left when the group's turn came."""
    reserved: int
    """What later groups had held back of that."""
    members: tuple[Share, ...]
    plain: int = 0
    """Members that are one text or one part, and are given the same share each."""
    plain_share: int = 0
    plain_used: int = 0


@attrs.frozen(kw_only=True)
class TraceRemoval:
    """One removal. `step` is the step that makes it (counted from 0; -1: a limit did, whatever the budget)."""

    order: int
    step: int
    item: int
    call: int | None = None
    """The index of a tool call that left the message `item`."""
    path: str
    priority: float
    tokens: int
    reason: str
    partner: str | None = None


@attrs.frozen(kw_only=True)
class Timing:
    """How long a stage took, in seconds."""

    stage: str
    seconds: float


@attrs.frozen(kw_only=True)
class Trace:
    """What happened in one render, and what would happen at any other budget."""

    items: tuple[TraceItem, ...]
    """The tree in written order; `items[0]` is the root."""
    epochs: tuple[Epoch, ...]
    """In the order of the containers; within one, in the order in which its groups were rendered."""
    removals: tuple[TraceRemoval, ...]
    """All that can be removed, in order; those with `step < state` were."""
    counts: tuple[int, ...]
    """The exact tokens of the request in each state."""
    costs: tuple[int, ...]
    """The tokens by which a state is chosen: the counts, but for `prune_step`, which looks at nothing smaller than whole joints."""
    unfit: frozenset[int] = frozenset()
    """States that no budget may choose: a limit would be broken by a fallback."""
    state: int | None
    """The state of the render at hand; None where not even the last one fits."""
    budget: int
    reserved: int
    """What Reserve elements keep free."""
    prune_step: int = 0
    model: str | None = None
    tokenizer: str
    timings: tuple[Timing, ...]

    def state_at(self, budget: int) -> int | None:
        """The state that a render with this budget ends in, as in `Rendered.at_budget`; None where nothing fits."""
        room = budget - self.reserved
        costs = self.costs
        states = range(len(costs))
        first = next((state for state in states if costs[state] <= room), None)
        if first is None:
            return None
        if self.prune_step:
            first = self._stepped(first, room)
        return next((state for state in states[first:] if state not in self.unfit and costs[state] <= room), None)

    def _stepped(self, first: int, room: int) -> int:
        """Removals rounded up to multiples of `prune_step`, where a state does that."""
        costs, states = self.costs, range(first, len(self.costs))
        surplus = costs[0] - room
        if surplus <= 0:
            return first
        target = costs[0] - -(-surplus // self.prune_step) * self.prune_step
        wanted = next((state for state in states if costs[state] <= target), first)
        return next((state for state in states if state >= wanted and costs[state] <= room), first)

    def kept(self, state: int) -> Iterator[TraceItem]:
        """What is there in a state, in written order."""
        return (item for item in self.items if item.kept(state))

    def to_html(self, *, title: str = "Prompt") -> str:
        """The record as one page for people, which shows every other budget too. `title` says what was rendered."""
        from promptkit.tracing.html import page

        return page(self, title=title)

    def children(self, item: TraceItem) -> Iterator[TraceItem]:
        """What stands directly in an item, in written order."""
        at = item.id + 1
        while at < item.end:
            child = self.items[at]
            yield child
            at = child.end
