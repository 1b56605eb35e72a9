"""The removal order: which step takes what, whatever the budget.

It depends on priorities, groups and emptiness, never on counts. Each step takes the lowest candidate and what must leave with
it: containers that it leaves empty, members of its KeepWith groups, calls without result and results without call. A step that
would take something required is not possible, and its candidate stays.

What may be removed next: the candidates of one priority scope, lowest first.

The rules are prompt-tsx's: candidates are the children of a container, those of `pass_priority` children in their place; the
lowest priority goes first, on ties the one whose lowest direct child is lower (bare text counts as -1), then the first written.
A candidate's own key only ever grows while its children go, so a sorted list with a heap for the changed ones is enough.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

from promptkit.rendering.materialize import counts, holds, linked_items, shows
from promptkit.rendering.tree import HIGHEST, STAYS, Atom, Item, Leaf, Node
from promptkit.rendering.undo_log import Buried, CallTaken, Linked, Op, Raised, Taken, Unlinked, link_below, mark_step, redo, undo, unlink

if TYPE_CHECKING:
    from collections.abc import Hashable

    from promptkit.rendering.materialize import RenderTree

__all__ = ["Entry", "RemovalOrder", "Scope", "Step", "lowest", "scope_of"]


Entry: TypeAlias = "tuple[float, float, float, Node, int]"
"""(priority, lowest direct child, order, parent, position)"""


ALONE = float("-inf")
"""Stands (by identity) for the lowest direct child where no candidate has the same priority, so that it need not be known."""


class Scope:
    """The candidates of one container."""

    __slots__ = ("at", "changed", "entries", "spare")

    def __init__(self, entries: list[Entry], spare: dict[Node, list[Entry]]) -> None:
        self.entries = entries
        self.at = 0
        self.changed: list[Entry] = []
        self.spare = spare  # what a fallback adds once it takes its place

    def peek(self) -> Entry | None:
        """The lowest candidate that is still alive, or None."""
        entries, changed = self.entries, self.changed
        while True:
            if self.at < len(entries) and not (changed and changed[0] < entries[self.at]):
                entry = entries[self.at]
            elif changed:
                entry = changed[0]
            else:
                return None
            priority, low, order, parent, position = entry
            if parent.gone[position] != STAYS or not parent.up:
                self.pop(entry)
                continue
            item = parent.items[position]
            if type(item) is Node:
                if item.exhausted:
                    self.pop(entry)
                    continue
                if low is ALONE:
                    return entry
                now = lowest(item)
                if now != low:
                    self.pop(entry)
                    heappush(changed, (priority, now, order, parent, position))
                    continue
            return entry

    def is_down_to_one(self) -> bool:
        """Whether nothing but the latest `peek` is left to choose."""
        return len(self.entries) - self.at + len(self.changed) == 1

    def pop(self, entry: Entry) -> None:
        """Take the entry away that `peek` returned."""
        if self.at < len(self.entries) and self.entries[self.at] is entry:
            self.at += 1
        else:
            heappop(self.changed)

    def add(self, fallback: Node) -> None:
        """A fallback takes its place."""
        for entry in self.spare.get(fallback, ()):
            heappush(self.changed, entry)


def lowest(node: Node) -> float:
    """The lowest priority among a node's living children; as high as can be if there are none."""
    items, gone = node.items, node.gone
    if len(items) == 1 and node.nodes == []:
        return items[0].priority if gone[0] == STAYS else HIGHEST
    lows = node.lows
    if lows is None:
        lows = node.lows = [(item.priority, at) for at, item in enumerate(items) if gone[at] == STAYS and _compares(item)]
        heapify(lows)
    while lows and gone[lows[0][1]] != STAYS:
        heappop(lows)
    return lows[0][0] if lows else HIGHEST


def _compares(item: Atom | Leaf | Node) -> bool:
    if type(item) is Leaf:
        return not item.frame
    return not (type(item) is Node and item.born == STAYS)


def scope_of(node: Node) -> Scope:
    """The candidates of a container as it stands."""
    if node.required:
        return Scope([], {})
    return _legacy(node) if node.legacy else _local(node)


