"""Text elements, and the elements that limit or extend a text to its share of the budget."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import attrs

from promptkit.elements.component import component
from promptkit.elements.element import PromptElement, Sizing
from promptkit.errors import BadPropError
from promptkit.sizes import read_tokens


@component
class Text(PromptElement):
    """Text within a line, with a priority of its own.

    Its children are strings, References and Metadata.

    >>> UserMessage()["Fix it", Text(priority=1)[" (the one from yesterday)"], "."]
    """


@component
class TextChunk(PromptElement):
    r"""A paragraph that starts on a new line. Its children are strings, References and Metadata.

    With `break_on` or `break_on_whitespace` it is truncated to its share of the budget: pieces are
    added as long as the text fits. If not even the first piece fits, it renders nothing.

    >>> TextChunk(priority=10, break_on="\n")[log]
    """

    break_on: str | re.Pattern[str] | None = None
    """The separator or pattern where the text may be truncated. The separator belongs to the piece
    that follows it."""

    break_on_whitespace: bool = False
    """Whether the text may be truncated between words."""


def _read_name(name: str) -> str:
    """Return a name of a tag or attribute."""
    if _NAME.fullmatch(name) is None:
        raise BadPropError(
            f"{name!r} is no name of a tag or attribute: write letters, digits, _, -, . and :, beginning with a letter or _."
        )
    return name


_NAME = re.compile(r"[^\W\d][\w.:-]*")


def _read_attributes(attributes: Mapping[str, str]) -> Mapping[str, str]:
    for name in attributes:
        _read_name(name)
    return attributes


@component
class Tag(PromptElement):
    """A section between `<tag>` and `</tag>`, each on a line of its own.

    The tags are pruned when all their content is pruned.

    Without children it is an empty-element tag. Attribute values are escaped as in XML; the content
    is not.

    >>> Tag(tag="file", attributes={"path": "a.py"})["print(1)"]
    """

    tag: str = attrs.field(converter=_read_name)
    """The name of the tag, such as `file`: letters, digits, `_`, `-`, `.` and `:`, beginning with a
    letter or `_`."""

    attributes: Mapping[str, str] = attrs.field(factory=dict[str, str], converter=_read_attributes)
    """Attribute name → value, written in this order."""


@component
class Truncate(PromptElement):
    r"""Text truncated to its share of the budget, or to `max_tokens`.

    The cut is at the end of a line if that costs at most 15 % of the text that stays, otherwise within
    a line, and never inside a character as users see it. The marker is counted. Pruning cuts the text further, down to the marker, before it removes the
    element.

    >>> Truncate(keep="middle", ratio=0.4, marker="\n[… output cut …]\n")[output]
    """

    keep: Literal["head", "tail", "middle"] = "head"
    """The part that stays. `middle` keeps head and tail and removes the text between them."""

    ratio: float = 0.4
    """For `middle`: the share of the head in the text that stays, from 0 to 1."""

    marker: str = "[…]"
    """The text that replaces the removed text."""

    max_tokens: int | str | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """The most tokens that may stay. None: the element's share of the budget."""


@component
class Expandable(PromptElement):
    """Text that is generated a second time, longer, if budget is left over at the end.

    It respects the TokenLimits around it.

    >>> Expandable(value=lambda sizing: outline(module, sizing.token_budget))
    """

    value: Callable[[Sizing], str | Awaitable[str]]
    """Generates the text. Called with the element's share as budget, and again with what is left
    over."""
