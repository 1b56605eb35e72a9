"""Tell which tool calls load a skill: instructions from the host for one kind of work, which the model continues to need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.compaction.planning.file_calls import SERVER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

SKILL_TOOLS = frozenset(
    {"skill", "load_skill", "use_skill", "invoke_skill", "activate_skill", "read_skill"}
)
SKILL_ARGUMENTS = ("skill", "name", "command", "skill_name")


def is_skill_tool(tool: str) -> bool:
    """Return whether a tool loads skills, by its name in any case, with or without the prefix of an MCP server.

    >>> is_skill_tool("mcp__host__Load_Skill")
    True
    """
    return SERVER_PREFIX.split(tool)[-1].lower() in SKILL_TOOLS


def find_skill_name(tool: str, arguments: Mapping[str, object]) -> str | None:
    """Return the name of the skill that a tool call loads, or None for any other call.

    >>> find_skill_name("Skill", {"command": "pdf"})
    'pdf'
    """
    if not is_skill_tool(tool):
        return None
    return next(
        (
            text.strip()
            for name in SKILL_ARGUMENTS
            if isinstance(text := arguments.get(name), str) and text.strip()
        ),
        None,
    )
