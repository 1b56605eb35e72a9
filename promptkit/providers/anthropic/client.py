"""Models of Anthropic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from promptkit.errors import EmptyReplyError
from promptkit.providers.anthropic.api import Body, MessageStream, beta_headers, build_body
from promptkit.providers.sdk import Sdk, SdkModel, await_sdk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anthropic import AsyncAnthropic

    from promptkit.messages import Message, ToolDefinition
    from promptkit.providers.model import Reply


@attrs.frozen(eq=False)
class AnthropicModel(SdkModel["AsyncAnthropic"]):
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
        return await self._read_stream(
            self._create(body), MessageStream(self.name), _load_sdk(), id_header="request-id"
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
            raise EmptyReplyError(
                f"the response to the token count request has no number: {str(answer)[:100]!r}. The server may not have this request.",
                model=self.name,
            )
        return tokens

    async def _create(self, body: Body) -> Any:  # noqa: ANN401  # Any: a stream, whose events the SDK does not check
        client = self._find_client(_load_sdk())
        return await client.messages.create(**body, stream=True, **self._arguments(client, body))

    async def _count(self, body: Body) -> object:
        client = self._find_client(_load_sdk())
        return await client.messages.count_tokens(**body, **self._arguments(client, body))

    # Any stands for arguments of the SDK
    def _arguments(self, client: AsyncAnthropic, body: Body) -> dict[str, Any]:
        headers = beta_headers(body)
        # The header of a request replaces that of the client.
        if headers and isinstance(given := client.default_headers.get("anthropic-beta"), str):
            headers["anthropic-beta"] = f"{given},{headers['anthropic-beta']}"
        return self._transport_options(self.options.get("purpose"), headers)


def _load_sdk() -> Sdk:
    try:
        import anthropic
    except ImportError as error:
        raise ImportError(
            "AnthropicModel needs the package anthropic: install promptkit's extra of that name."
        ) from error
    import httpx2  # comes with the SDK

    # A response that is not JSON raises ValueError, and a key that is missing TypeError.
    return Sdk(
        module=anthropic,
        create_client=anthropic.AsyncAnthropic,
        failures=(anthropic.AnthropicError, httpx2.TransportError, ValueError, TypeError),
        transport=(httpx2.TransportError,),
    )
