"""The oracle's messages and counts: assembled from the whole tree, counted from nothing, every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.messages import CacheBreakpointPart, Message, Part
from tests.behaviour.nodes import Node, is_empty, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["assembled", "count_messages", "limited_tokens", "reserved"]


def assembled(root: Node) -> tuple[Message, ...]:
    """The messages of a tree, without those that say nothing."""
    return tuple(
        Message(
            role=node.role,
            content=_parts(node),
            name=node.name,
            tool_calls=tuple(call for _, call in node.calls),
            tool_call_id=node.answers,
        )
        for node in walk(root)
        if node.kind == "message" and not is_empty(node)
    )


def _leaves(node: Node, *, after_text: bool) -> Iterator[tuple[Node, bool]]:
    for child in node.children:
        if child.kind == "container":
            yield from _leaves(child, after_text=after_text)
            after_text = False
        else:
            yield child, after_text
            after_text = child.kind == "text"


def _parts(node: Node) -> tuple[Part, ...]:
    parts: list[Part] = []
    for leaf, after_text in _leaves(node, after_text=False):
        if leaf.kind == "text":
            if not leaf.text:
                continue
            wanted = leaf.breaks == "always" or (leaf.breaks == "first" and not after_text)
            last = parts[-1] if parts else None
            if isinstance(last, str):
                parts[-1] = last + ("\n" if wanted and not last.endswith("\n") else "") + leaf.text
            else:
                parts.append(leaf.text)
        elif leaf.part is not None:
            if (
                isinstance(leaf.part, CacheBreakpointPart)
                and parts
                and isinstance(parts[-1], CacheBreakpointPart)
            ):
                parts.pop()
            parts.append(leaf.part)
    return tuple(parts)


def _count_parts(parts: Sequence[Part], tokenizer: Tokenizer) -> int:
    texts = sum(tokenizer.base.count(part) for part in parts if isinstance(part, str))
    others = sum(
        tokenizer.count_part(part).tokens
        for part in parts
        if not isinstance(part, str | CacheBreakpointPart)
    )
    return tokenizer.scale(texts) + others


def count_messages(messages: Sequence[Message], tokenizer: Tokenizer) -> int:
    """The tokens of messages: framing, each text part and each other part."""
    return sum(
        _frame(message, tokenizer) + _count_parts(message.content, tokenizer)
        for message in messages
    )


def _frame(message: Message, tokenizer: Tokenizer) -> int:
    frame = tokenizer.count_framing(
        message.role,
        name=message.name,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        text=bool(message.text),
    )
    return frame.tokens


def limited_tokens(limit: Node, tokenizer: Tokenizer) -> int:
    """What stands below a TokenLimit costs by itself: whole messages with framing, text inside a message without."""
    above = limit.parent
    while above is not None and above.kind != "message":
        above = above.parent
    return (
        count_messages(assembled(limit), tokenizer)
        if above is None
        else _count_parts(_parts(limit), tokenizer)
    )


def reserved(root: Node) -> int:
    """The tokens of all Reserves."""
    return sum(node.reserved for node in walk(root))
