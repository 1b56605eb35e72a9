"""Layout elements: priority scopes, token limits, alternatives, cache breakpoints."""

from __future__ import annotations

from collections.abc import Hashable

import attrs

from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement
from promptkit.sizes import read_tokens


@component
class Group(PromptElement):
    """A container with a priority scope of its own: its children compete with each other, and it competes with its siblings.

    >>> Group(priority=5)[TextChunk(priority=1)["a"], TextChunk(priority=2)["b"]]
    """


@component
class Chunk(PromptElement):
    """Children that are kept or pruned as a whole.

    >>> Chunk(priority=5)[TextChunk()["question"], TextChunk()["answer"]]
    """


@component
class PrioritizedList(PromptElement):
    """Children with priorities by position: the last child is kept longest.

    Strings become TextChunks.

    >>> PrioritizedList(priority=10)["oldest", "older", "newest"]
    """

    descending: bool = False
    """Whether the first child is kept longest instead of the last."""


@component
class LegacyPrioritization(PromptElement):
    """A subtree whose texts compete only by their own priorities, regardless of the containers and Chunks around them.

    >>> LegacyPrioritization()[UserMessage(priority=1)[TextChunk(priority=9)["a"], TextChunk(priority=2)["b"]]]
    """


@component
class TokenLimit(PromptElement):
    """A hard limit on the tokens of a subtree.

    The subtree is pruned to the limit before the prompt is pruned to the budget, in the same
    removal order.

    >>> TokenLimit(max_tokens=2_000)[FileTree(root=".")]
    """

    max_tokens: int | str = attrs.field(converter=read_tokens)
    """The tokens that may stay in this subtree, including the framing of whole messages."""


class KeepGroup:
    """A group of `KeepWith.group()`. It equals only itself."""


@component
class KeepWith(PromptElement):
    """A member of a group that is pruned together: when one member is pruned completely, so are the others.

    >>> KeepWith(group="q1", priority=1)[UserMessage()["Why?"]], KeepWith(group="q1")[AssistantMessage()["Because."]]
    """

    key: Hashable = attrs.field(alias="group")
    """The group: any hashable value. Equal values that one component writes are the same group, and
    each instance of the component has its own. A group of `KeepWith.group()` may be passed on: it is
    one group in the whole prompt."""

    @staticmethod
    def group() -> KeepGroup:
        """Return a new group, for members that several components write.

        Wherever a prompt contains this object, it is the same group. A component that makes one in
        its `render` makes another one at each place where it is rendered.
        """
        return KeepGroup()


@component
class IfEmpty(PromptElement):
    """The children, or `alt` if the children render nothing.

    The choice is made once, before pruning.

    >>> IfEmpty(alt="No open files.")[OpenFiles()]
    """

    alt: Child = None
    """The alternative. It is rendered first, so it is counted before the children are sized."""


@component
class First(PromptElement):
    """The first child that fits its share, or the last child if none fits.

    End with None to render nothing in that case.

    >>> First()[whole_file, outline, file_name]
    """


@component
class Reserve(PromptElement):
    """Tokens that stay free, for the reply or for later messages.

    Never pruned; reported in `rendered.reserved`.

    In a message it is no content: when all else in the message is pruned, the message is, too, and
    the tokens stay free.

    >>> Reserve(tokens=1_000)
    """

    tokens: int | str = attrs.field(converter=read_tokens)
    """The number of tokens."""


@component
class Isolate(PromptElement):
    """A subtree with a budget of its own: pruned to that budget separately, and then kept or pruned as a whole.

    >>> Isolate(tokens=1_500, priority=50)[Examples(query=query)]
    """

    tokens: int | str = attrs.field(converter=read_tokens)
    """The budget of the subtree."""


@component
class CacheBreakpoint(PromptElement):
    """The end of a prefix that the provider should put into its prompt cache.

    It must be a direct child of a message.

    Nothing before the last cache breakpoint is pruned.

    >>> SystemMessage()["Long instructions", CacheBreakpoint(kind="ephemeral")]
    """

    kind: str | None = None
    """The provider's cache type, such as `ephemeral`."""

    ttl: str | None = None
    """The time to live in the cache, such as `5m` or `1h`."""
