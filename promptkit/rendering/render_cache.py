"""The cache of a Renderer: text messages by identity, and the children of components by identity or by place."""

from __future__ import annotations

from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import TYPE_CHECKING, TypeAlias, cast

from promptkit.element import PromptElement
from promptkit.rendering.plans import PlanCache

if TYPE_CHECKING:
    import re

    from promptkit.element import Children, Sizing
    from promptkit.rendering.tree import Node, TextMessage

__all__ = ["CachedChildren", "RenderCache", "snapshot_props"]

Props: TypeAlias = "tuple[object, ...]"


class CachedChildren:
    """The children that a component rendered, with the props and the budget that they depend on."""

    __slots__ = ("_sizing", "children", "element", "props")

    def __init__(self, element: PromptElement, props: Props, children: Children, sizing: Sizing) -> None:
        self.element = element
        self.props = props
        self.children = children
        self._sizing = sizing

    @property
    def budget(self) -> int | None:
        """The budget that the component, or something that it rendered, has read; None if the children are valid for every budget."""
        return self._sizing.budget_read


class RenderCache:
    """Caches text messages and the children of components between renders.

    An entry is dropped if two renders in a row did not use it, so the cache never holds more than two prompts. A component matches an
    entry with the same identity or the same place in the tree, if its props have the same values. Props that may change unnoticed,
    such as objects with state, never match.
    """

    def __init__(self, safe_cut: re.Pattern[str] | None = None) -> None:
        """Create an empty cache. `safe_cut` is that of the tokenizer that counts the plans."""
        self.plans = PlanCache(safe_cut)
        self.text_messages: dict[int, TextMessage] = {}
        self._current: dict[int | tuple[int], list[CachedChildren]] = {}
        self._earlier: dict[int | tuple[int], list[CachedChildren]] = {}
        self._places: dict[tuple[int, int], int] = {}

    def find(self, node: Node, props: Props | None) -> list[CachedChildren]:
        """Return the cached children of a node's component, for one budget or several. `props` are those of `snapshot_props`."""
        if props is None:
            return []
        keys = (id(node.element), (self._find_place(node),))
        cached = [each for entries in (self._current, self._earlier) for key in keys for each in entries.get(key, ())]
        return [each for each in cached if type(each.element) is type(node.element) and _are_equal(each.props, props)]

    def store(self, node: Node, cached: CachedChildren) -> None:
        """Keep children for this render and the next."""
        for key in (id(cached.element), (self._find_place(node),)):
            entries = self._current.setdefault(key, [])
            if not any(each is cached for each in entries):
                entries.append(cached)

    def start_next_render(self, text_messages: list[TextMessage]) -> None:
        """Drop what neither this render nor the one before it used. `text_messages` are those of this render."""
        self._earlier, self._current = self._current, {}
        if len(self.text_messages) > 2 * len(text_messages) + 1_000:
            self.text_messages = {id(message.element): message for message in text_messages}
        if len(self._places) > 4 * len(self._earlier) + 100_000:
            self._places.clear()
            self._earlier = {key: cached for key, cached in self._earlier.items() if isinstance(key, int)}

    def _find_place(self, node: Node) -> int:
        """Return a number for a node's place in the tree. It is the same in every render."""
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
    """Return the current props of an element, with lists and mappings copied, or None if one of them may change unnoticed."""
    props: list[object] = []
    for field in type(element).__attrs_attrs__:
        value: object = getattr(element, field.name)
        if isinstance(value, list):
            value = (list, *cast("list[object]", value))  # the items are checked below
        elif isinstance(value, Mapping):
            mapping = cast("Mapping[object, object]", value)  # as above
            value = (dict, *mapping.keys(), *mapping.values())
        props.append(value)
    return tuple(props) if _are_immutable(props) else None


def _are_immutable(props: list[object]) -> bool:
    """Return whether all props are immutable by Python's convention: compared by value and hashable, or functions or classes."""
    stack = list(props)
    while stack:
        value = stack.pop()
        kind = type(value)
        if kind in _PLAIN_TYPES:
            continue
        if kind is tuple:
            stack.extend(cast("tuple[object, ...]", value))  # the items are checked below
        elif isinstance(value, type | FunctionType | BuiltinFunctionType | PromptElement):
            continue
        elif getattr(kind, "__hash__", None) is None or kind.__eq__ is object.__eq__:
            return False
    return True


_PLAIN_TYPES = frozenset({str, bytes, int, float, bool, NoneType})


def _are_equal(props: Props, others: Props) -> bool:
    """Return whether props have equal values of the same types: 1, 1.0 and True are different."""
    stack: list[tuple[object, object]] = [(props, others)]
    while stack:
        one, other = stack.pop()
        if one is other:
            continue
        if type(one) is not type(other):
            return False
        if isinstance(one, tuple) and isinstance(other, tuple):
            left, right = cast("tuple[object, ...]", one), cast("tuple[object, ...]", other)  # the items are checked below
            if len(left) != len(right):
                return False
            stack.extend(zip(left, right, strict=True))
        elif one != other:
            return False
    return True
