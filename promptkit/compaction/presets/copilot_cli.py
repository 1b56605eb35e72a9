"""Copilot CLI: a summary beside the conversation from 0.80 on, none but a compacted request from 0.95 on, then the truncator."""

from __future__ import annotations

import attrs

from promptkit.compaction.planning.selection import KeepNothing
from promptkit.compaction.planning.user_messages import VerbatimUserMessages
from promptkit.compaction.policy.rules import (
    block_at,
    compact_on,
    discard_stale,
    first_match,
    least_messages,
    manual,
    on_overflow,
    settle_background,
    start_at,
)
from promptkit.compaction.presets.preset import Preset, exact
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.pruning.processors import truncator
from promptkit.compaction.replacement import Replacement, carried_over

__all__ = ["CopilotCLI", "copilot_cli"]


@attrs.frozen(kw_only=True)
class CopilotCLI:
    """Its settings. Figures are shares of the window, tokens and messages."""

    enabled: bool = True
    background: float = setting(0.80, least=0, most=1)
    block: float = setting(0.95, least=0, most=1)
    originals: int = setting(20_000, least=0)
    """What stays of the person's messages, word for word."""
    original: int = setting(2_000, least=0)
    """What stays of one of them."""
    least: int = setting(4, least=0)
    """Shorter conversations are not summarized by themselves."""
    least_asked: int = setting(2, least=0)
    """Nor, below this, because somebody asks."""


def copilot_cli(settings: CopilotCLI | None = None) -> Preset:
    """Everything is summarized; the person's words, todos and skills stay beside the summary. Truncation comes after compaction."""
    its = settings or CopilotCLI()
    rules = (
        manual,
        discard_stale,
        block_at(its.block),
        settle_background(0.0),
        compact_on("model_switch", "memory"),
        on_overflow(),
        start_at(its.background),
    )
    return Preset(
        name="copilot_cli",
        figures=exact,
        policy=lambda _: first_match((least_messages(its.least, rules, asked=its.least_asked),)),
        keep=lambda _: KeepNothing(),
        replacement=Replacement(originals=VerbatimUserMessages(tokens=its.originals, each=its.original), carry=carried_over),
        processors=(truncator(),),
        enabled=its.enabled,
    )
