"""The tree that is pruned: the only mutable thing, private to rendering.

Positions, not pointers, say what is alive: `gone[i]` is the step at which item i of a node is removed. At state k, when the
first k steps of the removal order have been taken, an item is alive if `gone >= k`, and a fallback moreover if `born < k`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable

    from promptkit.element import Children, PromptElement
    from promptkit.elements.media import Reference
    from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, Message, OpaquePart, Role, ToolCall
    from promptkit.rendering.removal_order import CandidateQueue
    from promptkit.rendering.sizing import Layout

__all__ = [
    "STARTS_LINE_ALWAYS",
    "STARTS_LINE_FIRST",
    "HIGHEST_PRIORITY",
    "MAX_PATH_STEPS",
    "STARTS_LINE_NEVER",
    "NEVER_REMOVED",
    "PATH_SEPARATOR",
    "TextMessage",
    "Item",
    "Leaf",
    "Node",
    "is_item_alive",
    "is_node_alive",
    "format_label",
    "format_omitted_steps",
    "format_path",
]

HIGHEST_PRIORITY = 2**53 - 1
"""The priority of what has none: JavaScript's largest safe integer, as in prompt-tsx."""

NEVER_REMOVED = 1 << 60
"""The step of what is never removed."""

# When a leaf starts on a new line.
STARTS_LINE_NEVER = 0
STARTS_LINE_ALWAYS = 1
STARTS_LINE_FIRST = 2  # unless text of the same container stands right before it


class TextMessage:
    """A message that is nothing but one text: most of a long conversation. Shared between renders, so it has no state of one."""

    __slots__ = ("element", "message", "name", "priority", "role", "text", "tokens")

    def __init__(self, element: PromptElement, role: Role, text: str, priority: float) -> None:
        self.element = element
        self.role: Role = role
        self.name = element.name
        self.text = text
        self.priority = priority
        self.tokens = -1  # not counted yet
        self.message: Message | None = None  # not assembled yet