def _local(node: Node) -> Scope:
    entries: list[Entry] = []
    spare: dict[Node, list[Entry]] = {}
    order = 0
    stack = [(node, enumerate(node.items))]
    while stack:
        parent, rest = stack[-1]
        gone, shield = parent.gone, parent.shield
        for position, item in rest:
            if gone[position] != STAYS or position < shield:
                continue
            order += 1
            if type(item) is Leaf and item.frame:
                continue
            if type(item) is Node:
                if item.required:
                    continue
                if item.born == STAYS:
                    spare[item] = [(item.priority, lowest(item), order, parent, position)]
                    continue
                if item.passes and item.items and not item.atomic:
                    stack.append((item, enumerate(item.items)))
                    break
            entries.append((item.priority, ALONE, order, parent, position))
        else:
            stack.pop()
    entries.sort()
    _break_ties(entries)
    return Scope(entries, spare)


def _break_ties(entries: list[Entry]) -> None:
    """Compare candidates of one priority by their lowest direct child."""
    start = 0
    while start < len(entries):
        priority = entries[start][0]
        end = start + 1
        while end < len(entries) and entries[end][0] == priority:
            end += 1
        if end > start + 1:
            entries[start:end] = sorted(
                (priority, _rank(parent.items[at]), order, parent, at) for _, _, order, parent, at in entries[start:end]
            )
        start = end


def _rank(item: Atom | Leaf | Node) -> float:
    if type(item) is Node:
        return lowest(item)
    return -1 if type(item) is Leaf and not item.own else item.priority


def _legacy(node: Node) -> Scope:
    """Everything below competes by its own priority alone."""
    entries: list[Entry] = []
    spare: dict[Node, list[Entry]] = {}
    order = 0
    stack: list[tuple[Node, enumerate[Atom | Leaf | Node], list[Entry]]] = [(node, enumerate(node.items), entries)]
    while stack:
        parent, rest, into = stack[-1]
        for position, item in rest:
            if parent.gone[position] != STAYS or position < parent.shield:
                continue
            order += 1
            if type(item) is Node:
                if item.required:
                    continue
                if item.items:
                    stack.append((item, enumerate(item.items), spare.setdefault(item, []) if item.born == STAYS else into))
                    break
                into.append((item.priority, ALONE, order, parent, position))
            elif not (type(item) is Leaf and item.frame):
                into.append((item.priority, ALONE, order, parent, position))
        else:
            stack.pop()
    entries.sort()
    return Scope(entries, spare)


Step: TypeAlias = "Entry | list[Op]"
"""One step: the entry of a message that nothing else depends on, or all that it changed."""

Task: TypeAlias = "tuple[Node, int, str, Node | None]"  # the parent of an item or the message of a call, its index, reason, partner


