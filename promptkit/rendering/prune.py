"""Stage three: the shortest prefix of the removal order that fits, for every limit and then for the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.errors import BudgetExceededError
from promptkit.rendering.assemble import measure, messages_of, nodes_of
from promptkit.rendering.order import Order
from promptkit.rendering.scan import Overhead, Scan
from promptkit.rendering.tree import Node, path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.rendering.layout import Sizer
    from promptkit.rendering.materialize import Tree
    from promptkit.rendering.order import Step
    from promptkit.rendering.pairing import Pairs

__all__ = ["Pruned", "Pruner"]


@attrs.frozen(kw_only=True)
class Pruned:
    """A tree at one state: the first `k` steps of its removal order taken."""

    tree: Tree
    sizer: Sizer
    scan: Scan
    k: int
    tokens: int
    budget: int
    limited: tuple[tuple[Node, list[Step]], ...]
    """What limits removed before: (the limit's node, its steps)."""


class Pruner:
    """Prunes limits from the innermost out, then the whole."""

    def __init__(self, tree: Tree, pairs: Pairs, sizer: Sizer, overhead: Overhead, limited: Sequence[tuple[Node, list[Step]]] = ()) -> None:
        self.tree = tree
        self.sizer = sizer
        self.overhead = overhead
        self.limited = tuple(limited)
        self._order = Order(tree, pairs)

    def limit(self, node: Node) -> None:
        """Prune a limit's subtree to the limit, for good. Raises BudgetExceededError if what must stay is larger."""
        if node.limit is None or not node.up:
            return
        steps = self._order.run(node)
        scan = Scan(node, steps, self.sizer, Overhead())
        k = scan.first_fit(node.limit)
        if k is None:
            raise self._exceeded(node, node.limit, scan.at(len(steps)), len(steps))
        self._order.settle(steps, k, scan.k)
        if k:
            self.limited = (*self.limited, (node, steps[:k]))

    def whole(self, budget: int, *, step: int = 0) -> Pruned:
        """The tree at the first state that fits `budget` tokens; with `step`, cut further to a multiple of it."""
        tree = self.tree
        steps = self._order.run(tree.root)
        scan = Scan(tree.root, steps, self.sizer, self.overhead)
        return self.at(scan, budget, step=step)

    def at(self, scan: Scan, budget: int, *, step: int = 0) -> Pruned:
        """The state for a budget, without running anything again."""
        room = budget - self.tree.reserved
        k = scan.first_fit(room)
        if k is None:
            raise self._exceeded(self.tree.root, budget, scan.at(len(scan.steps)) + self.tree.reserved, len(scan.steps))
        if step and k:
            k = _stepped(scan, room, step, k)
        return Pruned(tree=self.tree, sizer=self.sizer, scan=scan, k=k, tokens=scan.at(k), budget=budget, limited=self.limited)

    def _exceeded(self, root: Node, budget: int, required: int, k: int) -> BudgetExceededError:
        where = "" if root.parent is None else path_of(root)
        sizes: dict[str, int] = {}
        for item in nodes_of(root, k):
            if type(item) is Node:
                sizes[path_of(item)] = measure(item, self.sizer, k)
        if not sizes and where:
            sizes[where] = required
        if self.tree.reserved and not where:
            sizes["Reserve"] = self.tree.reserved
        largest = dict(sorted(sizes.items(), key=lambda pair: -pair[1])[:3])
        metadata, _, _ = self.tree.attachments(k)
        return BudgetExceededError(
            budget=budget,
            required=required,
            largest=largest,
            messages=messages_of(self.tree.root, 0),
            metadata=metadata,
            removed=(),
            where=where,
        )


def _stepped(scan: Scan, room: int, step: int, k: int) -> int:
    """Cut in multiples of `step` tokens, so that the first surviving message moves only once in a while (prompt-poet's rule)."""
    while scan.k:
        scan.back()
    surplus = scan.at(0) - room
    target = scan.at(0) - -(-surplus // step) * step
    for cut in range(k, len(scan.steps) + 1):
        if scan.at(cut) <= target:
            return cut
    return k
