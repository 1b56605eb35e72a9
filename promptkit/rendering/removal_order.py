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

from promptkit.rendering.materialize import is_content, has_removable_items, linked_items, has_content
from promptkit.rendering.tree import HIGHEST_PRIORITY, NEVER_REMOVED, TextMessage, Item, Leaf, Node
from promptkit.rendering.undo_log import SubtreeRemoved, CallRemoved, LeafLinked, Change, FallbackActivated, ItemRemoved, LeafUnlinked, link_fallback, mark_step, redo, undo, unlink

if TYPE_CHECKING:
    from collections.abc import Hashable

    from promptkit.rendering.materialize import RenderTree

__all__ = ["Candidate", "RemovalOrder", "CandidateQueue", "Step", "find_lowest_priority", "build_queue"]


Candidate: TypeAlias = "tuple[float, float, float, Node, int]"
"""(priority, lowest direct child, order, parent, position)"""


ALONE = float("-inf")
"""Stands (by identity) for the lowest direct child where no candidate has the same priority, so that it need not be known."""


class CandidateQueue:
    """The candidates of one container."""

    __slots__ = ("at", "changed", "entries", "spare")

    def __init__(self, entries: list[Candidate], spare: dict[Node, list[Candidate]]) -> None:
        self.entries = entries
        self.at = 0
        self.changed: list[Candidate] = []
        self.spare = spare  # what a fallback adds once it takes its place

    def peek(self) -> Candidate | None:
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
            if parent.removed_at[position] != NEVER_REMOVED or not parent.is_active:
                self.pop(entry)
                continue
            item = parent.items[position]
            if type(item) is Node:
                if item.exhausted:
                    self.pop(entry)
                    continue
                if low is ALONE:
                    return entry
                now = find_lowest_priority(item)
                if now != low:
                    self.pop(entry)
                    heappush(changed, (priority, now, order, parent, position))
                    continue
            return entry

    def is_down_to_one(self) -> bool:
        """Whether nothing but the latest `peek` is left to choose."""
        return len(self.entries) - self.at + len(self.changed) == 1

    def pop(self, entry: Candidate) -> None:
        """Take the entry away that `peek` returned."""
        if self.at < len(self.entries) and self.entries[self.at] is entry:
            self.at += 1
        else:
            heappop(self.changed)

    def add(self, fallback: Node) -> None:
        """A fallback takes its place."""
        for entry in self.spare.get(fallback, ()):
            heappush(self.changed, entry)


def find_lowest_priority(node: Node) -> float:
    """The lowest priority among a node's living children; as high as can be if there are none."""
    items, gone = node.items, node.removed_at
    if len(items) == 1 and node.nodes == []:
        return items[0].priority if gone[0] == NEVER_REMOVED else HIGHEST_PRIORITY
    lows = node.priority_heap
    if lows is None:
        lows = node.priority_heap = [(item.priority, at) for at, item in enumerate(items) if gone[at] == NEVER_REMOVED and _compares(item)]
        heapify(lows)
    while lows and gone[lows[0][1]] != NEVER_REMOVED:
        heappop(lows)
    return lows[0][0] if lows else HIGHEST_PRIORITY


def _compares(item: TextMessage | Leaf | Node) -> bool:
    if type(item) is Leaf:
        return not item.is_frame
    return not (type(item) is Node and item.activated_at == NEVER_REMOVED)


def build_queue(node: Node) -> CandidateQueue:
    """The candidates of a container as it stands."""
    if node.required:
        return CandidateQueue([], {})
    return _legacy(node) if node.legacy else _local(node)


def _local(node: Node) -> CandidateQueue:
    entries: list[Candidate] = []
    spare: dict[Node, list[Candidate]] = {}
    order = 0
    stack = [(node, enumerate(node.items))]
    while stack:
        parent, rest = stack[-1]
        gone, shield = parent.removed_at, parent.protected_items
        for position, item in rest:
            if gone[position] != NEVER_REMOVED or position < shield:
                continue
            order += 1
            if type(item) is Leaf and item.is_frame:
                continue
            if type(item) is Node:
                if item.required:
                    continue
                if item.activated_at == NEVER_REMOVED:
                    spare[item] = [(item.priority, find_lowest_priority(item), order, parent, position)]
                    continue
                if item.passes_priority and item.items and not item.atomic:
                    stack.append((item, enumerate(item.items)))
                    break
            entries.append((item.priority, ALONE, order, parent, position))
        else:
            stack.pop()
    entries.sort()
    _break_ties(entries)
    return CandidateQueue(entries, spare)


def _break_ties(entries: list[Candidate]) -> None:
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


def _rank(item: TextMessage | Leaf | Node) -> float:
    if type(item) is Node:
        return find_lowest_priority(item)
    return -1 if type(item) is Leaf and not item.is_element else item.priority


