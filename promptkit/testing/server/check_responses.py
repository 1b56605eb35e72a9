"""What the Responses API demands of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from promptkit.testing.server.as_chat import mapping, sequence
from promptkit.testing.server.problem import Problem, check_content, check_limits, check_tools, check_words

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_responses"]

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
