"""OpenAI, and every server that speaks its protocol: a model to ask, and how many tokens OpenAI itself counts."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, cast
from weakref import WeakKeyDictionary

import attrs

from promptkit.emitters import tools_to_responses
from promptkit.errors import EmptyReplyError, ModelRequestError, TokenizerError
from promptkit.providers.model import ModelOptions
from promptkit.providers.openai.compact import compact_input, summary_from_compaction
from promptkit.providers.openai.request import chat_body, responses_body
from promptkit.providers.openai.response import ChatStream, ResponsesStream, chat_reply, responses_reply

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
    from types import TracebackType

    from openai import AsyncOpenAI
    from openai.types.responses.input_token_count_params import Text, ToolChoice
    from openai.types.shared_params import Reasoning

    from promptkit.messages import Message, ToolDefinition
    from promptkit.providers.model import Reply
    from promptkit.providers.openai.compact import CompactedInput
    from promptkit.providers.openai.request import Body
    from promptkit.rendering.result import Rendered

__all__ = ["OpenAIModel", "RequestOptions", "count_exact"]


@attrs.frozen(eq=False)
class OpenAIModel:
    """A model behind OpenAI's protocol: OpenAI's own, or one of a server that speaks it.

    Without a `client` it makes its own, as the SDK does without arguments: from `OPENAI_API_KEY`, `OPENAI_BASE_URL` and the other
    variables that the SDK reads. It makes one for each event loop, since a connection cannot leave the loop that it was made in, and
    `aclose()` or `async with` closes that of the running loop. A client that is given is the caller's, and stays open.

    `api` is the endpoint. The Responses API keeps a reasoning model's encrypted thoughts, as opaque parts of its messages, and sends
    them back; Chat Completions is what most other servers have. `timeout` is seconds, `max_retries` how often the SDK asks again
    after what may pass; without them the client's own hold. Nothing else asks again: an error comes out of `complete` once.

    >>> model = OpenAIModel("gpt-5", api="responses", options={"reasoning_effort": "low"})
    >>> reply = await model.with_options(on_text=print).complete(rendered.messages, tools=tools)
    """

    name: str
    api: Literal["responses", "chat"] = attrs.field(
        default="responses", kw_only=True, validator=attrs.validators.in_(("responses", "chat"))
    )
    client: AsyncOpenAI | None = attrs.field(default=None, kw_only=True, repr=False)
    options: ModelOptions = attrs.field(factory=ModelOptions, kw_only=True)
    timeout: float | None = attrs.field(default=None, kw_only=True)
    max_retries: int | None = attrs.field(default=None, kw_only=True)
    _own: WeakKeyDictionary[AbstractEventLoop, AsyncOpenAI] = attrs.field(
        factory=WeakKeyDictionary["AbstractEventLoop", "AsyncOpenAI"], kw_only=True, repr=False
    )

    def with_options(self, **options: Unpack[ModelOptions]) -> Self:
        """The same model over the same connections, asked with these options besides those that it has."""
        return attrs.evolve(self, options=cast("ModelOptions", {**self.options, **options}))  # two of them make one

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> Reply:
        """The model's answer. With the option `on_text` it is streamed, and the reply is the same.

        Raises EmitError, before anything is sent, for messages that the API has no form for; ContextLengthExceededError, RateLimitedError,
        ModelUnavailableError or ModelRequestError for what the SDK raises, which is then the cause; and EmptyReplyError for an answer
        with nothing in it. What `on_text` raises ends the request and comes out as it is.
        """
        body = (responses_body if self.api == "responses" else chat_body)(self.name, messages, tools, self.options)
        if body.get("stream"):
            return await self._streamed(body)
        answer = await self._send(body)
        return (responses_reply if self.api == "responses" else chat_reply)(answer, self.name)

    async def compact(self, messages: Sequence[Message]) -> CompactedInput:
        """What OpenAI itself puts in the place of messages: those of the person, and a part of its own that only it can read.

        Raises ModelRequestError over Chat Completions, which has no such request, and for a version of the SDK that knows none;
        otherwise what `complete` raises.
        """
        answer = await self._asked(self._compact(compact_input(self.name, messages, self.options)))
        return summary_from_compaction(answer, self.name)

    async def aclose(self) -> None:
        """Close the connections that it made in the running event loop. They are made again if it is asked again."""
        from asyncio import get_running_loop

        client = self._own.pop(get_running_loop(), None)
        if client is not None:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose()

    async def _streamed(self, body: Body) -> Reply:
        stream = ResponsesStream(self.name) if self.api == "responses" else ChatStream(self.name)
        on_text = self.options.get("on_text")
        async with aclosing(self._events(body)) as events:
            async for event in events:
                for piece in stream.add(event):
                    if on_text is not None:
                        on_text(piece)
        return stream.reply()

    async def _send(self, body: Body) -> Mapping[str, object]:
        return await self._asked(self._create(body))

    async def _asked(self, request: Awaitable[object]) -> Mapping[str, object]:
        """The JSON of an answer."""
        from openai import OpenAIError

        from promptkit.providers.openai.errors import error_from_sdk

        try:
            answer = await request
        except (OpenAIError, ValueError) as error:  # what is no JSON comes out as the ValueError of the reader
            raise error_from_sdk(error, self.name) from error
        return self._as_json(answer)

    async def _events(self, body: Body) -> AsyncGenerator[Mapping[str, object]]:
        """The events of a stream. What the SDK raises is told apart from what the caller's own code does between two of them."""
        from openai import OpenAIError

        from promptkit.providers.openai.errors import error_from_sdk

        try:
            stream = await self._create(body)
        except (OpenAIError, ValueError) as error:
            raise error_from_sdk(error, self.name) from error
        async with stream:
            heard = False
            while True:
                try:
                    event = await anext(stream)
                except StopAsyncIteration:
                    break
                except (OpenAIError, ValueError) as error:
                    raise error_from_sdk(error, self.name) from error
                heard = True
                yield self._as_json(event)
            if not heard:
                kind = stream.response.headers.get("content-type", "nothing")
                message = f"the answer is no stream of events, but {kind}: is the base URL that of an API?"
                raise EmptyReplyError(message, model=self.name)

    async def _create(self, body: Body) -> Any:  # noqa: ANN401  # Any: an answer or a stream, and what is in it is not checked by the SDK
        client = self._client()
        endpoint: Any = client.responses if self.api == "responses" else client.chat.completions  # Any: the body decides on the overload
        return await endpoint.create(**body, **({} if self.timeout is None else {"timeout": self.timeout}))

    async def _compact(self, given: Sequence[object]) -> object:
        responses: Any = self._client().responses  # Any: not every version of the SDK has the endpoint
        if self.api != "responses" or not hasattr(responses, "compact"):
            where = "Chat Completions has" if self.api != "responses" else "this version of the openai package knows"
            message = f"{where} no request that compacts."
            raise ModelRequestError(message, model=self.name)
        return await responses.compact(model=self.name, input=given, **({} if self.timeout is None else {"timeout": self.timeout}))

    def _client(self) -> AsyncOpenAI:
        client = self.client
        if client is None:
            from asyncio import get_running_loop

            loop = get_running_loop()
            client = self._own.get(loop)
            if client is None:
                from openai import AsyncOpenAI

                client = self._own[loop] = AsyncOpenAI()
        return client if self.max_retries is None else client.with_options(max_retries=self.max_retries)

    def _as_json(self, answer: object) -> Mapping[str, object]:
        from openai import BaseModel

        if not isinstance(answer, BaseModel):  # the SDK passes on as text what does not say that it is JSON
            message = f"the answer is no JSON object, but {str(answer)[:100]!r}: is the base URL that of an API?"
            raise EmptyReplyError(message, model=self.name)
        return answer.to_dict(mode="json", warnings=False)


