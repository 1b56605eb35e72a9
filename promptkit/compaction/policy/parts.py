"""The tokens of a request by part: instructions, tools, summary, messages and tool results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from promptkit.messages import Message
    from promptkit.transcript.log.view import ViewItem

SUMMARY_KINDS = frozenset({"summary", "replacement", "branch_summary"})
"""The kinds of view items that show a summary, or stand beside it in place of earlier messages."""


@attrs.frozen(kw_only=True)
class UsageByPart:
    """The tokens of a request by part. Each token is in exactly one part."""

    system: int = 0
    """The instructions, and the framing of the request."""
    tools: int = 0
    """The tool definitions."""
    summary: int = 0
    """The summary, and the messages that a checkpoint shows beside it."""
    messages: int = 0
    """The messages of the user and of the model, tool calls included."""
    results: int = 0
    """The tool results."""

    @property
    def total(self) -> int:
        """All parts together."""
        return self.system + self.tools + self.summary + self.messages + self.results

    def __add__(self, other: UsageByPart) -> UsageByPart:
        return UsageByPart(
            system=self.system + other.system,
            tools=self.tools + other.tools,
            summary=self.summary + other.summary,
            messages=self.messages + other.messages,
            results=self.results + other.results,
        )


def count_parts(
    messages: Iterable[Message], summary_ids: Collection[int], count: Callable[[Message], int]
) -> UsageByPart:
    """Sum up the tokens of the messages of a conversation by part.

    Args:
        messages: The messages.
        summary_ids: The identities (`id`) of those that belong to a summary.
        count: Counts the tokens of a message.

    Returns:
        The sizes, without instructions and tools.
    """
    system = summary = others = results = 0
    for message in messages:
        tokens = count(message)
        if id(message) in summary_ids:
            summary += tokens
        elif message.role == "tool":
            results += tokens
        elif message.role == "system":
            system += tokens
        else:
            others += tokens
    return UsageByPart(system=system, summary=summary, messages=others, results=results)


def find_summary_ids(items: Iterable[ViewItem]) -> frozenset[int]:
    """Return the identities of the messages of a view that belong to a summary."""
    return frozenset(id(item.message) for item in items if item.kind in SUMMARY_KINDS)
