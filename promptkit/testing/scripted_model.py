"""A model that answers from a script, so that a test of an agent says what the model says, and needs no network."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Self, TypeAlias, cast

import attrs

from promptkit.messages import Message, ToolCall, ToolDefinition, Usage
from promptkit.providers.model import Reply
from promptkit.rendering.sizing import Sizer
from promptkit.testing.assertions import outline, shorten
from promptkit.testing.word_tokenizer import WordTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["Answer", "NoStepLeftError", "Request", "ScriptedModel", "Step", "StepsLeftError"]


@attrs.frozen(kw_only=True)
class Request:
    """What a model was sent."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()

    def __str__(self) -> str:
        """One short line for each message, and the names of the tools."""
        tools = f"\n  tools: {', '.join(tool.name for tool in self.tools)}" if self.tools else ""
        return "\n".join(f"  {line}" for line in outline(self.messages) or ["no messages"]) + tools


Answer: TypeAlias = "str | ToolCall | Sequence[ToolCall] | Message | Reply | BaseException"
"""What a step may be: text, calls, a whole assistant message, a whole reply, or an error to raise."""

Step: TypeAlias = "Answer | Callable[[Request], Answer | Awaitable[Answer]]"
"""Likewise, or a function of the request that returns it; the function may be `async`."""


class NoStepLeftError(AssertionError):
    """A ScriptedModel was asked once more than it has steps. `request` is what it was asked, `steps` how many it had."""

    def __init__(self, request: Request, steps: int) -> None:
        super().__init__(request, steps)
        self.request = request
        self.steps = steps

    def __str__(self) -> str:
        had = "its only step is" if self.steps == 1 else f"its {self.steps} steps are"
        return f"ScriptedModel was asked once more, and {had} used up. The request:\n{self.request}"


class StepsLeftError(AssertionError):
    """A ScriptedModel was asked less often than it has steps. `steps` are those left, `requests` what it was asked."""

    def __init__(self, steps: Sequence[Step], requests: Sequence[Request]) -> None:
        super().__init__(steps, requests)
        self.steps = tuple(steps)
        self.requests = tuple(requests)

    def __str__(self) -> str:
        left = "\n".join(f"  {shorten(repr(step))}" for step in self.steps)
        last = f" The last request:\n{self.requests[-1]}" if self.requests else ""
        times = "once" if len(self.requests) == 1 else f"{len(self.requests)} times"
        return f"ScriptedModel was asked {times}, and {len(self.steps)} of its steps are left:\n{left}{last}"


class ScriptedModel:
    """A model that answers each request with the next of its steps, and fails the test if requests and steps do not match.

    It is a context manager: at the end of the block it checks that every step was used and that nothing more was asked for,
    even if the code under test swallowed that error. `requests` holds what it was sent.

    What a reply cost is counted by `tokenizer`: one token a word, unless told otherwise. The input is the whole request, of
    which the leading messages that an earlier request began with are cached; the output is the answer as a message. A Reply
    among the steps says itself what it cost, and `usage` says it for all others.

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
        self.requests: list[Request] = []
        """What it was sent, in order; one that it had no step for is the last."""
        self._steps: tuple[Step, ...] = tuple(map(_checked, steps))
        self._sizer = Sizer(tokenizer or WordTokenizer())
        self._usage = usage
        self._sent: list[_Sent] = []

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> Reply:
        """The next step, as a reply.

        Raises NoStepLeftError if there is none, and the step itself if it is an error.
        """
        request = Request(messages=tuple(messages), tools=tuple(tools))
        self.requests.append(request)
        number = len(self.requests)
        if number > len(self._steps):
            raise NoStepLeftError(request, len(self._steps))
        step = self._steps[number - 1]
        read, cached = self._read(request)  # before anything is awaited: requests are remembered in the order in which they came
        if callable(step):
            made = step(request)
            step = _checked(await made if inspect.isawaitable(made) else made)
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, Reply):
            return step
        message = _message(cast("str | ToolCall | Sequence[ToolCall] | Message", step))  # _checked lets nothing else pass
        usage = self._usage or Usage(input_tokens=read, output_tokens=self._sizer.count_message(message), cached_tokens=cached)
        return Reply(message=message, usage=usage, finish="tool_calls" if message.tool_calls else "stop")

    def check(self) -> None:
        """What the end of the block checks, for where there is no block.

        Raises StepsLeftError if it was asked less often than it has steps, NoStepLeftError if more often.
        """
        __tracebackhide__ = True
        asked, steps = len(self.requests), len(self._steps)
        if asked > steps:
            raise NoStepLeftError(self.requests[steps], steps)
        if asked < steps:
            raise StepsLeftError(self._steps[asked:], self.requests)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        __tracebackhide__ = True
        if error is None:  # a test that failed already has its reason
            self.check()

    def _read(self, request: Request) -> tuple[int, int]:
        """The tokens of a request, and how many of them an earlier one began with. Every message is counted once."""
        system = next((message.text for message in request.messages if message.role == "system"), False)
        overhead = self._sizer.tokenizer.count_overhead(request.tools, system=system).tokens
        known = next((sent for sent in self._sent if sent.what == request.tools), None)
        tokens, cached = overhead, overhead if known else 0
        if known is None:
            known = _Sent(request.tools, overhead)
            self._sent.append(known)
        for message in request.messages:
            following = next((sent for sent in known.following if sent.what is message or sent.what == message), None)
            if following is None:
                following = _Sent(message, self._sizer.count_message(message))
                known.following.append(following)
            else:
                cached += following.tokens
            known = following
            tokens += known.tokens
        return tokens, cached


class _Sent:
    """What some request began with: its last piece, what that costs, and what followed it in any request."""

    __slots__ = ("following", "tokens", "what")

    def __init__(self, what: object, tokens: int) -> None:
        self.what = what
        self.tokens = tokens
        self.following: list[_Sent] = []


def _checked(step: Step) -> Step:
    if isinstance(step, str | Reply | BaseException) or callable(step):
        return step
    if isinstance(step, Message) and step.role == "assistant":
        return step
    calls: object = [step] if isinstance(step, ToolCall) else step
    if isinstance(calls, Sequence) and calls:
        items = cast("Sequence[object]", calls)  # callers may be unchecked
        if all(isinstance(call, ToolCall) for call in items):
            return step
    problem = f"a step is text, a ToolCall or several, an assistant Message, a Reply, an error, or a function of the request, not {step!r}."
    raise TypeError(problem)


def _message(answer: str | ToolCall | Sequence[ToolCall] | Message) -> Message:
    if isinstance(answer, Message):
        return answer
    if isinstance(answer, str):
        return Message(role="assistant", content=(answer,) if answer else ())
    return Message(role="assistant", tool_calls=(answer,) if isinstance(answer, ToolCall) else tuple(answer))
