from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from promptkit.messages import ToolDefinition
from promptkit.tokens.tool_schemas import (
    MAX_DEPTH,
    compact_arguments,
    count_definitions,
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


@pytest.mark.parametrize(("depth", "is_known"), [(62, True), (63, False)])
@pytest.mark.parametrize("form", ["array", "anyOf"])
def test_the_64th_level_of_a_schema_is_any_and_then_its_cost_is_an_estimate(
    form: str, depth: int, *, is_known: bool
) -> None:
    schema: Json = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema} if form == "array" else {"anyOf": [schema]}
    tool = ToolDefinition(name="deep", parameters={"type": "object", "properties": {"a": schema}})
    declared = format_declarations([tool], "tools")
    assert ("string" in declared, "any" in declared.replace("=> any", "")) == (
        is_known,
        not is_known,
    )
    assert has_known_keywords(tool) == is_known
    assert count_definitions([tool], len).exact == is_known


def test_no_tools_cost_nothing() -> None:
    assert count_definitions([], len) == (0, True)


def test_a_schema_with_an_unknown_keyword_costs_at_least_its_json() -> None:
    known = ToolDefinition(name="known", description="x")
    short = ToolDefinition(name="short", parameters={"$ref": "a"})
    long = ToolDefinition(name="long", parameters={"$ref": "#/$defs/a", "$defs": "辣 " * 100})
    text = json.dumps([long.name, None, long.parameters], ensure_ascii=False)
    more = len(text) - len(format_declarations([long], "tools"))
    assert more > 0
    plain = len(format_declarations([known, short, long], "tools")) + 2
    assert count_definitions([known, short, long], len) == (plain + more, False)


def test_arguments_are_compact_json_in_their_own_script_or_stay_as_they_are() -> None:
    assert compact_arguments('{ "taste": "\\u8fa3 süß" }') == '{"taste":"辣 süß"}'
    assert compact_arguments("taste: 辣") == "taste: 辣"


@pytest.mark.parametrize("description", ["", None, 5, ["x"]])
def test_a_description_that_says_nothing_or_is_no_text_is_not_written(description: Json) -> None:
    parameters: dict[str, Json] = {
        "properties": {"a": {"type": "string", "description": description}}
    }
    tool = ToolDefinition(name="odd", description="", parameters=parameters)
    assert "type odd = (_: {\na?: string,\n}) => any;" in format_declarations([tool], "tools")
    assert "//" not in format_declarations([tool], "tools").removesuffix("// namespace functions\n")


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
    every: dict[str, Json] = {
        "type": ["object", "array"],
        "properties": {},
        "required": [],
        "items": {},
        "enum": [1],
        "description": "x",
        "anyOf": [],
        "const": 1,
        "additionalProperties": False,
    }
    assert has_known_keywords(ToolDefinition(name="every", parameters=every))
    odds: list[Json] = [
        {"$ref": "#/$defs/a"},
        {"type": "string", "default": "a"},
        {"type": "array", "items": {"type": "string", "minLength": 1}},
        {"anyOf": [{"type": "string", "default": "a"}, {"type": "null"}]},
    ]
    for odd in odds:
        assert not has_known_keywords(
            ToolDefinition(name="odd", parameters={"type": "object", "properties": {"a": odd}})
        )
