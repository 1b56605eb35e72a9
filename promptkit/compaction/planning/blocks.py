"""The view of a conversation in the pieces that stay together: calls with their results, turns, the request that is worked on."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import attrs

from promptkit.transcript.view import summary_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message
    from promptkit.transcript.view import ViewItem

__all__ = [
    "Block",
    "blocks_of",
    "has_completed_round",
    "is_opening",
    "is_placeholder",
    "is_request",
    "is_summary",
    "last_request",
    "open_requests",
    "spans",
    "starts_turn",
    "summary_text",
]

_BEFORE, _BEHIND = summary_message("\0").text.split("\0")


@attrs.frozen
class Block:
    """Messages `start` to before `end` of a view, which are kept or dropped together: one message, or calls with all their results.

    `running`: one of its calls has no result yet, and the model has not gone on without it.
    """

    start: int
    end: int
    running: bool = False


def spans(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Where blocks start and end: results belong to the message before them."""
    starts = [index for index, message in enumerate(messages) if message.role != "tool" or index == 0]
    return list(pairwise([*starts, len(messages)]))


def blocks_of(items: Sequence[ViewItem]) -> list[Block]:
    """The blocks of a view, oldest first."""
    blocks = [Block(start, end) for start, end in spans([item.message for item in items])]
    # Only the newest answer of the model can wait for results: that it wrote another says that nobody answers the older one any more.
    for at in range(len(blocks) - 1, -1, -1):
        block = blocks[at]
        if items[block.start].message.role == "assistant":
            if _is_running(items, block):
                blocks[at] = attrs.evolve(block, running=True)
            break
    return blocks


def _is_running(items: Sequence[ViewItem], block: Block) -> bool:
    answered = {items[at].message.tool_call_id for at in range(block.start + 1, block.end) if not is_placeholder(items, block, at)}
    return any(call.id not in answered for call in items[block.start].message.tool_calls)


def is_placeholder(items: Sequence[ViewItem], block: Block, at: int) -> bool:
    """Whether a message of a block stands for a result that was never written: it comes from the entry of its call."""
    return at > block.start and items[at].kind != "replacement" and items[at].entry == items[block.start].entry


def is_opening(item: ViewItem) -> bool:
    """Whether an item stands for what a checkpoint covers."""
    return item.kind in {"summary", "replacement"}


def summary_text(message: Message) -> str | None:
    """The summary that a message shows, without the tags around it; None for any other message."""
    text = message.text if message.role == "user" else ""
    if not (text.startswith(_BEFORE) and text.endswith(_BEHIND)) or len(text) < len(_BEFORE) + len(_BEHIND):
        return None
    return text[len(_BEFORE) : len(text) - len(_BEHIND)]


def is_summary(item: ViewItem) -> bool:
    """Whether an item is the summary of what was before. A person may write the same tags: that is a request."""
    return item.kind == "summary" or (item.kind == "replacement" and summary_text(item.message) is not None)


def is_request(item: ViewItem) -> bool:
    """Whether an item is what a person asked for: no summary, no reminder of a program's."""
    return item.message.role == "user" and item.kind in {"message", "replacement"} and not is_summary(item)


def starts_turn(items: Sequence[ViewItem], at: int) -> bool:
    """Whether a turn starts here: at the first of the messages that come from outside, a request, a reminder, a branch's summary."""
    return _is_from_outside(items[at]) and (at == 0 or not _is_from_outside(items[at - 1]))


def _is_from_outside(item: ViewItem) -> bool:
    return item.message.role == "user" and not is_summary(item)


def last_request(items: Sequence[ViewItem]) -> int | None:
    """The place of the request that is worked on; None where none is shown."""
    return next((at for at in range(len(items) - 1, -1, -1) if is_request(items[at])), None)


def open_requests(items: Sequence[ViewItem]) -> list[int]:
    """The places of what was asked since the model last gave an answer without calls: what it still works on."""
    found: list[int] = []
    for at in range(len(items) - 1, -1, -1):
        message = items[at].message
        if message.role == "assistant" and not message.tool_calls:
            break
        if is_request(items[at]):
            found.append(at)
    return found[::-1]


def has_completed_round(items: Sequence[ViewItem]) -> bool:
    """Whether a round of tool calls was answered since the last request.

    Then a request of this turn has been sent before: the provider's prompt cache is warm. Looks no further back than it must.
    """
    results: list[str] = []
    for item in reversed(items):
        message = item.message
        if message.role == "tool":
            results.append(item.entry)
        elif is_request(item):
            return False
        elif message.tool_calls and results and (item.kind == "replacement" or item.entry not in results):
            return True
        else:
            results.clear()
    return False
