"""The removal order: the sequence of steps by which a tree is pruned.

It is the same for every budget.

The order depends on priorities, groups and emptiness, and never on token counts. Each step removes
the lowest candidate together with everything that must leave with it: containers that become empty,
members of its KeepWith groups, tool calls without result and tool results without call. A step that
would remove something that must stay is skipped, and its candidate is kept.

The rules for candidates are those of prompt-tsx. The candidates of a container are its children. A
`pass_priority` child is replaced by its own children. The lowest priority is removed first. On a
tie, the candidate whose lowest direct child is lower goes first (bare text counts as -1), then the
one that was written first. The key of a candidate only grows while its children are removed, so a
sorted list with a heap for the changed candidates suffices.

Unlike in prompt-tsx, literal text is removed after all other candidates of its container, and text
on both sides of the others together with the last of them. A
SystemMessage without a priority, and the last user message without one, keep what has no priority
in them. `RenderTree.prompt_tsx` takes this back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Hashable, Iterator
from heapq import heappush
from itertools import repeat, takewhile
from typing import NamedTuple, TypeAlias

import attrs

from promptkit.rendering.expand.materialize import (
    RenderTree,
    find_enclosure,
    has_content,
    has_living_child,
    has_removable_items,
    is_content,
    list_linked_leaves,
)
from promptkit.rendering.prune.candidates import (
    NO_TIE,
    CandidateQueue,
    build_queue,
    has_items,
)
from promptkit.rendering.tree import (
    MARKER,
    NEVER_REMOVED,
    EntryTaken,
    Item,
    Leaf,
    MessageItem,
    Node,
    Run,
    RunStep,
    is_literal,
    iter_upwards,
)


class ItemRemoved(NamedTuple):
    """An item was removed."""

    parent: Node
    position: int
    reason: str
    """`budget`, `kept-with`, `tool-pair`, `share` or `empty`."""
    partner: Node | None
    """The node whose removal caused this one."""
    counted: bool
    """Whether the item was one of its parent's `live_items`."""


class SubtreeRemoved(NamedTuple):
    """The active nodes of a removed subtree were deactivated."""

    nodes: list[Node]


class LeafUnlinked(NamedTuple):
    """A leaf was taken out of its message's chain."""

    leaf: Leaf


class LeafLinked(NamedTuple):
    """A leaf of a fallback was put into its message's chain."""

    leaf: Leaf


class CallRemoved(NamedTuple):
    """A tool call was removed from its message."""

    message: Node
    call: int
    reason: str
    partner: Node | None


class FallbackActivated(NamedTuple):
    """A fallback was activated."""

    fallback: Node
    nodes: list[Node]
    """The nodes of its subtree that became active."""
    counted: list[Node]
    """The nodes that are now one of their parents' `live_items`: the fallback, and the containers
    around it that were empty before."""


Change: TypeAlias = (
    ItemRemoved
    | SubtreeRemoved
    | LeafUnlinked
    | LeafLinked
    | CallRemoved
    | FallbackActivated
    | EntryTaken
)


def apply(change: Change, *, taken: bool) -> None:
    """Undo a change in the current state, or with `taken` redo one that was undone.

    The steps (`removed_at`, `activated_at`) are left to `mark_step`.
    """
    if isinstance(change, ItemRemoved):
        change.parent.live_items += -change.counted if taken else change.counted
    elif isinstance(change, LeafUnlinked | LeafLinked):
        if isinstance(change, LeafLinked) is taken:
            _relink(change.leaf)
        else:
            unlink(change.leaf)
    elif isinstance(change, SubtreeRemoved):
        for node in change.nodes:
            node.is_active = not taken
    elif isinstance(change, FallbackActivated):
        for node in change.nodes:
            node.is_active = taken
        for node in change.counted:
            set_counted(node, counted=taken)


def set_counted(node: Node, *, counted: bool) -> None:
    """Set whether a node is one of its parent's `live_items`."""
    node.is_counted = counted
    if node.parent is not None:
        node.parent.live_items += 1 if counted else -1


def mark_step(change: Change, step: int) -> None:
    """Set the step that makes a change."""
    if isinstance(change, ItemRemoved):
        change.parent.removed_at[change.position] = step
    elif isinstance(change, CallRemoved):
        change.message.calls_removed_at[change.call] = step
    elif isinstance(change, FallbackActivated):
        change.fallback.activated_at = step
    elif isinstance(change, EntryTaken) and step == NEVER_REMOVED:
        del change.run.steps[-1:]


