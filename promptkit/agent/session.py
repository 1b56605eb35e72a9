"""One conversation with a model that has tools: render, call, append, and keep within the window.

What a session is given by callers whom no type checker looks after: refused at once, and not when it is half written down.
What a session gives back of one message of the person.
Which model a conversation may go on with where that of now is too small.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

import attrs

from promptkit.agent.requests import RequestBuilder
from promptkit.agent.tools import Tool, call_tools, content_of, tools_by_name
from promptkit.compaction.budget import budget_for
from promptkit.compaction.config import CompactionConfig
from promptkit.compaction.controller import Promotion
from promptkit.compaction.planning.blocks import is_summary
from promptkit.compaction.policy.overflow import budget_after_overflow
from promptkit.compaction.presets.vscode import vscode
from promptkit.compaction.summarizers.defaults import SummarizerContext
from promptkit.compaction.summarizers.native import make_portable, wire_of
from promptkit.errors import (
    ContextLengthExceededError,
    InvalidArgumentError,
    MaxStepsExceededError,
    NoPendingMessageError,
    TurnInProgressError,
)
from promptkit.messages import Message, Part
from promptkit.providers.model import with_options
from promptkit.tokens.models import tokenizer_for
from promptkit.transcript.entries import MessageEntry, Setting
from promptkit.transcript.transcript import Transcript

if TYPE_CHECKING:
    from types import TracebackType

    from promptkit.agent.prompt import Prompt
    from promptkit.compaction.budget import Budget
    from promptkit.compaction.compactor import Compactor
    from promptkit.compaction.events import Events
    from promptkit.compaction.hooks import CompactionHooks
    from promptkit.compaction.planning.selection import Keep
    from promptkit.compaction.policy.rules import Policy
    from promptkit.compaction.presets.preset import Preset
    from promptkit.compaction.storage.archives import ArchiveDirectory
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.element import Child
    from promptkit.messages import Usage
    from promptkit.providers.model import Model, Reply
    from promptkit.rendering.result import Rendered
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.redaction import Redactor
    from promptkit.transcript.store import Store

__all__ = ["AgentSession", "TurnResult", "next_larger", "validate_arguments", "validate_content"]


def validate_content(content: object) -> tuple[Part, ...]:
    """What a person says, as content. Raises TypeError for what is none, NoPendingMessageError for what says nothing."""
    parts = content_of(content)
    if parts is None:
        problem = f"a session is told text, or a list of texts and parts such as ImagePart(url=…), not {content!r:.80}."
        raise TypeError(problem)
    if not any(part.strip() if isinstance(part, str) else True for part in parts):
        raise NoPendingMessageError
    return parts


def validate_arguments(*, model: object, transcript: object, prompt: object, tools: Sequence[object], max_steps: int) -> None:
    """Raises TypeError for what a session cannot be made of, with what it takes; InvalidArgumentError for turns without a request."""
    if not hasattr(model, "complete"):
        problem = f"model must be a model such as OpenAIModel('gpt-5'), not {model!r:.80}."
        raise TypeError(problem)
    if not isinstance(transcript, Transcript | None):
        problem = f"transcript must be a Transcript such as Transcript(JsonlStore('talk.jsonl')), not {transcript!r:.80}."
        raise TypeError(problem)
    if prompt is not None and not callable(prompt):
        problem = f"prompt must be a function of the view that makes the prompt, such as lambda view: …, not {type(prompt).__name__}."
        raise TypeError(problem)
    for tool in tools:
        if not isinstance(tool, Tool):
            problem = f"tools are made as Tool(definition=ToolDefinition(name=…), run=…), not {tool!r:.80}."
            raise TypeError(problem)
    if max_steps < 1:
        problem = f"max_steps must be at least 1, not {max_steps}."
        raise InvalidArgumentError(problem)


@attrs.frozen(kw_only=True)
class TurnResult:
    """What came of one message of the person."""

    text: str
    """What the model said at the end."""
    steps: int
    """How many requests that took."""
    usage: tuple[Usage, ...]
    """Of each request, in order."""
    finish: Literal["stop", "tool_calls", "length", "content_filter"] = "stop"
    """Why the model ended: `length` is that its text was cut off, `content_filter` that the rest was withheld."""


def next_larger(models: Sequence[Model], window: int | None, *, tokenizer: Tokenizer | None) -> Model | None:
    """The first of some models whose window is known and larger than `window` tokens; None where there is none, or `window` is unknown."""
    if window is None:
        return None
    sizes = ((model, budget_for(model.name, tokenizer=tokenizer or tokenizer_for(model.name)).window) for model in models)
    return next((model for model, size in sizes if size is not None and size > window), None)


MODEL = "model"
"""The setting that is written when a session goes on with another model."""


class AgentSession:
    """A conversation that never outgrows its window. For one event loop; `SyncSession` is the same for programs without one.

    `prompt` makes the prompt of a request from the view of the transcript; without one, `instructions` and the messages are sent.
    `budget` is what requests may take, by default what is known of the model. `summarizer` is asked in the foreground and the
    background; by default the live conversation is, then a copy of it, then no model at all. `preset` says how the conversation is
    compacted (`promptkit.compaction.presets`); `policy` and `keep` are for single parts of that. `promotions` are larger models, the
    smallest first, for presets that go on with one before they summarize. `keep` says what a summary leaves as it is, `read_tool` names the tool by which the model reads a file: the transcript's place is told it so. `redactor` takes secrets out of
    summaries. `rng` gives the jitter of the policy's thresholds. `enabled=False`: nothing is summarized or pruned that nobody asked for.

    A transcript that holds something already is gone on with, also where a program was killed in the middle of a turn: give
    `Transcript(JsonlStore("talk.jsonl"))`, and it is kept in a file.

    `session.transcript` is all that was said, `session.keeper.view` what the model is shown of it, `session.keeper.reading()` how much of
    `session.keeper.budget` that takes, and `session.last_rendered` the last request. `events` tells of compactions as they happen.
    """

    def __init__(  # noqa: PLR0913  # what a session is made of, each with a default
        self,
        *,
        model: Model,
        transcript: Transcript | None = None,
        instructions: Child = None,
        prompt: Prompt | None = None,
        tools: Sequence[Tool] = (),
        budget: Budget | None = None,
        preset: Preset | None = None,
        policy: Policy | None = None,
        summarizer: Summarizer | None = None,
        keep: Keep | None = None,
        tokenizer: Tokenizer | None = None,
        hooks: CompactionHooks | None = None,
        redactor: Redactor | None = None,
        events: Events | None = None,
        archives: ArchiveDirectory | None = None,
        promotions: Sequence[Model] = (),
        read_tool: str = "read_file",
        enabled: bool = True,
        max_steps: int = 100,
        rng: Callable[[], float] = random.random,
    ) -> None:
        validate_arguments(model=model, transcript=transcript, prompt=prompt, tools=tools, max_steps=max_steps)
        self.model = model
        self.transcript = Transcript() if transcript is None else transcript
        self.tools: Mapping[str, Tool] = tools_by_name(tools)
        self.max_steps = max_steps
        self._definitions = tuple(tool.definition for tool in tools)
        preset = preset or vscode()
        self._requests = RequestBuilder(
            self.transcript, prompt, instructions=instructions, tools=self._definitions, processors=preset.processors
        )
        self._tokenizer = tokenizer
        self._setup = CompactionConfig(
            draw=rng,
            preset=preset,
            policy=policy,
            keep=keep,
            summarizer=summarizer,
            hooks=hooks,
            redactor=redactor,
            events=events,
            archives=archives,
            read_tool=read_tool,
            enabled=enabled,
        )
        writing = self._writing(budget or budget_for(model.name, tokenizer=self.tokenizer, tools=self._definitions))
        self.keeper = self._setup.keeper(self.transcript, writing=writing, name=model.name, tools=self._definitions)
        self._promotions = list(promotions)
        self._offer()
        self._turn = asyncio.Lock()
        self._like = partial(
            AgentSession,
            instructions=instructions,
            prompt=prompt,
            tools=tools,
            preset=preset,
            policy=policy,
            summarizer=summarizer,
            keep=keep,
            tokenizer=tokenizer,
            hooks=hooks,
            redactor=redactor,
            events=events,
            archives=archives,
            promotions=promotions,
            read_tool=read_tool,
            enabled=enabled,
            max_steps=max_steps,
            rng=rng,
        )

    @property
    def compactor(self) -> Compactor:
        """What summarizes this conversation."""
        return self.keeper.compactor

    @property
    def tokenizer(self) -> Tokenizer:
        """What counts: the one that was given, else the model's."""
        return self._tokenizer or tokenizer_for(self.model.name)

    @property
    def last_rendered(self) -> Rendered | None:
        """The last request, with its receipt, as it was rendered: what a model's quirks add behind a summary is not in it."""
        return self._requests.rendered

    @property
    def last_omitted(self) -> tuple[Message, ...]:
        """The messages that are not in the last request as they were said, though no summary stands for them."""
        return self._requests.left_out

    async def run(self, content: str | Sequence[Part], *, on_text: Callable[[str], object] | None = None) -> TurnResult:
        """Say something to the model, and do what it asks for until it is done. `on_text` hears its text as it comes.

        Everything that is said is in the transcript, durably, before the next thing happens. What is said while a turn is going on is
        said when that one is done.

        Raises NoPendingMessageError for empty content, ContextWindowFullError if the conversation cannot be made to fit, MaxStepsExceededError after
        `max_steps` requests, and what the model's provider raises. Afterwards, and where it was cancelled, the session can be used
        again: `resume` goes on with the turn, and `run` says something else.
        """
        parts = validate_content(content)
        async with self._turn:
            self.transcript.say(Message(role="user", content=parts))
            self.keeper.asked()
            return await self._work(on_text)

    async def resume(self, *, on_text: Callable[[str], object] | None = None) -> TurnResult:
        """Go on with a turn that was cut short by an error, a cancellation or the end of a program, without saying anything.

        Calls that were made then are not made again: the model is told that they have no result. Raises NoPendingMessageError where the
        model has had the last word, and as `run` does.
        """
        async with self._turn:
            items = self.keeper.view.items
            if not items or items[-1].message.role not in {"user", "tool"} or is_summary(items[-1]):
                raise NoPendingMessageError
            self.keeper.asked()
            return await self._work(on_text)

    async def compact(self, instructions: str | None = None) -> Entry | None:
        """Summarize now, because somebody asks for it. None if there is nothing to summarize.

        Raises SummaryError if no summary was to be had, CompactionInProgressError while another is made in the foreground.
        """
        return await self.keeper.compact(instructions)

    def undo_compaction(self) -> Entry | None:
        """Show again what the latest compaction summarized. None if there is none."""
        self.keeper.turned("a compaction was undone")
        return self.compactor.undo()

    def rewind(self, to: str | None) -> Entry:
        """Go on from an earlier entry, from the very beginning for None. What came after it stays in the transcript, as a branch.

        Raises TurnInProgressError while the model works on a turn, TranscriptError for an entry that is not there.
        """
        if self._turn.locked():
            raise TurnInProgressError
        entry = self.transcript.rewind(to)
        self.keeper.turned("the conversation goes on from elsewhere")
        return entry

    def fork(self, store: Store, *, at: str | None = None) -> AgentSession:
        """A session like this one that goes on from an entry, by default the last, in a transcript of its own in an empty store."""
        return self._like(model=self.model, budget=self.keeper.budget, transcript=self.transcript.fork(store, at=at))

    def set_model(self, model: Model, *, budget: Budget | None = None) -> None:
        """Go on with another model. Where its window is smaller, the next request makes room."""
        tokenizer = self._tokenizer or tokenizer_for(model.name)
        budget = budget or budget_for(model.name, tokenizer=tokenizer, tools=self._definitions)
        self.transcript.append(Setting(name=MODEL, value=model.name))
        make_portable(self.transcript, provider=wire_of(model))
        self.model = model
        writing = self._writing(budget)
        self.keeper.switch(model.name, writing.budget, tokenizer=self.tokenizer)
        self._setup.fit(self.keeper, writing)
        self._offer()

    async def run_maintenance(self, *, idle_seconds: float = 0.0, memory: bool = False) -> bool:
        """Let the policy do what is for a moment in which nobody waits: nothing was said for so long, or `memory` is short.

        Whether something was done. Presets say what: most do nothing then.
        """
        async with self._turn:
            return await self.keeper.moment("memory" if memory else "idle", idle_seconds=idle_seconds)

    async def wait_idle(self) -> None:
        """Wait until no turn is going on."""
        async with self._turn:
            pass

    async def close(self) -> None:
        """End what runs in the background, for good. Turns go on, and are summarized in the foreground where they must be."""
        await self.keeper.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _work(self, on_text: Callable[[str], object] | None) -> TurnResult:
        usages: list[Usage] = []
        for _ in range(self.max_steps):
            reply = await self._request(on_text)
            usages.append(reply.usage)
            if not reply.message.tool_calls:
                await self.keeper.moment("incomplete" if reply.finish == "length" else "turn_end")
                return TurnResult(text=reply.message.text, steps=len(usages), usage=tuple(usages), finish=reply.finish)
            await call_tools(self.tools, reply.message.tool_calls, lambda results: self.transcript.say(*results))
            self.keeper.worked()
        raise MaxStepsExceededError(self.max_steps)

    async def _request(self, on_text: Callable[[str], object] | None) -> Reply:
        await self.keeper.prepare()
        refused = False
        while True:
            request, tokens = await self._requests.fitted(self.keeper, lambda: (self.model.name, self.tokenizer))
            model = self.model  # another may be switched to while this one thinks
            try:
                reply = await with_options(model, on_text=on_text).complete(request.messages, tools=request.tools)
            except ContextLengthExceededError as error:
                if refused:
                    raise
                refused = True
                if model is self.model:
                    budget = budget_after_overflow(self.keeper.budget, refused=tokens, window=error.window)
                    self._setup.fit(self.keeper, self._writing(budget))
                await self.keeper.overflow(tokens, refused_by=model.name)
                continue
            break
        self.transcript.append(MessageEntry(message=reply.message, usage=reply.usage, model=model.name, finish=reply.finish))
        self.keeper.answered(request, reply.message)
        return reply

    def _writing(self, budget: Budget) -> SummarizerContext:
        return SummarizerContext(model=self.model, budget=self._setup.budget(budget), tokenizer=self.tokenizer)

    def _offer(self) -> None:
        """Tell the keeper of the next larger model, if there is one."""
        larger = next_larger(self._promotions, self.keeper.budget.window, tokenizer=self._tokenizer)
        self.keeper.promotion = None if larger is None else Promotion(model=larger.name, go=partial(self.set_model, larger))
