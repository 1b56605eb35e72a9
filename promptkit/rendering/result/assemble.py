"""Stage four, assemble: the messages of a pruned tree, and the elements that wrote their text."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from promptkit.messages import Message
from promptkit.rendering.paths import PATH_SEPARATOR, format_path
from promptkit.rendering.subtree import (
    build_messages,
    iter_leaves,
    iter_message_places,
    iter_messages,
    iter_placed,
)
from promptkit.rendering.tree import MessageItem, Node


def assemble_messages(root: Node, state: int) -> tuple[Message, ...]:
    """Return the messages of a tree in a state, in written order."""
    messages: list[Message] = []
    for item in iter_messages(root, state):
        messages += (item.messages if type(item) is MessageItem else None) or build_messages(
            item, state
        )
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
