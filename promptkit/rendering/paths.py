"""Paths and labels of the items of a render tree, as receipts, traces and errors show them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

import attrs

from promptkit.elements.builtin import Chunk, Group, KeepWith, Rounds, Tag
from promptkit.elements.element import ElementDocs, PromptElement
from promptkit.rendering.tree import Item, Leaf, Node, iter_upwards

PATH_SEPARATOR = " > "

MAX_PATH_STEPS = 20
"""Steps that a shortened path shows at either end."""


def format_path(parent: Node, position: int | None = None) -> str:
    """Format the path of a node, or of the item at `position` in it: `AgentPrompt > History > UserMessage[12]`.

    The middle of a path with more than 2 * MAX_PATH_STEPS nodes is left out.
    """
    return Paths().format(parent, position)


class Path(NamedTuple):
    """The path of a node: its first steps, the last of the other steps, and the number of all steps."""

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    steps: int = 0

    def append(self, label: str) -> Path:
        """Return the path of an item in this node."""
        return (
            Path((*self.first, label), (), self.steps + 1)
            if self.steps < MAX_PATH_STEPS
            else Path(self.first, (*self.last, label)[-MAX_PATH_STEPS:], self.steps + 1)
        )

    def __str__(self) -> str:
        missing = self.steps - len(self.first) - len(self.last)
        middle = (f"… {missing:,} more …",) if missing else ()
        return PATH_SEPARATOR.join((*self.first, *middle, *self.last))


@attrs.define(eq=False)
class Paths:
    """Formats the paths of many items of one tree, in full and in short.

    Each step is formatted once.
    """

    _described: bool = attrs.field(alias="described", default=False, kw_only=True)
    """True: short paths show a component with its first prop, or else its docstring."""
    _known: defaultdict[Callable[[Path, Node], Path], dict[Node, Path]] = attrs.field(
        factory=lambda: defaultdict(dict), init=False
    )
    """By the function that appends a step."""

    def format(self, parent: Node, position: int | None = None) -> str:
        """Format the path of a node, or of the item at `position` in it, with every step."""
        item = parent if position is None else parent.items[position]
        if type(item) is Node:
            return str(self._build_path(item, _append_step))
        around = str(self._build_path(parent, _append_step))
        label = "" if position is None else format_label(parent, position)
        return PATH_SEPARATOR.join(filter(None, (around, label)))

    def format_public(self, parent: Node, position: int) -> str:
        """Format the path of the item at `position` in a node, without private components."""
        return str(
            self._build_path(parent, _append_public_step).append(format_label(parent, position))
        )

    def shorten(self, parent: Node, position: int | None = None) -> str:
        """Format the name of a node in receipts, or of the item at `position` in it.

        The name of a labelled element is `outer label > label` (`team > turn 1 · reply`). The name
        of any other element is its path from the innermost labelled ancestor. The path omits a
        grouping element that is an only child or has only one child; that child then takes the
        position of the grouping element.
        """
        item = parent if position is None else parent.items[position]
        while type(item) is Node and _passes_on(item) and len(item.items) == 1:
            parent, position = item, 0
            item = item.items[0]
        label = None if position is None else find_label(parent, position)
        if label is not None:
            return self._qualify(label, parent)
        if type(item) is not Node:
            place = (parent, position or 0)
        elif item.parent is not None:
            place = (item.parent, item.position)
        else:
            return ""
        element = item.element
        if element is not None and element.label:
            return self._qualify(element.label, place[0])
        around = _find_labelled_around(place[0])
        if around is not None and around.element is not None and around.element.label:
            return self._qualify(around.element.label, around.parent)
        return str(
            self._build_path(place[0], self._append_short_step).append(
                self._format_short_step(*place)
            )
        )

    def _qualify(self, label: str, around: Node | None) -> str:
        """Put the nearest label around a labelled element before its label."""
        outer = "" if around is None else str(self._build_path(around, _append_label_step))
        return f"{outer}{PATH_SEPARATOR}{label}" if outer not in ("", label) else label

    def _append_short_step(self, path: Path, node: Node) -> Path:
        if node.element is not None and node.element.label:
            return Path().append(self._qualify(node.element.label, node.parent))
        if node.parent is None or (
            _passes_on(node) and (len(node.parent.items) == 1 or len(node.items) == 1)
        ):
            return path
        return path.append(self._format_short_step(node.parent, node.position))

    def _format_short_step(self, parent: Node, position: int) -> str:
        item = parent.items[position]
        if type(item) is Node and item.replaces is not None and item.replaces.parent is not None:
            return f"fallback of {self._format_short_step(item.replaces.parent, item.replaces.position)}"
        # the only child of an omitted grouping element takes the position of that element
        while len(parent.items) == 1 and parent.parent is not None and _passes_on(parent):
            parent, position = parent.parent, parent.position
        step = _format_step(item, position, siblings=len(parent.items)).lstrip("_")
        element = item.element
        if not self._described or element is None or element.label:
            return step
        shown, name = _describe(element), type(element).__name__.lstrip("_")
        return f"{name}({shown}){step.removeprefix(name)}" if shown else step

    def _build_path(self, node: Node, append: Callable[[Path, Node], Path]) -> Path:
        """Return the path of a node, from the nearest node above it whose path is known."""
        known = self._known[append]
        missing = list(takewhile(lambda above: above not in known, iter_upwards(node)))
        nearest = missing[-1].parent if missing else node
        path = Path() if nearest is None else known[nearest]
        for each in reversed(missing):
            path = known[each] = append(path, each)
        return path


def _append_step(path: Path, node: Node) -> Path:
    return path if node.parent is None else path.append(format_label(node.parent, node.position))


def _append_public_step(path: Path, node: Node) -> Path:
    """Append the step of a node, unless it is a component with a private name and no label."""
    element = node.element
    is_private = element and not element.label and type(element).__name__.startswith("_")
    return path if is_private else _append_step(path, node)


def _append_label_step(path: Path, node: Node) -> Path:
    """Return the path of the nearest label at or above a node."""
    return (
        Path().append(node.element.label)
        if node.element is not None and node.element.label
        else path
    )


def _describe(element: PromptElement) -> str:
    """Return the first prop of a component or Tag if it is a text, or else the first line of the component's docstring."""
    cls = type(element)
    if cls is not Tag and (
        cls.render is PromptElement.render or cls.__module__.startswith("promptkit.")
    ):
        return ""
    layout = {field.name for field in PromptElement.__attrs_attrs__}
    own = [field.name for field in cls.__attrs_attrs__ if field.name not in layout]
    first: object = getattr(element, own[0]) if own else None
    text = first if isinstance(first, str) else ""
    if not text or "\n" in text or len(text) > _LONGEST_NAME:
        docs: object = cls.__dict__.get("__doc__")
        text = (docs.text or "") if isinstance(docs, ElementDocs) else ""
        text = text.strip().partition("\n")[0].rstrip(".")
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1].rstrip()}…"


