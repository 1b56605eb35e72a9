"""The oracle's tree as a whole, and what one removal drags along."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import attrs

from tests.behaviour.nodes import Node, build, is_empty, walk

if TYPE_CHECKING:
    from collections.abc import Hashable

    from promptkit.elements.element import Child
    from promptkit.messages import ToolCall
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["LockedError", "Tree", "planted"]


class LockedError(Exception):
    """The removal would take something that must stay."""


@attrs.define(eq=False)
class Tree:
    """A root, and who answers whom: call key to key of the tool message."""

    root: Node
    tokenizer: Tokenizer
    keys: itertools.count[int]
    pairs: dict[int, int] = attrs.field(factory=dict[int, int])
    loose: set[int] = attrs.field(factory=set[int])
    leaving: list[Hashable] = attrs.field(factory=list["Hashable"])
    text_encloses: bool = True

    def clone(self) -> Tree:
        """A copy that can be pruned apart from this one."""
        return attrs.evolve(
            self,
            root=_copy(self.root, None),
            pairs=dict(self.pairs),
            loose=set(self.loose),
            leaving=[],
        )

    def nodes(self) -> list[Node]:
        """All nodes in document order."""
        return list(walk(self.root))

    def find(self, key: int) -> Node | None:
        """The node with this key, if it is still there."""
        return next((node for node in walk(self.root) if node.key == key), None)

    def without(self, key: int, locked: set[int]) -> Tree:
        """The tree after this removal and all that it drags along.

        Raises LockedError where it would take what is locked.
        """
        tree = self.clone()
        node = tree.find(key)
        assert node is not None
        tree._drop(node, locked)
        while tree._drop_partner(locked) or tree._drop_unpaired(locked):
            pass
        return tree

    def _drop(self, node: Node, locked: set[int]) -> None:
        parent = node.parent
        assert parent is not None
        gone = list(walk(node))
        if any(below.key in locked for below in gone):
            raise LockedError
        place = parent.children.index(node)
        del parent.children[place]
        self.leaving += [below.group[0] for below in gone if below.group]
        if node.fallback is not None and node.fallback is not False and node.fallback is not True:
            instead = Node(
                key=next(self.keys), priority=node.priority, prioritized=True, parent=parent
            )
            build(node.fallback, instead, self.tokenizer, self.keys)
            for below in walk(instead):
                below.in_fallback = True
            if self.text_encloses:
                mark_enclosing(instead)
            instead.enclosure = node.enclosure
            if instead.children:
                parent.children.insert(place, instead)
        if node.enclosure is not None and node.kind != "text":
            self._drop_enclosing_texts(parent, node.enclosure, locked)
        self._drop_if_hollow(parent, locked)

    def _drop_enclosing_texts(self, parent: Node, enclosure: int, locked: set[int]) -> None:
        inside = [child for child in parent.children if child.enclosure == enclosure]
        texts = [child for child in inside if child.kind == "text"]
        others = [child for child in inside if child.kind != "text"]
        if any(map(is_said, others)) or any(text.key in locked for text in texts):
            return
        parent.children = [child for child in parent.children if child not in texts]

    def _drop_if_hollow(self, node: Node, locked: set[int]) -> None:
        # A tool message is never nothing to its parent, yet it goes with its last content.
        if node.parent is not None and not node.calls and all(map(is_empty, node.children)):
            self._drop(node, locked)

    def _drop_partner(self, locked: set[int]) -> bool:
        for group in self.leaving:
            for node in self.nodes():
                if node.group == (group,):
                    self._drop(node, locked)
                    return True
                for key, call in node.calls:
                    if (call.id, group) in node.call_groups.items():
                        self._drop_call(node, key, locked)
                        return True
        self.leaving.clear()
        return False

    def _drop_call(self, message: Node, key: int, locked: set[int]) -> None:
        if message.key in locked:
            raise LockedError
        message.calls = [call for call in message.calls if call[0] != key]
        self._drop_if_hollow(message, locked)

    def _drop_unpaired(self, locked: set[int]) -> bool:
        calls, results = self.match()
        for _, message, key in calls:
            self._drop_call(message, key, locked)
            return True
        for message in results:
            self._drop(message, locked)
            return True
        return False

    def match(self) -> tuple[list[tuple[ToolCall, Node, int]], list[Node]]:
        """Pair what has no partner in document order; the calls and results that are left over."""
        present = {call for node in self.nodes() for call, _ in node.calls} | {
            node.key for node in self.nodes()
        }
        self.pairs = {
            call: result for call, result in self.pairs.items() if {call, result} <= present
        }
        paired = self.pairs.keys() | set(self.pairs.values()) | self.loose
        open_calls: list[tuple[ToolCall, Node, int]] = []
        orphans: list[Node] = []
        for node in self.nodes():
            open_calls += [(call, node, key) for key, call in node.calls if key not in paired]
            if node.answers is None or node.key in paired:
                continue
            near = [entry for entry in open_calls if entry[0].id == node.answers]
            if near:
                open_calls.remove(near[-1])
                self.pairs[near[-1][2]] = node.key
            else:
                orphans.append(node)
        return open_calls, orphans


def _copy(node: Node, parent: Node | None) -> Node:
    copied = attrs.evolve(node, parent=parent, children=[], calls=list(node.calls))
    copied.children = [_copy(child, copied) for child in node.children]
    return copied


def is_said(node: Node) -> bool:
    """Whether it is content of a message: a Reserve is none."""
    if node.children:
        return any(map(is_said, node.children))
    return node.kind != "reserve" and not is_empty(node)


def mark_enclosing(node: Node) -> None:
    """D12: number the texts with children between them that can all leave, together with these children."""
    if node.legacy:
        return
    for number, inside in enumerate(_list_enclosures(node.children)):
        leaves = [
            child
            for child in inside
            if not any(below.required and is_said(below) for below in walk(child))
        ]
        for child in inside if len(leaves) == len(inside) else ():
            child.enclosure = number
    for child in node.children:
        mark_enclosing(child)


def _list_enclosures(children: list[Node]) -> list[list[Node]]:
    """The runs of siblings from a text to a text. Of several texts between others, the second one starts the next run; a single one ends none."""
    said = [child for child in children if is_said(child) and child.kind != "breakpoint"]
    kinds = "".join("t" if child.kind == "text" else "o" for child in said)
    kinds = re.sub("^o+", lambda leading: "l" * len(leading[0]), kinds)
    runs: list[list[Node]] = []
    for found in re.finditer(r"(?:^t+|(?<=[lo]t)t+|(?<=l)t)o+(?:to+)*(?:t+$|t(?=t))", kinds):
        first, last = said[found.start()], said[found.end() - 1]
        runs.append(children[children.index(first) : children.index(last) + 1])
    return runs


def planted(child: Child, tokenizer: Tokenizer, *, text_encloses: bool = True) -> Tree:
    """The tree of an element, unpruned.

    Calls without result and results without call are left alone for good.
    """
    keys = itertools.count(1)
    root = Node(key=0)
    build(child, root, tokenizer, keys)
    tree = Tree(root, tokenizer, keys, text_encloses=text_encloses)
    if text_encloses:
        mark_enclosing(root)
    calls, results = tree.match()
    tree.loose = {key for _, _, key in calls} | {node.key for node in results}
    return tree
