"""Statistics of a transcript, added up entry by entry, and what a provider billed for an entry.

Every entry counts, also before a checkpoint and on abandoned branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import attrs

from promptkit.messages import Message, Usage, as_mapping
from promptkit.rendering.expand.sizing import Sizer
from promptkit.reprs import describe
from promptkit.tokens import BilledTokens, tokenizer_for
from promptkit.transcript.log.entries import (
    BranchSummary,
    Checkpoint,
    CustomMessage,
    Entry,
    EntryPayload,
    MessageEntry,
    UnknownEntry,
)
from promptkit.transcript.log.transcript import EntryTree

PLACEHOLDER_SHARE = 0.5
"""A reported output below this share of the reply's own tokens is a placeholder, if no end of the reply was
recorded: a stream starts with one, and some agents write it down."""


def read_usage(payload: EntryPayload) -> Usage | None:
    """Return the usage of the request that an entry answered, or of the requests for a summary; None if none was reported.

    The placeholder of a stream is replaced by the tokens of the reply, as the model that the entry
    names counts them on average.
    """
    if not isinstance(payload, MessageEntry | Checkpoint | BranchSummary | CustomMessage):
        return None
    usage = payload.usage
    if (
        usage is None
        or not (isinstance(payload, MessageEntry) and usage.input_tokens)
        or payload.finish is not None
        or payload.model is None
    ):
        return usage
    written = Sizer(tokenizer_for(payload.model, mean=True)).count_message(payload.message)
    return (
        attrs.evolve(usage, output_tokens=written)
        if usage.output_tokens < PLACEHOLDER_SHARE * written
        else usage
    )


def read_bill(payload: EntryPayload) -> BilledTokens | None:
    """Return what an entry was billed, as `read_usage` reads it; None if its provider reported no input.

    No more tokens can be read from a cache or written to it than the request had, or its price
    would be negative.
    """
    if (usage := read_usage(payload)) is None or not usage.input_tokens:
        return None
    cached = min(usage.cached_tokens, usage.input_tokens)
    written = min(usage.written_tokens, usage.input_tokens - cached)
    return BilledTokens(
        input_tokens=usage.input_tokens,
        cached_tokens=cached,
        written_tokens=written,
        written_1h_tokens=min(usage.written_1h_tokens, written),
        output_tokens=usage.output_tokens,
    )


@attrs.frozen(kw_only=True)
class TranscriptStatistics:
    """The statistics of a transcript."""

    entries: int
    """Number of entries."""
    kinds: Mapping[str, int]
    """Entries by kind. Entries of unknown kinds are counted under the kind that the file names."""
    roles: Mapping[str, int]
    """Messages by role."""
    tool_calls: int
    """Number of tool calls."""
    tokens: Mapping[str, int] | None
    """Tokens of messages by role, each message counted once; None if tokens were not counted."""
    usage: Usage
    """The sum of the usage that providers reported, including the requests for summaries."""
    checkpoints: int
    """Number of checkpoints."""
    cache_misses: Mapping[str, int]
    """Requests that the provider's prompt cache served less of than it could have, by cause, as
    `CacheMissed.cause` names it."""
    facts: Mapping[str, int]
    """The facts that checkpoints dropped, by what each left of them: `quoted`, `in_context`,
    `named`, `reachable` (only in the transcript), `lost`."""
    branches: int
    """Number of leaves: entries without children."""
    first: float | None
    """When the oldest entry was written, in seconds since 1970; None if no entry has a time."""
    last: float | None
    """When the latest entry was written, in seconds since 1970; None if no entry has a time."""

    def __repr__(self) -> str:
        return describe(
            self,
            entries=self.entries,
            tool_calls=self.tool_calls,
            checkpoints=self.checkpoints,
            branches=self.branches,
            tokens=self.tokens and sum(self.tokens.values()),
        )


class TranscriptTotals:
    """Add up the statistics of entries one by one, without keeping the entries.

    Args:
        count_tokens: Count the tokens of a message. None: do not count tokens.
    """

    def __init__(self, *, count_tokens: Callable[[Message], int] | None = None) -> None:
        self.tree = EntryTree()
        """The ids of the entries that were added."""
        self._count_tokens = count_tokens
        self._kinds: Counter[str] = Counter()
        self._roles: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._misses: Counter[str] = Counter()
        self._facts: Counter[str] = Counter()
        self._calls = 0
        self._usage = Usage(input_tokens=0)
        self._times: tuple[float, float] | None = None

    def add(self, entry: Entry) -> None:
        """Add an entry. An entry whose id was added before is ignored."""
        if entry.id in self.tree:
            return
        self.tree.add(entry.id, entry.parent_id)
        payload = entry.payload
        self._kinds[payload.kind if isinstance(payload, UnknownEntry) else entry.kind] += 1
        if entry.time > 0:  # 0 is no time
            first, last = self._times or (entry.time, entry.time)
            self._times = min(first, entry.time), max(last, entry.time)
        if (usage := read_usage(payload)) is not None:
            self._usage = Usage(
                **{
                    field.name: getattr(self._usage, field.name) + getattr(usage, field.name)
                    for field in attrs.fields(Usage)
                }
            )
        if isinstance(payload, MessageEntry) and payload.cache_miss is not None:
            self._misses[payload.cache_miss.cause] += 1
        if isinstance(payload, Checkpoint):
            for levels in as_mapping(payload.losses.get("levels")).values():
                for level, count in as_mapping(levels).items():
                    self._facts[level] += count if isinstance(count, int) else 0
        if (message := entry.message) is not None:
            self._roles[message.role] += 1
            self._calls += len(message.tool_calls)
            if self._count_tokens is not None:
                self._tokens[message.role] += self._count_tokens(message)

    @property
    def result(self) -> TranscriptStatistics:
        """The statistics of all entries that were added."""
        first, last = self._times or (None, None)
        return TranscriptStatistics(
            entries=len(self.tree),
            kinds=dict(self._kinds),
            roles=dict(self._roles),
            tool_calls=self._calls,
            tokens=None if self._count_tokens is None else dict(self._tokens),
            usage=self._usage,
            checkpoints=self._kinds["checkpoint"],
            cache_misses=dict(self._misses),
            facts=dict(self._facts),
            branches=len(self.tree.leaves()),
            first=first,
            last=last,
        )


def compute_statistics(
    entries: Iterable[Entry], *, count_tokens: Callable[[Message], int] | None = None
) -> TranscriptStatistics:
    """Compute the statistics of entries.

    `count_tokens` counts the tokens of a message; None: tokens are not counted.
    """
    totals = TranscriptTotals(count_tokens=count_tokens)
    for entry in entries:
        totals.add(entry)
    return totals.result
