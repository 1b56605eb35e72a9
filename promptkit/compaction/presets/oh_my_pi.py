"""oh-my-pi: pi with more triggers.

A larger model is used first, and old tool outputs are pruned before anything is summarized.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from promptkit.compaction.planning.selection import KeepRecentTokens
from promptkit.compaction.policy.decisions import HANDOFF, THRESHOLD
from promptkit.compaction.policy.rules import (
    compact_above,
    compact_on,
    compact_on_demand,
    compact_when_idle,
    first_match,
    on_overflow,
    promote,
)
from promptkit.compaction.presets.pi import limit_summary
from promptkit.compaction.presets.preset import Preset, limit_kept_tokens, split_reserve
from promptkit.compaction.presets.settings import optional, percent, setting
from promptkit.compaction.pruning.processors import remove_images
from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
from promptkit.compaction.run.branches import make_handoff_summarizer
from promptkit.compaction.summarizers.defaults import (
    UNLIMITED,
    SummarizerContext,
    make_fallback_factory,
    make_simple_summarizer,
)
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.file_lists import FileListSummarizer
from promptkit.compaction.summarizers.native import NativeSummarizer, can_compact
from promptkit.compaction.summarizers.remote import RemoteSummarizer
from promptkit.compaction.summarizers.split_turn import SplitTurnSummarizer
from promptkit.tokens.budget import fit_reserve, resolve_threshold

if TYPE_CHECKING:
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.tokens import ContextBudget

RESERVE_SHARE = 0.15
"""Lowest share of the context window that is kept free."""


@attrs.frozen(kw_only=True)
class OhMyPi:
    """The settings of the preset."""

    LEFT_ASIDE: ClassVar[tuple[str, ...]] = ("branchSummary",)

    enabled: bool = setting(default=True, names=("compaction.enabled",))
    """Whether automatic compaction is on."""
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
    """Whether an idle conversation is compacted."""
    idle_tokens: int = setting(200_000, names=("compaction.idleThresholdTokens",), minimum=1)
    """Size in tokens from which an idle conversation is compacted."""
    idle_seconds: float = setting(300.0, names=("compaction.idleTimeoutSeconds",), minimum=0)
    """Seconds without a message after which a conversation is idle."""
    auto_continue: bool = setting(default=True, names=("compaction.autoContinue",))
    """Whether the model is asked to go on after a compaction at the end of a turn."""
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
    trigger = HANDOFF if chosen.strategy == "handoff" else THRESHOLD
    above = compact_above(chosen.max_tokens, "turn_end", "before_render", trigger=trigger)
    rules = [
        compact_on_demand,
        *([promote()] if chosen.promote else []),
        compact_on("incomplete"),
        on_overflow(),
        above,
    ]
    return Preset(
        name="oh_my_pi",
        follows="oh-my-pi 18.2.11 of 2026-09-23 (compaction 0e232f3, pruning 0f90893)",
        adjust_budget=split_reserve(chosen.max_tokens),
        policy=lambda _: first_match(
            [
                *rules,
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
