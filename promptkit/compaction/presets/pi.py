"""pi, and two systems with its settings: oh-my-pi and GSV.

* pi keeps a reserve of the context window free, checked between turns. The newest messages stay, turns may be split,
  files are listed.
* oh-my-pi is pi with more triggers: a larger model is used first, and old tool outputs are pruned before anything is
  summarized.
* GSV has two versions. As it was designed, the conversation is summarized in chunks of a quarter of the window, and
  each answer lists memories, too. As of August 2026 it compacts at a share of the context window, at most once per
  turn; the newest messages stay.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal

import attrs

from promptkit.compaction.planning.selection import KeepLastMessages, KeepRecentTokens
from promptkit.compaction.policy.rules import (
    compact_above,
    compact_on,
    compact_on_demand,
    compact_when_idle,
    fail_if_too_large,
    first_match,
    on_overflow,
    once_per_turn,
    only_before_turns,
    promote,
    require_messages,
)
from promptkit.compaction.policy.state import HANDOFF, THRESHOLD
from promptkit.compaction.presets.preset import (
    Preset,
    limit_kept_tokens,
    split_reserve,
    without_safety_share,
)
from promptkit.compaction.presets.settings import optional, percent, setting
from promptkit.compaction.pruning.processors import remove_images
from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
from promptkit.compaction.run.branches import make_handoff_summarizer
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
from promptkit.compaction.summarizers.file_lists import FileListSummarizer
from promptkit.compaction.summarizers.model_summarizers import ChunkedSummarizer
from promptkit.compaction.summarizers.native import NativeSummarizer, can_compact
from promptkit.compaction.summarizers.remote import RemoteSummarizer
from promptkit.compaction.summarizers.split_turn import SplitTurnSummarizer
from promptkit.compaction.summarizers.summarizer import Summarizer
from promptkit.tokens import ContextBudget
from promptkit.tokens.budget import fit_reserve, resolve_threshold


@attrs.frozen(kw_only=True)
class Pi:
    """The settings of `pi`."""

    LEFT_ASIDE: ClassVar[tuple[str, ...]] = ("branchSummary",)

    enabled: bool = setting(default=True, names=("compaction.enabled",))
    """Compact automatically."""
    reserve_tokens: int = setting(16_384, names=("compaction.reserveTokens",), minimum=0)
    """Tokens of the context window that are kept free."""
    keep_recent_tokens: int = setting(20_000, names=("compaction.keepRecentTokens",), minimum=1)
    """Tokens of the newest messages that stay."""


def file_list_summarizer(context: SummarizerContext) -> FileListSummarizer:
    """Make a summarizer of the conversation as text, in two parts where a turn is split.

    It lists the files that were read and changed.
    """
    return FileListSummarizer(
        summarizer=SplitTurnSummarizer(
            summarizer=make_fallback_factory(make_simple_summarizer)(context),
            tokenizer=context.tokenizer,
        ),
        tokenizer=context.tokenizer,
    )


def subtract_reserve(budget: ContextBudget, *, reserve: int) -> int | None:
    """Return the size above which the conversation is compacted, in tokens.

    Of a window smaller than the reserve, 15 % are kept free.
    """
    return None if budget.window is None else budget.window - fit_reserve(budget.window, reserve)


def limit_summary(reserve: int) -> int | None:
    """Return the most tokens of a summary: four fifths of the reserve.

    None, which is promptkit's own limit, if nothing is reserved.
    """
    return reserve * 4 // 5 or None


def pi(settings: Pi | None = None) -> Preset:
    """Return the preset.

    It compacts after a turn, before the next one, and once where the provider refuses a request.
    """
    chosen = settings or Pi()
    max_tokens = partial(subtract_reserve, reserve=chosen.reserve_tokens)
    return Preset(
        name="pi",
        follows="pi, badlogic/pi-mono 83378aa of 2026-03-15",
        adjust_budget=split_reserve(max_tokens),
        policy=lambda _: first_match(
            (
                compact_on_demand,
                on_overflow(),
                only_before_turns(compact_above(max_tokens, "turn_end", "before_render")),
            )
        ),
        keep=lambda budget: KeepRecentTokens(
            tokens=limit_kept_tokens(chosen.keep_recent_tokens, max_tokens(budget)), at_least=True
        ),
        split=True,
        summarizer=file_list_summarizer,
        max_summary_tokens=limit_summary(chosen.reserve_tokens),
        enabled=chosen.enabled,
    )


RESERVE_SHARE = 0.15
"""Lowest share of the context window that is kept free."""


@attrs.frozen(kw_only=True)
class OhMyPi:
    """The settings of `oh_my_pi`."""

    LEFT_ASIDE: ClassVar[tuple[str, ...]] = ("branchSummary",)

    enabled: bool = setting(default=True, names=("compaction.enabled",))
    """Compact automatically."""
    threshold: float | None = setting(
        None,
        names=(optional("compaction.thresholdTokens"), percent("compaction.thresholdPercent")),
        threshold=True,
    )
    """Size above which the conversation is compacted, in tokens or as a share. None: the window
    without the reserve, or without 15 % if that is more."""
    reserve_tokens: int = setting(16_384, names=("compaction.reserveTokens",), minimum=0)
    """Tokens of the context window that are kept free."""
    keep_recent_tokens: int = setting(20_000, names=("compaction.keepRecentTokens",), minimum=1)
    """Tokens of the newest messages that stay."""
    idle_enabled: bool = setting(default=False, names=("compaction.idleEnabled",))
    """Compact an idle conversation."""
    idle_tokens: int = setting(200_000, names=("compaction.idleThresholdTokens",), minimum=1)
    """Size in tokens from which an idle conversation is compacted."""
    idle_seconds: float = setting(300.0, names=("compaction.idleTimeoutSeconds",), minimum=0)
    """Seconds without a message after which a conversation is idle."""
    auto_continue: bool = setting(default=True, names=("compaction.autoContinue",))
    """Ask the model to go on after a compaction at the end of a turn."""
    strategy: Literal["context-full", "handoff", "off"] = setting(
        "context-full", names=("compaction.strategy",)
    )
    """The kind of compaction. `handoff`: a document for the rest of the work replaces the whole
    conversation. `off`: none that is automatic."""
    remote_enabled: bool | None = setting(None, names=("compaction.remoteEnabled",))
    """True: the service at `remote_endpoint` compacts, or without one the model's provider, if it
    can. False: the model itself does. None: as True if there is an endpoint, else as False."""
    remote_endpoint: str | None = setting(None, names=(optional("compaction.remoteEndpoint"),))
    """The address of a service that writes the summaries."""
    promote: bool = setting(default=True, names=("contextPromotion.enabled",))
    """Whether to switch to a larger model, if there is one, before summarizing."""

    def max_tokens(self, budget: ContextBudget) -> float | None:
        """Return the size above which the conversation is compacted, in tokens."""
        if budget.window is None or self.threshold is not None:
            threshold = resolve_threshold(self.threshold, budget.window)
            return (
                threshold
                if threshold is None or budget.window is None
                else min(max(threshold, 1), budget.window - 1)
            )
        return budget.window - max(
            int(budget.window * RESERVE_SHARE), fit_reserve(budget.window, self.reserve_tokens)
        )

    def make_summarizer(self, context: SummarizerContext) -> Summarizer:
        """Make the summarizer of pi, after the service or the provider's own compaction where these are set."""
        tokenizer, model = context.tokenizer, context.model
        summarizer = make_fallback_factory(make_simple_summarizer)(context)
        url = None if self.remote_enabled is False else self.remote_endpoint
        if url is not None:
            remote = RemoteSummarizer(
                url=url, window=context.window or UNLIMITED, tokenizer=tokenizer
            )
            summarizer = FallbackSummarizer([remote, summarizer])
        summarizer = SplitTurnSummarizer(summarizer=summarizer, tokenizer=tokenizer)
        if self.remote_enabled and url is None and can_compact(model):
            summarizer = FallbackSummarizer([NativeSummarizer(model=model), summarizer])
        return FileListSummarizer(summarizer=summarizer, tokenizer=tokenizer)


