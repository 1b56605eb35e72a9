"""JSON values become what the component's annotations say.

Messages and tools in the forms that people have them in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import click
import pytest

from promptkit.cli.input.target import convert_prop, resolve_hints
from promptkit.elements.component import component
from promptkit.elements.element import PromptElement
from promptkit.messages import ImagePart, Message, ToolCall, ToolDefinition

if TYPE_CHECKING:
    from decimal import Decimal  # noqa: TC004  # a name that is missing at run time is what is tested


@attrs.frozen(kw_only=True)
class Turn:
    request: Message
    calls: tuple[ToolCall, ...] = ()
    note: str = ""


@component
class Chat(PromptElement):
    history: Sequence[Message]
    names: Sequence[str] = ()
    notes: list[str] = attrs.field(factory=list[str])
    latest: Message | None = None
    tools: Mapping[str, ToolDefinition] = attrs.field(factory=dict[str, ToolDefinition])
    turns: Sequence[Turn] = ()
    price: Decimal | None = None


HINTS = resolve_hints(Chat)


def made(name: str, value: object) -> object:
    return convert_prop(value, HINTS[name], name)


def message(written: object) -> object:
    return convert_prop(written, Message, "m")


def definition(written: object) -> object:
    return convert_prop(written, ToolDefinition, "t")


def test_a_list_of_objects_becomes_messages_where_messages_are_wanted() -> None:
    assert made(
        "history", [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}]
    ) == (
        Message(role="user", content=("Hi",)),
        Message(role="assistant"),
    )


def test_an_optional_message_is_converted_too() -> None:
    assert made("latest", {"role": "system", "content": "Hi"}) == Message(
        role="system", content=("Hi",)
    )
    assert made("latest", None) is None


def test_a_list_becomes_a_tuple_unless_a_list_is_wanted() -> None:
    assert made("names", ["a", "b"]) == ("a", "b")
    assert made("notes", ["a", "b"]) == ["a", "b"]


def test_values_of_a_mapping_are_converted() -> None:
    assert made("tools", {"read": {"name": "read"}}) == {"read": ToolDefinition(name="read")}


def test_a_frozen_value_of_the_users_own_is_made_of_its_fields() -> None:
    turn = {
        "request": {"role": "user", "content": "Hi"},
        "calls": [{"id": "c1", "name": "read", "arguments": {"path": "a"}}],
    }
    assert made("turns", [turn]) == (
        Turn(
            request=Message(role="user", content=("Hi",)),
            calls=(ToolCall(id="c1", name="read", arguments='{"path": "a"}'),),
        ),
    )


def test_a_name_for_type_checkers_only_does_not_hide_the_other_annotations() -> None:
    assert "history" in HINTS
    assert made("price", "1.50") == "1.50"


def test_what_no_annotation_speaks_about_stays_as_it_is() -> None:
    assert convert_prop({"a": [1]}, None, "x") == {"a": [1]}
    assert convert_prop([1], object, "x") == [1]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            [{"role": "robot"}],
            r"^history\[0\]: role must be 'system', .* not 'robot'\.$",
        ),
        (
            [{"role": "user"}, {"role": "user", "contents": "x"}],
            r"^history\[1\]: unknown field 'contents'\. Did you mean 'content'\? Use role, content",
        ),
        (
            [{"rol": "user"}],
            r"^history\[0\]: unknown field 'rol'\. Did you mean 'role'\? Use role, content",
        ),
        ([{"content": "Hi"}], r"^history\[0\].role: the field is missing\.$"),
        (
            [{"role": "user", "content": 5}],
            r"^history\[0\]: content must be a string, or a list .* not 5\.$",
        ),
        (
            [{"role": "user", "content": [{"type": "tool_use"}]}],
            r"^history\[0\]: a part of the type 'tool_use' cannot be content of a message",
        ),
        (
            [{"role": "assistant", "tool_calls": ["x"]}],
            r"^history\[0\]: a tool call must be a ToolCall.* not 'x'\.$",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"id": 1, "name": "f"}]}],
            r"^history\[0\].tool_calls\[0\]: id of ToolCall must be a string, not 1\.$",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(value: object, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        made("history", value)


def test_a_chat_message_with_calls_in_the_form_of_openai() -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "read", "arguments": '{"path": "a.py"}'},
    }
    assert message({"role": "assistant", "content": "I look.", "tool_calls": [call]}) == Message(
        role="assistant",
        content=("I look.",),
        tool_calls=(ToolCall(id="c1", name="read", arguments='{"path": "a.py"}'),),
    )


def test_a_tool_message() -> None:
    assert message({"role": "tool", "tool_call_id": "c1", "content": ""}) == Message(
        role="tool", tool_call_id="c1"
    )


def test_parts_of_a_content() -> None:
    parts = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "u"}}]
    fine = {"type": "image_url", "image_url": {"url": "u", "detail": "high"}}
    assert message({"role": "user", "content": [*parts, fine]}) == Message(
        role="user", content=("See", ImagePart(url="u"), ImagePart(url="u", detail="high"))
    )


def test_arguments_are_kept_as_they_were_written() -> None:
    arguments = '{"b":1,  "a":2}'
    assert convert_prop(
        {"id": "c", "name": "f", "arguments": arguments}, ToolCall, "c"
    ) == ToolCall(id="c", name="f", arguments=arguments)


def test_a_tool_definition_plain_and_in_the_form_of_openai() -> None:
    plain = {
        "name": "read",
        "description": "Reads.",
        "parameters": {"type": "object"},
        "strict": True,
    }
    wanted = ToolDefinition(
        name="read", description="Reads.", parameters={"type": "object"}, strict=True
    )
    assert definition(plain) == wanted
    assert definition({"type": "function", "function": plain}) == wanted
