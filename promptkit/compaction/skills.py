"""Which skill a tool call invokes: the host's instructions for a kind of work, which the model goes on needing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["skill_of"]

TOOLS = frozenset({"skill", "load_skill", "use_skill", "invoke_skill"})
NAMES = ("skill", "name", "command", "skill_name")


def skill_of(tool: str, arguments: Mapping[str, object]) -> str | None:
    """The name of the skill that a call of a tool invokes; None for any other call.

    >>> skill_of("Skill", {"command": "pdf"})
    'pdf'
    """
    if tool.lower() not in TOOLS:
        return None
    return next((text.strip() for name in NAMES if isinstance(text := arguments.get(name), str) and text.strip()), None)
