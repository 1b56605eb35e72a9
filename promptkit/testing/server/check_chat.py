"""What Chat Completions demands of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptkit.testing.server.as_chat import mapping, sequence
from promptkit.testing.server.problem import Problem, check_content, check_limits, check_tools, check_words

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_chat"]

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
