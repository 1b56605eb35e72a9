"""A walk through one preset: a session with a scripted model, and a record of what was decided, sent and written, for people to read.

One token is one word. What is said, answered and read is a word of its own so many times over:
`ask1*300` is the first message of the person with 300 tokens.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.agent.session.session import AgentSession
from promptkit.compaction import (
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    DecisionMade,
    Event,
    Events,
    SummaryDiscarded,
)
from promptkit.compaction.planning.worker import run_in_worker
from promptkit.compaction.policy.state import NoAction
from promptkit.compaction.summarizers.summarizer import SECTIONS
from promptkit.errors import ContextLengthExceededError, ModelUnavailableError, SummaryError
from promptkit.messages import Message, ToolCall, ToolDefinition, Usage
from promptkit.providers.model import Reply
from promptkit.rendering.expand.sizing import Sizer
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tools import Tool
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.transcript import Transcript
from tests.behaviour.storm import answered_directly, asks_for_summary
from tests.conversations import summary_reply, summary_text, words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from promptkit.compaction.policy.rules import Policy
    from promptkit.compaction.policy.state import Decision, PolicyState
    from promptkit.compaction.presets.preset import Preset
    from promptkit.testing import Request
    from promptkit.testing.scripted_model import Answer
    from promptkit.tokens.budget import ContextBudget
    from promptkit.tools import ToolOutput

__all__ = ["SUMMARY", "TOKENIZER", "Walk", "cut_off", "refusal"]

TOKENIZER = WordTokenizer()
Later: TypeAlias = "Callable[[], Awaitable[Answer]]"
"""An answer that takes its time."""

SUMMARY = 30
"""Tokens of each summary, without the tags around it."""

_HEADINGS = re.compile("|".join(SECTIONS))
HEADINGS = TOKENIZER.count(summary_text(""))
"""The tokens of a summary that are its headings."""

MANY = 100
"""Requests that a model stands."""

DULL = ("no rule applies", "below the threshold", "this request was already reduced")
"""Why nothing was decided where there is nothing to tell."""


def refusal(window: int | None = None) -> ContextLengthExceededError:
    """The provider finds a request too large, and may say how large its window is."""
    error = ContextLengthExceededError("too large")
    error.window = window
    return error


def cut_off(tokens: int) -> Reply:
    """An answer that the limit of output has cut off."""
    return Reply(
        message=Message(role="assistant", content=(words(tokens, "half"),)),
        usage=Usage(input_tokens=0),
        finish="length",
    )


@attrs.define
class _Told:
    """A policy that tells what it decides."""

    policy: Policy
    walk: Walk

    def decide(self, state: PolicyState) -> Decision:
        decision = self.policy.decide(state)
        why = decision.reason.why
        if not (isinstance(decision, NoAction) and why.startswith(DULL)):
            tokens = "?" if state.tokens is None else f"{state.tokens:,}"
            self.walk.note(f"  {state.phase} at {tokens}: {type(decision).__name__}: {why}")
        return decision


class Walk:
    """One conversation under a preset, with figures for a model; `log` is what to compare with the golden one."""

    def __init__(
        self,
        preset: Preset,
        *,
        budget: ContextBudget,
        model: str = "scripted",
        promotions: Sequence[str] = (),
    ) -> None:
        self.log: list[str] = []
        self.sent: list[Request] = []
        """The requests of the conversation itself."""
        self.asked: list[Request] = []
        """The requests for summaries."""
        self.failing = False
        """Whether the provider has no summary to give."""
        self.error: Exception | None = None
        """What the last turn raised."""
        self._answers: list[Answer | Later] = []
        self._open = asyncio.Event()
        self._open.set()
        self._asks, self._calls, self._replies = (
            itertools.count(1),
            itertools.count(1),
            itertools.count(1),
        )
        ids = itertools.count(1)
        self.preset = preset
        self.session = AgentSession(
            model=self.model(model),
            transcript=Transcript(clock=lambda: 0.0, new_id=lambda: f"e{next(ids)}"),
            instructions="Be brief.",
            tools=[
                Tool(definition=ToolDefinition(name=name), run=_read)
                for name in ("read", "write", "skill")
            ],
            budget=budget,
            preset=preset,
            policy=_Told(preset.policy(lambda: 0.5), self),
            tokenizer=TOKENIZER,
            events=Events(self._hears),
            promotions=[self.model(name) for name in promotions],
            recall=False,
            rng=lambda: 0.5,
        )

    def model(self, name: str) -> ScriptedModel:
        """A model that answers what the walk says."""

        async def answer(request: Request) -> Answer:
            return await self._answer(name, request)

        return ScriptedModel([answer] * MANY, name=name)

    def note(self, line: str) -> None:
        self.log.append(line)

    @property
    def text(self) -> str:
        """All of the log, for the comparison."""
        return "\n".join(self.log) + "\n"

    @property
    def tokens(self) -> int:
        """What the next request takes."""
        return self.session.compaction.usage().tokens

    @property
    def view(self) -> str:
        """What the model is shown."""
        return _shown(self.session.compaction.view.messages)

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [
            entry.payload
            for entry in self.session.transcript.path()
            if isinstance(entry.payload, Checkpoint)
        ]

    async def say(self, tokens: int, *answers: Answer | Later | int) -> None:
        """A turn: the person says so many tokens, and the model answers with these; a number is text of so many tokens."""
        number = next(self._asks)
        self._answers = [
            words(each, f"reply{next(self._replies)}") if isinstance(each, int) else each
            for each in answers
        ]
        self.note(f"person: ask{number}*{tokens:,}")
        self.error = None
        try:
            await self.session.run(words(tokens, f"ask{number}"))
        except Exception as error:  # noqa: BLE001  # the log tells what it was
            self.error = error
            self.note(f"  raised {type(error).__name__}: {error}")
        await self.rest()
        assert not self._answers or self.error is not None, "answers are left"

    def call(self, tokens: int, name: str = "read", *, path: str | None = None) -> ToolCall:
        """A call whose result has so many tokens."""
        number = next(self._calls)
        where = path or f"file{number}.py"
        return ToolCall(
            id=f"c{number}",
            name=name,
            arguments=f'{{"path": "{where}", "tokens": {tokens}, "word": "result{number}"}}',
        )

    async def do(self, what: str, work: Awaitable[object]) -> None:
        """Something else than a turn."""
        self.note(f"{what}:")
        try:
            made = await work
        except SummaryError as error:
            self.note(f"  raised SummaryError: {error.reason}")
        else:
            self.note(f"  {'something' if made else 'nothing'} was done")

    def switch(self, name: str, budget: ContextBudget) -> None:
        """Go on with another model."""
        self.note(f"switched to {name} with a window of {budget.window or 0:,}")
        self.session.set_model(self.model(name), budget=budget)

    def hold(self) -> None:
        """Summaries take their time from now on."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def rest(self) -> None:
        """A moment for what goes on beside the conversation."""
        for _ in range(20):
            for _ in range(3):
                await asyncio.sleep(0)
            await run_in_worker(int)  # after what the worker was asked before

    async def _answer(self, name: str, request: Request) -> Answer:
        answered_directly(request.messages)
        sizer = Sizer(TOKENIZER)
        size = sum(map(sizer.count_message, request.messages))
        budget = self.session.compaction.budget
        summary = asks_for_summary(request.messages)
        room = budget.window if summary else budget.limit
        assert room is None or size <= room or name != self.session.model.name, (
            f"{size:,} tokens were sent, and {room:,} are the most"
        )
        if summary:
            self.asked.append(request)
            await self._open.wait()
            if self.failing:
                return ModelUnavailableError("no answer")
            return f"<analysis>I think.</analysis>{summary_reply(words(SUMMARY - HEADINGS, 'summary'))}"
        before = self.sent[-1].messages if self.sent else ()
        self.sent.append(request)
        same = len(before) if request.messages[: len(before)] == before else 0
        self.note(f"  → {name} {size:,}: {'… · ' if same else ''}{_shown(request.messages[same:])}")
        answer = self._answers.pop(0)
        if callable(answer):
            answer = await answer()
        self.note(f"  ← {_told(answer)}")
        return answer

    def _hears(self, event: Event) -> None:
        match event:
            case CompactionStarted(trigger=trigger, messages=messages):
                self.note(f"  compaction started ({trigger}): {messages} messages")
            case CompactionCommitted(mode=mode, tokens_before=before, tokens_after=after):
                self.note(f"  compaction committed ({mode}): {before:,} → {after:,}")
                self.note(f"    {self.view}")
            case DecisionMade(decision="Prune", reason=reason, tokens=tokens):
                # a rule beside the preset's policy
                self.note(f"  before_render at {tokens:,}: Prune: {reason.split(' (')[0]}")
            case CompactionFailed(reason=reason):
                self.note(f"  compaction failed: {reason}")
            case CompactionCancelled():
                self.note("  compaction cancelled")
            case SummaryDiscarded(reason=reason):
                self.note(f"  summary discarded: {reason.split(' (')[0]}")
            case _:
                pass


