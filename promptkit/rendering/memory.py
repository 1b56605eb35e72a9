"""What a renderer remembers between turns: messages by identity, the children of components by identity or by place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptkit.element import Children, PromptElement
    from promptkit.rendering.tree import Atom, Node

__all__ = ["Memory", "Remembered"]


class Remembered:
    """What one component rendered. `budget` is None where it did not look at its budget: then it holds for every budget."""

    __slots__ = ("budget", "children", "element")

    def __init__(self, element: PromptElement, children: Children, budget: int | None) -> None:
        self.element = element
        self.children = children
        self.budget = budget


class Memory:
    """Two turns deep: what the latest render did not use is forgotten with the next one, so it never grows past two prompts.

    A component is recognised by identity, or as an equal value in the same place of the tree.
    """

    def __init__(self) -> None:
        self.atoms: dict[int, Atom] = {}
        self._by_identity: dict[int, Remembered] = {}
        self._by_place: dict[int, Remembered] = {}
        self._old_by_identity: dict[int, Remembered] = {}
        self._old_by_place: dict[int, Remembered] = {}
        self._places: dict[tuple[int, int], int] = {}
        self._atoms_used = 0

    def recall(self, node: Node) -> Remembered | None:
        """What this node's component rendered earlier, whatever its budget was."""
        element = node.element
        if element is None:
            return None
        for known in (self._by_identity.get(id(element)), self._old_by_identity.get(id(element))):
            if known and known.element is element:
                return known
        place = self._place(node)
        for known in (self._by_place.get(place), self._old_by_place.get(place)):
            if known and known.element == element:
                return known
        return None

    def keep(self, node: Node, known: Remembered) -> None:
        """Remember for this turn and the next."""
        self._by_identity[id(known.element)] = known
        self._by_place[self._place(node)] = known
        if node.element is not None and node.element is not known.element:
            # An equal element under a new identity: recognised by identity from now on.
            self._by_identity[id(node.element)] = Remembered(node.element, known.children, known.budget)

    def next_turn(self, atoms: list[Atom]) -> None:
        """Forget what neither this render nor the one before it used. `atoms` are the messages of this render."""
        self._old_by_identity, self._by_identity = self._by_identity, {}
        self._old_by_place, self._by_place = self._by_place, {}
        if len(self.atoms) > 2 * len(atoms) + 1_000:
            self.atoms = {id(atom.element): atom for atom in atoms}
        if len(self._places) > 4 * len(self._old_by_place) + 100_000:
            self._places.clear()
            self._old_by_place = {}

    def _place(self, node: Node) -> int:
        """A number for the node's place in the tree, the same from turn to turn."""
        chain: list[Node] = []
        at: Node | None = node
        while at is not None and at.key < 0:
            chain.append(at)
            at = at.parent
        key = at.key if at is not None else 0
        for each in reversed(chain):
            key = self._places.setdefault((key, each.position), len(self._places) + 1)
            each.key = key
        return node.key
