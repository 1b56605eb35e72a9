"""The render tree: nodes, leaves and text messages, with the state that the stages of a render keep on them.

The tree is mutable and private to `promptkit.rendering`. Pruning removes nothing from the lists of items. Instead,
`removed_at[i]` of a node is the step of the removal order that removes item i.

A state is a number of steps. In state s the first s steps have been taken. An item is alive in state s if its `removed_at` is at
least s. A fallback must also have been activated: its `activated_at` is less than s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from promptkit.elements.layout import Chunk, Group, KeepWith

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from promptkit.element import Children, PromptElement
    from promptkit.elements.chat import MessageElement
    from promptkit.elements.media import Reference
    from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, Message, OpaquePart, Role, ToolCall

__all__ = [
    "HIGHEST_PRIORITY",
    "MAX_PATH_STEPS",
    "NEVER_REMOVED",
    "PATH_SEPARATOR",
    "STARTS_LINE_ALWAYS",
    "STARTS_LINE_FIRST",
    "STARTS_LINE_NEVER",
    "Candidate",
    "CandidateSource",
    "FlexGroup",
    "Item",
    "Layout",
    "Leaf",
    "Node",
    "Path",
    "Paths",
    "TextMessage",
    "format_label",
    "format_omitted_steps",
    "format_path",
    "is_item_alive",
    "is_node_alive",
    "passes_on",
    "read_given_priority",
]

HIGHEST_PRIORITY = 2**53 - 1
"""The priority of an element without one: JavaScript's largest safe integer, as in prompt-tsx."""

NEVER_REMOVED = 1 << 60
"""The `removed_at` of an item that no step removes, and the `activated_at` of a fallback that no step activates."""


def read_given_priority(priority: float) -> float | None:
    """Return the priority as an element is given it: None for the highest."""
    return None if priority >= HIGHEST_PRIORITY else priority


# When a leaf starts on a new line.
STARTS_LINE_NEVER = 0
STARTS_LINE_ALWAYS = 1
STARTS_LINE_FIRST = 2  # unless text of an outer container stands directly before it


class TextMessage:
    """A message whose content is a single text: the common case in long conversations.

    Renders share text messages, so a text message holds no state of a single render.
    """

    __slots__ = ("element", "message", "name", "priority", "role", "text", "tokens")

    def __init__(self, element: MessageElement, role: Role, text: str, priority: float) -> None:
        self.element = element
        self.role: Role = role
        self.name = element.name
        self.text = text
        self.priority = priority
        self.tokens = -1  # not counted yet
        self.message: Message | None = None  # not built yet


class Leaf:
    """A text, or a part that is not text (an image, a document, an opaque part, a cache breakpoint)."""

    __slots__ = (
        "element",
        "ends_line",
        "following",
        "index",
        "is_element",
        "is_empty",
        "is_frame",
        "parent",
        "part",
        "position",
        "previous",
        "priority",
        "safe_cuts",
        "starts_at_safe_cut",
        "starts_line",
        "takes_share",
        "text",
    )

    def __init__(  # noqa: PLR0913  # a plain record: each argument is one attribute
        self,
        parent: Node,
        text: str,
        priority: float,
        starts_line: int,
        *,
        part: ImagePart | DocumentPart | OpaquePart | CacheBreakpointPart | None = None,
        element: PromptElement | None = None,
    ) -> None:
        self.parent = parent
        self.position = len(parent.items)
        self.text = text
        self.part = part
        self.is_empty = part is None and not text
        self.priority = priority
        self.starts_line = starts_line
        self.element = element
        # A leaf of an own element (TextChunk, Text) is compared like a container that holds this one leaf.
        self.is_element = element is not None and part is None
        self.takes_share = False  # a part that is a member of its parent's flex group
        self.is_frame = False  # written by the element around it (a Tag), and removed together with it
        self.starts_at_safe_cut: bool | None = None  # always starts a line, at a safe cut; None until computed
        self.safe_cuts: tuple[int, int] | None = None  # the first and the last safe cut inside; None until computed
        self.ends_line = False  # what follows starts on a new line
        self.index = 0  # among the leaves of the message
        self.previous: Leaf | None = None  # the living neighbours in the message
        self.following: Leaf | None = None


