"""Coding agents: VS Code's chat, Claude Code, Codex, Copilot CLI, OpenCode, Amp, pi, oh-my-pi and GSV; and two presets of no agent, without summaries.

* VS Code's chat: background summaries at a jittered threshold, foreground ones where that was too late.
* Claude Code: near the end of the context window the live conversation is summarized, and only the summary stays.
* Codex CLI: at 0.9 of the context window the history is replaced by the newest user messages and a summary after them.
* Copilot CLI: a background summary from 0.80 on, only compacted requests from 0.95 on, then the truncator.
* OpenCode: when the usable part of the context window is full, a quarter of it stays, and the live conversation
  summarizes the rest.
* Amp, `off` and `truncate_only` never summarize on their own: a request that is too large fails, or loses its oldest
  rounds.
* pi keeps a reserve of the context window free, checked between turns. The newest messages stay, turns may be split,
  files are listed.
* oh-my-pi is pi with more triggers: a larger model is used first, and old tool outputs are pruned before anything is
  summarized.
* GSV has two versions. As it was designed, the conversation is summarized in chunks of a quarter of the window, and
  each answer lists memories, too. As of August 2026 it compacts at a share of the context window, at most once per
  turn; the newest messages stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import attrs

from promptkit.compaction.planning.selection import (
    Keep,
    KeepLastMessages,
    KeepLastTurns,
    KeepNothing,
    KeepRecentTokens,
)
from promptkit.compaction.planning.user_messages import UserMessageHistory, VerbatimUserMessages
from promptkit.compaction.policy.rules import (
    Thresholds,
    apply_or_discard,
    block_at,
    compact_above,
    compact_on,
    compact_on_demand,
    compact_when_idle,
    default_policy,
    discard_stale,
    fail_if_too_large,
    first_match,
    on_overflow,
    once_per_turn,
    only_before_turns,
    promote,
    render_pruned_if_too_large,
    require_messages,
    start_background_at,
)
from promptkit.compaction.policy.state import HANDOFF, THRESHOLD
from promptkit.compaction.presets.preset import (
    Preset,
    limit_kept_tokens,
    split_reserve,
    without_safety_share,
)
from promptkit.compaction.presets.settings import OriginalName, disables, optional, percent, setting
from promptkit.compaction.pruning.processors import clear_results, remove_images, truncate_history
from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
from promptkit.compaction.run.branches import make_handoff_summarizer
from promptkit.compaction.run.replacement import Replacement
from promptkit.compaction.run.reset import DailyReset, IdleReset, ManualReset, ResetPolicy
from promptkit.compaction.summarizers.defaults import (
    UNLIMITED,
    SummarizerContext,
    make_extractive_summarizer,
    make_fallback_factory,
    make_full_summarizer,
    make_inline_summarizer,
    make_simple_summarizer,
)
from promptkit.compaction.summarizers.extractive import PlaceholderSummarizer
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.file_lists import FileListSummarizer
from promptkit.compaction.summarizers.model_summarizers import (
    ChunkedSummarizer,
    SplitTurnSummarizer,
)
from promptkit.compaction.summarizers.native import NativeSummarizer, can_compact
from promptkit.compaction.summarizers.remote import RemoteSummarizer
from promptkit.compaction.summarizers.summarizer import Summarizer
from promptkit.errors import InvalidArgumentError
from promptkit.tokens import ContextBudget
from promptkit.tokens.budget import fit_reserve, resolve_threshold


def _in_chat(
    key: str, declare: Callable[[str], OriginalName] = OriginalName
) -> tuple[OriginalName, ...]:
    """Declare a key of the chat, which VS Code has with the extension's prefix and without it."""
    return declare(f"github.copilot.{key}"), declare(key)


