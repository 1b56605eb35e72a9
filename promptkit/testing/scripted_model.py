"""A model that answers from a script, so that tests of agents need no network."""

from __future__ import annotations

import copy
import inspect
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Self, TypeAlias, TypeGuard, Unpack

import attrs

from promptkit import Message, ToolCall, ToolDefinition, Usage
from promptkit.compaction.summarizers.summarizer import SECTIONS
from promptkit.lab.replay.prompt_cache import MessageCounts, PrefixTree, count_overhead
from promptkit.providers.model import Model, ModelOptions, Reply, pass_text
from promptkit.reprs import describe, describe_fields
from promptkit.testing.assertions import format_messages, shorten
from promptkit.testing.word_tokenizer import WordTokenizer
from promptkit.tokens import Tokenizer


@attrs.frozen(kw_only=True)
class Request:
    """A request that a ScriptedModel received."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()
    options: ModelOptions = attrs.field(factory=ModelOptions, eq=False, repr=False)
    """The options that the model was given for it with `with_options`."""

    __repr__ = describe_fields

    @property
    def purpose(self) -> str | None:
        """The purpose of the request, such as `compaction`; None for a request of the conversation."""
        return self.options.get("purpose")

    def __str__(self) -> str:
        """Format each message as one short line, and name the tools."""
        return "\n".join(
            f"  {line}" for line in format_messages(self.messages) or ["no messages"]
        ) + (f"\n  tools: {', '.join(tool.name for tool in self.tools)}" if self.tools else "")


Answer: TypeAlias = "str | ToolCall | Sequence[ToolCall] | Message | Reply | BaseException"
"""One answer of the model: text, tool calls, an assistant message, a reply with its usage, or an
error to raise."""

Step: TypeAlias = "Answer | Callable[[Request], Answer | Awaitable[Answer]]"
"""One step of the script: an answer, or a function that takes the request and returns the answer;
it may be `async`."""


def summary_answer(text: str, *, sections: Sequence[str] = SECTIONS) -> str:
    """Return an answer that is accepted as a summary: a text under the first of the headings, and the others, in summary tags.

    Args:
        text: The text.
        sections: The headings, by default those of a summary. A handoff has those of
            `promptkit.compaction.summarizers.summarizer.HANDOFF_SECTIONS`.

    >>> ScriptedModel(["It scatters.", summary_answer("The parser scatters."), "Done."])
    """
    return "\n".join(("<summary>", sections[0], text, *sections[1:], "</summary>"))


@attrs.define
class NoStepLeftError(AssertionError):
    """A ScriptedModel received more requests than it has steps."""

    request: Request
    """The first request without a step."""
    steps: int
    """The number of steps."""

    def __str__(self) -> str:
        return f"ScriptedModel received another request, but {'its only step is' if self.steps == 1 else f'its {self.steps} steps are'} used up. The request:\n{self.request}"


@attrs.define
class StepsLeftError(AssertionError):
    """A ScriptedModel received fewer requests than it has steps."""

    steps: Sequence[Step]
    """The replies that are left."""
    requests: Sequence[Request]
    """The requests that came."""

    def __str__(self) -> str:
        left = "\n".join(f"  {shorten(repr(step))}" for step in self.steps)
        last = f" The last request:\n{self.requests[-1]}" if self.requests else ""
        return f"ScriptedModel received {len(self.requests)} request{'s' * (len(self.requests) != 1)}, but {len(self.steps)} of its steps are left:\n{left}{last}"


class ScriptedModel:
    """A model that answers each request with the next step of a script, and fails the test if requests and steps do not match.

    It is a context manager: at the end of the block it checks that every step was used and that no
    further request came, even if the code under test swallowed that error. `requests` holds the
    requests that it received.

    The usage of a reply is counted: the input is the whole request, of which the leading messages
    that an earlier request began with count as cached; the output is the answer as a message. A
    Reply among the steps keeps its own usage.

    Args:
        steps: The answers, in order: text, a ToolCall or several, an assistant Message, a Reply, an
            error to raise, or a function that takes the Request and returns one of these.
        name: The model's name.
        tokenizer: Counts usage. Default: one token a word.
        usage: The usage of every reply, in place of a counted one.

    >>> with ScriptedModel([ToolCall(id="c1", name="read"), "The parser is fine."]) as model:
    ...     run_agent(model)
    """

    def __init__(
        self,
        steps: Iterable[Step],
        *,
        name: str = "scripted",
        tokenizer: Tokenizer | None = None,
        usage: Usage | None = None,
    ) -> None:
        self.name = name
        self.provider: str | None = None
        """It has none: what is not known of its window needs no warning."""
        self.requests: list[Request] = []
        """The requests so far, in order. One that no step was left for is included."""
        self.options: ModelOptions = {}
        self._steps: tuple[Step, ...] = tuple(steps)
        for step in self._steps:
            _read_step(step)
        self._counts = MessageCounts(tokenizer or WordTokenizer())
        self._usage = usage
        self._prefixes: defaultdict[str, PrefixTree] = defaultdict(PrefixTree)

    def __repr__(self) -> str:
        return describe(self, name=self.name, steps=len(self._steps), requests=len(self.requests))

    def with_options(self, **options: Unpack[ModelOptions]) -> Model:
        """Return the same model, which records these options with each request."""
        changed = copy.copy(self)
        changed.options = {**self.options, **options}
        return changed

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Return the next step as a reply. Its text is not streamed: `on_text` is called once, with the whole.

        Raises:
            NoStepLeftError: No step is left.
            BaseException: The step, if it is an error.
        """
        return pass_text(
            await self._answer(
                Request(messages=tuple(messages), tools=tuple(tools), options=self.options)
            ),
            self.options,
        )

    async def _answer(self, request: Request) -> Reply:
        """Return the next step as the reply to a request, and record the request."""
        self.requests.append(request)
        if len(self.requests) > len(self._steps):
            raise NoStepLeftError(request, len(self._steps))
        step = _read_step(self._steps[len(self.requests) - 1])
        # before anything is awaited, so that requests are remembered in their order
        read, cached = self._count_input(request)
        while callable(step):
            answer = step(request)
            step = _read_step(await answer if inspect.isawaitable(answer) else answer)
        if isinstance(step, BaseException):
            raise step
        return (
            step
            if isinstance(step, Reply)
            else Reply(
                message=step,
                usage=self._usage
                or Usage(
                    input_tokens=read,
                    output_tokens=self._counts.count_messages([step])[0].tokens,
                    cached_tokens=cached,
                ),
                finish="tool_calls" if step.tool_calls else "stop",
            )
        )

    def check(self) -> None:
        """Check that the script was used up, where no `with` block does it.

        Raises:
            StepsLeftError: Steps are left.
            NoStepLeftError: A request came that no step was left for.
        """
        __tracebackhide__ = True
        requests, steps = len(self.requests), len(self._steps)
        if requests > steps:
            raise NoStepLeftError(self.requests[steps], steps)
        if requests < steps:
            raise StepsLeftError(self._steps[requests:], tuple(self.requests))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        __tracebackhide__ = True
        if error is None:  # a test that failed already has its reason
            self.check()

    def _count_input(self, request: Request) -> tuple[int, int]:
        """Count the tokens of a request, and those of its prefix that an earlier request began with.

        Each message is counted once.
        """
        tools = json.dumps([attrs.asdict(tool) for tool in request.tools], sort_keys=True)
        overhead = count_overhead(self._counts.tokenizer, request.tools, request.messages)
        cached = overhead if tools in self._prefixes else 0
        prefixes = self._prefixes[tools]
        counts = self._counts.count_messages(request.messages)
        known = prefixes.add_path(counts, prefixes.count_kept(counts))
        tokens = [each.tokens for each in counts]
        return overhead + sum(tokens), cached + sum(tokens[:known])


def _read_step(step: object) -> Message | Reply | BaseException | Callable[[Request], object]:
    if isinstance(step, Reply | BaseException) or callable(step):
        return step
    if (message := read_message(step)) is None:
        raise TypeError(
            f"a step is text, a ToolCall or several, an assistant Message, a Reply, an error, or a function of the request, not {step!r}."
        )
    return message


def read_message(answer: object) -> Message | None:
    """Return the assistant message that an answer stands for: text, a tool call or several, or the message itself. None for anything else."""
    match answer:
        case Message(role="assistant"):
            return answer
        case str():
            return Message(role="assistant", content=answer)
        case ToolCall():
            return Message(role="assistant", tool_calls=(answer,))
        case _ if _is_sequence(answer):
            calls = [call for call in answer if isinstance(call, ToolCall)]
            return (
                Message(role="assistant", tool_calls=calls)
                if calls and len(calls) == len(answer)
                else None
            )
        case _:
            return None


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence)
