"""Simulate providers' prompt caches: how much of a request was sent before and is still cached.

* OpenAI ("Prompt caching"): the longest prefix of an earlier request, from 1,024 tokens on, in
  steps of 128 tokens.
* Anthropic ("Prompt caching"): prefixes that ended at a breakpoint, at most four in a request. A
  request looks for them at each of its breakpoints and in the 20 blocks before it.

A prefix that was not used for the cache's lifetime expires. In this simulation a prefix always ends
with a message.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from promptkit.tokens.prices import BilledTokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.lab.replay.message_counts import MessageCount

MIN_PREFIX, PREFIX_STEP = 1_024, 128
"""Tokens of the shortest prefix that is cached, and tokens by which longer ones grow."""

MAX_BREAKPOINTS, LOOK_BACK = 4, 20
"""Breakpoints in one request, and blocks before a breakpoint in which a cached prefix is found."""

LIFETIMES = {"openai": 300.0, "anthropic": 300.0, "anthropic-1h": 3_600.0, "off": 0.0}
"""Seconds without use until a prefix expires: the minimum that OpenAI documents, and what Anthropic
guarantees."""

CACHE_RULES = tuple(LIFETIMES)
"""The names of the cache rules."""

MAX_PREFIXES = 100_000
"""Prefixes that a cache remembers. If there are more, it forgets those that were unused for
longest."""


class PromptCache(Protocol):
    """A provider's prompt cache for one conversation."""

    def send(
        self, request_tokens: int, messages: Sequence[MessageCount], now: float
    ) -> BilledTokens:
        """Send a request, and return its billed input tokens.

        Args:
            request_tokens: Tokens before the messages, such as those of tool definitions. They are
                the same in every request.
            messages: The messages of the request.
            now: The time in seconds. It never decreases.
        """
        ...


def cache_rule_for(model: str) -> str:
    """Return the name of the cache rule of a model's provider."""
    return "anthropic" if "claude" in model else "openai"


def create_cache(rule: str, lifetime: float | None = None) -> PromptCache:
    """Create an empty cache for one of CACHE_RULES.

    `lifetime` replaces the rule's own, in seconds.
    """
    seconds = find_lifetime(rule, lifetime)
    if rule == "off":
        return NoCache()
    return OpenAICache(seconds) if rule == "openai" else AnthropicCache(seconds)


def find_lifetime(rule: str, lifetime: float | None = None) -> float:
    """Return the seconds after which an unused prefix leaves the cache of a rule, or `lifetime` if that is given."""
    return LIFETIMES[rule] if lifetime is None else lifetime


def bill_prefix(rule: str, tokens: int, prefix: int) -> BilledTokens:
    """Return the billed input of a request of so many tokens, of which the cache of a rule holds the first `prefix`."""
    if rule == "off":
        return BilledTokens(input_tokens=tokens)
    if rule == "openai":
        cached = _round_down(min(prefix, tokens))
        return BilledTokens(
            input_tokens=tokens,
            cached_tokens=cached,
            written_tokens=max(0, _round_down(tokens) - cached),
        )
    cached = min(prefix, tokens) if prefix >= MIN_PREFIX else 0
    return BilledTokens(
        input_tokens=tokens,
        cached_tokens=cached,
        written_tokens=tokens - cached if tokens >= MIN_PREFIX else 0,
    )


class OpenAICache:
    """A cache of every prefix that was sent."""

    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self.prefixes = PrefixTree()

    def send(
        self, request_tokens: int, messages: Sequence[MessageCount], now: float
    ) -> BilledTokens:
        """Read the longest cached prefix from the cache, and write the whole request to it."""
        nodes, known = self.prefixes.add_path(messages)
        last_used = self.prefixes.last_used
        while known and now - last_used.get(nodes[known - 1], -math.inf) > self._lifetime:
            known -= 1
        for node in nodes:
            last_used[node] = now
        total = request_tokens + sum(message.tokens for message in messages)
        matched = (
            request_tokens + sum(message.tokens for message in messages[:known]) if known else 0
        )
        return bill_prefix("openai", total, matched)


def _round_down(tokens: int) -> int:
    return tokens // PREFIX_STEP * PREFIX_STEP if tokens >= MIN_PREFIX else 0


