"""The render tree: nodes, leaves, message items and runs of these, with the state that the stages of a render keep on them.

The tree is mutable and private to `promptkit.rendering`. Pruning removes nothing from the lists of
items. Instead, `removed_at[i]` of a node is the step of the removal order that removes item i.

A state is a number of steps. In state s the first s steps have been taken. An item is alive in
state s if its `removed_at` is at least s. A fallback must also have been activated: its
`activated_at` is less than s.

Nothing else depends on a message item, so the order in which those of a container are removed, its
run, is known before anything is removed. The removal order takes the entries of a run one after the
other, each as one step, without looking at them again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, zip_longest
from typing import Final, NamedTuple, TypeAlias, TypeGuard

import attrs

from promptkit.elements.builtin import MessageElement, Reference
from promptkit.elements.element import Children, PromptElement
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Role,
    ToolCall,
)

HIGHEST_PRIORITY = 2**53 - 1
"""The priority of an element without one: JavaScript's largest safe integer, as in prompt-tsx."""

NEVER_REMOVED = 1 << 60
"""The `removed_at` of an item that no step removes, and the `activated_at` of a fallback that no
step activates."""


def read_given_priority(priority: float) -> float | None:
    """Return the priority as an element is given it: None for the highest."""
    return None if priority >= HIGHEST_PRIORITY else priority


def format_priority(priority: float | None) -> str:
    """Format a priority for a reader: `lowest` below that of any element, `highest` for None."""
    if priority is None:
        return "highest"
    return "lowest" if priority < -HIGHEST_PRIORITY else f"{priority:g}"


# When a leaf starts on a new line.
STARTS_LINE_NEVER = 0
STARTS_LINE_ALWAYS = 1
STARTS_LINE_FIRST = 2  # unless text of an outer container stands directly before it


@attrs.define(eq=False)
class MessageItem:
    """Messages that are kept or removed as a whole: one message with a single text, or a round of a recorded conversation.

    Renders share it, so it holds no state of a single render.
    """

    element: MessageElement | None
    role: Role
    text: str
    """The text of the message; empty for a round."""
    priority: float
    """The priority of the element. That of a round is in its run."""
    name: str | None = None
    tokens: int = -1  # not counted yet
    messages: tuple[Message, ...] | None = None  # not built yet
    sources: tuple[Message, ...] = ()
    """The recorded messages of a round, whether they are shown or blank."""
    is_loose: bool = False  # in a fallback, which leaves again when what it replaces comes back

    def list_texts(self) -> list[str]:
        """List the texts of the messages."""
        if not self.sources:
            return [self.text]
        return [
            part
            for message in self.messages or ()
            for part in message.content
            if isinstance(part, str)
        ]


@attrs.define(eq=False)
class Leaf:
    """A text, or a part that is not text (an image, a document, an opaque part, a cache breakpoint)."""

    parent: Node
    text: str
    priority: float
    starts_line: int
    part: ImagePart | DocumentPart | OpaquePart | CacheBreakpointPart | None = None
    element: PromptElement | None = None
    position: int = attrs.field(init=False)
    is_empty: bool = attrs.field(init=False)
    # A leaf of an own element (TextChunk, Text) is compared like a container that holds this one
    # leaf.
    is_element: bool = attrs.field(init=False)
    takes_share: bool = False  # a part that is a member of its parent's flex group
    # written by the element around it (a Tag), and removed together with it
    is_frame: bool = False
    # always starts a line, at a safe cut; None until computed
    starts_at_safe_cut: bool | None = None
    # the first and the last safe cut inside; None until computed
    safe_cuts: tuple[int, int] | None = None
    ends_line: bool = False  # what follows starts on a new line
    index: int = 0  # among the leaves of the message
    previous: Leaf | None = None  # the living neighbours in the message
    following: Leaf | None = None

    def __attrs_post_init__(self) -> None:
        self.position = len(self.parent.items)
        self.is_empty = self.part is None and not self.text
        self.is_element = self.element is not None and self.part is None


