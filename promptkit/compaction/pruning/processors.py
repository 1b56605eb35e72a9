"""Processors: functions that change the messages of a request before it is rendered. Nothing of it is written to the transcript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.compaction.pruning.messages import HEADROOM, cap_results, drop_images, find_tool_names, replace_messages, truncate_messages
from promptkit.errors import BudgetExceededError
from promptkit.messages import Message
from promptkit.rendering.sizing import Sizer

if TYPE_CHECKING:
    from collections.abc import Collection

    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["Processor", "RequestLimits", "cap_tool_results", "clear_results", "remove_images", "truncate_history"]

STEP = 0.25
"""Share of the limit that is dropped at once, so that the next requests begin with the same bytes, for the provider's prompt cache."""


@attrs.frozen(kw_only=True)
class RequestLimits:
    """The limits of a request, and its circumstances."""

    limit: int | None
    """Limit of the request in tokens, fixed tokens included. None: unknown."""
    fixed_tokens: int
    """Tokens that every request has besides the conversation: system prompt, tools, framing."""
    tokenizer: Tokenizer
    warm: bool = False
    """Whether the start of the request is in the provider's prompt cache, so that changing it costs more."""
    pruned: bool = False
    """Whether messages may be dropped, as no summary reduced the request."""
    count_message: Callable[[Message], int] = attrs.Factory(lambda self: Sizer(self.tokenizer).count_message, takes_self=True)
    """Counts the tokens of a message. In a window, each message is counted once for all of its requests."""


Processor: TypeAlias = Callable[[Sequence[Message], RequestLimits], Sequence[Message]]
"""Returns the messages of a request as they are rendered. Must be idempotent."""


def truncate_history(headroom: float = HEADROOM, *, step: float = STEP) -> Processor:
    """Make a processor that drops the oldest rounds and turns from pruned requests: the last resort, as in Copilot CLI.

    Args:
        headroom: Share of the limit that is free afterwards. Default: 0.05.
        step: Share of the limit that is dropped at once. Default: 0.25.

    Returns:
        The processor.
    """

    def process(messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
        if limits.limit is None or not limits.pruned:
            return messages
        try:
            return truncate_messages(
                messages,
                limits.limit,
                tokenizer=limits.tokenizer,
                fixed_tokens=limits.fixed_tokens,
                headroom=headroom,
                step=int(limits.limit * step),
                count_message=limits.count_message,
            ).messages
        except BudgetExceededError:  # the render raises it with the figures of the whole prompt
            return messages

    return process


def cap_tool_results(max_tokens: int, *, exempt: Collection[str] = ()) -> Processor:
    """Make a processor that cuts out the middle of tool results longer than `max_tokens`, except those of `exempt` tools."""
    return lambda messages, limits: cap_results(messages, max_tokens, tokenizer=limits.tokenizer, exempt=exempt).messages


def remove_images() -> Processor:
    """Make a processor that replaces images that the model has seen by a placeholder, in pruned requests."""
    return lambda messages, limits: drop_images(messages, tokenizer=limits.tokenizer).messages if limits.pruned else messages


def clear_results(keep: int, *, tools: Collection[str] | None = None, step: int = 1) -> Processor:
    """Make a processor that clears the text of old tool results, as Claude Code does.

    Args:
        keep: Number of the newest results that do not change.
        tools: Names of the tools whose results are cleared. None: all tools.
        step: Results are cleared this many at a time, so that the requests between begin with the same bytes, for the provider's prompt
            cache.

    Returns:
        The processor.
    """

    def process(messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
        names = find_tool_names(messages)
        results = [at for at in range(len(messages)) if messages[at].role == "tool" and (tools is None or names.get(at) in tools)]
        old = max(0, len(results) - keep)
        cleared = set(results[: old - old % max(1, step)])

        def clear(message: Message, index: int) -> Message | None:
            if index not in cleared:
                return None
            return attrs.evolve(
                message, content=("[old tool result cleared]", *(part for part in message.content if not isinstance(part, str)))
            )

        return replace_messages(messages, clear, "capped", tokenizer=limits.tokenizer).messages

    return process
