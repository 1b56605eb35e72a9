"""What a replay asks of each policy: to hear what was said, and to show what it would send."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message, ToolDefinition
    from promptkit.providers.model import Model
    from promptkit.replay.message_counts import MessageCounts
    from promptkit.replay.policies.bill import Bill
    from promptkit.tokens.budget import ContextBudget
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["TRANSCRIPT_PLACE", "PolicyRun", "ReplayPolicy", "ReplayTerms", "SummaryCall"]

TRANSCRIPT_PLACE = "transcripts/replayed.jsonl"
"""Where policies that keep a transcript say that it is: a place for the breadcrumb to name."""


@attrs.frozen(kw_only=True)
class ReplayTerms:
    """What every policy is given for a conversation, the same for all."""

    budget: ContextBudget
    """Of the window. What policies may fill is its `limit`: the window less what is kept for the reply."""
    tokenizer: Tokenizer
    counts: MessageCounts
    tools: tuple[ToolDefinition, ...]
    system: tuple[Message, ...]
    """What every request begins with."""
    request_tokens: int
    """Tokens that every request has beside its messages."""
    rng: Callable[[], float]
    """A number from 0 to below 1, the same ones in every run."""
    model: Model | None = None
    """Who writes summaries; None: nobody, they are made of the conversation's own words."""

    @property
    def fixed_tokens(self) -> int:
        """Tokens that every request has beside the conversation."""
        return self.request_tokens + self.count(self.system)

    def count(self, messages: Sequence[Message]) -> int:
        """The tokens of messages."""
        return sum(piece.tokens for piece in self.counts.of(messages))


@attrs.frozen(kw_only=True)
class SummaryCall:
    """A summary that was made, and what a model is sent for it. Where none wrote it, it is billed as if one had."""

    behind: tuple[Message, ...] = ()
    """The request that it was asked behind: what the cache has of that is as cheap as in any request."""
    extra: int = 0
    """Tokens that are sent behind that, or by themselves: never cached."""
    output: int = 0
    """The tokens of the summary."""
    bill: Bill | None = None
    """What a model's provider has counted; then nothing else counts."""


class PolicyRun(Protocol):
    """A policy at work on one conversation. `checkpoints` and `waits` grow; `calls` are what was summarized so far."""

    checkpoints: int
    """Summaries that were put in place."""
    waits: int
    """Requests that had to wait for a summary."""
    calls: list[SummaryCall]
    place: str | None
    """The place of the transcript that the policy keeps; None: what it drops is gone."""

    async def add(self, message: Message) -> None:
        """Something was said: by the person, by a tool."""
        ...

    async def request(self) -> Sequence[Message]:
        """The messages of the next request, without the system's. It may be larger than the window: then it is counted as an overflow."""
        ...

    async def add_reply(self, reply: Message) -> None:
        """What the model has answered. What the policy does in the background is done when this returns."""
        ...

    async def close(self) -> None:
        """The conversation is over."""
        ...


class ReplayPolicy(Protocol):
    """A policy that can be replayed. It must survive pickling: conversations are played in several processes."""

    @property
    def name(self) -> str:
        """As it is named on the command line and in tables."""
        ...

    def start(self, terms: ReplayTerms) -> PolicyRun:
        """Begin a conversation."""
        ...
