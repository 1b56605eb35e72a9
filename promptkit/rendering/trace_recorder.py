"""The tree of a record: every container, message, text and part of a rendered tree as a plain value, in written order.

Records a render for people who want to know what happened: `render(..., trace=True)`.
"""

from __future__ import annotations

from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from attrs import evolve

from promptkit.rendering.flex import resolve_reserve
from promptkit.rendering.prune import CutRounding
from promptkit.rendering.removals import PrunedTree, format_call_path, iter_removed, count_removed
from promptkit.rendering.tree import STARTS_LINE_ALWAYS, STARTS_LINE_FIRST, MAX_PATH_STEPS, NEVER_REMOVED, PATH_SEPARATOR, TextMessage, Item, Leaf, Node, format_label, format_omitted_steps
from promptkit.tracing.trace import TraceFlexGroup, TraceShare, TraceTiming, Trace, TraceCall, TraceItem, TraceRemoval

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from promptkit.rendering.counting import BackwardScan
    from promptkit.rendering.prune import Pruner
    from promptkit.rendering.sizing import Sizer

__all__ = ["TraceItems", "TraceRecorder"]


StartsLine = Literal["never", "always", "first"]


class Place(NamedTuple):
    """Where an item stands: its id, the node it stands in and its place there, and that node's id (None for the root)."""

    id: int
    home: Node
    position: int
    parent: int | None


class Path(NamedTuple):
    """The path of a container: its first steps, the last of the others, and how many it has."""

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    steps: int = 0

    def down(self, label: str) -> Path:
        """The path of a container inside."""
        if self.steps < MAX_PATH_STEPS:
            return Path((*self.first, label), (), self.steps + 1)
        return Path(self.first, (*self.last, label)[-MAX_PATH_STEPS:], self.steps + 1)

    def __str__(self) -> str:
        missing = self.steps - len(self.first) - len(self.last)
        middle = (format_omitted_steps(missing),) if missing else ()
        return PATH_SEPARATOR.join((*self.first, *middle, *self.last))


