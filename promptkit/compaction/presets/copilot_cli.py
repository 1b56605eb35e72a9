"""Copilot CLI: a background summary from 0.80 on, only compacted requests from 0.95 on, then the truncator."""

from __future__ import annotations

import attrs

from promptkit.compaction.planning.selection import KeepNothing
from promptkit.compaction.planning.user_messages import UserMessageHistory
from promptkit.compaction.policy.rules import (
    apply_or_discard,
    block_at,
    compact_on,
    compact_on_demand,
    discard_stale,
    first_match,
    on_overflow,
    require_messages,
    start_background_at,
)
from promptkit.compaction.presets.preset import Preset, without_safety_share
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.run.replacement import Replacement
from promptkit.errors import InvalidArgumentError

USER_MESSAGES_SHARE = 2
"""The user's messages beside the summary take at most half of what a conversation may have."""


@attrs.frozen(kw_only=True)
class CopilotCLI:
    """The settings of the preset."""

    enabled: bool = setting(default=True, names=("infiniteSessions.enabled",))
    """Whether automatic compaction is on."""
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
    rules = (
        compact_on_demand,
        discard_stale,
        block_at(chosen.block),
        apply_or_discard(0.0),
        compact_on("model_switch", "memory"),
        on_overflow(),
        start_background_at(chosen.background),
    )
    return Preset(
        name="copilot_cli",
        follows="Copilot CLI, as described in November 2026 from its bundle; the version is not known",
        adjust_budget=without_safety_share,
        policy=lambda _: first_match(
            (require_messages(chosen.min_messages, rules, manual_count=chosen.min_messages_manual),)
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
