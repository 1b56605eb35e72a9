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
    from promptkit.rendering.removal_order import Scope
    from promptkit.rendering.sizing import Layout

__all__ = [
    "ALWAYS",
    "FIRST",
    "HIGHEST",
    "LEVELS",
    "NEVER",
    "STAYS",
    "STEP",
    "Atom",
    "Item",
    "Leaf",
    "Node",
    "alive",
    "is_alive",
    "label_of",
    "left_out",
    "path_of",
]

HIGHEST = 2**53 - 1
"""The priority of what has none: JavaScript's largest safe integer, as in prompt-tsx."""

STAYS = 1 << 60
"""The step of what is never removed."""

# When a leaf starts on a new line.
NEVER = 0
ALWAYS = 1
FIRST = 2  # unless text of the same container stands right before it


class Atom:
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
        "breaks",
        "closes",
        "cuts",
        "element",
        "following",
        "frame",
        "is_empty",
        "own",
        "parent",
        "part",
        "position",
        "previous",
        "priority",
        "seq",
        "sized",
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
        self.breaks = breaks
        self.element = element
        # An element of its own (TextChunk, Text) is compared as a container of this one leaf would be.
        self.own = element is not None and part is None
        self.sized = False  # a part that takes a share of its flex group
        self.frame = False  # written by the element around it (a Tag), and gone with it
        self.solid: bool | None = None  # always starts a line, at a safe cut; found out when asked
        self.cuts: tuple[int, int] | None = None  # the first and last safe cut inside, likewise
        self.closes = False  # what follows starts on a new line
        self.seq = 0  # place in the message
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
    calls_gone: list[int] = []  # noqa: RUF012  # of messages without calls; an own list where there are any
    call_id: str | None = None
    asked: tuple[Node, int] | None = None  # of a result: the message that asked, and the index of its call
    answers: list[tuple[int, Node]] = []  # noqa: RUF012  # of a message with calls: index of the call, result
    passes = False
    atomic = False
    legacy = False
    in_legacy = False
    fragment = False  # of no whole prompt: text may stand outside messages
    required = False
    expands = False
    standby = False  # a fallback, or inside one
    limit: int | None = None
    reserve = 0  # tokens that stay free
    keep: tuple[Hashable, ...] = ()
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
    flex = 0  # index of its group in the parent's layout
    delegate: Node | None = None  # whose share it uses (a fallback: that of what it replaces)
    variants: list[Children] | None = None
    key = -1  # its place, for the memory
    depth = 0  # components around it, itself included

    # pruning
    born = -2  # of a fallback: the step that raises it, or -1 if a limit did
    pinned = False  # holds something that must stay
    live = 0  # living items that are not empty
    counted = False  # as one of those of the parent
    rank = 0  # place among the tree's nodes, in written order
    last = 0  # the rank of the last node below it
    ceiling: int | None = None  # tokens that it surely does not exceed
    up = True  # it and all above it are alive, in the forward run
    place = 0  # in a message: the number of leaves before it
    leaves = 0  # the number of leaves in it, those of fallbacks included
    ghost: Leaf | None = None  # in a message: stands in the chain for a container without items
    barren = False  # a message that shows nothing
    first: Leaf | None = None  # of the message's living leaves
    shield = 0  # items before it stand before a cache boundary
    scope: Scope | None = None  # candidates, owned by the removal order
    lows: list[tuple[float, int]] | None = None  # a heap of the items' priorities, likewise
    exhausted = False
    on_path = -1

    def __init__(self, element: PromptElement | None, parent: Node | None, priority: float) -> None:
        self.element = element
        self.parent = parent
        self.priority = priority
        self.text_priority = priority  # of the strings that stand in it
        self.items: list[Item] = []
        self.gone: list[int] = []
        self.message: Node | None = None  # the message that it is, or is in
        self.position = 0
        if parent is not None:
            self.position = len(parent.items)
            self.message = parent.message
            if parent.fragment:
                self.fragment = True
            if parent.depth:
                self.depth = parent.depth
            if parent.legacy or parent.in_legacy:
                self.in_legacy = True

    def adopt(self, child: Node) -> None:
        """Take a node as the next item."""
        self.items.append(child)
        if self.nodes:
            self.nodes.append(child)
        else:
            self.nodes = [child]


Item: TypeAlias = Atom | Leaf | Node


def alive(item: Item, gone: int, k: int) -> bool:
    """Whether an item is there once k steps have been taken."""
    return gone >= k and not (type(item) is Node and item.born >= k)


def is_alive(node: Node, k: int) -> bool:
    """Whether a node and all above it are there once k steps have been taken."""
    while node.parent is not None:
        if not alive(node, node.parent.gone[node.position], k):
            return False
        node = node.parent
    return True


def path_of(parent: Node, position: int | None = None) -> str:
    """`AgentPrompt > History > UserMessage[12]`: the path of a node, or of one of its items; the middle of a very long one left out."""
    last: list[str] = []
    if position is not None:
        item = parent.items[position]
        if type(item) is not Node:
            last.append(label_of(parent, position))
        else:
            parent = item
    nodes: list[Node] = []
    node = parent
    while node.parent is not None:
        nodes.append(node)
        node = node.parent
    nodes.reverse()
    shown = nodes if len(nodes) <= 2 * LEVELS else nodes[:LEVELS] + nodes[-LEVELS:]
    parts = [label_of(each.parent, each.position) for each in shown if each.parent]
    if len(shown) < len(nodes):
        parts.insert(LEVELS, left_out(len(nodes) - len(shown)))
    return STEP.join(parts + last)


STEP = " > "

LEVELS = 20
"""Steps that a path shows at either end, where it is too long to show in full."""


def left_out(steps: int) -> str:
    """What stands for the middle of a very long path."""
    return f"… {steps:,} more …"


def label_of(parent: Node, position: int) -> str:
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