class AnthropicCache:
    """A cache of the prefixes that ended at a breakpoint.

    The breakpoints are those that promptkit keeps when there are too many: after the instructions,
    and at the three newest places where a request ended.
    """

    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self.prefixes = PrefixTree()

    def send(
        self, request_tokens: int, messages: Sequence[MessageCount], now: float
    ) -> BilledTokens:
        """Read the longest cached prefix from the cache, and write the rest up to the last breakpoint to it."""
        nodes, _ = self.prefixes.add_path(messages)
        sums = list(accumulate((message.tokens for message in messages), initial=request_tokens))[
            1:
        ]
        if not sums or sums[-1] < MIN_PREFIX:
            return BilledTokens(input_tokens=sums[-1] if sums else request_tokens)
        breakpoints = find_breakpoints(messages)
        cached = 0
        for place in reversed(breakpoints):
            if (cached_place := self._find_cached(nodes, messages, place, now)) is not None:
                cached = sums[cached_place]
                self.prefixes.last_used[nodes[cached_place]] = now
                break
        for place in breakpoints:
            if sums[place] >= MIN_PREFIX:
                self.prefixes.last_used[nodes[place]] = now
        return BilledTokens(
            input_tokens=sums[-1], cached_tokens=cached, written_tokens=sums[-1] - cached
        )

    def _find_cached(
        self, nodes: Sequence[int], messages: Sequence[MessageCount], place: int, now: float
    ) -> int | None:
        """Return the last place at or before a breakpoint at which a cached prefix ends, or None."""
        blocks = 0
        for at in range(place, -1, -1):
            if now - self.prefixes.last_used.get(nodes[at], -math.inf) <= self._lifetime:
                return at
            blocks += messages[at].blocks
            if blocks > LOOK_BACK:
                return None
        return None


def find_breakpoints(messages: Sequence[MessageCount]) -> list[int]:
    """Return the indexes of the messages after which a request has a breakpoint, in order."""
    system = next((at for at, message in enumerate(messages) if message.role != "system"), 0) - 1
    places = [len(messages) - 1]
    for at in range(len(messages) - 1, 0, -1):
        if len(places) == MAX_BREAKPOINTS - (system >= 0):
            break
        if (
            messages[at].role == "assistant"
            and messages[at - 1].role != "assistant"
            and at - 1 not in places
        ):
            places.append(at - 1)
    return sorted({*places, *([system] if system >= 0 else [])})


class NoCache:
    """A cache that never contains anything."""

    def send(
        self, request_tokens: int, messages: Sequence[MessageCount], now: float
    ) -> BilledTokens:
        """Bill the whole request as uncached."""
        _ = now
        return BilledTokens(
            input_tokens=request_tokens + sum(message.tokens for message in messages)
        )


class PrefixTree:
    """A tree of the prefixes that were sent. Each prefix ends with a message and has a number."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, int], int] = {}
        self._last_added: dict[int, int] = {}
        self.last_used: dict[int, float] = {}
        """The time at which a prefix was last used, by its number. The cache sets it."""
        self._added = 0
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._children)

    def add_path(self, messages: Sequence[MessageCount]) -> tuple[list[int], int]:
        """Return the number of the prefix that ends with each message, and how many of these prefixes were known before."""
        self._added += 1
        node, known, nodes = 0, 0, list[int]()
        for message in messages:
            key = (node, message.number)
            child = self._children.get(key)
            if child is None:
                self._last_number += 1
                child = self._children[key] = self._last_number
            else:
                known += 1
            self._last_added[child] = self._added
            nodes.append(child)
            node = child
        if len(self._children) > MAX_PREFIXES:
            self._forget_oldest()
        return nodes, known

    def _forget_oldest(self) -> None:
        # A prefix is used whenever a longer one is used, so the rest is still a tree.
        oldest = sorted(self._last_added.values())[len(self._last_added) // 2]
        self._last_added = {
            node: added for node, added in self._last_added.items() if added >= oldest
        }
        self._children = {
            key: node for key, node in self._children.items() if node in self._last_added
        }
        self.last_used = {
            node: time for node, time in self.last_used.items() if node in self._last_added
        }
