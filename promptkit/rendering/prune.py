"""Stage three: the shortest prefix of the removal order that fits, for every limit and then for the whole.

Cuts that stay where they are for many turns, so that a provider's prompt cache keeps hitting.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.errors import BudgetExceededError
from promptkit.rendering.assemble import measure, build_message, assemble_messages, iter_messages, iter_message_places
from promptkit.rendering.counting import Overhead, BackwardScan
from promptkit.rendering.removal_order import RemovalOrder
from promptkit.rendering.removals import PrunedTree, list_removals
from promptkit.rendering.sizing import set_token_bounds, surely_fits
from promptkit.rendering.tree import NEVER_REMOVED, TextMessage, Node, is_node_alive, format_path
from promptkit.rendering.undo_log import ItemRemoved

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.rendering.materialize import RenderTree
    from promptkit.rendering.removal_order import Step
    from promptkit.rendering.sizing import Sizer

__all__ = ["CutRounding", "RemovalKey", "Pruner", "removal_keys"]


class Pruner:
    """Prunes limits from the innermost out, then the whole."""

    def __init__(
        self,
        tree: RenderTree,
        sizer: Sizer,
        overhead: Overhead,
        *,
        precise: Callable[[str], int] | None = None,
        limited: Sequence[tuple[Node, list[Step]]] = (),
    ) -> None:
        self.tree = tree
        self.sizer = sizer
        self.overhead = overhead
        self.limit_steps = tuple(limited)
        self._precise = precise  # the overhead with the first system message's text, where that matters
        self._order = RemovalOrder(tree)
        self._searched: BackwardScan | None = None
        spares = [node.index for node in tree.nodes if node.activated_at == NEVER_REMOVED]
        self.fallback_limits = [node for node in tree.limits if _any_within(spares, node)] + tree.fallback_limits

    def prune_limit(self, node: Node) -> None:
        """Prune a limit's subtree to the limit, for good. Raises BudgetExceededError if what must stay is larger."""
        if node.limit is None or not node.is_active or self._surely_fits(node, node.limit):
            return
        steps = self._order.run(node)
        scan = BackwardScan(node, steps, self.sizer, Overhead())
        k = scan.find_first_fit(node.limit)
        if k is None:
            raise self._exceeded(node, node.limit, scan)
        self._order.settle(steps, k, scan.k)
        if k:
            self.limit_steps = (*self.limit_steps, (node, steps[:k]))

    def prune(self, budget: int, cut: CutRounding) -> PrunedTree:
        """The tree at the first state that fits `budget` tokens."""
        root = self.tree.root
        room = budget - self.tree.reserved - max(self.overhead)
        if not cut.dropped and surely_fits(self.tree, self.sizer, room):
            return self._pruned(BackwardScan(root, [], self.sizer, self.overhead), 0, budget)
        return self.prune_at(self.scan_tree(), budget, cut)

    def scan_tree(self) -> BackwardScan:
        """The scan of the whole, made once: running the order leaves the tree pruned."""
        if self._searched is None:
            root = self.tree.root
            self._searched = BackwardScan(root, self._order.run(root), self.sizer, self.overhead)
        return self._searched

    def prune_at(self, scan: BackwardScan, budget: int, cut: CutRounding) -> PrunedTree:
        """The state for a budget, without running anything again."""
        room = budget - self.tree.reserved
        if not scan.steps and scan.tokens > room:
            scan = self.scan_tree()  # everything fitted without a search, which a smaller budget needs
        k = scan.find_first_fit(room)
        if k is not None and cut.step:
            k = cut.state(scan, room, k)
        elif k is not None and self._precise:
            k = self._closest(scan, room, k)
        if k is not None and self.fallback_limits:
            states = (state for state in range(k, len(scan.steps) + 1) if self.cost_at(scan, state, cut) <= room)
            k = next((state for state in states if self.limits_hold(state)), None)
        if k is None:
            raise self._exceeded(self.tree.root, budget, scan)
        return self._pruned(scan, k, budget)

    def cost_at(self, scan: BackwardScan, k: int, cut: CutRounding) -> int:
        """The tokens by which a state is chosen: exact ones, but for stepped cuts, which need no more than the scan's."""
        return scan.tokens_at(k) - (0 if cut.step else self.saving_at(scan, k))

    def limits_hold(self, k: int) -> bool:
        """Whether the limits hold in which a fallback may have taken its place since they were kept."""
        return all(not is_node_alive(node, k) or measure(node, self.sizer, k) <= (node.limit or 0) for node in self.fallback_limits)

    def _closest(self, scan: BackwardScan, room: int, k: int) -> int:
        """The first state that fits when the line break behind the first system message, of one token or none, is counted exactly."""
        nearly = scan.find_first_fit(room + 1)
        states = range(k if nearly is None else nearly, k)
        return next((state for state in states if scan.tokens_at(state) - self.saving_at(scan, state) <= room), k)

    def saving_at(self, scan: BackwardScan, k: int) -> int:
        """What the request around the messages costs less than the scan assumed."""
        if self._precise is None:
            return 0
        first = next((item for item in iter_messages(scan.root, k) if item.role == "system"), None)
        message = build_message(first, k) if first is not None else None
        return self.overhead.with_system - self._precise(message.text) if message else 0

    def _surely_fits(self, node: Node, limit: int) -> bool:
        """Whether the bytes of a limit's subtree say that it fits, so that nothing need be counted to know."""
        if self.tree.root.token_bound is None:
            set_token_bounds(self.tree, self.sizer)
        return node.token_bound is not None and node.token_bound <= limit

    def _pruned(self, scan: BackwardScan, k: int, budget: int, *, reason: str = "budget") -> PrunedTree:
        return PrunedTree(
            tree=self.tree,
            sizer=self.sizer,
            scan=scan,
            state=k,
            tokens=scan.tokens_at(k) - self.saving_at(scan, k),
            budget=budget,
            limit_steps=self.limit_steps,
            reason=reason,
        )

    def _exceeded(self, root: Node, budget: int, scan: BackwardScan) -> BudgetExceededError:
        where = "" if root.parent is None else format_path(root)
        k = len(scan.steps)
        required = scan.tokens_at(k)
        sizes: dict[str, int] = {}
        for parent, position in iter_message_places(root, k):
            item = parent.items[position]
            size = self.sizer.count_text_message(item) if type(item) is TextMessage else measure(item, self.sizer, k) if type(item) is Node else 0
            sizes[format_path(parent, position)] = size
        if not where:
            required += self.tree.reserved
            if self.tree.reserved:
                sizes["Reserve"] = self.tree.reserved
            if self.overhead.without_messages:
                sizes["tools"] = self.overhead.without_messages
        elif not sizes:
            sizes[where] = required
        largest = dict(sorted(sizes.items(), key=lambda pair: -pair[1])[:3])
        metadata, _, _ = self.tree.collect_attachments(k)
        return BudgetExceededError(
            budget=budget,
            required=required,
            largest=largest,
            messages=assemble_messages(self.tree.root, -1),  # before limits removed anything, too
            metadata=metadata,
            removed=list_removals(self._pruned(scan, k, budget, reason="limit" if where else "budget")),
            where=where,
        )


