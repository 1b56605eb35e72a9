"""Tools as the model reads them: OpenAI writes their schemas as TypeScript declarations, in two dialects.

The declarations of `functions` and of `tools` differ in how nested objects are written. Both were worked out from billed requests:
https://github.com/hmarr/openai-chat-tokens (`functions`), https://github.com/n0isy/openai-tokens-count (`tools`), both MIT.

What tools cost: their definitions, a forced choice, calls and results, for one way of counting text.

The figures are fitted to billed requests that others published (the two projects named in `declarations.py`; OpenAI cookbook,
"How to count tokens with tiktoken"), and meet all of those: definitions, choices, messages with one call, and the one with two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from promptkit.tokens.tokenizer import Count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from promptkit.messages import Json, ToolCall, ToolDefinition

__all__ = [
    "MAX_LEVEL",
    "SYSTEM_SAVES",
    "Dialect",
    "call_tokens",
    "choice_tokens",
    "declarations",
    "definition_tokens",
    "is_plain",
    "line_break",
]


Dialect: TypeAlias = Literal["functions", "tools"]

MAX_LEVEL = 64
"""Schemas that nest deeper are declared as `any` from there on: a prompt must not depend on a recursion limit."""

_NAMES = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def declarations(tools: Iterable[ToolDefinition], dialect: Dialect) -> str:
    """What stands in the prompt for the tools of a request."""
    heading = "# Tools\n\n## functions\n\n" if dialect == "tools" else ""
    written = "".join(_Writer(dialect).tool(tool) for tool in tools)
    return f"{heading}namespace functions {{\n\n{written}}} // namespace functions" + ("\n" if dialect == "tools" else "")


@attrs.frozen
class _Writer:
    dialect: Dialect

    def tool(self, tool: ToolDefinition) -> str:
        schema = _mapping(tool.parameters)
        properties = "".join(f"{line}\n" for line in self.properties(schema, 0))
        comment = "".join(f"{line}\n" for line in self.comment(tool.description))
        arguments = f"_: {{\n{properties}}}" if properties else ""
        return f"{comment}type {tool.name} = ({arguments}) => any;\n\n"

    def comment(self, text: object) -> list[str]:
        if not isinstance(text, str) or not text:
            return []
        lines = text.split("\n") if self.dialect == "tools" else [text]
        return [f"// {line}".rstrip(" ") for line in lines]

    def properties(self, schema: Mapping[str, Json], depth: int, level: int = 0) -> Iterator[str]:
        required = schema.get("required")
        needed = {item for item in required if isinstance(item, str)} if isinstance(required, Sequence) else set[str]()
        for name, value in _mapping(schema.get("properties")).items():
            prop = _mapping(value)
            # In `functions` only the outermost properties keep their descriptions, and the others are indented.
            indent = "  " * depth if self.dialect == "functions" else ""
            if depth == 0 or self.dialect == "tools":
                yield from self.comment(prop.get("description"))
            yield f"{indent}{name}{'' if name in needed else '?'}: {self.type(prop, depth, level + 1)},"

    def type(self, schema: Mapping[str, Json], depth: int, level: int) -> str:
        if level >= MAX_LEVEL:
            return "any"
        options = _options(schema)
        if options:
            return " | ".join(self.type(option, depth, level + 1) for option in options)
        if isinstance(values := schema.get("enum"), Sequence):
            return " | ".join(json.dumps(value, ensure_ascii=False) for value in values)
        kind = schema.get("type")
        if kind == "object":
            return "\n".join(("{", *self.properties(schema, depth + 1, level), "}"))
        if kind == "array":
            return self.array(_mapping(schema.get("items")), depth, level)
        return _NAMES.get(str(kind), "any")

    def array(self, items: Mapping[str, Json], depth: int, level: int) -> str:
        if not items:
            return "any[]"
        inner = self.type(items, depth, level + 1)
        if self.dialect == "tools" and items.get("type") in {"object", "array"}:
            return f"Array<\n{inner}\n>"
        return f"{inner}[]"


def _options(schema: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """The alternatives of a schema: those of `anyOf`, or one for each of several types."""
    alternatives = schema.get("anyOf")
    if isinstance(alternatives, Sequence):
        return [_mapping(option) for option in alternatives]
    kinds = schema.get("type")
    return [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else []


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


# What the fitted requests had in their schemas. `const` and `additionalProperties` change nothing.
_PLAIN = frozenset({"type", "properties", "required", "items", "enum", "description", "anyOf", "const", "additionalProperties"})


def is_plain(tool: ToolDefinition) -> bool:
    """Whether a schema holds only what is known to be written as here: no `$ref`, no `default`, no bounds."""
    left: list[Json] = [tool.parameters]
    level = 0
    while left and level < MAX_LEVEL:
        level += 1
        schemas = [_mapping(schema) for schema in left]
        if any(not schema.keys() <= _PLAIN for schema in schemas):
            return False
        left = []
        for schema in schemas:
            left += _mapping(schema.get("properties")).values()
            left.append(schema.get("items"))
            left += _options(schema) if "anyOf" in schema else ()
    return not left or not any(left)


Counter: TypeAlias = Callable[[str], int]

SYSTEM_SAVES = 4
"""Definitions stand in the system message; if the request has one anyway, its framing is not needed twice."""

_DEFINITIONS: Mapping[Dialect, int] = {"functions": 9, "tools": 2}
_CALL = 10  # the framing of a message with a call, and what names the tool in the call and in its result
_PARALLEL = 9  # one billed request with two calls is known; more are taken to cost as much apiece
_NO_CHOICE = 1
_CHOICE = 4


def definition_tokens(tools: Sequence[ToolDefinition], count: Counter, dialect: Dialect = "tools") -> Count:
    """The tokens of tool definitions, without a system message.

    Exact for schemas of the keywords that the fitted requests have. Others, such as `$ref`, cost at least what is known of them
    and at least their JSON, so that the estimate is rather too high.
    """
    if not tools:
        return Count(0)
    tokens = count(declarations(tools, dialect)) + _DEFINITIONS[dialect]
    odd = [tool for tool in tools if not is_plain(tool)]
    tokens += sum(max(0, count(_json(tool)) - count(declarations([tool], dialect))) for tool in odd)
    return Count(tokens, exact=not odd)


def _json(tool: ToolDefinition) -> str:
    return json.dumps([tool.name, tool.description, tool.parameters], ensure_ascii=False, default=str)


def choice_tokens(choice: Json, count: Counter) -> int:
    """The tokens of `tool_choice` or `function_call`: `"none"`, `"auto"`, or a mapping that names a tool."""
    if isinstance(choice, Mapping):
        inner = choice.get("function", choice)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        return _CHOICE + count(name) if isinstance(name, str) else 0
    return _NO_CHOICE if choice == "none" else 0


def line_break(text: str, count: Counter) -> int:
    r"""What it costs that definitions stand behind the text of the first system message: its `"\n"`, often one token, often none."""
    return count(f"{text}\n") - count(text)


def call_tokens(calls: Sequence[ToolCall], count: Counter) -> Count:
    """The tokens of a message that has these calls and no text, its framing included.

    Arguments stand in the prompt as compact JSON. Exact for one call.
    """
    tokens = sum(_CALL + 2 * count(call.name) + count(_compact(call.arguments)) for call in calls)
    return Count(tokens + _PARALLEL if len(calls) > 1 else tokens, exact=len(calls) <= 1)


def _compact(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments
