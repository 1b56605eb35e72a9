"""The protocol of models: messages go in, one reply comes out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from typing import Literal, Protocol, TypeAlias, TypedDict, Unpack, runtime_checkable

import attrs

from promptkit.messages import Message, OpaquePart, ToolCall, ToolDefinition, Usage
from promptkit.reprs import describe

PURPOSE_HEADER = "X-Promptkit-Request"
"""The HTTP header that names the purpose of a request, so that a proxy or a log can tell it from
those of the conversation."""

WINDOW_FULL = "model_context_window_exceeded"
"""The finish reason of a request that leaves no room in the context window. Some servers of OpenAI's
protocol answer 200 with it to a request that does not fit."""

COMPACTION = "compaction"
"""The purpose of requests for summaries."""

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a reasoning model thinks. Not every model accepts every value."""

CacheTtl: TypeAlias = Literal["5m", "1h"]
"""How long Anthropic's prompt cache keeps a prefix without use: five minutes or an hour."""


Finish: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter"]
"""Why a model stopped."""


@attrs.frozen(kw_only=True)
class Reply:
    """A model's reply, and what the request cost.

    >>> Reply(message=Message(role="assistant", content=("Done.",)), usage=Usage(input_tokens=120, output_tokens=2), finish="stop")
    """

    message: Message
    """An assistant message: text, tool calls or both."""

    usage: Usage
    """The cost of the request in tokens, as the provider reports it. 0 input tokens: it reported
    nothing."""

    finish: Finish
    """Why the model stopped: it was done, it waits for tool results, it reached its output limit,
    or the provider withheld the rest.

    With `length` a tool call may be cut, and its arguments are not valid JSON then.
    `content_filter` also means that the model refused; the text is its refusal.
    """

    request_id: str | None = attrs.field(default=None, eq=False)
    """The provider's name for the request, which its support asks for. None: it gave none."""

    def __repr__(self) -> str:
        return describe(
            self,
            text=self.message.text,
            tool_calls=self.message.tool_calls,
            finish=self.finish,
            usage=self.usage,
        )


@runtime_checkable
class Model(Protocol):
    """A model that a program can ask.

    Any object with these two members is one, without a subclass.
    """

    @property
    def name(self) -> str:
        """The model's name, as budgets and receipts use it, such as `gpt-5`."""
        ...

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Ask the model for a reply to these messages.

        An implementation does not change its arguments. It raises ModelError, as promptkit's own
        providers do, or whatever its client raises.

        Args:
            messages: The messages of the request.
            tools: The tools that the model may call.
        """
        ...


class ModelOptions(TypedDict, total=False):
    """Options of a request. An option that is not given is not sent, and the provider decides."""

    temperature: float
    """0 for the most likely words. Not sent to reasoning models, which refuse it."""

    max_output_tokens: int
    """The most tokens that the reply may have, reasoning included."""

    reasoning_effort: Effort
    """How much the model thinks. Not sent to models that do not reason."""

    tool_choice: str
    """`"auto"`, `"none"`, `"required"`, or the name of the tool to call. Not sent without tools,
    which providers refuse."""

    parallel_tool_calls: bool
    """Whether the model may call several tools at once. Not sent without tools."""

    prompt_cache_key: str
    """Requests with the same key find each other's cached prefix more often. Use one key for each
    conversation or program."""

    cache_breakpoints: bool
    """Whether the cache breakpoints in messages are sent. Default: only to models that are known to
    accept them."""

    cache_messages: int
    """The number of messages, from the first one, that are the same in the conversation's next
    request. Anthropic's API puts them, the tools and the instructions into the prompt cache, or
    reads them from it. Sessions set it; a request that has no successor writes nothing without
    it."""

    cache_ttl: CacheTtl
    """How long Anthropic's prompt cache keeps these messages without use. Default: five minutes.
    Writing them for an hour costs more."""

    purpose: str
    """The purpose of the request in a word of ASCII letters, such as `compaction`. It is sent as
    the HTTP header `X-Promptkit-Request`, so that the body of the request, and with it the
    provider's prompt cache, does not depend on it."""

    on_text: Callable[[str], object] | None
    """Called with each piece of the reply's text, which is streamed then. The reply itself is the
    same as without."""


@runtime_checkable
class AdjustableModel(Model, Protocol):
    """A model that accepts options."""

    def with_options(self, **options: Unpack[ModelOptions]) -> Model:
        """Return the same model with these options besides those that it has.

        The model itself is not changed.
        """
        ...


def is_anthropic_name(name: str) -> bool:
    """Return whether a model that is given by its name is asked over Anthropic's API: Claude is, unless a server is set for OpenAI's protocol."""
    return name.startswith("claude") and not os.environ.get("OPENAI_BASE_URL")


def with_options(model: Model, **options: Unpack[ModelOptions]) -> Model:
    """Return the model with these options, or the model itself if it accepts none.

    `on_text` works with every model: for one that cannot stream, it is called once with the whole
    text when the reply is there.

    >>> quiet = with_options(model, temperature=0, tool_choice="none")
    """
    if isinstance(model, AdjustableModel):
        return model.with_options(**options)
    on_text = options.get("on_text")
    return model if on_text is None else _WithOnText(model=model, on_text=on_text)


@attrs.frozen(kw_only=True)
class _WithOnText:
    """A model that cannot stream, with a callback for the text of its reply."""

    model: Model
    on_text: Callable[[str], object]

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        return pass_text(
            await self.model.complete(messages, tools=tools), {"on_text": self.on_text}
        )


def pass_text(reply: Reply, options: ModelOptions) -> Reply:
    """Return a reply that was not streamed, and pass its whole text to `on_text`."""
    on_text = options.get("on_text")
    if on_text is not None and reply.message.text:
        on_text(reply.message.text)
    return reply


def as_tokens(value: object) -> int:
    """Return a number of tokens that a provider reports; 0 for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def count_reasoning(
    message: Message, tokens: int, is_reasoning: Callable[[OpaquePart], bool]
) -> Message:
    """Return a reply with the tokens of all its reasoning, which providers count together, on the first part of it."""
    counts = chain([tokens], repeat(0))
    return attrs.evolve(
        message,
        content=[
            attrs.evolve(part, tokens=next(counts))
            if isinstance(part, OpaquePart) and is_reasoning(part)
            else part
            for part in message.content
        ],
    )


def parse_call(call_id: object, function: Mapping[str, object]) -> ToolCall | None:
    """Return a tool call of a reply, or None if it has no name or no id."""
    name, arguments = function.get("name"), function.get("arguments")
    return (
        ToolCall(id=call_id, name=name, arguments=arguments if isinstance(arguments, str) else "")
        if isinstance(call_id, str) and call_id and isinstance(name, str) and name
        else None
    )
