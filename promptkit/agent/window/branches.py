"""The branches of a conversation: continue from another entry, start over, and find the branch that a list of messages continues."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import attrs

from promptkit.agent.window.continuation import find_pending_calls
from promptkit.agent.window.wire import is_recorded
from promptkit.compaction import (
    CompactionController,
    LastRequest,
    MemoryDirectory,
    SummarizerContext,
)
from promptkit.compaction.run.branches import (
    SummaryWriter,
    handoff,
    make_handoff_summarizer,
    switch_branch,
)
from promptkit.compaction.run.reset import reset
from promptkit.compaction.storage import MemoryExtractor
from promptkit.compaction.summarizers.defaults import compute_max_summary_tokens
from promptkit.errors import SummaryError, TurnInProgressError
from promptkit.messages import Message
from promptkit.transcript import (
    Checkpoint,
    Edit,
    Entry,
    EntryPayload,
    MessageEntry,
    Reset,
    Setting,
    Transcript,
    TranscriptStore,
)
from promptkit.transcript.log.quotes import restore_quotes
from promptkit.transcript.log.transcript import LEAF_SETTING


@attrs.frozen(kw_only=True)
class Branch:
    """The part of a list of messages with which one branch of a transcript begins."""

    leaf: str | None
    """The entry to continue from: the branch's last entry if all of its messages match, or the last
    message that matches."""
    entries: tuple[Entry, ...]
    """The branch's message entries."""
    matched: int
    """The number of messages that match, from the beginning on."""
    summaries: tuple[Checkpoint, ...] = ()
    """The last summary after `leaf`, if it is of messages that match. It is valid in another branch
    from `leaf` on, too."""

    @property
    def is_whole(self) -> bool:
        """True if all messages of the branch match."""
        return self.matched == len(self.entries)


def find_branch(transcript: Transcript, messages: Sequence[Message]) -> Branch:
    """Find the branch of a transcript that begins with the most of these messages.

    As a rule it is the current one.
    """
    path = transcript.path()
    best = _match_branch(path, messages)
    rewound = any(
        isinstance(entry.payload, Setting) and entry.payload.name == LEAF_SETTING
        for entry in takewhile(
            lambda entry: not isinstance(entry.payload, MessageEntry), reversed(path)
        )
    )
    if best.is_whole and not (rewound and best.matched < len(messages)):
        return best  # messages were appended, or none
    for leaf in transcript.leaves():
        branch = _match_branch(transcript.path(leaf.id), messages)
        if branch.matched > best.matched or (
            branch.matched == best.matched and branch.is_whole and not best.is_whole
        ):
            best = branch
    return best


def _match_branch(path: Sequence[Entry], messages: Sequence[Message]) -> Branch:
    """Compare a branch with a list of messages."""
    entries = tuple(entry for entry in path if isinstance(entry.payload, MessageEntry))
    by_id = {entry.id: entry for entry in path}
    matched = 0
    for entry, message in zip(entries, messages, strict=False):
        recorded = (
            restore_quotes(entry.payload, by_id.get)
            if isinstance(entry.payload, MessageEntry)
            else None
        )
        if not is_recorded(recorded, message):
            break
        matched += 1
    if matched == len(entries) or not matched:
        return Branch(
            leaf=path[-1].id if path and matched == len(entries) else None,
            entries=entries,
            matched=matched,
        )
    departure = path.index(entries[matched])
    return Branch(
        leaf=path[departure - 1].id,
        entries=entries,
        matched=matched,
        summaries=_find_valid_summary(path[:departure], path[departure:]),
    )


def _find_valid_summary(before: Sequence[Entry], after: Sequence[Entry]) -> tuple[Checkpoint, ...]:
    """Return the last checkpoint in `after` if it summarizes nothing of `after`: what it keeps begins in `before`, or with `after`."""
    hidden = {entry.payload.target for entry in after if isinstance(entry.payload, Edit)}
    known = {entry.id for entry in (*before, after[0])}
    last: tuple[Checkpoint, ...] = ()
    for entry in after:
        payload = entry.payload
        if isinstance(payload, Reset):
            last = ()
        elif isinstance(payload, Checkpoint) and entry.id not in hidden:
            kept = None if payload.first_kept == after[0].id else payload.first_kept
            last = (attrs.evolve(payload, first_kept=kept),) if payload.first_kept in known else ()
    return last


@attrs.frozen
class Branches:
    """The branches of one conversation: it continues from another entry, from nothing, or in another transcript.

    `ContextWindow` describes the arguments.
    """

    compaction: CompactionController

    @property
    def transcript(self) -> Transcript:
        """The conversation."""
        return self.compaction.compactor.transcript

    def check_calls(self, *, abandon: bool) -> None:
        """Raise TurnInProgressError if tool calls wait for results, which could not be added on another branch."""
        waiting = () if abandon else find_pending_calls(self.transcript.path())
        if waiting:
            raise TurnInProgressError(waiting=[f"{call.name} ({call.id})" for call in waiting])

    def rewind(self, to: str | None, *payloads: EntryPayload) -> Entry:
        """Continue from an earlier entry, with entries after it."""
        entry = self.transcript.rewind(to, *payloads)
        self.compaction.on_branch_change("the conversation continues from another entry")
        return entry

    async def switch(
        self, to: str | None, *, instructions: str | None, summarize: bool
    ) -> Entry | None:
        """Continue from another entry, with a summary of the branch that is left."""
        compactor = self.compaction.compactor
        writer = SummaryWriter(
            summarizer=compactor.summarizer,
            tools=compactor.tools,
            redactor=compactor.redactor,
            tokenizer=self.compaction.state.tokenizer,
            seconds=self.compaction.wait_seconds,
            events=compactor.events,
            count_request=compactor.count_request,
        )
        entry = await switch_branch(
            self.transcript,
            to,
            writer=writer if summarize else None,
            instructions=instructions,
            hooks=compactor.hooks,
        )
        if entry is not None:
            self.compaction.on_branch_change("the conversation continues on another branch")
        return entry

    async def reset(
        self,
        reason: str,
        *,
        extractor: MemoryExtractor | None,
        memories: MemoryDirectory | None,
        move_to_archive: bool,
    ) -> Entry | None:
        """Start over."""
        entry = await reset(
            self.transcript,
            reason=reason,
            extractor=extractor,
            memories=memories,
            move_to_archive=move_to_archive,
        )
        self.compaction.on_branch_change("the conversation was reset")
        return entry

    async def handoff(
        self,
        goal: str,
        store: TranscriptStore,
        *,
        context: SummarizerContext,
        last_request: LastRequest | None,
    ) -> Transcript:
        """Begin a new conversation with a document that the model of the context writes for a goal."""
        if context.model is None:
            raise SummaryError(
                reason="no_request",
                detail="a handoff needs a model that writes it: give the window a model object.",
            )
        compactor = self.compaction.compactor
        return await handoff(
            self.transcript,
            self.compaction.view,
            goal,
            store,
            writer=SummaryWriter(
                summarizer=make_handoff_summarizer(context, context.model),
                max_tokens=compute_max_summary_tokens(context.budget),
                last_request=last_request,
                tools=compactor.tools,
                redactor=compactor.redactor,
                tokenizer=context.tokenizer,
                seconds=self.compaction.wait_seconds,
                events=compactor.events,
                count_request=compactor.count_request,
            ),
        )
