"""Elements that arrange others: priority scopes, limits, alternatives."""

from __future__ import annotations

from collections.abc import Hashable

from promptkit.element import Child, PromptElement, component

__all__ = [
    "CacheBreakpoint",
    "Chunk",
    "First",
    "Group",
    "IfEmpty",
    "Isolate",
    "KeepWith",
    "LegacyPrioritization",
    "PrioritizedList",
    "Reserve",
    "TokenLimit",
]


@component
class Group(PromptElement):
    """A container with a priority scope of its own: its children compete with each other, it competes with its siblings.

    >>> Group(priority=5)[TextChunk(priority=1)["a"], TextChunk(priority=2)["b"]]
    """


@component
class Chunk(PromptElement):
    """Children that are kept or pruned as a whole.

    >>> Chunk(priority=5)[TextChunk()["question"], TextChunk()["answer"]]
    """


@component
class PrioritizedList(PromptElement):
    """Children with priorities by position: the last is kept longest, with `descending` the first. Strings become TextChunks.

    >>> PrioritizedList(priority=10)["oldest", "older", "newest"]
    """

    descending: bool = False
    """The first child is kept longest."""


@component
class LegacyPrioritization(PromptElement):
    """All text below competes by its own priority alone, whatever container or Chunk it stands in.

    >>> LegacyPrioritization()[UserMessage(priority=1)[TextChunk(priority=9)["a"], TextChunk(priority=2)["b"]]]
    """


@component
class TokenLimit(PromptElement):
    """A hard cap on what a subtree may cost.

    The subtree is pruned to the cap before the prompt is pruned to the budget, by the same removal order.

    >>> TokenLimit(max_tokens=2_000)[FileTree(root=".")]
    """

    max_tokens: int
    """Tokens that may survive in this subtree, framing of whole messages included."""


@component
class KeepWith(PromptElement):
    """Members of one group leave together: when one has been pruned completely, so are the others.

    >>> KeepWith(group="q1", priority=1)[UserMessage()["Why?"]], KeepWith(group="q1")[AssistantMessage()["Because."]]
    """

    group: Hashable
    """Any value; equal values within one render are one group."""


@component
class IfEmpty(PromptElement):
    """The children, or `alt` where they rendered nothing. Decided once, before pruning.

    >>> IfEmpty(alt="No open files.")[OpenFiles()]
    """

    alt: Child = None
    """Rendered first, so that it counts when the children are sized."""


@component
class First(PromptElement):
    """The first child that fits its share, and the last child where none does: end with None to render nothing instead.

    >>> First()[whole_file, outline, file_name]
    """


@component
class Reserve(PromptElement):
    """Room that stays free, for the reply or for messages to come. Never pruned; reported as `rendered.reserved`.

    >>> Reserve(tokens=1_000)
    """

    tokens: int
    """How many."""


@component
class Isolate(PromptElement):
    """A subtree with a budget of its own: pruned to it apart from the rest, remembered, and then kept or pruned as a whole.

    >>> Isolate(tokens=1_500, priority=50)[Examples(query=query)]
    """

    tokens: int
    """The subtree's budget."""


@component
class CacheBreakpoint(PromptElement):
    """The end of a prefix that the provider should cache; nothing before the last one is pruned. A direct child of a message.

    >>> SystemMessage()["Long instructions", CacheBreakpoint(kind="ephemeral")]
    """

    kind: str | None = None
    """The provider's cache type."""

    ttl: str | None = None
    """The provider's life time, such as `5m` or `1h`."""
