"""The removal candidates of a container, the lowest first.

They are in a sorted list, with a heap for those whose keys have changed: the key of a candidate
only grows while its children are removed. `promptkit.rendering.prune.removal_order` takes them in turn
and states the rules.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from promptkit.rendering.expand.materialize import find_enclosure, has_own_priority
from promptkit.rendering.tree import (
    HIGHEST_PRIORITY,
    MARKER,
    NEVER_REMOVED,
    Candidate,
    Item,
    Leaf,
    MessageItem,
    Node,
    Run,
    is_literal,
)

NO_TIE = float("-inf")
"""Replaces (compared by identity) the lowest priority of a direct child where no other candidate
has the same priority."""


class CandidateQueue:
    """The removal candidates of one container, the lowest first."""

    __slots__ = ("_by_fallback", "_emptied", "_runs", "candidates", "changed", "next_index")

    def __init__(
        self,
        candidates: list[Candidate],
        by_fallback: dict[Node, list[Candidate]],
        *,
        runs: dict[Node, QueuedRun] | None = None,
        emptied: dict[Node, Candidate] | None = None,
    ) -> None:
        self.candidates = candidates
        self.next_index = 0
        self.changed: list[Candidate] = []
        self._runs = runs or {}
        for queued in self._runs.values():
            self.add_run(queued.run)
        # the candidates that each fallback adds when it is activated
        self._by_fallback = by_fallback
        # the candidate that each message with calls is when all of its items are gone
        self._emptied = emptied or {}

    def peek(self) -> Candidate | None:
        """Return the lowest living candidate, or None."""
        candidates, changed = self.candidates, self.changed
        while True:
            if self.next_index < len(candidates) and not (
                changed and changed[0] < candidates[self.next_index]
            ):
                candidate = candidates[self.next_index]
            elif changed:
                candidate = changed[0]
            else:
                return None
            priority, low, order, parent, position = candidate
            if not self._is_alive(parent, position):
                self.pop(candidate)
                continue
            item = None if position == MARKER else parent.items[position]
            if type(item) is not Node or low is NO_TIE:
                return candidate
            now = _find_lowest_priority(item)
            if now == low:
                return candidate
            self.pop(candidate)
            heappush(changed, (priority, now, order, parent, position))

    def _is_alive(self, parent: Node, position: int) -> bool:
        """Return whether a candidate can still be removed."""
        if not parent.is_active or position == MARKER:
            return parent.is_active
        item = parent.items[position]
        return parent.removed_at[position] == NEVER_REMOVED and not (
            type(item) is Node and (item.exhausted or (item in self._emptied and has_items(item)))
        )

    def find_run(self, node: Node, position: int) -> Run | None:
        """Return the run whose next entry is this candidate, or None."""
        queued = self._runs.get(node)
        return (
            queued.run
            if queued is not None
            and (position == MARKER or type(node.items[position]) is MessageItem)
            else None
        )

    def add_run(self, run: Run) -> None:
        """Add the next entry of a run, if any is left."""
        index = len(run.steps)
        if index < len(run.order):
            _, low, order = self._runs[run.node]
            position = run.order[index]
            written = order + (run.order[index - 1] if position == MARKER else position)
            priority = run.priorities[index]
            heappush(
                self.changed,
                (priority, priority if low is None else low, written, run.node, position),
            )

    def find_run_end(self, run: Run) -> int:
        """Return the index of the first entry of a run that another candidate precedes; at least the index after the next entry."""
        following = self.peek()
        start = len(run.steps) + 1
        return (
            len(run.order)
            if following is None
            else max(start, bisect_left(run.priorities, following[0], start))
        )

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
        """Add the candidate of a message that has only tool calls left."""
        if (candidate := self._emptied.get(message)) is not None:
            heappush(self.changed, candidate)


class QueuedRun(NamedTuple):
    """A run among the candidates of a queue."""

    run: Run
    low: float | None
    """The key that breaks ties among its items. None means their priority."""
    order: int
    """Number of candidates that precede those of its node in written order."""


def _find_lowest_priority(node: Node) -> float:
    """Return the lowest priority of a node's living children, or HIGHEST_PRIORITY if it has none."""
    items, removed_at = node.items, node.removed_at
    if len(items) == 1 and node.nodes == []:
        item = items[0]
        if type(item) is Leaf and item.part is not None and item.element is None:
            return -1  # the content of a media element, as of one that needs no node
        return item.priority if removed_at[0] == NEVER_REMOVED else HIGHEST_PRIORITY
    heap = node.priority_heap
    if heap is None:
        heap = node.priority_heap = [
            (item.priority, at)
            for at, item in enumerate(items)
            if removed_at[at] == NEVER_REMOVED and _has_priority(item)
        ]
        heapify(heap)
    while heap and removed_at[heap[0][1]] != NEVER_REMOVED:
        heappop(heap)
    return heap[0][0] if heap else HIGHEST_PRIORITY


def _has_priority(item: Item) -> bool:
    """Return whether an item is considered for the lowest priority of its parent's children."""
    if type(item) is Leaf:
        return not item.is_frame
    return not (type(item) is Node and item.activated_at == NEVER_REMOVED)


def build_queue(node: Node, *, text_last: bool) -> CandidateQueue:
    """Build the queue of a container's candidates in its current state.

    With `text_last`, literal text comes after all else.
    """
    if node.required:
        return CandidateQueue([], {})
    return (
        _build_legacy_queue(node) if node.legacy else _build_local_queue(node, text_last=text_last)
    )


_LAST = float("inf")
"""Replaces the priority of literal text, which comes after all other candidates."""


