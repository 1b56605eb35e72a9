"""Count the tokens of each message of a replay once, and simulate providers' prompt caches: how much of a request was sent before and is still cached.

* OpenAI ("Prompt caching"): the longest prefix of an earlier request, from 1,024 tokens on, in
  steps of 128 tokens.
* Anthropic ("Prompt caching"): prefixes that ended at a breakpoint, at most four in a request. A
  request looks for them at each of its breakpoints and in the 20 blocks before it. The shortest has
  512 to 4,096 tokens, by the model.

A prefix that was not used for the cache's lifetime expires. In this simulation a prefix always ends
with a message.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import accumulate

import attrs

from promptkit.messages import Message, OpaquePart, ToolDefinition
from promptkit.providers.anthropic.api import is_thinking
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import BilledTokens, Tokenizer
from promptkit.tokens.models import CACHE_MINIMUM
from promptkit.transcript import message_to_json
from promptkit.wire.anthropic import find_breakpoints


@attrs.frozen(kw_only=True, eq=False)
class MessageCount:
    """A message with its counts.

    Equal messages share one, because a provider cannot tell them apart.
    """

    number: int
    message: Message
    tokens: int
    """Tokens of the message in a request."""
    output_tokens: int
    """Tokens of the message as a reply, with its thinking."""
    blocks: int
    """Content blocks in the provider's format, at least 1. A tool result is one block, whatever is
    in it."""
    role: str
    call_ids: frozenset[str]
    """The ids of the message's tool calls."""


class MessageCounts:
    """The counts of all messages, numbered in the order in which they were first counted.

    Each message object is kept, so that its identity is not reused for another one.

    Args:
        tokenizer: Counts the messages.
        shows_thinking: Whether requests have the thinking of Anthropic's models. Other providers are
            not sent it.
    """

    def __init__(self, tokenizer: Tokenizer, *, shows_thinking: bool = True) -> None:
        self.tokenizer = tokenizer
        self._shows_thinking = shows_thinking
        self._count = Sizer(tokenizer).count_message
        self._by_identity: dict[int, MessageCount] = {}
        self._by_value: dict[Message | str, MessageCount] = {}
        """By the message; by its text where a provider's own part contains values that cannot be
        hashed."""
        self._all: list[MessageCount] = []

    def __getitem__(self, number: int) -> MessageCount:
        return self._all[number]

    def count_messages(self, messages: Sequence[Message]) -> list[MessageCount]:
        """Return the counts of messages, in their order."""
        known = self._by_identity
        return [known.get(id(message)) or self._find_or_add(message) for message in messages]

    def _find_or_add(self, message: Message) -> MessageCount:
        # A provider's own part may contain values that cannot be hashed.
        key: Message | str = (
            json.dumps(message_to_json(message), sort_keys=True)
            if any(isinstance(part, OpaquePart) for part in message.content)
            else message
        )
        if (count := self._by_value.get(key)) is not None:
            # found by value: keeping the identity would cost memory, because policies create many
            # such messages
            return count
        tokens = written = self._count(message)
        if not self._shows_thinking and any(map(is_thinking, message.content)):
            tokens = self._count(
                attrs.evolve(
                    message,
                    content=tuple(part for part in message.content if not is_thinking(part)),
                )
            )
        count = MessageCount(
            number=len(self._all),
            message=message,
            tokens=tokens,
            output_tokens=written,
            blocks=1
            if message.role == "tool"
            else max(1, len(message.content) + len(message.tool_calls)),
            role=message.role,
            call_ids=frozenset(call.id for call in message.tool_calls),
        )
        self._by_value[key] = self._by_identity[id(message)] = count
        self._all.append(count)
        return count


def count_overhead(
    tokenizer: Tokenizer, tools: Sequence[ToolDefinition], messages: Iterable[Message]
) -> int:
    """Count the tokens of a request beside its messages: its framing, and the definitions of its tools."""
    return tokenizer.count_overhead(
        tools,
        system=next((message.text for message in messages if message.role == "system"), False),
    ).tokens


