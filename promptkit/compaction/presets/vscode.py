"""VS Code's chat: background summaries at a jittered threshold, foreground ones where that was too late."""

from __future__ import annotations

import attrs

from promptkit.compaction.policy.rules import Thresholds, default_policy
from promptkit.compaction.presets.preset import Preset
from promptkit.compaction.presets.settings import setting

__all__ = ["VSCode", "vscode"]


@attrs.frozen(kw_only=True)
class VSCode:
    """The settings of the preset."""

    enabled: bool = setting(default=True, names=("github.copilot.chat.summarizeAgentConversationHistory.enabled",))
    """Whether automatic compaction is on."""
    threshold: float | None = setting(
        None, names=("github.copilot.chat.advanced.summarizeAgentConversationHistoryThreshold",), threshold=True
    )
    """Size that counts as a full context window, in tokens or as a share of the window. None: the window."""
    warm: float = setting(0.78, minimum=0, maximum=1)
    """Lowest ratio at which a background summary starts with a warm prompt cache."""
    jitter: float = setting(0.04, minimum=0, maximum=1)
    """Width of the random range above `warm`."""
    cold: float = setting(0.90, minimum=0, maximum=1)
    """Ratio at which a background summary starts with a cold prompt cache."""
    apply: float = setting(0.65, minimum=0, maximum=1)
    """Ratio below which a ready summary is discarded."""
    wait_seconds: float = setting(60.0, minimum=0)
    """Longest wait of a request for the background summary, and then for each summarizer that is asked, in seconds."""


def vscode(settings: VSCode | None = None) -> Preset:
    """Return the preset, which is the default. The newest round stays, and the live conversation is summarized first."""
    chosen = settings or VSCode()
    thresholds = Thresholds(warm=chosen.warm, jitter=chosen.jitter, cold=chosen.cold, apply=chosen.apply, wait_seconds=chosen.wait_seconds)
    return Preset(
        name="vscode",
        follows="Copilot Chat in microsoft/vscode 03d18a46, second half of 2026",
        policy=lambda rng: default_policy(rng=rng, thresholds=thresholds),
        adjust_budget=lambda budget: budget if chosen.threshold is None else attrs.evolve(budget, threshold=chosen.threshold),
        enabled=chosen.enabled,
    )
