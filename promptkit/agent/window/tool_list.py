"""The tools of a conversation that change: when requests offer others, and what the model is told before."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import attrs

from promptkit.messages import Message, ToolDefinition
from promptkit.transcript import Checkpoint, CustomMessage, Entry, MessageEntry, Reset, ViewItem

TOOLS_MESSAGE = "tools"
"""The name of the messages that tell the model of changed tools."""


@attrs.frozen(kw_only=True)
class ToolList:
    """The tools that requests offer, and those that the program has given since."""

    offered: tuple[ToolDefinition, ...]
    given: tuple[ToolDefinition, ...]
    announced: tuple[ToolDefinition, ...]
    """The tools that the model knows of."""
    announcement: str | None = None
    """The entry that told the model of tools that are not offered. None: there are none."""
    sent: bool = False
    """Whether a request of this conversation has offered them."""
    checkpoint_id: str | None = None
    """The checkpoint of the last request."""

    @classmethod
    def open(
        cls, path: Sequence[Entry], given: tuple[ToolDefinition, ...], *, shows_calls: bool
    ) -> ToolList:
        """Return the list of a conversation: the tools that its last reply was offered, as far as it was not compacted since.

        A request that shows calls needs tools: without given ones, those of before the checkpoint.
        """
        announced, announcement = None, None
        for entry in reversed(path):
            payload = entry.payload
            if not isinstance(payload, (MessageEntry, CustomMessage)):
                if isinstance(payload, Checkpoint | Reset) and (given or not shows_calls):
                    break
                continue
            if payload.tools is None:
                continue
            tools = given if _describe(payload.tools) == _describe(given) else payload.tools
            if isinstance(payload, MessageEntry):
                return cls(
                    offered=tools,
                    given=given,
                    announced=tools if announced is None else announced,
                    announcement=announcement,
                    sent=True,
                )
            if announced is None:
                announced, announcement = tools, entry.id
        return cls(offered=given, given=given, announced=given)

    def offer(self) -> ToolList:
        """Return the list from which on requests offer the given tools."""
        return attrs.evolve(
            self, offered=self.given, announced=self.given, announcement=None, sent=True
        )


def _describe(tools: Sequence[ToolDefinition]) -> str:
    return json.dumps([attrs.asdict(tool) for tool in tools], default=str)


def describe_tool_changes(before: Sequence[ToolDefinition], after: Sequence[ToolDefinition]) -> str:
    """Describe how a list of tools differs from an earlier one: `added search; removed read_file`."""
    added, removed, changed = _compare(before, after)
    changes = {
        "added": [tool.name for tool in added],
        "removed": removed,
        "changed": [tool.name for tool in changed],
    }
    return (
        "; ".join(f"{verb} {', '.join(names)}" for verb, names in changes.items() if names)
        or "other order"
    )


def _compare(
    before: Sequence[ToolDefinition], after: Sequence[ToolDefinition]
) -> tuple[list[ToolDefinition], list[str], list[ToolDefinition]]:
    """Return the tools that are new, the names of those that are gone, and those that are defined otherwise."""
    old, new = ({tool.name: tool for tool in each} for each in (before, after))
    return (
        [tool for name, tool in new.items() if name not in old],
        [name for name in old if name not in new],
        [tool for name, tool in new.items() if name in old and old[name] != tool],
    )


def build_announcement(
    before: Sequence[ToolDefinition], after: Sequence[ToolDefinition]
) -> CustomMessage | None:
    """Build the message that tells the model of changed tools. None if only their order has changed."""
    added, removed, changed = _compare(before, after)
    lines = [
        f"{tool.name}: {tool.description or ''}\nArguments: {json.dumps(tool.parameters or {}, ensure_ascii=False)}"
        for tool in (*added, *changed)
    ]
    if lines:
        lines.insert(0, "From now on there are these tools, too. Call them by their names:")
    if removed:
        lines.append(f"From now on there is no tool {', '.join(removed)}: do not call it.")
    return (
        CustomMessage(
            name=TOOLS_MESSAGE,
            message=Message(
                role="user", content=("\n".join(("<reminder>", *lines, "</reminder>")),)
            ),
            tools=tuple(after),
        )
        if lines
        else None
    )


def find_asked(
    items: Sequence[ViewItem], announcement: str | None, names: Sequence[str]
) -> str | None:
    """Return the first of these tools that a message of the user or the model asks for, behind their announcement; None if there is none.

    A call is no such message: it can be run although requests do not offer the tool. A name of one
    word must be in backticks.
    """
    at = next((at for at, item in enumerate(items) if item.entry_id == announcement), len(items))
    texts = [item.message.text for item in items[at + 1 :] if item.message.role != "tool"]
    patterns = {
        name: f"`{name}`"
        if re.fullmatch("[A-Za-z]+", name)
        else rf"(?<![\w-]){re.escape(name)}(?![\w-])"
        for name in names
    }
    return next(
        (
            name
            for name, pattern in patterns.items()
            if any(re.search(pattern, text) for text in texts)
        ),
        None,
    )
