"""The counts of a recording, by which an import can be checked against the file that was imported."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from promptkit.lab.recordings.reading.json_values import as_object, as_text
from promptkit.messages import ImagePart, Message, OpaquePart
from promptkit.tools import is_error_result
from promptkit.transcript.log.entries import (
    Checkpoint,
    CustomEntry,
    CustomMessage,
    Entry,
    MessageEntry,
    Observation,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit.lab.recordings.reading.format import Batch

THINKING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning", "thought"})
"""The types of opaque parts that hold a model's thinking."""

CALLED, REPEATED, ANSWERED = 1, 2, 4
"""What is known of a tool call id, as bits: a call has it, several calls have it, a tool result has
it."""


@attrs.frozen(kw_only=True)
class RecordingCounts:
    """The counts of a recording. docs/importing.md explains each of them."""

    conversations: int = 0
    """Conversations in the recording."""
    messages: int = 0
    """Messages as the recording counts them."""
    tool_calls: int = 0
    """Tool calls."""
    tool_results: int = 0
    """Tool results."""
    unanswered: int = 0
    """Tool call ids without a result."""
    orphaned: int = 0
    """Ids of tool results without a call."""
    repeated_ids: int = 0
    """Ids that several tool calls of one conversation have."""
    images: int = 0
    """Images in messages."""
    thinking: int = 0
    """Parts with a model's thinking."""
    compactions: int = 0
    """Checkpoints."""
    tool_errors: int = 0
    """Tool results that are marked as errors."""
    attachments: int = 0
    """What the recording has beside its messages, and the model was shown: attachments, queued
    commands, last answers of subagents."""
    skipped_lines: int = 0
    """Lines that could not be read."""


class RecordingTotals:
    """Add up the counts of batches. Keeps only tool call ids in memory."""

    def __init__(self) -> None:
        self._figures: Counter[str] = Counter()
        self._calls: dict[tuple[str, str], int] = {}
        self._kept: Counter[str] = Counter()
        self.entries = 0
        """Entries of all batches."""

    def add(self, batch: Batch) -> None:
        """Add a batch."""
        self._figures["conversations"] += batch.conversations
        self._figures["messages"] += batch.messages
        self._figures["attachments"] += batch.attachments
        self._figures["skipped_lines"] += len(batch.skipped)
        self.entries += len(batch.entries)
        for entry in batch.entries:
            self._add_entry(entry, batch.call_id_scope)

    @property
    def kept_by_name(self) -> Mapping[str, int]:
        """The number of custom entries and observations by name, most frequent first: what was kept unchanged."""
        return dict(self._kept.most_common())

    @property
    def result(self) -> RecordingCounts:
        """The counts of all batches that were added."""
        states = Counter(self._calls.values())
        return RecordingCounts(
            **self._figures,
            unanswered=sum(
                count for state, count in states.items() if state & CALLED and not state & ANSWERED
            ),
            orphaned=states[ANSWERED],
            repeated_ids=sum(count for state, count in states.items() if state & REPEATED),
        )

    def _add_entry(self, entry: Entry, scope: str) -> None:
        match entry.payload:
            case MessageEntry(message=message) | CustomMessage(message=message):
                self._add_message(message, scope)
            case Checkpoint():
                self._figures["compactions"] += 1
            case CustomEntry(name=name) | Observation(name=name):
                self._kept[name] += 1
            case _:
                pass

    def _add_message(self, message: Message, scope: str) -> None:
        for part in message.content:
            self._figures["images"] += isinstance(part, ImagePart)
            if isinstance(part, OpaquePart):
                self._figures["thinking"] += (
                    as_text(as_object(part.value).get("type")) in THINKING_TYPES
                )
        self._figures["tool_calls"] += len(message.tool_calls)
        for call in message.tool_calls:
            state = self._calls.get((scope, call.id), 0)
            self._calls[scope, call.id] = state | (REPEATED if state & CALLED else CALLED)
        if message.role == "tool":
            self._figures["tool_results"] += 1
            self._figures["tool_errors"] += is_error_result(message)
            key = (scope, message.tool_call_id or "")
            self._calls[key] = self._calls.get(key, 0) | ANSWERED
