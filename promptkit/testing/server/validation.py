"""Why a request is ill-formed, in the words of the real endpoint as far as they are known.

What the Responses API demands of a request.
What Chat Completions demands of a request.
A request to the Responses API as one to Chat Completions: so that there is one way to count, to cache and to look at both.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, cast

import attrs

if TYPE_CHECKING:
    from collections.abc import Collection

    from promptkit.messages import Json

__all__ = [
    "Problem",
    "as_chat",
    "check_chat",
    "check_content",
    "check_limits",
    "check_responses",
    "check_tools",
    "check_words",
    "mapping",
    "sequence",
    "text_of",
    "unsealed",
]


def as_chat(body: Mapping[str, Json]) -> dict[str, Any]:  # Any: JSON
    """The chat request with the same text, calls, results and tools. What it has no form for stands as text."""
    messages: list[dict[str, Any]] = []  # Any: as above
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else sequence(given)
    for item in map(mapping, items):
        _add(messages, item)
    chat = {"model": body.get("model"), "messages": messages, "tool_choice": body.get("tool_choice")}
    chat["tools"] = [
        {"type": "function", "function": {key: tool[key] for key in ("name", "description", "parameters", "strict") if key in tool}}
        for tool in map(mapping, sequence(body.get("tools")))
    ]
    return chat


def text_of(content: object) -> str:
    """The text of a message's content, in the form of either API."""
    if isinstance(content, str):
        return content
    texts = [part.get("text", part.get("refusal")) for part in map(mapping, sequence(content))]
    return "".join(text for text in texts if isinstance(text, str))


def unsealed(encrypted: object) -> str:
    """What stands in the `encrypted_content` that this server made; that of others as it is."""
    if not isinstance(encrypted, str):
        return ""
    try:
        return base64.b64decode(encrypted, validate=True).decode()
    except ValueError:
        return encrypted


