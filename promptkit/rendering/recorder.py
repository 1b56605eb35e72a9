"""Records a render for people who want to know what happened: `render(..., trace=True)`."""

from __future__ import annotations

from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING

from promptkit.rendering.cut import Cut
from promptkit.rendering.flex import reserved
from promptkit.rendering.pruned import Pruned
from promptkit.rendering.receipt import call_path, gone_of, tokens_of
from promptkit.rendering.record_items import Items
from promptkit.tracing.trace import Epoch, Share, Timing, Trace, TraceRemoval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.rendering.prune import Pruner
    from promptkit.rendering.scan import Scan
    from promptkit.rendering.tree import Node

__all__ = ["Recorder"]


class Recorder:
    """Times the stages of one render, and makes its record in the end."""

    def __init__(self) -> None:
        self.seconds: dict[Node, float] = {}
        """How long each component's own `render` took."""
        self._timings: list[Timing] = []
        self._since = perf_counter()

    def lap(self, stage: str) -> None:
        """A stage has ended."""
        now = perf_counter()
        self._timings.append(Timing(stage=stage, seconds=now - self._since))
        self._since = now

    def trace(self, pruner: Pruner, state: int | None, *, budget: int, prune_step: int, model: str | None) -> Trace:
        """The record. Counts every state, so it tokenises every text."""
        timings = tuple(self._timings)  # what follows is the record's own cost
        scan = pruner.search()
        while scan.k:
            scan.back()
        items = Items(pruner.tree.root, pruner.sizer, self.seconds)
        counts, costs = _counted(pruner, scan, items, Cut(prune_step))
        return Trace(
            items=tuple(items.made),
            epochs=tuple(_epochs(pruner, items)),
            removals=tuple(_removals(pruner, scan, items)),
            counts=counts,
            costs=costs,
            unfit=frozenset(k for k in range(len(counts)) if not pruner.limits_hold(k)) if pruner.loose else frozenset(),
            state=state,
            budget=budget,
            reserved=pruner.tree.reserved,
            prune_step=prune_step,
            model=model,
            tokenizer=pruner.sizer.tokenizer.name,
            timings=timings,
        )


def _counted(pruner: Pruner, scan: Scan, items: Items, cut: Cut) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens in each state, and those by which one is chosen."""
    # What the request saves beside the scan depends on the text of the system messages: it is the same while they are.
    changes = items.system_changes()
    counts: list[int] = []
    costs: list[int] = []
    saving = 0
    for k in range(len(scan.steps) + 1):
        if k in changes:
            saving = pruner.saving(scan, k)
        counts.append(scan.at(k) - saving)
        costs.append(scan.at(k) - (0 if cut.step else saving))
    return tuple(counts), tuple(costs)


def _removals(pruner: Pruner, scan: Scan, items: Items) -> Iterator[TraceRemoval]:
    everything = Pruned(
        tree=pruner.tree,
        sizer=pruner.sizer,
        scan=scan,
        k=len(scan.steps),
        tokens=scan.at(len(scan.steps)),
        budget=0,
        reason="budget",
        limited=pruner.limited,
    )
    for gone in gone_of(everything):
        called = gone.position < 0
        item = items.made[items.of_node[gone.node] if called else items.at(gone.node, gone.position)]
        yield TraceRemoval(
            order=gone.order,
            step=gone.state,
            item=item.id,
            call=-gone.position - 1 if called else None,
            path=call_path(item.path, gone.node, gone.position) if called else item.path,
            priority=gone.priority,
            tokens=tokens_of(gone, pruner.sizer),
            reason=gone.reason,
            partner=items.made[items.of_node[gone.partner]].path if gone.partner else None,
        )


def _epochs(pruner: Pruner, items: Items) -> Iterator[Epoch]:
    sizer = pruner.sizer
    for node in pruner.tree.nodes:
        if node.layout is None or node not in items.of_node:
            continue
        sizer.used(node)  # settles all that is below it
        remaining = max(0, sizer.budget(node) - sizer.own_size(node))
        for index, group in enumerate(node.layout.groups):
            held = sum(reserved(remaining, reserve) for at, reserve in node.layout.reserves if at > index)
            members = [member for member in group.nodes if member.delegate is None]
            if members or group.plain:
                yield Epoch(
                    container=items.of_node[node],
                    grow=group.grow if isfinite(group.grow) else None,
                    available=remaining,
                    reserved=min(held, remaining),
                    members=tuple(
                        Share(
                            item=items.of_node[member],
                            basis=member.element.flex_basis if member.element else 1,
                            budget=sizer.budget(member),
                            used=sizer.used(member),
                        )
                        for member in members
                        if member in items.of_node
                    ),
                    plain=group.plain,
                    plain_share=group.plain_share,
                    plain_used=sizer.plain_size(node, group.plain_share) if group.plain else 0,
                )
            remaining = max(0, remaining - sizer.group_size(node, group))
