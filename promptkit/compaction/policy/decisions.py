"""What a policy can decide, and why: plain values, for the code that acts on them and for logs."""

from __future__ import annotations

from typing import TypeAlias

import attrs

__all__ = [
    "ApplySummary",
    "Compact",
    "Decision",
    "DiscardSummary",
    "Fail",
    "NoAction",
    "Promote",
    "Prune",
    "Reason",
    "RenderPruned",
    "StartBackground",
    "Wait",
]


@attrs.frozen(kw_only=True)
class Reason:
    """Why something was decided, with the figures that it was decided by.

    >>> print(Reason(why="warm cache", ratio=0.812, threshold=0.7961, warm=True))
    warm cache (ratio 0.812, threshold 0.796, warm)
    """

    why: str
    ratio: float | None = None
    """What the next request takes of the budget's base; None: unknown, or of no matter."""
    threshold: float | None = None
    """What it was compared with."""
    warm: bool | None = None
    """Whether the provider's prompt cache was taken to be warm."""

    def __str__(self) -> str:
        figures = [f"{name} {value:.3f}" for name, value in (("ratio", self.ratio), ("threshold", self.threshold)) if value is not None]
        if self.warm is not None:
            figures.append("warm" if self.warm else "cold")
        return f"{self.why} ({', '.join(figures)})" if figures else self.why


@attrs.frozen(kw_only=True)
class NoAction:
    """Go on."""

    reason: Reason


@attrs.frozen(kw_only=True)
class Prune:
    """Take old tool outputs out of the view, for good."""

    reason: Reason


@attrs.frozen(kw_only=True)
class StartBackground:
    """Start to summarize beside the conversation."""

    reason: Reason


@attrs.frozen(kw_only=True)
class ApplySummary:
    """Put the background's summary in place."""

    reason: Reason


@attrs.frozen(kw_only=True)
class DiscardSummary:
    """Drop the background's summary, or stop it: another may be started later."""

    reason: Reason


@attrs.frozen(kw_only=True)
class Wait:
    """Wait for the background's summary, at most so long; then decide again."""

    seconds: float
    reason: Reason


@attrs.frozen(kw_only=True)
class Compact:
    """Summarize now. `trigger` says in a word what for, as checkpoints record it."""

    trigger: str
    reason: Reason


@attrs.frozen(kw_only=True)
class RenderPruned:
    """Render once more with a history that may be pruned, and without another summary: the last resort."""

    reason: Reason


@attrs.frozen(kw_only=True)
class Promote:
    """Go on with a model that has a larger window, and summarize nothing."""

    reason: Reason


@attrs.frozen(kw_only=True)
class Fail:
    """Give up on this request, and say why."""

    reason: Reason


Decision: TypeAlias = NoAction | Prune | StartBackground | ApplySummary | DiscardSummary | Wait | Compact | RenderPruned | Promote | Fail