def _legacy(node: Node) -> CandidateQueue:
    """Everything below competes by its own priority alone."""
    entries: list[Candidate] = []
    spare: dict[Node, list[Candidate]] = {}
    order = 0
    stack: list[tuple[Node, enumerate[TextMessage | Leaf | Node], list[Candidate]]] = [(node, enumerate(node.items), entries)]
    while stack:
        parent, rest, into = stack[-1]
        for position, item in rest:
            if parent.removed_at[position] != NEVER_REMOVED or position < parent.protected_items:
                continue
            order += 1
            if type(item) is Node:
                if item.required:
                    continue
                if item.items:
                    stack.append((item, enumerate(item.items), spare.setdefault(item, []) if item.activated_at == NEVER_REMOVED else into))
                    break
                into.append((item.priority, ALONE, order, parent, position))
            elif not (type(item) is Leaf and item.is_frame):
                into.append((item.priority, ALONE, order, parent, position))
        else:
            stack.pop()
    entries.sort()
    return CandidateQueue(entries, spare)


Step: TypeAlias = "Candidate | list[Change]"
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
        root.path_index = 0
        while path:
            node = path[-1]
            scope = node.scope
            if scope is None:
                scope = node.scope = build_queue(node)
                self._touched.append(node)
            entry = scope.peek()
            if entry is None:
                path.pop()
                node.path_index = -1
                if node is root:
                    break
                if node.parent is None or node.pinned or has_removable_items(node):
                    node.exhausted = True
                    continue
                parent, position, node.exhausted = node.parent, node.position, True  # it can go or not, but is no candidate any more
            else:
                parent, position = entry[3], entry[4]
                item = parent.items[position]
                if type(item) is Node and not item.atomic and item.items:
                    item.path_index = len(path)
                    path.append(item)
                    continue
                scope.pop(entry)
                if type(item) is TextMessage and parent.live_items > 1:
                    self._take_atoms(scope, entry, steps)
                    continue
            ops: list[Change] = []
            if self._remove(parent, position, ops):
                steps.append(ops)
                self._step += 1
            else:
                self._roll_back(ops)
        return steps

    def _take_atoms(self, scope: CandidateQueue, entry: Candidate, steps: list[Step]) -> None:
        """Take a message that nothing depends on, and all such that follow it while no other container can be next."""
        path = self._path
        alone = len(path) == 1 or (len(path) == 2 and path[0].scope is not None and path[0].scope.is_down_to_one())  # noqa: PLR2004  # levels
        step = self._step
        entries = scope.entries
        while True:
            parent, position = entry[3], entry[4]
            if parent.removed_at[position] == NEVER_REMOVED and parent.is_active:
                parent.removed_at[position] = step
                parent.live_items -= 1
                step += 1
                steps.append(entry)
            if not alone or scope.changed or scope.at >= len(entries):
                break
            entry = entries[scope.at]
            if type(entry[3].items[entry[4]]) is not TextMessage or entry[3].live_items <= 1:
                break
            scope.at += 1
        self._step = step
        if not alone and parent.path_index > 0:
            self._leave(parent)

    def settle(self, steps: list[Step], k: int, undone: int) -> None:
        """Make the first k of a subtree's steps final and the rest as if they had not been. Steps from `undone` on are undone already."""
        for step in steps[undone:k]:
            if isinstance(step, list):
                for op in step:
                    redo(op)
            else:
                step[3].live_items -= 1
        for index, step in enumerate(steps):
            mark = -1 if index < k else NEVER_REMOVED
            if isinstance(step, tuple):
                step[3].removed_at[step[4]] = mark
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
                    item.priority_heap = None
                    item.exhausted = False
            node.scope = node.priority_heap = None
            node.exhausted = False
            node.path_index = -1
        self._touched = []
        for node in self._chain:
            node.protected_items = 0
        self._chain = set()

    def _guard(self, root: Node) -> None:
        """Protect what stands before the last cache boundary below `root`."""
        for boundary in reversed(self.tree.cache_breakpoints):
            chain: list[tuple[Node, int]] = []
            node: Node | None = boundary.parent
            position = boundary.position + 1
            while node is not None:
                chain.append((node, position))
                if node is root:
                    for each, place in chain:
                        each.protected_items = place
                        self._chain.add(each)
                    return
                position = node.position
                node = node.parent

    def _remove(self, parent: Node, position: int, ops: list[Change]) -> bool:
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
            if parent.removed_at[position] != NEVER_REMOVED or not parent.is_active or (type(item) is Node and not item.is_active):
                continue
            if self._stays(parent, position, item, along=reason in {"kept-with", "tool-pair"}):
                return False
            self._take(parent, position, reason, partner, ops)
        return True

    def _take(self, parent: Node, position: int, reason: str, partner: Node | None, ops: list[Change]) -> None:
        item = parent.items[position]
        counted = is_content(item)
        parent.removed_at[position] = self._step
        parent.live_items -= counted
        ops.append(ItemRemoved(parent, position, reason, partner, counted=counted))
        last: Leaf | None = None
        if type(item) is Node:
            last = self._bury(item, ops)
        elif type(item) is Leaf:
            unlink(item)
            ops.append(LeafUnlinked(item))
        if type(item) is Node and item.fallback is not None:
            self._raise(item.fallback, last, ops)
        if parent.path_index > 0:
            self._leave(parent)
        asks = any(gone == NEVER_REMOVED for gone in parent.calls_removed_at)
        if parent.live_items == 0 and not asks and parent.parent is not None and not parent.pinned and parent not in self._chain:
            self._queue.append((parent.parent, parent.position, "empty", None))

    def _stays(self, parent: Node, position: int, item: Item, *, along: bool) -> bool:
        if type(item) is Node and (item.pinned or item in self._chain):
            return True
        return along and self._stays_before(parent, position)  # candidates never stand before a boundary

    def _stays_before(self, parent: Node, position: int) -> bool:
        """Whether a place is before the last cache boundary."""
        node: Node | None = parent if self._chain else None
        while node is not None:
            if position < node.protected_items:
                return True
            position, node = node.position, node.parent
        return False

    def _bury(self, top: Node, ops: list[Change]) -> Leaf | None:
        """Take a node's whole subtree down with it. Returns the last text that this took out of a message that stays."""
        buried: list[Node] = []
        stack = [top]
        leaves = top.message is not None and top.role is None
        last: Leaf | None = None
        while stack:
            node = stack.pop()
            if not node.is_active:
                continue
            node.is_active = False
            buried.append(node)
            stack.extend(child for child in reversed(node.nodes) if node.removed_at[child.position] == NEVER_REMOVED)
            for group in node.keep_groups:
                self._drop_group(group, node)
            if node.answered_call:
                self._calls.append((*node.answered_call, "tool-pair", node))
            self._queue.extend((a.parent, a.position, "tool-pair", node) for _, a in node.results if a.is_active and a.parent)
            if leaves:
                for leaf in linked_items(node):
                    unlink(leaf)
                    ops.append(LeafUnlinked(leaf))
                    last = leaf
        ops.append(SubtreeRemoved(buried))
        return last

    def _drop_group(self, group: Hashable, node: Node) -> None:
        if group in self._groups:
            return
        self._groups.add(group)
        for member in self.tree.keep_groups.get(group, ()):
            if member.is_active and member.parent is not None:
                self._queue.append((member.parent, member.position, "kept-with", node))
        for message, index in self.tree.keep_group_calls.get(group, ()):
            self._calls.append((message, index, "kept-with", node))

    def _take_call(self, message: Node, index: int, reason: str, partner: Node | None, ops: list[Change]) -> bool:
        """Take a call out of its message, unless a fallback answers it now. False where the message must stay as it is."""
        if not message.is_active or message.calls_removed_at[index] != NEVER_REMOVED:
            return True
        answers = [answer for at, answer in message.results if at == index]
        if reason == "tool-pair" and any(answer.is_active for answer in answers):
            return True
        if message.required or message in self._chain or (message.parent and self._stays_before(message.parent, message.position)):
            return False
        message.calls_removed_at[index] = self._step
        ops.append(CallRemoved(message, index, reason, partner))
        self._queue.extend((a.parent, a.position, "tool-pair", message) for a in answers if a.is_active and a.parent)
        if message.parent is not None and message.live_items == 0 and all(gone != NEVER_REMOVED for gone in message.calls_removed_at):
            self._queue.append((message.parent, message.position, "tool-pair" if reason == "tool-pair" else reason, partner))
        return True

    def _raise(self, spare: Node, last: Leaf | None, ops: list[Change]) -> None:
        """A fallback takes its place."""
        parent = spare.parent
        if parent is None:
            return
        spare.activated_at = self._step
        nodes = [spare]
        for node in nodes:  # grows while it is walked
            node.is_active = True
            nodes.extend(child for child in node.nodes if child.activated_at < 0)
        ops.append(FallbackActivated(spare, nodes))
        for node in nodes:  # a result that stands by for another has no call to answer if that has gone
            if node.answered_call and node.parent and not (node.answered_call[0].is_active and node.answered_call[0].calls_removed_at[node.answered_call[1]] == NEVER_REMOVED):
                self._queue.append((node.parent, node.position, "tool-pair", node.answered_call[0]))
        spare.is_counted = has_content(spare)
        parent.live_items += spare.is_counted
        ops.extend(LeafLinked(leaf) for leaf in link_fallback(spare, last))
        if parent.priority_heap is not None:
            heappush(parent.priority_heap, (spare.priority, spare.position))
        above: Node | None = parent
        while above is not None:
            if above.scope is not None:
                above.scope.add(spare)
            above = above.parent if above.passes_priority or above.in_legacy else None

    def _leave(self, node: Node) -> None:
        """A node's key has changed: look at its siblings again before going on in it."""
        length = node.path_index
        for left in self._path[length:]:
            left.path_index = -1
        del self._path[length:]

    def _roll_back(self, ops: list[Change]) -> None:
        for op in reversed(ops):
            undo(op)
            mark_step(op, NEVER_REMOVED)
