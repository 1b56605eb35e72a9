"""Stream what happens in a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TypeAlias

import attrs

from promptkit.agent.session.subagents import in_subagent
from promptkit.agent.session.tools import TurnResult
from promptkit.compaction.run.events import (
    CacheMissed,
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    DecisionMade,
    Event,
    Events,
    ReplyReceived,
    RequestFailed,
    RequestPruned,
    RequestSent,
    SummaryAttemptFailed,
    SummaryDiscarded,
    ToolCalled,
    ToolReturned,
    ToolsChanged,
    WindowLearned,
    get_conversation_id,
)
from promptkit.transcript import Transcript


@attrs.frozen
class TextDelta:
    """A piece of the model's text."""

    text: str


_KINDS: Mapping[type[Event], str] = {
    RequestSent: "request",
    ReplyReceived: "request",
    RequestFailed: "request",
    ToolCalled: "tool",
    ToolReturned: "tool",
    CompactionStarted: "compaction",
    SummaryAttemptFailed: "compaction",
    CompactionCommitted: "compaction",
    CompactionFailed: "compaction",
    CompactionCancelled: "compaction",
    SummaryDiscarded: "compaction",
}
"""The events that a stream has. Each has a number among those of its kind, and a start names its
conversation."""

StreamEvent: TypeAlias = "TextDelta | Event | TurnResult"
"""An item of a stream: a piece of text, an event of the conversation, or the result of the turn,
which is the last one."""


async def stream_turn(
    run: Callable[[Callable[[str], object]], Awaitable[TurnResult]],
    events: Events,
    transcript: Transcript,
) -> AsyncGenerator[StreamEvent]:
    """Run a turn, and yield what happens in it.

    Args:
        run: Runs the turn, and calls its argument with each piece of text.
        events: The events of the conversation, and possibly of others.
        transcript: The transcript of the conversation.

    Yields:
        Pieces of text and events in their order, and last the result.

    Raises what `run` raises. If the generator is closed before its end, the turn is cancelled.
    """
    queue: asyncio.Queue[TextDelta | Event | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    own: set[tuple[str, int]] = set()
    inside = in_subagent()

    def post(item: TextDelta | Event | None) -> None:
        # also called by threads
        loop.call_soon_threadsafe(queue.put_nowait, item)

    def post_own(event: Event) -> None:
        kind = _KINDS.get(type(event))
        # a fork has the id of the conversation that it is a copy of
        if (
            kind is None
            or isinstance(
                event, DecisionMade | RequestPruned | WindowLearned | ToolsChanged | CacheMissed
            )
            or in_subagent() != inside
        ):
            return
        number = kind, event.number
        if isinstance(
            event, RequestSent | ToolCalled | CompactionStarted
        ) and event.conversation == get_conversation_id(transcript):
            own.add(number)
        if number in own:
            post(event)

    events.subscribe(post_own)
    turn = asyncio.ensure_future(run(lambda text: post(TextDelta(text))))
    turn.add_done_callback(lambda _: post(None))
    try:
        while (item := await queue.get()) is not None:
            yield item
        yield turn.result()
    finally:
        events.unsubscribe(post_own)
        if not turn.done():
            turn.cancel()
            await asyncio.wait([turn])
