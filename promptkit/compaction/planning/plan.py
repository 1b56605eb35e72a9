"""What a compaction would do to a conversation, before anybody has done it: plain values.

The last request, and how much of a conversation it shows: whether a summary can be asked for behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptkit.messages import Json, Message, ToolDefinition, Usage
    from promptkit.transcript.redaction import Redactor
    from promptkit.transcript.view import ViewItem

__all__ = ["LastRequest", "Plan", "SentRequest", "Summary", "SummaryTask"]


AIM_SHARE = 4
LEAST_AIM = 500
MOST_AIM = 2_000


@attrs.frozen(kw_only=True)
class Plan:
    """A partition of what the model is shown: every message is in exactly one of the five.

    Calls and their results are never apart. `leaf` is the entry for which the plan was made: while it is on the path, and everything
    before it as it was, the plan holds.
    """

    leaf: str
    previous: str | None = None
    """The text of the summary that this view starts with: the next one is made of it and of what is new in `dropped`."""
    dropped: tuple[ViewItem, ...] = ()
    """What the summary will stand for; the message of the previous summary is the first of it."""
    prefix: tuple[ViewItem, ...] = ()
    """The first messages of a turn that is cut in two, likewise summarized."""
    kept: tuple[ViewItem, ...] = ()
    """What stays as it is behind the summary."""
    pinned: tuple[ViewItem, ...] = ()
    """What stays though it is older than what is dropped, such as system messages."""
    replayed: tuple[ViewItem, ...] = ()
    """What is said again behind the summary, such as the request that a long turn works on."""

    oversized: int | None = None
    """The tokens of `kept` where they are more than it may have: one block of calls and results is never cut. None: it fits."""

    @property
    def is_empty(self) -> bool:
        """There is nothing to summarize, and no model is asked."""
        return not self.dropped and not self.prefix

    @property
    def first_kept(self) -> str | None:
        """The id of the first entry that stays; None: none does."""
        return self.kept[0].entry if self.kept else None


@attrs.frozen(kw_only=True)
class LastRequest:
    """The last request as it was sent: a summary asked for behind the same bytes is paid for by the provider's prompt cache."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()


@attrs.frozen(kw_only=True)
class SummaryTask:
    """What a summarizer is asked for. Figures are tokens."""

    plan: Plan
    max_tokens: int
    """The most that the summary may have."""
    instructions: str | None = None
    """What the person wants the summary to heed."""
    last_request: LastRequest | None = None
    tools: Sequence[ToolDefinition] = ()
    """Of the conversation."""
    facts: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])
    """What was carried over from the checkpoint before."""
    redactor: Redactor | None = None
    """What has taken the secrets out of the plan, the instructions and the facts; the last request is as it was sent."""
    check: Callable[[Summary], object] | None = attrs.field(default=None, repr=False, eq=False)
    """Raises SummaryError for a summary that would not be put in place, such as one that is no smaller than what it stands for."""

    @property
    def aim_tokens(self) -> int:
        """What it should have: a quarter of the most, from 500 to 2,000.

        Output costs many times what is read from a cache, and a summary is paid for once more as input; what it leaves out is in the
        transcript. Longer ones were found to keep no more of what was needed later (docs/economics.md).
        """
        return min(self.max_tokens, max(LEAST_AIM, min(MOST_AIM, self.max_tokens // AIM_SHARE)))


@attrs.frozen(kw_only=True)
class Summary:
    """What a summarizer wrote."""

    text: str
    """Never blank."""
    mode: str
    """How it was made: `live`, `full`, `simple`, `chunked`, `remote`, `native`, `extractive`, `placeholder`."""
    model: str | None = None
    usage: Usage | None = None
    """Of all requests together; None where no model was asked."""
    replacement: tuple[Message, ...] | None = None
    """What a provider itself puts in the place of what is dropped; `text` then stands for it wherever that cannot be read."""
    facts: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"])


@attrs.frozen(kw_only=True)
class SentRequest:
    """A request that was sent, and what it shows: the first `items` of the view, as it was when `leaf` was the last entry."""

    request: LastRequest
    leaf: str
    items: int

    def answered(self, reply: Message, view: Sequence[ViewItem]) -> SentRequest:
        """With the answer behind it, where that is the next item of the view. Calls without results cannot be sent: they are left out."""
        if reply.tool_calls or not view[self.items :] or view[self.items].message != reply:
            return self
        request = attrs.evolve(self.request, messages=(*self.request.messages, reply))
        return attrs.evolve(self, request=request, items=self.items + 1)

    def shows(self, plan: Plan, view: Sequence[ViewItem]) -> bool:
        """Whether it shows all that a plan for the view drops."""
        return len(view) - len(plan.kept) <= self.items
