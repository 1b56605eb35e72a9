"""Check requests as the real endpoints do, with their error texts as far as they are known.

Requests to the Responses API are also converted to the form of Chat Completions, so that there is
one way to count, cache and read both.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NoReturn

import attrs

from promptkit.messages import Json, as_mapping, as_sequence


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
    call_id = str(call["id"])
    require(
        len(call_id) <= MAX_CHAT_CALL_ID,
        f"Invalid '{where}.id': string too long. Expected a string with maximum length {MAX_CHAT_CALL_ID}, but got a string with length {len(call_id)} instead.",
        f"{where}.id",
        "string_above_max_length",
    )
    return call_id


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
    call_id = _check_text(item, "call_id", place)
    where = f"input[{place}].call_id"
    require(
        len(call_id) <= MAX_RESPONSES_CALL_ID,
        f"Invalid '{where}': string too long. Expected a string with maximum length {MAX_RESPONSES_CALL_ID}, but got a string with length {len(call_id)} instead.",
        where,
        "string_above_max_length",
    )
    return call_id


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


def convert_to_chat(body: Mapping[str, Json]) -> dict[str, Any]:  # Any: JSON
    """Convert a Responses API request to Chat Completions, with the same text, calls, results and tools; other items become text."""
    instructions = body.get("instructions")
    messages: list[dict[str, Any]] = (  # Any: as above
        [{"role": "system", "content": instructions}] if instructions else []
    )
    for item in list_items(body):
        _append_item(messages, item)
    return {
        "model": body.get("model"),
        "messages": messages,
        "tool_choice": body.get("tool_choice"),
        "tools": [
            {
                "type": "function",
                "function": {
                    key: tool[key]
                    for key in ("name", "description", "parameters", "strict")
                    if key in tool
                },
            }
            for tool in map(as_mapping, as_sequence(body.get("tools")))
        ],
    }


def list_items(body: Mapping[str, Json]) -> list[Mapping[str, Any]]:  # Any: as above
    """List the items of a Responses API request; a text is one message of the user."""
    sent = body.get("input")
    return [
        *map(
            as_mapping,
            [{"role": "user", "content": sent}] if isinstance(sent, str) else as_sequence(sent),
        )
    ]


def _append_item(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:  # Any: as above
    match item.get("type", "message"):
        case "message":
            messages.append(
                {"role": item.get("role"), "content": convert_content(item.get("content"))}
            )
        case "function_call":
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            messages[-1].setdefault("tool_calls", []).append(
                {
                    "id": item.get("call_id"),
                    "type": "function",
                    "function": {"name": item.get("name"), "arguments": item.get("arguments")},
                }
            )
        case "function_call_output":
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": item.get("call_id"),
                    "content": convert_content(item.get("output")),
                }
            )
        case _:  # reasoning and compaction items
            text = extract_text(item.get("summary")) + extract_text(item.get("content"))
            sealed = _decode_encrypted(item.get("encrypted_content"))
            messages.append({"role": "assistant", "content": text + sealed})


def convert_content(content: object) -> object:
    """Convert the content of a message of any API to that of Chat Completions; thinking becomes text."""
    return (
        content
        if isinstance(content, str)
        else [_convert_part(as_mapping(part)) for part in as_sequence(content)]
    )


def _convert_part(part: Mapping[str, Any]) -> Mapping[str, Any]:  # Any: as above
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": part.get("text")}
        case "thinking" | "redacted_thinking":
            return {"type": "text", "text": part.get("thinking", "")}
        case "input_image":
            return {
                "type": "image_url",
                "image_url": {"url": part.get("image_url"), "detail": part.get("detail", "auto")},
            }
        case "image":
            source = as_mapping(part.get("source"))
            data = f"data:{source.get('media_type')};base64,{source.get('data')}"
            return {"type": "image_url", "image_url": {"url": source.get("url") or data}}
        case _:
            return part


def extract_text(content: object) -> str:
    """Extract the text of a message's content, in the form of either API."""
    if isinstance(content, str):
        return content
    return "".join(
        text
        for part in map(as_mapping, as_sequence(content))
        if isinstance(text := part.get("text", part.get("refusal")), str)
    )


def _decode_encrypted(encrypted: object) -> str:
    """Decode an `encrypted_content` that this server made; return that of others as it is."""
    if not isinstance(encrypted, str):
        return ""
    try:
        return base64.b64decode(encrypted, validate=True).decode()
    except ValueError:
        return encrypted
