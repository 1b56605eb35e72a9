"""The decisions of a policy and their reasons, as plain values."""

from __future__ import annotations

from typing import TypeAlias

import attrs

THRESHOLD = "threshold"
"""The trigger of a compaction because of the conversation's size."""

HANDOFF = "handoff"
"""The trigger of a compaction that keeps no messages and writes a document for the rest of the
work, if the preset has such a summarizer."""

WAIT_SECONDS = 60.0
"""Longest wait of a request for a summary, in seconds, where nothing else is configured."""


@attrs.frozen(kw_only=True)
class Reason:
    """The reason for a decision, with its figures.

    >>> print(Reason(why="warm cache", ratio=0.812, threshold=0.7961, warm=True))
    warm cache (ratio 0.812, threshold 0.796, warm)
    """

    why: str
    """One clause that says why."""
    ratio: float | None = None
    """The request's share of the size from which on it overflows. None: unknown, or not used."""
    threshold: float | None = None
    """The ratio that it was compared with."""
    warm: bool | None = None
    """Whether the provider's prompt cache was assumed to be warm. None: not used."""

    def __str__(self) -> str:
        figures = [
            f"{name} {value:.3f}"
            for name, value in (("ratio", self.ratio), ("threshold", self.threshold))
            if value is not None
        ]
        if self.warm is not None:
            figures.append("warm" if self.warm else "cold")
        return f"{self.why} ({', '.join(figures)})" if figures else self.why


@attrs.frozen(kw_only=True)
class _Reasoned:
    reason: Reason


@attrs.frozen(kw_only=True)
class NoAction(_Reasoned):
    """Continue without a change."""


@attrs.frozen(kw_only=True)
class Prune(_Reasoned):
    """Replace old and superseded tool outputs in the view permanently."""

    only_superseded: bool = False
    """Replace only outputs that newer ones supersede."""
    only_reasoning: bool = False
    """Replace no outputs: take the reasoning of earlier turns out of the view."""


@attrs.frozen(kw_only=True)
class StartBackground(_Reasoned):
    """Start a summary in the background."""


@attrs.frozen(kw_only=True)
class ApplySummary(_Reasoned):
    """Apply the background summary."""


@attrs.frozen(kw_only=True)
class DiscardSummary(_Reasoned):
    """Discard the background summary, or cancel it while it is running.

    Another may be started later.
    """


@attrs.frozen(kw_only=True)
class Wait(_Reasoned):
    """Wait for the background summary, then decide again."""

    seconds: float
    """The longest wait."""


@attrs.frozen(kw_only=True)
class Compact(_Reasoned):
    """Summarize now, in the foreground."""

    trigger: str
    """The cause, as the checkpoint records it: `manual`, `threshold`, `foreground`, `handoff` or
    the name of a phase."""
    seconds: float = WAIT_SECONDS
    """The longest time that one summarizer may take. Then the next one is tried."""
    extract: bool = False
    """Ask no model: the summary is extracted from the conversation."""


@attrs.frozen(kw_only=True)
class RenderPruned(_Reasoned):
    """Render again with a history that may be pruned, without another summary.

    This is the last resort.
    """


@attrs.frozen(kw_only=True)
class Promote(_Reasoned):
    """Switch to a model with a larger context window instead of summarizing."""


@attrs.frozen(kw_only=True)
class Fail(_Reasoned):
    """Give up on this request."""


Decision: TypeAlias = (
    NoAction
    | Prune
    | StartBackground
    | ApplySummary
    | DiscardSummary
    | Wait
    | Compact
    | RenderPruned
    | Promote
    | Fail
)
"""Any decision of a policy."""
