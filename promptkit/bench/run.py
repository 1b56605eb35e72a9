"""The values of a bench: a run over one prompt, a sweep for each model, a point for each budget, a row for each element."""

from __future__ import annotations

import attrs

__all__ = ["Element", "Point", "Run", "Sweep", "Versions"]


@attrs.frozen(kw_only=True)
class Point:
    """One render, at one budget. Figures are tokens; times are processor seconds, None where none were taken."""

    budget: int
    required: int | None = None
    """What must be kept, where that does not fit the budget: then there is no render, and the other figures are 0."""
    used: int = 0
    """The tokens of the request."""
    messages: int = 0
    """The messages of the request: a number of them."""
    removed: int = 0
    """The pieces that were removed: a number of them, as in the receipt."""
    stable_prefix: int = 0
    """The tokens of the leading messages that are the same, byte for byte, as with room for everything."""
    cold: float | None = None
    """A new Renderer and a tokenizer that remembers nothing."""
    warm: float | None = None
    """The Renderer that was kept, given the same prompt again."""

    @property
    def utilisation(self) -> float | None:
        """The share of the budget that is used; None where there is no render."""
        return None if self.required is not None else self.used / self.budget


@attrs.frozen(kw_only=True)
class Element:
    """What is kept of one element, or of all that stand under one path, at each budget."""

    path: str
    """As in the receipt but without positions: `AgentPrompt > History > KeepWith`."""
    whole: int
    """Tokens with room for everything; for what is not there then, the most at any budget."""
    kept: tuple[int | None, ...]
    """Tokens at each budget; None where there is no render."""

    def share(self, at: int) -> float | None:
        """The share of its tokens that is kept at the budget of this index, at most 1; None where there is no render."""
        kept = self.kept[at]
        return None if kept is None else min(1.0, kept / self.whole) if self.whole else 1.0


@attrs.frozen(kw_only=True)
class Sweep:
    """One prompt as one model counts it, at every budget."""

    model: str | None
    """None: the default tokenizer, as in a render without a model."""
    tokenizer: str
    whole: int
    """The tokens of the request with room for everything."""
    messages: int
    """Its messages: a number of them."""
    floor: float | None = None
    """Processor seconds to tokenise every text of it once, in the same run; None where no times were taken."""
    points: tuple[Point, ...]
    elements: tuple[Element, ...]
    """In written order. Together they are the whole prompt."""

    def over_floor(self, seconds: float | None) -> float | None:
        """A time as a multiple of the floor, which means the same on every machine; None where there is none."""
        return seconds / self.floor if seconds is not None and self.floor else None

    def dropped(self, at: int) -> int:
        """The tokens of all elements that are not kept at the budget of this index."""
        return sum(max(0, element.whole - (element.kept[at] or 0)) for element in self.elements)


@attrs.frozen(kw_only=True)
class Versions:
    """What a run was made with."""

    promptkit: str
    python: str
    tiktoken: str


@attrs.frozen(kw_only=True)
class Run:
    """One prompt, at every budget, for every model."""

    target: str
    """What was measured, as it was named."""
    budgets: tuple[int, ...]
    depth: int
    """The steps of a path after which elements are summed up."""
    repeat: int
    """How often every time was taken; 0: none were."""
    versions: Versions
    sweeps: tuple[Sweep, ...]