class Leaf:
    """A piece of content: text, or a part that is no text."""

    __slots__ = (
        "starts_line",
        "ends_line",
        "cuts",
        "element",
        "following",
        "is_frame",
        "is_empty",
        "is_element",
        "parent",
        "part",
        "position",
        "previous",
        "priority",
        "index",
        "takes_share",
        "solid",
        "text",
    )

    def __init__(  # noqa: PLR0913  # a record
        self,
        parent: Node,
        text: str,
        priority: float,
        breaks: int,
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
        self.starts_line = breaks
        self.element = element
        # An element of its own (TextChunk, Text) is compared as a container of this one leaf would be.
        self.is_element = element is not None and part is None
        self.takes_share = False  # a part that takes a share of its flex group
        self.is_frame = False  # written by the element around it (a Tag), and gone with it
        self.starts_at_safe_cut: bool | None = None  # always starts a line, at a safe cut; found out when asked
        self.safe_cuts: tuple[int, int] | None = None  # the first and last safe cut inside, likewise
        self.ends_line = False  # what follows starts on a new line
        self.index = 0  # place in the message
        self.previous: Leaf | None = None  # the living neighbours in the message
        self.following: Leaf | None = None


class Node:
    """A container: a message, or anything above or inside messages.

    What most nodes never differ in stands on the class: making a node writes only what is its own.
    """

    # what it is
    role: Role | None = None
    name: str | None = None
    calls: tuple[ToolCall, ...] = ()
    calls_removed_at: list[int] = []  # noqa: RUF012  # of messages without calls; an own list where there are any
    call_id: str | None = None
    answered_call: tuple[Node, int] | None = None  # of a result: the message that asked, and the index of its call
    results: list[tuple[int, Node]] = []  # noqa: RUF012  # of a message with calls: index of the call, result
    passes_priority = False
    atomic = False
    legacy = False
    in_legacy = False
    fragment = False  # of no whole prompt: text may stand outside messages
    required = False
    is_expandable = False
    in_fallback = False  # a fallback, or inside one
    limit: int | None = None
    reserve = 0  # tokens that stay free
    keep_groups: tuple[Hashable, ...] = ()
    fallback: Node | None = None
    metadata: list[tuple[object, bool]] | None = None
    references: list[Reference] | None = None
    label = ""
    nodes: list[Node] = []  # noqa: RUF012  # those of the items that are nodes; an own list where there are any

    # sizing
    budget: int | None = None
    own_size: int | None = None
    used: int | None = None
    layout: Layout | None = None
    group_index = 0  # index of its group in the parent's layout
    replaces: Node | None = None  # whose share it uses (a fallback: that of what it replaces)
    alternatives: list[Children] | None = None
    place_id = -1  # its place, for the memory
    component_depth = 0  # components around it, itself included

    # pruning
    activated_at = -2  # of a fallback: the step that raises it, or -1 if a limit did
    pinned = False  # holds something that must stay
    live_items = 0  # living items that are not empty
    is_counted = False  # as one of those of the parent
    index = 0  # place among the tree's nodes, in written order
    last_index = 0  # the rank of the last node below it
    token_bound: int | None = None  # tokens that it surely does not exceed
    is_active = True  # it and all above it are alive, in the forward run
    first_leaf_index = 0  # in a message: the number of leaves before it
    leaf_count = 0  # the number of leaves in it, those of fallbacks included
    placeholder: Leaf | None = None  # in a message: stands in the chain for a container without items
    is_blank = False  # a message that shows nothing
    first_leaf: Leaf | None = None  # of the message's living leaves
    protected_items = 0  # items before it stand before a cache boundary
    scope: CandidateQueue | None = None  # candidates, owned by the removal order
    priority_heap: list[tuple[float, int]] | None = None  # a heap of the items' priorities, likewise
    exhausted = False
    path_index = -1

    def __init__(self, element: PromptElement | None, parent: Node | None, priority: float) -> None:
        self.element = element
        self.parent = parent
        self.priority = priority
        self.text_priority = priority  # of the strings that stand in it
        self.items: list[Item] = []
        self.removed_at: list[int] = []
        self.message: Node | None = None  # the message that it is, or is in
        self.position = 0
        if parent is not None:
            self.position = len(parent.items)
            self.message = parent.message
            if parent.fragment:
                self.fragment = True
            if parent.component_depth:
                self.component_depth = parent.component_depth
            if parent.legacy or parent.in_legacy:
                self.in_legacy = True

    def adopt(self, child: Node) -> None:
        """Take a node as the next item."""
        self.items.append(child)
        if self.nodes:
            self.nodes.append(child)
        else:
            self.nodes = [child]


Item: TypeAlias = TextMessage | Leaf | Node


def is_item_alive(item: Item, gone: int, k: int) -> bool:
    """Whether an item is there once k steps have been taken."""
    return gone >= k and not (type(item) is Node and item.activated_at >= k)


def is_node_alive(node: Node, k: int) -> bool:
    """Whether a node and all above it are there once k steps have been taken."""
    while node.parent is not None:
        if not is_item_alive(node, node.parent.removed_at[node.position], k):
            return False
        node = node.parent
    return True


def format_path(parent: Node, position: int | None = None) -> str:
    """`AgentPrompt > History > UserMessage[12]`: the path of a node, or of one of its items; the middle of a very long one left out."""
    last: list[str] = []
    if position is not None:
        item = parent.items[position]
        if type(item) is not Node:
            last.append(format_label(parent, position))
        else:
            parent = item
    nodes: list[Node] = []
    node = parent
    while node.parent is not None:
        nodes.append(node)
        node = node.parent
    nodes.reverse()
    shown = nodes if len(nodes) <= 2 * MAX_PATH_STEPS else nodes[:MAX_PATH_STEPS] + nodes[-MAX_PATH_STEPS:]
    parts = [format_label(each.parent, each.position) for each in shown if each.parent]
    if len(shown) < len(nodes):
        parts.insert(MAX_PATH_STEPS, format_omitted_steps(len(nodes) - len(shown)))
    return PATH_SEPARATOR.join(parts + last)


PATH_SEPARATOR = " > "

MAX_PATH_STEPS = 20
"""Steps that a path shows at either end, where it is too long to show in full."""


def format_omitted_steps(steps: int) -> str:
    """What stands for the middle of a very long path."""
    return f"… {steps:,} more …"


def format_label(parent: Node, position: int) -> str:
    """The last step of the path of an item."""
    item = parent.items[position]
    if type(item) is Node and item.label:
        return item.label
    element = item.element
    siblings = len(parent.items)
    if element is None and type(item) is Leaf:
        return f"text[{position}]"
    label = type(element).__name__ if element else "fragment"
    if element and element.name:
        label += f"({element.name})"
    return f"{label}[{position}]" if siblings > 1 else label
