"""OpenAI's two APIs: check requests as the real endpoints do, with their error texts as far as they are known, and encode replies, complete or as streams."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NoReturn, TypeAlias

import attrs

from promptkit.messages import Json, Message, OpaquePart, Usage, as_mapping, as_sequence
from promptkit.testing.server.journal import Exchange, HttpAnswer, api_error, list_items


@attrs.frozen
class IllFormedRequestError(Exception):
    """A request that the endpoint would refuse with status 400."""

    message: str
    param: str | None = None
    code: str | None = None


def refuse(message: str, param: str | None = None, code: str | None = None) -> NoReturn:
    """Refuse a request as ill-formed."""
    raise IllFormedRequestError(message, param, code)


def require(holds: object, message: str, param: str | None = None, code: str | None = None) -> None:
    """Refuse a request as ill-formed unless a rule holds."""
    if not holds:
        refuse(message, param, code)


CHAT_CONTENT: Mapping[str, tuple[str, ...]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
    "function": ("text",),
}
"""Role → the kinds of content parts that its messages may have."""

MAX_CHAT_CALL_ID = 40  # characters


def check_chat(body: Mapping[str, Any]) -> None:  # Any: JSON
    """Check a request to Chat Completions: its parameters, its messages, and that tool calls and results match.

    Raises:
        IllFormedRequestError: The endpoint would refuse the request.
    """
    _check_limits(body, "chat", ("max_completion_tokens", "max_tokens", "n"))
    require(
        body.get("stream_options") is None or body.get("stream") is True,
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        "stream_options",
    )
    _check_tools(
        body,
        [as_mapping(as_mapping(tool).get("function")) for tool in as_sequence(body.get("tools"))],
        "tools[#].function.name",
    )
    messages = body.get("messages")
    require(
        isinstance(messages, list),
        "Missing required parameter: 'messages'."
        if messages is None
        else "Invalid type for 'messages': expected an array.",
        "messages",
        "missing_required_parameter" if messages is None else "invalid_type",
    )
    require(
        messages,
        "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        "messages",
        "empty_array",
    )
    pending: list[str] = []
    for place, message_ in enumerate(map(as_mapping, as_sequence(messages))):
        role = _check_choice(message_.get("role"), tuple(CHAT_CONTENT), f"messages[{place}].role")
        pending = (
            _check_result(message_, pending, place)
            if role == "tool"
            else _check_message(role, message_, pending, place)
        )
    _check_answered(pending, len(as_sequence(messages)))


# Any stands for as above
def _check_message(
    role: str, message: Mapping[str, Any], pending: list[str], place: int
) -> list[str]:
    _check_answered(pending, place)
    calls = message.get("tool_calls")
    require(
        calls is None or (role == "assistant" and calls and isinstance(calls, list)),
        f"Invalid 'messages[{place}].tool_calls': only an assistant message has them, and at least one.",
        f"messages[{place}].tool_calls",
        "empty_array" if calls == [] else "invalid_type",
    )
    if message.get("content") is not None or not (
        calls or message.get("refusal") or message.get("function_call") or message.get("audio")
    ):
        _check_content(message.get("content"), CHAT_CONTENT[role], f"messages[{place}].content")
    return [
        _check_call(as_mapping(call), f"messages[{place}].tool_calls[{index}]")
        for index, call in enumerate(as_sequence(message.get("tool_calls")))
    ]


def _check_call(call: Mapping[str, Any], where: str) -> str:  # Any: as above
    _check_choice(call.get("type"), ("function",), f"{where}.type")
    function = as_mapping(call.get("function"))
    for key, value in (
        ("id", call.get("id")),
        ("function.name", function.get("name")),
        ("function.arguments", function.get("arguments")),
    ):
        require(
            isinstance(value, str),
            f"Invalid type for '{where}.{key}': expected a string, but got {type(value).__name__} instead.",
            f"{where}.{key}",
            "invalid_type",
        )
    return _check_length(str(call["id"]), MAX_CHAT_CALL_ID, f"{where}.id")


# Any stands for as above
def _check_result(message: Mapping[str, Any], pending: list[str], place: int) -> list[str]:
    call_id = message.get("tool_call_id")
    require(
        isinstance(call_id, str),
        f"Missing required parameter: 'messages[{place}].tool_call_id'.",
        f"messages[{place}].tool_call_id",
        "missing_required_parameter",
    )
    require(
        call_id in pending,
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        f"messages.[{place}].role",
    )
    _check_content(message.get("content"), CHAT_CONTENT["tool"], f"messages[{place}].content")
    pending.remove(str(call_id))
    return pending


def _check_answered(pending: list[str], place: int) -> None:
    require(
        not pending,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(pending)}",
        f"messages.[{place}].role",
    )


RESPONSES_INPUT = ("input_text", "input_image", "input_file", "input_audio")
RESPONSES_CONTENT: Mapping[str, tuple[str, ...]] = {
    "system": RESPONSES_INPUT,
    "developer": RESPONSES_INPUT,
    "user": RESPONSES_INPUT,
    "assistant": ("output_text", "refusal"),
}
"""Role → the kinds of content parts that its messages may have."""

RESPONSES_ITEMS = ("message", "function_call", "function_call_output", "reasoning", "compaction")
"""The kinds of items that this server accepts: those that promptkit sends."""

MAX_RESPONSES_CALL_ID = 64  # characters


def check_responses(body: Mapping[str, Any]) -> None:  # Any: JSON
    """Check a request to the Responses API: its parameters, its messages, and that tool calls and results match.

    Raises:
        IllFormedRequestError: The endpoint would refuse the request.
    """
    _check_limits(body, "responses", ("max_output_tokens",))
    for key in ("previous_response_id", "conversation"):
        require(
            body.get(key) is None,
            f"Previous response with id '{body.get(key)}' not found."
            if key == "previous_response_id"
            else "Conversation not found.",
            key,
            f"{key.removesuffix('_id')}_not_found",
        )
    _check_tools(
        body, [as_mapping(tool) for tool in as_sequence(body.get("tools"))], "tools[#].name"
    )
    sent = body.get("input")
    if isinstance(sent, str):
        return
    require(
        sent and isinstance(sent, list),
        "Missing required parameter: 'input'."
        if not sent
        else "Invalid type for 'input': expected a string or an array.",
        "input",
        "missing_required_parameter" if not sent else "invalid_type",
    )
    items = _ResponsesItems()
    for place, item in enumerate(list_items(body)):
        items.add(item, place)
    items.check_end()


@attrs.define
class _ResponsesItems:
    """The items so far, and which of them wait for another: calls for outputs, a reasoning item for its following item."""

    calls: set[str] = attrs.field(factory=set[str])
    answered: set[str] = attrs.field(factory=set[str])
    reasoning: str | None = None
    """The id of a reasoning item that nothing follows yet."""

    def add(self, item: Mapping[str, Any], place: int) -> None:  # Any: as above
        kind = _check_choice(item.get("type", "message"), RESPONSES_ITEMS, f"input[{place}].type")
        if kind == "function_call_output" or (
            kind == "message" and item.get("role") != "assistant"
        ):
            self._check_reasoning()
        self.reasoning = _check_text(item, "id", place) if kind == "reasoning" else None
        match kind:
            case "message":
                where = f"input[{place}]"
                role = _check_choice(item.get("role"), tuple(RESPONSES_CONTENT), f"{where}.role")
                _check_content(item.get("content"), RESPONSES_CONTENT[role], f"{where}.content")
            case "function_call":
                _check_text(item, "name", place)
                _check_text(item, "arguments", place)
                self.calls.add(_check_call_id(item, place))
            case "function_call_output":
                call_id = _check_call_id(item, place)
                require(
                    call_id in self.calls and call_id not in self.answered,
                    f"No tool call found for function call output with call_id {call_id}.",
                    "input",
                )
                _check_content(item.get("output"), RESPONSES_INPUT, f"input[{place}].output")
                self.answered.add(call_id)
            case "compaction":
                _check_text(item, "encrypted_content", place)
            case _:
                pass

    def _check_reasoning(self) -> None:
        require(
            self.reasoning is None,
            f"Item '{self.reasoning}' of type 'reasoning' was provided without its required following item.",
            "input",
        )

    def check_end(self) -> None:
        self._check_reasoning()
        for call_id in sorted(self.calls - self.answered):
            refuse(f"No tool output found for function call {call_id}.", "input")


def _check_call_id(item: Mapping[str, Any], place: int) -> str:  # Any: as above
    return _check_length(
        _check_text(item, "call_id", place), MAX_RESPONSES_CALL_ID, f"input[{place}].call_id"
    )


def _check_length(text: str, maximum: int, param: str) -> str:
    """Check that a text has at most so many characters, and return it."""
    require(
        len(text) <= maximum,
        f"Invalid '{param}': string too long. Expected a string with maximum length {maximum}, but got a string with length {len(text)} instead.",
        param,
        "string_above_max_length",
    )
    return text


def _check_text(item: Mapping[str, Any], key: str, place: int) -> str:  # Any: as above
    value = item.get(key)
    require(
        isinstance(value, str),
        f"Missing required parameter: 'input[{place}].{key}'."
        if value is None
        else f"Invalid type for 'input[{place}].{key}'.",
        f"input[{place}].{key}",
        "missing_required_parameter" if value is None else "invalid_type",
    )
    return str(value)


PARTS: Mapping[str, str] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "image_url": "image_url",
    "input_image": "image_url",
    "input_audio": "input_audio",
    "file": "file",
    "input_file": "",
}
"""Kind of content part → the key that it must have; empty if none."""

MAX_TOOL_NAME = 64  # characters
MAX_TOOLS = 128
MAX_TEMPERATURE = 2


def _check_choice(value: object, words: Collection[str], param: str) -> str:
    """Check that a value is one of these words, and return it."""
    if isinstance(value, str) and value in words:
        return value
    refuse(
        f"Invalid value: {value!r}. Supported values are: {', '.join(map(repr, words))}.",
        param,
        "invalid_value",
    )


def _check_content(content: object, kinds: Collection[str], param: str) -> None:
    """Check that a content is a text, or consists of parts of these kinds."""
    if isinstance(content, str):
        return
    parts = as_sequence(content)
    require(
        parts or content == [],
        f"Invalid type for '{param}': expected one of a string or array of objects, "
        f"but got {'null' if content is None else f'a {type(content).__name__}'} instead.",
        param,
        "invalid_type",
    )
    for place, part in enumerate(map(as_mapping, parts)):
        key = PARTS.get(_check_choice(part.get("type"), kinds, f"{param}[{place}].type"))
        require(
            not key or key in part,
            f"Missing required parameter: '{param}[{place}].{key}'.",
            f"{param}[{place}].{key}",
            "missing_required_parameter",
        )


# Any stands for JSON
def _check_tools(body: Mapping[str, Any], functions: list[Mapping[str, Any]], where: str) -> None:
    """Check names and schemas of tools, and that no parameter about tools is set without them."""
    require(
        body.get("tools") is None or functions or body["tools"] == [],
        "Invalid type for 'tools': expected an array of objects.",
        "tools",
        "invalid_type",
    )
    require(
        len(functions) <= MAX_TOOLS,
        f"Invalid 'tools': array too long. Expected an array with maximum length {MAX_TOOLS}, but got {len(functions)} instead.",
        "tools",
        "array_above_max_length",
    )
    for place, function in enumerate(functions):
        name = function.get("name")
        param = where.replace("#", str(place))
        require(
            isinstance(name, str)
            and 0 < len(name) <= MAX_TOOL_NAME
            and name.replace("-", "").replace("_", "").isalnum()
            and name.isascii(),
            f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            param,
            "invalid_value",
        )
        require(
            isinstance(function.get("parameters", {}), dict | None),
            f"Invalid schema for function '{name}': it is no object.",
            param,
            "invalid_function_parameters",
        )
    if functions:
        return
    for key in ("tool_choice", "parallel_tool_calls"):
        require(
            body.get(key) is None,
            f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.",
            key,
        )


# Any stands for as above
def _check_limits(
    body: Mapping[str, Any], api: Literal["chat", "responses"], limits: Collection[str]
) -> None:
    """Check that a model is named, that all parameters are known, and that figures are in their ranges."""
    require(
        isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter"
    )
    for key in body:
        require(
            key in load_parameters()[api], f"Unknown parameter: '{key}'.", key, "unknown_parameter"
        )
    temperature = body.get("temperature")
    require(
        temperature is None
        or (isinstance(temperature, int | float) and 0 <= temperature <= MAX_TEMPERATURE),
        f"Invalid 'temperature': expected a number between 0 and {MAX_TEMPERATURE}, but got {temperature!r} instead.",
        "temperature",
    )
    for key in limits:
        limit = body.get(key)
        require(
            limit is None or (isinstance(limit, int) and limit > 0),
            f"Invalid '{key}': integer below minimum value. Expected a value >= 1, but got {limit!r} instead.",
            key,
            "integer_below_min_value",
        )


@cache
def load_parameters() -> Mapping[str, frozenset[str]]:
    """Load the parameters that each API accepts."""
    return {
        api: frozenset(names)
        for api, names in json.loads(
            files("promptkit.testing.server")
            .joinpath("parameters.json")
            .read_text(encoding="utf-8")
        ).items()
    }


JsonObject: TypeAlias = dict[str, Any]  # Any: JSON


@attrs.frozen(kw_only=True)
class ServerReply:
    """The model's reply to one request, before it is encoded."""

    number: int
    """Number of the request, from which ids are built."""
    created: int
    """Seconds since 1970."""
    model: str
    message: Message
    """Every call has an id."""
    finish: str
    usage: Usage


