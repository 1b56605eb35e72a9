"""Codex CLI: at 0.9 of the window the history becomes what the person wrote, newest first, and a summary behind it."""

from __future__ import annotations

import attrs

from promptkit.compaction.planning.selection import KeepNothing
from promptkit.compaction.planning.user_messages import VerbatimUserMessages
from promptkit.compaction.policy.rules import compact_above, compact_on_demand, first_match, on_overflow
from promptkit.compaction.presets.preset import Preset, split_reserve
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.replacement import Replacement
from promptkit.compaction.summarizers.defaults import make_full_summarizer, make_inline_summarizer, make_fallback_factory
from promptkit.tokens.budget import ContextBudget, resolve_threshold

__all__ = ["Codex", "codex"]

PREFACE = "A model worked on this before you, and left this summary of what it did. Build on it, and do not do the same again:\n"


@attrs.frozen(kw_only=True)
class Codex:
    """Its settings."""

    enabled: bool = True
    auto_compact_tokens: float | None = setting(None, threshold=True)
    """Tokens, or a share; never above 0.9 of the window, which is also the default."""
    user_message_tokens: int = setting(20_000, minimum=0)
    """What stays of the person's messages, in tokens."""

    def max_tokens(self, budget: ContextBudget) -> float | None:
        """The most that a conversation may have."""
        if budget.window is None:
            return None
        most = budget.window * 9 // 10
        wanted = resolve_threshold(self.auto_compact_tokens, budget.window)
        return most if wanted is None else min(most, wanted)


def codex(settings: Codex | None = None) -> Preset:
    """Before a request, also between calls of tools, and where it is changed for a smaller model. No answer and no result stays."""
    its = settings or Codex()
    above = compact_above(its.max_tokens, "before_render", "model_switch", inclusive=True)
    return Preset(
        name="codex",
        adjust_budget=split_reserve(its.max_tokens),
        policy=lambda _: first_match((compact_on_demand, on_overflow(), above)),
        keep=lambda _: KeepNothing(),
        replacement=Replacement(place="last", preface=PREFACE, originals=VerbatimUserMessages(max_tokens=its.user_message_tokens)),
        summarizer=make_fallback_factory(make_inline_summarizer, make_full_summarizer),
        enabled=its.enabled,
    )