PREFIX_STEP = 128
"""Tokens by which longer prefixes grow in OpenAI's cache."""

LOOK_BACK = 20
"""Blocks before a breakpoint in which a cached prefix is found."""

LIFETIMES = {"openai": 300.0, "anthropic": 300.0, "anthropic-1h": 3_600.0, "off": 0.0}
"""The names of the cache rules, and the seconds without use until a prefix expires: the minimum that
OpenAI documents, and what Anthropic guarantees."""

MAX_PREFIXES = 100_000
"""Prefixes that a cache remembers. If there are more, it forgets those that were unused for
longest."""


def cache_rule_for(model: str) -> str:
    """Return the name of the cache rule of a model's provider."""
    return "anthropic" if is_claude(model) else "openai"


def is_claude(model: str) -> bool:
    """Return whether a model is one of Anthropic's."""
    return "claude" in model


def find_lifetime(rule: str, lifetime: float | None = None) -> float:
    """Return the seconds after which an unused prefix leaves the cache of a rule, or `lifetime` if that is given."""
    return LIFETIMES[rule] if lifetime is None else lifetime


def bill_prefix(
    rule: str, tokens: int, prefix: int, *, minimum: int = CACHE_MINIMUM
) -> BilledTokens:
    """Return the billed input of a request of so many tokens, of which the cache of a rule holds the first `prefix`.

    `minimum` is the tokens of the shortest prefix that the cache holds.
    """
    if rule == "off":
        return BilledTokens(input_tokens=tokens)
    if rule == "openai":
        cached = _round_down(min(prefix, tokens), minimum)
        return BilledTokens(
            input_tokens=tokens,
            cached_tokens=cached,
            written_tokens=max(0, _round_down(tokens, minimum) - cached),
        )
    cached = min(prefix, tokens) if prefix >= minimum else 0
    written = tokens - cached if tokens >= minimum else 0
    return BilledTokens(
        input_tokens=tokens,
        cached_tokens=cached,
        written_tokens=written,
        written_1h_tokens=written if rule == "anthropic-1h" else 0,
    )


def _round_down(tokens: int, minimum: int) -> int:
    return tokens // PREFIX_STEP * PREFIX_STEP if tokens >= minimum else 0


