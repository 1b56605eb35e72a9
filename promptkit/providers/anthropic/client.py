"""Models of Anthropic."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack, cast

import attrs

from promptkit.errors import EmptyReplyError
from promptkit.providers.anthropic.request import beta_headers, build_body
from promptkit.providers.anthropic.response import MessageStream
from promptkit.providers.model import PURPOSE_HEADER, ModelOptions
from promptkit.providers.sdk import LoopClients, Sdk, await_sdk, iterate_events

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from anthropic import AsyncAnthropic

    from promptkit.messages import Message, ToolDefinition
    from promptkit.providers.anthropic.request import Body
    from promptkit.providers.model import Reply


@attrs.frozen(eq=False)
class AnthropicModel:
    """A model of Anthropic, over its Messages API. Needs the extra `anthropic`.

    Without a `client` the model creates its own from the variables that the SDK reads, such as
    `ANTHROPIC_API_KEY` and `ANTHROPIC_BASE_URL`: one for each event loop, since a connection cannot
    leave its loop. `aclose()` or `async with` closes that of the running loop. A client that is
    given belongs to the caller and stays open.

    Every request is streamed, because the SDK refuses long ones otherwise. Thinking blocks are
    opaque parts of the reply, which go back with the next request unchanged. A request whose
    options have no `max_output_tokens` is limited to 32,000 tokens, thinking included, or to what
    the model can write; to 8,192 for a model that is not known.

    Args:
        name: The model's name, such as `claude-sonnet-5-5`.
        client: The SDK's client: `AsyncAnthropic`, or that of a cloud such as
            `AsyncAnthropicBedrock`.
        options: Options of every request. `temperature` and `prompt_cache_key` are not sent: the
            API has neither. A `tool_choice` that forces a call is `auto` for a model that cannot be
            forced.
        timeout: Seconds that a request may take without a sign of the server. Default: the client's
            own.
        max_retries: How often the SDK repeats a request after an error that may pass. Default: the
            client's own. Nothing else repeats requests.

    >>> model = AnthropicModel("claude-sonnet-5-5", options={"reasoning_effort": "low"})
    >>> reply = await model.with_options(on_text=print).complete(rendered.messages, tools=tools)
    """

    provider: ClassVar[str] = "anthropic"
    """The provider, as OpenTelemetry names it."""

    name: str
    client: AsyncAnthropic | None = attrs.field(default=None, kw_only=True, repr=False)
    options: ModelOptions = attrs.field(factory=ModelOptions, kw_only=True)
    timeout: float | None = attrs.field(default=None, kw_only=True)
    max_retries: int | None = attrs.field(default=None, kw_only=True)
    _clients: LoopClients[AsyncAnthropic] = attrs.field(
        factory=LoopClients["AsyncAnthropic"], kw_only=True, repr=False
    )

    def __attrs_post_init__(self) -> None:
        # The SDK is not imported for this check. Its synchronous clients would block the event
        # loop, and then fail when they are awaited.
        kind = type(self.client).__name__
        if kind.startswith("Anthropic"):
            problem = (
                f"client must be an asynchronous client: write Async{kind}(…) instead of {kind}(…)."
            )
            raise TypeError(problem)

    def with_options(self, **options: Unpack[ModelOptions]) -> Self:
        """Return the same model over the same connections, with these options besides those that it has."""
        # the merged options are a ModelOptions again
        return attrs.evolve(self, options=cast("ModelOptions", {**self.options, **options}))

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Ask the model for a reply.

        An exception that `on_text` raises ends the request and is raised as it is. The SDK's
        exceptions are the `__cause__` of those below.

        Args:
            messages: The messages of the request.
            tools: The tools that the model may call.

        Raises:
            EmitError: The API cannot express a message. Raised before anything is sent.
            ContextLengthExceededError: The request is larger than the context window.
            RateLimitedError: The provider asks for fewer requests.
            ModelUnavailableError: The request failed; a later attempt may succeed.
            ModelRequestError: The provider rejects the request.
            EmptyReplyError: The reply has neither text nor tool calls.
        """
        body = build_body(self.name, messages, tools, self.options)
        reply, on_text, sdk = MessageStream(self.name), self.options.get("on_text"), _load_sdk()
        stream = await await_sdk(self._create(body), self.name, sdk)
        async with aclosing(iterate_events(stream, self.name, sdk)) as events:
            async for event in events:
                for piece in reply.add(event):
                    if on_text is not None:
                        on_text(piece)
        return attrs.evolve(
            reply.build_reply(), request_id=stream.response.headers.get("request-id")
        )

    async def count_tokens(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> int:
        """Ask the provider how many input tokens a request with these messages has, without running the model.

        It is one HTTP request that sends all messages. `count_exact` asks the same of a rendered
        prompt, over a client of the SDK.

        Args:
            messages: The messages of the request.
            tools: The tools that the model may call.

        Raises:
            EmitError: The API cannot express a message. Raised before anything is sent.
            ModelError: The request failed, as in `complete`. EmptyReplyError: a server answers 200
                without a number.
        """
        body = build_body(self.name, messages, tools, self.options)
        del body["max_tokens"]
        answer = await await_sdk(self._count(body), self.name, _load_sdk())
        tokens: object = getattr(answer, "input_tokens", None)
        if not isinstance(tokens, int):
            message = f"the response to the token count request has no number: {str(answer)[:100]!r}. The server may not have this request."
            raise EmptyReplyError(message, model=self.name)
        return tokens

    async def aclose(self) -> None:
        """Close the connections that the model opened in the running event loop.

        A later request opens new ones.
        """
        await self._clients.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _create(self, body: Body) -> Any:  # noqa: ANN401  # Any: a stream, whose events the SDK does not check
        client = self._client()
        return await client.messages.create(
            **body, stream=True, **self._transport_options(client, body)
        )

    async def _count(self, body: Body) -> object:
        client = self._client()
        return await client.messages.count_tokens(**body, **self._transport_options(client, body))

    # Any stands for arguments of the SDK
    def _transport_options(self, client: AsyncAnthropic, body: Body) -> dict[str, Any]:
        """Return the arguments of a call that are not part of the body."""
        headers = beta_headers(body)
        # The header of a request replaces that of the client.
        if headers and isinstance(given := client.default_headers.get("anthropic-beta"), str):
            headers["anthropic-beta"] = f"{given},{headers['anthropic-beta']}"
        if purpose := self.options.get("purpose"):
            headers[PURPOSE_HEADER] = purpose
        # Any stands for as above
        timeout: dict[str, Any] = {} if self.timeout is None else {"timeout": self.timeout}
        return {**timeout, "extra_headers": headers} if headers else timeout

    def _client(self) -> AsyncAnthropic:
        client = self._clients.get(_create_client) if self.client is None else self.client
        return (
            client
            if self.max_retries is None
            else client.with_options(max_retries=self.max_retries)
        )


def _create_client() -> AsyncAnthropic:
    from anthropic import AsyncAnthropic

    return AsyncAnthropic()


def _load_sdk() -> Sdk:
    try:
        import anthropic
    except ImportError as error:
        problem = (
            "AnthropicModel needs the package anthropic: install promptkit's extra of that name."
        )
        raise ImportError(problem) from error
    import httpx2  # comes with the SDK

    # A response that is not JSON raises ValueError, and a key that is missing TypeError.
    failures = (anthropic.AnthropicError, httpx2.TransportError, ValueError, TypeError)
    return Sdk(module=anthropic, failures=failures, transport=(httpx2.TransportError,))
