"""What a recording comes to: the figures by which an import can be checked against the file that it was made of."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from promptkit.messages import ImagePart, OpaquePart
from promptkit.recordings.reading.json_values import as_object, as_text
from promptkit.transcript.entries import Checkpoint, CustomEntry, CustomMessage, MessageEntry, Observation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit.messages import Message
    from promptkit.recordings.reading.codec import Batch
    from promptkit.transcript.entries import Entry

__all__ = ["THINKING_TYPES", "RecordingCounts", "RecordingTotals"]

THINKING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning", "thought"})
"""The types of parts in which models think aloud."""

ONCE, TWICE, ANSWERED = 1, 2, 4
"""What is remembered of a call id, as bits: that a call has it, that more than one has, that a result has it."""


@attrs.frozen(kw_only=True)
class RecordingCounts:
    """The figures of a recording; docs/importing.md says what each of them counts."""

    conversations: int = 0
    messages: int = 0
    tool_calls: int = 0
    tool_results: int = 0
    unanswered: int = 0
    """Call ids without a result."""
    orphaned: int = 0
    """Ids of results without a call."""
    repeated_ids: int = 0
    """Ids that more than one call of a conversation has."""
    images: int = 0
    thinking: int = 0
    compactions: int = 0
    skipped_lines: int = 0


class RecordingTotals:
    """Adds batches up. Remembers call ids and nothing else."""

    def __init__(self) -> None:
        self._figures: Counter[str] = Counter()
        self._calls: dict[tuple[str, str], int] = {}
        self._kept: Counter[str] = Counter()
        self.entries = 0

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        self._figures["conversations"] += batch.conversations
        self._figures["messages"] += batch.messages
        self._figures["skipped_lines"] += len(batch.skipped)
        self.entries += len(batch.entries)
        for entry in batch.entries:
            self._add(entry, batch.call_id_scope)

    @property
    def kept_by_name(self) -> Mapping[str, int]:
        """What was kept as it is, by name: the custom entries and observations, most frequent first."""
        return dict(self._kept.most_common())

    @property
    def result(self) -> RecordingCounts:
        """What was added so far."""
        states = Counter(self._calls.values())
        return RecordingCounts(
            **self._figures,
            unanswered=sum(count for state, count in states.items() if state & ONCE and not state & ANSWERED),
            orphaned=states[ANSWERED],
            repeated_ids=sum(count for state, count in states.items() if state & TWICE),
        )

    def _add(self, entry: Entry, scope: str) -> None:
        match entry.payload:
            case MessageEntry(message=message) | CustomMessage(message=message):
                self._message(message, scope)
            case Checkpoint():
                self._figures["compactions"] += 1
            case CustomEntry(name=name) | Observation(name=name):
                self._kept[name] += 1
            case _:
                pass

    def _message(self, message: Message, scope: str) -> None:
        for part in message.content:
            self._figures["images"] += isinstance(part, ImagePart)
            if isinstance(part, OpaquePart):
                self._figures["thinking"] += as_text(as_object(part.value).get("type")) in THINKING_TYPES
        self._figures["tool_calls"] += len(message.tool_calls)
        for call in message.tool_calls:
            state = self._calls.get((scope, call.id), 0)
            self._calls[scope, call.id] = state | (TWICE if state & ONCE else ONCE)
        if message.role == "tool":
            self._figures["tool_results"] += 1
            key = (scope, message.tool_call_id or "")
            self._calls[key] = self._calls.get(key, 0) | ANSWERED
