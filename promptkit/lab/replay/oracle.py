"""The price of a conversation in hindsight: what it costs at least under any policy, and its planned optimum.

A policy does not know how long a conversation will be. `find_optimum` does: it tries all sets of
points by dynamic programming, with the pauses of the recording. It is the optimum of a model of
sizes: every summary has the same, on average those of the policy that it is compared with, so a
policy whose summaries differ can cost less. `find_lower_bound` is a bound that no policy goes below.
docs/replay.md describes it.

A compaction after a reply costs one request for the summary, behind the request of that reply. The
next request has the system messages and tools, the summary with what stands beside it, the user's
message if the turn goes on, and what came after the request of that reply. The prompt cache holds
the whole request before, or after a compaction what is before its messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate

import attrs

from promptkit.compaction.presets.break_even import PREFACE_TOKENS, QUESTION_TOKENS
from promptkit.lab.replay.prompt_cache import MessageCount, bill_prefix, find_lifetime
from promptkit.tokens import BilledTokens, Price
from promptkit.tokens.models import CACHE_MINIMUM

SUMMARY_TOKENS = 1_000
"""Tokens of a summary, as the preset `break_even` aims at."""


@attrs.frozen(kw_only=True)
class RequestSize:
    """A request of a conversation that is never compacted, and its reply."""

    tokens: int
    """The tokens of the request."""
    output_tokens: int
    """The tokens of the reply."""
    user_tokens: int
    """The tokens of the user's message that a compaction after the reply repeats; 0 where the reply
    ends the turn."""
    sent: float
    """The time at which the request is sent, in seconds."""
    replied: float
    """The time of the reply."""
    counted: bool = True
    """Whether the request counts. False: an earlier branch of the recording has it, too."""


@attrs.frozen(kw_only=True)
class PricedConversation:
    """A conversation and the terms under which it is paid for."""

    requests: tuple[RequestSize, ...]
    fixed_tokens: int
    """Tokens of every request besides the conversation: those of the request itself, and of the
    system messages."""
    limit: int | None
    """The most tokens of a request. None: unknown."""
    price: Price
    cache: str
    """The rule of the prompt cache, one of LIFETIMES."""
    cache_lifetime: float | None = None
    """Seconds after which an unused prefix leaves the cache; None: as the rule says."""
    cache_minimum: int = CACHE_MINIMUM
    """Tokens of the shortest prefix that the cache holds."""
    summary_tokens: int = SUMMARY_TOKENS
    """Tokens of a summary."""

    def bill_prefix(self, tokens: int, prefix: int) -> BilledTokens:
        """Return the billed input of a request of so many tokens, of which the first `prefix` were sent before."""
        return bill_prefix(self.cache, tokens, prefix, minimum=self.cache_minimum)

    beside_tokens: int = PREFACE_TOKENS
    """Tokens beside a summary: its tags, the breadcrumb, and the user's earlier words."""


def measure_requests(
    messages: Sequence[MessageCount],
    times: Sequence[float | None],
    *,
    output_tokens: Sequence[int],
    fixed_tokens: int,
    shared: int = 0,
) -> tuple[RequestSize, ...]:
    """Measure the requests of a recording that is never compacted.

    Args:
        messages: The messages, without the system's at the beginning.
        times: The time of each message in seconds; None: that of the message before it.
        output_tokens: The billed tokens of each message as a reply.
        fixed_tokens: Tokens of every request besides these messages.
        shared: How many of the first messages an earlier branch has, too.
    """
    sums = list(accumulate((message.tokens for message in messages), initial=fixed_tokens))
    known = list(accumulate((0.0 if time is None else time for time in times), max, initial=0.0))
    requests: list[RequestSize] = []
    user_tokens = 0
    for at, message in enumerate(messages):
        if message.role == "user":
            user_tokens = message.tokens
        if message.role == "assistant" and at:
            requests.append(
                RequestSize(
                    tokens=sums[at],
                    output_tokens=output_tokens[at],
                    user_tokens=user_tokens if message.call_ids else 0,
                    sent=known[at],
                    replied=known[at + 1],
                    counted=at >= shared,
                )
            )
    return tuple(requests)