def _build_local_queue(node: Node, *, text_last: bool) -> CandidateQueue:  # noqa: C901  # one pass over items, of which a prompt can have very many
    """Build the queue of any other container: its children, with each `pass_priority` child replaced by its own children."""
    candidates: list[Candidate] = []
    texts: list[Candidate] = []
    by_fallback: dict[Node, list[Candidate]] = {}
    runs: dict[Node, QueuedRun] = {}
    order = 0
    stack = [_enter(node, runs, order)]
    while stack:
        parent, rest = stack[-1]
        if parent.run is not None and parent.run.is_recorded:
            order += len(parent.items)  # all of them are in the run
            stack.pop()
            continue
        removed_at, protected, kept, in_run = (
            parent.removed_at,
            parent.protected_items,
            parent.kept_position,
            parent in runs,
        )
        for position, item in rest:
            order += 1
            if (
                removed_at[position] != NEVER_REMOVED
                or position < protected
                or (in_run and type(item) is MessageItem)
                or position == kept
            ):
                continue
            if type(item) is Leaf:
                if is_never_removed(item):
                    continue
                if text_last and is_literal(item):
                    encloses = parent.enclosures and find_enclosure(parent, position)
                    texts.append((_LAST, bool(encloses), order, parent, position))
                    continue
            if type(item) is Node:
                if item.required:
                    continue
                if item.activated_at == NEVER_REMOVED:
                    by_fallback[item] = [
                        (item.priority, _find_lowest_priority(item), order, parent, position)
                    ]
                    continue
                if _is_open(item):
                    stack.append(_enter(item, runs, order))
                    break
            candidates.append((item.priority, NO_TIE, order, parent, position))
        else:
            stack.pop()
    ordered = _break_ties(
        sorted(candidates),
        runs.values(),
        {candidate[0] for added in by_fallback.values() for candidate in added},
    )
    # texts on both sides of others last
    return CandidateQueue([*ordered, *sorted(texts)], by_fallback, runs=runs)


def _enter(node: Node, runs: dict[Node, QueuedRun], order: int) -> tuple[Node, enumerate[Item]]:
    """Return an iterator over the items of a node, and queue its run.

    The run is not queued if other candidates come between its items, or if some are protected.
    """
    if node.run is not None and (
        node.run.is_recorded or not (node.protected_items or any(map(_is_open, node.nodes)))
    ):
        runs[node] = QueuedRun(
            node.run, HIGHEST_PRIORITY if node.run.is_recorded else None, order + 1
        )
    return node, enumerate(node.items)


def _is_open(node: Node) -> bool:
    """Return whether the children of a node compete with its siblings."""
    return node.passes_priority and bool(node.items) and not node.atomic


def is_never_removed(leaf: Leaf) -> bool:
    """Return whether a leaf is removed only with its element: a line of a Tag, or text of a message that is never pruned."""
    return leaf.is_frame or (leaf.parent.keeps_unprioritized and not has_own_priority(leaf))


def _break_ties(
    candidates: list[Candidate], runs: Collection[QueuedRun], fallbacks: Collection[float]
) -> Iterator[Candidate]:
    """Yield candidates that are sorted by priority, those of equal priority by the lowest priority among their direct children.

    `fallbacks` are the priorities of those that may be added.
    """
    for priority, group in groupby(candidates, key=itemgetter(0)):
        tied = list(group)
        if (
            len(tied) > 1
            or priority in fallbacks
            or any(
                bisect_left(queued.run.priorities, priority)
                < bisect_right(queued.run.priorities, priority)
                for queued in runs
            )
        ):
            tied = sorted(
                (priority, _find_tie_key(parent.items[at]), order, parent, at)
                for _, _, order, parent, at in tied
            )
        yield from tied


def _find_tie_key(item: Item) -> float:
    """Return the key that breaks ties between equal priorities: the lowest priority among the direct children."""
    if type(item) is Node:
        return _find_lowest_priority(item)
    return -1 if type(item) is Leaf and not item.is_element else item.priority


def _build_legacy_queue(node: Node) -> CandidateQueue:
    """Build the queue of a LegacyPrioritization: everything below it competes by its own priority alone."""
    candidates: list[Candidate] = []
    by_fallback: dict[Node, list[Candidate]] = {}
    emptied: dict[Node, Candidate] = {}
    runs: dict[Node, QueuedRun] = {}
    order = 0
    stack: list[tuple[Node, enumerate[Item], list[Candidate]]] = [
        (node, enumerate(node.items), candidates)
    ]
    while stack:
        parent, rest, into = stack[-1]
        if parent.run is not None and parent.run.is_recorded and parent not in runs:
            runs[parent] = QueuedRun(parent.run, NO_TIE, order + 1)
        for position, item in rest:
            order += 1
            if (
                parent.removed_at[position] != NEVER_REMOVED
                or position < parent.protected_items
                or position == parent.kept_position
                or parent in runs
            ):
                continue
            if type(item) is Node:
                if item.required:
                    continue
                if item.calls:
                    emptied[item] = (item.priority, NO_TIE, order, parent, position)
                if has_items(item):
                    stack.append(
                        (
                            item,
                            enumerate(item.items),
                            by_fallback.setdefault(item, [])
                            if item.activated_at == NEVER_REMOVED
                            else into,
                        )
                    )
                    break
                into.append((item.priority, NO_TIE, order, parent, position))
            elif not (type(item) is Leaf and is_never_removed(item)):
                into.append((item.priority, NO_TIE, order, parent, position))
        else:
            stack.pop()
    return CandidateQueue(sorted(candidates), by_fallback, runs=runs, emptied=emptied)


def has_items(node: Node) -> bool:
    """Return whether a node has an item left.

    Items leave from the front more often, so the last one is looked at first.
    """
    return any(step == NEVER_REMOVED for step in reversed(node.removed_at))