class RequestOptions(TypedDict, total=False):
    """What else `client.responses.create(...)` takes and OpenAI counts, under the same names. What is not given is not sent."""

    tool_choice: ToolChoice
    """`"auto"`, `"none"`, `"required"`, or one tool by its name."""

    parallel_tool_calls: bool
    """Whether the model may call several tools at once."""

    text: Text
    """The form of the reply: a JSON schema for structured output is input, too."""

    reasoning: Reasoning
    """The settings of a reasoning model, such as its effort."""


async def count_exact(
    rendered: Rendered,
    *,
    client: AsyncOpenAI,
    model: str,
    tools: Sequence[ToolDefinition] = (),
    cache: bool = True,
    **options: Unpack[RequestOptions],
) -> int:
    """The input tokens that OpenAI counts for a rendered prompt, without running the model.

    It counts the request `client.responses.create(model=model, input=rendered.to_responses(), tools=tools_to_responses(tools))`,
    framing, images, documents and tool definitions included; what Reserve keeps free is no part of it. `tools` are those that the
    prompt was rendered with. `cache=False` leaves cache boundaries out, for models that refuse them; `options` are what else the
    request will say.

    One HTTP request for each call, which sends the whole prompt. Time limit and retries are the client's own:
    `client.with_options(timeout=5, max_retries=0)`, in seconds. Needs openai 2.6 or later.

    Raises EmitError for messages that the Responses API has no form for, before anything is sent; the SDK's own errors
    (`openai.APIError` and below), such as `openai.APIStatusError` for an HTTP error: OpenAI-compatible servers without the endpoint
    answer 404 or 405; and TokenizerError where a server answers 200 without a number.

    Source: OpenAI, "Counting tokens" (POST /v1/responses/input_tokens): the exact count that the model will receive.
    """
    from openai import omit

    asked, offered = rendered.to_responses(cache=cache), tools_to_responses(tools)
    answer = await client.responses.input_tokens.count(model=model, input=asked, tools=offered or omit, **options)
    # The SDK does not check answers: LM Studio's 200 for a path that it does not know would be a count of None.
    tokens: object = getattr(answer, "input_tokens", None)
    if not isinstance(tokens, int):
        message = (  # the repr of a URL hides a password in it, its text does not
            f"{client.base_url!r} answered the request for a count of {model} without one: {str(answer)[:200]!r}. "
            "It may not know the path /responses/input_tokens: ask OpenAI itself, or count with rendered.tokens."
        )
        raise TokenizerError(message)
    return tokens