@attrs.frozen(kw_only=True)
class VSCode:
    """The settings of `vscode`."""

    enabled: bool = setting(
        default=True, names=_in_chat("chat.summarizeAgentConversationHistory.enabled")
    )
    """Compact automatically."""
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
        return attrs.evolve(
            budget,
            max_tokens=min(sizes, default=None),
            threshold=budget.threshold if self.threshold is None else self.threshold,
        )

    def make_summarizer(self, context: SummarizerContext) -> Summarizer:
        """Make the summarizer of the mode.

        A model that does not answer is never asked at the end of the conversation: it has no cache
        of it.
        """
        return make_fallback_factory(
            *(
                [make_inline_summarizer]
                if self.mode == "auto" and not context.has_other_model
                else []
            ),
            *([make_full_summarizer] if self.mode != "simple" else []),
            make_simple_summarizer,
        )(context)


def vscode(settings: VSCode | None = None) -> Preset:
    """Return the preset, which is the default.

    The newest round stays, and the live conversation is summarized first.
    """
    chosen = settings or VSCode()
    return Preset(
        name="vscode",
        follows="Copilot Chat in microsoft/vscode 03d18a46, second half of 2026",
        policy=lambda rng: default_policy(
            rng=rng,
            thresholds=Thresholds(
                warm=chosen.warm,
                jitter=chosen.jitter,
                cold=chosen.cold,
                apply=chosen.apply,
                wait_seconds=chosen.wait_seconds,
            ),
        ),
        adjust_budget=chosen.adjust_budget,
        summarizer=chosen.make_summarizer,
        summary_model=chosen.summary_model,
        summary_model_filter=chosen.summary_model_filter,
        enabled=chosen.enabled,
    )


@attrs.frozen(kw_only=True)
class ClaudeCode:
    """The settings of `claude_code`."""

    enabled: bool = setting(
        default=True,
        names=(disables("DISABLE_AUTO_COMPACT"), disables("DISABLE_COMPACT"), "autoCompactEnabled"),
    )
    """Compact automatically."""
    output_tokens: int = setting(20_000, minimum=0)
    """Maximum of the tokens that are kept free for the model's output."""
    margin_tokens: int = setting(13_000, minimum=0)
    """Tokens that are kept free besides the output."""
    threshold: float | None = setting(
        None, names=(percent("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"),), minimum=0.01, maximum=1
    )
    """Share of what the output leaves of the window, from which the conversation is compacted. None:
    the margin alone."""
    keep_results: int | None = setting(None, minimum=0)
    """Number of the newest tool results that requests contain; older ones are cleared. None:
    all."""
    breaker: int = setting(3, minimum=1)
    """Number of failures in a row after which nothing is tried any more."""

    def max_tokens(self, budget: ContextBudget) -> int | None:
        """Return the size from which the conversation is compacted, in tokens: four fifths of a window too small for the reserves.

        That is about 95 % of what the output leaves: 0.93 of 180,000 tokens in a window of 200,000,
        and 0.99 of 980,000 in one of a million.
        """
        if budget.window is None:
            return None
        left = budget.window - min(
            budget.max_output_tokens or self.output_tokens, self.output_tokens
        )
        limit = left - self.margin_tokens
        if limit <= budget.window // 2:
            left = limit = budget.window * 4 // 5
        return limit if self.threshold is None else max(1, int(left * self.threshold))


def claude_code(settings: ClaudeCode | None = None) -> Preset:
    """Return the preset. The summary and what every preset carries replace all messages."""
    chosen = settings or ClaudeCode()
    return Preset(
        name="claude_code",
        follows="Claude Code, as third parties describe it in November 2026; its source is not public",
        adjust_budget=split_reserve(chosen.max_tokens),
        policy=lambda _: first_match(
            (
                compact_on_demand,
                on_overflow(attempts=chosen.breaker, breaker=chosen.breaker),
                compact_above(
                    chosen.max_tokens,
                    "before_render",
                    inclusive=True,
                    attempts=chosen.breaker,
                    breaker=chosen.breaker,
                ),
            )
        ),
        keep=lambda _: KeepNothing(),
        summarizer=make_fallback_factory(make_inline_summarizer, make_simple_summarizer),
        processors=()
        if chosen.keep_results is None
        else (clear_results(chosen.keep_results, step=8),),
        enabled=chosen.enabled,
    )


PREFACE = "A model worked on this before you, and left this summary of what it did. Build on it, and do not do the same again:\n"


