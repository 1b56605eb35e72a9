from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.messages import ToolDefinition
from promptkit.tokens.tool_schemas import (
    MAX_DEPTH,
    count_tool_choice,
    format_declarations,
    has_known_keywords,
)

if TYPE_CHECKING:
    from promptkit.messages import Json

TOOL = ToolDefinition(
    name="book",
    description="Books a room.\n\nOnce.",
    parameters={
        "type": "object",
        "properties": {
            "guests": {
                "type": "array",
                "description": "Who comes",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "description": "In full"}},
                    "required": ["name"],
                },
            },
            "kind": {"type": "string", "enum": ["single", "double"]},
            "price": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "floor": {"type": ["integer", "string"]},
            "tags": {"type": "array"},
        },
        "required": ["guests"],
    },
)


def test_tools_keep_every_description() -> None:
    assert format_declarations([TOOL], "tools") == (
        "# Tools\n\n## functions\n\nnamespace functions {\n\n// Books a room.\n//\n// Once.\ntype book = (_: {\n// Who comes\n"
        "guests: Array<\n{\n// In full\nname: string,\n}\n>,\n"
        'kind?: "single" | "double",\nprice?: number | null,\nfloor?: number | string,\ntags?: any[],\n}) => any;\n\n} // namespace functions\n'
    )


def test_functions_indent_and_keep_the_outer_descriptions() -> None:
    text = format_declarations([TOOL], "functions")
    assert text.startswith(
        "namespace functions {\n\n// Books a room.\n\nOnce.\ntype book = (_: {\n// Who comes\nguests: {\n  name: string,\n}[],\n"
    )
    assert text.endswith("}) => any;\n\n} // namespace functions")


def test_a_tool_without_arguments() -> None:
    assert "type now = () => any;" in format_declarations([ToolDefinition(name="now")], "tools")


def test_values_are_written_as_they_are_whatever_their_script() -> None:
    tool = ToolDefinition(
        name="cook", parameters={"type": "object", "properties": {"taste": {"enum": ["süß", "辣"]}}}
    )
    assert 'taste?: "süß" | "辣",' in format_declarations([tool], "tools")


def test_a_schema_of_any_depth_is_written() -> None:
    schema: Json = {"type": "string"}
    for _ in range(5_000):
        schema = (
            {"type": "object", "properties": {"a": schema, "b": {"anyOf": [schema]}}}
            if _ < 8
            else {"type": "array", "items": schema}
        )
    tool = ToolDefinition(name="deep", parameters={"type": "object", "properties": {"a": schema}})
    assert format_declarations([tool], "tools").count("Array<") < MAX_DEPTH
    assert not has_known_keywords(tool)


def test_alternatives_of_any_depth_are_written() -> None:
    schema: Json = {"type": "string"}
    for _ in range(5_000):
        schema = {"anyOf": [schema, {"type": "null"}]}
    tool = ToolDefinition(name="deep", parameters={"type": "object", "properties": {"a": schema}})
    assert format_declarations([tool], "tools").count("null") < MAX_DEPTH


def test_a_choice_that_names_no_tool_costs_nothing() -> None:
    assert [
        count_tool_choice(choice, len) for choice in ("auto", {"a": 1}, {"function": "read"})
    ] == [0, 0, 0]


def test_only_what_was_billed_is_plain() -> None:
    assert has_known_keywords(TOOL)
    assert has_known_keywords(ToolDefinition(name="now"))
    odds: list[Json] = [
        {"$ref": "#/$defs/a"},
        {"type": "string", "default": "a"},
        {"type": "array", "items": {"type": "string", "minLength": 1}},
    ]
    for odd in odds:
        assert not has_known_keywords(
            ToolDefinition(name="odd", parameters={"type": "object", "properties": {"a": odd}})
        )
