"""Messages and tools in the forms that people have them in."""

from __future__ import annotations

from promptkit.cli.wire import read_message, read_tool_call, read_tool_definition
from promptkit.messages import ImagePart, Message, ToolCall, ToolDefinition


def test_a_chat_message_with_calls_in_the_form_of_openai() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
    assert read_message({"role": "assistant", "content": "I look.", "tool_calls": [call]}, "m") == Message(
        role="assistant", content=("I look.",), tool_calls=(ToolCall(id="c1", name="read", arguments='{"path": "a.py"}'),)
    )


def test_a_tool_message() -> None:
    assert read_message({"role": "tool", "tool_call_id": "c1", "content": ""}, "m") == Message(role="tool", tool_call_id="c1")


def test_parts_of_a_content() -> None:
    parts = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "u"}}]
    fine = {"type": "image_url", "image_url": {"url": "u", "detail": "high"}}
    assert read_message({"role": "user", "content": [*parts, fine]}, "m").content == (
        "See",
        ImagePart(url="u"),
        ImagePart(url="u", detail="high"),
    )


def test_arguments_are_kept_as_they_were_written() -> None:
    assert read_tool_call({"id": "c", "name": "f", "arguments": '{"b":1,  "a":2}'}, "c").arguments == '{"b":1,  "a":2}'


def test_a_tool_definition_plain_and_in_the_form_of_openai() -> None:
    plain = {"name": "read", "description": "Reads.", "parameters": {"type": "object"}, "strict": True}
    wanted = ToolDefinition(name="read", description="Reads.", parameters={"type": "object"}, strict=True)
    assert read_tool_definition(plain, "t") == wanted
    assert read_tool_definition({"type": "function", "function": plain}, "t") == wanted
