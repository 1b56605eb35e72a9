"""The messages of a replay by number: each is counted once, however many requests, policies and caches look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.rendering.sizing import Sizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["MessageCount", "MessageCounts"]


@attrs.frozen(kw_only=True, eq=False)
class MessageCount:
    """What is known of a message. Equal messages are one piece: a provider cannot tell them apart."""

    number: int
    message: Message
    tokens: int
    blocks: int
    """Content blocks on the wire."""
    role: str
    calls: frozenset[str]
    """The ids of its calls."""


class MessageCounts:
    """Numbers messages. One of each is held, so that its identity is never another's."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._count = Sizer(tokenizer).count_message
        self._by_identity: dict[int, MessageCount] = {}
        self._by_value: dict[Message, MessageCount] = {}
        self._held: list[Message] = []
        self._all: list[MessageCount] = []

    def __getitem__(self, number: int) -> MessageCount:
        return self._all[number]

    def __len__(self) -> int:
        return len(self._all)

    def of(self, messages: Sequence[Message]) -> list[MessageCount]:
        """The pieces of messages, in order."""
        known = self._by_identity
        return [known.get(id(message)) or self._meet(message) for message in messages]

    def _meet(self, message: Message) -> MessageCount:
        try:
            piece = self._by_value.get(message)
        except TypeError:  # a provider's own part may hold what cannot be hashed: then only the same object is the same message
            piece = self._made(message)
        else:
            if piece is not None:
                return piece  # it is found by what it says: its identity need not be kept, and policies make many such messages
            piece = self._by_value[message] = self._made(message)
        self._by_identity[id(message)] = piece
        self._held.append(message)
        return piece

    def _made(self, message: Message) -> MessageCount:
        piece = MessageCount(
            number=len(self._all),
            message=message,
            tokens=self._count(message),
            blocks=max(1, len(message.content) + len(message.tool_calls)),
            role=message.role,
            calls=frozenset(call.id for call in message.tool_calls),
        )
        self._all.append(piece)
        return piece
