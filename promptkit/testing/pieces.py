"""What became of each element of a prompt: what assertions about elements look at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from promptkit.rendering.assemble import messages_of
from promptkit.rendering.tree import STEP, Atom, Item, Leaf, Node, alive, label_of, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Message
    from promptkit.rendering.removals import Pruned, Removal
    from promptkit.rendering.result import Rendered

__all__ = ["Piece", "labels", "pieces", "pieces_with", "pruned_of", "removed_by", "whole_messages"]

WHOLE = -1
"""The state before anything was removed, by limits either."""


Fate: TypeAlias = Literal["kept", "dropped", "empty"]


@attrs.frozen
class Piece:
    """An element, or a string in one. `kept`: something of it was sent; `dropped`: nothing of it is left; `empty`: it never said anything."""

    path: str
    fate: Fate


def pruned_of(rendered: Rendered) -> Pruned:
    """The tree behind a render, and the state that it is in."""
    return rendered._pruned  # noqa: SLF001  # the tree is no part of what users are promised  # pyright: ignore[reportPrivateUsage]


def whole_messages(rendered: Rendered) -> tuple[Message, ...]:
    """The messages before anything was removed."""
    return messages_of(pruned_of(rendered).tree.root, WHOLE)


def pieces(rendered: Rendered, pattern: str) -> list[Piece]:
    """The elements whose paths end as `pattern` says, in written order.

    A step of the pattern is a type, a name, or both as paths show them (`Group(history)`), with or without its index; `*` in it
    stands for any characters.
    """
    steps = [re.compile(re.escape(step).replace(r"\*", ".*"), re.DOTALL) for step in reversed(pattern.split(STEP))]
    return [Piece(path_of(node, position), fate) for node, position, fate in _fates(rendered) if _ends_so(node, position, steps)]


def pieces_with(rendered: Rendered, text: str) -> list[Piece]:
    """The pieces in which a text was written."""
    found: list[Piece] = []
    for parent, position, fate in _fates(rendered):
        item = parent.items[position]
        if isinstance(item, Atom | Leaf) and text in item.text:
            found.append(Piece(path_of(parent, position), fate))
    return found


def labels(rendered: Rendered) -> list[str]:
    """The last steps of all paths, without indices, each once."""
    return list(dict.fromkeys(_bare(label_of(parent, position)) for parent, position, _ in _fates(rendered)))


def removed_by(rendered: Rendered, path: str) -> str:
    """A dropped piece with the removal that took it: its own, that of something around it, or that of the last thing in it."""
    inside: Removal | None = None
    for removal in rendered.removals:
        why = f"{removal.reason}: {removal.partner}" if removal.partner else removal.reason
        if removal.path == path:
            return f"{path}: removal {removal.order}, {why}"
        if path.startswith(f"{removal.path}{STEP}"):
            return f"{path}: removal {removal.order}, {why}, of {removal.path}"
        if removal.path.startswith(f"{path}{STEP}"):
            inside = removal
    return f"{path}: removal {inside.order}, the last of it, {inside.path}" if inside else path


def _fates(rendered: Rendered) -> Iterator[tuple[Node, int, Fate]]:
    """Each item of the tree that took part in the render, and what became of it."""
    pruned = pruned_of(rendered)
    nodes = pruned.tree.nodes
    before, after = _State(nodes, WHOLE), _State(nodes, pruned.k)
    for node in nodes:
        for position, item in enumerate(node.items):
            if isinstance(item, Leaf) and item.frame:
                continue  # written by the element around it
            if after.has(node, position) and after.says(item):
                yield node, position, "kept"
            elif before.has(node, position):
                yield node, position, "dropped" if before.says(item) else "empty"


class _State:
    """A tree at state k: which of its nodes are there, with all above them, and which of those say something."""

    def __init__(self, nodes: list[Node], k: int) -> None:
        self._k = k
        self._there: set[Node] = set()
        self._says: set[Node] = set()
        for node in nodes:  # parents stand before their children
            parent = node.parent
            if parent is None or (parent in self._there and alive(node, parent.gone[node.position], k)):
                self._there.add(node)
        for node in reversed(nodes):
            own = node.role == "tool" or node.reserve > 0 or (node.calls and any(gone >= k for gone in node.calls_gone))
            if own or any(self.has(node, position) and self.says(item) for position, item in enumerate(node.items)):
                self._says.add(node)

    def has(self, node: Node, position: int) -> bool:
        """Whether an item is there."""
        return node in self._there and alive(node.items[position], node.gone[position], self._k)

    def says(self, item: Item) -> bool:
        """Whether an item says anything: only white space says nothing."""
        if isinstance(item, Node):
            return item in self._says
        return isinstance(item, Atom) or item.part is not None or (not item.frame and bool(item.text.strip()))


def _ends_so(parent: Node, position: int, steps: list[re.Pattern[str]]) -> bool:
    """Whether the last steps of an item's path are these, given last first."""
    at: tuple[Node, int] | None = (parent, position)
    for step in steps:
        if at is None:
            return False
        node, position = at
        if not any(step.fullmatch(form) for form in _forms(label_of(node, position))):
            return False
        at = (node.parent, node.position) if node.parent is not None else None
    return True


_LABEL = re.compile(r"(?P<kind>[^(\[]*)(?:\((?P<name>.*)\))?(?P<index>\[\d+\])?", re.DOTALL)


def _forms(label: str) -> set[str]:
    """The ways to write the last step of a path."""
    match = _LABEL.fullmatch(label)
    if match is None:
        return {label}
    kind, name, index = match["kind"], match["name"], match["index"] or ""
    names = {kind} if name is None else {kind, name, f"{kind}({name})"}
    return names | {f"{each}{index}" for each in names}


def _bare(label: str) -> str:
    return re.sub(r"\[\d+\]$", "", label)
