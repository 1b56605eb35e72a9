"""The exact tokens of a rendered prompt, as the provider's own counting endpoint tells them: OpenAI's, Anthropic's or Google's."""

from __future__ import annotations

import base64
import json
from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from promptkit.errors import EmitError, TokenizerError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    Part,
    ToolDefinition,
)
from promptkit.wire import tools_to_anthropic, tools_to_responses
from promptkit.wire.parts import parse_data_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.rendering import Rendered


async def count_exact(
    rendered: Rendered,
    *,
    client: object,
    model: str,
    tools: Sequence[ToolDefinition] = (),
    cache: bool = True,
    **options: object,
) -> int:
    """Ask the provider for the input tokens of a rendered prompt, without running the model.

    The client decides which endpoint is asked, in the format in which the prompt would be sent:

    * OpenAI: `client.responses.input_tokens.count`, with `rendered.to_responses()`. Needs openai
      2.6 or later.
    * Anthropic: `client.messages.count_tokens`, with `rendered.to_anthropic()`.
    * Google: `client.aio.models.count_tokens` of google-genai, with the messages as Gemini's
      contents.

    Framing, images, documents and tool definitions are included, the tokens that Reserve keeps free
    are not. Each call is one HTTP request that sends the whole prompt. The client sets the time
    limit and the retries. A synchronous client works, too, and blocks the event loop meanwhile.

    Args:
        rendered: The rendered prompt.
        client: The SDK's client, or an object with the same method.
        model: The model's name.
        tools: The tools that the prompt was rendered with.
        cache: Whether the request has the prompt's cache breakpoints. Some models of OpenAI refuse
            them.
        options: Other arguments of the request that the provider counts, such as `tool_choice`,
            `thinking` (Anthropic), `reasoning` or `text` (OpenAI: the schema of structured output).

    Returns:
        The number of input tokens.

    Raises:
        EmitError: The provider's format cannot express a message. Raised before anything is sent.
        TypeError: The client has none of these methods.
        openai.APIError: The SDK's own errors; likewise `anthropic.APIError` and
            `google.genai.errors.APIError`. A compatible server without the endpoint answers 404
            or 405.
        TokenizerError: A server answers 200 without a number.

    Sources: OpenAI, "Counting tokens" (POST /v1/responses/input_tokens); Anthropic, "Token
    counting" (POST /v1/messages/count_tokens); Google, "models.countTokens".
    """
    sdk: Any = client  # Any: one of three SDKs, none of which need be installed
    answer: Any  # as above
    if hasattr(getattr(sdk, "responses", None), "input_tokens"):
        items, definitions = rendered.to_responses(cache=cache), tools_to_responses(tools)
        given = {"tools": definitions, **options} if definitions else options
        answer = sdk.responses.input_tokens.count(model=model, input=items, **given)
    elif hasattr(getattr(sdk, "messages", None), "count_tokens"):
        given = {"tools": tools_to_anthropic(tools), **options} if tools else options
        answer = sdk.messages.count_tokens(
            model=model, **rendered.to_anthropic(cache=cache), **given
        )
    elif hasattr(getattr(sdk, "models", None), "count_tokens"):
        answer = _ask_google(sdk, model, rendered.messages, tools, options)
    else:
        raise TypeError(
            f"client must be that of openai, anthropic or google-genai, which can count tokens, not {type(client).__name__}. "
            "openai needs version 2.6 or later."
        )
    if isawaitable(answer):
        answer = await answer
    # SDKs do not check responses: LM Studio answers 200 for a path that it does not know, which
    # would be a count of None.
    tokens: object = getattr(answer, "input_tokens", getattr(answer, "total_tokens", None))
    if not isinstance(tokens, int):
        # the repr of a URL hides a password in it, its text does not
        raise TokenizerError(
            f"{getattr(sdk, 'base_url', type(client).__name__)!r} answered the token count request for {model} without a number: {str(answer)[:200]!r}. "
            "It may not have a path for it: use the provider's own API, or rendered.tokens."
        )
    return tokens


def _ask_google(
    sdk: Any,  # noqa: ANN401  # as above
    model: str,
    messages: Sequence[Message],
    tools: Sequence[ToolDefinition],
    options: Mapping[str, object],
) -> object:
    """Call `count_tokens` of google-genai. Its `aio` half is taken if the client has one."""
    contents = _write_contents(messages)
    system = [
        {"text": message.text} for message in messages if message.role == "system" and message.text
    ]
    declared = [
        {
            "name": tool.name,
            "description": tool.description or "",
            "parametersJsonSchema": dict(tool.parameters or {"type": "object"}),
        }
        for tool in tools
    ]
    beside: dict[str, object] = {
        **({"systemInstruction": {"parts": system}} if system else {}),
        **({"tools": [{"functionDeclarations": declared}]} if tools else {}),
    }
    # The Gemini API counts instructions and tools only inside of a whole request, for which the SDK
    # has no argument.
    whole = {
        "contents": contents,
        **beside,
        "model": model if "/" in model else f"models/{model}",
        **options,
    }
    body = (
        {**beside, **options}
        if getattr(sdk, "vertexai", False)
        else {"generateContentRequest": whole}
    )
    return getattr(sdk, "aio", sdk).models.count_tokens(
        model=model, contents=contents, config={"http_options": {"extra_body": body}}
    )


def _write_contents(messages: Sequence[Message]) -> list[dict[str, Json]]:
    """Write messages other than system messages as Gemini's contents."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    contents: list[dict[str, Json]] = []
    for index, message in enumerate(messages):
        parts: list[Json] = [
            _write_part(part, index)
            for part in message.content
            if not isinstance(part, CacheBreakpointPart)
        ]
        if message.role == "tool":
            parts = [
                {
                    "functionResponse": {
                        "name": names.get(message.tool_call_id or "", ""),
                        "response": {"result": message.text},
                    }
                },
                *(part for part in parts if isinstance(part, dict) and "text" not in part),
            ]
        parts += [
            {"functionCall": {"name": call.name, "args": json.loads(call.arguments or "{}")}}
            for call in message.tool_calls
        ]
        if message.role != "system" and parts:
            contents.append(
                {"role": "model" if message.role == "assistant" else "user", "parts": parts}
            )
    return contents


def _write_part(part: Part, index: int) -> Json:
    match part:
        case str():
            return {"text": part}
        case DocumentPart():
            return {"inlineData": {"mimeType": part.media_type, "data": part.data}}
        case ImagePart():
            url = parse_data_url(part.url)
            if url is None:
                kind = {"mimeType": part.media_type} if part.media_type else {}
                return {"fileData": {"fileUri": part.url, **kind}}
            return {
                "inlineData": {
                    "mimeType": url.media_type or part.media_type or "image/png",
                    "data": url.data
                    if url.is_base64
                    else base64.b64encode(unquote_to_bytes(url.data)).decode(),
                }
            }
        case _:
            raise EmitError(
                f"messages[{index}] has an opaque part, which Gemini's format does not accept: leave it out before counting."
            )