def unlink(leaf: Leaf) -> None:
    """Take a leaf out of its message's chain.

    The leaf keeps the references to its neighbours, so that `_relink` can put it back, if leaves
    are relinked in reverse order.
    """
    _set_neighbours(leaf, leaf.following, leaf.previous)


def _relink(leaf: Leaf) -> None:
    """Link a leaf between its former neighbours, which it still refers to."""
    _set_neighbours(leaf, leaf, leaf)


def _set_neighbours(leaf: Leaf, following: Leaf | None, previous: Leaf | None) -> None:
    """Set what follows the leaf before a leaf, and what precedes the leaf after it."""
    before, after = leaf.previous, leaf.following
    if before is not None:
        before.following = following
    elif leaf.parent.message is not None:
        leaf.parent.message.first_leaf = following
    if after is not None:
        after.previous = previous


def link_fallback(fallback: Node, last: Leaf | None) -> Iterator[Leaf]:
    """Put the leaves of a fallback into its message's chain and yield them in order.

    `last` is the leaf that was taken out at this place directly before, if there was one.
    """
    message = fallback.message
    if message is None or fallback.role is not None:
        return
    before, after = (last.previous, last.following) if last else _find_neighbours(message, fallback)
    stack: list[Iterator[Item]] = [
        iter([fallback.placeholder] if fallback.placeholder else fallback.items)
    ]
    while stack:
        for item in stack[-1]:
            if type(item) is Leaf:
                item.previous, item.following = before, after
                _relink(item)
                yield item
                before = item
            elif type(item) is Node and item.is_active:
                stack.append(iter([item.placeholder] if item.placeholder else item.items))
                break
        else:
            stack.pop()


def _find_neighbours(message: Node, fallback: Node) -> tuple[Leaf | None, Leaf | None]:
    """Find the living leaves before and after a fallback, by their index in the message."""
    start = fallback.first_leaf_index
    before: Leaf | None = None
    leaf = message.first_leaf
    while leaf is not None and leaf.index < start:
        before, leaf = leaf, leaf.following
    return before, leaf


Step: TypeAlias = "RunStep | list[Change]"
"""One step: the entry of a run that it takes, or the changes that it makes."""

Task: TypeAlias = "tuple[Node, int, str, Node | None]"
"""Something to remove: (parent, position, reason, partner) of an item, or (message, index, reason,
partner) of a tool call."""


