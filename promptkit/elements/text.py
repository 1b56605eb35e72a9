"""Text, and the elements that decide how much of it is shown."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import attrs

from promptkit.element import PromptElement, Sizing, component

__all__ = ["Expandable", "Tag", "Text", "TextChunk", "Truncate"]


@component
class Text(PromptElement):
    """Text in the flow of the line, as one piece with a priority of its own. Takes strings, References and Metadata.

    >>> UserMessage()["Fix it", Text(priority=1)[" (the one from yesterday)"], "."]
    """


@component
class TextChunk(PromptElement):
    r"""A paragraph: one piece that starts on a new line. Takes strings, References and Metadata.

    With `break_on` (a separator or a pattern) or `break_on_whitespace` it is cut to its share: pieces are added as long as
    the text fits, and what fits nothing leaves nothing.

    >>> TextChunk(priority=10, break_on="\n")[log]
    """

    break_on: str | re.Pattern[str] | None = None
    """Where the text may be cut: the separator stays at the start of the piece that follows it."""

    break_on_whitespace: bool = False
    """Cut between words."""


@component
class Tag(PromptElement):
    """A section between `<tag>` and `</tag>`, on lines of their own. It goes when its content has gone.

    Without children it is an empty-element tag. Attribute values are escaped as in XML; the content is not.

    >>> Tag(tag="file", attributes={"path": "a.py"})["print(1)"]
    """

    tag: str
    """The tag's name, such as `file`."""

    attributes: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Written in the order given."""


@component
class Truncate(PromptElement):
    r"""Text cut to its share of the budget, or to `tokens`, at line, grapheme and token boundaries; the marker is counted.

    >>> Truncate(keep="middle", ratio=0.4, marker="\n[… output cut …]\n")[output]
    """

    keep: Literal["head", "tail", "middle"] = "head"
    """What stays. `middle` keeps head and tail and cuts between them."""

    ratio: float = 0.4
    """For `middle`: the head's part of what stays, 0 to 1."""

    marker: str = "[…]"
    """Stands where text was cut."""

    tokens: int | None = None
    """How many tokens may stay. None: the element's share of the budget."""


@component
class Expandable(PromptElement):
    """Text that is written again, longer, when budget is left at the end; it never grows past a TokenLimit around it.

    >>> Expandable(value=lambda sizing: outline(module, sizing.token_budget))
    """

    value: Callable[[Sizing], str | Awaitable[str]]
    """Called with the element's share, and again with what is left."""