@attrs.frozen(kw_only=True)
class Codex:
    """The settings of `codex`."""

    enabled: bool = True
    """Compact automatically."""
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
    return Preset(
        name="codex",
        follows="Codex CLI, openai/codex 0100b10 of late 2025",
        adjust_budget=split_reserve(chosen.max_tokens),
        policy=lambda _: first_match(
            (
                compact_on_demand,
                on_overflow(),
                compact_above(chosen.max_tokens, "before_render", "model_switch", inclusive=True),
            )
        ),
        keep=lambda _: KeepNothing(),
        replacement=Replacement(
            place="last",
            preface=PREFACE,
            originals=VerbatimUserMessages(max_tokens=chosen.user_message_tokens),
        ),
        summarizer=make_fallback_factory(make_inline_summarizer, make_full_summarizer),
        enabled=chosen.enabled,
    )


USER_MESSAGES_SHARE = 2
"""The user's messages beside the summary take at most half of what a conversation may have."""


@attrs.frozen(kw_only=True)
class CopilotCLI:
    """The settings of `copilot_cli`."""

    enabled: bool = setting(default=True, names=("infiniteSessions.enabled",))
    """Compact automatically."""
    background: float = setting(
        0.80,
        names=(
            "COPILOT_BACKGROUND_COMPACTION_THRESHOLD",
            "infiniteSessions.backgroundCompactionThreshold",
        ),
        minimum=0,
        maximum=1,
    )
    """Share of the context window at which a background summary starts."""
    block: float = setting(
        0.95,
        names=("COPILOT_BUFFER_EXHAUSTION_THRESHOLD", "infiniteSessions.bufferExhaustionThreshold"),
        minimum=0,
        maximum=1,
    )
    """Share of the context window from which on no request is sent without a new summary."""
    user_message_tokens: int = setting(20_000, minimum=0)
    """Tokens of user messages that stay verbatim."""
    max_user_message_tokens: int = setting(2_000, minimum=0)
    """Tokens that stay of one user message."""
    min_messages: int = setting(4, minimum=0)
    """Number of messages below which nothing is summarized automatically."""
    min_messages_manual: int = setting(2, minimum=0)
    """Number of messages below which nothing is summarized even if the user asks for it."""


def copilot_cli(settings: CopilotCLI | None = None) -> Preset:
    """Return the preset.

    User messages, todos and skills stay beside the summary. Requests are truncated only after a
    compaction.
    """
    chosen = settings or CopilotCLI()
    if chosen.background > chosen.block:
        raise InvalidArgumentError(
            f"background must be at most block ({chosen.block:g}), where no request is sent without a summary, not {chosen.background:g}: write CopilotCLI(background=0.8, block=0.95)."
        )
    return Preset(
        name="copilot_cli",
        follows="Copilot CLI, as described in November 2026 from its bundle; the version is not known",
        adjust_budget=without_safety_share,
        policy=lambda _: first_match(
            [
                require_messages(
                    chosen.min_messages,
                    (
                        compact_on_demand,
                        discard_stale,
                        block_at(chosen.block),
                        apply_or_discard(0.0),
                        compact_on("model_switch", "memory"),
                        on_overflow(),
                        start_background_at(chosen.background),
                    ),
                    manual_count=chosen.min_messages_manual,
                )
            ]
        ),
        keep=lambda _: KeepNothing(),
        replacement=Replacement(
            originals=UserMessageHistory(
                max_tokens=chosen.user_message_tokens,
                max_message_tokens=chosen.max_user_message_tokens,
                share=USER_MESSAGES_SHARE,
            ),
        ),
        enabled=chosen.enabled,
    )


