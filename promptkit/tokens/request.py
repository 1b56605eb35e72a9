"""The tokens of a whole Chat Completions request, as it is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from promptkit.messages import ImagePart, Json, Role, ToolCall, ToolDefinition, is_instance
from promptkit.tokens.models import NamedModel, model_name, tokenizer_for
from promptkit.tokens.tokenizer import Count, Tokenizer
from promptkit.tokens.tool_schemas import (
    SYSTEM_DISCOUNT,
    count_definitions,
    count_line_break,
    count_tool_choice,
    read_object,
)

_FUNCTION_RESULT = -2
_FUNCTION_CALL = 3
_SYSTEM = ("system", "developer")


def count_request(request: Mapping[str, Json], *, model: str | NamedModel | None = None) -> Count:
    """Count the input tokens that a Chat Completions request is billed.

    The count is not exact where no checked formula is known: audio, files, structured output, and
    the framing of reasoning models. For models of other providers it is an estimate, raised as a
    whole by the margin of their family.

    Args:
        request: The arguments of the SDK's call: `messages`, and optionally `model`, `tools`,
            `tool_choice` and the older `functions` and `function_call`.
        model: The model's name, or an object with a `name`. Default: the request's `model`, or
            gpt-4o.

    Raises:
        TypeError: `request` is no mapping.
        TokenizerError: The model's vocabulary is not available.
        TextTooLongError: A text is longer than the tokenizer's limit.

    >>> count_request({"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]})
    Count(tokens=8, exact=True)
    """
    if not is_instance(request, Mapping):
        raise TypeError(
            f"request must be the arguments of the call, not {request!r:.80}: write count_request({{'messages': messages}})."
        )
    named = request.get("model")
    name = model_name(model) if model is not None else named if isinstance(named, str) else None
    tokenizer = tokenizer_for(name)
    base = tokenizer.base
    messages = [read_object(message) for message in _sequence(request.get("messages"))]
    parts = [_count_message(message, base) for message in messages]
    form = read_object(request.get("response_format")).get("type", "text")
    is_known = form == "text" and not request.get("prediction")
    parts += (_count_definitions(request, messages, base), Count(0, is_known))
    return Count(
        tokenizer.scale(sum(part.tokens for part in parts)), all(part.exact for part in parts)
    )


def _count_definitions(
    request: Mapping[str, Json], messages: Sequence[Mapping[str, Json]], tokenizer: Tokenizer
) -> Count:
    count = tokenizer.count
    system = next(
        (_last_text(message) for message in messages if message.get("role") in _SYSTEM), None
    )
    tools = [
        _read_definition(read_object(tool).get("function"))
        for tool in _sequence(request.get("tools"))
    ]
    functions = [_read_definition(function) for function in _sequence(request.get("functions"))]
    tokens, exact = tokenizer.count_overhead(tools, system=False if system is None else system)
    if functions:
        older = count_definitions(functions, count, "functions")
        tokens += older.tokens
        exact = exact and older.exact and not tools
        if system is not None and not tools:
            tokens += count_line_break(system, count) - SYSTEM_DISCOUNT
    for choice in (request.get("tool_choice"), request.get("function_call")):
        tokens += count_tool_choice(choice, count)
    return Count(tokens, exact)


def _count_message(message: Mapping[str, Json], tokenizer: Tokenizer) -> Count:
    count = tokenizer.count
    role, name = str(message.get("role", "user")), message.get("name")
    content = _count_content(message, tokenizer)
    calls = [_read_call(call) for call in _sequence(message.get("tool_calls"))]
    frame = tokenizer.count_framing(
        cast("Role", role),  # `function` and `developer` are framed like the others
        name=name if isinstance(name, str) else None,
        tool_calls=calls,
        text=content.tokens > 0,
    )
    tokens = frame.tokens + content.tokens
    if role == "function":
        tokens += _FUNCTION_RESULT
    call = read_object(message.get("function_call"))
    if call:
        tokens += (
            _FUNCTION_CALL
            + count(str(call.get("name", "")))
            + count(str(call.get("arguments", "")))
        )
    return Count(tokens, frame.exact and content.exact)


def _count_content(message: Mapping[str, Json], tokenizer: Tokenizer) -> Count:
    content = message.get("content")
    refusal = message.get("refusal")
    tokens = tokenizer.count(refusal) if isinstance(refusal, str) else 0
    if isinstance(content, str):
        return Count(tokens + tokenizer.count(content))
    parts = [_count_part(read_object(part), tokenizer) for part in _sequence(content)]
    return Count(
        tokens + sum(part.tokens for part in parts),
        all(part.exact for part in parts) and not message.get("audio"),
    )


def _count_part(part: Mapping[str, Json], tokenizer: Tokenizer) -> Count:
    text = part.get("text", part.get("refusal"))
    if isinstance(text, str):
        return Count(tokenizer.count(text))
    image = read_object(part.get("image_url"))
    url, detail = image.get("url"), image.get("detail")
    if isinstance(url, str):
        return tokenizer.count_part(
            ImagePart(url=url, detail=detail if isinstance(detail, str) else None)
        )
    return Count(0, exact=False)


def _last_text(message: Mapping[str, Json]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = [read_object(part).get("text") for part in _sequence(content)]
    return next((text for text in reversed(texts) if isinstance(text, str)), "")


def _read_call(call: Json) -> ToolCall:
    outer = read_object(call)
    function = read_object(outer.get("function"))
    return ToolCall(
        id=str(outer.get("id", "")),
        name=str(function.get("name", "")),
        arguments=str(function.get("arguments", "")),
    )


def _read_definition(function: Json) -> ToolDefinition:
    fields = read_object(function)
    description, parameters = fields.get("description"), fields.get("parameters")
    return ToolDefinition(
        name=str(fields.get("name", "")),
        description=description if isinstance(description, str) else None,
        parameters=read_object(parameters) if parameters else None,
    )


def _sequence(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()