class Node:
    """A container: a message, or anything above or inside messages.

    Defaults are class attributes, so that creating a node writes few attributes.
    """

    # Element
    role: Role | None = None
    name: str | None = None
    calls: tuple[ToolCall, ...] = ()
    calls_removed_at: list[int] = []  # noqa: RUF012  # shared by messages without calls; a message with calls has its own list
    call_id: str | None = None
    # of a tool result: the message with the call, and the index of the call
    answered_call: tuple[Node, int] | None = None
    results: list[tuple[int, Node]] = []  # noqa: RUF012  # of a message with calls: (index of the call, tool result)
    passes_priority = False
    atomic = False
    legacy = False
    in_legacy = False
    fragment = False  # not a whole prompt: text may stand outside messages
    required = False
    is_cut = False  # its text was cut to its share of the budget
    is_cut_away = False  # its share holds nothing of its content, or of that of a node in it
    in_fallback = False  # a fallback, or inside one
    # it, or a container around it, has a priority of its own, or is a fallback
    in_prioritized = False
    limit: int | None = None
    reserve = 0  # tokens that stay free
    keep_groups: tuple[Hashable, ...] = ()
    call_groups: Mapping[
        str, Hashable
    ] = {}  # of a message: the KeepWith groups of its tool calls, by their ids
    fallback: Node | None = None
    metadata: list[tuple[object, bool]] | None = None  # (value, local)
    references: list[Reference] | None = None
    label = ""
    run: Run | None = None  # its message items, in the order in which they are removed
    nodes: list[Node] = []  # noqa: RUF012  # the items that are nodes; shared by nodes without any

    # Sizing
    budget: int | None = None
    own_size: int | None = None
    used: int | None = None
    whole = 0  # the tokens that it has, also those above its share; set with `used`
    needed = 0  # the tokens of those parts of it that stay, whatever its share is; set with `used`
    layout: Layout | None = None
    group_index = 0  # of its flex group in the parent's layout
    replaces: Node | None = None  # of a fallback: the node that it replaces, whose share it uses
    # of a First: the children not tried yet, the next one last
    alternatives: list[Children] | None = None
    # whether its rendered subtree has no content; None until an element around it asks
    is_empty: bool | None = None
    depth = 0  # the number of nodes above it
    component_depth = 0  # the number of components around it, itself included

    # Pruning
    activated_at = -2  # of a fallback: the step that activates it, or -1 if a limit did
    pinned = False  # contains something that must stay
    # a message that stays (D11, D13), or inside one: what has no priority of its own is never
    # removed
    keeps_unprioritized = False
    kept_position = -1  # the position of the text message in it that is never removed (D13)
    live_items = 0  # living items with content
    enclosures: Sequence[Enclosure] = ()  # by their literal texts, in written order (D12)
    is_counted = False  # as one of the parent's `live_items`
    index = 0  # among the nodes of the tree, in written order
    last_index = 0  # the index of the last node below it
    token_bound: int | None = None  # a number of tokens that it surely does not exceed
    settled_tokens: int | None = None  # of a limit outside messages: its tokens after it was pruned
    # it and all nodes above it are alive in the current state of the removal order
    is_active = True
    first_leaf_index = 0  # in a message: the number of leaves before it
    leaf_count = 0  # in a message: the number of leaves in it, those of fallbacks included
    # in a message: the leaf in the chain for a container without items
    placeholder: Leaf | None = None
    is_blank = False  # a message without content before anything is removed; a fallback may fill it
    first_leaf: Leaf | None = None  # of a message: its first living leaf
    protected_items = 0  # the number of its items that stand before the last cache breakpoint
    # (priority, position) of its items, a heap; set and cleared by the removal order
    priority_heap: list[tuple[float, int]] | None = None
    exhausted = False
    path_index = -1
    is_unrivalled = False  # while the removal order is below it, no other candidate can precede it

    def __init__(self, element: PromptElement | None, parent: Node | None, priority: float) -> None:
        self.element = element
        self.parent = parent
        self.priority = priority
        self.text_priority = priority  # of its strings
        self.items: list[Item] = []
        self.removed_at: list[int] = []
        self.message: Node | None = None  # itself if it is a message, else the message around it
        self.position = 0
        if parent is not None:
            self.position = len(parent.items)
            self.message = parent.message
            self.depth = parent.depth + 1
            self.fragment = parent.fragment
            self.component_depth = parent.component_depth
            self.in_legacy = parent.legacy or parent.in_legacy
            self.in_prioritized = parent.in_prioritized

    def append_node(self, child: Node) -> None:
        """Add a node as the next item."""
        self.items.append(child)
        if self.nodes:
            self.nodes.append(child)
        else:
            self.nodes = [child]


