"""Prompt caches as providers describe theirs: what of a request was sent before, and still is remembered.

OpenAI ("Prompt caching"): the longest prefix that an earlier request had, in steps of 128 tokens, from 1,024 on. Anthropic ("Prompt
caching"): a prefix is remembered where a breakpoint stood, at most four in a request, and looked for at each breakpoint and the 20
blocks before it. What was not used for a life time is forgotten. Here a prefix ends with a message, never within one.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from promptkit.replay.policies.bill import Bill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.replay.message_counts import MessageCount

__all__ = ["CACHES", "AnthropicCache", "Cache", "NoCache", "OpenAICache", "Prefixes", "breakpoints", "cache_for", "rule_for"]

LEAST, STEP = 1_024, 128
"""Tokens: the shortest prefix that is remembered, and by how much a longer one is longer."""

MOST, LOOK_BACK = 4, 20
"""Breakpoints in one request, and blocks before one that are looked at."""

LIFE = {"openai": 300.0, "anthropic": 300.0, "anthropic-1h": 3_600.0, "off": 0.0}
"""Seconds without use: the least that OpenAI says, and what Anthropic promises."""

CACHES = tuple(LIFE)
"""The names of the rules."""

NODES = 100_000
"""Prefixes that are remembered at most: of more, those unused for longest are forgotten."""


class Cache(Protocol):
    """A provider's cache for one conversation."""

    def send(self, first: int, pieces: Sequence[MessageCount], now: float) -> Bill:
        """Send a request: `first` tokens that every request begins with, then messages. `now` is in seconds and never goes back."""
        ...


class Prefixes:
    """A tree of prefixes, each by a number: what was sent, message by message."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], int] = {}
        self._turn: dict[int, int] = {}
        self.used: dict[int, float] = {}
        """When a prefix was last used, by its number: kept by the cache."""
        self._turns = 0
        self._count = 0

    def __len__(self) -> int:
        return len(self._next)

    def walk(self, pieces: Sequence[MessageCount]) -> tuple[list[int], int]:
        """The prefix that ends with each message, and how many of them were known before."""
        self._turns += 1
        node, known, found = 0, 0, list[int]()
        for piece in pieces:
            key = (node, piece.number)
            child = self._next.get(key)
            if child is None:
                self._count += 1
                child = self._next[key] = self._count
            else:
                known += 1
            self._turn[child] = self._turns
            found.append(child)
            node = child
        if len(self._next) > NODES:
            self._forget()
        return found, known

    def _forget(self) -> None:
        # A prefix is used whenever a longer one is: what is left is a tree.
        oldest = sorted(self._turn.values())[len(self._turn) // 2]
        self._turn = {node: turn for node, turn in self._turn.items() if turn >= oldest}
        self._next = {key: node for key, node in self._next.items() if node in self._turn}
        self.used = {node: time for node, time in self.used.items() if node in self._turn}


class OpenAICache:
    """Remembers every prefix that was sent."""

    def __init__(self, life: float) -> None:
        self._life = life
        self.prefixes = Prefixes()

    def send(self, first: int, pieces: Sequence[MessageCount], now: float) -> Bill:
        """The longest known prefix is read from the cache; all of the request is in it from now on."""
        nodes, known = self.prefixes.walk(pieces)
        used = self.prefixes.used
        while known and now - used.get(nodes[known - 1], -math.inf) > self._life:
            known -= 1
        for node in nodes:
            used[node] = now
        total = first + sum(piece.tokens for piece in pieces)
        met = first + sum(piece.tokens for piece in pieces[:known]) if known else 0
        cached = _stepped(min(met, total))
        return Bill(input_tokens=total, cached_tokens=cached, written_tokens=max(0, _stepped(total) - cached))


class AnthropicCache:
    """Remembers prefixes that ended with a breakpoint.

    They are where promptkit keeps those of too many: behind the instructions, and at the three newest places where a request ended.
    """

    def __init__(self, life: float) -> None:
        self._life = life
        self.prefixes = Prefixes()

    def send(self, first: int, pieces: Sequence[MessageCount], now: float) -> Bill:
        """The longest prefix that is remembered is read; what is behind it, up to the last breakpoint, is written."""
        nodes, _ = self.prefixes.walk(pieces)
        sums = list(accumulate((piece.tokens for piece in pieces), initial=first))[1:]
        if not sums or sums[-1] < LEAST:
            return Bill(input_tokens=sums[-1] if sums else first)
        places = breakpoints(pieces)
        cached = 0
        for place in reversed(places):
            if (found := self._found(nodes, pieces, place, now)) is not None:
                cached = sums[found]
                self.prefixes.used[nodes[found]] = now
                break
        for place in places:
            if sums[place] >= LEAST:
                self.prefixes.used[nodes[place]] = now
        return Bill(input_tokens=sums[-1], cached_tokens=cached, written_tokens=sums[-1] - cached)

    def _found(self, nodes: Sequence[int], pieces: Sequence[MessageCount], place: int, now: float) -> int | None:
        blocks = 0
        for at in range(place, -1, -1):
            if now - self.prefixes.used.get(nodes[at], -math.inf) <= self._life:
                return at
            blocks += pieces[at].blocks
            if blocks > LOOK_BACK:
                return None
        return None


class NoCache:
    """Remembers nothing."""

    def send(self, first: int, pieces: Sequence[MessageCount], now: float) -> Bill:
        """Everything is read anew."""
        _ = now
        return Bill(input_tokens=first + sum(piece.tokens for piece in pieces))


def rule_for(model: str) -> str:
    """The rule of a model's provider, by its name."""
    return "anthropic" if "claude" in model else "openai"


def cache_for(rule: str, life: float | None = None) -> Cache:
    """An empty cache under a rule; `life` in seconds instead of the rule's own."""
    seconds = LIFE[rule] if life is None else life
    if rule == "off":
        return NoCache()
    return OpenAICache(seconds) if rule == "openai" else AnthropicCache(seconds)


def _stepped(tokens: int) -> int:
    return tokens // STEP * STEP if tokens >= LEAST else 0


def breakpoints(pieces: Sequence[MessageCount]) -> list[int]:
    """The places of the breakpoints, in order."""
    system = next((at for at, piece in enumerate(pieces) if piece.role != "system"), 0) - 1
    places = [len(pieces) - 1]
    for at in range(len(pieces) - 1, 0, -1):
        if len(places) == MOST - (system >= 0):
            break
        if pieces[at].role == "assistant" and pieces[at - 1].role != "assistant" and at - 1 not in places:
            places.append(at - 1)
    return sorted({*places, *([system] if system >= 0 else [])})
