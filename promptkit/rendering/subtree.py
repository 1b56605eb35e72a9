"""Read a subtree of the render tree: its messages and the elements that wrote them, its leaves, its text, its tokens and whether it is empty.

Functions with a `state` read the tree in that state of the removal order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

import attrs

from promptkit.messages import CacheBreakpointPart, Message, Part
from promptkit.rendering.expand.materialize import is_content
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.paths import PATH_SEPARATOR, format_path
from promptkit.rendering.prune.text_joins import find_separator
from promptkit.rendering.tree import (
    NEVER_REMOVED,
    STARTS_LINE_NEVER,
    Item,
    Leaf,
    MessageItem,
    Node,
    find_marker,
    is_item_alive,
)


def measure(node: Node, sizer: Sizer, state: int = 0) -> int:
    """Count the exact tokens of a subtree on its own: those of its messages, or of its text and parts inside a message."""
    if node.role is None and (node.message is not None or node.fragment):
        return sum(map(sizer.count_part, join_parts(iter_leaves(node, state))))
    return sum(
        sizer.count_item(item)
        if type(item) is MessageItem
        else sum(map(sizer.count_message, build_messages(item, state)))
        for item in iter_messages(node, state)
    )


def is_empty(node: Node) -> bool:
    """Return whether an expanded subtree has no content, or blank text only.

    The answer is kept on the node, so that elements that ask at every level of a deep tree do not
    walk it again from each level.
    """
    node.is_empty = None
    node.is_empty = _find_no_content(node)
    return node.is_empty


def _find_no_content(node: Node) -> bool:
    stack = [node]
    while stack:
        container = stack.pop()
        if container.is_empty:
            continue
        # False: it has content
        if (
            container.is_empty is not None
            or container.calls
            or container.role == "tool"
            or container.reserve
        ):
            return False
        for item, removed_at in zip(container.items, container.removed_at, strict=True):
            if not is_item_alive(item, removed_at, 0):
                continue
            if isinstance(item, Node):
                stack.append(item)
            elif is_content(item):
                return False
    return True


def read_text(node: Node) -> str | None:
    """Return the text of a node inside a message, or None if it contains a part that is not text."""
    parts = join_parts(iter_leaves(node, 0))
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else None


def iter_messages(node: Node, state: int, *, markers: bool = True) -> Iterator[Node | MessageItem]:
    """Iterate over the living messages at or below a node, in written order, with the markers of runs or without."""
    if node.role is not None:
        return iter([node])
    return map(itemgetter(2), iter_message_places(node, state, markers=markers))


def _iter_items(node: Node, state: int, *, markers: bool) -> Iterator[tuple[Item, int]]:
    """Iterate over the items of a node, each with the step that removes it."""
    found = find_marker(node, state) if markers else None
    if found is None:
        return zip(node.items, node.removed_at, strict=True)
    position, marker = found
    items, removed_at = [*node.items], [*node.removed_at]
    items[position], removed_at[position] = marker, NEVER_REMOVED
    return zip(items, removed_at, strict=True)


def iter_message_places(
    root: Node, state: int, *, markers: bool = True
) -> Iterator[tuple[Node, int, Node | MessageItem]]:
    """Yield (parent, position, message) for each living message below a node, in written order.

    A marker has the place of what it replaces. Without `markers` there is none.
    """
    stack = [(root, enumerate(_iter_items(root, state, markers=markers)))]
    while stack:
        parent, rest = stack[-1]
        for position, (item, removed_at) in rest:
            if removed_at < state:
                continue
            if type(item) is MessageItem:
                yield parent, position, item
            elif type(item) is Node and item.activated_at < state:
                if item.role is None:
                    stack.append((item, enumerate(_iter_items(item, state, markers=markers))))
                    break
                yield parent, position, item
        else:
            stack.pop()


def build_messages(item: Node | MessageItem, state: int) -> tuple[Message, ...]:
    """Build the messages of a living message item, or the message of a node; none if that has no content."""
    if type(item) is MessageItem:
        messages = item.messages
        if messages is None:
            messages = item.messages = (
                Message(role=item.role, content=(item.text,), name=item.name),
            )
        return messages
    node = item
    if type(node) is not Node or node.role is None:
        return ()
    parts = join_parts(iter_leaves(node, state))
    calls = tuple(
        call
        for call, removed_at in zip(node.calls, node.calls_removed_at, strict=True)
        if removed_at >= state
    )
    if (
        not calls
        and node.role != "tool"
        and all(isinstance(part, str) and part.isspace() for part in parts)
    ):
        return ()
    return (
        Message(
            role=node.role,
            content=tuple(parts),
            name=node.name,
            tool_calls=calls,
            tool_call_id=node.call_id,
        ),
    )


def iter_leaves(node: Node, state: int) -> Iterator[Leaf]:
    """Yield the living leaves at or below a message, or a node in one, in written order.

    For a container without items it yields a placeholder that is empty.
    """
    stack: list[Iterator[tuple[Item, int]]] = [zip(node.items, node.removed_at, strict=True)]
    while stack:
        for item, removed_at in stack[-1]:
            if removed_at < state:
                continue
            if type(item) is Leaf:
                yield item
            elif type(item) is Node and item.activated_at < state:
                if not item.items:
                    yield _PLACEHOLDER
                stack.append(zip(item.items, item.removed_at, strict=True))
                break
        else:
            stack.pop()


# Yielded for a container without items.
_PLACEHOLDER = Leaf(Node(None, None, 0), "", 0, STARTS_LINE_NEVER)


def join_parts(leaves: Iterable[Leaf]) -> list[Part]:
    """Join leaves to content parts: adjacent texts become one text, and of adjacent cache breakpoints the last is kept."""
    parts: list[Part] = []
    for _, group in groupby(iter_placed(leaves), key=itemgetter(0)):
        placed = list(group)
        part: Part | None = placed[-1][2].part
        if part is None:
            texts = [text for _, separator, leaf in placed for text in (separator, leaf.text)]
            # without empty ones, a text alone stays the object that it is, whose hash is known
            part = "".join(filter(None, texts))
        parts.append(part)
    return parts


def iter_placed(leaves: Iterable[Leaf]) -> Iterator[tuple[int, str, Leaf]]:
    """Yield (index of the content part, separator before the text, leaf) for each leaf that is not empty.

    Adjacent texts are in one part, and so are adjacent cache breakpoints.
    """
    index = -1
    before: Leaf | None = None
    nearest: Leaf | None = None
    for leaf in leaves:
        if leaf.is_empty:
            nearest = leaf  # D7: an empty leaf adds no line break of its own
            continue
        separator, is_same = "", False
        if before is not None and before.part is None and leaf.part is None:
            separator, is_same = find_separator(before, leaf, nearest), True
        elif before is not None and isinstance(before.part, CacheBreakpointPart):
            is_same = isinstance(leaf.part, CacheBreakpointPart)
        index += not is_same
        yield index, separator, leaf
        before = nearest = leaf


def assemble_messages(root: Node, state: int) -> tuple[Message, ...]:
    """Return the messages of a tree in a state, in written order."""
    messages: list[Message] = []
    for item in iter_messages(root, state):
        messages += (type(item) is MessageItem and item.messages) or build_messages(item, state)
    return tuple(messages)


@attrs.frozen(kw_only=True)
class SourceSpan:
    """The element that wrote a span of text.

    Characters `start` to `end` (exclusive) of part `part` of message `message` were written by the
    element at `path`. Messages and parts are counted from 0.
    """

    message: int
    part: int
    start: int
    end: int
    path: str


def map_sources(root: Node, state: int) -> tuple[SourceSpan, ...]:
    """Return a SourceSpan for each text of the messages of a tree in a state."""
    spans: list[SourceSpan] = []
    number = 0
    for parent, position, item in iter_message_places(root, state):
        if isinstance(item, Node):
            if build_messages(item, state):
                spans.extend(_map_message(item, number, state))
                number += 1
            continue
        path = (
            format_path(parent, position)
            if item.element is not None or item.sources
            else f"{format_path(parent)}{PATH_SEPARATOR}marker"
        )
        for message in build_messages(item, state):
            spans += [
                SourceSpan(message=number, part=at, start=0, end=len(part), path=path)
                for at, part in enumerate(message.content)
                if isinstance(part, str)
            ]
            number += 1
    return tuple(spans)


def _map_message(node: Node, number: int, state: int) -> Iterator[SourceSpan]:
    """Yield the spans of one message."""
    current = end = 0
    for part, separator, leaf in iter_placed(iter_leaves(node, state)):
        start = end + len(separator) if part == current else 0
        current, end = part, start + len(leaf.text)
        if leaf.part is None:
            path = format_path(leaf.parent, leaf.position if leaf.element else None)
            yield SourceSpan(message=number, part=part, start=start, end=end, path=path)
