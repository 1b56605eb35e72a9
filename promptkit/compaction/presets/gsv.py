"""GSV, in two versions.

As it was designed, the conversation is summarized in chunks of a quarter of the window, and each
answer lists memories, too. As of August 2026 it compacts at a share of the context window, at most
once per turn; the newest messages stay.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.compaction.planning.selection import KeepLastMessages, KeepRecentTokens
from promptkit.compaction.policy.rules import (
    compact_above,
    compact_on,
    compact_on_demand,
    fail_on,
    first_match,
    on_overflow,
    once_per_turn,
    require_messages,
)
from promptkit.compaction.presets.pi import subtract_reserve
from promptkit.compaction.presets.preset import (
    Preset,
    limit_kept_tokens,
    split_reserve,
    without_safety_share,
)
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.run.reset import DailyReset, IdleReset, ManualReset, ResetPolicy
from promptkit.compaction.summarizers.defaults import (
    UNLIMITED,
    SummarizerContext,
    make_extractive_summarizer,
    make_fallback_factory,
    make_simple_summarizer,
)
from promptkit.compaction.summarizers.extractive import PlaceholderSummarizer
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.model_summarizers import ChunkedSummarizer

if TYPE_CHECKING:
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.tokens import ContextBudget


@attrs.frozen(kw_only=True)
class GSV:
    """The settings of the preset."""

    enabled: bool = setting(default=True, names=("compaction.enabled",))
    """Whether automatic compaction is on."""
    reserve_tokens: int = setting(20_000, names=("compaction.reserveTokens",), minimum=0)
    """Tokens of the context window that are kept free."""
    keep_recent_tokens: int = setting(20_000, names=("compaction.keepRecentTokens",), minimum=1)
    """Tokens of the newest messages that stay."""
    extract_memories: bool = setting(default=True, names=("compaction.extractMemories",))
    """Whether the answers with the summary list memories. `MemoryExtractionHook` writes them to
    files."""
    reset: Literal["manual", "daily", "idle"] = setting(
        "daily", names=("session.defaultResetPolicy.mode",)
    )
    """The occasion on which the conversation starts over: only when asked to, once a day, or after
    an idle time."""
    reset_hour: int = setting(
        4, names=("session.defaultResetPolicy.atHour",), minimum=0, maximum=23
    )
    """Hour of the day of a daily reset."""
    reset_idle_minutes: float = setting(
        60.0, names=("session.defaultResetPolicy.idleMinutes",), minimum=1
    )
    """Minutes without a message before an idle reset. GSV has no default."""

    @property
    def reset_policy(self) -> ResetPolicy:
        """The policy for `find_due_reset`."""
        if self.reset == "daily":
            return DailyReset(self.reset_hour)
        return IdleReset(self.reset_idle_minutes) if self.reset == "idle" else ManualReset()

    def make_summarizer(self, context: SummarizerContext) -> Summarizer:
        """Make the tiers: all chunks; then without chunks above half of the window; then the facts of the messages, or their number."""
        if context.model is None:
            return make_extractive_summarizer(context)
        window = context.window or UNLIMITED
        chunked = ChunkedSummarizer(
            model=context.model,
            window=window,
            tokenizer=context.tokenizer,
            memories=self.extract_memories,
        )
        last = (
            make_extractive_summarizer(context),
            PlaceholderSummarizer(tokenizer=context.tokenizer),
        )
        return FallbackSummarizer([chunked, attrs.evolve(chunked, max_chunk_share=0.5), *last])


def gsv(settings: GSV | None = None) -> Preset:
    """Return the preset.

    It compacts before a request. Memories, archives and resets are parts of a session: see
    docs/systems.md.
    """
    chosen = settings or GSV()
    max_tokens = partial(subtract_reserve, reserve=chosen.reserve_tokens)
    rules = (compact_on_demand, on_overflow(), compact_above(max_tokens, "before_render"))
    return Preset(
        name="gsv",
        follows="GSV, deathbyknowledge/gsv before a19b019, which gave this design up",
        adjust_budget=split_reserve(max_tokens),
        policy=lambda _: first_match((require_messages(3, rules),)),
        keep=lambda budget: KeepRecentTokens(
            tokens=limit_kept_tokens(chosen.keep_recent_tokens, max_tokens(budget))
        ),
        summarizer=chosen.make_summarizer,
        enabled=chosen.enabled,
    )


@attrs.frozen(kw_only=True)
class GSVProcess:
    """The settings of the preset."""

    mode: Literal["auto-compact", "fail"] = setting("auto-compact", names=("overflow",))
    """The reaction at the threshold: the conversation is compacted. `fail`: a request that is too
    large fails."""
    compact_at_pressure: float = setting(0.9, names=("compactAtPressure",), minimum=0, maximum=1)
    """Share of the context window, without the model's longest output, at which the conversation is
    compacted."""
    keep_last: int = setting(80, names=("keepLast",), minimum=1)
    """Number of messages that stay, and the rest of a block that the cut would split."""

    def max_tokens(self, budget: ContextBudget) -> float | None:
        """Return the size from which the conversation is compacted, in tokens.

        None: the window is unknown.
        """
        if budget.window is None:
            return None
        output = (
            budget.max_output_tokens
            if budget.max_output_tokens is not None and budget.max_output_tokens < budget.window
            else budget.output_reserve
        )
        return round(self.compact_at_pressure * max(1, budget.window - (output or 0)), 6)


def gsv_process(settings: GSVProcess | None = None) -> Preset:
    """Return the preset. If no summary can be made, the turn fails.

    GSV puts the summary into a system message. Here it is a user message, as some providers refuse
    a conversation that begins with a reply.
    """
    chosen = settings or GSVProcess()
    once = (
        compact_above(chosen.max_tokens, "before_render", inclusive=True),
        compact_on("overflow", "rejected"),
    )
    rules = tuple(map(once_per_turn, once)) if chosen.mode == "auto-compact" else ()
    return Preset(
        name="gsv_process",
        follows="GSV, deathbyknowledge/gsv fa39786 of 2026-08-04",
        adjust_budget=without_safety_share,
        policy=lambda _: first_match((compact_on_demand, *rules, fail_on())),
        keep=lambda _: KeepLastMessages(count=chosen.keep_last),
        max_summary_tokens=768,
        summarizer=make_fallback_factory(make_simple_summarizer),
    )
