"""What may be removed next: the candidates of one priority scope, lowest first.

The rules are prompt-tsx's: candidates are the children of a container, those of `pass_priority` children in their place; the
lowest priority goes first, on ties the one whose lowest direct child is lower (bare text counts as -1), then the first written.
A candidate's own key only ever grows while its children go, so a sorted list with a heap for the changed ones is enough.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TypeAlias

from promptkit.rendering.tree import HIGHEST, STAYS, Atom, Leaf, Node

__all__ = ["Entry", "Scope", "lowest", "scope_of"]

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
