"""promptkit's policies in a replay: the real keeper, compactor and prompt, over a transcript in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs

from promptkit.agent.prompt import Conversation, ConversationView, Recordings
from promptkit.compaction.config import CompactionConfig
from promptkit.compaction.events import CompactionCommitted, Decided, Events
from promptkit.compaction.planning.blocks import summary_text
from promptkit.compaction.planning.plan import LastRequest
from promptkit.compaction.policy.decisions import Compact, Wait
from promptkit.compaction.presets import PRESETS
from promptkit.compaction.pruning.processors import RequestLimits
from promptkit.compaction.summarizers.defaults import SummarizerContext
from promptkit.errors import BudgetExceededError, ContextWindowFullError
from promptkit.rendering.renderer import Renderer
from promptkit.replay.policies.strategy import PLACE
from promptkit.replay.policies.summary_cost import Metered, asks_live
from promptkit.transcript.entries import MessageEntry
from promptkit.transcript.store import InMemoryStore
from promptkit.transcript.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.events import Event
    from promptkit.compaction.presets.preset import Preset
    from promptkit.messages import Message
    from promptkit.replay.policies.strategy import ReplayTerms, SummaryCall

__all__ = ["OWN", "PresetPolicy"]

WAITED = frozenset({Wait.__name__, Compact.__name__})
"""Decisions for which the person waits."""


@attrs.frozen(kw_only=True)
class PresetPolicy:
    """One of promptkit's presets, or a composition of one's own."""

    preset: Preset

    @property
    def name(self) -> str:
        """The preset's."""
        return self.preset.name

    def enter(self, terms: ReplayTerms) -> _Playing:
        """Begin a conversation."""
        return _Playing(self.preset, terms)


def _own(preset: Callable[[], Preset]) -> PresetPolicy:
    return PresetPolicy(preset=preset())


OWN: Mapping[str, Callable[[], PresetPolicy]] = {name: partial(_own, preset) for name, preset in PRESETS.items()}
"""All presets, by name, with their defaults."""


class _Placed(InMemoryStore):
    """Keeps entries for as long as the process lives, and says that they are in a file: so that summaries say where to look."""

    @property
    def place(self) -> str | None:
        return PLACE

    @property
    def lines(self) -> int:
        return len(self._entries) + 1


class _Playing:
    """One conversation, kept as `AgentSession` keeps it."""

    def __init__(self, preset: Preset, terms: ReplayTerms) -> None:
        self.checkpoints = self.waits = 0
        self.calls: list[SummaryCall] = []
        self.place: str | None = PLACE
        self._terms = terms
        self._preset = preset
        budget = preset.figures(terms.budget)
        ids = iter(range(1, 1 << 62))
        transcript = Transcript(_Placed(), clock=lambda: 0.0, new_id=lambda: f"e{next(ids)}")
        writing = SummarizerContext(model=terms.model, budget=budget, tokenizer=terms.tokenizer)
        metered = Metered(preset.summarizer(writing), live=asks_live(preset, writing), terms=terms, calls=self.calls)
        setup = CompactionConfig(draw=terms.draw, preset=preset, summarizer=metered, events=Events(self._heard))
        self._keeper = setup.keeper(transcript, writing=writing, name=budget.model or "", tools=terms.tools, clock=lambda: 0.0)
        self._transcript = transcript
        self._recordings = Recordings()
        self._renderer: Renderer | None = None
        self._worked = self._waited = False
        self._sent: LastRequest | None = None

    async def hear(self, message: Message) -> None:
        """Append it, as a session does."""
        if message.role == "user":
            self._keeper.asked()
        self._transcript.append(MessageEntry(message=message))
        self._worked = message.role == "tool"

    async def request(self) -> Sequence[Message]:
        """What a session would send: compacted where the policy says so, pruned where nothing else helps."""
        keeper = self._keeper
        if self._worked:
            keeper.worked()
        self._waited = False
        await keeper.prepare()
        messages: Sequence[Message] = ()
        try:
            messages, tokens = await self._fitted()
        except ContextWindowFullError:
            messages, tokens = keeper.view.messages, None
        self.waits += self._waited
        if tokens is None:
            self._sent = None
        else:
            keeper.rendered(tokens)
            self._sent = LastRequest(messages=(*self._terms.system, *messages), tools=self._terms.tools)
        return messages

    async def answered(self, reply: Message) -> None:
        """Append it, and let a summary that was begun for it come to its end."""
        self._transcript.append(MessageEntry(message=reply))
        if self._sent is not None:
            self._keeper.answered(self._sent, reply)
            await self._keeper.background.wait()
        self._worked = False
        if not reply.tool_calls:
            await self._keeper.moment("turn_end")

    async def close(self) -> None:
        """End what runs in the background."""
        await self._keeper.close()

    async def _fitted(self) -> tuple[Sequence[Message], int]:
        """Messages that fit, and the tokens of their request. Raises ContextWindowFullError."""
        keeper, terms = self._keeper, self._terms
        while True:
            room = keeper.budget.render_budget
            messages = self._processed(room)
            tokens = terms.fixed + terms.size(messages)
            if room is None or tokens <= room:
                return messages, tokens
            if keeper.pruned:
                try:
                    return await self._pruned(messages, room)
                except BudgetExceededError as error:
                    tokens = error.required
            await keeper.overflow(tokens)

    async def _pruned(self, messages: Sequence[Message], room: int) -> tuple[Sequence[Message], int]:
        terms = self._terms
        renderer = self._renderer
        if renderer is None or renderer.context.tokens != room:
            renderer = self._renderer = Renderer(
                budget=room, model=self._keeper.model or None, tokenizer=terms.tokenizer, tools=terms.tools
            )
        shown = _near(messages, room, terms)
        view = ConversationView(messages=(*terms.system, *shown), may_prune=True)
        rendered = await renderer.render_async(Conversation(view=view, recordings=self._recordings))
        return rendered.messages[len(terms.system) :], rendered.tokens

    def _processed(self, room: int | None) -> Sequence[Message]:
        """The view as the preset's processors leave it."""
        messages: Sequence[Message] = self._keeper.view.messages
        keeper = self._keeper
        case = RequestLimits(limit=room, beside=keeper.beside, tokenizer=self._terms.tokenizer, warm=keeper.warm, pruned=keeper.pruned)
        for process in self._preset.processors:
            messages = process(messages, case)
        return messages

    def _heard(self, event: Event) -> None:
        if isinstance(event, CompactionCommitted):
            self.checkpoints += 1
        elif isinstance(event, Decided) and event.decision in WAITED:
            self._waited = True


def _near(messages: Sequence[Message], room: int, terms: ReplayTerms) -> Sequence[Message]:
    """The messages that a pruned request may have at all.

    They are the newest that come to more than it has room for, what their turn began with, and what always stays. The oldest leave first, so that the request is the same as with all of them; but it is made in the time of what it holds.
    """
    start, tokens = len(messages), 0
    while start > 0 and (tokens <= room or messages[start].role == "tool"):
        start -= 1
        tokens += terms.size(messages[start : start + 1])
    asked = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)
    turn = next((at for at in range(start - 1, -1, -1) if messages[at].role == "user"), None)
    summary = _summary(messages)
    stays = [at for at in range(start) if at in {asked, turn, summary} or messages[at].role == "system"]
    return [*(messages[at] for at in stays), *messages[start:]]


def _summary(messages: Sequence[Message]) -> int | None:
    """The place of the first summary, which is what pruning keeps."""
    return next((at for at, message in enumerate(messages) if summary_text(message) is not None), None)
