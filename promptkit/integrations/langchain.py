"""LangChain: middleware for `create_agent` that makes each request fit.

The agent's state and its checkpointer keep all messages.

>>> agent = create_agent("openai:gpt-5", tools=[read_file], middleware=[FitMiddleware()])
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import anyio.to_thread
import attrs

from promptkit.agent.settings import WindowSettings
from promptkit.compaction import Events, Preset, Summarizer
from promptkit.fitting.fit import Fitted
from promptkit.integrations.windows import (
    MAX_THREADS,
    Budget,
    Counting,
    IssuedRequest,
    ModelFacts,
    RequestFitter,
    ThreadWindows,
    budget_from_limits,
    find_overflow,
    knows_window,
    match_calls,
)
from promptkit.messages import (
    Message,
    OpaquePart,
    ToolDefinition,
    Usage,
    as_mapping,
    as_sequence,
    as_wire_object,
)
from promptkit.providers import Model, Reply
from promptkit.tokens import NamedModel, Tokenizer
from promptkit.tools import read_definition
from promptkit.transcript import Transcript
from promptkit.wire import messages_from_chat, to_chat, tools_to_chat

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
    from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
    from langchain_core.exceptions import ContextOverflowError
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        ToolMessage,
        convert_to_messages,
        convert_to_openai_messages,
    )
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config
except ImportError as error:
    raise ImportError(
        "promptkit.integrations.langchain needs LangChain: run `pip install 'langchain>=1.4'`, or `pip install '.[langchain]'` in a "
        "checkout of promptkit."
    ) from error

Request: TypeAlias = ModelRequest[Any]  # Any: the context may be of any type
Response: TypeAlias = ModelResponse[Any]  # Any: and the structured response

__all__ = ["CompactionMiddleware", "FitMiddleware"]

_NAMES = ("model_name", "model", "model_id", "deployment_name")
"""The attributes in which LangChain's chat models keep the name of their model."""

_REPEATED = {"function_call", "tool_call", "tool_use"}
"""Content blocks that repeat what the message has as tool calls."""


