"""The least that the requests of a conversation can be compacted to, and whether a context window has room for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.blocks import find_last_user_request
from promptkit.compaction.policy.decisions import Compact
from promptkit.compaction.policy.state import PolicyState
from promptkit.errors import ContextWindowFullError
from promptkit.rendering.expand.sizing import Sizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.policy.rules import Policy
    from promptkit.messages import Message
    from promptkit.tokens.budget import ContextBudget
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log.view import ViewItem


@attrs.frozen(kw_only=True)
class LeastSize:
    """The least that the requests of a conversation can be compacted to, by part.

    All sizes are tokens.
    """

    instructions: int
    """The instructions, and the framing of the request."""
    tools: int
    """The tool definitions."""
    newest: int
    """The last user message, and the newest reply after it. Tool results do not count: they are
    shortened if they must be."""
    summary: int = 0
    """The largest summary; 0 where no request that is too large is summarized."""
    beside: int = 0
    """The user's earlier messages and a block of carried context beside it."""
    limit: int | None = None
    """The most that a request may have: the window without what is reserved for the reply. None:
    unknown."""

    @property
    def total(self) -> int:
        """All parts together."""
        return self.instructions + self.tools + self.newest + self.summary + self.beside

    @property
    def is_possible(self) -> bool:
        """Whether requests fit: without a summary, and with one after a compaction.

        A large newest message alone is no obstacle.
        """
        fixed = self.instructions + self.tools
        return (
            self.limit is None or fixed + max(self.newest, self.summary + self.beside) <= self.limit
        )

    def explain(self) -> str:
        """Describe the sizes, and what to do where they do not fit.

        >>> print(LeastSize(instructions=9_000, tools=1_000, newest=40, summary=1_500, limit=10_000).explain())
        the conversation can be compacted to 11,540 tokens at least, and a request may have 10,000: instructions 9,000, tools 1,000, \
the newest message 40, the largest summary 1,500. Shorten the largest of them, or use a larger window or model.
        """
        parts = {
            "instructions": self.instructions,
            "tools": self.tools,
            "the newest message": self.newest,
            "the largest summary": self.summary,
            "what stands beside it": self.beside,
        }
        listed = ", ".join(f"{name} {tokens:,}" for name, tokens in parts.items() if tokens)
        limit = "" if self.limit is None else f", and a request may have {self.limit:,}"
        return (
            f"the conversation can be compacted to {self.total:,} tokens at least{limit}: {listed}. "
            "Shorten the largest of them, or use a larger window or model."
        )

    def check(self) -> None:
        """Raise ContextWindowFullError, with the sizes, if requests cannot fit."""
        if not self.is_possible:
            raise ContextWindowFullError(self.explain())


def compacts_overflow(policy: Policy, budget: ContextBudget) -> bool:
    """Return whether a policy compacts a conversation of many messages whose request is too large."""
    tokens = 2 * (budget.render_budget or 0) + 1
    return isinstance(
        policy.decide(PolicyState(phase="overflow", budget=budget, tokens=tokens, messages=tokens)),
        Compact,
    )


def count_newest(items: Sequence[ViewItem], tokenizer: Tokenizer) -> int:
    """Count the tokens of the last user message of a view, and of the newest reply after it."""
    last = find_last_user_request(items)
    reply = next(
        (
            at
            for at in range(len(items) - 1, last or 0, -1)
            if items[at].message.role == "assistant"
        ),
        None,
    )
    sizer = Sizer(tokenizer)
    return sum(sizer.count_message(items[at].message) for at in (last, reply) if at is not None)


def describe_largest(messages: Sequence[Message], tokenizer: Tokenizer, *, count: int = 3) -> str:
    """Name the largest messages of a request, with their sizes in tokens, and what to do about them.

    >>> print(describe_largest(messages, tokenizer))
    The largest messages: result of read_file 4,300, result of search 1,200, user 310. Shorten them, or use a larger window or model.
    """
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    sizer = Sizer(tokenizer)
    largest = sorted(
        ((sizer.count_message(message), at) for at, message in enumerate(messages)),
        key=lambda each: (-each[0], each[1]),
    )
    listed: list[str] = []
    for tokens, at in largest[:count]:
        tool = names.get(messages[at].tool_call_id or "")
        listed.append(f"{f'result of {tool}' if tool else messages[at].role} {tokens:,}")
    return (
        f"The largest messages: {', '.join(listed)}. Shorten them, or use a larger window or model."
    )