def oh_my_pi(settings: OhMyPi | None = None) -> Preset:
    """Return the preset.

    It also compacts between tool calls, when the conversation is idle, and after a reply that a
    full window cut off.
    """
    chosen = settings or OhMyPi()
    return Preset(
        name="oh_my_pi",
        follows="oh-my-pi 18.2.11 of 2026-09-23 (compaction 0e232f3, pruning 0f90893)",
        adjust_budget=split_reserve(chosen.max_tokens),
        policy=lambda _: first_match(
            [
                compact_on_demand,
                *([promote()] if chosen.promote else []),
                compact_on("incomplete"),
                on_overflow(),
                compact_above(
                    chosen.max_tokens,
                    "turn_end",
                    "before_render",
                    trigger=HANDOFF if chosen.strategy == "handoff" else THRESHOLD,
                ),
                *(
                    [compact_when_idle(chosen.idle_tokens, seconds=chosen.idle_seconds)]
                    if chosen.idle_enabled
                    else []
                ),
            ]
        ),
        keep=lambda budget: KeepRecentTokens(
            tokens=limit_kept_tokens(chosen.keep_recent_tokens, chosen.max_tokens(budget))
        ),
        split=True,
        summarizer=chosen.make_summarizer,
        max_summary_tokens=limit_summary(chosen.reserve_tokens),
        processors=(remove_images(),),
        reduce=ReduceToolResults(protected_tools=("read",), protect_reads=True),
        handoff=make_fallback_factory(make_handoff_summarizer, last_resort=False),
        auto_continue=chosen.auto_continue,
        enabled=chosen.enabled and chosen.strategy != "off",
    )