class TraceItems:
    """The items of a record, and where the engine's nodes are among them."""

    def __init__(self, root: Node, sizer: Sizer, seconds: Mapping[Node, float]) -> None:
        self.of_node: dict[Node, int] = {}
        self.made: list[TraceItem] = []
        self._sizer = sizer
        self._seconds = seconds
        self._below: dict[int, list[int]] = {}  # id of a container → ids of its items by position
        self._paths: dict[int, Path] = {}
        places = self._places(root)
        ends = [place.id + 1 for place in places]
        for place in reversed(places):
            if place.parent is not None:
                ends[place.parent] = max(ends[place.parent], ends[place.id])
        for place, end in zip(places, ends, strict=True):
            self.made.append(self._item(root if place.parent is None else place.home.items[place.position], place, end))

    def at(self, node: Node, position: int) -> int:
        """The id of an item of a node."""
        return self._below[self.of_node[node]][position]

    def system_changes(self) -> set[int]:
        """The states in which what the first system message says may differ from the state before; 0 among them."""
        changes = {0}
        for message in self.made:
            if message.role == "system":
                for item in self.made[message.id : message.end]:
                    changes.add(item.since)
                    if item.until is not None:
                        changes.add(item.until + 1)
        return changes

    def _places(self, root: Node) -> list[Place]:
        places: list[Place] = []
        stack: list[tuple[Node, int, int | None]] = [(root, 0, None)]
        while stack:
            home, position, parent = stack.pop()
            item: Item = root if parent is None else home.items[position]
            number = len(places)
            places.append(Place(number, home, position, parent))
            if parent is not None:
                self._below.setdefault(parent, []).append(number)
            if type(item) is Node:
                self.of_node[item] = number
                stack.extend((item, at, number) for at in range(len(item.items) - 1, -1, -1))
        return places

    def _item(self, item: Item, place: Place, end: int) -> TraceItem:
        parent = None if place.parent is None else self.made[place.parent]
        label = "" if parent is None else format_label(place.home, place.position)
        path = Path() if parent is None else self._paths[parent.id].down(label)
        since, until = _lifetime(item, NEVER_REMOVED if parent is None else place.home.removed_at[place.position], parent)
        made = TraceItem(
            id=place.id,
            parent=place.parent,
            end=end,
            position=place.position,
            label=label,
            path=str(path) if type(item) is Node else PATH_SEPARATOR.join(filter(None, (str(self._paths[place.parent or 0]), label))),
            kind="text",
            element=type(item.element).__name__ if item.element else "",
            priority=item.priority,
            since=since,
            until=until,
        )
        if type(item) is Node:
            self._paths[place.id] = path
            return self._of_node(made, item)
        made = evolve(made, required=place.home.required)
        return self._of_atom(made, item) if type(item) is TextMessage else self._of_leaf(made, item) if type(item) is Leaf else made

    def _of_node(self, made: TraceItem, node: Node) -> TraceItem:
        sizer = self._sizer
        made = evolve(
            made,
            kind="container",
            required=node.required,
            budget=sizer.budget_of(node),
            used=sizer.tokens_used(node),
            limit=node.limit,
            reserve=node.reserve,
            seconds=self._seconds.get(node),
        )
        if node.role is None:
            return made
        gone = node.calls_removed_at or [NEVER_REMOVED] * len(node.calls)
        return evolve(
            made,
            kind="message",
            role=node.role,
            name=node.name,
            call_id=node.call_id,
            calls=tuple(TraceCall(call=call, until=_earlier(made.until, at)) for call, at in zip(node.calls, gone, strict=True)),
            tokens=0 if node.is_blank else sizer.count_node_frame(node, 0, text=node.leaf_count > 0),
        )

    def _of_leaf(self, made: TraceItem, leaf: Leaf) -> TraceItem:
        if leaf.part is not None:
            return evolve(made, kind="part", part=leaf.part, tokens=self._sizer.count_leaf(leaf))
        starts: StartsLine = "always" if leaf.starts_line == STARTS_LINE_ALWAYS else "first" if leaf.starts_line == STARTS_LINE_FIRST else "never"
        return evolve(made, text=leaf.text, tokens=self._sizer.count_leaf(leaf), starts_line=starts, ends_line=leaf.ends_line, own=leaf.is_element)

    def _of_atom(self, made: TraceItem, atom: TextMessage) -> TraceItem:
        return evolve(made, kind="message", role=atom.role, name=atom.name, text=atom.text, tokens=self._sizer.count_text_message(atom))


def _lifetime(item: Item, gone: int, parent: TraceItem | None) -> tuple[int, int | None]:
    """The first and the last state in which an item is there: never longer than what it stands in."""
    since, until = (0, None) if parent is None else (parent.since, parent.until)
    until = _earlier(until, gone)
    if type(item) is Node and item.activated_at >= 0:
        if item.activated_at == NEVER_REMOVED:
            return since, -1  # a fallback whose turn never comes
        since = max(since, item.activated_at + 1)
    return since, until


def _earlier(until: int | None, gone: int) -> int | None:
    """The earlier of the last state of what is around an item and its own."""
    if gone == NEVER_REMOVED:
        return until
    return gone if until is None else min(until, gone)


