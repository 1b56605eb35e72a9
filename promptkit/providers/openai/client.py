"""Models behind OpenAI's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from promptkit.errors import ModelRequestError
from promptkit.providers.model import COMPACTION, Reply
from promptkit.providers.openai.api import (
    Body,
    ChatStream,
    CompactedInput,
    ResponsesStream,
    build_chat_body,
    build_responses_body,
    parse_chat_reply,
    parse_responses_reply,
    summary_from_compaction,
)
from promptkit.providers.sdk import Sdk, SdkModel, await_sdk, read_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from openai import AsyncOpenAI

    from promptkit.messages import Message, ToolDefinition


@attrs.frozen(eq=False)
class OpenAIModel(SdkModel["AsyncOpenAI"]):
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

    api: Literal["responses", "chat"] = attrs.field(
        default="responses", kw_only=True, validator=attrs.validators.in_(("responses", "chat"))
    )

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
        build, make_stream, parse = (
            (build_responses_body, ResponsesStream, parse_responses_reply)
            if self.api == "responses"
            else (build_chat_body, ChatStream, parse_chat_reply)
        )
        body = build(self.name, messages, tools, self.options)
        if body.get("stream"):
            return await self._read_stream(
                self._create(body), make_stream(self.name), _load_sdk(), id_header="x-request-id"
            )
        answer, request_id = await self._await_json(self._create(body))
        return attrs.evolve(parse(answer, self.name), request_id=request_id)

    async def compact(self, messages: Sequence[Message]) -> CompactedInput:
        """Have OpenAI compact messages.

        It returns the user messages, and an opaque part that only OpenAI can read.

        Raises as `complete` does, and ModelRequestError where `api` is Chat Completions or the
        SDK's version has no such request.
        """
        answer, request_id = await self._await_json(
            self._compact(build_responses_body(self.name, messages, (), self.options)["input"])
        )
        return attrs.evolve(summary_from_compaction(answer, self.name), request_id=request_id)

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
        client: AsyncOpenAI = self._find_client(_load_sdk())
        # Any stands for the body selects the overload
        endpoint: Any = client.responses if self.api == "responses" else client.chat.completions
        return await endpoint.create(**body, **self._transport_options(self.options.get("purpose")))

    async def _compact(self, items: Sequence[object]) -> object:
        # Any stands for older versions of the SDK do not have the endpoint
        responses: Any = self._find_client(_load_sdk()).responses
        if self.api != "responses" or not hasattr(responses, "compact"):
            reason = (
                "use api='responses'" if self.api != "responses" else "update the package openai"
            )
            raise ModelRequestError(
                f"this API has no compaction request: {reason}.", model=self.name
            )
        return await responses.compact(
            model=self.name, input=items, **self._transport_options(COMPACTION)
        )


def _load_sdk() -> Sdk:
    import openai

    # a response that is not JSON raises ValueError
    return Sdk(
        module=openai,
        create_client=openai.AsyncOpenAI,
        failures=(openai.OpenAIError, ValueError),
    )