_LONGEST_NAME = 60  # characters of a prop that names a component, and is not its content
_MOST_SHOWN = 30  # characters of a prop or a docstring in a label


def _find_labelled_around(node: Node) -> Node | None:
    """Return the labelled grouping element around an only child: the child takes its label."""
    around = takewhile(
        lambda above: (
            len(above.items) == 1
            and above.parent is not None
            and (above.element is None or passes_on(above.element))
        ),
        iter_upwards(node),
    )
    return next((above for above in around if above.element and above.element.label), None)


def _passes_on(node: Node) -> bool:
    """Return whether receipts omit a node: a fragment, or a grouping element without a label."""
    element = node.element
    return not node.label if element is None else not element.label and passes_on(element)


def passes_on(element: PromptElement) -> bool:
    """Return whether an element only groups its children, or is a private component, so that receipts need not show it."""
    return isinstance(element, Chunk | Group | KeepWith | Rounds) or type(
        element
    ).__name__.startswith("_")


def format_label(parent: Node, position: int) -> str:
    """Format the last step of an item's path."""
    return find_label(parent, position) or _format_step(
        parent.items[position], position, siblings=len(parent.items)
    )


def find_label(parent: Node, position: int) -> str | None:
    """Return the label of a round of a recorded conversation; None for other items."""
    find_labels = parent.run.find_labels if parent.run is not None else None
    return None if find_labels is None else find_labels()[position]


def _format_step(item: Item, position: int, *, siblings: int) -> str:
    if type(item) is Node and item.label:
        return item.label
    element = item.element
    if element is None and type(item) is Leaf:
        return f"text[{position}]"
    label = type(element).__name__ if element else "fragment"
    if element and element.label:
        label += f"({element.label})"
    return f"{label}[{position}]" if siblings > 1 else label