class TraceRecorder:
    """Times the stages of one render, and makes its record in the end."""

    def __init__(self) -> None:
        self.seconds: dict[Node, float] = {}
        """How long each component's own `render` took."""
        self._timings: list[TraceTiming] = []
        self._since = perf_counter()

    def end_stage(self, stage: str) -> None:
        """A stage has ended."""
        now = perf_counter()
        self._timings.append(TraceTiming(stage=stage, seconds=now - self._since))
        self._since = now

    def build_trace(self, pruner: Pruner, state: int | None, *, budget: int, prune_step: int, model: str | None) -> Trace:
        """The record. Counts every state, so it tokenises every text."""
        timings = tuple(self._timings)  # what follows is the record's own cost
        scan = pruner.scan_tree()
        while scan.k:
            scan.step_back()
        items = TraceItems(pruner.tree.root, pruner.sizer, self.seconds)
        counts, costs = _counted(pruner, scan, items, CutRounding(prune_step))
        return Trace(
            items=tuple(items.made),
            flex_groups=tuple(_epochs(pruner, items)),
            removals=tuple(_removals(pruner, scan, items)),
            counts=counts,
            costs=costs,
            unfit=frozenset(k for k in range(len(counts)) if not pruner.limits_hold(k)) if pruner.fallback_limits else frozenset(),
            state=state,
            budget=budget,
            reserved=pruner.tree.reserved,
            prune_step=prune_step,
            model=model,
            tokenizer=pruner.sizer.tokenizer.name,
            timings=timings,
        )


def _counted(pruner: Pruner, scan: BackwardScan, items: TraceItems, cut: CutRounding) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens in each state, and those by which one is chosen."""
    # What the request saves beside the scan depends on the text of the system messages: it is the same while they are.
    changes = items.system_changes()
    counts: list[int] = []
    costs: list[int] = []
    saving = 0
    for k in range(len(scan.steps) + 1):
        if k in changes:
            saving = pruner.saving_at(scan, k)
        counts.append(scan.tokens_at(k) - saving)
        costs.append(scan.tokens_at(k) - (0 if cut.step else saving))
    return tuple(counts), tuple(costs)


def _removals(pruner: Pruner, scan: BackwardScan, items: TraceItems) -> Iterator[TraceRemoval]:
    everything = PrunedTree(
        tree=pruner.tree,
        sizer=pruner.sizer,
        scan=scan,
        state=len(scan.steps),
        tokens=scan.tokens_at(len(scan.steps)),
        budget=0,
        reason="budget",
        limit_steps=pruner.limit_steps,
    )
    for gone in iter_removed(everything):
        called = gone.position < 0
        item = items.made[items.of_node[gone.node] if called else items.at(gone.node, gone.position)]
        yield TraceRemoval(
            order=gone.order,
            step=gone.state,
            item=item.id,
            call=-gone.position - 1 if called else None,
            path=format_call_path(item.path, gone.node, gone.position) if called else item.path,
            priority=gone.priority,
            tokens=count_removed(gone, pruner.sizer),
            reason=gone.reason,
            partner=items.made[items.of_node[gone.partner]].path if gone.partner else None,
        )


def _epochs(pruner: Pruner, items: TraceItems) -> Iterator[TraceFlexGroup]:
    sizer = pruner.sizer
    for node in pruner.tree.nodes:
        if node.layout is None or node not in items.of_node:
            continue
        sizer.tokens_used(node)  # settles all that is below it
        remaining = max(0, sizer.budget_of(node) - sizer.count_own(node))
        for index, group in enumerate(node.layout.groups):
            held = sum(resolve_reserve(remaining, reserve) for at, reserve in node.layout.reserves if at > index)
            members = [member for member in group.nodes if member.replaces is None]
            if members or group.plain_members:
                yield TraceFlexGroup(
                    container=items.of_node[node],
                    grow=group.grow if isfinite(group.grow) else None,
                    available=remaining,
                    reserved=min(held, remaining),
                    members=tuple(
                        TraceShare(
                            item=items.of_node[member],
                            basis=member.element.flex_basis if member.element else 1,
                            budget=sizer.budget_of(member),
                            used=sizer.tokens_used(member),
                        )
                        for member in members
                        if member in items.of_node
                    ),
                    plain=group.plain_members,
                    plain_share=group.plain_share,
                    plain_used=sizer.sum_plain_members(node, group.plain_share) if group.plain_members else 0,
                )
            remaining = max(0, remaining - sizer.sum_group(node, group))
