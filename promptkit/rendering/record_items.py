"""The tree of a record: every container, message, text and part of a rendered tree as a plain value, in written order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from attrs import evolve

from promptkit.rendering.tree import ALWAYS, FIRST, LEVELS, STAYS, STEP, Atom, Item, Leaf, Node, label_of, left_out
from promptkit.tracing.trace import TraceCall, TraceItem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit.rendering.layout import Sizer

__all__ = ["Items"]

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
        if self.steps < LEVELS:
            return Path((*self.first, label), (), self.steps + 1)
        return Path(self.first, (*self.last, label)[-LEVELS:], self.steps + 1)

    def __str__(self) -> str:
        missing = self.steps - len(self.first) - len(self.last)
        middle = (left_out(missing),) if missing else ()
        return STEP.join((*self.first, *middle, *self.last))


class Items:
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
        label = "" if parent is None else label_of(place.home, place.position)
        path = Path() if parent is None else self._paths[parent.id].down(label)
        since, until = _lifetime(item, STAYS if parent is None else place.home.gone[place.position], parent)
        made = TraceItem(
            id=place.id,
            parent=place.parent,
            end=end,
            position=place.position,
            label=label,
            path=str(path) if type(item) is Node else STEP.join(filter(None, (str(self._paths[place.parent or 0]), label))),
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
        return self._of_atom(made, item) if type(item) is Atom else self._of_leaf(made, item) if type(item) is Leaf else made

    def _of_node(self, made: TraceItem, node: Node) -> TraceItem:
        sizer = self._sizer
        made = evolve(
            made,
            kind="container",
            required=node.required,
            budget=sizer.budget(node),
            used=sizer.used(node),
            limit=node.limit,
            reserve=node.reserve,
            seconds=self._seconds.get(node),
        )
        if node.role is None:
            return made
        gone = node.calls_gone or [STAYS] * len(node.calls)
        return evolve(
            made,
            kind="message",
            role=node.role,
            name=node.name,
            call_id=node.call_id,
            calls=tuple(TraceCall(call=call, until=_earlier(made.until, at)) for call, at in zip(node.calls, gone, strict=True)),
            tokens=0 if node.barren else sizer.node_frame(node, 0, text=node.leaves > 0),
        )

    def _of_leaf(self, made: TraceItem, leaf: Leaf) -> TraceItem:
        if leaf.part is not None:
            return evolve(made, kind="part", part=leaf.part, tokens=self._sizer.leaf(leaf))
        starts: StartsLine = "always" if leaf.breaks == ALWAYS else "first" if leaf.breaks == FIRST else "never"
        return evolve(made, text=leaf.text, tokens=self._sizer.leaf(leaf), starts_line=starts, ends_line=leaf.closes, own=leaf.own)

    def _of_atom(self, made: TraceItem, atom: Atom) -> TraceItem:
        return evolve(made, kind="message", role=atom.role, name=atom.name, text=atom.text, tokens=self._sizer.atom(atom))


def _lifetime(item: Item, gone: int, parent: TraceItem | None) -> tuple[int, int | None]:
    """The first and the last state in which an item is there: never longer than what it stands in."""
    since, until = (0, None) if parent is None else (parent.since, parent.until)
    until = _earlier(until, gone)
    if type(item) is Node and item.born >= 0:
        if item.born == STAYS:
            return since, -1  # a fallback whose turn never comes
        since = max(since, item.born + 1)
    return since, until


def _earlier(until: int | None, gone: int) -> int | None:
    """The earlier of the last state of what is around an item and its own."""
    if gone == STAYS:
        return until
    return gone if until is None else min(until, gone)