def mapping(value: object) -> Mapping[str, Any]:  # Any: JSON
    """A JSON object, or an empty one in the place of anything else."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}  # JSON has no other keys


def sequence(value: object) -> Sequence[Any]:  # Any: JSON
    """A JSON array, or an empty one in the place of anything else."""
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()  # of JSON values


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:  # Any: as above
    kind = item.get("type", "message")
    if kind == "message":
        messages.append({"role": item.get("role"), "content": _content(item.get("content"))})
    elif kind == "function_call":
        call = {"id": item.get("call_id"), "type": "function", "function": {"name": item.get("name"), "arguments": item.get("arguments")}}
        if messages and messages[-1]["role"] == "assistant":
            messages[-1].setdefault("tool_calls", []).append(call)
        else:
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    elif kind == "function_call_output":
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": _content(item.get("output"))})
    else:  # thoughts and the like
        said = [text_of(item.get("summary")), text_of(item.get("content")), unsealed(item.get("encrypted_content"))]
        messages.append({"role": "assistant", "content": "".join(said)})


def _content(content: object) -> object:
    return content if isinstance(content, str) else [_part(mapping(part)) for part in sequence(content)]


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:  # Any: as above
    match part.get("type"):
        case "input_text" | "output_text":
            return {"type": "text", "text": part.get("text")}
        case "input_image":
            return {"type": "image_url", "image_url": {"url": part.get("image_url"), "detail": part.get("detail", "auto")}}
        case _:
            return part


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
"""Kind of content part → the key that it must have."""

NAME = 64  # characters of a tool's name
MOST_TOOLS = 128
HOTTEST = 2


@attrs.frozen
class Problem(Exception):  # noqa: N818  # what is wrong with a request, not with the server
    """What the endpoint answers 400 to."""

    message: str
    param: str | None = None
    code: str | None = None


def check_words(value: object, words: Collection[str], param: str) -> str:
    """One of these words. Raises Problem."""
    if isinstance(value, str) and value in words:
        return value
    listed = ", ".join(f"'{word}'" for word in words)
    message = f"Invalid value: {value!r}. Supported values are: {listed}."
    raise Problem(message, param, "invalid_value")


def check_content(content: object, kinds: Collection[str], param: str) -> None:
    """A text, or parts of these kinds. Raises Problem."""
    if isinstance(content, str):
        return
    parts = sequence(content)
    if not parts and content != []:
        wrong = "null" if content is None else f"a {type(content).__name__}"
        message = f"Invalid type for '{param}': expected one of a string or array of objects, but got {wrong} instead."
        raise Problem(message, param, "invalid_type")
    for place, part in enumerate(map(mapping, parts)):
        kind = check_words(part.get("type"), kinds, f"{param}[{place}].type")
        key = PARTS.get(kind)
        if key and key not in part:
            message = f"Missing required parameter: '{param}[{place}].{key}'."
            raise Problem(message, f"{param}[{place}].{key}", "missing_required_parameter")


def check_tools(body: Mapping[str, Any], functions: list[Mapping[str, Any]], where: str) -> None:  # Any: JSON
    """Tools with names and schemas, and no word about tools where there are none. Raises Problem."""
    if body.get("tools") is not None and not functions and body["tools"] != []:
        message = "Invalid type for 'tools': expected an array of objects."
        raise Problem(message, "tools", "invalid_type")
    if len(functions) > MOST_TOOLS:
        message = f"Invalid 'tools': array too long. Expected an array with maximum length {MOST_TOOLS}, but got {len(functions)} instead."
        raise Problem(message, "tools", "array_above_max_length")
    for place, function in enumerate(functions):
        name = function.get("name")
        param = where.replace("#", str(place))
        if (
            not isinstance(name, str)
            or not 0 < len(name) <= NAME
            or not name.replace("-", "").replace("_", "").isalnum()
            or not name.isascii()
        ):
            message = f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            raise Problem(message, param, "invalid_value")
        if not isinstance(function.get("parameters", {}), dict | None):
            message = f"Invalid schema for function '{name}': it is no object."
            raise Problem(message, param, "invalid_function_parameters")
    if functions:
        return
    for key in ("tool_choice", "parallel_tool_calls"):
        if body.get(key) is not None:
            message = f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified."
            raise Problem(message, key)


def check_limits(body: Mapping[str, Any], api: Literal["chat", "responses"], limits: Collection[str]) -> None:  # Any: as above
    """A model, known parameters, and figures in their range. Raises Problem."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        message = "you must provide a model parameter"
        raise Problem(message)
    for key in body:
        if key not in _known()[api]:
            message = f"Unknown parameter: '{key}'."
            raise Problem(message, key, "unknown_parameter")
    temperature = body.get("temperature")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature <= HOTTEST):
        message = f"Invalid 'temperature': expected a number between 0 and {HOTTEST}, but got {temperature!r} instead."
        raise Problem(message, "temperature")
    for key in limits:
        limit = body.get(key)
        if limit is not None and not (isinstance(limit, int) and limit > 0):
            message = f"Invalid '{key}': integer below minimum value. Expected a value >= 1, but got {limit!r} instead."
            raise Problem(message, key, "integer_below_min_value")


@cache
def _known() -> Mapping[str, frozenset[str]]:
    """The parameters that each API knows."""
    data = json.loads(files("promptkit.testing.server").joinpath("parameters.json").read_text(encoding="utf-8"))
    return {api: frozenset(names) for api, names in data.items()}


INPUT = ("input_text", "input_image", "input_file", "input_audio")
CONTENT: Mapping[str, tuple[str, ...]] = {
    "system": INPUT,
    "developer": INPUT,
    "user": INPUT,
    "assistant": ("output_text", "refusal"),
}
"""Role → the kinds of content parts that it may have."""

ITEMS = ("message", "function_call", "function_call_output", "reasoning", "compaction")
"""The kinds of items that this server takes: those that promptkit sends."""

