"""VS Code's chat: summaries beside the conversation at a jittered threshold, in the foreground where that was not enough."""

from __future__ import annotations

import attrs

from promptkit.compaction.policy.rules import Thresholds, default_policy
from promptkit.compaction.presets.preset import Preset
from promptkit.compaction.presets.settings import setting

__all__ = ["VSCode", "vscode"]


@attrs.frozen(kw_only=True)
class VSCode:
    """Its settings."""

    enabled: bool = True
    threshold: float | None = setting(None, threshold=True)
    """A share of the window, or tokens: what is taken for full. None: the window is."""
    warm: float = setting(0.78, least=0, most=1)
    """Where the background begins, with a warm cache, at the earliest."""
    jitter: float = setting(0.04, least=0, most=1)
    """How much later it may begin."""
    cold: float = setting(0.90, least=0, most=1)
    """Where it begins without one."""
    apply: float = setting(0.65, least=0, most=1)
    """Below this a ready summary is dropped."""
    wait_seconds: float = setting(60.0, least=0)
    """The most that a request waits for the background."""


def vscode(settings: VSCode | None = None) -> Preset:
    """The default. Cut behind the newest round, the live conversation asked first, a breadcrumb behind the summary."""
    its = settings or VSCode()
    thresholds = Thresholds(warm=its.warm, jitter=its.jitter, cold=its.cold, apply=its.apply, wait_seconds=its.wait_seconds)
    return Preset(
        name="vscode",
        policy=lambda draw: default_policy(draw=draw, thresholds=thresholds),
        figures=lambda budget: budget if its.threshold is None else attrs.evolve(budget, threshold=its.threshold),
        enabled=its.enabled,
    )
