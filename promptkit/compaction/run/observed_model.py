"""A model whose requests are reported as events: those of a session, and those for summaries."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.run.events import ReplyReceived, RequestFailed, RequestSent
from promptkit.providers.model import with_options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from promptkit.compaction.run.events import Events
    from promptkit.messages import Message, ToolDefinition
    from promptkit.providers.model import Model, ModelOptions, Reply
    from promptkit.transcript.log.transcript import Transcript


def get_conversation_id(transcript: Transcript) -> str | None:
    """Return the id of a conversation: that of its first entry. None while it has none."""
    return transcript.entries[0].id if transcript.entries else None


@attrs.frozen(kw_only=True)
class ObservedModel:
    """A model whose requests and replies are events. It takes the options that the model takes."""

    model: Model
    events: Events
    conversation: str | None
    compacted: bool
    """Whether requests show a summary in place of earlier messages."""
    compaction: int | None = None
    """The number of the compaction that the requests are for."""
    provider: str | None = attrs.field(
        default=attrs.Factory(lambda self: getattr(self.model, "provider", None), takes_self=True)
    )
    """The provider, if the model tells it."""

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    def with_options(self, **options: Unpack[ModelOptions]) -> ObservedModel:
        """Return the same model with these options besides those that it has."""
        return attrs.evolve(self, model=with_options(self.model, **options))

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Ask the model, and report the request and how it ended. Raises what the model raises."""
        number, started = self.events.next_number("request"), time.monotonic()
        self.events.emit(
            RequestSent(
                number=number,
                model=self.name,
                provider=self.provider,
                conversation=self.conversation,
                compaction=self.compaction,
                compacted=self.compacted,
                messages=tuple(messages),
                tools=tuple(tools),
            )
        )
        try:
            reply = await self.model.complete(messages, tools=tools)
        except BaseException as error:
            seconds = time.monotonic() - started
            self.events.emit(
                RequestFailed(
                    number=number, seconds=seconds, error=type(error).__name__, detail=str(error)
                )
            )
            raise
        self.events.emit(
            ReplyReceived(
                number=number,
                seconds=time.monotonic() - started,
                usage=reply.usage,
                finish=reply.finish,
                request_id=reply.request_id,
                message=reply.message,
            )
        )
        return reply