async def _read(arguments: Mapping[str, object]) -> ToolOutput:
    return words(int(str(arguments["tokens"])), str(arguments["word"]))


def _told(answer: Answer) -> str:
    if isinstance(answer, BaseException):
        return f"{type(answer).__name__}: {answer}"
    if isinstance(answer, Reply):
        return f"{_word(answer.message.text)} ({answer.finish})"
    if isinstance(answer, str):
        return _word(answer)
    if isinstance(answer, Message):
        return _message(answer)
    return "+".join(
        f"call {call.name}" for call in ([answer] if isinstance(answer, ToolCall) else answer)
    )


def _shown(messages: Sequence[Message]) -> str:
    return " · ".join(_message(message) for message in messages)


def _message(message: Message) -> str:
    calls = "+".join(f"call {call.name}" for call in message.tool_calls)
    return f"{message.role} {' '.join(filter(None, (_word(message.text), calls)))}"


def _word(text: str) -> str:
    """A text as its words without headings, each with how often it stands there in a row; of longer ones the first of these."""
    runs = [
        f"{word}*{len(list(group)):,}"
        for word, group in itertools.groupby(_HEADINGS.sub("", text).split())
    ]
    shown = [run.removesuffix("*1") for run in runs]
    return " ".join(shown) if len(shown) <= MOST else f"{' '.join(shown[:MOST])} …"


MOST = 9
"""Words of a text that are shown."""
