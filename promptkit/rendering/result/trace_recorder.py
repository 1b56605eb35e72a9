"""Record a render as a Trace: `render(..., trace=True)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from time import perf_counter
from typing import Final, Literal, NamedTuple, TypeAlias

from attrs import define, evolve, field

from promptkit.messages import Message, Part, Role
from promptkit.rendering.expand.sizing import Sizer, resolve_reserve
from promptkit.rendering.paths import PATH_SEPARATOR, Path, Paths, format_label, passes_on
from promptkit.rendering.prune.counting import BackwardScan
from promptkit.rendering.prune.pruner import Pruner, RemovalRounding
from promptkit.rendering.prune.removals import (
    PrunedTree,
    count_removed,
    find_priority,
    format_call_path,
    format_removed,
    iter_removed,
)
from promptkit.rendering.result.rendered import list_share_notes
from promptkit.rendering.tree import (
    HIGHEST_PRIORITY,
    NEVER_REMOVED,
    STARTS_LINE_ALWAYS,
    STARTS_LINE_FIRST,
    STARTS_LINE_NEVER,
    Item,
    Leaf,
    MessageItem,
    Node,
    read_given_priority,
)
from promptkit.tracing import (
    Trace,
    TraceCall,
    TraceFlexGroup,
    TraceItem,
    TraceRemoval,
    TraceShare,
    TraceTiming,
)


@define(eq=False)
class TraceRecorder:
    """Times the stages of one render and builds its trace."""

    seconds: dict[Node, float] = field(factory=dict[Node, float], init=False)
    """The duration of each component's own `render`."""
    _timings: list[TraceTiming] = field(factory=list[TraceTiming], init=False)
    _since: float = field(factory=perf_counter, init=False)

    def end_stage(self, stage: str) -> None:
        """Record that a stage has ended."""
        now = perf_counter()
        self._timings.append(TraceTiming(stage=stage, seconds=now - self._since))
        self._since = now

    def build_trace(
        self, pruner: Pruner, state: int | None, *, budget: int, prune_step: int, model: str | None
    ) -> Trace:
        """Build the trace of a render that ended in `state`.

        It counts every state, so it counts every text.
        """
        timings = tuple(self._timings)  # without the time that the trace itself takes
        scan = pruner.scan_tree()
        while scan.state:
            scan.step_back()
        builder = _ItemBuilder(pruner.tree.root, pruner.sizer, self.seconds)
        counts, costs = _count_states(pruner, scan, builder, RemovalRounding(prune_step))
        return Trace(
            items=tuple(builder.items),
            flex_groups=tuple(_record_flex_groups(pruner, builder)),
            notes=tuple(list_share_notes(pruner.tree, pruner.sizer)),
            removals=tuple(_iter_removals(pruner, scan, builder)),
            counts=counts,
            costs=costs,
            unfit=frozenset(each for each in range(len(counts)) if not pruner.limits_hold(each)),
            state=state,
            budget=budget,
            reserved=pruner.tree.reserved,
            prune_step=prune_step,
            model=model,
            tokenizer=pruner.sizer.tokenizer.name,
            timings=timings,
        )


