"""What a program asks of a model: messages go in, one reply comes out. Every provider is this small to those who use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypedDict, runtime_checkable

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from promptkit.messages import Message, ToolDefinition, Usage

__all__ = ["AdjustableModel", "Effort", "Model", "ModelOptions", "Reply", "with_options"]

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How hard a reasoning model thinks. Not every model takes every word."""


@attrs.frozen(kw_only=True)
class Reply:
    """What a model answered, and what it cost.

    >>> Reply(message=Message(role="assistant", content=("Done.",)), usage=Usage(input_tokens=120, output_tokens=2), finish="stop")
    """

    message: Message
    """An assistant message: text, tool calls or both."""

    usage: Usage
    """What the provider says that the request cost, in tokens. Zero input tokens: it said nothing."""

    finish: Literal["stop", "tool_calls", "length", "content_filter"]
    """Why the model ended: it was done, it waits for tools, it ran into its output limit, or the provider withheld the rest.

    `length` may have cut a tool call in two: its arguments are no JSON then. `content_filter` is also that the model refused; the
    text is its refusal.
    """


@runtime_checkable
class Model(Protocol):
    """A model that answers. Anything with these two members is one; nothing need be subclassed."""

    @property
    def name(self) -> str:
        """The model's name, as budgets and receipts know it, such as `gpt-5`."""
        ...

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> Reply:
        """The model's answer to these messages; `tools` are those that it may call.

        Raises whatever the provider's client raises; promptkit's own providers raise ModelError. Does not change what it is given.
        """
        ...


class ModelOptions(TypedDict, total=False):
    """How a model is asked. What is not given is not sent, and the provider decides."""

    temperature: float
    """0 for the likeliest words. Not sent to models that reason: they refuse it."""

    max_output_tokens: int
    """The most tokens that the answer may have, the model's thoughts included."""

    reasoning_effort: Effort
    """Not sent to models that do not reason."""

    tool_choice: str
    """`"auto"`, `"none"`, `"required"`, or the name of the one tool to call. Without tools it is not sent: providers refuse that."""

    parallel_tool_calls: bool
    """Whether the model may call several tools at once. Without tools it is not sent."""

    prompt_cache_key: str
    """Requests with one key are likelier to find each other's cached prefix: one for each conversation, or each program."""

    cache_boundaries: bool
    """Whether the cache boundaries in messages are sent. By default: to the models that are known to take them."""

    on_text: Callable[[str], object] | None
    """The answer is streamed, and this is called with each piece of its text. The reply at the end is the same as without."""


@runtime_checkable
class AdjustableModel(Model, Protocol):
    """A model that can be asked in more than one way."""

    def with_options(self, **options: Unpack[ModelOptions]) -> Model:
        """The same model, asked with these options besides those that it has. It itself stays as it is."""
        ...


def with_options(model: Model, **options: Unpack[ModelOptions]) -> Model:
    """The model with these options, if it takes any: one that takes none is asked as it is.

    With `on_text` the text is heard from any model: from one that cannot stream, at once when the reply is there.

    >>> quiet = with_options(model, temperature=0, tool_choice="none")
    """
    if isinstance(model, AdjustableModel):
        return model.with_options(**options)
    heard = options.get("on_text")
    return model if heard is None else _Heard(model=model, on_text=heard)


@attrs.frozen(kw_only=True)
class _Heard:
    """A model that cannot stream, and somebody who listens."""

    model: Model
    on_text: Callable[[str], object]

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> Reply:
        reply = await self.model.complete(messages, tools=tools)
        if reply.message.text:
            self.on_text(reply.message.text)
        return reply
