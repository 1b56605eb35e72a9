"""Events of turns, requests, tool calls, compaction and pruning: plain data for subscribers such as a usage meter, a log or a trace."""

from __future__ import annotations

import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, Unpack

import attrs

from promptkit.compaction.policy.usage import UsageByPart
from promptkit.compaction.summarizers.losses import Losses
from promptkit.messages import Message, ToolDefinition, Usage
from promptkit.providers import Model, ModelOptions, Reply, with_options
from promptkit.reprs import describe_fields
from promptkit.transcript import Transcript
from promptkit.transcript.log.entries import Author, CacheMissed

__all__ = [
    "CacheMissed",
    "CompactionCancelled",
    "CompactionCommitted",
    "CompactionFailed",
    "CompactionStarted",
    "DecisionMade",
    "Event",
    "Events",
    "ObservedModel",
    "ReplyReceived",
    "RequestFailed",
    "RequestPruned",
    "RequestSent",
    "Subscriber",
    "SummaryAttemptFailed",
    "SummaryDiscarded",
    "ToolCalled",
    "ToolReturned",
    "ToolsChanged",
    "TurnEnded",
    "TurnStarted",
    "WindowLearned",
    "get_conversation_id",
    "logging_subscriber",
]


class Events:
    """Sends events to subscribers, in order.

    An error that a subscriber raises is logged and has no further effect.

    Several conversations may share one `Events`, as a fork does with its original. Compactions,
    turns, requests and tool calls are numbered through all of them, each kind from 1. Each start is
    followed by exactly one end with the same number.

    Args:
        subscribers: The subscribers.

    >>> Events(print, logging_subscriber(logging.getLogger("myapp")))
    """

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers: list[Subscriber] = []
        for subscriber in subscribers:
            self.subscribe(subscriber)
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber. Raises TypeError for what cannot be called."""
        if not callable(subscriber):
            raise TypeError(
                f"a subscriber must be a function that takes an event, as in Events(first, second), not {subscriber!r:.80}."
            )
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Remove a subscriber. Raises ValueError if it is none."""
        self._subscribers.remove(subscriber)

    def next_number(self, kind: str = "compaction") -> int:
        """Return the number of the next `compaction`, `turn`, `request` or `tool` call, from 1.

        Each number is returned once.
        """
        return next(self._numbers[kind])

    def emit(self, event: Event) -> None:
        """Send an event to all subscribers."""
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(event)
            except Exception:
                logging.getLogger("promptkit").exception(
                    "a subscriber to promptkit's events raised an error"
                )


def logging_subscriber(logger: logging.Logger) -> Subscriber:
    """Make a subscriber that logs one line for each event.

    Failures are warnings. Decisions, turns, requests and tool calls are debug messages, and the
    rest is information. Texts of the conversation, such as the summary, are not logged.
    """

    def write(event: Event) -> None:
        match event:
            case CompactionFailed() | SummaryAttemptFailed() | RequestFailed():
                level = logging.WARNING
            case (
                DecisionMade()
                | TurnStarted()
                | TurnEnded()
                | RequestSent()
                | ReplyReceived()
                | ToolCalled()
                | ToolReturned()
            ):
                level = logging.DEBUG
            case _:
                level = logging.INFO
        logger.log(
            level,
            "%s %s",
            type(event).__name__,
            " ".join(
                f"{field.name}={getattr(event, field.name)!r}"
                for field in attrs.fields(type(event))
                if field.repr
            ),
        )

    return write


@attrs.frozen
class _Event:
    """The representation of events. Classes with `repr=False` inherit it."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True, repr=False)
class DecisionMade(_Event):
    """The policy made a decision."""

    decision: str
    """The class name of the decision, such as `StartBackground`."""
    reason: str
    """The reason in words, with the figures."""
    tokens: int | None = None
    """Tokens of the current request. None: unknown."""
    ratio: float | None = None
    """These tokens as a share of the size from which on a request overflows."""
    threshold: float | None = None
    """What the ratio was compared with."""
    warm: bool | None = None
    """Whether the provider's prompt cache was assumed to be warm, where that matters."""


