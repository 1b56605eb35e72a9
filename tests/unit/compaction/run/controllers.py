"""A compaction controller with a small window, driven step by step: messages, requests and replies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction import Events
from promptkit.compaction.planning.plan import LastRequest
from promptkit.compaction.policy.rules import default_policy
from promptkit.compaction.run.compactor import Compactor
from promptkit.compaction.run.controller import CompactionController
from promptkit.compaction.run.state import ConversationState, PendingRequest, RequestState
from promptkit.rendering.expand.render_cache import RequestRuns
from promptkit.testing import WordTokenizer
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.transcript import Transcript
from tests.conversations import assistant_message, call_message, result_message, user_message, words
from tests.unit.compaction.summarizers.writers import Recorder, Writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptkit.compaction.policy.rules import Policy
    from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
    from promptkit.messages import Message

__all__ = ["BUDGET", "Kept", "grown", "kept", "run", "turns"]


BUDGET = ContextBudget(window=1_000, reserved_output_tokens=0)


@attrs.define
class Kept:
    """A controller with a small window, its conversation, and the state of the request at hand."""

    controller: CompactionController
    writer: Writer
    told: Recorder
    state: RequestState = attrs.field(factory=RequestState)

    @property
    def log(self) -> Transcript:
        return self.controller.compactor.transcript

    def user(self, tokens: int, word: str = "ask") -> None:
        self.log.append_messages(user_message(words(tokens, word)))
        self.controller.on_user_message()

    def round(self, call: str, tokens: int) -> None:
        """A request that the model answers with a call, the decision after it, and the result."""
        self.request(call_message(call))
        self.log.append_messages(result_message(call, words(tokens, call)))

    def render(self, tokens: int) -> PendingRequest:
        request = PendingRequest(
            state=self.state,
            content=LastRequest(messages=self.controller.view.messages),
            tokens=tokens,
            model=self.controller.model,
            runs=RequestRuns(),
        )
        self.controller.on_rendered(request)
        return request

    def request(self, reply: Message) -> None:
        request = self.render(self.controller.usage().tokens)
        self.log.append_messages(reply)
        self.controller.on_reply(request, reply)

    async def prepare(self) -> None:
        self.state = await self.controller.prepare()

    async def make_room(self, tokens: int, *, refused_by: str | None = None) -> None:
        self.state = await self.controller.make_room(self.state, tokens, refused_by=refused_by)

    def answer(self, tokens: int) -> None:
        self.request(assistant_message(words(tokens, "answer")))

    @property
    def texts(self) -> list[str]:
        return [
            message.text.split(maxsplit=1)[0]
            for message in self.controller.view.messages
            if message.text
        ]

    @property
    def compacted(self) -> bool:
        return any(isinstance(entry.payload, Checkpoint) for entry in self.log.path())


def kept(
    *,
    writer: Writer | None = None,
    policy: Policy | None = None,
    enabled: bool = True,
    reduce: ReduceToolResults | None = None,
) -> Kept:
    writing, told = writer or Writer(), Recorder()
    tokenizer = WordTokenizer()
    compactor = Compactor(
        Transcript(),
        summarizer=writing,
        tokenizer=tokenizer,
        max_summary_tokens=200,
        events=Events(told),
    )
    controller = CompactionController(
        compactor,
        ConversationState(model="m", budget=BUDGET, tokenizer=tokenizer),
        policy=policy or default_policy(rng=lambda: 0.5),
        enabled=enabled,
        reduce=reduce,
    )
    return Kept(controller, writing, told)


def run(work: Callable[[], Awaitable[None]], each: Kept) -> None:
    async def whole() -> None:
        await work()
        await each.controller.close()
        await asyncio.sleep(0)

    asyncio.run(whole())
    each.told.check()


async def turns(times: int = 4) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def grown(each: Kept, tokens: int = 300) -> None:
    """One turn of two rounds, after which a summary is under way."""
    each.user(200)
    each.round("c1", tokens)
    each.round("c2", tokens)
    each.answer(50)
