"""Cuts that stay where they are for many turns, so that a provider's prompt cache keeps hitting."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.rendering.journal import Taken
from promptkit.rendering.tree import Node, path_of

if TYPE_CHECKING:
    from promptkit.rendering.order import Step
    from promptkit.rendering.scan import Scan

__all__ = ["Cut", "Key", "keys_of"]

Key: TypeAlias = "tuple[str, str]"
"""What was removed, recognisable in the next turn: its path without positions, which may have moved, and its first text."""

_PLACE = re.compile(r"\[\d+\]")


@attrs.frozen
class Cut:
    """How removals are rounded up: to multiples of `step` tokens (0: not at all), and never less than what was `dropped` before."""

    step: int = 0
    dropped: frozenset[Key] = frozenset()

    def state(self, scan: Scan, room: int, k: int) -> int:
        """The state to cut at, where k is the first that fits: never larger than the room, and k where there is none like it."""
        while scan.k:
            scan.back()
        wanted = max(k, self._stepped(scan, room, k), self._sticky(scan))
        return next((state for state in range(wanted, len(scan.steps) + 1) if scan.at(state) <= room), k)

    def _stepped(self, scan: Scan, room: int, k: int) -> int:
        """The state that removes at least the surplus, rounded up to a multiple of `step` (prompt-poet's rule); k if there is none."""
        surplus = scan.at(0) - room
        if surplus <= 0:
            return k
        target = scan.at(0) - -(-surplus // self.step) * self.step
        return next((state for state in range(k, len(scan.steps) + 1) if scan.at(state) <= target), k)

    def _sticky(self, scan: Scan) -> int:
        """The state in which nothing comes back that was dropped in the turn before, or the prefix would change back."""
        dropped = self.dropped
        steps = scan.steps
        return next((at + 1 for at in range(len(steps) - 1, -1, -1) if keys_of(steps[at]) & dropped), 0) if dropped else 0


def keys_of(step: Step) -> set[Key]:
    """What a step removes."""
    if isinstance(step, tuple):
        return {_key(step[3], step[4])}
    return {_key(op.parent, op.position) for op in step if isinstance(op, Taken)}


def _key(parent: Node, position: int) -> Key:
    item = parent.items[position]
    while type(item) is Node and item.items:
        item = item.items[0]
    return _PLACE.sub("", path_of(parent, position)), "" if isinstance(item, Node) else item.text
