"""The structure of a view: blocks of tool calls with their results, turns, open user requests, and what a checkpoint covers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, count, starmap
from operator import is_not
from typing import NamedTuple

import attrs

from promptkit.fitting.choose import split_blocks
from promptkit.messages import Message
from promptkit.transcript import Checkpoint, Entry, ViewItem, build_summary_message, build_view
from promptkit.transcript.log.entry_sequence import find_entry

ANSWERED, OPEN = "[answered] ", "[open] "
"""The marks of the user's earlier messages beside a summary: whether a final reply has followed."""

_OPENING_TAG, _CLOSING_TAG = build_summary_message("\0").text.split("\0")


class Block(NamedTuple):
    """Messages of a view that are kept or dropped together: one message, or tool calls with all their results."""

    start: int
    """Index of the first message."""
    end: int
    """Index after the last message."""
    running: bool = False
    """Whether one of the calls has no result yet and the model has not replied again since."""


def group_blocks(items: Sequence[ViewItem]) -> list[Block]:
    """Group the messages of a view into blocks, oldest first."""
    blocks = list(starmap(Block, split_blocks([item.message for item in items])))
    # Only the newest reply can wait for results: once the model has replied again, the calls of an
    # older reply stay without results.
    for at in range(len(blocks) - 1, -1, -1):
        block = blocks[at]
        if items[block.start].message.role == "assistant":
            if _is_running(items, block):
                blocks[at] = block._replace(running=True)
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


def count_unchanged(
    before: Sequence[ViewItem],
    now: Sequence[ViewItem],
    is_same: Callable[[ViewItem, ViewItem], bool],
) -> int:
    """Count the items at the start of a view that are the same as in an earlier one."""
    shorter = min(len(before), len(now))
    # usually items were appended, and the others are the same objects
    start = next(compress(count(), map(is_not, before, now)), shorter)
    return next((at for at in range(start, shorter) if not is_same(before[at], now[at])), shorter)


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


def mark_request(message: Message, *, is_open: bool) -> Message:
    """Return a message of the user with its mark, which is a part of its own."""
    marked = (OPEN if is_open else ANSWERED, *unmark_request(message).content)
    return attrs.evolve(message, content=marked)


def unmark_request(message: Message) -> Message:
    """Return a message as the user wrote it."""
    if message.role != "user" or message.content[:1] not in {(ANSWERED,), (OPEN,)}:
        return message
    return attrs.evolve(message, content=message.content[1:])


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

    Requests that are marked as answered are none, although their replies are no longer shown. A
    reply after which a program asked the model to go on is not the last one of its turn.
    """
    found: list[int] = []
    for at in range(len(items) - 1, -1, -1):
        message = items[at].message
        if message.role == "assistant" and not message.tool_calls and not _is_continued(items, at):
            break
        if is_user_request(items[at]) and message.content[:1] != (ANSWERED,):
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


def find_covered_items(path: Sequence[Entry], checkpoint: str) -> tuple[ViewItem, ...]:
    """Return the messages that a checkpoint on a path removed from the view, without those that an earlier one had removed.

    Empty for an entry that is not a checkpoint or not on the path. Linear in the length of the
    path.
    """
    at = find_entry(path, checkpoint)
    if at is None:
        return ()
    known = {entry.id for entry in find_covered_entries(path[:at], path[at].payload)}
    return tuple(
        item
        for item in build_view(path[:at]).items
        if not is_checkpoint_item(item) and item.entry_id in known
    )


def find_covered_entries(path: Sequence[Entry], checkpoint: object) -> Sequence[Entry]:
    """Return the entries of a path that a checkpoint after it removes from the view.

    They start where the earlier checkpoint or reset ended. What the earlier checkpoint kept is
    covered by this one, so that no entry is covered twice.
    """
    if not isinstance(checkpoint, Checkpoint):
        return ()
    kept = None if checkpoint.first_kept is None else find_entry(path, checkpoint.first_kept)
    return path[_find_view_start(path) : len(path) if kept is None else kept]


def _find_view_start(path: Sequence[Entry]) -> int:
    """Return the index at which the view of the path begins."""
    view = build_view(path)
    if view.checkpoint_id is None:
        shown = {item.entry_id for item in view.items}
        return next((at for at, entry in enumerate(path) if entry.id in shown), len(path))
    at = find_entry(path, view.checkpoint_id) or 0
    before = path[at].payload
    kept = before.first_kept if isinstance(before, Checkpoint) else None
    found = None if kept is None else find_entry(path, kept)
    return at if found is None else found