@attrs.frozen(kw_only=True)
class OpenCode:
    """The settings of `opencode`."""

    enabled: bool = setting(
        default=True, names=(disables("OPENCODE_DISABLE_AUTOCOMPACT"), "compaction.auto")
    )
    """Compact automatically."""
    reserved: int | None = setting(None, names=("compaction.reserved",), minimum=0)
    """Tokens that are kept free besides the model's output. None: as many as the output, at most
    20,000."""
    second_reserve: bool = True
    """Keep `reserved` free besides the output where only the window is known. False:
    only the output, as in earlier versions."""
    preserve_recent_tokens: int | None = setting(
        None, names=("compaction.preserve_recent_tokens",), minimum=0
    )
    """Tokens of the newest messages that stay. None: a quarter of the usable tokens, from 2,000 to
    15,000."""
    tail_turns: int | None = setting(None, names=("compaction.tail_turns",))
    """Number of the newest turns of which messages stay, within these tokens. None: any number. 0
    or less: nothing stays."""
    auto_continue: bool = True
    """Ask the model to go on after a compaction at the end of a turn."""
    prune: bool = setting(
        default=False, names=(disables("OPENCODE_DISABLE_PRUNE"), "compaction.prune")
    )
    """Prune old tool outputs if that saves 20,000 tokens."""

    def max_tokens(self, budget: ContextBudget) -> int | None:
        """Return the size from which the conversation is compacted, in tokens."""
        if budget.window is None:
            return None
        output = min(budget.max_output_tokens or 32_000, 32_000, budget.window // 4)
        reserved = min(20_000, output) if self.reserved is None else self.reserved
        return (
            max(1, budget.max_input - reserved)
            if budget.max_input is not None
            else max(1, budget.window - output - (reserved if self.second_reserve else 0))
        )

    def keep_recent(self, budget: ContextBudget) -> Keep:
        """Return which messages stay."""
        if self.tail_turns is not None and self.tail_turns <= 0:
            return KeepNothing()
        usable, tokens = self.max_tokens(budget) or 60_000, self.preserve_recent_tokens
        if tokens is None:
            tokens = max(2_000, min(15_000, usable // 4))
        tokens = max(1, min(tokens, usable // 2))
        return (
            KeepRecentTokens(tokens=tokens)
            if self.tail_turns is None
            else KeepLastTurns(count=self.tail_turns, max_tokens=tokens)
        )


def opencode(settings: OpenCode | None = None) -> Preset:
    """Return the preset. The user request that overflowed is repeated after the summary."""
    chosen = settings or OpenCode()
    return Preset(
        name="opencode",
        follows="OpenCode, packages/opencode of sst/opencode 31e22f6, second half of 2026",
        adjust_budget=split_reserve(chosen.max_tokens),
        policy=lambda _: first_match(
            (
                compact_on_demand,
                on_overflow(),
                compact_above(chosen.max_tokens, "turn_end", "before_render", inclusive=True),
            )
        ),
        keep=chosen.keep_recent,
        max_summary_tokens=4_096,
        summarizer=make_fallback_factory(make_inline_summarizer, make_simple_summarizer),
        reduce=ReduceToolResults(superseded=False, warm_ratio=0.0) if chosen.prune else None,
        auto_continue=chosen.auto_continue,
        enabled=chosen.enabled,
    )


def off() -> Preset:
    """Return the preset without automatic compaction: only a compaction that the user asks for is done."""
    return Preset(name="off", policy=lambda _: first_match((compact_on_demand, fail_if_too_large)))


def amp() -> Preset:
    """Return Amp's preset.

    A request that is too large fails; `handoff` and `fork` are what the user does before that.
    """
    return Preset(
        name="amp",
        follows="Amp, as described in November 2026; the version is not known",
        policy=lambda _: first_match((compact_on_demand, fail_if_too_large)),
    )


def truncate_only() -> Preset:
    """Return the preset: the oldest messages that do not fit are dropped, half of the limit at once, so that the prompt cache holds longer."""
    return Preset(
        name="truncate_only",
        policy=lambda _: first_match((compact_on_demand, render_pruned_if_too_large)),
        processors=(truncate_history(0.5),),
    )


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
class OhMyPi(Pi):
    """The settings of `oh_my_pi`: those of pi, and more."""

    threshold: float | None = setting(
        None,
        names=(optional("compaction.thresholdTokens"), percent("compaction.thresholdPercent")),
        threshold=True,
    )
    """Size above which the conversation is compacted, in tokens or as a share. None: the window
    without the reserve, or without 15 % if that is more."""
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