@attrs.define(eq=False)
class RemovalOrder:
    """The removal order of one tree.

    It can be run for the subtree of a limit and settled there, and then for the whole tree.
    """

    tree: RenderTree
    _step: int = attrs.field(default=0, init=False)
    _path: list[Node] = attrs.field(factory=list[Node], init=False)
    _queues: dict[Node, CandidateQueue] = attrs.field(
        factory=dict[Node, CandidateQueue], init=False
    )
    _breakpoint_nodes: set[Node] = attrs.field(factory=set[Node], init=False)
    """The nodes that contain the last cache breakpoint."""
    _queue: deque[Task] = attrs.field(factory=deque["Task"], init=False)
    _call_queue: deque[Task] = attrs.field(factory=deque["Task"], init=False)
    _removed_groups: set[Hashable] = attrs.field(factory=set["Hashable"], init=False)

    def run(self, root: Node) -> list[Step]:
        """Return all steps below a node, until nothing more may be removed.

        The tree is left in the last state.
        """
        steps: list[Step] = []
        deque(self.take_steps(root, steps, batch=True), maxlen=0)
        return steps

    def take_steps(self, root: Node, steps: list[Step], *, batch: bool) -> Generator[None]:
        """Take the steps below a node in order, and append them to `steps`.

        Yields after each, or with `batch` after several.

        It may be closed before the last step; `make_final` or `take_back` must follow.
        """
        self._protect_prefix(root)
        self._step = 0
        self._path = [root]
        root.path_index, root.is_unrivalled = 0, True
        while (found := self._find_next(root)) is not None:
            source, parent, position = found
            run = None if source is None else source.find_run(parent, position)
            if (
                source is not None
                and run is not None
                and self._take_run(run, source, steps, batch=batch and self._path[-1].is_unrivalled)
            ):
                yield
                continue
            changes = self._take_step(parent, position, run)
            if changes is not None:
                steps.append(changes)
                self._step += 1
                yield

    def _find_next(self, root: Node) -> tuple[CandidateQueue | None, Node, int] | None:
        """Find the next candidate: (its source, parent, position).

        A container without candidates is one itself, without a source.
        """
        path = self._path
        while path:
            node = path[-1]
            source = self._queues.get(node)
            if source is None:
                source = build_queue(node, text_last=not self.tree.prompt_tsx)
                self._queues[node] = source
            candidate = source.peek()
            if candidate is None:
                path.pop()
                node.path_index = -1
                if node is root:
                    return None
                node.exhausted = True  # no candidate any more, whether it can be removed or not
                if node.parent is not None and not node.pinned and not has_removable_items(node):
                    return None, node.parent, node.position
                continue
            _, low, _, parent, position = candidate
            item = None if position == MARKER else parent.items[position]
            if not (isinstance(item, Node) and item.items and not item.atomic):
                source.pop(candidate)
                return source, parent, position
            item.path_index = len(path)
            item.is_unrivalled = low is NO_TIE
            path.append(item)
        return None

    def _take_step(self, parent: Node, position: int, run: Run | None) -> list[Change] | None:
        """Remove a candidate, and everything that is kept with it.

        None, with nothing changed: some of that must stay.
        """
        changes: list[Change] = []
        if run is not None:
            changes.append(run.take(self._step))
        if position != MARKER:
            self._queue.append((parent, position, "budget", None))
        elif (
            parent.live_items == 0
            and parent.parent is not None
            and parent not in self._breakpoint_nodes
        ):
            self._queue.append((parent.parent, parent.position, "empty", None))
        return self._remove_queued(changes)

    def remove_empty_enclosures(self) -> list[Step]:
        """Remove for good the literal texts that have nothing between them from the start, because the share of each child there is too small."""
        self._protect_prefix(self.tree.root)
        steps: list[Step] = []
        for node in self.tree.nodes:
            for enclosure in node.enclosures:
                self._queue_enclosing_texts(node, enclosure.start, "share")
                changes = self._remove_queued([])
                steps += [changes] if changes else []
        self.make_final(steps)
        self.reset()
        return steps

    def _take_run(
        self, run: Run, source: CandidateQueue, steps: list[Step], *, batch: bool
    ) -> bool:
        """Take the next entry of a run.

        With `batch` also those after it that no other candidate of the container precedes.

        Returns False, with nothing changed, if the removal of the entry may empty the container.
        """
        node, order = run.node, run.order
        items, removed_at = node.items, node.removed_at
        start = len(run.steps)
        end = source.find_run_end(run) if batch else start + 1
        if run.marker is not None:
            end = min(end, len(order) - 1)
        first = step = self._step
        live, least = node.live_items, 1 if run.marker is None else -1
        for position in order[start:end]:
            if live <= least:
                break
            if position != MARKER:
                removed_at[position] = step
                item = items[position]
                if type(item) is MessageItem and item.messages != ():
                    live -= 1
            step += 1
        self._step, node.live_items = step, live
        taken = range(first, step)
        run.steps += taken
        steps += zip(repeat(run), range(start, start + len(taken)), strict=False)
        if taken:
            source.add_run(run)
            if not batch and node.path_index > 0:
                self._leave_path(node)
        return bool(taken)

    def settle(self, steps: list[Step], state: int, undone: int) -> None:
        """Make the first `state` steps of a subtree final, and forget the others.

        Steps from `undone` on have been undone already.
        """
        for step in steps[undone:state]:
            if isinstance(step, list):
                for change in step:
                    apply(change, taken=True)
            else:
                run, entry = step
                run.count_item(entry, -1)
        _mark_final(steps, state)
        self.reset()

    def make_final(self, steps: list[Step]) -> None:
        """Make all of the steps taken final.

        The candidates that are left are those of the next limit around them.
        """
        _mark_final(steps, len(steps))
        for node in self._path:
            node.path_index = -1
        self._path = []

    def take_back(self, steps: list[Step]) -> None:
        """Undo all of the steps taken."""
        take_back(steps)
        self.reset()

    def reset(self) -> None:
        """Clear the candidates of all nodes: a settled state or a grown tree makes them stale."""
        for node, queue in self._queues.items():
            for candidate in queue.candidates:
                # the entry of a run is no node, whichever position it has
                item = candidate[3].items[candidate[4]]
                if type(item) is Node:
                    item.priority_heap = None
            node.priority_heap = None
            node.exhausted = False
            node.path_index = -1
        self._queues.clear()
        for node in self._breakpoint_nodes:
            node.protected_items = 0
        self._breakpoint_nodes = set()

    def _protect_prefix(self, root: Node) -> None:
        """Protect everything before the last cache breakpoint below `root`."""
        cache_breakpoint = self.tree.find_last_breakpoint(root)
        if cache_breakpoint is None:
            return
        for node, position in list_prefix(cache_breakpoint, root):
            node.protected_items = position
            self._breakpoint_nodes.add(node)

    def _remove_queued(self, changes: list[Change]) -> list[Change] | None:
        """Return the changes with those that remove the queued items. None, with all undone: some of that must stay."""
        is_done = self._remove(changes)
        for each in (self._queue, self._call_queue, self._removed_groups):
            each.clear()
        if is_done:
            return changes
        _roll_back(changes)
        return None

    def _remove(self, changes: list[Change]) -> bool:
        """Remove the queued items and everything that is kept with them.

        Return False if some of that must stay.
        """
        queue, calls = self._queue, self._call_queue
        while queue or calls:
            if not queue:
                if not self._remove_call(*calls.popleft(), changes):
                    return False
                continue
            parent, position, reason, partner = queue.popleft()
            item = parent.items[position]
            if (
                parent.removed_at[position] != NEVER_REMOVED
                or not parent.is_active
                or (type(item) is Node and not item.is_active)
            ):
                continue
            if type(item) is Node and (item.pinned or item in self._breakpoint_nodes):
                return False
            # candidates never stand before the breakpoint
            if reason in {"kept-with", "tool-pair"} and self._is_protected(parent, position):
                return False
            self._remove_item(parent, position, reason, partner, changes)
        return True

    def _remove_item(
        self, parent: Node, position: int, reason: str, partner: Node | None, changes: list[Change]
    ) -> None:
        item = parent.items[position]
        counted = is_content(item)
        parent.removed_at[position] = self._step
        parent.live_items -= counted
        changes.append(ItemRemoved(parent, position, reason, partner, counted=counted))
        last: Leaf | None = None
        if type(item) is Node:
            last = self._remove_subtree(item, changes)
        elif type(item) is Leaf:
            unlink(item)
            changes.append(LeafUnlinked(item))
        if type(item) is Node and item.fallback is not None:
            self._activate(item.fallback, last, changes)
        if parent.path_index > 0:
            self._leave_path(parent)
        if parent.enclosures and not is_literal(item):
            self._queue_enclosing_texts(parent, position, "budget")
        has_calls = any(step == NEVER_REMOVED for step in parent.calls_removed_at)
        if (
            parent.live_items == 0
            and parent.parent is not None
            and parent not in self._breakpoint_nodes
        ):
            if not has_calls:
                self._queue.append((parent.parent, parent.position, "empty", None))
            elif not has_items(parent):
                self._add_emptied(parent)

    def _queue_enclosing_texts(self, parent: Node, position: int, reason: str) -> None:
        """Remove the texts on both sides of a child that has left, unless another child is left between them."""
        enclosure = find_enclosure(parent, position)
        if (
            enclosure is None
            or parent.keeps_unprioritized
            or enclosure.start < parent.protected_items
            or has_living_child(parent, enclosure)
        ):
            return
        self._queue.extend(
            (parent, at, reason, None)
            for at in range(enclosure.start, enclosure.end + 1)
            if is_literal(parent.items[at])
        )

    def _is_protected(self, parent: Node, position: int) -> bool:
        """Return whether a place is before the last cache breakpoint."""
        node: Node | None = parent if self._breakpoint_nodes else None
        while node is not None:
            if position < node.protected_items:
                return True
            position, node = node.position, node.parent
        return False

    def _remove_subtree(self, top: Node, changes: list[Change]) -> Leaf | None:
        """Deactivate a node's subtree.

        Return the last leaf that this took out of a message that stays.
        """
        deactivated: list[Node] = []
        stack = [top]
        leaves = top.message is not None and top.role is None
        last: Leaf | None = None
        while stack:
            node = stack.pop()
            if not node.is_active:
                continue
            node.is_active = False
            deactivated.append(node)
            stack.extend(
                child
                for child in reversed(node.nodes)
                if node.removed_at[child.position] == NEVER_REMOVED
            )
            for group in node.keep_groups:
                self._remove_group(group, node)
            if node.answered_call:
                self._call_queue.append((*node.answered_call, "tool-pair", node))
            self._queue.extend(
                (result.parent, result.position, "tool-pair", node)
                for _, result in node.results
                if result.is_active and result.parent
            )
            if leaves:
                for leaf in list_linked_leaves(node):
                    unlink(leaf)
                    changes.append(LeafUnlinked(leaf))
                    last = leaf
        changes.append(SubtreeRemoved(deactivated))
        return last

    def _remove_group(self, group: Hashable, node: Node) -> None:
        if group in self._removed_groups:
            return
        self._removed_groups.add(group)
        for member in self.tree.keep_groups.get(group, ()):
            if member.is_active and member.parent is not None:
                self._queue.append((member.parent, member.position, "kept-with", node))
        for message, index in self.tree.keep_group_calls.get(group, ()):
            self._call_queue.append((message, index, "kept-with", node))

    def _remove_call(
        self, message: Node, index: int, reason: str, partner: Node | None, changes: list[Change]
    ) -> bool:
        """Remove a tool call from its message, unless a fallback answers it now.

        Return False if the message must stay as it is.
        """
        if not message.is_active or message.calls_removed_at[index] != NEVER_REMOVED:
            return True
        results = [result for call, result in message.results if call == index]
        if reason == "tool-pair" and any(result.is_active for result in results):
            return True
        if (
            message.required
            or message in self._breakpoint_nodes
            or (message.parent and self._is_protected(message.parent, message.position))
        ):
            return False
        message.calls_removed_at[index] = self._step
        changes.append(CallRemoved(message, index, reason, partner))
        self._queue.extend(
            (result.parent, result.position, "tool-pair", message)
            for result in results
            if result.is_active and result.parent
        )
        if (
            message.parent is not None
            and message.live_items == 0
            and all(step != NEVER_REMOVED for step in message.calls_removed_at)
        ):
            self._queue.append((message.parent, message.position, reason, partner))
        return True

    def _activate(self, fallback: Node, last: Leaf | None, changes: list[Change]) -> None:
        """Activate a fallback in place of a removed item."""
        parent = fallback.parent
        if parent is None:
            return
        fallback.activated_at = self._step
        nodes = [fallback]
        for node in nodes:  # grows while it is walked
            node.is_active = True
            nodes.extend(child for child in node.nodes if child.activated_at < 0)
        changes.append(FallbackActivated(fallback, nodes, _count_upwards(fallback)))
        for node in nodes:
            if node.answered_call and node.parent:
                message, index = node.answered_call
                if not (message.is_active and message.calls_removed_at[index] == NEVER_REMOVED):
                    # its call was removed
                    self._queue.append((node.parent, node.position, "tool-pair", message))
        changes.extend(LeafLinked(leaf) for leaf in link_fallback(fallback, last))
        if parent.priority_heap is not None:
            heappush(parent.priority_heap, (fallback.priority, fallback.position))
        above: Node | None = parent
        while above is not None:
            if above in self._queues:
                self._queues[above].add_fallback(fallback)
            above = above.parent if above.passes_priority or above.in_legacy else None

    def _add_emptied(self, message: Node) -> None:
        """Give a message that now has only tool calls a candidate of its own in the LegacyPrioritization around it."""
        above: Node | None = message
        while above is not None and above.in_legacy:
            above = above.parent
            if above in self._queues:
                self._queues[above].add_emptied(message)

    def _leave_path(self, node: Node) -> None:
        """Cut the path at a node whose key has changed, so that its siblings are compared again."""
        length = node.path_index
        for left in self._path[length:]:
            left.path_index = -1
        del self._path[length:]