def _count_states(
    pruner: Pruner, scan: BackwardScan, builder: _ItemBuilder, rounding: RemovalRounding
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the exact tokens of each state, and the tokens by which a state is chosen."""
    # The saving depends on the text of the first system message, so it is the same until that
    # changes.
    changes = builder.find_system_changes()
    counts: list[int] = []
    costs: list[int] = []
    saving = 0
    for state in range(len(scan.steps) + 1):
        if state in changes:
            saving = pruner.saving_at(scan, state)
        counts.append(scan.tokens_at(state) - saving)
        costs.append(
            scan.tokens_at(state) + scan.unspent_at(state) - (0 if rounding.step else saving)
        )
    return tuple(counts), tuple(costs)


def _iter_removals(
    pruner: Pruner, scan: BackwardScan, builder: _ItemBuilder
) -> Iterator[TraceRemoval]:
    """Yield all removals that any budget can cause, in order."""
    last_state = PrunedTree(
        tree=pruner.tree,
        sizer=pruner.sizer,
        scan=scan,
        state=len(scan.steps),
        tokens=scan.tokens_at(len(scan.steps)),
        budget=0,
        reason="budget",
        limit_steps=pruner.limit_steps,
    )
    paths = Paths(described=True)
    for removed in iter_removed(last_state):
        is_call = removed.position < 0
        item = builder.items[
            builder.ids[removed.node]
            if is_call
            else builder.children[builder.ids[removed.node]][removed.position]
        ]
        yield TraceRemoval(
            order=removed.order,
            step=removed.state,
            item=item.id,
            call=-removed.position - 1 if is_call else None,
            path=format_call_path(item.path, removed.node, removed.position)
            if is_call
            else item.path,
            label=format_removed(removed, paths.shorten),
            priority=read_given_priority(removed.priority),
            tokens=count_removed(removed, pruner.sizer),
            reason=removed.reason,
            partner=builder.items[builder.ids[removed.partner]].path if removed.partner else None,
            partner_label=paths.shorten(removed.partner) if removed.partner else None,
        )


def _record_flex_groups(pruner: Pruner, builder: _ItemBuilder) -> Iterator[TraceFlexGroup]:
    """Yield the flex groups of all containers, with the shares of their members."""
    sizer = pruner.sizer
    for node in pruner.tree.nodes:
        if node.layout is None or node not in builder.ids:
            continue
        sizer.tokens_used(node)  # this settles everything below the node
        remaining = max(0, sizer.budget_of(node) - sizer.count_own(node))
        for index, group in enumerate(node.layout.groups):
            held_back = (
                resolve_reserve(remaining, reserve)
                for at, reserve in node.layout.reserves
                if at > index
            )
            members = [member for member in group.nodes if member.replaces is None]
            if members or group.plain_members:
                yield TraceFlexGroup(
                    container=builder.ids[node],
                    grow=group.grow if isfinite(group.grow) else None,
                    available=remaining,
                    reserved=min(sum(held_back), remaining),
                    members=tuple(
                        TraceShare(
                            item=builder.ids[member],
                            basis=member.element.flex_basis if member.element else 1,
                            budget=sizer.budget_of(member),
                            used=sizer.tokens_used(member),
                        )
                        for member in members
                        if member in builder.ids
                    ),
                    plain=group.plain_members,
                    plain_share=group.plain_share,
                    plain_used=sizer.sum_plain_members(node, group.plain_share)
                    if group.plain_members
                    else 0,
                )
            remaining = max(0, remaining - sizer.sum_group(node, group))


class _ItemBuilder:
    """Builds the items of a trace, and finds those of nodes."""

    def __init__(self, root: Node, sizer: Sizer, seconds: Mapping[Node, float]) -> None:
        self.ids: dict[Node, int] = {}
        self.items: list[TraceItem] = []
        self.children: dict[int, list[int]] = {}
        """The ids of the items of a container, by position."""
        self._sizer = sizer
        self._seconds = seconds
        self._paths: dict[int, Path] = {}
        self._build_items(root)
        ends = list(range(1, len(self.items) + 1))
        for item in reversed(self.items):
            if item.parent is not None:
                ends[item.parent] = max(ends[item.parent], ends[item.id])
        self.items = [
            item if item.end == end else evolve(item, end=end)
            for item, end in zip(self.items, ends, strict=True)
        ]

    def find_system_changes(self) -> set[int]:
        """Return the states in which the text of the first system message may differ from the state before."""
        inside = [
            item
            for message in self.items
            if message.role == "system"
            for item in self.items[message.id : message.end]
        ]
        return {item.since for item in inside} | {
            item.until + 1 for item in inside if item.until is not None
        }

    def _build_items(self, root: Node) -> None:
        """Build the items in document order, each without the ids of what is below it."""
        stack: list[tuple[Node, int, TraceItem | None, _Content]] = [(root, 0, None, None)]
        markers: dict[tuple[Node, int], _Marker] = {}
        while stack:
            node, position, parent, content = stack.pop()
            item: Item = root if parent is None else node.items[position]
            built = (
                self._build_item(item, node, position, parent)
                if parent is None or content is None
                else self._build_content(parent, position, content)
            )
            self.items.append(built)
            if isinstance(content, Message):
                stack.extend(
                    (node, position, built, part) for part in reversed(_list_parts(content))
                )
            if content is not None:
                continue
            if parent is not None:
                self.children.setdefault(parent.id, []).append(built.id)
            if isinstance(item, Node):
                self.ids[item] = built.id
                if item.run is not None:
                    markers |= {
                        (item, at): _Marker(marker, since, until)
                        for at, marker, since, until in item.run.list_markers()
                    }
                stack.extend((item, at, built, None) for at in range(len(item.items) - 1, -1, -1))
            elif isinstance(item, MessageItem) and item.sources:
                if (node, position) in markers:
                    stack.append((node, position, parent, markers[node, position]))
                messages = item.messages or ()
                contents = _list_parts(messages[0]) if len(messages) == 1 else messages
                stack.extend((node, position, built, each) for each in reversed(contents))

    def _build_content(
        self, parent: TraceItem, position: int, content: Message | Part | _Marker
    ) -> TraceItem:
        """Build the item of a message of a round, of a part of such a message, or of a marker."""
        label = "marker"
        if not isinstance(content, _Marker):
            position = sum(item.parent == parent.id for item in self.items[parent.id + 1 :])
            name = "text" if isinstance(content, str) else type(content).__name__
            name = _ELEMENTS[content.role] if isinstance(content, Message) else name
            label = f"{name}[{position}]"
        built = TraceItem(
            id=len(self.items),
            parent=parent.id,
            end=len(self.items) + 1,
            position=position,
            label=label,
            path=PATH_SEPARATOR.join(filter(None, (parent.path, label))),
            kind="text",
            element="",
            priority=None,
            required=parent.required,
            since=parent.since,
            until=parent.until,
            fallback=parent.fallback,
        )
        match content:
            case str():
                return evolve(built, text=content, tokens=self._sizer.count_part(content))
            case Message():
                return self._describe_message(built, content)
            case _Marker():
                return evolve(
                    built,
                    kind="message",
                    role="user",
                    text=content.item.text,
                    tokens=self._sizer.count_item(content.item),
                    fallback=True,
                    since=max(parent.since, content.since),
                    until=_find_earlier(parent.until, content.until),
                )
            case _:
                return evolve(
                    built, kind="part", part=content, tokens=self._sizer.count_part(content)
                )

    def _describe_message(self, built: TraceItem, message: Message) -> TraceItem:
        """Describe a recorded message, which has one text or parts of its own."""
        parts = _list_parts(message)
        tokens = self._sizer.count_message(message) - sum(map(self._sizer.count_part, parts))
        return evolve(
            built,
            kind="message",
            element=_ELEMENTS[message.role],
            role=message.role,
            name=message.name,
            call_id=message.tool_call_id,
            calls=tuple(TraceCall(call=call, until=built.until) for call in message.tool_calls),
            text=None if parts else message.text,
            tokens=tokens,
        )

    def _build_item(
        self, item: Item, node: Node, position: int, parent: TraceItem | None
    ) -> TraceItem:
        label = "" if parent is None else format_label(node, position)
        path = Path() if parent is None else self._paths[parent.id].append(label)
        since, until = _find_lifetime(
            item, NEVER_REMOVED if parent is None else node.removed_at[position], parent
        )
        built = TraceItem(
            id=len(self.items),
            parent=None if parent is None else parent.id,
            end=len(self.items) + 1,
            position=position,
            label=label,
            path=str(path)
            if parent is None or isinstance(item, Node)
            else PATH_SEPARATOR.join(filter(None, (str(self._paths[parent.id]), label))),
            kind="text",
            element=type(item.element).__name__ if item.element else "",
            element_label=item.element.label or None if item.element else None,
            passes_on=isinstance(item, Node)
            and (passes_on(item.element) if item.element else not item.label),
            priority=read_given_priority(
                HIGHEST_PRIORITY if parent is None else find_priority(node, position)
            ),
            fallback=(item if isinstance(item, Node) else node).in_fallback,
            since=since,
            until=until,
        )
        if isinstance(item, Node):
            self._paths[built.id] = path
            return self._describe_node(built, item)
        built = evolve(built, required=node.required)
        return (
            self._describe_message_item(built, item)
            if isinstance(item, MessageItem)
            else self._describe_leaf(built, item)
        )

    def _describe_node(self, built: TraceItem, node: Node) -> TraceItem:
        sizer = self._sizer
        built = evolve(
            built,
            kind="container",
            required=node.required,
            budget=sizer.budget_of(node),
            used=sizer.tokens_used(node),
            limit=node.limit,
            reserve=node.reserve,
            seconds=self._seconds.get(node),
        )
        if node.role is None:
            return built
        return evolve(
            built,
            kind="message",
            role=node.role,
            name=node.name,
            call_id=node.call_id,
            calls=tuple(
                TraceCall(call=call, until=_find_earlier(built.until, step))
                for call, step in zip(node.calls, node.calls_removed_at, strict=True)
            ),
            tokens=0
            if node.is_blank
            else sizer.count_node_frame(node, 0, text=node.leaf_count > 0),
        )

    def _describe_leaf(self, built: TraceItem, leaf: Leaf) -> TraceItem:
        if leaf.part is not None:
            return evolve(built, kind="part", part=leaf.part, tokens=self._sizer.count_leaf(leaf))
        return evolve(
            built,
            text=leaf.text,
            tokens=self._sizer.count_leaf(leaf),
            starts_line=_STARTS_LINE[leaf.starts_line],
            ends_line=leaf.ends_line,
            is_element=leaf.is_element,
        )

    def _describe_message_item(self, built: TraceItem, item: MessageItem) -> TraceItem:
        if not item.sources:
            return evolve(
                built,
                kind="message",
                role=item.role,
                name=item.name,
                text=item.text,
                tokens=self._sizer.count_item(item),
            )
        return (
            self._describe_message(built, item.messages[0])
            if item.messages and len(item.messages) == 1
            else evolve(built, kind="container")
        )


_STARTS_LINE: Final[Mapping[int, Literal["never", "always", "first"]]] = {
    STARTS_LINE_NEVER: "never",
    STARTS_LINE_ALWAYS: "always",
    STARTS_LINE_FIRST: "first",
}


def _find_lifetime(item: Item, removed_at: int, parent: TraceItem | None) -> tuple[int, int | None]:
    """Return the first and the last state in which an item is alive.

    They are within those of its parent.
    """
    since, until = (0, None) if parent is None else (parent.since, parent.until)
    until = _find_earlier(until, removed_at)
    if type(item) is Node and item.activated_at >= 0:
        if item.activated_at == NEVER_REMOVED:
            return since, -1  # a fallback that is never activated
        since = max(since, item.activated_at + 1)
    return since, until


def _find_earlier(until: int | None, removed_at: int | None) -> int | None:
    """Return the earlier of two last states: `until` of the parent, and `removed_at` of the item.

    None and NEVER_REMOVED are later than any.
    """
    steps = (step for step in (until, removed_at) if step is not None and step != NEVER_REMOVED)
    return min(steps, default=None)


class _Marker(NamedTuple):
    """A marker with the first and the last state in which it is alive."""

    item: MessageItem
    since: int
    until: int | None


_Content: TypeAlias = "Message | Part | _Marker | None"
"""What an item is besides an item of a node: a message of a round, a part of such a message, or the
marker that replaces the round."""

_ELEMENTS: Final[Mapping[Role, str]] = {
    "system": "SystemMessage",
    "user": "UserMessage",
    "assistant": "AssistantMessage",
    "tool": "ToolMessage",
}


def _list_parts(message: Message) -> Sequence[Part]:
    """Return the parts of a message that are items of their own; none if its content is one text."""
    return (
        () if len(message.content) == 1 and isinstance(message.content[0], str) else message.content
    )
