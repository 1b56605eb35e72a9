"""Tools as the model reads them: OpenAI writes their schemas as TypeScript declarations, in two dialects.

The declarations of `functions` and of `tools` differ in how nested objects are written. Both were worked out from billed requests:
https://github.com/hmarr/openai-chat-tokens (`functions`), https://github.com/n0isy/openai-tokens-count (`tools`), both MIT.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from promptkit.messages import Json, ToolDefinition

__all__ = ["MAX_LEVEL", "Dialect", "declarations", "is_plain"]

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
