"""The view of a transcript as requests show it: no tool result larger than the window can bear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.pruning.messages import cap_results
from promptkit.transcript.view import TranscriptView, ViewBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.view import ViewItem

__all__ = ["CappedView"]


class CappedView:
    """Projects a path that grows, with tool results of at most `result_tokens`; the transcript itself has them in full.

    What was shown before is the same object again, and is not counted again.
    """

    def __init__(self, tokenizer: Tokenizer, *, result_tokens: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._tokens = result_tokens
        self._projector = ViewBuilder()
        self._source = self._view = TranscriptView()

    def switch(self, tokenizer: Tokenizer, *, result_tokens: int | None) -> None:
        """Go on with another model's figures."""
        self._tokenizer, self._tokens = tokenizer, result_tokens
        self._source = self._view = TranscriptView()

    def view(self, path: Sequence[Entry]) -> TranscriptView:
        """The view of a path, root first."""
        source = self._projector.project(path)
        if self._tokens is None:
            return source
        if source is not self._source:
            self._view = self._following(source, self._tokens)
            self._source = source
        return self._view

    def _following(self, source: TranscriptView, tokens: int) -> TranscriptView:
        """The view of a projection, with what it has in common with the last one taken from there."""
        old = self._source.items
        same = len(old) if source.items[: len(old)] == old else 0  # as a rule something was appended: compared at once
        for before, now in zip(old[same:], source.items[same:], strict=False):
            if before is not now:
                break
            same += 1
        new = (self._cap(item, tokens) for item in source.items[same:])
        return attrs.evolve(source, items=(*self._view.items[:same], *new))

    def _cap(self, item: ViewItem, tokens: int) -> ViewItem:
        if item.message.role != "tool":
            return item
        (message,) = cap_results((item.message,), tokens, tokenizer=self._tokenizer).messages
        return item if message is item.message else attrs.evolve(item, message=message)
