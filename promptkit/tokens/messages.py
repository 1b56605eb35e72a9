"""The tokens of one message: its content and the framing around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.messages import CacheBreakpointPart

if TYPE_CHECKING:
    from promptkit.messages import Message, Part
    from promptkit.tokens.tokenizer import Count, Tokenizer

__all__ = ["count_frame", "count_message", "count_part"]


def count_message(message: Message, tokenizer: Tokenizer) -> int:
    """Count the tokens of a message, framing included."""
    return count_frame(message, tokenizer).tokens + sum([count_part(part, tokenizer) for part in message.content])


def count_frame(message: Message, tokenizer: Tokenizer) -> Count:
    """Count the tokens around the content of a message."""
    has_text = any(isinstance(part, str) for part in message.content)
    return tokenizer.count_framing(
        message.role, name=message.name, tool_calls=message.tool_calls, tool_call_id=message.tool_call_id, text=has_text
    )


def count_part(part: Part, tokenizer: Tokenizer) -> int:
    """Count the tokens of a content part."""
    if isinstance(part, str):
        return tokenizer.count(part)
    return 0 if isinstance(part, CacheBreakpointPart) else tokenizer.count_part(part).tokens
