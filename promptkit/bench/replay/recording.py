"""A recorded conversation as a replay needs it: messages in which calls and results are whole, and when each was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.tool_pairing import pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message, ToolDefinition

__all__ = ["Recording", "recorded_messages"]


@attrs.frozen(kw_only=True)
class Recording:
    """One conversation, from its first message to its last. Each answer in it is a request that somebody sent."""

    system: tuple[Message, ...] = ()
    """The system messages that it begins with: every request does."""
    messages: tuple[Message, ...] = ()
    """What was said after that. Every call is answered right behind it, every result answers a call."""
    times: tuple[float | None, ...] = ()
    """For each message when it was written, in seconds since 1970; None where nobody noted it."""
    tools: tuple[ToolDefinition, ...] = ()

    @property
    def requests(self) -> int:
        """How many requests there were: an answer before which nothing was said answers none."""
        return sum(message.role == "assistant" for message in self.messages[1:])


def recorded_messages(said: Sequence[tuple[Message, float | None]], *, tools: Sequence[ToolDefinition] = ()) -> Recording:
    """The recording of messages with their times; messages without anything in them are left out."""
    kept = [(message, time) for message, time in said if message.content or message.tool_calls or message.role == "tool"]
    paired = pair([message for message, _ in kept])
    head = next((at for at, message in enumerate(paired.messages) if message.role != "system"), len(paired.messages))
    return Recording(
        system=paired.messages[:head],
        messages=paired.messages[head:],
        times=tuple(kept[source][1] for source in paired.sources[head:]),
        tools=tuple(tools),
    )