def find_lower_bound(conversation: PricedConversation) -> float:
    """Compute what the conversation costs at least, in US dollars.

    It has the replies, what every request has from the cache, and of what is new in a request what
    any policy sends, once: not the reply before it, which a summary may replace, and at most half of
    what the context window leaves, because larger results may be shortened before they are sent.
    """
    requests, fixed = conversation.requests, conversation.fixed_tokens
    places = [at for at, request in enumerate(requests) if request.counted]
    room = None if conversation.limit is None else max(0, conversation.limit - fixed) // 2
    new = [
        max(0, requests[at].tokens - requests[at - 1].tokens - requests[at - 1].output_tokens)
        if at
        else requests[0].tokens - fixed
        for at in places
    ]
    first = fixed if places and not places[0] else 0
    repeated = fixed * len(places) - first
    read = sum(tokens if room is None else min(tokens, room) for tokens in new)
    return conversation.price.cost(
        BilledTokens(
            input_tokens=first + read + repeated,
            cached_tokens=0 if conversation.cache == "off" else repeated,
            output_tokens=sum(requests[at].output_tokens for at in places),
        )
    )


def find_optimum(conversation: PricedConversation) -> tuple[float, tuple[int, ...]]:
    """Find the compactions with which the conversation is cheapest by the model of sizes, by dynamic programming.

    A compaction at place `n` is after the first `n` replies. The time is linear in the requests,
    times those that fit a context window.

    Returns:
        The price in US dollars, and the places of the compactions.
    """
    count = len(conversation.requests)
    best = [0.0] + [math.inf] * count
    """For each place the least price of the requests before it, with a summary after the last
    one."""
    came_from = [0] * (count + 1)
    total, last = math.inf if count else 0.0, 0
    for start in range(count):
        spent = best[start]
        for at, size, price in _iter_segment(conversation, start):
            spent += price
            if at + 1 == count:
                if spent < total:
                    total, last = spent, start
            elif (closed := spent + _price_summary(conversation, at, size)) < best[at + 1]:
                best[at + 1], came_from[at + 1] = closed, start
    places: list[int] = []
    while last:
        places.append(last)
        last = came_from[last]
    return total, tuple(reversed(places))


def _iter_segment(conversation: PricedConversation, start: int) -> Iterator[tuple[int, int, float]]:
    """Yield the requests from a compaction to the next: the place, the size in tokens and the price in US dollars.

    The segment ends before a request that does not fit, but it has at least one: a policy cannot
    compact more often.
    """
    requests, lifetime = (
        conversation.requests,
        find_lifetime(conversation.cache, conversation.cache_lifetime),
    )
    shift, before, used = 0, 0, -math.inf
    if start:
        closed = requests[start - 1]
        shift = (
            conversation.fixed_tokens
            + conversation.summary_tokens
            + conversation.beside_tokens
            + closed.user_tokens
            - closed.tokens
        )
        before, used = conversation.fixed_tokens, closed.replied
    for at in range(start, len(requests)):
        request = requests[at]
        size = request.tokens + shift
        if conversation.limit is not None and size > conversation.limit and at > start:
            return
        billed = conversation.bill_prefix(size, before if request.sent - used <= lifetime else 0)
        yield (
            at,
            size,
            conversation.price.cost(attrs.evolve(billed, output_tokens=request.output_tokens))
            if request.counted
            else 0.0,
        )
        before, used = size, request.sent


def _price_summary(conversation: PricedConversation, at: int, size: int) -> float:
    """Return the price of the summary behind a request of a size in tokens."""
    request = conversation.requests[at]
    if not request.counted:
        return 0.0
    lifetime = find_lifetime(conversation.cache, conversation.cache_lifetime)
    billed = conversation.bill_prefix(
        size, size if request.replied - request.sent <= lifetime else 0
    )
    return conversation.price.cost(
        attrs.evolve(
            billed,
            input_tokens=billed.input_tokens + QUESTION_TOKENS,
            output_tokens=conversation.summary_tokens,
        )
    )