CALL_ID = 64  # characters


def check_responses(body: Mapping[str, Any]) -> None:  # Any: JSON
    """Raise Problem for a request that the endpoint would refuse: what it looks like, and that calls and results belong together."""
    check_limits(body, "responses", ("max_output_tokens",))
    for key in ("previous_response_id", "conversation"):
        if body.get(key) is not None:
            message = f"Previous response with id '{body[key]}' not found." if key == "previous_response_id" else "Conversation not found."
            raise Problem(message, key, f"{key.removesuffix('_id')}_not_found")
    check_tools(body, [mapping(tool) for tool in sequence(body.get("tools"))], "tools[#].name")
    given = body.get("input")
    if isinstance(given, str):
        return
    if not isinstance(given, list) or not given:
        message = "Missing required parameter: 'input'." if not given else "Invalid type for 'input': expected a string or an array."
        raise Problem(message, "input", "missing_required_parameter" if not given else "invalid_type")
    conversation = _Conversation()
    for place, item in enumerate(map(mapping, sequence(body["input"]))):
        conversation.add(item, place)
    conversation.end()


@attrs.define
class _Conversation:
    """What belongs together in the items so far."""

    calls: set[str] = attrs.field(factory=set[str])
    answered: set[str] = attrs.field(factory=set[str])
    thought: str | None = None
    """The id of a reasoning item that nothing follows yet."""

    def add(self, item: Mapping[str, Any], place: int) -> None:  # Any: as above
        kind = check_words(item.get("type", "message"), ITEMS, f"input[{place}].type")
        if kind == "function_call_output" or (kind == "message" and item.get("role") != "assistant"):
            self._end_thought()
        self.thought = _text(item, "id", place) if kind == "reasoning" else None
        if kind == "message":
            role = check_words(item.get("role"), tuple(CONTENT), f"input[{place}].role")
            check_content(item.get("content"), CONTENT[role], f"input[{place}].content")
        elif kind == "function_call":
            _text(item, "name", place)
            _text(item, "arguments", place)
            self.calls.add(_call_id(item, place))
        elif kind == "function_call_output":
            self._add_output(item, place)
        elif kind == "compaction":
            _text(item, "encrypted_content", place)

    def _add_output(self, item: Mapping[str, Any], place: int) -> None:  # Any: as above
        call_id = _call_id(item, place)
        if call_id not in self.calls or call_id in self.answered:
            message = f"No tool call found for function call output with call_id {call_id}."
            raise Problem(message, "input")
        check_content(item.get("output"), INPUT, f"input[{place}].output")
        self.answered.add(call_id)

    def _end_thought(self) -> None:
        if self.thought is not None:
            message = f"Item '{self.thought}' of type 'reasoning' was provided without its required following item."
            raise Problem(message, "input")

    def end(self) -> None:
        self._end_thought()
        for call_id in sorted(self.calls - self.answered):
            message = f"No tool output found for function call {call_id}."
            raise Problem(message, "input")


def _call_id(item: Mapping[str, Any], place: int) -> str:  # Any: as above
    call_id = _text(item, "call_id", place)
    if len(call_id) > CALL_ID:
        where, length = f"input[{place}].call_id", len(call_id)
        message = f"Invalid '{where}': string too long. Expected a string with maximum length {CALL_ID}, but got a string with length {length} instead."
        raise Problem(message, where, "string_above_max_length")
    return call_id


def _text(item: Mapping[str, Any], key: str, place: int) -> str:  # Any: as above
    value = item.get(key)
    if not isinstance(value, str):
        message = f"Missing required parameter: 'input[{place}].{key}'." if value is None else f"Invalid type for 'input[{place}].{key}'."
        raise Problem(message, f"input[{place}].{key}", "missing_required_parameter" if value is None else "invalid_type")
    return value


