"""Models behind OpenAI's protocol."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack, cast

import attrs

from promptkit.errors import ModelRequestError
from promptkit.providers.model import COMPACTION, PURPOSE_HEADER, ModelOptions
from promptkit.providers.openai.compact import build_compact_input, summary_from_compaction
from promptkit.providers.openai.request import build_chat_body, build_responses_body
from promptkit.providers.openai.response import (
    ChatStream,
    ResponsesStream,
    parse_chat_reply,
    parse_responses_reply,
)
from promptkit.providers.sdk import LoopClients, Sdk, await_sdk, iterate_events, read_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence
    from types import TracebackType

    from openai import AsyncOpenAI

    from promptkit.messages import Message, ToolDefinition
    from promptkit.providers.model import Reply
    from promptkit.providers.openai.compact import CompactedInput
    from promptkit.providers.openai.request import Body


@attrs.frozen(eq=False)
class OpenAIModel:
    """A model of OpenAI, or of a server that speaks its protocol.

    Without a `client` the model creates its own from the variables that the SDK reads, such as
    `OPENAI_API_KEY` and `OPENAI_BASE_URL`: one for each event loop, since a connection cannot leave
    its loop. `aclose()` or `async with` closes that of the running loop. A client that is given
    belongs to the caller and stays open.

    Args:
        name: The model's name, such as `gpt-5`.
        api: The endpoint. The Responses API returns a reasoning model's encrypted reasoning as
            opaque parts of its messages and accepts them in the next request. Most other servers
            have Chat Completions only.
        client: The SDK's client.
        options: Options of every request.
        timeout: Seconds that a request may take. Default: the client's own.
        max_retries: How often the SDK repeats a request after an error that may pass. Default: the
            client's own. Nothing else repeats requests.

    >>> model = OpenAIModel("gpt-5", api="responses", options={"reasoning_effort": "low"})
    >>> reply = await model.with_options(on_text=print).complete(rendered.messages, tools=tools)
    """

    provider: ClassVar[str] = "openai"
    """The provider, as OpenTelemetry names it."""

    name: str
    api: Literal["responses", "chat"] = attrs.field(
        default="responses", kw_only=True, validator=attrs.validators.in_(("responses", "chat"))
    )
    client: AsyncOpenAI | None = attrs.field(default=None, kw_only=True, repr=False)
    options: ModelOptions = attrs.field(factory=ModelOptions, kw_only=True)
    timeout: float | None = attrs.field(default=None, kw_only=True)
    max_retries: int | None = attrs.field(default=None, kw_only=True)
    _clients: LoopClients[AsyncOpenAI] = attrs.field(
        factory=LoopClients["AsyncOpenAI"], kw_only=True, repr=False
    )

    def __attrs_post_init__(self) -> None:
        # The SDK is not imported for this check. Its synchronous client would block the event loop,
        # and then fail when it is awaited.
        if self.client is not None and type(self.client).__name__ in {"OpenAI", "AzureOpenAI"}:
            problem = f"client must be an asynchronous client: write Async{type(self.client).__name__}(…) instead of {type(self.client).__name__}(…)."
            raise TypeError(problem)

    def with_options(self, **options: Unpack[ModelOptions]) -> Self:
        """Return the same model over the same connections, with these options besides those that it has."""
        # the merged options are a ModelOptions again
        return attrs.evolve(self, options=cast("ModelOptions", {**self.options, **options}))

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Ask the model for a reply.

        With the option `on_text` it is streamed; the reply is the same.

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
        body = (build_responses_body if self.api == "responses" else build_chat_body)(
            self.name, messages, tools, self.options
        )
        if body.get("stream"):
            return await self._stream(body)
        answer, request_id = await self._await_json(self._create(body))
        reply = (parse_responses_reply if self.api == "responses" else parse_chat_reply)(
            answer, self.name
        )
        return attrs.evolve(reply, request_id=request_id)

    async def compact(self, messages: Sequence[Message]) -> CompactedInput:
        """Have OpenAI compact messages.

        It returns the user messages, and an opaque part that only OpenAI can read.

        Raises as `complete` does, and ModelRequestError where `api` is Chat Completions or the
        SDK's version has no such request.
        """
        answer, request_id = await self._await_json(
            self._compact(build_compact_input(self.name, messages, self.options))
        )
        return attrs.evolve(summary_from_compaction(answer, self.name), request_id=request_id)

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

    async def _stream(self, body: Body) -> Reply:
        reply = ResponsesStream(self.name) if self.api == "responses" else ChatStream(self.name)
        on_text = self.options.get("on_text")
        sdk = _load_sdk()
        stream = await await_sdk(self._create(body), self.name, sdk)
        async with aclosing(iterate_events(stream, self.name, sdk)) as events:
            async for event in events:
                for piece in reply.add(event):
                    if on_text is not None:
                        on_text(piece)
        return attrs.evolve(
            reply.build_reply(), request_id=stream.response.headers.get("x-request-id")
        )

    async def _await_json(
        self, request: Awaitable[object]
    ) -> tuple[Mapping[str, object], str | None]:
        """Return the JSON of a response, and the provider's name for the request.

        Raises a ModelError.
        """
        sdk = _load_sdk()
        answer = await await_sdk(request, self.name, sdk)
        request_id: object = getattr(answer, "_request_id", None)
        return read_model(answer, self.name, sdk), request_id if isinstance(
            request_id, str
        ) else None

    async def _create(self, body: Body) -> Any:  # noqa: ANN401  # Any: a response or a stream, which the SDK does not check
        client = self._client()
        # Any stands for the body selects the overload
        endpoint: Any = client.responses if self.api == "responses" else client.chat.completions
        return await endpoint.create(**body, **self._transport_options(self.options.get("purpose")))

    # Any stands for arguments of the SDK
    def _transport_options(self, purpose: str | None) -> dict[str, Any]:
        """Return the arguments of a call that are not part of the body."""
        # Any stands for as above
        timeout: dict[str, Any] = {} if self.timeout is None else {"timeout": self.timeout}
        return (
            timeout if purpose is None else {**timeout, "extra_headers": {PURPOSE_HEADER: purpose}}
        )

    async def _compact(self, items: Sequence[object]) -> object:
        # Any stands for older versions of the SDK do not have the endpoint
        responses: Any = self._client().responses
        if self.api != "responses" or not hasattr(responses, "compact"):
            reason = (
                "use api='responses'" if self.api != "responses" else "update the package openai"
            )
            message = f"this API has no compaction request: {reason}."
            raise ModelRequestError(message, model=self.name)
        return await responses.compact(
            model=self.name, input=items, **self._transport_options(COMPACTION)
        )

    def _client(self) -> AsyncOpenAI:
        client = self._clients.get(_create_client) if self.client is None else self.client
        return (
            client
            if self.max_retries is None
            else client.with_options(max_retries=self.max_retries)
        )


def _create_client() -> AsyncOpenAI:
    from openai import AsyncOpenAI

    return AsyncOpenAI()


def _load_sdk() -> Sdk:
    import openai

    # a response that is not JSON raises ValueError
    return Sdk(module=openai, failures=(openai.OpenAIError, ValueError))
