"""The removal candidates of a container, the lowest first.

They are in a sorted list, with a heap for those whose keys have changed: the key of a candidate only grows while its children are removed.
`promptkit.rendering.removal_order` takes them in turn and states the rules.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from promptkit.rendering.materialize import has_own_priority
from promptkit.rendering.tree import HIGHEST_PRIORITY, NEVER_REMOVED, Item, Leaf, Node

if TYPE_CHECKING:
    from promptkit.rendering.tree import Candidate

__all__ = ["CandidateQueue", "build_queue", "has_items"]

NO_TIE = float("-inf")
"""Replaces (compared by identity) the lowest priority of a direct child where no other candidate has the same priority."""


class CandidateQueue:
    """The removal candidates of one container, the lowest first."""

    __slots__ = ("_by_fallback", "_emptied", "candidates", "changed", "next_index")

    def __init__(
        self, candidates: list[Candidate], by_fallback: dict[Node, list[Candidate]], emptied: dict[Node, Candidate] | None = None
    ) -> None:
        self.candidates = candidates
        self.next_index = 0
        self.changed: list[Candidate] = []
        self._by_fallback = by_fallback  # the candidates that each fallback adds when it is activated
        self._emptied = emptied or {}  # the candidate that each message with calls is when all of its items are gone

    def peek(self) -> Candidate | None:
        """Return the lowest living candidate, or None."""
        candidates, changed = self.candidates, self.changed
        while True:
            if self.next_index < len(candidates) and not (changed and changed[0] < candidates[self.next_index]):
                candidate = candidates[self.next_index]
            elif changed:
                candidate = changed[0]
            else:
                return None
            priority, low, order, parent, position = candidate
            if parent.removed_at[position] != NEVER_REMOVED or not parent.is_active:
                self.pop(candidate)
                continue
            item = parent.items[position]
            if type(item) is Node:
                if item.exhausted or (item in self._emptied and has_items(item)):
                    self.pop(candidate)
                    continue
                if low is NO_TIE:
                    return candidate
                now = _find_lowest_priority(item)
                if now != low:
                    self.pop(candidate)
                    heappush(changed, (priority, now, order, parent, position))
                    continue
            return candidate

    def has_one_left(self) -> bool:
        """Return whether the candidate of the last `peek` is the only one left."""
        return len(self.candidates) - self.next_index + len(self.changed) == 1

    def pop(self, candidate: Candidate) -> None:
        """Remove the candidate that `peek` returned."""
        if self.next_index < len(self.candidates) and self.candidates[self.next_index] is candidate:
            self.next_index += 1
        else:
            heappop(self.changed)

    def add_fallback(self, fallback: Node) -> None:
        """Add the candidates of a fallback that has been activated."""
        for candidate in self._by_fallback.get(fallback, ()):
            heappush(self.changed, candidate)

    def add_emptied(self, message: Node) -> None:
        """Add the candidate of a message of which only its tool calls are left."""
        if (candidate := self._emptied.get(message)) is not None:
            heappush(self.changed, candidate)


def _find_lowest_priority(node: Node) -> float:
    """Return the lowest priority of a node's living children, or HIGHEST_PRIORITY if it has none."""
    items, removed_at = node.items, node.removed_at
    if len(items) == 1 and node.nodes == []:
        if _is_own_part(items[0]):
            return -1  # as of a media element that needs no node
        return items[0].priority if removed_at[0] == NEVER_REMOVED else HIGHEST_PRIORITY
    heap = node.priority_heap
    if heap is None:
        heap = node.priority_heap = [
            (item.priority, at) for at, item in enumerate(items) if removed_at[at] == NEVER_REMOVED and _has_priority(item)
        ]
        heapify(heap)
    while heap and removed_at[heap[0][1]] != NEVER_REMOVED:
        heappop(heap)
    return heap[0][0] if heap else HIGHEST_PRIORITY


def _is_own_part(item: Item) -> bool:
    """Return whether an item is what the media element around it consists of."""
    return type(item) is Leaf and item.part is not None and item.element is None


def _has_priority(item: Item) -> bool:
    """Return whether an item counts when the lowest priority of its parent's children is looked for."""
    if type(item) is Leaf:
        return not item.is_frame
    return not (type(item) is Node and item.activated_at == NEVER_REMOVED)


