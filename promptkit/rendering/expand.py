"""Stage one: run the components, flex group by flex group, and lay what they return out as a tree of nodes.

A generator without recursion: it yields the awaitables that async components returned and is sent what became of them, so that
one engine serves callers with and without an event loop.

Expandables written again, longer, where budget is left: within every TokenLimit around them (D2).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Generator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias, cast

from promptkit.element import Child, Children, PromptElement, Sizing, flatten
from promptkit.elements.chat import AssistantMessage, SystemMessage, UserMessage
from promptkit.elements.layout import CacheBreakpoint
from promptkit.elements.media import Metadata, Reference
from promptkit.elements.text import Expandable
from promptkit.errors import TreeError
from promptkit.messages import CacheBreakpointPart
from promptkit.rendering.assemble import measure
from promptkit.rendering.build import PLAIN_LEAVES, wrap_in_group, make_node, build_leaf, build_text_message
from promptkit.rendering.elements import close_node, open_node, write_expandable
from promptkit.rendering.event_loop import close_coroutines
from promptkit.rendering.render_cache import CachedChildren, RenderCache, snapshot_props
from promptkit.rendering.sizing import FlexGroup, Layout, Sizer
from promptkit.rendering.tree import STARTS_LINE_FIRST, HIGHEST_PRIORITY, STARTS_LINE_NEVER, NEVER_REMOVED, TextMessage, Leaf, Node, format_path

if TYPE_CHECKING:
    from promptkit.messages import Role

__all__ = ["Expansion", "AwaitedResults", "PendingAwaitables", "grow_expandables", "add_path"]


PendingAwaitables: TypeAlias = "list[tuple[Node, Awaitable[object]]]"
"""What async components returned, to be awaited concurrently."""

AwaitedResults: TypeAlias = "list[tuple[Node, object, BaseException | None]]"
"""What became of some of it: a value, or an error."""

ROLES: dict[type, Role] = {SystemMessage: "system", UserMessage: "user", AssistantMessage: "assistant"}
DEFAULT_GROUP = math.inf
MOST_NESTED = 100_000  # components in components


class Expansion:
    """One run of the components of a tree."""

    def __init__(self, sizer: Sizer, memory: RenderCache, *, model: str | None, fragment: bool = False) -> None:
        self.sizer = sizer
        self.cache = memory
        self.model = model
        self.fragment = fragment
        self.expandables: list[tuple[Node, Sizing]] = []
        self.text_messages: list[TextMessage] = []
        self.seconds: dict[Node, float] | None = None  # how long each component took, where somebody wants to know
        self._stack: list[Node] = []
        self._started: PendingAwaitables = []
        self._sizings: dict[Node, Sizing] = {}
        self._waiting = 0

    def run(self, children: Children, budget: int) -> Generator[PendingAwaitables, AwaitedResults, Node]:
        """The root node of the tree, everything rendered."""
        root = Node(None, None, HIGHEST_PRIORITY)
        root.budget = budget
        root.fragment = self.fragment
        stack = self._stack
        if self._fill(root, children):
            return root
        try:
            while True:
                while stack:
                    self._enter(stack.pop())
                if not self._waiting:
                    return root
                started, self._started = self._started, []
                for node, value, error in (yield started):
                    self._waiting -= 1
                    self._received(node, value, error)
        finally:
            close_coroutines(self._started)

    def sizing(self, node: Node) -> Sizing:
        """What the component at this node is told about its room."""
        return Sizing(lambda: self.sizer.budget_of(node), self.sizer.tokenizer, self.model)

    def _enter(self, node: Node) -> None:
        element = node.element
        if element is None:
            return
        try:
            children = open_node(self, node, element)
            if children is None or not self._fill(node, children):
                return
        except Exception as error:
            add_path(error, node)
            raise
        self._complete(node)

    def run_component(self, node: Node, element: PromptElement) -> Children | None:
        """A component's children, remembered or rendered now; None if they are awaited."""
        node.component_depth += 1
        if node.component_depth > MOST_NESTED:
            message = f"components are nested more than {MOST_NESTED:,} deep: one of them probably renders itself."
            raise TreeError(message, path=format_path(node))
        props = snapshot_props(element)
        for known in self.cache.find(node, props):
            if known.budget is None or known.budget == self.sizer.budget_of(node):
                self.cache.store(node, known)
                return known.children
        sizing = self.sizing(node)
        if self.seconds is not None:
            self.seconds[node] = -perf_counter()
        result = element.render(sizing)
        if inspect.isawaitable(result):
            self.start(node, result, sizing)
            return None
        return self._rendered(node, element, result, sizing)

    def _rendered(self, node: Node, element: PromptElement, result: object, sizing: Sizing) -> Children:
        if self.seconds is not None:
            self.seconds[node] += perf_counter()
        children = flatten(cast("Child", result), type(element).__name__)  # checked there
        props = snapshot_props(element)
        if props is not None:
            self.cache.store(node, CachedChildren(element, props, children, sizing))
        return children

    def start(self, node: Node, awaitable: Awaitable[object], sizing: Sizing) -> None:
        """Have something awaited; `_received` gets what becomes of it."""
        self._started.append((node, awaitable))
        self._sizings[node] = sizing
        self._waiting += 1

    def _received(self, node: Node, value: object, error: BaseException | None) -> None:
        element = node.element
        sizing = self._sizings.pop(node)
        if error is not None or element is None:
            add_path(error or RuntimeError("nothing to receive"), node)
            raise error or RuntimeError
        try:
            if node.is_expandable:
                write_expandable(node, value)
                done = True
            else:
                done = self._fill(node, self._rendered(node, element, value, sizing))
        except Exception as bad:
            add_path(bad, node)
            raise
        if done:
            self._complete(node)

    def _fill(self, node: Node, children: Children) -> bool:  # noqa: C901, PLR0912, PLR0915  # one pass over what a user can grow without bound
        """Give a node its items, and start on those that are nodes. True if there are none."""
        items = node.items
        recall = self.cache.text_messages.get
        atoms = self.text_messages
        message = node.message
        plain = 0
        groups: dict[float, list[Node]] = {}
        for child in children:
            if child is None:
                continue
            if isinstance(child, str):
                if message is None and not node.fragment:
                    if not child or child.isspace():
                        continue
                    raise TreeError(_outside(child), path=format_path(node))
                leaf = Leaf(node, child, node.text_priority, STARTS_LINE_NEVER if items else STARTS_LINE_FIRST)
                items.append(leaf)
                continue
            atom = recall(id(child))
            if atom is not None and atom.element is child and message is None:
                items.append(atom)
                atoms.append(atom)
                plain += 1
                continue
            kind = type(child)
            role = ROLES.get(kind)
            if role is not None and message is None and (made := build_text_message(child, role, node)) is not None:
                self.cache.text_messages[id(child)] = made
                items.append(made)
                atoms.append(made)
                plain += 1
            elif isinstance(child, Metadata | Reference | CacheBreakpoint):
                self._attach(node, child)
            elif (kind in PLAIN_LEAVES) and (piece := build_leaf(node, child)) is not None:
                if message is None and not node.fragment:
                    raise TreeError(_outside(type(child).__name__), path=format_path(node))
                items.append(piece)
                plain += 1
            else:
                inner = self._node(child, node)
                grow = child.flex_grow
                groups.setdefault(DEFAULT_GROUP if grow is None else grow, []).append(inner)
                if inner.fallback:
                    groups[DEFAULT_GROUP if grow is None else grow].append(inner.fallback)
        node.removed_at = [NEVER_REMOVED] * len(items)
        if not groups:
            return True
        if plain and DEFAULT_GROUP not in groups:
            groups[DEFAULT_GROUP] = []
        ordered = [FlexGroup(groups[grow], plain if grow == DEFAULT_GROUP else 0, grow) for grow in sorted(groups, reverse=True)]
        node.layout = Layout(ordered)
        for index, group in enumerate(ordered):
            for member in group.nodes:
                member.group_index = index
        self._schedule(node, 0)
        return False

    def _node(self, element: PromptElement, parent: Node) -> Node:
        node = make_node(element, parent)
        if element.fallback is not None:
            spare = Node(wrap_in_group(element.fallback, node), parent, node.priority)
            spare.replaces = node
            spare.in_fallback = True
            spare.activated_at = NEVER_REMOVED
            spare.label = f"fallback[{node.position}]"
            spare.priority = node.priority
            parent.adopt(spare)
            node.fallback = spare
        return node

    def _attach(self, node: Node, element: PromptElement) -> None:
        if isinstance(element, Metadata):
            node.metadata = [*(node.metadata or ()), (element.value, element.local)]
        elif isinstance(element, Reference):
            node.references = [*(node.references or ()), element]
        elif isinstance(element, CacheBreakpoint):
            if node.role is None:
                message = "a CacheBreakpoint must be a direct child of a message: move it there."
                raise TreeError(message, path=format_path(node))
            leaf = Leaf(node, "", HIGHEST_PRIORITY, STARTS_LINE_NEVER, part=CacheBreakpointPart(kind=element.kind, ttl=element.ttl), element=element)
            node.items.append(leaf)

    def _schedule(self, node: Node, index: int) -> None:
        if node.layout:
            groups = node.layout.groups
            while index < len(groups) and not groups[index].nodes:
                index += 1
            if index < len(groups):
                self._stack.extend(reversed(groups[index].nodes))

    def _complete(self, node: Node) -> None:
        """A node's subtree is there: settle what depends on it, and go on with what waited for it."""
        while True:
            variant = close_node(self, node)
            if variant is not None:
                if self._fill(node, variant):
                    continue
                return
            parent = node.parent
            if parent is None or parent.layout is None:
                return
            group = parent.layout.groups[node.group_index]
            group.unfinished -= 1
            if group.unfinished:
                return
            if any(later.nodes for later in parent.layout.groups[node.group_index + 1 :]):
                self._schedule(parent, node.group_index + 1)
                return
            node = parent
            if node.parent is None:
                return