def _any_within(ranks: list[int], node: Node) -> bool:
    """Whether one of these nodes, in written order, lies below a node."""
    at = bisect_right(ranks, node.index)
    return at < len(ranks) and ranks[at] <= node.last_index


RemovalKey: TypeAlias = "tuple[str, str]"
"""What was removed, recognisable in the next turn: its path without positions, which may have moved, and its first text."""

_PLACE = re.compile(r"\[\d+\]")


@attrs.frozen
class CutRounding:
    """How removals are rounded up: to multiples of `step` tokens (0: not at all), and never less than what was `dropped` before."""

    step: int = 0
    dropped: frozenset[RemovalKey] = frozenset()

    def state(self, scan: BackwardScan, room: int, k: int) -> int:
        """The state to cut at, where k is the first that fits: never larger than the room, and k where there is none like it."""
        while scan.k:
            scan.step_back()
        wanted = max(k, self._stepped(scan, room, k), self._sticky(scan))
        return next((state for state in range(wanted, len(scan.steps) + 1) if scan.tokens_at(state) <= room), k)

    def _stepped(self, scan: BackwardScan, room: int, k: int) -> int:
        """The state that removes at least the surplus, rounded up to a multiple of `step` (prompt-poet's rule); k if there is none."""
        surplus = scan.tokens_at(0) - room
        if surplus <= 0:
            return k
        target = scan.tokens_at(0) - -(-surplus // self.step) * self.step
        return next((state for state in range(k, len(scan.steps) + 1) if scan.tokens_at(state) <= target), k)

    def _sticky(self, scan: BackwardScan) -> int:
        """The state in which nothing comes back that was dropped in the turn before, or the prefix would change back."""
        dropped = self.dropped
        steps = scan.steps
        return next((at + 1 for at in range(len(steps) - 1, -1, -1) if removal_keys(steps[at]) & dropped), 0) if dropped else 0


def removal_keys(step: Step) -> set[RemovalKey]:
    """What a step removes."""
    if isinstance(step, tuple):
        return {_key(step[3], step[4])}
    return {_key(op.parent, op.position) for op in step if isinstance(op, ItemRemoved)}


def _key(parent: Node, position: int) -> RemovalKey:
    item = parent.items[position]
    while type(item) is Node and item.items:
        item = item.items[0]
    return _PLACE.sub("", format_path(parent, position)), "" if isinstance(item, Node) else item.text
