"""Stage three, prune: the shortest prefix of the removal order that fits, first for each limit and then for the whole tree.

With a `prune_step`, removals are rounded up so that the first kept message stays the same for many
turns, and a provider's prompt cache keeps matching.

The order is the same for every limit; what differs is the end that is counted from. From the last
state back takes the time of everything that is kept. Where limits are nested, each would count
again what the one inside it kept, so a limit that contains another one is counted from its first
state on: the tokens of the limits inside are known, and steps are taken until it holds. That takes
the time of what is new in it and of what it removes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import attrs

from promptkit.errors import BudgetExceededError
from promptkit.rendering.expand.sizing import Sizer, set_token_bounds, surely_fits
from promptkit.rendering.paths import Paths, format_path
from promptkit.rendering.prune.candidates import is_never_removed
from promptkit.rendering.prune.counting import BackwardScan, Overhead
from promptkit.rendering.prune.removal_order import (
    CallRemoved,
    Change,
    ItemRemoved,
    RemovalOrder,
    Step,
    SubtreeRemoved,
    list_prefix,
    take_back,
)
from promptkit.rendering.prune.removals import PrunedTree, list_removals
from promptkit.rendering.subtree import (
    assemble_messages,
    build_messages,
    iter_message_places,
    iter_messages,
    measure,
)
from promptkit.rendering.tree import (
    NEVER_REMOVED,
    Item,
    Leaf,
    MessageItem,
    Node,
    Run,
    is_below,
    is_item_alive,
    is_node_alive,
    iter_upwards,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.messages import Role
    from promptkit.rendering.expand.materialize import RenderTree


class Pruner:
    """Prunes the subtrees of limits, the innermost first, and then the whole tree."""

    def __init__(
        self,
        tree: RenderTree,
        sizer: Sizer,
        overhead: Overhead,
        *,
        exact_overhead: Callable[[str], int] | None = None,
        limit_steps: Sequence[tuple[Node, list[Step]]] = (),
    ) -> None:
        self.tree = tree
        self.sizer = sizer
        self.overhead = overhead
        self.limit_steps = list(limit_steps)
        # the overhead with the text of the first system message, if it depends on that
        self._exact_overhead = exact_overhead
        self.order = RemovalOrder(tree)
        self._tree_scan: BackwardScan | None = None
        # the message before whose removal the order of the whole tree ends
        self._last_message: LastMessage | None = None
        fallbacks = [node.index for node in tree.nodes if node.activated_at == NEVER_REMOVED]
        self._may_count_from_first = (
            not fallbacks and not tree.cache_breakpoints and not tree.recorded
        )
        self.fallback_limits = [
            node
            for node in tree.limits
            # a fallback is below it
            if bisect_right(fallbacks, node.index) < bisect_right(fallbacks, node.last_index)
        ] + tree.fallback_limits

    def remove_empty_enclosures(self) -> None:
        """Remove literal texts that have nothing between them from the start, permanently."""
        steps = self.order.remove_empty_enclosures()
        if steps:
            self.limit_steps.append((self.tree.root, steps))

    def prune_limit(self, node: Node) -> None:
        """Prune the subtree of a limit, permanently.

        Raises BudgetExceededError if what must stay exceeds the limit.
        """
        if node.limit is None or not node.is_active or self._surely_fits(node, node.limit):
            return
        steps = (
            prune_from_first(self.order, node, node.limit, self.sizer)
            if self._may_count_from_first
            else None
        )
        if steps is None:
            pruned = prune_from_last(self.order, node, node.limit, self.sizer, self.tree.recorded)
            if isinstance(pruned, BackwardScan):
                raise self._exceeded_error(node, node.limit, pruned)
            steps = pruned
        if steps:
            self.limit_steps.append((node, steps))

    def check_limits(self, budget: int) -> None:
        """Raise BudgetExceededError if the limits, or shares of nothing, removed all user messages, or all messages."""
        if not self.tree.keeps_request:
            return
        removed = [(node, step) for node, steps in self.limit_steps for step in steps]
        last = (
            find_last_message(self.tree.root, 0, [step for _, step in removed]) if removed else None
        )
        if last is None:
            return
        node = removed[last.step][0]
        path = Paths().shorten(last.parent, last.position)
        required = measure(node, self.sizer, -1)  # -1: the state before limits removed anything
        budget = budget if node.limit is None else node.limit
        raise BudgetExceededError(
            budget=budget,
            required=required,
            largest={path: required},
            messages=assemble_messages(self.tree.root, -1),
            metadata=self.tree.collect_attachments(0)[0],
            removed=list_removals(self._build_unpruned(budget)),
            where=format_path(node),
            last_message=path,
            last_role=last.role,
        )

    def prune(self, budget: int, rounding: RemovalRounding) -> PrunedTree:
        """Return the tree in the first state that fits `budget` tokens.

        Raises BudgetExceededError if what must stay exceeds the budget.
        """
        room = budget - self.tree.reserved - max(self.overhead)
        if not rounding.dropped and surely_fits(self.tree, self.sizer, room):
            return self._build_unpruned(budget)
        return self.prune_at(self.scan_tree(), budget, rounding)

    def scan_tree(self) -> BackwardScan:
        """Return the scan of the whole tree.

        It is made once, because running the removal order leaves the tree pruned.
        """
        if self._tree_scan is None:
            root = self.tree.root
            steps = self.order.run(root)
            if self.tree.keeps_request:
                self._last_message = end_before_last_message(root, steps)
            self._tree_scan = BackwardScan(
                root, steps, self.sizer, self.overhead, self.tree.recorded
            )
        return self._tree_scan

    def prune_at(self, scan: BackwardScan, budget: int, rounding: RemovalRounding) -> PrunedTree:
        """Return the tree in the state for another budget.

        Raises BudgetExceededError like `prune`.
        """
        room = budget - self.tree.reserved
        if not scan.steps and scan.tokens > room:
            # the whole tree fitted without a scan, but a smaller budget needs one
            scan = self.scan_tree()
        state = scan.find_first_fit(room)
        if rounding.step and state is not None:
            state = rounding.find_state(scan, room, state)
        elif self._exact_overhead and (start := scan.find_first_fit(room + 1)) is not None:
            # the line break after the first system message has 0 or 1 token
            state = next(
                (
                    each
                    for each in range(start, len(scan.steps) + 1 if state is None else state)
                    if self.cost_at(scan, each, RemovalRounding()) <= room
                ),
                state,
            )
        if state is not None and self.fallback_limits:
            state = next(
                (
                    each
                    for each in range(state, len(scan.steps) + 1)
                    if self.cost_at(scan, each, rounding) <= room and self.limits_hold(each)
                ),
                None,
            )
        if state is None:
            raise self._exceeded_error(self.tree.root, budget, scan)
        return self._build_pruned(scan, state, budget)

    def cost_at(self, scan: BackwardScan, state: int, rounding: RemovalRounding) -> int:
        """Return the tokens that decide whether a state fits: its count (exact without a `prune_step`) and its unused tokens."""
        return (
            scan.tokens_at(state)
            + scan.unspent_at(state)
            - (0 if rounding.step else self.saving_at(scan, state))
        )

    def limits_hold(self, state: int) -> bool:
        """Check the limits that contain a fallback: activating it may have exceeded them."""
        return all(
            not is_node_alive(node, state) or measure(node, self.sizer, state) <= (node.limit or 0)
            for node in self.fallback_limits
        )

    def saving_at(self, scan: BackwardScan, state: int) -> int:
        """Return the tokens by which the scan overestimates the overhead of the request in a state."""
        if self._exact_overhead is None:
            return 0
        first = next(
            (item for item in iter_messages(scan.root, state) if item.role == "system"), None
        )
        messages = build_messages(first, state) if first is not None else ()
        return self.overhead.with_system - self._exact_overhead(messages[0].text) if messages else 0

    def _surely_fits(self, node: Node, limit: int) -> bool:
        """Return whether the subtree of a limit fits by its upper bound, without counting."""
        if self.tree.root.token_bound is None:
            set_token_bounds(self.tree.nodes, self.sizer, limited=True)
        return node.token_bound is not None and node.token_bound <= limit

    def _build_unpruned(self, budget: int) -> PrunedTree:
        """Return the tree of which limits alone have removed something."""
        return self._build_pruned(
            BackwardScan(self.tree.root, [], self.sizer, self.overhead, self.tree.recorded),
            0,
            budget,
        )

    def _build_pruned(
        self, scan: BackwardScan, state: int, budget: int, *, reason: str = "budget"
    ) -> PrunedTree:
        return PrunedTree(
            tree=self.tree,
            sizer=self.sizer,
            scan=scan,
            state=state,
            tokens=scan.tokens_at(state) - self.saving_at(scan, state),
            budget=budget,
            limit_steps=self.limit_steps,
            reason=reason,
        )

    def _exceeded_error(self, root: Node, budget: int, scan: BackwardScan) -> BudgetExceededError:
        where = "" if root.parent is None else format_path(root)
        state = len(scan.steps)
        required = scan.tokens_at(state) - (0 if where else self.saving_at(scan, state))
        sizes: dict[str, int] = {}
        paths = Paths()
        for parent, position, item in iter_message_places(root, state):
            size = (
                measure(item, self.sizer, state)
                if isinstance(item, Node)
                else self.sizer.count_item(item)
            )
            label = paths.shorten(parent, position)
            sizes[paths.format_public(parent, position) if label in sizes else label] = size
        if not where:
            required += self.tree.reserved
            if self.tree.reserved:
                sizes["Reserve"] = self.tree.reserved
            if self.overhead.without_messages:
                sizes["tools"] = self.overhead.without_messages
        elif not sizes:
            sizes[where] = required
        largest = dict(
            sorted(
                ((path, size) for path, size in sizes.items() if size), key=lambda pair: -pair[1]
            )[:3]
        )
        last = None if where else self._last_message
        cache_breakpoint = self.tree.find_last_breakpoint(root)
        pinned = (
            0
            if cache_breakpoint is None
            else count_pinned(cache_breakpoint, root, self.tree, self.sizer, state)
        )
        return BudgetExceededError(
            budget=budget,
            required=required,
            largest=largest,
            # -1: the state before limits removed anything
            messages=assemble_messages(self.tree.root, -1),
            metadata=self.tree.collect_attachments(state)[0],
            removed=list_removals(
                self._build_pruned(scan, state, budget, reason="limit" if where else "budget")
            ),
            where=where,
            cache_breakpoint=format_path(cache_breakpoint.parent, cache_breakpoint.position)
            if cache_breakpoint is not None and pinned
            else "",
            pinned=pinned,
            last_message=paths.shorten(last.parent, last.position) if last else "",
            last_role=last.role if last else None,
        )


def count_pinned(
    cache_breakpoint: Leaf, root: Node, tree: RenderTree, sizer: Sizer, state: int
) -> int:
    """Count the tokens below a node that only a cache breakpoint protects from pruning.

    These are the tokens before it, and those of nodes behind it that leave only together with a
    node before it: results of its tool calls, and members of its KeepWith groups.
    """
    tokens = 0
    end = -1  # the index of the last node before the breakpoint
    partners: dict[Node, None] = {}
    stack = [(node, node.items[:before]) for node, before in list_prefix(cache_breakpoint, root)]
    while stack:
        parent, items = stack.pop()
        if parent.required:
            continue
        for position, item in enumerate(items):
            if not is_item_alive(item, parent.removed_at[position], state):
                continue
            if type(item) is MessageItem:
                tokens += (
                    sizer.count_item(item)
                    if parent.run is not None and position in parent.run.order
                    else 0
                )
            elif type(item) is Leaf:
                tokens += 0 if is_never_removed(item) else sizer.count_leaf(item)
            elif type(item) is Node and not (item.pinned or item.required):
                tokens += measure(item, sizer, state)
                end = max(end, item.last_index)
                for node in tree.nodes[item.index : item.last_index + 1]:
                    results = (result for _, result in node.results)
                    members = (tree.keep_groups[group] for group in node.keep_groups)
                    partners |= dict.fromkeys(chain(results, *members))
            elif type(item) is Node and not item.atomic:
                stack.append((item, item.items))
    return tokens + sum(
        measure(node, sizer, state)
        for node in partners
        if node.index > end and not (node.pinned or node.required) and is_node_alive(node, state)
    )


class LastMessage(NamedTuple):
    """The last user message that a step removes, or the last message of a tree without user messages (`role` is None)."""

    step: int
    parent: Node
    position: int
    role: Role | None


def end_before_last_message(root: Node, steps: list[Step]) -> LastMessage | None:
    """Undo and drop the step that removes the last message, and all later steps.

    Return that message, or None if one is never removed.
    """
    last = find_last_message(root, len(steps), steps)
    if last is not None:
        take_back(steps[last.step :])
        del steps[last.step :]
    return last


def find_last_message(root: Node, state: int, steps: Sequence[Step]) -> LastMessage | None:
    """Find the last user message that steps remove, or without user messages the last message.

    None if one is alive in a state.

    Messages in fallbacks do not count, and neither do messages that are blank from the start.
    """
    roles: tuple[Role | None, ...] = ("user", None)
    for role in roles:
        if any(_is_message(item, role) for item in iter_messages(root, state, markers=False)):
            return None
        for at in range(len(steps) - 1, -1, -1):
            place = _find_removed_message(steps[at], role)
            if place is not None:
                return LastMessage(at, *place, role)
    return None


def _is_message(item: Item, role: Role | None) -> bool:
    """Return whether an item is a message of a role (None: of any) that is neither blank nor in a fallback."""
    if type(item) is MessageItem:
        return item.messages != () and not item.is_loose and role in (None, item.role)
    return (
        type(item) is Node
        and item.role is not None
        and role in (None, item.role)
        and not item.in_fallback
        and not item.is_blank
    )


def _find_removed_message(step: Step, role: Role | None) -> tuple[Node, int] | None:
    """Return the parent and position of the last message of a role that a step removes."""
    if isinstance(step, tuple):
        run, entry = step
        removed = run.find_item(entry)
        return (
            (run.node, run.order[entry])
            if removed is not None and _is_message(removed, role)
            else None
        )
    found: tuple[Node, int] | None = None
    for change in step:
        if isinstance(change, ItemRemoved):
            if _is_message(change.parent.items[change.position], role):
                found = change.parent, change.position
        elif isinstance(change, SubtreeRemoved):
            for node in change.nodes:
                for position, (item, removed_at) in enumerate(
                    zip(node.items, node.removed_at, strict=True)
                ):
                    if removed_at == NEVER_REMOVED and _is_message(item, role):
                        found = node, position
    return found


RemovalKey: TypeAlias = "tuple[str, str]"
"""Identifies a removed item in the next turn: its path without positions, which may have changed,
and its first text."""

_POSITION = re.compile(r"\[\d+\]")


@attrs.frozen
class RemovalRounding:
    """Rounding of removals: up to multiples of `step` tokens (0: none), and at least what was `dropped` in the previous turn."""

    step: int = 0
    dropped: frozenset[RemovalKey] = frozenset()

    def find_state(self, scan: BackwardScan, room: int, first_fit: int) -> int:
        """Return the first state that removes the surplus rounded up to `step`.

        Return `first_fit`, the first state that fits, if no such state fits `room` tokens.
        """
        while scan.state:
            scan.step_back()
        start = max(first_fit, self._round_up(scan, room, first_fit), self._find_dropped(scan))
        return next(
            (state for state in range(start, len(scan.steps) + 1) if scan.tokens_at(state) <= room),
            first_fit,
        )

    def _round_up(self, scan: BackwardScan, room: int, first_fit: int) -> int:
        """Find the first state that removes the surplus rounded up to a multiple of `step` (prompt-poet's rule), or return `first_fit`."""
        surplus = scan.tokens_at(0) - room
        if surplus <= 0:
            return first_fit
        target = scan.tokens_at(0) - -(-surplus // self.step) * self.step
        return next(
            (
                state
                for state in range(first_fit, len(scan.steps) + 1)
                if scan.tokens_at(state) <= target
            ),
            first_fit,
        )

    def _find_dropped(self, scan: BackwardScan) -> int:
        """Return the first state without the items that were dropped in the previous turn.

        Otherwise these items would return, and the prefix would change again.
        """
        if not self.dropped:
            return 0
        return next(
            (
                at
                for at in range(len(scan.steps), 0, -1)
                if build_removal_keys(scan.steps[at - 1]) & self.dropped
            ),
            0,
        )


def build_removal_keys(step: Step) -> set[RemovalKey]:
    """Return the keys of the items that a step removes."""
    if isinstance(step, tuple):
        run, entry = step
        return set() if run.find_item(entry) is None else {_build_key(run.node, run.order[entry])}
    return {
        _build_key(change.parent, change.position)
        for change in step
        if isinstance(change, ItemRemoved)
    }


def _build_key(parent: Node, position: int) -> RemovalKey:
    item = parent.items[position]
    while type(item) is Node and item.items:
        item = item.items[0]
    text = "" if isinstance(item, Node) else item.text
    if type(item) is MessageItem and item.sources and item.messages:
        text = item.messages[0].text
    return _POSITION.sub("", format_path(parent, position)), text


_MOST_LEAVES: Final = 8
"""Largest number of leaves of a message that is counted again after each removal."""

_MOST_NEW: Final = 4
"""Highest ratio of the content's upper bound to the limit at which the steps are counted one by
one. Above it most of the content is removed, so counting starts from the last state."""


def prune_from_last(
    order: RemovalOrder, root: Node, limit: int, sizer: Sizer, recorded: Sequence[Run]
) -> list[Step] | BackwardScan:
    """Count the states below a limit from the last one back, and make the first one that fits final.

    Returns:
        The steps that were taken, or the scan if not even the last state fits.
    """
    steps = order.run(root)
    scan = BackwardScan(root, steps, sizer, Overhead(), recorded)
    state = scan.find_first_fit(limit)
    if state is None:
        return scan
    order.settle(steps, state, scan.state)
    root.settled_tokens = scan.tokens_at(state) if root.message is None else None
    for step in steps[:state]:
        if isinstance(step, list):
            _forget_settled(step, root)
    return steps[:state]


def prune_from_first(
    order: RemovalOrder, root: Node, limit: int, sizer: Sizer
) -> list[Step] | None:
    """Take steps below a limit that contains other limits, until its content fits.

    Returns None, with nothing changed, if it must be counted from the last state.

    Needs a tree without fallbacks and cache breakpoints, and upper bounds of its nodes.
    """
    if (
        root.message is not None
        or root.token_bound is None
        or root.token_bound > _MOST_NEW * limit
        or not _contains_limit(root)
    ):
        return None
    tokens = _count(root, sizer)
    steps: list[Step] = []
    taken = order.take_steps(root, steps, batch=False)
    while tokens > limit:
        saved = (
            None
            if next(taken, _END) is _END
            else _count_saved(steps[-1], len(steps) - 1, root, sizer)
        )
        if saved is None:
            order.take_back(steps)
            return None
        tokens -= saved
    taken.close()
    order.make_final(steps)
    root.settled_tokens = tokens
    return steps


_END: Final = object()


def _contains_limit(root: Node) -> bool:
    """Return whether a node, or a group inside it, directly contains a limit that is already pruned."""
    nodes = [*root.nodes]
    for node in nodes:  # grows while it is walked
        if node.limit is not None and node.is_active:
            return True
        if node.role is None:
            nodes += node.nodes
    return False


def _count(root: Node, sizer: Sizer) -> int:
    """Count the tokens of the living messages below a limit.

    The tokens of a limit inside it are counted once and kept.
    """
    total = 0
    stack = [root]
    while stack:
        node = stack.pop()
        for item, removed_at in zip(node.items, node.removed_at, strict=True):
            if removed_at != NEVER_REMOVED or isinstance(item, Leaf):
                continue
            if isinstance(item, MessageItem):
                total += sizer.count_item(item)
            elif item.role is not None:
                total += measure(item, sizer)
            elif item.settled_tokens is None:
                stack.append(item)
            else:
                if item.settled_tokens == _UNKNOWN:
                    item.settled_tokens = measure(item, sizer)
                total += item.settled_tokens
    return total


_UNKNOWN: Final = -1
"""Token count of a limit that a step of another limit has made stale."""


def _count_saved(step: Step, state: int, root: Node, sizer: Sizer) -> int | None:
    """Count the tokens of the messages below a limit that a step removed.

    Returns None if it removed a part of a long message.
    """
    if isinstance(step, tuple):
        run, entry = step
        removed = run.find_item(entry)
        return 0 if removed is None else sizer.count_item(removed)
    _forget_settled(step, root)
    saved = 0
    for item in _list_messages(step, state, root):
        if isinstance(item, MessageItem):
            saved += sizer.count_item(item)
        elif item.is_active and item.leaf_count > _MOST_LEAVES:
            return None
        else:
            saved += measure(item, sizer, state) - (
                measure(item, sizer, state + 1) if item.is_active else 0
            )
    return saved


def _list_messages(step: list[Change], state: int, root: Node) -> list[MessageItem | Node]:
    """List the messages below a limit that a step changed, each once."""
    places: dict[tuple[Node, int], None] = {}
    for change in step:
        message = (
            change.message
            if isinstance(change, CallRemoved)
            else change.parent.message
            if isinstance(change, ItemRemoved)
            else None
        )
        if message is not None and message.parent is not None:
            places[message.parent, message.position] = None
        elif isinstance(change, ItemRemoved):
            item = change.parent.items[change.position]
            if isinstance(item, Node) and item.role is None:
                places.update(
                    dict.fromkeys(
                        (parent, position)
                        for parent, position, _ in iter_message_places(item, state)
                    )
                )
            else:
                places[change.parent, change.position] = None
    return [
        item
        for parent, position in places
        if is_below(parent, root) and isinstance(item := parent.items[position], MessageItem | Node)
    ]


def _forget_settled(step: list[Change], root: Node) -> None:
    """Mark stale the token counts of outer limits that a removal below `root` touched."""
    for change in step:
        node = (
            change.parent
            if isinstance(change, ItemRemoved)
            else change.message
            if isinstance(change, CallRemoved)
            else None
        )
        for above in takewhile(lambda above: not is_below(above, root), iter_upwards(node)):
            if above.settled_tokens is not None:
                above.settled_tokens = _UNKNOWN
