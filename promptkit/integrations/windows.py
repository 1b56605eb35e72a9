"""Shared by the adapters of frameworks: a context window for each conversation, budgets, and the refusals of providers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

import anyio
import attrs

from promptkit.agent import ContextWindow, WindowRequest
from promptkit.agent.loop_thread import LoopThread
from promptkit.agent.settings import WindowSettings, check_types
from promptkit.errors import (
    ContextLengthExceededError,
    InvalidArgumentError,
)
from promptkit.fitting.fit import Fitted, fit
from promptkit.messages import Message, ToolCall, ToolDefinition, Usage
from promptkit.providers.errors import overflow_from_error
from promptkit.reprs import describe
from promptkit.tokens import (
    ContextBudget,
    Tokenizer,
    resolve_budget,
    tokenizer_for,
)
from promptkit.tokens.budget import LearnedBudget
from promptkit.tokens.models import describe_model, model_name
from promptkit.transcript import Transcript
from promptkit.wire.parts import WireFormat

T = TypeVar("T")

Budget: TypeAlias = int | str | ContextBudget | None
"""What adapters take as `budget=`."""

MAX_THREADS = 100
"""Conversations whose windows are kept open, unless an adapter is told otherwise."""


@attrs.frozen(kw_only=True)
class ModelFacts:
    """Everything in a framework's request except its messages."""

    model: str
    """The model's name."""
    budget: Budget
    instructions: str | None
    """The text of the system prompt, which is counted and not sent: the framework sends its own."""
    tools: tuple[ToolDefinition, ...]

    def is_like(self, other: ModelFacts, tokenizer: Tokenizer) -> bool:
        """Return whether a window with these facts serves other ones too: a system prompt may change as long as its size does not."""
        return self == other or (
            attrs.evolve(self, instructions=other.instructions) == other
            and tokenizer.count(self.instructions or "")
            == tokenizer.count(other.instructions or "")
        )


@attrs.define(eq=False)
class _Thread:
    """One conversation. `lock` is held while a request is made of it."""

    transcript: Transcript
    window: ContextWindow | None = None
    facts: ModelFacts | None = None
    lock: anyio.Lock = attrs.field(factory=anyio.Lock)


@attrs.frozen(eq=False)
class IssuedRequest:
    """A request, and the window that made it."""

    request: WindowRequest
    window: ContextWindow
    has_instructions: bool
    """Whether the request begins with the system prompt, which the framework sends itself."""

    def show(self, rebuild: Callable[[T, Message], T]) -> list[T | Message]:
        """Return what the framework sends, without the system prompt.

        These are its own objects, copies of those whose message was shortened, and `Message` values
        that are new, such as summaries.

        Args:
            rebuild: Returns a copy of one of the framework's objects with the content and the ids
                of calls of the changed message.
        """
        request = self.request
        return [
            message if own is None else own if origin is not None else rebuild(own, message)
            for origin, source, message in islice(
                zip(request.origins, request.sources, request.messages, strict=True),
                int(self.has_instructions),
                None,
            )
            for own in [cast("T | None", source)]  # as the framework gave it
        ]


def check_budget(budget: Budget) -> Budget:
    """Return a budget that is one, or None. Refuse anything else at once."""
    if budget is not None:
        resolve_budget(budget)
    return budget


def knows_window(model: str) -> bool:
    """Return whether promptkit knows the context window of a model by its name."""
    return describe_model(model).window is not None


def budget_from_limits(model: str, limits: Mapping[str, object]) -> ContextBudget | None:
    """Return the budget from the limits that LangChain and litellm know of a model; None if they do not know its window."""
    size, output = limits.get("max_input_tokens"), limits.get("max_output_tokens")
    return (
        ContextBudget(
            window=size,
            max_output_tokens=output if isinstance(output, int) and output > 0 else None,
            model=model,
        )
        if isinstance(size, int)
        else None
    )


def match_calls(own: Sequence[str | None], left: Sequence[ToolCall]) -> list[ToolCall | None]:
    """Return for each tool call of a framework's message, by their ids, the call in the message that was made of it; None if it is gone.

    Calls are matched by their place, since an id that an earlier message has, too, was made unique.
    """
    if len(own) == len(left):
        return list(left)
    by_id = {call.id: call for call in left}
    return [by_id.get(each or "") for each in own]