class PromptCache:
    """A provider's prompt cache for one conversation.

    OpenAI's has every prefix that was sent, Anthropic's those that ended at a breakpoint. The
    breakpoints are those that sessions and windows set.

    Args:
        rule: One of LIFETIMES.
        lifetime: Seconds after which an unused prefix leaves the cache. None: as the rule says.
        minimum: Tokens of the shortest prefix that the cache holds.
    """

    def __init__(
        self, rule: str, lifetime: float | None = None, *, minimum: int = CACHE_MINIMUM
    ) -> None:
        self._rule = rule
        self._minimum = minimum
        self._lifetime = find_lifetime(rule, lifetime)
        self.prefixes = PrefixTree()
        self._sums: list[int] = [0]
        """The tokens of the prefixes of the newest request, the empty one first."""
        self._sent = -math.inf
        """The time of the newest request, which used all of its prefixes."""

    def send(
        self,
        request_tokens: int,
        messages: Sequence[MessageCount],
        now: float,
        *,
        missed: bool = False,
    ) -> BilledTokens:
        """Send a request, and return its billed input tokens.

        Args:
            request_tokens: Tokens before the messages, such as those of tool definitions. They are
                the same in every request.
            messages: The messages of the request.
            now: The time in seconds. It never decreases.
            missed: Whether the provider does not serve it from the cache, although it could.
        """
        prefixes, sums = self.prefixes, self._sums
        kept = prefixes.count_kept(messages)
        if self._rule == "openai":
            prefixes.last_used.update(dict.fromkeys(prefixes.nodes[kept:], self._sent))
        known = prefixes.add_path(messages, kept)
        sums[kept:] = accumulate(
            (message.tokens for message in messages[kept:]), initial=sums[kept]
        )
        tokens = request_tokens + sums[-1]
        if self._rule == "off" or not (messages or self._rule == "openai"):
            return BilledTokens(input_tokens=tokens)
        length = (
            self._use_sent(kept, known, now)
            if self._rule == "openai"
            else self._use_breakpoints(messages, request_tokens, now)
        )
        return bill_prefix(
            self._rule,
            tokens,
            request_tokens + sums[length] if length and not missed else 0,
            minimum=self._minimum,
        )

    def _use_sent(self, kept: int, known: int, now: float) -> int:
        """Return how many messages are cached as OpenAI does it, and cache the whole request."""
        nodes, last_used = self.prefixes.nodes, self.prefixes.last_used
        while known > kept and now - last_used.get(nodes[known - 1], -math.inf) > self._lifetime:
            known -= 1
        if known == kept and now - self._sent > self._lifetime:
            known = 0
        self._sent = now
        return known

    def _use_breakpoints(
        self, messages: Sequence[MessageCount], request_tokens: int, now: float
    ) -> int:
        """Return how many messages are cached as Anthropic does it, and cache the rest up to the last breakpoint."""
        breakpoints = find_breakpoints(messages)
        cached = next(
            (
                place
                for end in reversed(breakpoints)
                if (place := self._find_cached(messages, end, now)) is not None
            ),
            None,
        )
        used = [
            place
            for place in breakpoints
            if request_tokens + self._sums[place + 1] >= self._minimum
        ]
        used += [] if cached is None else [cached]
        self.prefixes.last_used.update((self.prefixes.nodes[place], now) for place in used)
        return 0 if cached is None else cached + 1

    def _find_cached(self, messages: Sequence[MessageCount], place: int, now: float) -> int | None:
        """Return the last place at or before a breakpoint at which a cached prefix ends, or None."""
        blocks = 0
        for at in range(place, -1, -1):
            last_used = self.prefixes.last_used.get(self.prefixes.nodes[at], -math.inf)
            if now - last_used <= self._lifetime:
                return at
            blocks += messages[at].blocks
            if blocks > LOOK_BACK:
                return None
        return None


class PrefixTree:
    """A tree of the prefixes that were sent. Each prefix ends with a message and has a number."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, int], int] = {}
        self._path: list[MessageCount] = []
        self.nodes: list[int] = []
        """The numbers of the prefixes of the newest path."""
        self._last_added: dict[int, int] = {}
        """The number of the last path with a prefix, for those that the newest path does not have."""
        self.last_used: dict[int, float] = {}
        """The time at which a prefix was last used, by its number. The cache sets it."""
        self._added = self._last_number = 0

    def count_kept(self, messages: Sequence[MessageCount]) -> int:
        """Return how many messages a path has in common with the newest one."""
        before = self._path
        return (
            len(before)
            if messages[: len(before)] == before
            else next(
                (
                    at
                    for at, (message, other) in enumerate(zip(messages, before, strict=False))
                    if message is not other
                ),
                min(len(messages), len(before)),
            )
        )

    def add_path(self, messages: Sequence[MessageCount], kept: int) -> int:
        """Add the prefixes that end with each message, and return how many of them were known before.

        Takes time linear in the messages after the first `kept`, which are those of the newest
        path.
        """
        self._last_added.update(dict.fromkeys(self.nodes[kept:], self._added))
        del self.nodes[kept:], self._path[kept:]
        self._added += 1
        node, known = self.nodes[-1] if kept else 0, kept
        for message in messages[kept:]:
            key = (node, message.number)
            if (child := self._children.get(key)) is None:
                self._last_number += 1
                child = self._children[key] = self._last_number
            else:
                known += 1
            self._path.append(message)
            self.nodes.append(child)
            node = child
        if len(self._children) > MAX_PREFIXES:
            self._forget_oldest()
        return known

    def _forget_oldest(self) -> None:
        # A prefix is used whenever a longer one is used, so the rest is still a tree.
        self._last_added.update(dict.fromkeys(self.nodes, self._added))
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