class RemovalOrder:
    """The removal order of one tree. It can be run for a limit's subtree and settled there, then for the whole."""

    def __init__(self, tree: RenderTree) -> None:
        self.tree = tree
        self._step = 0
        self._path: list[Node] = []
        self._touched: list[Node] = []
        self._chain: set[Node] = set()  # the nodes that hold the last cache boundary
        self._queue: deque[Task] = deque()
        self._calls: deque[Task] = deque()
        self._groups: set[Hashable] = set()

    def run(self, root: Node) -> list[Step]:
        """All steps below a node, until nothing is left that may go. The tree is left in that state."""
        self._guard(root)
        self._step = 0
        steps: list[Step] = []
        path = self._path = [root]
        root.on_path = 0
        while path:
            node = path[-1]
            scope = node.scope
            if scope is None:
                scope = node.scope = scope_of(node)
                self._touched.append(node)
            entry = scope.peek()
            if entry is None:
                path.pop()
                node.on_path = -1
                if node is root:
                    break
                if node.parent is None or node.pinned or holds(node):
                    node.exhausted = True
                    continue
                parent, position, node.exhausted = node.parent, node.position, True  # it can go or not, but is no candidate any more
            else:
                parent, position = entry[3], entry[4]
                item = parent.items[position]
                if type(item) is Node and not item.atomic and item.items:
                    item.on_path = len(path)
                    path.append(item)
                    continue
                scope.pop(entry)
                if type(item) is Atom and parent.live > 1:
                    self._take_atoms(scope, entry, steps)
                    continue
            ops: list[Op] = []
            if self._remove(parent, position, ops):
                steps.append(ops)
                self._step += 1
            else:
                self._roll_back(ops)
        return steps

    def _take_atoms(self, scope: Scope, entry: Entry, steps: list[Step]) -> None:
        """Take a message that nothing depends on, and all such that follow it while no other container can be next."""
        path = self._path
        alone = len(path) == 1 or (len(path) == 2 and path[0].scope is not None and path[0].scope.is_down_to_one())  # noqa: PLR2004  # levels
        step = self._step
        entries = scope.entries
        while True:
            parent, position = entry[3], entry[4]
            if parent.gone[position] == STAYS and parent.up:
                parent.gone[position] = step
                parent.live -= 1
                step += 1
                steps.append(entry)
            if not alone or scope.changed or scope.at >= len(entries):
                break
            entry = entries[scope.at]
            if type(entry[3].items[entry[4]]) is not Atom or entry[3].live <= 1:
                break
            scope.at += 1
        self._step = step
        if not alone and parent.on_path > 0:
            self._leave(parent)

    def settle(self, steps: list[Step], k: int, undone: int) -> None:
        """Make the first k of a subtree's steps final and the rest as if they had not been. Steps from `undone` on are undone already."""
        for step in steps[undone:k]:
            if isinstance(step, list):
                for op in step:
                    redo(op)
            else:
                step[3].live -= 1
        for index, step in enumerate(steps):
            mark = -1 if index < k else STAYS
            if isinstance(step, tuple):
                step[3].gone[step[4]] = mark
            else:
                for op in step:
                    mark_step(op, mark)
        self.forget()

    def forget(self) -> None:
        """Forget the candidates, which a settled state makes stale."""
        for node in self._touched:
            for entry in node.scope.entries if node.scope else ():
                item = entry[3].items[entry[4]]
                if type(item) is Node:
                    item.lows = None
                    item.exhausted = False
            node.scope = node.lows = None
            node.exhausted = False
            node.on_path = -1
        self._touched = []
        for node in self._chain:
            node.shield = 0
        self._chain = set()

    def _guard(self, root: Node) -> None:
        """Protect what stands before the last cache boundary below `root`."""
        for boundary in reversed(self.tree.boundaries):
            chain: list[tuple[Node, int]] = []
            node: Node | None = boundary.parent
            position = boundary.position + 1
            while node is not None:
                chain.append((node, position))
                if node is root:
                    for each, place in chain:
                        each.shield = place
                        self._chain.add(each)
                    return
                position = node.position
                node = node.parent

    def _remove(self, parent: Node, position: int, ops: list[Op]) -> bool:
        """Take an item and all that leaves with it; False where something of that must stay."""
        queue, calls = self._queue, self._calls
        for each in (queue, calls, self._groups):
            each.clear()
        queue.append((parent, position, "budget", None))
        while queue or calls:
            if not queue:
                if not self._take_call(*calls.popleft(), ops):
                    return False
                continue
            parent, position, reason, partner = queue.popleft()
            item = parent.items[position]
            if parent.gone[position] != STAYS or not parent.up or (type(item) is Node and not item.up):
                continue
            if self._stays(parent, position, item, along=reason in {"kept-with", "tool-pair"}):
                return False
            self._take(parent, position, reason, partner, ops)
        return True

    def _take(self, parent: Node, position: int, reason: str, partner: Node | None, ops: list[Op]) -> None:
        item = parent.items[position]
        counted = counts(item)
        parent.gone[position] = self._step
        parent.live -= counted
        ops.append(Taken(parent, position, reason, partner, counted=counted))
        last: Leaf | None = None
        if type(item) is Node:
            last = self._bury(item, ops)
        elif type(item) is Leaf:
            unlink(item)
            ops.append(Unlinked(item))
        if type(item) is Node and item.fallback is not None:
            self._raise(item.fallback, last, ops)
        if parent.on_path > 0:
            self._leave(parent)
        asks = any(gone == STAYS for gone in parent.calls_gone)
        if parent.live == 0 and not asks and parent.parent is not None and not parent.pinned and parent not in self._chain:
            self._queue.append((parent.parent, parent.position, "empty", None))

    def _stays(self, parent: Node, position: int, item: Item, *, along: bool) -> bool:
        if type(item) is Node and (item.pinned or item in self._chain):
            return True
        return along and self._stays_before(parent, position)  # candidates never stand before a boundary

    def _stays_before(self, parent: Node, position: int) -> bool:
        """Whether a place is before the last cache boundary."""
        node: Node | None = parent if self._chain else None
        while node is not None:
            if position < node.shield:
                return True
            position, node = node.position, node.parent
        return False

    def _bury(self, top: Node, ops: list[Op]) -> Leaf | None:
        """Take a node's whole subtree down with it. Returns the last text that this took out of a message that stays."""
        buried: list[Node] = []
        stack = [top]
        leaves = top.message is not None and top.role is None
        last: Leaf | None = None
        while stack:
            node = stack.pop()
            if not node.up:
                continue
            node.up = False
            buried.append(node)
            stack.extend(child for child in reversed(node.nodes) if node.gone[child.position] == STAYS)
            for group in node.keep:
                self._drop_group(group, node)
            if node.asked:
                self._calls.append((*node.asked, "tool-pair", node))
            self._queue.extend((a.parent, a.position, "tool-pair", node) for _, a in node.answers if a.up and a.parent)
            if leaves:
                for leaf in linked_items(node):
                    unlink(leaf)
                    ops.append(Unlinked(leaf))
                    last = leaf
        ops.append(Buried(buried))
        return last

    def _drop_group(self, group: Hashable, node: Node) -> None:
        if group in self._groups:
            return
        self._groups.add(group)
        for member in self.tree.groups.get(group, ()):
            if member.up and member.parent is not None:
                self._queue.append((member.parent, member.position, "kept-with", node))
        for message, index in self.tree.members.get(group, ()):
            self._calls.append((message, index, "kept-with", node))

    def _take_call(self, message: Node, index: int, reason: str, partner: Node | None, ops: list[Op]) -> bool:
        """Take a call out of its message, unless a fallback answers it now. False where the message must stay as it is."""
        if not message.up or message.calls_gone[index] != STAYS:
            return True
        answers = [answer for at, answer in message.answers if at == index]
        if reason == "tool-pair" and any(answer.up for answer in answers):
            return True
        if message.required or message in self._chain or (message.parent and self._stays_before(message.parent, message.position)):
            return False
        message.calls_gone[index] = self._step
        ops.append(CallTaken(message, index, reason, partner))
        self._queue.extend((a.parent, a.position, "tool-pair", message) for a in answers if a.up and a.parent)
        if message.parent is not None and message.live == 0 and all(gone != STAYS for gone in message.calls_gone):
            self._queue.append((message.parent, message.position, "tool-pair" if reason == "tool-pair" else reason, partner))
        return True

    def _raise(self, spare: Node, last: Leaf | None, ops: list[Op]) -> None:
        """A fallback takes its place."""
        parent = spare.parent
        if parent is None:
            return
        spare.born = self._step
        nodes = [spare]
        for node in nodes:  # grows while it is walked
            node.up = True
            nodes.extend(child for child in node.nodes if child.born < 0)
        ops.append(Raised(spare, nodes))
        for node in nodes:  # a result that stands by for another has no call to answer if that has gone
            if node.asked and node.parent and not (node.asked[0].up and node.asked[0].calls_gone[node.asked[1]] == STAYS):
                self._queue.append((node.parent, node.position, "tool-pair", node.asked[0]))
        spare.counted = shows(spare)
        parent.live += spare.counted
        ops.extend(Linked(leaf) for leaf in link_below(spare, last))
        if parent.lows is not None:
            heappush(parent.lows, (spare.priority, spare.position))
        above: Node | None = parent
        while above is not None:
            if above.scope is not None:
                above.scope.add(spare)
            above = above.parent if above.passes or above.in_legacy else None

    def _leave(self, node: Node) -> None:
        """A node's key has changed: look at its siblings again before going on in it."""
        length = node.on_path
        for left in self._path[length:]:
            left.on_path = -1
        del self._path[length:]

    def _roll_back(self, ops: list[Op]) -> None:
        for op in reversed(ops):
            undo(op)
            mark_step(op, STAYS)
