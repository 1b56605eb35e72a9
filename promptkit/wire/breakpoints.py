"""Where a conversation's requests end its cached prefixes, for Anthropic's prompt cache, which only holds what a request marks.

The marks belong to the wire: no message of a conversation has them, and nothing stays in a request
because of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Protocol

import attrs

from promptkit.messages import ANTHROPIC_CACHE_TTLS, CacheBreakpointPart, Message
from promptkit.wire.parts import Payload, WireDict

MAX_BREAKPOINTS = 4
"""The maximum number of cache breakpoints in one request. The API rejects more."""

HOUR = "1h"
"""The longest time to live. The API rejects it after a shorter one."""


class HasRole(Protocol):
    """A message, or what stands for one."""

    @property
    def role(self) -> str:
        """Who speaks."""
        ...


def find_breakpoints(messages: Sequence[HasRole]) -> list[int]:
    """Return the indexes of the messages after which a request of a conversation has a breakpoint, in order.

    They are the end of the instructions, and the three newest places where a request ended: before
    a reply, and at the last message.
    """
    last = len(messages) - 1
    ends = (
        at
        for at in range(last, -1, -1)
        if messages[at].role != "assistant" and (at == last or messages[at + 1].role == "assistant")
    )
    instructions = next((at for at in range(last + 1) if messages[at].role != "system"), 0) - 1
    places = {instructions, *islice(ends, MAX_BREAKPOINTS - 1)}
    return sorted(place for place in places if place >= 0)


def mark_prefix(messages: Sequence[Message], count: int, ttl: str | None = None) -> list[Message]:
    """Return messages with cache breakpoints after their first `count`, and after what earlier requests have sent of these.

    Args:
        messages: The messages of a request.
        count: The number of messages that the cache holds or should hold. 0: no breakpoint is
            added.
        ttl: How long the cache keeps them without use. None: as the provider decides, but no
            shorter than a breakpoint of the prompt that follows, which the API requires.
    """
    own = [
        at
        for at, message in enumerate(messages)
        if any(
            isinstance(part, CacheBreakpointPart) and part.ttl == HOUR for part in message.content
        )
    ]
    marked = list(messages)
    for at in find_breakpoints(messages[:count]):
        content = marked[at].content
        if not (content and isinstance(content[-1], CacheBreakpointPart)):
            lasting = HOUR if any(at < place for place in own) else ttl
            end = CacheBreakpointPart(kind="ephemeral", ttl=lasting)
            marked[at] = attrs.evolve(marked[at], content=(*content, end))
    return marked


def mark_tools(tools: Payload, messages: Sequence[Message]) -> None:
    """Mark the end of the tools of a request without instructions, if its messages are marked and leave a breakpoint."""
    marks = [
        part
        for message in messages
        for part in message.content
        if isinstance(part, CacheBreakpointPart)
    ]
    if tools and 0 < len(marks) < MAX_BREAKPOINTS and messages[0].role != "system":
        tools[-1]["cache_control"] = to_cache_control(marks[0])


def to_cache_control(part: CacheBreakpointPart) -> WireDict:
    """Return the value of `cache_control`.

    `ephemeral` is its only type. A `ttl` that only other providers accept is not sent.
    """
    return {"type": "ephemeral", **({"ttl": part.ttl} if part.ttl in ANTHROPIC_CACHE_TTLS else {})}