CHAT_CONTENT: Mapping[str, tuple[str, ...]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
    "function": ("text",),
}
"""Role → the kinds of content parts that it may have."""

CHAT_CALL_ID = 40  # characters


def check_chat(body: Mapping[str, Any]) -> None:  # Any: JSON
    """Raise Problem for a request that the endpoint would refuse: what it looks like, and that calls and results belong together."""
    check_limits(body, "chat", ("max_completion_tokens", "max_tokens", "n"))
    if body.get("stream_options") is not None and body.get("stream") is not True:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise Problem(message, "stream_options")
    check_tools(body, [mapping(mapping(tool).get("function")) for tool in sequence(body.get("tools"))], "tools[#].function.name")
    messages = body.get("messages")
    if not isinstance(messages, list):
        message = "Missing required parameter: 'messages'." if messages is None else "Invalid type for 'messages': expected an array."
        raise Problem(message, "messages", "missing_required_parameter" if messages is None else "invalid_type")
    if not messages:
        message = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
        raise Problem(message, "messages", "empty_array")
    waiting: list[str] = []
    for place, message_ in enumerate(map(mapping, sequence(body["messages"]))):
        role = check_words(message_.get("role"), tuple(CHAT_CONTENT), f"messages[{place}].role")
        waiting = _check_result(message_, waiting, place) if role == "tool" else _check_message(role, message_, waiting, place)
    _check_answered(waiting, len(sequence(body["messages"])))


def _check_message(role: str, message: Mapping[str, Any], waiting: list[str], place: int) -> list[str]:  # Any: as above
    _check_answered(waiting, place)
    calls = message.get("tool_calls")
    if calls is not None and (role != "assistant" or not isinstance(calls, list) or not calls):
        problem = f"Invalid 'messages[{place}].tool_calls': only an assistant message has them, and at least one."
        raise Problem(problem, f"messages[{place}].tool_calls", "empty_array" if calls == [] else "invalid_type")
    if message.get("content") is not None or not (calls or message.get("refusal") or message.get("function_call") or message.get("audio")):
        check_content(message.get("content"), CHAT_CONTENT[role], f"messages[{place}].content")
    return [
        _check_call(mapping(call), f"messages[{place}].tool_calls[{index}]")
        for index, call in enumerate(sequence(message.get("tool_calls")))
    ]


def _check_call(call: Mapping[str, Any], where: str) -> str:  # Any: as above
    check_words(call.get("type"), ("function",), f"{where}.type")
    function = mapping(call.get("function"))
    for key, value in (("id", call.get("id")), ("function.name", function.get("name")), ("function.arguments", function.get("arguments"))):
        if not isinstance(value, str):
            message = f"Invalid type for '{where}.{key}': expected a string, but got {type(value).__name__} instead."
            raise Problem(message, f"{where}.{key}", "invalid_type")
    call_id = str(call["id"])
    if len(call_id) > CHAT_CALL_ID:
        length = len(call_id)
        message = f"Invalid '{where}.id': string too long. Expected a string with maximum length {CHAT_CALL_ID}, but got a string with length {length} instead."
        raise Problem(message, f"{where}.id", "string_above_max_length")
    return call_id


def _check_result(message: Mapping[str, Any], waiting: list[str], place: int) -> list[str]:  # Any: as above
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str):
        problem = f"Missing required parameter: 'messages[{place}].tool_call_id'."
        raise Problem(problem, f"messages[{place}].tool_call_id", "missing_required_parameter")
    if call_id not in waiting:
        problem = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        raise Problem(problem, f"messages.[{place}].role")
    check_content(message.get("content"), CHAT_CONTENT["tool"], f"messages[{place}].content")
    left = list(waiting)
    left.remove(call_id)
    return left


def _check_answered(waiting: list[str], place: int) -> None:
    if waiting:
        message = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
            f"The following tool_call_ids did not have response messages: {', '.join(waiting)}"
        )
        raise Problem(message, f"messages.[{place}].role")
