"""Stage one, expand: run the components, one flex group after the other, and build the tree of nodes.

`Expansion.run` is a generator without recursion. It yields the awaitables that async components
returned and is sent their results, so that the same code serves callers with and without an event
loop (`promptkit.rendering.expand.event_loop`).

`grow_expandables` then writes Expandables again, with more tokens, if budget is left. They stay
within every TokenLimit around them (D2).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from itertools import takewhile
from time import perf_counter

import attrs

from promptkit.elements.builtin import (
    ROLES,
    AssistantMessage,
    CacheBreakpoint,
    Expandable,
    KeepGroup,
    KeepWith,
    MessageElement,
    Metadata,
    Provided,
    Reference,
    Rounds,
)
from promptkit.elements.element import Children, PromptElement, Sizing, flatten
from promptkit.errors import TreeError
from promptkit.messages import CacheBreakpointPart, Message
from promptkit.rendering.expand.build import (
    LEAF_ELEMENTS,
    build_leaf,
    build_message_item,
    build_node,
    read_fallback,
    show_message,
)
from promptkit.rendering.expand.elements import (
    ATTACHED,
    close_node,
    open_node,
    prepare_node,
    write_expandable,
)
from promptkit.rendering.expand.event_loop import (
    AwaitedResults,
    PendingAwaitables,
    close_coroutines,
)
from promptkit.rendering.expand.render_cache import ComponentRun, RenderCache, RequestRuns
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.paths import format_path
from promptkit.rendering.subtree import measure
from promptkit.rendering.tree import (
    HIGHEST_PRIORITY,
    NEVER_REMOVED,
    STARTS_LINE_FIRST,
    STARTS_LINE_NEVER,
    FlexGroup,
    Layout,
    Leaf,
    MessageItem,
    Node,
    build_run,
    iter_upwards,
)
from promptkit.reprs import clip

_DEFAULT_GROW = math.inf
_MAX_COMPONENT_DEPTH = 20_000
_SHOWN = 40  # characters of a text in an error
_DEEP = 64
"""Depth in elements above which a cycle (an element inside itself) is searched for."""


@attrs.define(eq=False)
class Expansion:
    """Runs the components of one tree."""

    sizer: Sizer
    cache: RenderCache
    runs: RequestRuns
    model: str | None = attrs.field(kw_only=True)
    prune_step: int = attrs.field(default=0, kw_only=True)
    fragment: bool = attrs.field(default=False, kw_only=True)
    expandables: list[tuple[Node, Expandable]] = attrs.field(
        factory=list[tuple[Node, Expandable]], init=False
    )
    message_items: list[MessageItem] = attrs.field(factory=list[MessageItem], init=False)
    seconds: dict[Node, float] | None = attrs.field(default=None, init=False)
    """The time of each component; None if it is not recorded."""
    _stack: list[Node] = attrs.field(factory=list[Node], init=False)
    _pending: PendingAwaitables = attrs.field(
        factory=list["tuple[Node, Awaitable[object]]"], init=False
    )
    _sizings: dict[Node, Sizing] = attrs.field(factory=dict[Node, Sizing], init=False)
    _waiting: int = attrs.field(default=0, init=False)
    _grouped: list[Node] = attrs.field(factory=list[Node], init=False)
    """The members of KeepWith groups, and the messages with such calls."""

    def run(
        self, children: Children, budget: int
    ) -> Generator[PendingAwaitables, AwaitedResults, Node]:
        """Render a tree and return its root node.

        Raises TreeError for an ill-formed tree, and whatever a component raises.
        """
        root = Node(None, None, HIGHEST_PRIORITY)
        root.budget = budget
        root.fragment = self.fragment
        self.runs.start_render(self.sizer.tokenizer, self.model)
        stack = self._stack
        if self._fill(root, children):
            return root
        try:
            while True:
                while stack:
                    self._enter(stack.pop())
                if not self._waiting:
                    Scopes().bind_groups(self._grouped)
                    return root
                pending, self._pending = self._pending, []
                for node, value, error in (yield pending):
                    self._waiting -= 1
                    self._receive(node, value, error)
        finally:
            close_coroutines(self._pending)

    def sizing(self, node: Node, budget: Callable[[], int] | None = None) -> Sizing:
        """Return the Sizing of the component at a node, with the budget of the node or another one."""
        sizer = self.sizer
        return Sizing(
            budget or partial(sizer.budget_of, node),
            sizer.tokenizer,
            self.model,
            prune_step=self.prune_step,
            count_message=sizer.count_message,
            memory=sizer.memory,
            find=partial(find_provided, node),
        )

    def _enter(self, node: Node) -> None:
        element = node.element
        if element is None:
            return
        # at powers of two, which is linear in the depth
        if node.depth >= _DEEP and node.depth & (node.depth - 1) == 0:
            _refuse_cycle(node)
        try:
            children = self._open(node, element)
            if children is None or not self._fill(node, children):
                return
        except Exception as error:
            _add_path(error, node)
            raise
        self._complete(node)

    def _open(self, node: Node, element: PromptElement) -> Children | None:
        """Return the children of an element, or None if a component or an Expandable has to be awaited."""
        children = open_node(self.sizer, node, element)
        if type(element).render is not PromptElement.render:
            return self._run_component(node, element)
        if isinstance(element, Rounds):
            self._add_rounds(node, element)
        return self._run_expandable(node, element) if isinstance(element, Expandable) else children

    def _run_expandable(self, node: Node, element: Expandable) -> Children | None:
        """Write an Expandable with its share now. It is written again when everything else is rendered."""
        self.expandables.append((node, element))
        sizing = self.sizing(node)
        value = element.value(sizing)
        if inspect.isawaitable(value):
            self._start(node, value, sizing)
            return None
        write_expandable(node, value)
        return ()

    def _run_component(self, node: Node, element: PromptElement) -> Children | None:
        """Return the children that a component rendered, now or before, or None if they are awaited."""
        node.component_depth += 1
        if node.component_depth > _MAX_COMPONENT_DEPTH:
            raise TreeError(
                f"components are nested more than {_MAX_COMPONENT_DEPTH:,} deep: one of them probably renders itself.",
                path=format_path(node),
            )
        budget = partial(self.sizer.budget_of, node)
        find = partial(find_provided, node)
        run = self.cache.take(element, budget, find) or self.runs.take(element, budget, find)
        if run is not None:
            return run.children
        sizing = self.sizing(node)
        if self.seconds is not None:
            self.seconds[node] = -perf_counter()
        result = element.render(sizing)
        if inspect.isawaitable(result):
            self._start(node, result, sizing)
            return None  # what was awaited is never kept as pure: it was loaded
        run = self._read_run(node, element, result, sizing)
        if type(element).__pure__:
            self.cache.store(run)
        return run.children

    def _read_run(
        self, node: Node, element: PromptElement, result: object, sizing: Sizing
    ) -> ComponentRun:
        if self.seconds is not None:
            self.seconds[node] += perf_counter()
        run = ComponentRun(element, flatten(result, type(element).__name__), sizing)
        self.runs.store(run)
        return run

    def _add_rounds(self, node: Node, element: Rounds) -> None:
        """Append the items of the rounds of a recorded conversation to the items of a node.

        Renders share an item by the identity of its round.
        """
        cached = {} if node.in_fallback else self.cache.message_items
        items = [
            cached.get(id(each)) or self._add_round(each, cached, node, is_shown=element.is_shown)
            for each in element.rounds
        ]
        node.items += items
        if not node.in_fallback:
            self.message_items += items

    def _add_round(
        self,
        messages: Message | Sequence[Message],
        cached: dict[int, MessageItem],
        node: Node,
        *,
        is_shown: bool,
    ) -> MessageItem:
        """Build the item of a round, and cache it by what it holds: the message that the round is, or a tuple of messages."""
        sources = (messages,) if isinstance(messages, Message) else tuple(messages)
        shown = sources if is_shown else tuple(filter(None, map(show_message, sources)))
        item = cached[id(messages if messages is sources[0] else sources)] = MessageItem(
            None,
            sources[0].role,
            "",
            HIGHEST_PRIORITY,
            None,
            self.sizer.find_tokens(shown),
            shown,
            sources,
            node.in_fallback,
        )
        return item

    def _start(self, node: Node, awaitable: Awaitable[object], sizing: Sizing) -> None:
        """Schedule an awaitable. Its result is passed to `_receive`."""
        self._pending.append((node, awaitable))
        self._sizings[node] = sizing
        self._waiting += 1

    def _receive(self, node: Node, value: object, error: BaseException | None) -> None:
        element = node.element
        sizing = self._sizings.pop(node)
        if error is not None or element is None:
            _add_path(error or RuntimeError("a result without an element"), node)
            raise error or RuntimeError
        try:
            if isinstance(element, Expandable):
                write_expandable(node, value)
                filled = True
            else:
                filled = self._fill(node, self._read_run(node, element, value, sizing).children)
        except Exception as raised:
            _add_path(raised, node)
            raise
        if filled:
            self._complete(node)

    def _fill(self, node: Node, children: Children) -> bool:  # noqa: C901, PLR0912, PLR0915  # one pass over children, of which a prompt can have very many
        """Build the items of a node, and schedule the nodes among them for rendering.

        Return True if none is a node.
        """
        items = node.items
        find_cached = self.cache.message_items.get
        message_items = self.message_items
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
                    raise TreeError(_describe_outside(child), path=format_path(node))
                items.append(
                    Leaf(
                        node,
                        child,
                        node.text_priority,
                        STARTS_LINE_NEVER if items else STARTS_LINE_FIRST,
                    )
                )
                continue
            cached = find_cached(id(child))
            if cached is not None and cached.element is child and message is None:
                items.append(cached)
                message_items.append(cached)
                plain += 1
                continue
            kind = type(child)
            role = ROLES.get(kind)
            if (
                role is not None
                and role != "tool"
                and message is None
                and isinstance(child, MessageElement)
                and (built := build_message_item(child, role, node)) is not None
            ):
                self.cache.message_items[id(child)] = built
                items.append(built)
                message_items.append(built)
                plain += 1
            elif isinstance(child, ATTACHED):
                self._attach(node, child)
            elif kind in LEAF_ELEMENTS and (leaf := build_leaf(node, child)) is not None:
                if message is None and not node.fragment:
                    raise TreeError(_describe_outside(type(child).__name__), path=format_path(node))
                items.append(leaf)
                plain += 1
            else:
                inner: Node | None = self._build_node(child, node)
                grow = _DEFAULT_GROW if child.flex_grow is None else child.flex_grow
                members = groups.setdefault(grow, [])
                while inner is not None:
                    members.append(inner)
                    inner = inner.fallback
        node.removed_at = [NEVER_REMOVED] * len(items)
        if plain:
            node.run = build_run(node)
        if not groups:
            return True
        if plain and _DEFAULT_GROW not in groups:
            groups[_DEFAULT_GROW] = []
        ordered = [
            FlexGroup(nodes, plain if grow == _DEFAULT_GROW else 0, grow, unfinished=len(nodes))
            for grow, nodes in sorted(groups.items(), key=lambda item: item[0], reverse=True)
        ]
        node.layout = Layout(ordered)
        for index, group in enumerate(ordered):
            for member in group.nodes:
                member.group_index = index
        self._schedule(ordered)
        return False

    def _build_node(self, element: PromptElement, parent: Node) -> Node:
        """Build the node of an element, and those of its fallback and of what that falls back to."""
        node = replaced = build_node(element, parent)
        prepare_node(node, element)
        if isinstance(element, KeepWith | AssistantMessage):
            self._grouped.append(node)
        while (value := read_fallback(element, replaced)) is not None:
            element = value
            fallback = Node(element, parent, node.priority)
            fallback.replaces = replaced
            fallback.in_fallback = fallback.in_prioritized = True
            fallback.activated_at = NEVER_REMOVED
            fallback.label = f"fallback[{replaced.position}]"
            parent.append_node(fallback)
            replaced.fallback = replaced = fallback
        return node

    def _attach(self, node: Node, element: Metadata | Reference | CacheBreakpoint) -> None:
        """Attach metadata, a reference or a cache breakpoint to a node."""
        match element:
            case Metadata():
                node.metadata = [*(node.metadata or ()), (element.value, element.local)]
            case Reference():
                node.references = [*(node.references or ()), element]
            case CacheBreakpoint() if node.role is None:
                raise TreeError(
                    "a CacheBreakpoint must be a direct child of a message: move it into one.",
                    path=format_path(node),
                )
            case CacheBreakpoint():
                node.items.append(
                    Leaf(
                        node,
                        "",
                        HIGHEST_PRIORITY,
                        STARTS_LINE_NEVER,
                        part=CacheBreakpointPart(kind=element.kind, ttl=element.ttl),
                        element=element,
                    )
                )

    def _schedule(self, groups: Sequence[FlexGroup]) -> bool:
        """Schedule the nodes of the first flex group that has any. Return whether there is one."""
        nodes = next((group.nodes for group in groups if group.nodes), ())
        self._stack.extend(reversed(nodes))
        return bool(nodes)

    def _complete(self, node: Node) -> None:
        """Close a node whose subtree is rendered and each ancestor that this completes, then schedule the next flex group."""
        while True:
            alternative = close_node(self.sizer, node)
            if alternative is not None:
                if self._fill(node, alternative):
                    continue
                return
            parent = node.parent
            if parent is None or parent.layout is None:
                return
            group = parent.layout.groups[node.group_index]
            group.unfinished -= 1
            if group.unfinished or self._schedule(parent.layout.groups[node.group_index + 1 :]):
                return
            node = parent


def _refuse_cycle(node: Node) -> None:
    """Raise TreeError if an element contains itself.

    Below a component that ran in between, the same element may be meant: its content depends on the
    component.
    """
    # a component that is inside itself has not run at this node yet
    chain = [above for above in iter_upwards(node.parent) if above.element is not None]
    outer: dict[tuple[int, int], Node] = {}
    for each in reversed(chain):
        first = outer.setdefault((id(each.element), each.component_depth), each)
        if first is not each:
            raise TreeError(
                f"{type(each.element).__name__} contains itself, again at {format_path(each)}: take it out of its own children and props.",
                path=format_path(first),
            )


def _describe_outside(content: str) -> str:
    return f"{clip(content, _SHOWN)!r} is outside a message: put it into a SystemMessage, UserMessage, AssistantMessage or ToolMessage."


def _add_path(error: BaseException, node: Node) -> None:
    """Add the path of an element to an error that it raised: to a TreeError as `path`, else as a note."""
    path = format_path(node)
    if isinstance(error, TreeError):
        if not error.path:
            error.locate(path)
    elif not any(note.startswith("in element ") for note in getattr(error, "__notes__", ())):
        error.add_note(f"in element {path}")


def grow_expandables(
    expansion: Expansion, root: Node, limit: int
) -> Generator[PendingAwaitables, AwaitedResults, bool]:
    """Render the Expandables below a node again with more room, in render order, until `limit` tokens are used.

    Return whether any was written.

    Raises what an Expandable raises, and BadChildError if its value is not a string.
    """
    expandables = [each for each in expansion.expandables if _is_alive_below(each[0], root)]
    if not expandables:
        return False
    sizer = expansion.sizer
    used = measure(root, sizer)
    grown = False
    for node, element in expandables:
        if used >= limit:
            break
        size = sizer.tokens_used(node)  # what it reported, at most its share unless it always stays
        between = takewhile(lambda above: above is not root, iter_upwards(node.parent))
        room = min(
            [
                limit - used,
                *(
                    above.limit - measure(above, sizer)
                    for above in between
                    if above.limit is not None
                ),
            ]
        )
        if room <= 0:
            continue
        try:
            value: object = element.value(expansion.sizing(node, partial(int, room + size)))
            if inspect.isawaitable(value):
                ((_, value, failure),) = yield [(node, value)]
                if failure is not None:
                    raise failure  # noqa: TRY301  # handled like an error that `value` raises itself
            write_expandable(node, value)
        except Exception as error:
            _add_path(error, node)
            raise
        used += min(room + size, measure(node, sizer)) - size
        grown = True
    return grown


def _is_alive_below(node: Node, root: Node) -> bool:
    """Return whether a node is alive below another."""
    return all(
        each.parent is not None
        and not each.in_fallback
        # not in an alternative that was not kept
        and each.parent.items[each.position : each.position + 1] == [each]
        and each.parent.removed_at[each.position] == NEVER_REMOVED
        for each in takewhile(lambda above: above is not root, iter_upwards(node))
    )


@attrs.define(eq=False)
class Scopes:
    """Finds the component that wrote each node of a tree. Visits each ancestor of a member once.

    A component writes what its `render` returns, but not what it was given: the elements among its
    children and props were written where it was used. The plain value of a KeepWith group belongs
    to the component that wrote the member, so that two instances of a component have groups of
    their own. A group of `KeepWith.group()` is an object, which is the same group wherever it is.
    """

    _writers: dict[Node, Node | None] = attrs.field(factory=dict[Node, "Node | None"], init=False)
    _given: dict[Node, frozenset[int]] = attrs.field(factory=dict[Node, frozenset[int]], init=False)

    def bind_groups(self, nodes: Iterable[Node]) -> None:
        """Replace the groups of KeepWith members and of tool calls by those of the components that wrote them."""
        for node in nodes:
            match node.element:
                case KeepWith(key=key):
                    node.keep_groups = (self._bind(node, key),)
                case AssistantMessage(keep_with=groups):
                    node.call_groups = {
                        call: self._bind(node, group) for call, group in groups.items()
                    }
                case _:
                    pass

    def _bind(self, node: Node, group: Hashable) -> Hashable:
        """Return a KeepWith group, a plain value with the component that it belongs to (None: the prompt itself wrote it)."""
        return group if isinstance(group, KeepGroup) else (self._find_writer(node), group)

    def _find_writer(self, node: Node) -> Node | None:
        """Return the component whose `render` wrote the element of a node, or None if none did."""
        for each in reversed(
            list(takewhile(lambda above: above not in self._writers, iter_upwards(node)))
        ):
            parent = each.parent
            around = parent if parent is None or _is_component(parent) else self._writers[parent]
            self._writers[each] = self._find_outside(around, each.element)
        return self._writers[node]

    def _find_outside(self, writer: Node | None, element: PromptElement | None) -> Node | None:
        """Return the innermost component, from `writer` outwards, that was not given the element."""
        while writer is not None and id(element) in self._list_given(writer):
            writer = self._writers[writer]
        return writer

    def _list_given(self, component: Node) -> frozenset[int]:
        """Return the ids of the elements among the children and props of a component."""
        if component not in self._given:
            element = component.element
            fields = type(element).__attrs_attrs__ if element is not None else ()
            self._given[component] = frozenset(
                id(value)
                for value in _iter_items(getattr(element, field.name) for field in fields)
                if isinstance(value, PromptElement)
            )
        return self._given[component]


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
    return next(
        (
            element.value
            for above in iter_upwards(node)
            if isinstance(element := above.element, Provided) and isinstance(element.value, kind)
        ),
        None,
    )
