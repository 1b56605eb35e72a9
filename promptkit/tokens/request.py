"""The tokens of a whole Chat Completions request, as it goes over the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from promptkit.messages import ImagePart, ToolCall, ToolDefinition
from promptkit.tokens.models import tokenizer_for
from promptkit.tokens.tokenizer import Count
from promptkit.tokens.tool_schemas import SYSTEM_SAVES, choice_tokens, definition_tokens, line_break

if TYPE_CHECKING:
    from promptkit.messages import Json, Role
    from promptkit.tokens.openai_tokenizer import OpenAITokenizer

__all__ = ["count_request"]

_FUNCTION_RESULT = -2
_FUNCTION_CALL = 3
_SYSTEM = ("system", "developer")


def count_request(request: Mapping[str, Json]) -> Count:
    """The tokens that a Chat Completions request is billed as input.

    `request` has `messages`, and may have `model`, `tools`, `tool_choice` and the older `functions`, `function_call`. Without
    `model` it counts as for gpt-4o. Not exact where no checked formula is known: audio, files, structured output, the framing
    of reasoning models. Raises TokenizerError and TextTooLongError.
    """
    model = request.get("model")
    tokenizer = tokenizer_for(model if isinstance(model, str) else None)
    messages = [_mapping(message) for message in _sequence(request.get("messages"))]
    parts = [_message(message, tokenizer) for message in messages]
    parts += (_definitions(request, messages, tokenizer), Count(0, _is_known(request)))
    return Count(sum(part.tokens for part in parts), all(part.exact for part in parts))


def _is_known(request: Mapping[str, Json]) -> bool:
    form = _mapping(request.get("response_format")).get("type", "text")
    return form == "text" and not request.get("prediction")


def _definitions(request: Mapping[str, Json], messages: Sequence[Mapping[str, Json]], tokenizer: OpenAITokenizer) -> Count:
    count = tokenizer.count
    system = next((_last_text(message) for message in messages if message.get("role") in _SYSTEM), None)
    tools = [_definition(_mapping(tool).get("function")) for tool in _sequence(request.get("tools"))]
    functions = [_definition(function) for function in _sequence(request.get("functions"))]
    tokens, exact = tokenizer.request(tools, system=False if system is None else system)
    if functions:
        older = definition_tokens(functions, count, "functions")
        tokens += older.tokens
        exact = exact and older.exact and not tools
        if system is not None and not tools:
            tokens += line_break(system, count) - SYSTEM_SAVES
    for choice in (request.get("tool_choice"), request.get("function_call")):
        tokens += choice_tokens(choice, count)
    return Count(tokens, exact)


def _message(message: Mapping[str, Json], tokenizer: OpenAITokenizer) -> Count:
    count = tokenizer.count
    role, name = str(message.get("role", "user")), message.get("name")
    content = _content(message, tokenizer)
    calls = [_call(call) for call in _sequence(message.get("tool_calls"))]
    frame = tokenizer.frame(
        cast("Role", role),  # `function` and `developer` are framed like the others
        name=name if isinstance(name, str) else None,
        tool_calls=calls,
        text=content.tokens > 0,
    )
    tokens = frame.tokens + content.tokens
    if role == "function":
        tokens += _FUNCTION_RESULT
    call = _mapping(message.get("function_call"))
    if call:
        tokens += _FUNCTION_CALL + count(str(call.get("name", ""))) + count(str(call.get("arguments", "")))
    return Count(tokens, frame.exact and content.exact)


def _content(message: Mapping[str, Json], tokenizer: OpenAITokenizer) -> Count:
    content = message.get("content")
    refusal = message.get("refusal")
    tokens = tokenizer.count(refusal) if isinstance(refusal, str) else 0
    if isinstance(content, str):
        return Count(tokens + tokenizer.count(content))
    parts = [_part(_mapping(part), tokenizer) for part in _sequence(content)]
    return Count(tokens + sum(part.tokens for part in parts), all(part.exact for part in parts) and not message.get("audio"))


def _part(part: Mapping[str, Json], tokenizer: OpenAITokenizer) -> Count:
    text = part.get("text", part.get("refusal"))
    if isinstance(text, str):
        return Count(tokenizer.count(text))
    image = _mapping(part.get("image_url"))
    url, detail = image.get("url"), image.get("detail")
    if isinstance(url, str):
        return tokenizer.part(ImagePart(url=url, detail=detail if isinstance(detail, str) else None))
    return Count(0, exact=False)


def _last_text(message: Mapping[str, Json]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = [_mapping(part).get("text") for part in _sequence(content)]
    return next((text for text in reversed(texts) if isinstance(text, str)), "")


def _call(call: Json) -> ToolCall:
    outer = _mapping(call)
    function = _mapping(outer.get("function"))
    return ToolCall(id=str(outer.get("id", "")), name=str(function.get("name", "")), arguments=str(function.get("arguments", "")))


def _definition(function: Json) -> ToolDefinition:
    given = _mapping(function)
    description, parameters = given.get("description"), given.get("parameters")
    return ToolDefinition(
        name=str(given.get("name", "")),
        description=description if isinstance(description, str) else None,
        parameters=_mapping(parameters) if parameters else None,
    )


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()