@attrs.frozen(kw_only=True, repr=False)
class CompactionStarted(_Event):
    """A compaction has started, or the summary of a branch or for a handoff.

    Exactly one of the events committed, failed, cancelled and discarded follows.
    """

    number: int
    """The number of the compaction among all of one `Events`. Its last event has the same
    number."""
    trigger: str
    """The cause of the compaction, such as `manual`, `background`, `branch` or `handoff`."""
    messages: int
    """Number of messages that the summary will replace."""
    before: UsageByPart = attrs.field(factory=UsageByPart)
    """The next request by part, in tokens, as it is without the summary."""
    conversation: str | None = None
    """The id of the conversation: that of its first entry. A fork has the id of its original."""


@attrs.frozen(kw_only=True, repr=False)
class _CompactionStep(_Event):
    """What the events after the start of a compaction have in common."""

    number: int
    """The number of the compaction, as in `CompactionStarted`."""
    trigger: str
    """What started it."""
    seconds: float
    """The time that it took so far, or that the attempt took."""
    usage: Usage | None = None
    """The cost of all requests for the summary so far, failed attempts included, or of the attempt.
    None: no model was asked, or the provider reported nothing."""


@attrs.frozen(kw_only=True, repr=False)
class CompactionCommitted(_CompactionStep):
    """The summary was written: a checkpoint, the summary of a branch, or the document of a handoff.

    Figures are tokens and seconds.
    """

    checkpoint: str
    """The id of the summary's entry. That of a handoff is in the new conversation."""
    mode: str
    """How the summary was made, such as `live` or `extractive`."""
    tokens_before: int
    """The tokens of the conversation."""
    tokens_after: int
    dropped: int = 0
    """The number of messages that the summary replaces, the previous summary aside."""
    shown: int = 0
    """The number of those messages that the summarizer was shown, at least in part. If it was not
    shown all, the mode is `partial`."""
    before: UsageByPart = attrs.field(factory=UsageByPart)
    """The request by part as it would have been without the compaction, instructions and tools
    included."""
    after: UsageByPart = attrs.field(factory=UsageByPart)
    """The request by part as it is now."""
    model: str | None = None
    """The model that wrote the summary. None: no model was asked."""
    author: Author = "model"
    """Who wrote the summary: a `model`, a `hook`, or `extract` for one without a model."""
    request_id: str | None = None
    """The provider's name for the request that wrote the summary, where it gave one."""
    losses: Losses = attrs.field(factory=Losses)
    """What is left of the facts that the conversation showed before. Empty for the summary of a
    branch and the document of a handoff."""
    summary: str = attrs.field(default="", repr=False)
    """The text of the summary. Logs and traces leave it out."""


@attrs.frozen(kw_only=True, repr=False)
class CompactionFailed(_CompactionStep):
    """No summary was made, or the checkpoint could not be written. The transcript is unchanged."""

    reason: str
    """A word, such as `too_large`, or the name of the error's class."""
    detail: str
    """The error's text."""


@attrs.frozen(kw_only=True, repr=False)
class SummaryAttemptFailed(_CompactionStep):
    """A summarizer was asked and made no summary. The next one is tried, if there is one."""

    summarizer: str
    """The name of the summarizer's class."""
    reason: str
    """A word, such as `no_sections` or `timeout`, or the name of the error's class."""
    detail: str
    """The error's text."""


@attrs.frozen(kw_only=True, repr=False)
class CompactionCancelled(_CompactionStep):
    """The compaction was cancelled. The transcript is unchanged."""


@attrs.frozen(kw_only=True, repr=False)
class SummaryDiscarded(_CompactionStep):
    """A summary was made and is not used, because the conversation changed or is small enough again."""

    reason: str


@attrs.frozen(kw_only=True, repr=False)
class RequestPruned(_Event):
    """A request was made smaller without a summary: messages were omitted or shortened.

    The transcript keeps them in full.
    """

    messages: int
    """Number of the view's messages that are not in the request in full."""
    before: int
    """Tokens of the conversation in full, without what every request has."""
    after: int
    """Tokens of the conversation as the request shows it."""
    by: tuple[str, ...]
    """The names of the functions that made it smaller, such as `truncate_history`. `render`: the
    prompt's own pruning."""


@attrs.frozen(kw_only=True, repr=False)
class WindowLearned(_Event):
    """The limit of requests has changed, because the provider refused one as too large, or because requests succeeded since.

    Limits are tokens of the input of a request. None: unknown.
    """

    before: int | None
    after: int | None
    why: str
    """The reason, as one clause."""


