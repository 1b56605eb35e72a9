"""What a renderer remembers between turns: messages by identity, the children of components by identity or by place."""

from __future__ import annotations

from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import TYPE_CHECKING, TypeAlias, cast

from promptkit.element import PromptElement

if TYPE_CHECKING:
    from promptkit.element import Children, Sizing
    from promptkit.rendering.tree import TextMessage, Node

__all__ = ["CachedChildren", "RenderCache", "snapshot_props"]

Props: TypeAlias = "tuple[object, ...]"


class CachedChildren:
    """What one component rendered, for which props, and for which budget."""

    __slots__ = ("_sizing", "children", "element", "props")

    def __init__(self, element: PromptElement, props: Props, children: Children, sizing: Sizing) -> None:
        self.element = element
        self.props = props
        self.children = children
        self._sizing = sizing

    @property
    def budget(self) -> int | None:
        """The budget that was read, by the component or later by what it made; None holds for every budget."""
        return self._sizing.budget_read


class RenderCache:
    """Two turns deep: what the latest render did not use is forgotten with the next one, so it never grows past two prompts.

    A component is recognised by identity, or in the same place of the tree, if its props are the same values as then. Props that
    may have changed unseen, such as objects with a state, are never the same.
    """

    def __init__(self) -> None:
        self.text_messages: dict[int, TextMessage] = {}
        self._now: dict[int | tuple[int], list[CachedChildren]] = {}
        self._before: dict[int | tuple[int], list[CachedChildren]] = {}
        self._places: dict[tuple[int, int], int] = {}

    def find(self, node: Node, props: Props | None) -> list[CachedChildren]:
        """What this node's component rendered earlier, at one budget or several."""
        if props is None:
            return []
        keys = (id(node.element), (self._place(node),))
        known = [each for turn in (self._now, self._before) for key in keys for each in turn.get(key, ())]
        return [each for each in known if type(each.element) is type(node.element) and _same(each.props, props)]

    def store(self, node: Node, known: CachedChildren) -> None:
        """Remember for this turn and the next."""
        for key in (id(known.element), (self._place(node),)):
            remembered = self._now.setdefault(key, [])
            if not any(each is known for each in remembered):
                remembered.append(known)

    def start_next_render(self, atoms: list[TextMessage]) -> None:
        """Forget what neither this render nor the one before it used. `atoms` are the messages of this render."""
        self._before, self._now = self._now, {}
        if len(self.text_messages) > 2 * len(atoms) + 1_000:
            self.text_messages = {id(atom.element): atom for atom in atoms}
        if len(self._places) > 4 * len(self._before) + 100_000:
            self._places.clear()
            self._before = {key: known for key, known in self._before.items() if isinstance(key, int)}

    def _place(self, node: Node) -> int:
        """A number for the node's place in the tree, the same from turn to turn."""
        chain: list[Node] = []
        at: Node | None = node
        while at is not None and at.place_id < 0:
            chain.append(at)
            at = at.parent
        key = at.place_id if at is not None else 0
        for each in reversed(chain):
            key = self._places.setdefault((key, each.position), len(self._places) + 1)
            each.place_id = key
        return node.place_id


def snapshot_props(element: PromptElement) -> Props | None:
    """The props of an element as they are now, lists and mappings copied; None if one of them may change unseen."""
    props: list[object] = []
    for field in type(element).__attrs_attrs__:
        value: object = getattr(element, field.name)
        if isinstance(value, list):
            value = (list, *cast("list[object]", value))  # of unknown items
        elif isinstance(value, Mapping):
            mapping = cast("Mapping[object, object]", value)  # likewise
            value = (dict, *mapping.keys(), *mapping.values())
        props.append(value)
    return tuple(props) if _are_values(props) else None


def _are_values(props: list[object]) -> bool:
    """Whether all are immutable by Python's convention: compared by value and hashable, or functions and classes."""
    stack = list(props)
    while stack:
        value = stack.pop()
        kind = type(value)
        if kind in _PLAIN:
            continue
        if kind is tuple:
            stack.extend(cast("tuple[object, ...]", value))  # of unknown items
        elif isinstance(value, type | FunctionType | BuiltinFunctionType | PromptElement):
            continue
        elif getattr(kind, "__hash__", None) is None or kind.__eq__ is object.__eq__:
            return False
    return True


_PLAIN = frozenset({str, bytes, int, float, bool, NoneType})


def _same(props: Props, others: Props) -> bool:
    """Whether props are the same values of the same types: 1, 1.0 and True are three."""
    stack: list[tuple[object, object]] = [(props, others)]
    while stack:
        mine, theirs = stack.pop()
        if mine is theirs:
            continue
        if type(mine) is not type(theirs):
            return False
        if isinstance(mine, tuple) and isinstance(theirs, tuple):
            left, right = cast("tuple[object, ...]", mine), cast("tuple[object, ...]", theirs)  # of unknown items
            if len(left) != len(right):
                return False
            stack.extend(zip(left, right, strict=True))
        elif mine != theirs:
            return False
    return True
