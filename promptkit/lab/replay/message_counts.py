"""Count the tokens of each message of a replay once, however many requests, policies and prompt caches need the count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import attrs

from promptkit.messages import Message, OpaquePart, ToolDefinition
from promptkit.providers.anthropic.api import is_thinking
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import Tokenizer
from promptkit.transcript import message_to_json


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