Item: TypeAlias = MessageItem | Leaf | Node


@attrs.define(eq=False)
class Enclosure:
    """Literal texts of a container, with the children between them: the texts leave with the last of these (D12)."""

    start: int
    """The position of the first text."""
    end: int
    """The position of the last text."""
    living: int
    """The position from which on a living child is searched for."""


def is_literal(item: Item) -> TypeGuard[Leaf]:
    """Return whether an item is literal text directly in an element."""
    return type(item) is Leaf and item.element is None and item.part is None


@attrs.define(eq=False)
class FlexGroup:
    """The members of one container with the same `flex_grow`."""

    nodes: list[Node]
    plain_members: int
    """The number of members that are not nodes. Each of them has a `flex_basis` of 1."""
    grow: float
    """The `flex_grow`, infinite for members without one."""
    unfinished: int
    """The number of nodes that are not rendered yet."""
    plain_share: int = 0
    shared: bool = False


class Layout:
    """The flex groups of one container, in the order in which they are rendered.

    The first `settled` groups have known sizes. `remaining` tokens are left for the groups after
    them. `reserves` holds (index of the group, `flex_reserve`) for each member with a reserve.
    """

    __slots__ = ("groups", "remaining", "reserves", "settled")

    def __init__(self, groups: list[FlexGroup]) -> None:
        self.groups = groups
        self.settled = 0
        self.remaining: int | None = None
        self.reserves: list[tuple[int, int | str]] = [
            (index, member.element.flex_reserve)
            for index, group in enumerate(groups)
            for member in group.nodes
            if member.element and member.element.flex_reserve is not None
        ]


Candidate: TypeAlias = "tuple[float, float, float, Node, int]"
"""A removal candidate: (priority, lowest priority of a direct child, written order, parent,
position)."""


def iter_upwards(node: Node | None) -> Iterator[Node]:
    """Yield a node and all nodes above it, the root last."""
    while node is not None:
        yield node
        node = node.parent


def is_below(node: Node, root: Node) -> bool:
    """Return whether a node is another one, or below it."""
    return root.index <= node.index <= root.last_index


def is_item_alive(item: Item, removed_at: int, state: int) -> bool:
    """Return whether an item is alive in a state, apart from what stands above it."""
    return removed_at >= state and not (type(item) is Node and item.activated_at >= state)


def is_node_alive(node: Node, state: int) -> bool:
    """Return whether a node and all nodes above it are alive in a state."""
    while node.parent is not None:
        if not is_item_alive(node, node.parent.removed_at[node.position], state):
            return False
        node = node.parent
    return True


MARKER: Final = -1
"""The entry of an order that removes the marker, in place of a position."""


