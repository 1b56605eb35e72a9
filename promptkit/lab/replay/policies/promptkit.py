"""promptkit's own policies in a replay: the real `ContextWindow` over a transcript in memory, with any preset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs

from promptkit.agent.window.prompt import ConversationPrompt, ConversationView
from promptkit.agent.window.requests import WindowRequest, match_items
from promptkit.agent.window.window import ContextWindow
from promptkit.compaction.planning.blocks import extract_summary_text
from promptkit.compaction.policy.decisions import Compact, Wait
from promptkit.compaction.presets import PRESETS
from promptkit.compaction.run.events import CompactionCommitted, DecisionMade, Event, Events
from promptkit.compaction.summarizers.defaults import SummarizerContext
from promptkit.elements.from_message import element_from_message
from promptkit.elements.layout import Group
from promptkit.errors import ContextWindowFullError
from promptkit.lab.replay.policies.strategy import TRANSCRIPT_PATH, ReplayTerms, SummaryCall
from promptkit.lab.replay.policies.summary_cost import make_metered_summarizer
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.store import InMemoryStore

if TYPE_CHECKING:
    from promptkit.compaction.presets.preset import Preset
    from promptkit.messages import Message, Usage

WAITING_DECISIONS = frozenset({Wait.__name__, Compact.__name__})
"""Decisions for which the user waits."""


@attrs.frozen(kw_only=True)
class PresetPolicy:
    """One of promptkit's presets, or a preset of your own."""

    preset: Preset

    @property
    def name(self) -> str:
        """The preset's name."""
        return self.preset.name

    def start(self, terms: ReplayTerms) -> _PresetRun:
        """Start a conversation."""
        return _PresetRun(self.preset, terms)


def _build(preset: Callable[[], Preset]) -> PresetPolicy:
    return PresetPolicy(preset=preset())


PRESET_POLICIES: Mapping[str, Callable[[], PresetPolicy]] = {
    name: partial(_build, preset) for name, preset in PRESETS.items()
}
"""All presets by name, with their default settings."""


class _PresetRun:
    """One conversation in a context window."""

    def __init__(self, preset: Preset, terms: ReplayTerms) -> None:
        self.checkpoints = self.waits = 0
        self.summary_calls: list[SummaryCall] = []
        self.transcript_path: str | None = TRANSCRIPT_PATH
        self._waited = False
        ids = iter(range(1, 1 << 62))
        context = SummarizerContext(
            model=terms.model, budget=preset.adjust_budget(terms.budget), tokenizer=terms.tokenizer
        )
        summarizer = make_metered_summarizer(
            preset, context, terms=terms, calls=self.summary_calls, restore=self._restore
        )
        self._originals: dict[int, tuple[Message, Message]] = {}
        self._terms = terms
        self._window = ContextWindow(
            model=terms.budget.model or "",
            transcript=Transcript(
                _ReplayStore(), clock=lambda: 0.0, new_id=lambda: f"e{next(ids)}"
            ),
            prompt=_ReplayPrompt(terms, lambda: self._window.budget.render_budget),
            tools=terms.tools,
            budget=terms.budget,
            preset=preset,
            summarizer=summarizer,
            tokenizer=terms.tokenizer,
            events=Events(self._on_event),
            rng=terms.rng,
            clock=terms.clock,
        )

    async def add(self, message: Message) -> None:
        """Append a message, as a session does."""
        self._window.add(message)

    async def request(self) -> Sequence[Message]:
        """Return the messages that a session would send."""
        self._waited = False
        try:
            request = await self._window.request()
        except ContextWindowFullError:
            messages: Sequence[Message] = self._window.view.messages
        else:
            self._remember_originals(request)
            messages = self._restore(request.messages)[len(self._terms.system) :]
        self.waits += self._waited
        return messages

    async def add_reply(self, reply: Message, usage: Usage | None) -> None:
        """Append the reply, and wait for the summary that it started."""
        self._window.add_reply(reply, usage=usage)
        await self._window.wait_idle()
        if not reply.tool_calls:
            await self._window.end_turn()

    async def close(self) -> None:
        """Cancel what runs in the background."""
        await self._window.close()

    def _remember_originals(self, request: WindowRequest) -> None:
        """Remember the recorded message behind each rendered one, unless the render itself removed messages."""
        if request.pruned and request.rendered.removals:
            self._originals = {}
            return
        system = self._terms.system
        items = match_items(request.messages[len(system) :], self._window.view.items)
        recorded = [*system, *(None if item is None else item.message for item in items)]
        pairs = zip(request.messages, recorded, strict=True)
        self._originals = {
            id(message): (message, original) for message, original in pairs if original is not None
        }

    def _restore(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Replace rendered messages by the recorded ones, which are counted and found in the simulated cache by their identity."""
        return [self._originals.get(id(message), (message, message))[1] for message in messages]

    def _on_event(self, event: Event) -> None:
        if isinstance(event, CompactionCommitted):
            self.checkpoints += 1
        elif isinstance(event, DecisionMade) and event.decision in WAITING_DECISIONS:
            self._waited = True


class _ReplayStore(InMemoryStore):
    """A store in memory that names a file as its place, so that summaries have a breadcrumb."""

    @property
    def address(self) -> str | None:
        return TRANSCRIPT_PATH


class _ReplayPrompt(ConversationPrompt):
    """The recorded system messages and the conversation.

    A pruned request gets only the messages that it can contain.
    """

    def __init__(self, terms: ReplayTerms, limit: Callable[[], int | None]) -> None:
        super().__init__(
            Group(required=True)[[element_from_message(message) for message in terms.system]]
        )
        self._terms = terms
        self._limit = limit

    def select(self, view: ConversationView) -> ConversationView:
        """Return the part of the view that a pruned request can contain."""
        limit = self._limit()
        if not view.may_prune or limit is None:
            return view
        return attrs.evolve(view, messages=_candidates(view.messages, limit, self._terms))


def _candidates(messages: Sequence[Message], limit: int, terms: ReplayTerms) -> tuple[Message, ...]:
    """Return the messages that a pruned request of at most `limit` tokens can contain.

    These are the newest messages, until they exceed the limit, the user message of their turn, and
    the messages that are always kept. The oldest messages are pruned first, so the request is the
    same as with all messages, but its cost depends on what it contains.
    """
    start, tokens = len(messages), 0
    while start > 0 and (tokens <= limit or messages[start].role == "tool"):
        start -= 1
        tokens += terms.count(messages[start : start + 1])
    last_user = next(
        (at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None
    )
    turn_start = next((at for at in range(start - 1, -1, -1) if messages[at].role == "user"), None)
    summary = next(
        (at for at, message in enumerate(messages) if extract_summary_text(message) is not None),
        None,
    )
    kept = (
        at
        for at in range(start)
        if at in {last_user, turn_start, summary} or messages[at].role == "system"
    )
    return (*(messages[at] for at in kept), *messages[start:])
