"""How a conversation is compacted: a preset, and what a program says otherwise; made into the keeper of one transcript."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.controller import CompactionController
from promptkit.compaction.planning.selection import select
from promptkit.compaction.presets.vscode import vscode
from promptkit.compaction.storage.archives import ArchivingCompactor
from promptkit.compaction.summarizers.defaults import SummarizerContext, max_summary_tokens_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.compaction.budget import Budget
    from promptkit.compaction.events import Events
    from promptkit.compaction.hooks import CompactionHooks
    from promptkit.compaction.planning.selection import Keep
    from promptkit.compaction.policy.rules import Policy
    from promptkit.compaction.presets.preset import Preset
    from promptkit.compaction.storage.archives import ArchiveDirectory
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.messages import ToolDefinition
    from promptkit.transcript.redaction import Redactor
    from promptkit.transcript.transcript import Transcript

__all__ = ["CompactionConfig"]


@attrs.frozen(kw_only=True)
class CompactionConfig:
    """What keepers are made by. What is None is as the preset has it."""

    draw: Callable[[], float]
    """Gives numbers from 0 to below 1, for the jitter of thresholds."""
    preset: Preset = attrs.field(factory=vscode)
    policy: Policy | None = None
    keep: Keep | None = None
    summarizer: Summarizer | None = None
    hooks: CompactionHooks | None = None
    redactor: Redactor | None = None
    events: Events | None = None
    archives: ArchiveDirectory | None = None
    """Where what a checkpoint drops is written before; None: nowhere but in the transcript."""
    read_tool: str = "read_file"
    enabled: bool = True
    """Nothing is done that nobody asked for where this, or the preset, says so."""

    def budget(self, budget: Budget) -> Budget:
        """A model's budget with the preset's figures."""
        return self.preset.figures(budget)

    def keeper(
        self,
        transcript: Transcript,
        *,
        writing: SummarizerContext,
        name: str,
        tools: Sequence[ToolDefinition] = (),
        clock: Callable[[], float] | None = None,
    ) -> CompactionController:
        """The keeper of a transcript whose requests go to the model of this name. `clock` gives seconds that only grow."""
        preset, budget = self.preset, writing.budget
        made = partial(ArchivingCompactor, clock=clock) if clock else ArchivingCompactor
        compactor = made(
            transcript,
            summarizer=self._summarizer(writing),
            keep=self.keep or preset.keep(budget),
            choose=partial(select, split=preset.split),
            replacement=preset.replacement,
            tokenizer=writing.tokenizer,
            max_summary_tokens=max_summary_tokens_for(budget),
            max_result_tokens=budget.result_tokens,
            tools=tools,
            hooks=self.hooks,
            redactor=self.redactor,
            events=self.events,
            read_tool=self.read_tool,
        )
        compactor.archives = self.archives
        return CompactionController(
            compactor,
            budget=budget,
            policy=self.policy or preset.policy(self.draw),
            tokenizer=writing.tokenizer,
            model=name,
            enabled=self.enabled and preset.enabled,
            prunes=preset.prunes,
        )

    def fit(self, keeper: CompactionController, writing: SummarizerContext) -> None:
        """Have a keeper keep to another budget, and to another model's figures, from now on."""
        keeper.budget = writing.budget
        keeper.compactor.keep = self.keep or self.preset.keep(writing.budget)
        keeper.compactor.switch(
            summarizer=self._summarizer(writing),
            tokenizer=writing.tokenizer,
            max_summary_tokens=max_summary_tokens_for(writing.budget),
            max_result_tokens=writing.budget.result_tokens,
        )

    def _summarizer(self, writing: SummarizerContext) -> Summarizer:
        return self.summarizer or self.preset.summarizer(writing)