def _outside(what: str) -> str:
    shown = what if len(what) <= 40 else what[:40] + "…"  # noqa: PLR2004  # characters
    return f"{shown!r} stands outside a message: put it into a SystemMessage, UserMessage, AssistantMessage or ToolMessage."


def add_path(error: BaseException, node: Node) -> None:
    """Add to an error the path of the element that raised it."""
    path = format_path(node)
    if isinstance(error, TreeError):
        if not error.path:
            error.locate(path)
    elif not any(note.startswith("in element ") for note in getattr(error, "__notes__", ())):
        error.add_note(f"in element {path}")


def grow_expandables(expansion: Expansion, scope: Node, limit: int) -> Generator[PendingAwaitables, AwaitedResults, bool]:
    """Grow the Expandables below a node, in render order, until `limit` tokens are used. Whether any was written again.

    Raises what an Expandable raises, and BadChildError where its value is no string.
    """
    inside = [node for node, _ in expansion.expandables if _below(node, scope)]
    if not inside:
        return False
    sizer = expansion.sizer
    used = measure(scope, sizer)
    grown = False
    for node in inside:
        element = node.element
        if used >= limit:
            break
        if not isinstance(element, Expandable):
            continue
        size = sizer.tokens_used(node)  # what it reported: never more than its share, as in prompt-tsx
        room = limit - used
        for above in _limits(node, scope):
            room = min(room, (above.limit or 0) - measure(above, sizer))
        if room <= 0:
            continue
        sizing = Sizing(partial(int, room + size), sizer.tokenizer, expansion.model)
        try:
            value: object = element.value(sizing)
            if inspect.isawaitable(value):
                ((_, value, failure),) = yield [(node, value)]
                if failure is not None:
                    raise failure  # noqa: TRY301  # as if it had been raised at once
            write_expandable(node, value)
        except Exception as error:
            add_path(error, node)
            raise
        used += min(room + size, measure(node, sizer)) - size
        grown = True
    return grown


def _below(node: Node, scope: Node) -> bool:
    """Whether a node is alive below another."""
    at = node
    while at is not scope:
        parent = at.parent
        if parent is None or at.in_fallback or parent.items[at.position : at.position + 1] != [at] or parent.removed_at[at.position] != NEVER_REMOVED:
            return False  # removed, or in an alternative that was not taken
        at = parent
    return True


def _limits(node: Node, scope: Node) -> list[Node]:
    found: list[Node] = []
    at = node.parent
    while at is not None and at is not scope:
        if at.limit is not None:
            found.append(at)
        at = at.parent
    return found