@attrs.frozen(kw_only=True)
class Api:
    """The checks and encodings of one API."""

    check: Callable[[Exchange], None]
    """Raises IllFormedRequestError for a request that the API would refuse."""
    refuse_size: Callable[[int, int, int], HttpAnswer | None]
    """Takes the tokens of a request, those that it reserves for the reply, and the window. Returns
    the refusal of one that does not fit."""
    write: Callable[[Exchange, ServerReply], JsonObject]
    """Write a complete reply."""
    write_events: Callable[[Exchange, ServerReply], Iterator[bytes]]
    """Write a reply as a stream."""
    convert_error: Callable[[HttpAnswer, int], HttpAnswer] = attrs.field(
        default=lambda answer, _: answer
    )
    """Return an error in the form of the API. Takes the error in OpenAI's form, and the number of
    the request."""
    cuts_at_window: bool = False
    """True: a reply ends where the window is full, so that only the request itself has to fit."""


def encode_chat(reply: ServerReply) -> JsonObject:
    """Encode a reply as a complete answer of Chat Completions."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in reply.message.tool_calls
    ]
    message: JsonObject = {
        "role": "assistant",
        "content": reply.message.text or None,
        "refusal": _join_refusals(reply),
        "annotations": [],
        **({"tool_calls": calls} if calls else {}),
    }
    return {
        **_chunk_head(reply, "chat.completion"),
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
        ],
        "usage": _encode_chat_usage(reply.usage),
    }


def encode_chat_chunks(reply: ServerReply, *, include_usage: bool) -> Iterator[JsonObject]:
    """Encode a reply as the chunks of a Chat Completions stream."""
    head = _chunk_head(reply, "chat.completion.chunk") | ({"usage": None} if include_usage else {})

    def chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
        return {
            **head,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        }

    yield chunk(
        {"role": "assistant", "content": "" if reply.message.text else None, "refusal": None}
    )
    for key, text in (("content", reply.message.text), ("refusal", _join_refusals(reply) or "")):
        yield from (chunk({key: delta}) for delta in split_deltas(text))
    for index, call in enumerate(reply.message.tool_calls):
        pieces: list[JsonObject] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}},
            *({"function": {"arguments": delta}} for delta in split_deltas(call.arguments)),
        ]
        yield from (chunk({"tool_calls": [{"index": index, **piece}]}) for piece in pieces)
    yield chunk({}, reply.finish)
    if include_usage:
        yield {**head, "choices": [], "usage": _encode_chat_usage(reply.usage)}


def _chunk_head(reply: ServerReply, kind: str) -> JsonObject:
    return {
        "id": f"chatcmpl-{reply.number}",
        "object": kind,
        "created": reply.created,
        "model": reply.model,
        "service_tier": "default",
    }


def _join_refusals(reply: ServerReply) -> str | None:
    return (
        "".join(str(refusal) for part in reply.message.content if (refusal := get_refusal(part)))
        or None
    )


def _encode_chat_usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reason → the reason of an incomplete response."""