@attrs.define(kw_only=True, eq=False, repr=False)
class Counting:
    """Budget and model by which an adapter counts the requests that it makes."""

    budget: Budget = attrs.field(default=None, converter=check_budget)
    """The budget of requests. None: that of the request's model, as far as it is known."""
    model: str | None = attrs.field(default=None, converter=attrs.converters.optional(model_name))
    """The name by which models are counted. None: that of the request's model."""

    def describe(self, adapter: object, **facts: object) -> str:
        """Describe an adapter in one line, with further facts about it."""
        return describe(adapter, budget=self.budget, model=self.model, **facts)


@attrs.define(kw_only=True, eq=False, repr=False)
class ThreadWindows(Counting):
    """The context windows of a framework's conversations.

    They live in an event loop of their own, so that every loop may use them.

    At most `max_threads` are open. The one that was used least recently is closed first; a
    conversation that comes back gets a new window over the transcript that `transcripts` returns
    for it, and without that over a new one in memory.
    """

    settings: WindowSettings
    transcripts: Callable[[str], Transcript] | None = None
    max_threads: int
    _threads: dict[str, _Thread] = attrs.field(factory=dict[str, _Thread], init=False)
    """The open conversations, the one that was used least recently first."""
    _starting: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _started: LoopThread | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        if self.max_threads < 1:
            raise InvalidArgumentError(
                f"max_threads must be at least 1 conversation, not {self.max_threads}."
            )

    def __repr__(self) -> str:
        settings = self.settings
        return describe(
            self,
            preset=settings.preset.name,
            summarizer=settings.summarizer and type(settings.summarizer),
            open=len(self._threads),
        )

    @property
    def loop(self) -> LoopThread:
        """The thread with the event loop.

        It is started with the first request, and ends with this object.
        """
        with self._starting:
            if self._started is None:
                self._started = LoopThread(partial(_close, self._threads.values()))
                weakref.finalize(self, self._started.stop)
            return self._started

    async def request(
        self,
        thread_id: str,
        facts: ModelFacts,
        messages: Sequence[Message],
        origins: Sequence[object],
        *,
        end_turns: bool = False,
    ) -> IssuedRequest:
        """Make the request for a conversation that stands at these messages. Called in the loop.

        Args:
            thread_id: The conversation.
            facts: The model, the tools and the system prompt.
            messages: All messages of the conversation.
            origins: The framework's own object for each message.
            end_turns: Run the policy's phase for the end of a turn before a new user message, for
                frameworks that do not tell of it.

        Raises:
            ContextWindowFullError: The conversation does not fit, whatever is compacted or pruned.
        """
        thread = await self._find(thread_id)
        async with thread.lock:
            window = await self._open(thread, facts)
            if (
                end_turns
                and len(messages) > 1
                and messages[-1].role == "user"
                and messages[-2].role == "assistant"
            ):
                window.sync(messages[:-1], origins[:-1])
                await window.end_turn()
            window.sync(messages, origins)
            return IssuedRequest(await window.request(), window, facts.instructions is not None)

    async def reply(self, issued: IssuedRequest, message: Message, usage: Usage | None) -> None:
        """Add the reply to a request, and end the turn if it has no tool calls.

        Called in the loop.
        """
        if (
            issued.window.last_request is issued.request
        ):  # otherwise the reply comes with the next list of messages
            issued.window.add_reply(message, usage=usage)
            if not message.tool_calls:
                await issued.window.end_turn()

    async def recover(
        self, issued: IssuedRequest, error: BaseException, *own: type[BaseException]
    ) -> bool:
        """Return whether a smaller request should be made after an error, as `find_overflow` reads it.

        Called in the loop. Raises ContextWindowFullError.
        """
        refusal = find_overflow(error, *own, model=issued.request.model)
        return refusal is not None and await issued.window.recover(refusal, issued.request)

    async def _find(self, thread_id: str) -> _Thread:
        thread = self._threads.pop(thread_id, None) or _Thread(
            Transcript() if self.transcripts is None else self.transcripts(thread_id)
        )
        self._threads[thread_id] = thread
        idle = [
            each
            for each, found in self._threads.items()
            if found is not thread and not found.lock.locked()
        ]
        surplus = idle[: max(0, len(self._threads) - self.max_threads)]
        await _close([self._threads.pop(each) for each in surplus])
        return thread

    async def _open(self, thread: _Thread, facts: ModelFacts) -> ContextWindow:
        window = thread.window
        if (
            window is not None
            and thread.facts is not None
            and thread.facts.is_like(facts, window.tokenizer)
        ):
            return window
        await _close([thread])
        thread.facts = facts
        thread.window = ContextWindow.from_settings(
            # the framework sends its own tools
            attrs.evolve(
                self.settings,
                instructions=facts.instructions,
                tools=facts.tools,
                freeze_tools=False,
            ),
            model=facts.model,
            transcript=thread.transcript,
            budget=facts.budget,
        )
        return thread.window


