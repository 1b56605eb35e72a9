"""What only OpenAI itself can say: how many tokens it counts in a rendered prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

from promptkit.emitters import tools_to_responses
from promptkit.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openai import AsyncOpenAI
    from openai.types.responses.input_token_count_params import Text, ToolChoice
    from openai.types.shared_params import Reasoning

    from promptkit.messages import ToolDefinition
    from promptkit.rendering.result import Rendered

__all__ = ["RequestOptions", "count_exact"]


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