# Any: the state, the context and the structured response may be of any type
class FitMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Make each request fit a token budget: long messages are shortened, then the oldest rounds are left out, as `promptkit.fit` does.

    Messages that did not change are the agent's own objects, and shortened ones are copies with the
    same id. A request that the provider refuses as too large is made again once, smaller.

    >>> agent = create_agent("openai:gpt-5", tools=[read_file], middleware=[FitMiddleware(budget="64k")])

    Args:
        budget: The most tokens that a request may have: a number, a text such as `"8k"`, or a
            ContextBudget. Default: the context window of the request's model less the tokens
            reserved for the reply.
        model: The name by which the model is counted. Default: that of the request's model.
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
        super().__init__()
        self._fitter = RequestFitter(
            budget=budget,
            model=model,
            tokenizer=tokenizer,
            keep=keep,
            shorten=shorten,
            convert=_read_message,
            rebuild=_rebuild,
        )
        self._reader = _RequestReader(self._fitter)

    def __repr__(self) -> str:
        return self._fitter.describe(self, keep=self._fitter.keep)

    def wrap_model_call(self, request: Request, handler: Callable[[Request], Response]) -> Response:
        """Send what fits."""
        facts = self._reader.read(request)
        fitted = self._fit(request, facts)
        try:
            return handler(request.override(messages=_write_all(fitted.messages)))
        except Exception as error:
            if not self._fitter.learn(
                facts, fitted, find_overflow(error, ContextOverflowError, model=facts.model)
            ):
                raise
        return handler(request.override(messages=_write_all(self._fit(request, facts).messages)))

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Send what fits, in an event loop."""
        facts = self._reader.read(request)
        fitted = self._fit(request, facts)
        try:
            return await handler(request.override(messages=_write_all(fitted.messages)))
        except Exception as error:
            if not self._fitter.learn(
                facts, fitted, find_overflow(error, ContextOverflowError, model=facts.model)
            ):
                raise
        return await handler(
            request.override(messages=_write_all(self._fit(request, facts).messages))
        )

    def _fit(self, request: Request, facts: ModelFacts) -> Fitted[BaseMessage]:
        # a union of subclasses
        return self._fitter.fit(cast("list[BaseMessage]", request.messages), facts)


# Any: as above
class CompactionMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Keep each thread within the context window: older messages are summarized as promptkit's presets do, in the background if possible.

    Every thread of the agent (`thread_id`) has a `ContextWindow` of its own. Requests show its
    summaries; messages that did not change are the agent's own objects. The usage that the model
    reports corrects the window's counts, and a request that the provider refuses as too large is
    made again once, smaller.

    >>> agent = create_agent(model, tools=[read_file], middleware=[CompactionMiddleware(summarizer=model)], checkpointer=checkpointer)

    Args:
        model: The name by which the model is counted. Default: that of the request's model.
        summarizer: Who writes the summaries: a chat model of LangChain, a promptkit model, or a
            Summarizer. Default: they are extracted from the messages without a model.
        preset: How threads are compacted: a name in `promptkit.compaction.PRESETS`, or a `Preset`.
        budget: What requests may take, in tokens. Default: what is known of the request's model.
        tokenizer: Counts the tokens. Default: the tokenizer of the model.
        events: Receive what is decided and done.
        transcripts: Returns the transcript of a thread, such as
            `lambda thread: Transcript(JsonlStore(f"{thread}.jsonl"))`, so that summaries survive a
            restart. Default: transcripts in memory.
        max_threads: The most threads whose windows are kept open. The one that was used least
            recently is closed first.
    """

    def __init__(  # noqa: PLR0913  # what a window is made of, each with a default
        self,
        *,
        model: str | NamedModel | None = None,
        summarizer: BaseChatModel | Summarizer | Model | None = None,
        preset: str | Preset = "vscode",
        budget: Budget = None,
        tokenizer: Tokenizer | None = None,
        events: Events | None = None,
        transcripts: Callable[[str], Transcript] | None = None,
        max_threads: int = MAX_THREADS,
    ) -> None:
        super().__init__()
        own = _ChatModel(summarizer) if isinstance(summarizer, BaseChatModel) else summarizer
        self._windows = ThreadWindows(
            budget=budget,
            model=model,
            settings=WindowSettings(
                preset=preset, summarizer=own, tokenizer=tokenizer, events=events
            ),
            transcripts=transcripts,
            max_threads=max_threads,
        )
        self._reader = _RequestReader(self._windows)

    def __repr__(self) -> str:
        return self._windows.describe(self, windows=self._windows)

    def wrap_model_call(self, request: Request, handler: Callable[[Request], Response]) -> Response:
        """Send the thread as its window shows it."""
        make, loop = self._prepare(request), self._windows.loop
        issued = loop.wait(make)
        response: Response | None = None
        try:
            response = handler(_show(request, issued))
        except Exception as error:
            if not loop.wait(self._recover(issued, error)):
                raise
        if response is None:  # it was refused
            issued = loop.wait(make)
            response = handler(_show(request, issued))
        loop.wait(partial(self._add_reply, issued, response))
        return response

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Send the thread as its window shows it, in an event loop, which is not blocked meanwhile."""
        make, loop = self._prepare(request), self._windows.loop
        issued = await loop.wait_async(make)
        response: Response | None = None
        try:
            response = await handler(_show(request, issued))
        except Exception as error:
            if not await loop.wait_async(self._recover(issued, error)):
                raise
        if response is None:  # it was refused
            issued = await loop.wait_async(make)
            response = await handler(_show(request, issued))
        await loop.wait_async(partial(self._add_reply, issued, response))
        return response

    def _prepare(self, request: Request) -> Callable[[], Awaitable[IssuedRequest]]:
        return partial(
            self._windows.request,
            _find_thread(),
            self._reader.read(request),
            [_read_message(message) for message in request.messages],
            request.messages,
        )

    def _recover(self, issued: IssuedRequest, error: Exception) -> Callable[[], Awaitable[bool]]:
        return partial(self._windows.recover, issued, error, ContextOverflowError)

    async def _add_reply(self, issued: IssuedRequest, response: Response) -> None:
        answer = next(
            (message for message in response.result if isinstance(message, AIMessage)), None
        )
        if answer is not None:
            await self._windows.reply(issued, _read_message(answer), _read_usage(answer))


@attrs.define(eq=False)
class _RequestReader:
    """Read what LangChain's requests say besides their messages.

    The tools are converted once, as long as they are the same objects.
    """

    counting: Counting
    _tools: tuple[Sequence[object], tuple[ToolDefinition, ...]] = attrs.field(
        default=((), ()), init=False
    )

    def read(self, request: Request) -> ModelFacts:
        budget, system = self.counting.budget, request.system_message
        name = self.counting.model or _find_name(request.model)
        return ModelFacts(
            model=name,
            budget=budget
            if budget is not None or knows_window(name)
            else budget_from_limits(name, as_mapping(request.model.profile)),
            instructions=None if system is None else system.text or None,
            tools=self._read_tools([*request.tools, *filter(None, [request.response_format])]),
        )

    def _read_tools(self, given: Sequence[object]) -> tuple[ToolDefinition, ...]:
        known, definitions = self._tools
        if len(known) != len(given) or any(
            one is not other for one, other in zip(known, given, strict=True)
        ):
            definitions = tuple(
                {each.name: each for tool in given for each in _read_tool(tool)}.values()
            )
            self._tools = given, definitions
        return definitions


def _find_name(model: BaseChatModel) -> str:
    values = (getattr(model, name, None) for name in _NAMES)
    return next((each for each in values if isinstance(each, str) and each), type(model).__name__)


def _read_tool(tool: object) -> list[ToolDefinition]:
    """Return the definitions that a tool, or the format of a structured reply, puts into a request.

    Providers' own tools have none.
    """
    if isinstance(tool, AutoStrategy):
        tool = ToolStrategy(cast("Any", tool).schema)  # Any: of any type
    if isinstance(tool, ToolStrategy | ProviderStrategy):
        strategy = cast("Any", tool)  # Any: of any schema
        specs = strategy.schema_specs if isinstance(tool, ToolStrategy) else [strategy.schema_spec]
        return [
            ToolDefinition(
                name=spec.name, description=spec.description, parameters=spec.json_schema
            )
            for spec in specs
        ]
    # Any stands for LangChain checks what it is
    definition = read_definition(convert_to_openai_tool(cast("Any", tool)))
    return [] if definition is None else [definition]


def _read_message(message: BaseMessage) -> Message:
    """Return a message as promptkit's.

    LangChain's own conversion reads the content blocks of all providers.
    """
    dicts = convert_to_openai_messages([message])
    if len(dicts) != 1:  # a user message with Anthropic's results of tools in it
        return Message(
            role="assistant" if isinstance(message, AIMessage) else "user",
            content=[OpaquePart(value=as_wire_object(block), provider="chat") for block in dicts],
        )
    (record,) = dicts
    # which the conversion leaves out
    if isinstance(message, AIMessage) and message.invalid_tool_calls:
        # The agent answers a call whose arguments are no JSON with an error, as any other call.
        broken = [
            {
                "id": call["id"] or "",
                "type": "function",
                "function": {"name": call["name"] or "", "arguments": call["args"] or ""},
            }
            for call in message.invalid_tool_calls
        ]
        record = {**record, "tool_calls": [*record.get("tool_calls", ()), *broken]}
    blocks = as_sequence(record.get("content"))
    if record.get("tool_calls") and blocks:
        record = {
            **record,
            "content": [
                block for block in blocks if as_mapping(block).get("type") not in _REPEATED
            ],
        }
    return messages_from_chat([record])[0]


# Any: LangChain's union of its message classes
def _write_all(messages: Sequence[BaseMessage | Message]) -> list[Any]:
    """Return the messages to send.

    Summaries, and results that the state lacks, are not LangChain's yet.
    """
    return [
        convert_to_messages(to_chat([message]))[0] if isinstance(message, Message) else message
        for message in messages
    ]


def _rebuild(original: BaseMessage, shortened: Message) -> BaseMessage:
    """Return a copy of a message with its shortened content, and with the tool calls that are left and their ids."""
    content = to_chat([shortened])[0].get("content")
    update: dict[str, object] = {"content": "" if content is None else content}
    if isinstance(original, AIMessage):
        valid, invalid = original.tool_calls, original.invalid_tool_calls
        left = match_calls([call["id"] for call in (*valid, *invalid)], shortened.tool_calls)
        update["tool_calls"] = [
            {**own, "id": call.id, "args": json.loads(call.arguments)}
            for own, call in zip(valid, left, strict=False)
            if call is not None
        ]
        update["invalid_tool_calls"] = [
            {**own, "id": call.id}
            for own, call in zip(invalid, left[len(valid) :], strict=True)
            if call is not None
        ]
    elif isinstance(original, ToolMessage):
        update["tool_call_id"] = shortened.tool_call_id
    return original.model_copy(update=update)


def _show(request: Request, issued: IssuedRequest) -> Request:
    """Return the request with the messages that a window shows."""
    shown = issued.show(_rebuild)
    return request.override(messages=_write_all(shown))


def _find_thread() -> str:
    """Return the id of the thread that is running; an empty text without one, as in an agent without a checkpointer."""
    try:
        return str(get_config().get("configurable", {}).get("thread_id", ""))
    except RuntimeError:  # outside of a graph
        return ""


def _read_usage(message: AIMessage) -> Usage | None:
    used = message.usage_metadata
    return (
        Usage(
            input_tokens=used["input_tokens"],
            output_tokens=used["output_tokens"],
            cached_tokens=used.get("input_token_details", {}).get("cache_read", 0) or 0,
        )
        if used
        else None
    )


@attrs.frozen
class _ChatModel:
    """A chat model of LangChain that writes summaries.

    It is called in a thread, since its asynchronous client belongs to another loop.
    """

    model: BaseChatModel

    @property
    def name(self) -> str:
        return _find_name(self.model)

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Ask the model. Its tokens are not streamed into the agent's own stream."""
        asked = self.model.bind_tools(tools_to_chat(tools)) if tools else self.model
        answer = await anyio.to_thread.run_sync(
            partial(
                asked.invoke,
                convert_to_messages(to_chat(messages, cache=False)),
                config={"callbacks": []},
            )
        )
        reason = answer.response_metadata.get("finish_reason") or answer.response_metadata.get(
            "stop_reason"
        )
        return Reply(
            message=_read_message(answer),
            usage=_read_usage(answer) or Usage(input_tokens=0),
            finish="length" if reason in {"length", "max_tokens"} else "stop",
        )