def encode_response(reply: ServerReply, body: Mapping[str, Any]) -> JsonObject:  # Any: JSON
    """Encode a reply as a complete answer of the Responses API.

    `body` is the request, whose settings are repeated.
    """
    reason = INCOMPLETE_REASONS.get(reply.finish)
    return _response_head(reply, body) | {
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": list(_iter_output_items(reply)),
        "usage": _encode_response_usage(
            reply.usage,
            sum(part.tokens or 0 for part in reply.message.content if isinstance(part, OpaquePart)),
        ),
    }


# Any stands for JSON
def encode_response_events(reply: ServerReply, body: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Encode a reply as the events of a Responses API stream. `body` is the request."""
    yield from (
        event | {"sequence_number": number}
        for number, event in enumerate(_iter_response_events(reply, body))
    )


def encode_compaction(exchange: Exchange, usage: Usage, created: int) -> JsonObject:
    """Encode the answer of the compact endpoint: all user messages, and one item that replaces the rest.

    Nothing is really summarized: the item says how many items and tokens there were.

    Args:
        exchange: The request.
        usage: The usage to report.
        created: Seconds since 1970.
    """
    items = list_items(exchange.body)
    asked = [
        item.get("content")
        for item in items
        if item.get("type", "message") == "message" and item.get("role") == "user"
    ]
    sealed = base64.b64encode(
        f"A conversation of {len(items)} items and {usage.input_tokens} tokens was compacted.".encode()
    ).decode()
    return {
        "id": f"resp_{exchange.number}",
        "object": "response.compaction",
        "created_at": created,
        "output": [
            *(
                {
                    "id": f"msg_{exchange.number}_{index}",
                    "type": "message",
                    "role": "user",
                    "status": "completed",
                    "content": [{"type": "input_text", "text": content}]
                    if isinstance(content, str)
                    else content,
                }
                for index, content in enumerate(asked)
            ),
            {"id": f"cmp_{exchange.number}", "type": "compaction", "encrypted_content": sealed},
        ],
        "usage": _encode_response_usage(usage),
    }


# Any stands for JSON
def _iter_response_events(reply: ServerReply, body: Mapping[str, Any]) -> Iterator[JsonObject]:
    head = _response_head(reply, body) | {
        "status": "in_progress",
        "output": list[JsonObject](),
        "usage": None,
        "incomplete_details": None,
    }
    yield {"type": "response.created", "response": head}
    yield {"type": "response.in_progress", "response": head}
    for index, item in enumerate(_iter_output_items(reply)):
        place = {"output_index": index, "item_id": item["id"]}
        empty: JsonObject = (
            {"content": []}
            if item["type"] == "message"
            else {"arguments": ""}
            if item["type"] == "function_call"
            else {}
        )
        yield {
            "type": "response.output_item.added",
            "output_index": index,
            "item": item | ({"status": "in_progress"} if "status" in item else {}) | empty,
        }
        if item["type"] == "function_call":
            yield from (
                {"type": "response.function_call_arguments.delta", **place, "delta": delta}
                for delta in split_deltas(item["arguments"])
            )
            yield {
                "type": "response.function_call_arguments.done",
                **place,
                "name": item["name"],
                "arguments": item["arguments"],
            }
        for at, part in enumerate(item["content"] if item["type"] == "message" else ()):
            yield from _iter_part_events(part, place | {"content_index": at})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    complete = encode_response(reply, body)
    yield {"type": f"response.{complete['status']}", "response": complete}


def _iter_part_events(part: JsonObject, place: JsonObject) -> Iterator[JsonObject]:
    key, kind = ("text", "output_text") if part["type"] == "output_text" else ("refusal", "refusal")
    logged = {"logprobs": list[JsonObject]()} if key == "text" else {}
    yield {"type": "response.content_part.added", **place, "part": part | {key: ""}}
    yield from (
        {"type": f"response.{kind}.delta", **place, "delta": delta, **logged}
        for delta in split_deltas(part[key])
    )
    yield {"type": f"response.{kind}.done", **place, key: part[key], **logged}
    yield {"type": "response.content_part.done", **place, "part": part}


def _response_head(reply: ServerReply, body: Mapping[str, Any]) -> JsonObject:  # Any: JSON
    return {
        "id": f"resp_{reply.number}",
        "object": "response",
        "created_at": reply.created,
        "model": reply.model,
        "error": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "temperature": body.get("temperature", 1.0),
        "top_p": body.get("top_p", 1.0),
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": list(as_sequence(body.get("tools"))),
        "store": body.get("store", True),
        "truncation": "disabled",
    }


def _iter_output_items(reply: ServerReply) -> Iterator[JsonObject]:
    """Yield the output items: opaque items as they are, text and refusals in messages, then the tool calls."""
    phase: object = None
    content: list[JsonObject] = []
    count = 0

    def message() -> Iterator[JsonObject]:
        if content:
            item = {
                "id": f"msg_{reply.number}_{count}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": list(content),
            }
            content.clear()
            yield item | ({"phase": phase} if phase else {})

    for part in reply.message.content:
        if isinstance(part, str):
            content.append(
                {
                    "type": "output_text",
                    "text": part,
                    "annotations": list[JsonObject](),
                    "logprobs": list[JsonObject](),
                }
            )
        elif refusal := get_refusal(part):
            content.append({"type": "refusal", "refusal": refusal})
        elif isinstance(part, OpaquePart) and isinstance(part.value, Mapping):
            yield from message()
            count += 1
            if part.provider == "responses.message":
                phase = part.value.get("phase")
            elif part.provider == "responses":
                yield {"id": f"item_{reply.number}_{count}", **part.value}
    yield from message()
    for index, call in enumerate(reply.message.tool_calls):
        item = {"id": f"fc_{reply.number}_{index}", "type": "function_call", "status": "completed"}
        yield item | {"call_id": call.id, "name": call.name, "arguments": call.arguments}


def _encode_response_usage(usage: Usage, reasoning: int = 0) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _refuse_chat(tokens: int, reserved: int, window: int) -> HttpAnswer | None:
    if tokens + reserved <= window:
        return None
    however = (
        f"you requested {tokens + reserved} tokens ({tokens} in the messages, {reserved} in the completion)"
        if reserved
        else f"your messages resulted in {tokens} tokens"
    )
    return api_error(
        400,
        f"This model's maximum context length is {window} tokens. However, {however}. "
        f"Please reduce the length of the messages{' or completion' if reserved else ''}.",
        code="context_length_exceeded",
        param="messages",
    )


def _refuse_response(tokens: int, reserved: int, window: int) -> HttpAnswer | None:
    return (
        None
        if tokens + reserved <= window
        else api_error(
            400,
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            code="context_length_exceeded",
            param="input",
        )
    )


def _write_chat_events(exchange: Exchange, reply: ServerReply) -> Iterator[bytes]:
    options = as_mapping(exchange.body.get("stream_options"))
    yield from map(
        _encode_event,
        encode_chat_chunks(reply, include_usage=options.get("include_usage") is True),
    )
    yield b"data: [DONE]\n\n"


def write_named_events(events: Iterator[JsonObject]) -> Iterator[bytes]:
    """Write the events of a stream, each with its type as its name."""
    yield from (f"event: {event['type']}\n".encode() + _encode_event(event) for event in events)


def _encode_event(value: object) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


CHAT_API = Api(
    check=lambda exchange: check_chat(exchange.body),
    refuse_size=_refuse_chat,
    write=lambda _, reply: encode_chat(reply),
    write_events=_write_chat_events,
)
RESPONSES_API = Api(
    check=lambda exchange: check_responses(exchange.body),
    refuse_size=_refuse_response,
    write=lambda exchange, reply: encode_response(reply, exchange.body),
    write_events=lambda exchange, reply: write_named_events(
        encode_response_events(reply, exchange.body)
    ),
)
MIN_DELTA = 16  # characters
MAX_DELTAS = 64  # of one text


def split_deltas(text: str) -> Iterator[str]:
    """Split a text into the deltas of a stream."""
    size = max(MIN_DELTA, -(-len(text) // MAX_DELTAS))
    yield from (text[start : start + size] for start in range(0, len(text), size))


def get_refusal(part: object) -> Json:
    """Return the refusal of an opaque part `{"type": "refusal", "refusal": "…"}`, and None for any other part."""
    value = part.value if isinstance(part, OpaquePart) else None
    return (
        value.get("refusal") if isinstance(value, dict) and value.get("type") == "refusal" else None
    )
