"""A reply that is ready to be written down, in whichever format it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.messages import OpaquePart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json, Message, Usage

__all__ = ["Made", "pieces", "refusal_of"]

PIECE = 16  # characters of a streamed text that come at once, at least
MOST = 64  # pieces of one text


@attrs.frozen(kw_only=True)
class Made:
    """What the model says to one request."""

    number: int
    """That of the request: ids are made of it."""
    created: int
    """Seconds since 1970."""
    model: str
    message: Message
    """Every call has an id."""
    finish: str
    usage: Usage


def pieces(text: str) -> Iterator[str]:
    """A text in the pieces in which it is streamed."""
    size = max(PIECE, -(-len(text) // MOST))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def refusal_of(part: object) -> Json:
    """The refusal that an opaque part holds, `{"type": "refusal", "refusal": "…"}`; None for any other part."""
    value = part.value if isinstance(part, OpaquePart) else None
    return value.get("refusal") if isinstance(value, dict) and value.get("type") == "refusal" else None
