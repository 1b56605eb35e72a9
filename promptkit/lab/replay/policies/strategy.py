"""The interface of a policy in a replay: it gets the recorded messages, and returns the requests that it would send."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import attrs

from promptkit.lab.replay.prompt_cache import MessageCounts
from promptkit.messages import Message, ToolDefinition, Usage
from promptkit.providers import Model
from promptkit.tokens import BilledTokens, ContextBudget, Tokenizer

TRANSCRIPT_PATH = "transcripts/replayed.jsonl"
"""The path of the transcript that breadcrumbs name, for policies that keep a transcript."""


@attrs.frozen(kw_only=True)
class ReplayPolicy:
    """A policy that can be replayed."""

    name: str
    """The name on the command line and in tables."""
    start: Callable[[ReplayTerms], PolicyRun]
    """Starts a conversation."""


class PolicyRun(ABC):
    """A policy that manages the context window of one conversation.

    `transcript_path` is the path of the transcript that the policy keeps; None: dropped messages
    are lost.
    """

    def __init__(self, transcript_path: str | None = None) -> None:
        self.checkpoints: int = 0
        """Summaries so far that replaced messages."""
        self.waits: int = 0
        """Requests so far that waited for a summary."""
        self.summary_calls: list[SummaryCall] = []
        """The summaries so far."""
        self.transcript_path = transcript_path

    @abstractmethod
    async def add(self, message: Message) -> None:
        """Append a message of the user or a tool result."""

    @abstractmethod
    async def request(self) -> Sequence[Message]:
        """Return the messages of the next request, without system messages.

        If they exceed the window, an overflow is counted.
        """

    async def add_reply(self, reply: Message, usage: Usage | None) -> None:
        """Append the model's reply, by default as any message.

        Returns when the policy has finished its work in the background.

        Args:
            reply: The reply.
            usage: What a provider with the simulated prompt cache reports for the request. None: it
                would have refused the request.
        """
        await self.add(reply)

    async def close(self) -> None:  # noqa: B027  # most policies have nothing to end
        """End the conversation. By default nothing runs in the background."""


@attrs.frozen(kw_only=True)
class ReplayTerms:
    """The settings of a conversation, the same for every policy."""

    budget: ContextBudget
    """The budget of the window. Policies may use its `limit`: the window without the tokens
    reserved for the reply."""
    tokenizer: Tokenizer
    """Counts for budgets."""
    counts: MessageCounts
    """Counts for bills."""
    tools: tuple[ToolDefinition, ...]
    system: tuple[Message, ...]
    """The system messages with which every request starts."""
    request_tokens: int
    """Tokens of every request besides its messages, such as those of tool definitions."""
    rng: Callable[[], float]
    """Returns a random number from 0 to below 1. The numbers are the same in every run."""
    clock: Callable[[], float]
    """Returns the time in the recording, in seconds."""
    summary_tokens: int = 0
    """The least tokens that a model is assumed to write for a summary."""
    model: Model | None = None
    """The model that writes summaries; None: they are extracted from the conversation."""

    @property
    def fixed_tokens(self) -> int:
        """Tokens of every request besides the conversation: the request's own, and those of the system messages."""
        return self.request_tokens + self.count(self.system)

    def count(self, messages: Sequence[Message]) -> int:
        """Count the tokens of messages."""
        return sum(count.tokens for count in self.counts.count_messages(messages))


@attrs.frozen(kw_only=True)
class SummaryCall:
    """The request for a summary. If no model wrote the summary, it is billed as if one had."""

    request: tuple[Message, ...] = ()
    """The messages of the request at whose end the summary was requested. The prompt cache serves
    them as in any other request."""
    uncached_tokens: int = 0
    """Input tokens after these messages, or of a request of its own. They are never cached."""
    output_tokens: int = 0
    """Tokens of the summary."""
    billed: BilledTokens | None = None
    """The tokens that the model's provider counted. If set, the other fields are ignored."""
