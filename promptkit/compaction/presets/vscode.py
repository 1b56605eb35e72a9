"""VS Code's chat: background summaries at a jittered threshold, foreground ones where that was too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

from promptkit.compaction.policy.rules import Thresholds, default_policy
from promptkit.compaction.presets.preset import Preset
from promptkit.compaction.presets.settings import OriginalName, optional, setting
from promptkit.compaction.summarizers import defaults
from promptkit.compaction.summarizers.summarizer import Summarizer
from promptkit.tokens import ContextBudget


def _in_chat(
    key: str, declare: Callable[[str], OriginalName] = OriginalName
) -> tuple[OriginalName, ...]:
    """Declare a key of the chat, which VS Code has with the extension's prefix and without it."""
    return declare(f"github.copilot.{key}"), declare(key)


@attrs.frozen(kw_only=True)
class VSCode:
    """The settings of the preset."""

    enabled: bool = setting(
        default=True, names=_in_chat("chat.summarizeAgentConversationHistory.enabled")
    )
    """Whether automatic compaction is on."""
    mode: Literal["auto", "full", "simple"] = setting(
        "auto", names=_in_chat("chat.advanced.agentHistorySummarizationMode")
    )
    """The way the model is asked. `auto`: at the end of the conversation, then as `full`. `full`:
    with a copy of it, then as `simple`. `simple`: as text."""
    context_size: int | None = setting(
        None, names=(optional("modelConfiguration.contextSize"),), minimum=1
    )
    """Tokens that requests may take at most, if that is less than the model takes. None: what the
    model takes."""
    threshold: float | None = setting(
        None,
        names=_in_chat("chat.advanced.summarizeAgentConversationHistoryThreshold"),
        threshold=True,
    )
    """Size that counts as a full context window, in tokens or as a share of the window. None: the
    window."""
    warm: float = setting(0.78, minimum=0, maximum=1)
    """Lowest ratio at which a background summary starts with a warm prompt cache."""
    jitter: float = setting(0.04, minimum=0, maximum=1)
    """Width of the random range above `warm`."""
    cold: float = setting(0.90, minimum=0, maximum=1)
    """Ratio at which a background summary starts with a cold prompt cache."""
    apply: float = setting(0.65, minimum=0, maximum=1)
    """Ratio below which a ready summary is discarded."""
    wait_seconds: float = setting(60.0, minimum=0)
    """Longest wait of a request for the background summary, and then for each summarizer that is
    asked, in seconds."""
    summary_model: str | None = setting(
        None, names=_in_chat("chat.conversationCompaction.model", optional)
    )
    """The name of the model that writes summaries. None: the model that answers."""
    summary_model_filter: tuple[str, ...] = setting(
        (), names=_in_chat("chat.conversationCompaction.prismModelFilter", optional)
    )
    """Parts of the names of models whose conversations that model summarizes. Empty: all of
    them."""

    def adjust_budget(self, budget: ContextBudget) -> ContextBudget:
        """Apply the context size and the threshold to a model's budget."""
        sizes = [
            size
            for size in (self.context_size, budget.max_tokens)
            if size is not None and size >= 1
        ]
        threshold = budget.threshold if self.threshold is None else self.threshold
        return attrs.evolve(budget, max_tokens=min(sizes, default=None), threshold=threshold)

    def make_summarizer(self, context: defaults.SummarizerContext) -> Summarizer:
        """Make the summarizer of the mode.

        A model that does not answer is never asked at the end of the conversation: it has no cache
        of it.
        """
        return defaults.make_fallback_factory(
            *(
                [defaults.make_inline_summarizer]
                if self.mode == "auto" and not context.has_other_model
                else []
            ),
            *([defaults.make_full_summarizer] if self.mode != "simple" else []),
            defaults.make_simple_summarizer,
        )(context)


def vscode(settings: VSCode | None = None) -> Preset:
    """Return the preset, which is the default.

    The newest round stays, and the live conversation is summarized first.
    """
    chosen = settings or VSCode()
    thresholds = Thresholds(
        warm=chosen.warm,
        jitter=chosen.jitter,
        cold=chosen.cold,
        apply=chosen.apply,
        wait_seconds=chosen.wait_seconds,
    )
    return Preset(
        name="vscode",
        follows="Copilot Chat in microsoft/vscode 03d18a46, second half of 2026",
        policy=lambda rng: default_policy(rng=rng, thresholds=thresholds),
        adjust_budget=chosen.adjust_budget,
        summarizer=chosen.make_summarizer,
        summary_model=chosen.summary_model,
        summary_model_filter=chosen.summary_model_filter,
        enabled=chosen.enabled,
    )
