"""The components that enclose a node: the one that wrote it, and the values that are provided to it.

A component writes what its `render` returns, but not what it was given: the elements among its
children and props were written where it was used. The plain value of a KeepWith group belongs to
the component that wrote the member, so that two instances of a component have groups of their own.
A group of `KeepWith.group()` is an object, which is the same group wherever it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import takewhile

from promptkit.elements import AssistantMessage, KeepWith
from promptkit.elements.element import PromptElement
from promptkit.elements.layout import KeepGroup
from promptkit.elements.writing import Provided
from promptkit.rendering.tree import Node, iter_upwards


class Scopes:
    """Finds the component that wrote each node of a tree. Visits each ancestor of a member once."""

    def __init__(self) -> None:
        self._writers: dict[Node, Node | None] = {}
        self._given: dict[Node, frozenset[int]] = {}

    def bind_groups(self, nodes: Iterable[Node]) -> None:
        """Replace the groups of KeepWith members and of tool calls by those of the components that wrote them."""
        for node in nodes:
            element = node.element
            if isinstance(element, KeepWith):
                node.keep_groups = (self._bind(node, element.key),)
            elif isinstance(element, AssistantMessage):
                node.call_groups = {
                    call: self._bind(node, group) for call, group in element.keep_with.items()
                }

    def _bind(self, node: Node, group: Hashable) -> Hashable:
        """Return a KeepWith group, a plain value with the component that it belongs to (None: the prompt itself wrote it)."""
        return group if isinstance(group, KeepGroup) else (self._find_writer(node), group)

    def _find_writer(self, node: Node) -> Node | None:
        """Return the component whose `render` wrote the element of a node, or None if none did."""
        for each in reversed(
            list(takewhile(lambda above: above not in self._writers, iter_upwards(node)))
        ):
            parent = each.parent
            if parent is None:
                self._writers[each] = None
            else:
                around = parent if _is_component(parent) else self._writers[parent]
                self._writers[each] = self._find_outside(around, each.element)
        return self._writers[node]

    def _find_outside(self, writer: Node | None, element: PromptElement | None) -> Node | None:
        """Return the innermost component, from `writer` outwards, that was not given the element."""
        while writer is not None and id(element) in self._list_given(writer):
            writer = self._writers[writer]
        return writer

    def _list_given(self, component: Node) -> frozenset[int]:
        """Return the ids of the elements among the children and props of a component."""
        given = self._given.get(component)
        if given is None:
            element = component.element
            fields = type(element).__attrs_attrs__ if element is not None else ()
            values = _iter_items(getattr(element, field.name) for field in fields)
            given = self._given[component] = frozenset(
                id(value) for value in values if isinstance(value, PromptElement)
            )
        return given


def _is_component(node: Node) -> bool:
    return node.component_depth > (node.parent.component_depth if node.parent is not None else 0)


def _iter_items(values: Iterable[object]) -> Iterator[object]:
    """Iterate over the values of props, over the values of mappings, and over the items of lists at any depth, in any order."""
    todo: list[object] = []
    for value in values:
        todo += value.values() if isinstance(value, Mapping) else (value,)
    opened: set[int] = set()  # a list may contain itself
    while todo:
        value = todo.pop()
        key = id(value)
        if not isinstance(value, tuple | list):
            yield value
        elif key not in opened:
            opened.add(key)
            todo += value


def find_provided(node: Node, kind: type) -> object:
    """Return the value of a class that the innermost Provided around a node has, or None."""
    for above in iter_upwards(node):
        element = above.element
        if isinstance(element, Provided) and isinstance(element.value, kind):
            return element.value
    return None