@attrs.frozen(kw_only=True)
class ToolsChanged:
    """The program has given a conversation other tools: the model is told, or requests offer them from now on."""

    change: str
    """The difference from the tools that were offered, such as `added search; removed grep`."""
    offered: bool
    """Whether requests offer them from now on. False: a message at the end tells the model of them, so
    that the prompt cache stays valid."""
    why: str
    """The reason, as one clause."""


@attrs.frozen(kw_only=True)
class TurnStarted:
    """A session has started a turn. `TurnEnded` follows."""

    number: int
    conversation: str | None = None
    """The id of the conversation, as in `CompactionStarted`."""


@attrs.frozen(kw_only=True, repr=False)
class _Ended(_Event):
    """What the ends of turns, requests and tool calls have in common."""

    number: int
    """The number of the turn, the request or the call, as in the event of its start."""
    seconds: float
    """The time that it took."""


@attrs.frozen(kw_only=True, repr=False)
class TurnEnded(_Ended):
    """A turn has ended, with the model's last reply, an error or a cancellation."""

    steps: int = 0
    """The number of replies."""
    usage: Usage | None = None
    """The cost of all requests of the turn, without those for summaries."""
    error: str | None = None
    """The class name of what the turn raised. None: it ended with the model's reply."""


@attrs.frozen(kw_only=True, repr=False)
class RequestSent(_Event):
    """A request was sent to a model: by a session, or for a summary.

    `ReplyReceived` or `RequestFailed` follows.
    """

    number: int
    model: str
    provider: str | None = None
    """The provider, as OpenTelemetry names it, such as `openai`. None: the model does not tell."""
    conversation: str | None = None
    """The id of the conversation, as in `CompactionStarted`."""
    compaction: int | None = None
    """The number of the compaction that the request is for. None: it is one of the conversation."""
    compacted: bool = False
    """Whether the request shows a summary in place of earlier messages."""
    tokens: int | None = None
    """The size of the request by promptkit's count, known before any provider has counted. None: it
    was not counted, as for most summaries."""
    messages: tuple[Message, ...] = attrs.field(default=(), repr=False)
    tools: tuple[ToolDefinition, ...] = attrs.field(default=(), repr=False)


@attrs.frozen(kw_only=True, repr=False)
class ReplyReceived(_Ended):
    """The model has replied."""

    usage: Usage
    finish: str
    """The reason why the model stopped, as in `Reply`."""
    request_id: str | None = None
    """The provider's name for the request, where it gave one."""
    message: Message | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True, repr=False)
class RequestFailed(_Ended):
    """A request ended without a reply: with an error, a time limit or a cancellation."""

    error: str
    """The class name of what was raised."""
    detail: str = ""
    """The error's text."""


@attrs.frozen(kw_only=True, repr=False)
class ToolCalled(_Event):
    """A session runs a tool call. `ToolReturned` follows."""

    number: int
    name: str
    call_id: str
    conversation: str | None = None
    """The id of the conversation, as in `CompactionStarted`."""
    description: str | None = None
    """The tool's description, as the model is told it."""
    arguments: str = attrs.field(default="", repr=False)
    """The arguments as JSON."""


@attrs.frozen(kw_only=True, repr=False)
class ToolReturned(_Ended):
    """A tool call has ended."""

    error: str | None = None
    """`tool_error` if the model is told of an error, the class name of what ended the call
    otherwise. None: the tool has a result."""
    result: str = attrs.field(default="", repr=False)
    """The text of the result."""


Event: TypeAlias = (
    TurnStarted
    | TurnEnded
    | RequestSent
    | ReplyReceived
    | RequestFailed
    | ToolCalled
    | ToolReturned
    | DecisionMade
    | CompactionStarted
    | SummaryAttemptFailed
    | CompactionCommitted
    | CompactionFailed
    | CompactionCancelled
    | SummaryDiscarded
    | RequestPruned
    | WindowLearned
    | ToolsChanged
    | CacheMissed
)
"""Any event that a subscriber receives."""


Subscriber: TypeAlias = Callable[[Event], None]
"""A callable that receives each event, in order."""


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
    tokens: int | None = None
    """The size of the requests, where they were counted."""
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
                tokens=self.tokens,
                messages=tuple(messages),
                tools=tuple(tools),
            )
        )
        try:
            reply = await self.model.complete(messages, tools=tools)
        except BaseException as error:
            self.events.emit(
                RequestFailed(
                    number=number,
                    seconds=time.monotonic() - started,
                    error=type(error).__name__,
                    detail=str(error),
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