class Node:
    """A container: a message, or anything above or inside messages.

    Defaults are class attributes, so that creating a node writes only the attributes that differ.
    """

    # Element
    role: Role | None = None
    name: str | None = None
    calls: tuple[ToolCall, ...] = ()
    calls_removed_at: list[int] = []  # noqa: RUF012  # shared by messages without calls; a message with calls has its own list
    call_id: str | None = None
    answered_call: tuple[Node, int] | None = None  # of a tool result: the message with the call, and the index of the call
    results: list[tuple[int, Node]] = []  # noqa: RUF012  # of a message with calls: (index of the call, tool result)
    passes_priority = False
    atomic = False
    legacy = False
    in_legacy = False
    fragment = False  # not a whole prompt: text may stand outside messages
    required = False
    is_expandable = False
    in_fallback = False  # a fallback, or inside one
    in_prioritized = False  # it, or a container around it, has a priority of its own, or is a fallback
    limit: int | None = None
    reserve = 0  # tokens that stay free
    keep_groups: tuple[Hashable, ...] = ()
    fallback: Node | None = None
    metadata: list[tuple[object, bool]] | None = None  # (value, local)
    references: list[Reference] | None = None
    label = ""
    nodes: list[Node] = []  # noqa: RUF012  # the items that are nodes; shared by nodes without any

    # Sizing
    budget: int | None = None
    own_size: int | None = None
    used: int | None = None
    layout: Layout | None = None
    group_index = 0  # of its flex group in the parent's layout
    replaces: Node | None = None  # of a fallback: the node that it replaces, whose share it uses
    alternatives: list[Children] | None = None  # of a First: the children not tried yet, the next one last
    place_id = -1  # of its place in the tree, for the render cache
    is_empty: bool | None = None  # whether its rendered subtree has no content; None until an element around it asks
    depth = 0  # the number of nodes above it
    component_depth = 0  # the number of components around it, itself included

    # Pruning
    activated_at = -2  # of a fallback: the step that activates it, or -1 if a limit did
    pinned = False  # contains something that must stay
    keeps_unprioritized = False  # a SystemMessage that stays, or inside one: what has no priority of its own is never removed
    live_items = 0  # living items with content
    is_counted = False  # as one of the parent's `live_items`
    index = 0  # among the nodes of the tree, in written order
    last_index = 0  # the index of the last node below it
    token_bound: int | None = None  # a number of tokens that it surely does not exceed
    settled_tokens: int | None = None  # of a limit outside messages: its tokens after it was pruned
    is_active = True  # it and all nodes above it are alive in the current state of the removal order
    first_leaf_index = 0  # in a message: the number of leaves before it
    leaf_count = 0  # in a message: the number of leaves in it, those of fallbacks included
    placeholder: Leaf | None = None  # in a message: the leaf in the chain for a container without items
    is_blank = False  # a message without content before anything is removed; a fallback may fill it
    first_leaf: Leaf | None = None  # of a message: its first living leaf
    protected_items = 0  # the number of its items that stand before the last cache breakpoint
    candidate_source: CandidateSource | None = None  # its removal candidates; set and cleared by the removal order
    priority_heap: list[tuple[float, int]] | None = None  # (priority, position) of its items, a heap; set and cleared by the removal order
    exhausted = False
    path_index = -1

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
            if parent.fragment:
                self.fragment = True
            if parent.component_depth:
                self.component_depth = parent.component_depth
            if parent.legacy or parent.in_legacy:
                self.in_legacy = True
            if parent.in_prioritized:
                self.in_prioritized = True

    def append_node(self, child: Node) -> None:
        """Add a node as the next item."""
        self.items.append(child)
        if self.nodes:
            self.nodes.append(child)
        else:
            self.nodes = [child]


Item: TypeAlias = TextMessage | Leaf | Node


class FlexGroup:
    """The members of one container with the same `flex_grow`. It is infinite for members without one.

    `plain_members` is the number of members that are not nodes. Each of them has a `flex_basis` of 1.
    """

    __slots__ = ("grow", "nodes", "plain_members", "plain_share", "shared", "unfinished")

    def __init__(self, nodes: list[Node], plain_members: int, grow: float) -> None:
        self.grow = grow
        self.nodes = nodes
        self.plain_members = plain_members
        self.plain_share = 0
        self.shared = False
        self.unfinished = len(nodes)