def _mark_final(steps: list[Step], state: int) -> None:
    """Mark the first `state` steps of a subtree as final, and the others as not taken."""
    runs: set[Run] = set()
    for index, step in enumerate(steps):
        mark = -1 if index < state else NEVER_REMOVED
        if isinstance(step, tuple):
            run, entry = step
            run.mark(entry, mark)
            runs.add(run)
            continue
        for change in step:
            mark_step(change, mark)
            if isinstance(change, EntryTaken):
                runs.add(change.run)
    for run in runs:
        run.settle(state)


def take_back(steps: list[Step]) -> None:
    """Undo the last steps that were taken."""
    for step in reversed(steps):
        if isinstance(step, tuple):
            run, entry = step
            run.take_back(entry)
        else:
            _roll_back(step)


def _roll_back(changes: list[Change]) -> None:
    for change in reversed(changes):
        apply(change, taken=False)
        mark_step(change, NEVER_REMOVED)


def list_prefix(cache_breakpoint: Leaf, root: Node) -> list[tuple[Node, int]]:
    """List the ancestors of a cache breakpoint up to `root`, each with the number of its items up to the breakpoint."""
    prefix = [(cache_breakpoint.parent, cache_breakpoint.position + 1)]
    while (node := prefix[-1][0]) is not root and node.parent is not None:
        prefix.append((node.parent, node.position))
    return prefix


def _count_upwards(fallback: Node) -> list[Node]:
    """Count a fallback as content of its container, and of each ancestor that was empty until now.

    Return these nodes.
    """
    counted: list[Node] = []
    for node in takewhile(
        lambda above: not above.is_counted and has_content(above), iter_upwards(fallback)
    ):
        set_counted(node, counted=True)
        counted.append(node)
    return counted
