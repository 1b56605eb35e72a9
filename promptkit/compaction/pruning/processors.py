"""What is done to the messages of each request before it is rendered, in order: nothing of it is written to the transcript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.compaction.pruning.messages import HEADROOM, cap_results, drop_images, replace_messages, tool_names, truncate
from promptkit.errors import BudgetExceededError
from promptkit.messages import Message

if TYPE_CHECKING:
    from collections.abc import Collection

    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["Processor", "RequestLimits", "cap_tool_results", "clear_results", "truncator", "without_images"]

STEP = 0.25
"""The share of the limit that is left out at once, so that the start of the requests between stays the same for the provider's cache."""


@attrs.frozen(kw_only=True)
class RequestLimits:
    """What a request has room for, and in what case it is. Figures are tokens."""

    limit: int | None
    """What its messages may have, with what is beside them; None: unknown."""
    beside: int
    """What every request has beside the conversation."""
    tokenizer: Tokenizer
    warm: bool = False
    """Whether the provider has the start of it in its cache: whoever changes that pays for it."""
    pruned: bool = False
    """No summary was to be had: what does not fit is left out."""


Processor: TypeAlias = Callable[[Sequence[Message], RequestLimits], Sequence[Message]]
"""Gives the messages of a request as they are to be rendered. Given its own result again, it gives the same."""


def truncator(headroom: float = HEADROOM, *, step: float = STEP) -> Processor:
    """Leaves out whole rounds and turns in two passes, where no summary has made room: the last resort, as of Copilot CLI."""

    def process(messages: Sequence[Message], room: RequestLimits) -> Sequence[Message]:
        if room.limit is None or not room.pruned:
            return messages
        try:
            return truncate(
                messages, room.limit, tokenizer=room.tokenizer, beside=room.beside, headroom=headroom, step=int(room.limit * step)
            ).messages
        except BudgetExceededError:  # the render says what has no room, with all that the prompt has besides
            return messages

    return process


def cap_tool_results(tokens: int, *, exempt: Collection[str] = ()) -> Processor:
    """Cuts the middle out of tool results of more than so many tokens."""
    return lambda messages, room: cap_results(messages, tokens, tokenizer=room.tokenizer, exempt=exempt).messages


def without_images() -> Processor:
    """Replaces images that the model has seen by a word, where no summary has made room."""
    return lambda messages, room: drop_images(messages, tokenizer=room.tokenizer).messages if room.pruned else messages


def clear_results(keep: int, *, tools: Collection[str] | None = None, step: int = 1) -> Processor:
    """Clears the text of all tool results but the newest `keep`, of all tools or of some, as Claude Code does.

    What is cleared grows by `step` results at a time, so that the start of the requests between stays the same for the provider's cache.
    """

    def process(messages: Sequence[Message], room: RequestLimits) -> Sequence[Message]:
        names = tool_names(messages)
        results = [at for at in range(len(messages)) if messages[at].role == "tool" and (tools is None or names.get(at) in tools)]
        old = max(0, len(results) - keep)
        cleared = set(results[: old - old % max(1, step)])

        def without(message: Message, index: int) -> Message | None:
            if index not in cleared:
                return None
            return attrs.evolve(
                message, content=("[old tool result cleared]", *(part for part in message.content if not isinstance(part, str)))
            )

        return replace_messages(messages, without, "capped", tokenizer=room.tokenizer).messages

    return process
