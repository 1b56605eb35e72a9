"""What tools cost: their definitions, a forced choice, tool calls and tool results, for one way of counting text.

OpenAI writes the schemas of tools into the prompt as TypeScript declarations. The declarations of
`functions` and of `tools` differ in how they write nested objects. Both were worked out from billed
requests: https://github.com/hmarr/openai-chat-tokens (`functions`),
https://github.com/n0isy/openai-tokens-count (`tools`), both MIT. The other figures are fitted to
the billed requests of these two projects and of the OpenAI cookbook ("How to count tokens with
tiktoken"), and meet all of them: definitions, choices, messages with one call, and the one with
two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

import attrs

from promptkit.messages import Json, ToolCall, ToolDefinition
from promptkit.tokens.tokenizer import Count

Dialect: TypeAlias = Literal["functions", "tools"]
"""The way in which declarations are written: for the older `functions` of a request, or for its
`tools`."""

Counter: TypeAlias = Callable[[str], int]

SYSTEM_DISCOUNT = 4
"""Tokens that definitions cost less beside a system message: they stand in one, and its framing is
needed only once."""

MAX_DEPTH = 64
"""Schemas that nest deeper are declared as `any` from there on: a prompt must not depend on a
recursion limit."""

_DEFINITIONS: Mapping[Dialect, int] = {"functions": 9, "tools": 2}
# the framing of a message with a call, and what names the tool in the call and in its result
_CALL = 10
_PARALLEL = 9  # one billed request with two calls is known; more are taken to cost as much each
_NO_CHOICE = 1
_CHOICE = 4


def count_definitions(
    tools: Sequence[ToolDefinition], count: Counter, dialect: Dialect = "tools"
) -> Count:
    """Count the tokens of tool definitions, without a system message.

    The count is exact for schemas with the keywords that the fitted requests have. Others, such as
    `$ref`, cost at least what is known of them and at least their JSON, so that the estimate is
    rather too high.

    Args:
        tools: The tools that a request offers.
        count: Counts the tokens of a text.
        dialect: The way in which the declarations are written.
    """
    if not tools:
        return Count(0)
    tokens = count(format_declarations(tools, dialect)) + _DEFINITIONS[dialect]
    odd = [tool for tool in tools if not has_known_keywords(tool)]
    tokens += sum(
        max(
            0,
            count(
                json.dumps(
                    [tool.name, tool.description, tool.parameters], ensure_ascii=False, default=str
                )
            )
            - count(format_declarations([tool], dialect)),
        )
        for tool in odd
    )
    return Count(tokens, exact=not odd)


def count_tool_choice(choice: Json, count: Counter) -> int:
    """Count the tokens of `tool_choice` or `function_call`: `"none"`, `"auto"`, or a mapping that names a tool."""
    if isinstance(choice, Mapping):
        inner = choice.get("function", choice)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        return _CHOICE + count(name) if isinstance(name, str) else 0
    return _NO_CHOICE if choice == "none" else 0


def count_line_break(text: str, count: Counter) -> int:
    r"""Count the line break that OpenAI puts between the first system message and the tool definitions: 0 or 1 token."""
    return count(f"{text}\n") - count(text)


def count_tool_calls(calls: Sequence[ToolCall], count: Counter) -> int:
    """Count the tokens of a message that has these tool calls and no text, its framing included.

    The prompt holds arguments as compact JSON. The count is exact for one call.
    """
    tokens = _PARALLEL if len(calls) > 1 else 0
    for call in calls:
        tokens += _CALL + 2 * count(call.name) + count(compact_arguments(call.arguments))
    return tokens


def compact_arguments(arguments: str) -> str:
    """Write the arguments of a tool call as the prompt holds them: as compact JSON, or as they are if they are no JSON."""
    return (_compact_short if len(arguments) <= _SHORT else _compact_long)(arguments)


_read = json.JSONDecoder().raw_decode
write_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _rewrite(arguments: str) -> str:
    text = arguments.strip(" \t\n\r")  # faster than `decode`, which matches white space
    try:
        value, end = _read(text)
        return write_compact(value) if end == len(text) else arguments
    except (ValueError, RecursionError):
        return arguments


# characters: the arguments of a call are counted in every request, and most are short
_SHORT = 4_096
_compact_short = lru_cache(maxsize=4_096)(_rewrite)
_compact_long = lru_cache(maxsize=16)(_rewrite)

_TYPES = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
}


def format_declarations(tools: Iterable[ToolDefinition], dialect: Dialect) -> str:
    """Write tools as the prompt of a request holds them."""
    heading = "# Tools\n\n## functions\n\n" if dialect == "tools" else ""
    declared = "".join(map(_Declaration(dialect).format_tool, tools))
    return f"{heading}namespace functions {{\n\n{declared}}} // namespace functions" + (
        "\n" if dialect == "tools" else ""
    )


@attrs.frozen
class _Declaration:
    dialect: Dialect

    def format_tool(self, tool: ToolDefinition) -> str:
        properties = "".join(
            f"{line}\n" for line in self.format_properties(read_object(tool.parameters), 0)
        )
        comment = "".join(f"{line}\n" for line in self.format_comment(tool.description))
        arguments = f"_: {{\n{properties}}}" if properties else ""
        return f"{comment}type {tool.name} = ({arguments}) => any;\n\n"

    def format_comment(self, text: object) -> list[str]:
        if not isinstance(text, str) or not text:
            return []
        lines = text.split("\n") if self.dialect == "tools" else [text]
        return [f"// {line}".rstrip(" ") for line in lines]

    def format_properties(
        self, schema: Mapping[str, Json], depth: int, level: int = 0
    ) -> Iterator[str]:
        required = schema.get("required")
        needed = (
            {item for item in required if isinstance(item, str)}
            if isinstance(required, Sequence)
            else set[str]()
        )
        for name, value in read_object(schema.get("properties")).items():
            prop = read_object(value)
            # In `functions` only the outermost properties keep their descriptions, and the others
            # are indented.
            indent = "  " * depth if self.dialect == "functions" else ""
            if depth == 0 or self.dialect == "tools":
                yield from self.format_comment(prop.get("description"))
            yield f"{indent}{name}{'' if name in needed else '?'}: {self.format_type(prop, depth, level + 1)},"

    def format_type(self, schema: Mapping[str, Json], depth: int, level: int) -> str:
        if level >= MAX_DEPTH:
            return "any"
        options = _options(schema)
        if options:
            return " | ".join(self.format_type(option, depth, level + 1) for option in options)
        if isinstance(values := schema.get("enum"), Sequence):
            return " | ".join(json.dumps(value, ensure_ascii=False) for value in values)
        match schema.get("type"):
            case "object":
                return "\n".join(("{", *self.format_properties(schema, depth + 1, level), "}"))
            case "array":
                return self.format_array(read_object(schema.get("items")), depth, level)
            case kind:
                return _TYPES.get(str(kind), "any")

    def format_array(self, items: Mapping[str, Json], depth: int, level: int) -> str:
        if not items:
            return "any[]"
        inner = self.format_type(items, depth, level + 1)
        is_long = self.dialect == "tools" and items.get("type") in {"object", "array"}
        return f"Array<\n{inner}\n>" if is_long else f"{inner}[]"


def _options(schema: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return the alternatives of a schema: those of `anyOf`, or one for each of several types."""
    alternatives = schema.get("anyOf")
    if isinstance(alternatives, Sequence):
        return [read_object(option) for option in alternatives]
    kinds = schema.get("type")
    return [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else []


def read_object(value: Json) -> Mapping[str, Json]:
    """Return a JSON object, or an empty one in place of any other value."""
    return value if isinstance(value, Mapping) else {}


# What the fitted requests had in their schemas. `const` and `additionalProperties` change nothing.
_PLAIN = frozenset(
    {
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "description",
        "anyOf",
        "const",
        "additionalProperties",
    }
)


def has_known_keywords(tool: ToolDefinition) -> bool:
    """Return whether a tool's schema holds only keywords whose declaration is known: no `$ref`, no `default`, no bounds."""
    pending: list[Json] = [tool.parameters]
    for _ in range(MAX_DEPTH):
        schemas = [read_object(schema) for schema in pending if schema]
        if not schemas:
            return True
        if any(not schema.keys() <= _PLAIN for schema in schemas):
            return False
        pending = []
        for schema in schemas:
            pending += read_object(schema.get("properties")).values()
            pending.append(schema.get("items"))
            pending += _options(schema) if "anyOf" in schema else ()
    return not any(pending)
