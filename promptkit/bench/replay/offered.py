"""The tools that a recording says were offered, where it says so: every request pays for their definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from promptkit.messages import ToolDefinition
from promptkit.transcript.entries import Setting

if TYPE_CHECKING:
    from promptkit.messages import Json
    from promptkit.transcript.entries import Entry

__all__ = ["tools_in"]

TOOLS = "tools"


def tools_in(entry: Entry) -> tuple[ToolDefinition, ...]:
    """The definitions in a setting: one called `tools`, or one that has a field of that name; OpenAI's form or Anthropic's."""
    payload = entry.payload
    if not isinstance(payload, Setting):
        return ()
    value = payload.value
    if isinstance(value, Mapping):
        value = value.get(TOOLS)
    elif payload.name.rpartition(".")[2] != TOOLS:
        return ()
    return tuple(_definitions(value)) if isinstance(value, list) else ()


def _definitions(tools: list[Json]) -> Iterator[ToolDefinition]:
    for tool in tools:
        if not isinstance(tool, Mapping):
            continue
        function = tool.get("function", tool)
        if not isinstance(function, Mapping):
            continue
        name, description = function.get("name"), function.get("description")
        parameters = function.get("parameters", function.get("input_schema"))
        if isinstance(name, str):
            yield ToolDefinition(
                name=name,
                description=description if isinstance(description, str) else None,
                parameters=parameters if isinstance(parameters, Mapping) else None,
            )
