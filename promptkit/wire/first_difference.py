"""Find where a request stops beginning with the one before it, which is as far as a provider's prompt cache can serve it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress, count, repeat, zip_longest
from operator import is_not
from typing import TypeAlias

import attrs

from promptkit.messages import Message, Part, ToolCall

Block: TypeAlias = Part | ToolCall
"""A content part or a tool call."""


@attrs.frozen(kw_only=True)
class FirstDifference:
    """The first block in which a request differs from the one before it. All blocks before it are equal."""

    message: int
    """The place of its message, from 0, the same in both requests."""
    block: int | None = None
    """The place of the block in its message, from 0: content parts come first, then tool calls.
    None: the message as a whole, because its role, its name or the call that it answers differs, or
    because the later request ends before it."""
    before: Block | Message | None
    """The block or message in the request before. None: its message has fewer blocks there."""
    after: Block | Message | None
    """The block or message in the later request. None: the message has fewer blocks there, or the
    request ends."""


def find_first_difference(
    before: Sequence[Message], after: Sequence[Message]
) -> FirstDifference | None:
    """Find the first block of a request that differs from the request before it.

    Tool definitions stand before all messages: compare those first.

    Args:
        before: The messages of the request before.
        after: The messages of the later request.

    Returns:
        The difference. None if the later request begins with all blocks of the one before.

    >>> find_first_difference(
    ...     [Message(role="user", content=("Read a.py.", "It is long."))],
    ...     [Message(role="user", content=("Read a.py.", "It is short."))],
    ... )
    FirstDifference(message=0, block=1, before='It is long.', after='It is short.')
    """
    # a conversation that grows has mostly the same objects: they are passed over in C
    for place in compress(count(), map(is_not, before, chain(after, repeat(None)))):
        earlier, later = before[place], after[place] if place < len(after) else None
        if earlier == later:
            continue
        if later is None or _head(earlier) != _head(later):
            return FirstDifference(message=place, before=earlier, after=later)
        for block, (one, other) in enumerate(zip_longest(_blocks(earlier), _blocks(later))):
            if one is None and place == len(before) - 1:
                return None
            if one != other:
                return FirstDifference(message=place, block=block, before=one, after=other)
    return None


def _head(message: Message) -> tuple[str | None, ...]:
    """Return the fields of a message that stand before its blocks."""
    return message.role, message.name, message.tool_call_id


def _blocks(message: Message) -> tuple[Block, ...]:
    return (*message.content, *message.tool_calls)
