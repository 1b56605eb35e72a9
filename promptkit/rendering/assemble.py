"""Stage four: the living tree as messages, and exact measures of whole subtrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.messages import CacheBreakpointPart, Message, Part
from promptkit.rendering.text_joins import find_separator
from promptkit.rendering.tree import STARTS_LINE_NEVER, TextMessage, Leaf, Node, is_item_alive

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from promptkit.rendering.sizing import Sizer

__all__ = ["is_empty", "iter_leaves", "measure", "build_message", "assemble_messages", "iter_messages", "join_parts", "iter_message_places", "read_text"]


def iter_messages(node: Node, k: int) -> Iterator[Node | TextMessage]:
    """The living messages at or below a node, in written order."""
    if node.role is not None:
        yield node
        return
    stack: list[Iterator[tuple[TextMessage | Leaf | Node, int]]] = [zip(node.items, node.removed_at, strict=True)]
    while stack:
        for item, gone in stack[-1]:
            if gone < k:
                continue
            if type(item) is TextMessage:
                yield item
            elif type(item) is Node and item.activated_at < k:
                if item.role is not None:
                    yield item
                else:
                    stack.append(zip(item.items, item.removed_at, strict=True))
                    break
        else:
            stack.pop()


def iter_message_places(root: Node, k: int) -> Iterator[tuple[Node, int]]:
    """The places of the living messages, in written order."""
    stack = [(root, enumerate(root.items))]
    while stack:
        parent, rest = stack[-1]
        for position, item in rest:
            if not is_item_alive(item, parent.removed_at[position], k):
                continue
            if type(item) is Node and item.role is None:
                stack.append((item, enumerate(item.items)))
                break
            if type(item) is not Leaf:
                yield parent, position
        else:
            stack.pop()


def iter_leaves(node: Node, k: int) -> Iterator[Leaf]:
    """The living leaves below a node that is a message or inside one, in written order, and an empty one for each empty container."""
    stack: list[Iterator[tuple[TextMessage | Leaf | Node, int]]] = [zip(node.items, node.removed_at, strict=True)]
    while stack:
        for item, gone in stack[-1]:
            if gone < k:
                continue
            if type(item) is Leaf:
                yield item
            elif type(item) is Node and item.activated_at < k:
                if not item.items:
                    yield _GHOST
                stack.append(zip(item.items, item.removed_at, strict=True))
                break
        else:
            stack.pop()


_GHOST = Leaf(Node(None, None, 0), "", 0, STARTS_LINE_NEVER)
_GHOST.is_element = True
"""Stands for a container without items."""


def join_parts(leaves: Iterable[Leaf]) -> list[Part]:
    """The content of a message: text in runs, other parts between them, of adjacent cache boundaries the last."""
    parts: list[Part] = []
    run: list[str] = []
    before: Leaf | None = None
    nearest: Leaf | None = None
    for leaf in leaves:
        if leaf.is_empty:
            nearest = leaf  # D7: what is empty leaves no line break of its own
            continue
        if leaf.part is None:
            if before is not None:
                run.append(find_separator(before, leaf, nearest))
            run.append(leaf.text)
            before = nearest = leaf
            continue
        if run:
            parts.append("".join(run))
            run, before = [], None
        if isinstance(leaf.part, CacheBreakpointPart) and parts and isinstance(parts[-1], CacheBreakpointPart):
            parts.pop()
        parts.append(leaf.part)
    if run:
        parts.append("".join(run))
    return parts


def build_message(item: Node | TextMessage, k: int) -> Message | None:
    """A living message as a value, or None where it shows nothing."""
    if type(item) is TextMessage:
        message = item.message
        if message is None:
            message = item.message = Message(role=item.role, content=(item.text,), name=item.name)
        return message
    node = item
    if type(node) is not Node or node.role is None:
        return None
    parts = join_parts(iter_leaves(node, k))
    calls = tuple(call for call, gone in zip(node.calls, node.calls_removed_at, strict=True) if gone >= k)
    blank = not any(not isinstance(part, str) or not part.isspace() for part in parts)
    if blank and not calls and node.role != "tool":
        return None
    return Message(role=node.role, content=tuple(parts), name=node.name, tool_calls=calls, tool_call_id=node.call_id)


def assemble_messages(root: Node, k: int) -> tuple[Message, ...]:
    """The messages of a tree at state k."""
    made: list[Message] = []
    for item in iter_messages(root, k):
        message = build_message(item, k)
        if message is not None:
            made.append(message)
    return tuple(made)


def read_text(node: Node) -> str | None:
    """The text of a node inside a message, on its own; None if it holds anything that is no text."""
    parts = join_parts(iter_leaves(node, 0))
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else None


def measure(node: Node, sizer: Sizer, k: int = 0) -> int:
    """The exact tokens of a subtree on its own at state k: its messages, or the text and parts that it has in one."""
    if node.role is None and (node.message is not None or node.fragment):
        return sum(map(sizer.count_part, join_parts(iter_leaves(node, k))))
    total = 0
    for item in iter_messages(node, k):
        if type(item) is TextMessage:
            total += sizer.count_text_message(item)
        elif type(item) is Node:
            message = build_message(item, k)
            if message is not None:
                total += sizer.count_message(message)
    return total


def is_empty(node: Node) -> bool:
    """Whether a finished subtree shows nothing: only blank text, or nothing at all."""
    stack = [node]
    while stack:
        at = stack.pop()
        if at.calls or at.role == "tool" or at.reserve:
            return False
        for item, gone in zip(at.items, at.removed_at, strict=True):
            if not is_item_alive(item, gone, 0):
                continue
            if type(item) is Node:
                stack.append(item)
            elif type(item) is TextMessage or (type(item) is Leaf and (item.part is not None or bool(item.text.strip())) and not item.is_frame):
                return False
    return True