@attrs.frozen(kw_only=True)
class GSV:
    """The settings of `gsv`."""

    enabled: bool = setting(default=True, names=("compaction.enabled",))
    """Compact automatically."""
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
        chunked = ChunkedSummarizer(
            model=context.model,
            window=context.window or UNLIMITED,
            tokenizer=context.tokenizer,
            memories=self.extract_memories,
        )
        return FallbackSummarizer(
            [
                chunked,
                attrs.evolve(chunked, max_chunk_share=0.5),
                make_extractive_summarizer(context),
                PlaceholderSummarizer(tokenizer=context.tokenizer),
            ]
        )


def gsv(settings: GSV | None = None) -> Preset:
    """Return the preset.

    It compacts before a request. Memories, archives and resets are parts of a session: see
    docs/systems.md.
    """
    chosen = settings or GSV()
    max_tokens = partial(subtract_reserve, reserve=chosen.reserve_tokens)
    return Preset(
        name="gsv",
        follows="GSV, deathbyknowledge/gsv before a19b019, which gave this design up",
        adjust_budget=split_reserve(max_tokens),
        policy=lambda _: first_match(
            [
                require_messages(
                    3,
                    (compact_on_demand, on_overflow(), compact_above(max_tokens, "before_render")),
                )
            ]
        ),
        keep=lambda budget: KeepRecentTokens(
            tokens=limit_kept_tokens(chosen.keep_recent_tokens, max_tokens(budget))
        ),
        summarizer=chosen.make_summarizer,
        enabled=chosen.enabled,
    )


@attrs.frozen(kw_only=True)
class GSVProcess:
    """The settings of `gsv_process`."""

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
    rules = (
        once_per_turn(compact_above(chosen.max_tokens, "before_render", inclusive=True)),
        once_per_turn(compact_on("overflow", "rejected")),
    )
    return Preset(
        name="gsv_process",
        follows="GSV, deathbyknowledge/gsv fa39786 of 2026-08-04",
        adjust_budget=without_safety_share,
        policy=lambda _: first_match(
            (
                compact_on_demand,
                *(rules if chosen.mode == "auto-compact" else ()),
                fail_if_too_large,
            )
        ),
        keep=lambda _: KeepLastMessages(count=chosen.keep_last),
        max_summary_tokens=768,
        summarizer=make_fallback_factory(make_simple_summarizer),
    )
