"""How full a conversation's window is: what the last request took, and what the next one will."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.compaction.usage import Meter

if TYPE_CHECKING:
    from promptkit.compaction.compactor import Compactor
    from promptkit.compaction.usage import Reading
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.view import Projection

__all__ = ["Window"]


class Window:
    """Measures the requests of one conversation with one model. Figures are tokens.

    What every request has beside the conversation is learnt from each render; until the first it is `beside`.
    """

    def __init__(self, compactor: Compactor, *, tokenizer: Tokenizer, model: str, beside: int) -> None:
        self.fixed = beside
        """What every request has beside the conversation: system prompt, tool definitions, framing."""
        self.items = 0
        """The items of the view that the last render showed."""
        self.leaf: str | None = None
        """The last entry that it showed."""
        self._tokens = 0
        self._compactor = compactor
        self._meter = Meter(tokenizer, model=model)
        self._untold: str | None = None
        self._read: tuple[Projection, tuple[object, ...], Reading] | None = None

    def reading(self, size: int | None) -> Reading:
        """How much of a window of `size` the next request takes."""
        view = self._compactor.view
        key = (self.fixed, size, self._untold)
        if self._read is None or self._read[0] is not view or self._read[1] != key:
            self._read = view, key, self._meter.read(self._told(), view, beside=self.fixed, window=size)
        return self._read[2]

    def rendered(self, tokens: int, size: int | None, *, pruned: bool) -> None:
        """A request of so many tokens was rendered. `pruned`: without all of the conversation, so that nothing can be learnt from it."""
        if not pruned:
            self.fixed = max(0, tokens - (self.reading(size).local - self.fixed))
        self.items, self._tokens, self.leaf = len(self._compactor.view.items), tokens, self._compactor.transcript.leaf

    @property
    def moved(self) -> bool:
        """Whether the view was changed since the last render: by a compaction, an edit, a rewind. What was merely appended changes nothing."""
        return self.leaf is not None and self._compactor.changed(self.leaf) is not None

    def answered(self, size: int | None) -> int:
        """The tokens to decide by when the answer to what was rendered is in the transcript.

        Where the view was changed while the model thought, neither the request nor what the provider counted of it tells of the next.
        """
        if self.moved:
            self._untold = self._compactor.transcript.leaf
            return self.reading(size).tokens
        return max(self._tokens, self.reading(size).tokens)

    def _told(self) -> tuple[Entry, ...]:
        """The path as far as the provider's counts tell of what the model is shown."""
        path = self._compactor.transcript.path()
        behind = next((at for at in range(len(path), 0, -1) if path[at - 1].id == self._untold), 0) if self._untold else 0
        return path[behind:]