async def _close(threads: Iterable[_Thread]) -> None:
    for thread in threads:
        if thread.window is not None:
            await thread.window.close()


@attrs.define(kw_only=True, eq=False)
class RequestFitter(Counting, Generic[T]):
    """Fit the requests of a framework, each to the budget of its model, which refusals lower."""

    tokenizer: Tokenizer | None = None
    """Counts the tokens. None: the tokenizer of the model."""
    keep: Literal["newest", "oldest"] = "newest"
    """Which of the older rounds stay longest."""
    shorten: bool = True
    """True: messages may be shortened."""
    rebuild: Callable[[T, Any], T]  # Any: a Message or a dict, as `convert` returns it
    """As for `promptkit.fit`, and so are the next two."""
    convert: Callable[[T], Message] | None = None
    format: WireFormat | None = None
    budgets: dict[str, LearnedBudget] = attrs.field(factory=dict[str, LearnedBudget])
    """The budgets of models whose provider refused a request: each lower than the one that was given."""

    def __attrs_post_init__(self) -> None:
        check_types(tokenizer=self.tokenizer)
        fit((), budget=1, keep=self.keep, shorten=self.shorten)  # refuses a wrong argument at once

    def fit(self, messages: Sequence[T], facts: ModelFacts) -> Fitted[T]:
        """Fit the messages of a request. Raises what `promptkit.fit` raises."""
        learned = self.budgets.get(facts.model)
        if learned is not None:
            self.budgets[facts.model] = learned.after_success()  # unless a refusal follows
        return fit(
            messages,
            budget=facts.budget if learned is None else learned.budget,
            model=facts.model or None,
            tools=facts.tools,
            system=facts.instructions,
            tokenizer=self.tokenizer,
            keep=self.keep,
            shorten=self.shorten,
            rebuild=self.rebuild,
            convert=self.convert,
            format=self.format,
        )

    def learn(self, facts: ModelFacts, fitted: Fitted[T], refusal: BaseException | None) -> bool:
        """Lower the budget of a model after the refusal of a request, if it was refused.

        Returns True if a smaller one should be made; False also if the error says nothing of the
        window.
        """
        overflow = None if refusal is None else overflow_from_error(refusal)
        if overflow is None or overflow.is_body:
            return False
        learned = self.budgets.get(facts.model) or self._resolve(facts)
        self.budgets[facts.model] = learned.after_refusal(fitted.tokens, window=overflow.window)
        limit = self.budgets[facts.model].budget.limit
        return limit is not None and limit < fitted.tokens

    def _resolve(self, facts: ModelFacts) -> LearnedBudget:
        return LearnedBudget(
            given=attrs.evolve(
                resolve_budget(
                    facts.budget,
                    model=facts.model if facts.budget is None else None,
                    tokenizer=self.tokenizer or tokenizer_for(facts.model),
                    tools=facts.tools,
                ),
                safety=1.0,  # so that a window that the provider names is a limit, too
            )
        )


def find_overflow(
    error: BaseException, *own: type[BaseException], model: str = ""
) -> BaseException | None:
    """Return the exception among an error and its causes that says that a request was too large; None if none does.

    Args:
        error: The error.
        own: The framework's own classes for such errors. In place of one of these, a
            ContextLengthExceededError is returned.
        model: The name of the model, for that.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if overflow_from_error(cause) is not None:
            return cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return ContextLengthExceededError(str(error), model=model) if isinstance(error, own) else None