def build_queue(node: Node, *, text_last: bool) -> CandidateQueue:
    """Build the queue of a container's candidates in its current state. With `text_last`, literal text comes after all else."""
    if node.required:
        return CandidateQueue([], {})
    return _build_legacy_queue(node) if node.legacy else _build_local_queue(node, text_last=text_last)


_LAST = float("inf")
"""Replaces the priority and the tie key of literal text that comes after all other candidates."""


def _build_local_queue(node: Node, *, text_last: bool) -> CandidateQueue:  # noqa: C901  # one pass over items, of which a prompt can have very many
    """Build the queue of any other container: its children, with those of `pass_priority` children in their place."""
    candidates: list[Candidate] = []
    texts: list[Candidate] = []
    by_fallback: dict[Node, list[Candidate]] = {}
    order = 0
    stack = [(node, enumerate(node.items))]
    while stack:
        parent, rest = stack[-1]
        removed_at, protected = parent.removed_at, parent.protected_items
        for position, item in rest:
            if removed_at[position] != NEVER_REMOVED or position < protected:
                continue
            order += 1
            if type(item) is Leaf:
                if _is_never_removed(item):
                    continue
                if text_last and item.element is None and item.part is None:
                    texts.append((_LAST, _LAST, order, parent, position))
                    continue
            if type(item) is Node:
                if item.required:
                    continue
                if item.activated_at == NEVER_REMOVED:
                    by_fallback[item] = [(item.priority, _find_lowest_priority(item), order, parent, position)]
                    continue
                if item.passes_priority and item.items and not item.atomic:
                    stack.append((item, enumerate(item.items)))
                    break
            candidates.append((item.priority, NO_TIE, order, parent, position))
        else:
            stack.pop()
    candidates.sort()
    _break_ties(candidates)
    candidates += texts
    return CandidateQueue(candidates, by_fallback)


def _is_never_removed(leaf: Leaf) -> bool:
    """Return whether a leaf goes only together with the element around it: a Tag's line, or what a SystemMessage keeps."""
    return leaf.is_frame or (leaf.parent.keeps_unprioritized and not has_own_priority(leaf))


def _break_ties(candidates: list[Candidate]) -> None:
    """Sort candidates of one priority by the lowest priority of a direct child."""
    start = 0
    while start < len(candidates):
        priority = candidates[start][0]
        end = start + 1
        while end < len(candidates) and candidates[end][0] == priority:
            end += 1
        if end > start + 1:
            candidates[start:end] = sorted(
                (priority, _find_tie_key(parent.items[at]), order, parent, at) for _, _, order, parent, at in candidates[start:end]
            )
        start = end


def _find_tie_key(item: Item) -> float:
    """Return the key by which candidates of one priority are compared: the lowest priority of a direct child."""
    if type(item) is Node:
        return _find_lowest_priority(item)
    return -1 if type(item) is Leaf and not item.is_element else item.priority


def _build_legacy_queue(node: Node) -> CandidateQueue:
    """Build the queue of a LegacyPrioritization: everything below it competes by its own priority alone."""
    candidates: list[Candidate] = []
    by_fallback: dict[Node, list[Candidate]] = {}
    emptied: dict[Node, Candidate] = {}
    order = 0
    stack: list[tuple[Node, enumerate[Item], list[Candidate]]] = [(node, enumerate(node.items), candidates)]
    while stack:
        parent, rest, into = stack[-1]
        for position, item in rest:
            if parent.removed_at[position] != NEVER_REMOVED or position < parent.protected_items:
                continue
            order += 1
            if type(item) is Node:
                if item.required:
                    continue
                if item.calls:
                    emptied[item] = (item.priority, NO_TIE, order, parent, position)
                if has_items(item):
                    stack.append(
                        (item, enumerate(item.items), by_fallback.setdefault(item, []) if item.activated_at == NEVER_REMOVED else into)
                    )
                    break
                into.append((item.priority, NO_TIE, order, parent, position))
            elif not (type(item) is Leaf and _is_never_removed(item)):
                into.append((item.priority, NO_TIE, order, parent, position))
        else:
            stack.pop()
    candidates.sort()
    return CandidateQueue(candidates, by_fallback, emptied)


def has_items(node: Node) -> bool:
    """Return whether any item of a node is left. Items leave from the front more often, so the last one is looked at first."""
    return any(step == NEVER_REMOVED for step in reversed(node.removed_at))
