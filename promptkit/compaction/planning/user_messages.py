"""What the person wrote, word for word, as it is shown beside a summary: the newest first, as far as there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.blocks import is_request
from promptkit.errors import InvalidArgumentError
from promptkit.rendering.sizing import Sizer
from promptkit.tokens.truncation import truncate_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.messages import Message
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.view import ViewItem

__all__ = ["MARKER", "VerbatimUserMessages", "newest_within", "shorten"]

MARKER = "[…]"
"""Stands where the middle of a message was cut out."""


@attrs.frozen(kw_only=True)
class VerbatimUserMessages:
    """How much of what the person wrote stays. Figures are tokens."""

    tokens: int = 20_000
    """All of them together; the one on the edge is cut in the middle. (20,000: Codex.)"""
    each: int | None = None
    """The most that one has; of a longer one the middle is cut out."""
    marker: str = MARKER
    injected: tuple[str, ...] = ()
    """How messages begin that a program wrote in the person's name, such as project rules: they are said anew, and not kept."""

    def __attrs_post_init__(self) -> None:
        if self.tokens < 0 or (self.each is not None and self.each < 0):
            problem = f"tokens={self.tokens} and each={self.each} must be at least 0."
            raise InvalidArgumentError(problem)

    def of(self, items: Sequence[ViewItem], tokenizer: Tokenizer) -> tuple[tuple[ViewItem, ...], int]:
        """What stays of the person's messages among some, in their order, and how many do not stay.

        Neither earlier summaries nor what a program put in are among them.
        """
        places = [at for at, item in enumerate(items) if is_request(item) and not self._is_injected(item)]
        shown = newest_within(
            items, places, self.tokens, each=self.each, marker=self.marker, tokenizer=tokenizer, count=Sizer(tokenizer).message
        )
        return tuple(shown[at] for at in sorted(shown)), len(places) - len(shown)

    def _is_injected(self, item: ViewItem) -> bool:
        return bool(self.injected) and item.message.text.lstrip().startswith(self.injected)


def newest_within(  # noqa: PLR0913  # keywords
    items: Sequence[ViewItem],
    places: Sequence[int],
    tokens: int,
    *,
    tokenizer: Tokenizer,
    count: Callable[[Message], int],
    each: int | None = None,
    marker: str = MARKER,
) -> dict[int, ViewItem]:
    """Of the items at some places the newest that have room together, by place; that on the edge with its middle cut out."""
    shown: dict[int, ViewItem] = {}
    left = tokens
    for at in reversed(places):
        item, size = items[at], count(items[at].message)
        if each is not None and size > each:
            cut = shorten(item, each, tokenizer, marker)
            if cut is None:
                continue
            item, size = cut, count(cut.message)
        if size > left:
            edge = shorten(item, left, tokenizer, marker)
            if edge is not None:
                shown[at] = edge
            break
        shown[at] = item
        left -= size
    return shown


def shorten(item: ViewItem, tokens: int, tokenizer: Tokenizer, marker: str = MARKER) -> ViewItem | None:
    """A message of text with its middle cut out; None where not even the marker has room. Other parts are left out."""
    text = item.message.text
    room = tokens - (Sizer(tokenizer).message(attrs.evolve(item.message, content=(text,))) - tokenizer.count(text))
    kept = truncate_text(text, room, keep="middle", ratio=0.5, marker=marker, tokenizer=tokenizer) if room > 0 else ""
    return attrs.evolve(item, message=attrs.evolve(item.message, content=(kept,))) if kept else None