class Layout:
    """The flex groups of one container, in the order in which they are rendered.

    The first `settled` groups have known sizes. `remaining` tokens are left for the groups after them. `reserves` holds
    (index of the group, `flex_reserve`) for each member with a reserve.
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
"""A removal candidate: (priority, lowest priority of a direct child, written order, parent, position)."""


class CandidateSource(Protocol):
    """The removal candidates of a container, as `promptkit.rendering.removal_order` keeps them."""

    candidates: list[Candidate]
    """Sorted, the lowest first."""
    next_index: int
    """The index of the lowest candidate that has not been removed from the source."""
    changed: list[Candidate]
    """A heap of the candidates whose keys have changed, and of activated fallbacks."""

    def peek(self) -> Candidate | None:
        """Return the lowest living candidate, or None."""
        ...

    def pop(self, candidate: Candidate) -> None:
        """Remove the candidate that `peek` returned."""
        ...

    def has_one_left(self) -> bool:
        """Return whether the candidate of the last `peek` is the only one left."""
        ...

    def add_fallback(self, fallback: Node) -> None:
        """Add the candidates of a fallback that has been activated."""
        ...

    def add_emptied(self, message: Node) -> None:
        """Add the candidate of a message of which only its tool calls are left."""
        ...


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
        if self.steps < MAX_PATH_STEPS:
            return Path((*self.first, label), (), self.steps + 1)
        return Path(self.first, (*self.last, label)[-MAX_PATH_STEPS:], self.steps + 1)

    def __str__(self) -> str:
        missing = self.steps - len(self.first) - len(self.last)
        middle = (format_omitted_steps(missing),) if missing else ()
        return PATH_SEPARATOR.join((*self.first, *middle, *self.last))


class Paths:
    """Formats the paths of many items of one tree, in full and in short. Each step is formatted once."""

    def __init__(self) -> None:
        self._full: dict[Node, Path] = {}
        self._public: dict[Node, Path] = {}
        self._short: dict[Node, Path] = {}
        self._labels: dict[Node, Path] = {}  # the nearest label at or above a node

    def format(self, parent: Node, position: int | None = None) -> str:
        """Format the path of a node, or of the item at `position` in it, with every step."""
        item = parent if position is None else parent.items[position]
        if type(item) is Node:
            return str(self._build_path(item, self._full, _append_step))
        label = [format_label(parent, position)] if position is not None else []
        return PATH_SEPARATOR.join([step for step in (str(self._build_path(parent, self._full, _append_step)), *label) if step])

    def format_public(self, parent: Node, position: int) -> str:
        """Format the path of the item at `position` in a node, without private components."""
        return str(self._build_path(parent, self._public, _append_public_step).append(format_label(parent, position)))

    def shorten(self, parent: Node, position: int | None = None) -> str:
        """Format what receipts call a node, or the item at `position` in it.

        It is the label of the element, behind that of the nearest element around it that has one (`team > turn 1 · reply`), or else its
        path from the innermost element around it that has a label. Of the steps that only group, the path has those that are one of
        several and have several children: of others, a child has the position or none.
        """
        item = parent if position is None else parent.items[position]
        while type(item) is Node and _passes_on(item) and len(item.items) == 1:
            parent, position = item, 0
            item = item.items[0]
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
        return str(self._build_path(place[0], self._short, self._append_short_step).append(_format_short_label(*place)))

    def _qualify(self, label: str, around: Node | None) -> str:
        """Put the nearest label around a labelled element before its label."""
        outer = "" if around is None else str(self._build_path(around, self._labels, _append_label_step))
        return f"{outer}{PATH_SEPARATOR}{label}" if outer not in ("", label) else label

    def _append_short_step(self, path: Path, node: Node) -> Path:
        if node.element is not None and node.element.label:
            return Path().append(self._qualify(node.element.label, node.parent))
        if node.parent is None or (_passes_on(node) and (len(node.parent.items) == 1 or len(node.items) == 1)):
            return path
        return path.append(_format_short_label(node.parent, node.position))

    def _build_path(self, node: Node, known: dict[Node, Path], append: Callable[[Path, Node], Path]) -> Path:
        """Return the path of a node, from the nearest node above it whose path is known."""
        missing: list[Node] = []
        above: Node | None = node
        while above is not None and above not in known:
            missing.append(above)
            above = above.parent
        path = known[above] if above is not None else Path()
        for each in reversed(missing):
            path = known[each] = append(path, each)
        return path


def _append_step(path: Path, node: Node) -> Path:
    return path if node.parent is None else path.append(format_label(node.parent, node.position))


def _append_public_step(path: Path, node: Node) -> Path:
    is_private = node.element is not None and not node.element.label and type(node.element).__name__.startswith("_")
    return path if is_private else _append_step(path, node)


def _append_label_step(path: Path, node: Node) -> Path:
    return Path().append(node.element.label) if node.element is not None and node.element.label else path


def _format_short_label(parent: Node, position: int) -> str:
    """Format the label of an item. An only child of something that is left out has the position of that."""
    item = parent.items[position]
    while len(parent.items) == 1 and parent.parent is not None and _passes_on(parent):
        parent, position = parent.parent, parent.position
    return _format_step(item, position, siblings=len(parent.items))


def _find_labelled_around(node: Node) -> Node | None:
    """Return the group with a label around an only child, which is what the child is called."""
    while len(node.items) == 1 and node.parent is not None and (node.element is None or passes_on(node.element)):
        if node.element is not None and node.element.label:
            return node
        node = node.parent
    return None


def _passes_on(node: Node) -> bool:
    """Return whether a node is a fragment, or an element without a label that receipts need not show."""
    if node.element is None:
        return not node.label
    return not node.element.label and passes_on(node.element)


def passes_on(element: PromptElement) -> bool:
    """Return whether an element only groups its children, or is a private component, so that receipts need not show it."""
    return isinstance(element, Chunk | Group | KeepWith) or type(element).__name__.startswith("_")


def format_omitted_steps(steps: int) -> str:
    """Format the note that replaces the middle of a very long path."""
    return f"… {steps:,} more …"


def format_label(parent: Node, position: int) -> str:
    """Format the last step of an item's path."""
    return _format_step(parent.items[position], position, siblings=len(parent.items))


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
