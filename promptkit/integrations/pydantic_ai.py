"""pydantic-ai: capabilities that make each request fit.

The run's message history keeps all messages.

>>> agent = Agent("openai:gpt-5", tools=[read_file], capabilities=[Fit()])
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Literal, TypeAlias

import attrs

from promptkit.agent.settings import WindowSettings
from promptkit.compaction import Events, Preset, Summarizer
from promptkit.integrations.windows import (
    MAX_THREADS,
    Budget,
    Counting,
    IssuedRequest,
    ModelFacts,
    RequestFitter,
    ThreadWindows,
    find_overflow,
    match_calls,
)
from promptkit.messages import ImagePart, Message, OpaquePart, Part, ToolCall, ToolDefinition, Usage
from promptkit.providers import Model
from promptkit.tokens import NamedModel, Tokenizer
from promptkit.transcript import Transcript

try:
    from pydantic_ai import ModelRequestContext, RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import ModelContextWindowExceededError, RetryModelRequest
    from pydantic_ai.messages import (
        BinaryContent,
        ImageUrl,
        ModelMessage,
        ModelRequest,
        ModelRequestPart,
        ModelResponse,
        ModelResponsePart,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
except ImportError as error:
    raise ImportError(
        "promptkit.integrations.pydantic_ai needs pydantic-ai: run `pip install 'pydantic-ai-slim>=2.60'`, or "
        "`pip install '.[pydantic-ai]'` in a checkout of promptkit."
    ) from error

Context: TypeAlias = RunContext[Any]  # Any: the program's dependencies

__all__ = ["Compaction", "Fit"]


@attrs.frozen(eq=False)
class _Unit:
    """A message of promptkit's in pydantic-ai's history: one part of a request, or a whole response."""

    at: int
    """The place of the message in the history."""
    value: ModelRequestPart | ModelResponse


class Fit(AbstractCapability[Any]):  # Any: the program's dependencies
    """Make each request fit a token budget: long messages are shortened, then the oldest rounds are left out, as `promptkit.fit` does.

    The message history is not changed. Messages of which nothing changed are its own objects. A
    request that the provider refuses as too large is made again once, smaller.

    >>> agent = Agent("openai:gpt-5", tools=[read_file], capabilities=[Fit(budget="64k")])

    Args:
        budget: The most tokens that a request may have: a number, a text such as `"8k"`, or a
            ContextBudget. Default: the context window of the serving model less the tokens reserved
            for the reply.
        model: The name by which the model is counted. Default: that of the serving model.
        tokenizer: Counts the tokens. Default: the tokenizer of the model.
        keep: Which of the older rounds stay longest.
        shorten: Whether messages may be shortened. Otherwise rounds are kept whole, or left out.
    """

    def __init__(
        self,
        *,
        budget: Budget = None,
        model: str | NamedModel | None = None,
        tokenizer: Tokenizer | None = None,
        keep: Literal["newest", "oldest"] = "newest",
        shorten: bool = True,
    ) -> None:
        self._fitter = RequestFitter(
            budget=budget,
            model=model,
            tokenizer=tokenizer,
            keep=keep,
            shorten=shorten,
            convert=_read,
            rebuild=_rebuild,
        )

    def __repr__(self) -> str:
        return self._fitter.describe(self, keep=self._fitter.keep)

    async def prepare_model_request(
        self,
        ctx: Context,  # the hook's
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        """Send what fits."""
        fitted = self._fitter.fit(
            _split(request_context.messages), _read_facts(request_context, self._fitter)
        )
        return replace(request_context, messages=_join(request_context.messages, fitted.messages))

    async def on_model_request_error(
        self,
        ctx: Context,  # the hook's
        *,
        request_context: ModelRequestContext,
        error: Exception,
    ) -> ModelResponse:
        """Ask for another attempt after the first refusal."""
        refusal = find_overflow(error, ModelContextWindowExceededError)
        if refusal is not None and request_context.attempt <= 1:
            facts = _read_facts(request_context, self._fitter)
            fitted = self._fitter.fit(_split(request_context.messages), facts)
            if self._fitter.learn(facts, fitted, refusal):
                raise RetryModelRequest from error
        raise error


class Compaction(AbstractCapability[Any]):  # Any: the program's dependencies
    """Keep each conversation within the context window: older messages are summarized as promptkit's presets do.

    Every conversation (`conversation_id`) has a `ContextWindow` of its own. The message history is
    not changed. The usage that the model reports corrects the window's counts, and a request that
    the provider refuses as too large is made again once, smaller.

    >>> agent = Agent("openai:gpt-5", tools=[read_file], capabilities=[Compaction(summarizer=OpenAIModel("gpt-4.1-mini"))])

    Args:
        model: The name by which the model is counted. Default: that of the serving model.
        summarizer: Who writes the summaries: a promptkit model, or a Summarizer. Default: they are
            extracted without a model. It is called in an event loop of its own, so give it a client
            that nothing else uses.
        preset: How conversations are compacted: a name in `promptkit.compaction.PRESETS`, or a
            `Preset`.
        budget: What requests may take, in tokens. Default: what is known of the serving model.
        tokenizer: Counts the tokens. Default: the tokenizer of the model.
        events: Receive what is decided and done.
        transcripts: Returns the transcript of a conversation, so that summaries survive a restart.
            Default: transcripts in memory.
        max_threads: The most conversations whose windows are kept open. The one that was used least
            recently is closed first.
    """

    def __init__(  # noqa: PLR0913  # what a window is made of, each with a default
        self,
        *,
        model: str | NamedModel | None = None,
        summarizer: Summarizer | Model | None = None,
        preset: str | Preset = "vscode",
        budget: Budget = None,
        tokenizer: Tokenizer | None = None,
        events: Events | None = None,
        transcripts: Callable[[str], Transcript] | None = None,
        max_threads: int = MAX_THREADS,
    ) -> None:
        self._windows = ThreadWindows(
            budget=budget,
            model=model,
            settings=WindowSettings(
                preset=preset, summarizer=summarizer, tokenizer=tokenizer, events=events
            ),
            transcripts=transcripts,
            max_threads=max_threads,
        )
        self._issued: OrderedDict[str, IssuedRequest] = OrderedDict()
        self._max_issued = 10 * max_threads

    def __repr__(self) -> str:
        return self._windows.describe(self, windows=self._windows)

    async def prepare_model_request(
        self, ctx: Context, request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send the conversation as its window shows it."""
        units = _split(request_context.messages)
        issued = await self._windows.loop.wait_async(
            partial(
                self._windows.request,
                ctx.conversation_id or "",
                _read_facts(request_context, self._windows),
                [_read(unit) for unit in units],
                units,
            )
        )
        self._issued[ctx.run_id or ""] = issued
        if len(self._issued) > self._max_issued:  # of runs that were cancelled
            self._issued.popitem(last=False)
        shown = issued.show(_rebuild)
        return replace(request_context, messages=_join(request_context.messages, shown))

    async def after_model_request(
        self,
        ctx: Context,
        *,
        request_context: ModelRequestContext,  # the hook's
        response: ModelResponse,
    ) -> ModelResponse:
        """Tell the window the reply and its usage."""
        issued = self._issued.pop(ctx.run_id or "", None)
        if issued is not None:
            used = response.usage
            usage = (
                Usage(
                    input_tokens=used.input_tokens,
                    output_tokens=used.output_tokens,
                    cached_tokens=used.cache_read_tokens,
                )
                if used.input_tokens
                else None
            )
            await self._windows.loop.wait_async(
                partial(
                    self._windows.reply,
                    issued,
                    _read(_Unit(0, response)),
                    usage,
                )
            )
        return response

    async def on_model_request_error(
        self, ctx: Context, *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Ask for another attempt after the first refusal."""
        issued = self._issued.pop(ctx.run_id or "", None)
        if (
            issued is not None
            and request_context.attempt <= 1
            and await self._windows.loop.wait_async(
                partial(self._windows.recover, issued, error, ModelContextWindowExceededError)
            )
        ):
            raise RetryModelRequest from error
        raise error


def _read_facts(request: ModelRequestContext, counting: Counting) -> ModelFacts:
    parameters = request.model_request_parameters
    return ModelFacts(
        model=counting.model or request.model.model_name,
        budget=counting.budget,
        instructions="\n\n".join(part.content for part in parameters.instruction_parts or ())
        or None,
        tools=tuple(
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters=tool.parameters_json_schema,
                strict=tool.strict,
            )
            for tool in (*parameters.function_tools, *parameters.output_tools)
        ),
    )


def _split(messages: Sequence[ModelMessage]) -> list[_Unit]:
    return [
        _Unit(at, value)
        for at, message in enumerate(messages)
        for value in (message.parts if isinstance(message, ModelRequest) else (message,))
    ]


def _join(messages: Sequence[ModelMessage], units: Iterable[_Unit | Message]) -> list[ModelMessage]:
    """Put units together again. A message of which every part is its own is the object itself."""
    joined: list[ModelMessage] = []
    for at, group in groupby(units, lambda unit: None if isinstance(unit, Message) else unit.at):
        given = list(group)
        # Any: pydantic-ai's union of parts of a request
        values: list[Any] = [unit.value for unit in given if isinstance(unit, _Unit)]
        own = None if at is None else messages[at]
        if isinstance(own, ModelRequest):
            is_same = len(own.parts) == len(values) and all(map(operator.is_, own.parts, values))
            joined.append(own if is_same else replace(own, parts=values))
        else:
            joined += (value for value in values if isinstance(value, ModelResponse))
            joined += (_write(unit) for unit in given if isinstance(unit, Message))
    return joined


def _read(unit: _Unit) -> Message:
    match unit.value:
        case ModelResponse() as response:
            return Message(
                role="assistant",
                content=[
                    part.content
                    if isinstance(part, TextPart)
                    else OpaquePart(
                        value={"type": "thinking", "thinking": part.content}, provider="pydantic-ai"
                    )
                    for part in response.parts
                    if isinstance(part, TextPart | ThinkingPart)
                ],
                tool_calls=[
                    ToolCall(
                        id=part.tool_call_id, name=part.tool_name, arguments=part.args_as_json_str()
                    )
                    for part in response.parts
                    if isinstance(part, ToolCallPart)
                ],
            )
        case SystemPromptPart() as part:
            return Message(role="system", content=part.content)
        case UserPromptPart(content=str(text)):
            return Message(role="user", content=text)
        case UserPromptPart() as part:
            return Message(role="user", content=[_read_content(each) for each in part.content])
        case ToolReturnPart() as part:
            return Message(
                role="tool", content=part.model_response_str(), tool_call_id=part.tool_call_id
            )
        case part:
            return _read_other(part)


def _read_other(part: ModelRequestPart) -> Message:
    # a request to try again, whose classes differ by version
    respond = getattr(part, "model_response", None)
    text: object = respond() if callable(respond) else getattr(part, "content", None)
    if text is not None:
        call_id = (
            getattr(part, "tool_call_id", None)
            if getattr(part, "tool_name", None) is not None
            else None
        )
        return Message(
            role="user" if call_id is None else "tool", content=str(text), tool_call_id=call_id
        )
    return Message(
        role="user",
        content=[OpaquePart(value={"type": part.part_kind}, tokens=0, provider="pydantic-ai")],
    )


def _read_content(given: object) -> Part:
    match given:
        case str():
            return given
        case ImageUrl(url=url):
            return ImagePart(url=url)
        case BinaryContent() if given.is_image:
            return ImagePart(url=given.data_uri)
        case _:
            text = getattr(given, "content", None)
            return (
                text
                if isinstance(text, str)
                else OpaquePart(value={"type": str(getattr(given, "kind", ""))}, tokens=0)
            )


def _rebuild(unit: _Unit, shortened: Message) -> _Unit:
    """Return a unit with its shortened text, and with the tool calls that are left and their ids."""
    value = unit.value
    if isinstance(value, ModelResponse):
        own = [part.tool_call_id for part in value.parts if isinstance(part, ToolCallPart)]
        left = iter(match_calls(own, shortened.tool_calls))
        texts = [part for part in shortened.content if isinstance(part, str)]
        text = iter(["\n".join(texts)] if texts else [])
        # Any: pydantic-ai's union of parts of a response
        parts: list[Any] = [_rebuild_part(part, left, text) for part in value.parts]
        return _Unit(unit.at, replace(value, parts=[part for part in parts if part is not None]))
    if isinstance(value, UserPromptPart) and not isinstance(value.content, str):
        others = [each for each in value.content if not isinstance(each, str)]
        return _Unit(unit.at, replace(value, content=[shortened.text, *others]))
    readable: Any = value  # Any: every part that was read as text has its text there
    changed = {} if shortened.text == _read(unit).text else {"content": shortened.text}
    return _Unit(
        unit.at,
        replace(
            readable,
            **changed,
            **({"tool_call_id": shortened.tool_call_id} if shortened.role == "tool" else {}),
        ),
    )


def _rebuild_part(
    part: ModelResponsePart, calls: Iterator[ToolCall | None], texts: Iterator[str]
) -> object:
    """Return a part of a response with the next call or the next text; None if there is none."""
    match part:
        case ToolCallPart():
            called: Any = part  # Any: of any type of arguments
            if (call := next(calls)) is None:
                return None
            same = call.arguments == part.args_as_json_str()
            return replace(called, tool_call_id=call.id, args=part.args if same else call.arguments)
        case TextPart():
            text = next(texts, None)
            return None if text is None else replace(part, content=text)
        case _:
            return part


def _write(message: Message) -> ModelMessage:
    """Return a message that the history does not have: a summary, or a result that was missing."""
    match message.role:
        case "assistant":
            calls = [
                ToolCallPart(tool_name=call.name, args=call.arguments, tool_call_id=call.id)
                for call in message.tool_calls
            ]
            return ModelResponse(parts=[TextPart(content=message.text), *calls])
        case "tool":
            return ModelRequest(
                parts=[
                    ToolReturnPart(
                        tool_name="", content=message.text, tool_call_id=message.tool_call_id or ""
                    )
                ]
            )
        case "system":
            return ModelRequest(parts=[SystemPromptPart(content=message.text)])
        case "user":
            return ModelRequest(parts=[UserPromptPart(content=message.text)])