class Run:
    """The message items of one container in their removal order.

    The first entries, as many as there are `steps`, are removed.

    With a marker, a message tells how many recorded messages are removed. It stands where the last
    one was removed. It leaves before the last item, which it must not cost its place, takes the
    place of that item, and is then removed itself.
    """

    def __init__(
        self,
        node: Node,
        order: Sequence[int],
        priorities: Sequence[float],
        *,
        marker: Callable[[int], str] | None = None,
        find_labels: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """Create a run of which nothing is removed.

        Args:
            node: The container.
            order: The positions of its items that may be removed, the first to be removed first.
            priorities: Their priorities, ascending.
            marker: Returns the text of the marker for a number of removed messages.
            find_labels: Returns the labels of all items of the node, which are rounds of a recorded
                conversation.
        """
        self.node = node
        self.order = list(order)
        self.priorities = list(priorities)
        self.marker = marker
        self.find_labels = find_labels
        self.dropped = 0
        self.unspent = 0
        """The tokens that stay free in a state that shows one of the first `dropped` entries."""
        self.steps: list[int] = []
        """For each removed entry, the step that removes it."""
        self._markers: dict[int, MessageItem] = {}
        if marker is not None and order:
            self.order.append(MARKER)
            self.priorities.append(self.priorities[-1])
            if len(order) > 1:
                self.order.insert(-2, MARKER)
                self.priorities.insert(-2, self.priorities[-3])

    @property
    def is_recorded(self) -> bool:
        """True if the items are the rounds of a recorded conversation.

        Then the node has no others.
        """
        return self.find_labels is not None

    def find_priority(self, position: int) -> float:
        """Return the priority of an item of the node; the highest if it is never removed."""
        return self._priorities_by_position.get(position, HIGHEST_PRIORITY)

    @cached_property
    def _priorities_by_position(self) -> dict[int, float]:
        return dict(zip(self.order, self.priorities, strict=True))

    @cached_property
    def _counts(self) -> list[int]:
        """The number of recorded messages that are removed with the first entries of the order."""
        sizes = [len(item.sources) for item in self.node.items if isinstance(item, MessageItem)]
        sizes.append(0)  # of the marker, whose place in the order is the last position
        return list(accumulate(map(sizes.__getitem__, self.order), initial=0))

    def find_marker(self, state: int) -> tuple[int, MessageItem] | None:
        """Return the position and the item of the marker in a state, or None if there is none."""
        removed = bisect_left(self.steps, state)
        if self.marker is None or not removed or self.order[removed - 1] == MARKER:
            return None
        return self.order[removed - 1], self.build_marker(self._counts[removed])

    def find_unspent(self, state: int) -> int:
        """Return the tokens that stay free in a state."""
        return self.unspent if self.unspent and bisect_left(self.steps, state) < self.dropped else 0

    def list_markers(self) -> Iterator[tuple[int, MessageItem, int, int | None]]:
        """Yield (position, item, first state, last state) of each marker.

        None: it is never removed.
        """
        for index, (since, until) in enumerate(zip_longest(self.steps, self.steps[1:])):
            if (
                self.marker is not None
                and self.order[index] != MARKER
                and (until is None or since < until)
            ):
                yield (
                    self.order[index],
                    self.build_marker(self._counts[index + 1]),
                    since + 1,
                    until,
                )

    def build_marker(self, count: int) -> MessageItem:
        """Build the message of the marker for a number of removed messages."""
        known = self._markers.get(count)
        if known is None:
            text = "" if self.marker is None else self.marker(count)
            known = self._markers[count] = MessageItem(None, "user", text, HIGHEST_PRIORITY)
            known.messages = (Message(role="user", content=(text,)),)
        return known

    def keep(self, position: int) -> None:
        """Take an item that has not been removed out of the order: it is never removed."""
        # such an item is among the last
        index = len(self.order) - 1 - self.order[::-1].index(position)
        del self.order[index], self.priorities[index]

    def settle(self, state: int) -> None:
        """Make the entries final that are removed in a state, which limits removed, and put the others back."""
        self.steps = [-1] * bisect_left(self.steps, state)

    def take(self, step: int) -> EntryTaken:
        """Take the next entry by a step that removes more."""
        self.steps.append(step)
        return EntryTaken(self)

    def find_item(self, entry: int) -> MessageItem | None:
        """Return the item that an entry of the order removes; None for a marker."""
        position = self.order[entry]
        item = None if position == MARKER else self.node.items[position]
        return item if isinstance(item, MessageItem) else None

    def mark(self, entry: int, step: int) -> None:
        """Set the step that removes the item of an entry."""
        position = self.order[entry]
        if position != MARKER:
            self.node.removed_at[position] = step

    def count_item(self, entry: int, sign: int) -> None:
        """Count the item of an entry as content of its node again, or (sign -1) no longer."""
        item = self.find_item(entry)
        if item is not None and item.messages != ():
            self.node.live_items += sign

    def take_back(self, entry: int) -> None:
        """Put the item of an entry back. It is the one that was removed last."""
        self.steps.pop()
        self.mark(entry, NEVER_REMOVED)
        self.count_item(entry, 1)


class EntryTaken(NamedTuple):
    """The change of a step that takes the next entry of a run and removes more: the container, of which it was the last."""

    run: Run


RunStep: TypeAlias = "tuple[Run, int]"
"""A step of the removal order: the entry of a run, by its index in the order of the run, is removed."""


def build_run(node: Node) -> Run | None:
    """Build the run of the message items of a node, ordered by priority. None: it has none."""
    places = [position for position, item in enumerate(node.items) if type(item) is MessageItem]
    if not places:
        return None
    found = [item.priority for item in node.items]
    places.sort(key=found.__getitem__)
    return Run(node, places, [found[position] for position in places])


def find_marker(node: Node, state: int) -> tuple[int, MessageItem] | None:
    """Return the position and the item of the marker of a node in a state, or None if it has none."""
    run = node.run
    return None if run is None or run.marker is None else run.find_marker(state)
