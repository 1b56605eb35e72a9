"""Codex CLI: at 0.9 of the context window the history is replaced by the newest user messages and a summary after them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.selection import KeepNothing
from promptkit.compaction.planning.user_messages import VerbatimUserMessages
from promptkit.compaction.policy.rules import (
    compact_above,
    compact_on_demand,
    first_match,
    on_overflow,
)
from promptkit.compaction.presets.preset import Preset, split_reserve
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.run.replacement import Replacement
from promptkit.compaction.summarizers.defaults import (
    make_fallback_factory,
    make_full_summarizer,
    make_inline_summarizer,
)
from promptkit.tokens.budget import resolve_threshold

if TYPE_CHECKING:
    from promptkit.tokens import ContextBudget

PREFACE = "A model worked on this before you, and left this summary of what it did. Build on it, and do not do the same again:\n"


@attrs.frozen(kw_only=True)
class Codex:
    """The settings of the preset."""

    enabled: bool = True
    """Whether automatic compaction is on."""
    auto_compact_tokens: float | None = setting(
        None, names=("model_auto_compact_token_limit",), threshold=True
    )
    """Size from which the conversation is compacted, in tokens or as a share of the window. At most
    0.9, which is the default."""
    user_message_tokens: int = setting(20_000, minimum=0)
    """Tokens of user messages that stay verbatim."""

    def max_tokens(self, budget: ContextBudget) -> float | None:
        """Return the size from which the conversation is compacted, in tokens."""
        if budget.window is None:
            return None
        highest = budget.window * 9 // 10
        threshold = resolve_threshold(self.auto_compact_tokens, budget.window)
        return highest if threshold is None else min(highest, threshold)


def codex(settings: Codex | None = None) -> Preset:
    """Return the preset.

    It compacts before any request and after a change to a smaller model. No reply and no tool
    result stays.
    """
    chosen = settings or Codex()
    above = compact_above(chosen.max_tokens, "before_render", "model_switch", inclusive=True)
    return Preset(
        name="codex",
        follows="Codex CLI, openai/codex 0100b10 of late 2025",
        adjust_budget=split_reserve(chosen.max_tokens),
        policy=lambda _: first_match((compact_on_demand, on_overflow(), above)),
        keep=lambda _: KeepNothing(),
        replacement=Replacement(
            place="last",
            preface=PREFACE,
            originals=VerbatimUserMessages(max_tokens=chosen.user_message_tokens),
        ),
        summarizer=make_fallback_factory(make_inline_summarizer, make_full_summarizer),
        enabled=chosen.enabled,
    )
