"""The structure of a view: blocks of tool calls with their results, turns, and the user requests that are still open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.fitting.choose import split_blocks
from promptkit.transcript.log.view import build_summary_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message
    from promptkit.transcript.log.view import ViewItem

_OPENING_TAG, _CLOSING_TAG = build_summary_message("\0").text.split("\0")


@attrs.frozen
class Block:
    """Messages of a view that are kept or dropped together: one message, or tool calls with all their results."""

    start: int
    """Index of the first message."""
    end: int
    """Index after the last message."""
    running: bool = False
    """Whether one of the calls has no result yet and the model has not replied again since."""


def group_blocks(items: Sequence[ViewItem]) -> list[Block]:
    """Group the messages of a view into blocks, oldest first."""
    blocks = [Block(start, end) for start, end in split_blocks([item.message for item in items])]
    # Only the newest reply can wait for results: once the model has replied again, the calls of an
    # older reply stay without results.
    for at in range(len(blocks) - 1, -1, -1):
        block = blocks[at]
        if items[block.start].message.role == "assistant":
            if _is_running(items, block):
                blocks[at] = attrs.evolve(block, running=True)
            break
    return blocks


def _is_running(items: Sequence[ViewItem], block: Block) -> bool:
    answered = {
        items[at].message.tool_call_id
        for at in range(block.start + 1, block.end)
        if not is_missing_result(items, block, at)
    }
    return any(call.id not in answered for call in items[block.start].message.tool_calls)


def is_missing_result(items: Sequence[ViewItem], block: Block, at: int) -> bool:
    """Return whether a message of a block replaces a tool result that was never recorded: it comes from the entry of its call."""
    return (
        at > block.start
        and items[at].kind != "replacement"
        and items[at].entry_id == items[block.start].entry_id
    )


def is_checkpoint_item(item: ViewItem) -> bool:
    """Return whether an item comes from a checkpoint: a summary, or another message that replaces what the checkpoint covers."""
    return item.kind in {"summary", "replacement"}


def extract_summary_text(message: Message) -> str | None:
    """Return the summary in a message, without its tags and what is carried after it, or None for any other message."""
    text = message.text if message.role == "user" else ""
    end = text.find(_CLOSING_TAG, len(_OPENING_TAG)) if text.startswith(_OPENING_TAG) else -1
    carried = text[end + len(_CLOSING_TAG) :]
    if end < 0 or (carried and not carried.startswith("\n\n<")):
        return None
    return text[len(_OPENING_TAG) : end]


def is_summary(item: ViewItem) -> bool:
    """Return whether an item is the summary of earlier messages.

    A user message with the same tags is none, also if it was repeated.
    """
    return item.kind == "summary"


def is_user_request(item: ViewItem) -> bool:
    """Return whether an item is a message of the user: neither a summary nor a reminder that a program added."""
    return item.message.role == "user" and item.kind in {"message", "replacement"}


def starts_turn(items: Sequence[ViewItem], at: int) -> bool:
    """Return whether a turn starts here: at the first of consecutive user messages, reminders or branch summaries."""
    return _is_input(items[at]) and (at == 0 or not _is_input(items[at - 1]))


def _is_input(item: ViewItem) -> bool:
    return item.message.role == "user" and not is_summary(item)


def find_last_user_request(items: Sequence[ViewItem]) -> int | None:
    """Return the index of the last user request, or None if the view has none."""
    return next((at for at in range(len(items) - 1, -1, -1) if is_user_request(items[at])), None)


def find_open_user_requests(items: Sequence[ViewItem]) -> list[int]:
    """Return the indexes of the user requests since the last reply without tool calls: those that the model still works on.

    A reply after which a program asked the model to go on is not the last one of its turn.
    """
    found: list[int] = []
    for at in range(len(items) - 1, -1, -1):
        message = items[at].message
        if message.role == "assistant" and not message.tool_calls and not _is_continued(items, at):
            break
        if is_user_request(items[at]):
            found.append(at)
    return found[::-1]


def _is_continued(items: Sequence[ViewItem], at: int) -> bool:
    """Return whether a program's message follows a reply, and no user message follows that one."""
    following = items[at + 1 : at + 3]
    return (
        bool(following)
        and following[0].kind == "custom_message"
        and not any(map(is_user_request, following))
    )


def has_completed_round(items: Sequence[ViewItem]) -> bool:
    """Return whether a round of tool calls was completed since the last user request.

    If so, a request of this turn was sent before, and the provider's prompt cache is warm.
    """
    results: list[str] = []
    for item in reversed(items):
        message = item.message
        if message.role == "tool":
            results.append(item.entry_id)
        elif is_user_request(item):
            return False
        elif (
            message.tool_calls
            and results
            and (item.kind == "replacement" or item.entry_id not in results)
        ):
            return True
        else:
            results.clear()
    return False
