"""How a conversation is compacted: a preset and the parts that a program replaces, made into a controller for one transcript."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.selection import limit_keep, select
from promptkit.compaction.policy.rules import first_match, prune_results
from promptkit.compaction.policy.usage import UsageByPart
from promptkit.compaction.presets.vscode import vscode
from promptkit.compaction.pruning.tool_outputs import ResultLimits
from promptkit.compaction.recall.tool import (
    list_look_up_tools,
    suggest_call,
    suggest_entry,
)
from promptkit.compaction.run.controller import CompactionController
from promptkit.compaction.storage.archives import ArchivingCompactor
from promptkit.compaction.summarizers.defaults import SummarizerContext, compute_max_summary_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptkit.compaction.planning.plan import Plan
    from promptkit.compaction.planning.selection import Keep
    from promptkit.compaction.policy.rules import Policy, Rule
    from promptkit.compaction.presets.preset import Preset
    from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
    from promptkit.compaction.run.events import Events
    from promptkit.compaction.run.hooks import CompactionHooks
    from promptkit.compaction.storage.archives import ArchiveDirectory
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.messages import ToolDefinition
    from promptkit.tokens.budget import ContextBudget
    from promptkit.transcript.log.redaction import Redactor
    from promptkit.transcript.log.transcript import Transcript

REPLAYED_SHARE = 4
"""The open requests that a compaction repeats may have a quarter of what a conversation may have;
the newest one may always stay."""


@attrs.frozen(kw_only=True)
class CompactionConfig:
    """The parts of a conversation's compaction. A part that is None is the preset's."""

    rng: Callable[[], float]
    """Returns numbers from 0 to below 1, for the jitter of thresholds."""
    preset: Preset = attrs.field(factory=vscode)
    policy: Policy | None = None
    keep: Keep | None = None
    reduce: ReduceToolResults | None = None
    """Replaces old and superseded tool results by placeholders, permanently. None: as the preset
    does."""
    summarizer: Summarizer | None = None
    hooks: CompactionHooks | None = None
    redactor: Redactor | None = None
    """Removes secrets from what summarizers read and write."""
    events: Events | None = None
    archives: ArchiveDirectory | None = None
    """Where the entries that a checkpoint drops are written first; None: they are only in the
    transcript."""
    read_tool: str = "read_file"
    """The name of a tool with which the model can read the transcript's file, for a conversation
    without the tool `recall`."""
    tool_limits: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """The most tokens of the results of tools that have a limit of their own, by name."""
    enabled: bool = True
    """False: nothing is compacted automatically. The preset can say so, too."""

    def adapt_budget(self, budget: ContextBudget) -> ContextBudget:
        """Apply the preset's thresholds and reserves to a model's budget."""
        return self.preset.adjust_budget(budget)

    def build_controller(  # noqa: PLR0913  # keywords
        self,
        transcript: Transcript,
        context: SummarizerContext,
        *,
        model: str,
        tools: Sequence[ToolDefinition] = (),
        count_fixed: Callable[[], UsageByPart] = UsageByPart,
        clock: Callable[[], float] | None = None,
    ) -> CompactionController:
        """Build the controller of a transcript.

        Args:
            transcript: The conversation.
            context: The budget, the tokenizer and the summarizing model.
            model: The name of the model that answers.
            tools: The tools of the conversation.
            count_fixed: Returns the parts of every request besides the conversation, for the sizes
                in events.
            clock: Returns seconds that only grow; the system's clock by default.
        """
        preset, budget = self.preset, context.budget
        policy, reduce = self.policy or preset.policy(self.rng), self.reduce or preset.reduce
        compactor_class = partial(ArchivingCompactor, clock=clock) if clock else ArchivingCompactor
        compactor = compactor_class(
            transcript,
            summarizer=self._build_summarizer(context),
            keep=self._build_keep(budget),
            choose=self._build_choice(budget),
            replacement=self.preset.replacement.limited_to(budget.base),
            tokenizer=context.tokenizer,
            max_summary_tokens=self._compute_max_summary_tokens(budget),
            max_result_tokens=budget.result_tokens,
            result_limits=ResultLimits(
                by_tool=self.tool_limits,
                describe_rest=partial(suggest_entry, tools, transcript),
                tools=list_look_up_tools(tools),
            ),
            tools=tools,
            hooks=self.hooks,
            redactor=self.redactor,
            events=self.events,
            look_up=partial(
                suggest_call, tools, read_tool=self.read_tool, location=transcript.store.address
            ),
            file_rules=preset.file_rules,
            count_fixed=count_fixed,
        )
        compactor.archives = self.archives
        compactor.handoff = self._build_handoff(context)
        return CompactionController(
            compactor,
            budget=budget,
            policy=policy
            if reduce is None
            else first_match((_make_prune_rule(reduce), policy.decide)),
            tokenizer=context.tokenizer,
            model=model,
            enabled=self.enabled and preset.enabled,
            reduce=reduce,
            processors=preset.processors,
            cache_seconds=preset.cache_seconds,
            clock=clock or time.monotonic,
        )

    def update_budget(self, controller: CompactionController, context: SummarizerContext) -> None:
        """Let a controller use another budget, tokenizer and summarizing model from now on."""
        controller.budget = context.budget
        controller.compactor.keep = self._build_keep(context.budget)
        controller.compactor.choose = self._build_choice(context.budget)
        controller.compactor.handoff = self._build_handoff(context)
        controller.compactor.update_settings(
            summarizer=self._build_summarizer(context),
            tokenizer=context.tokenizer,
            max_summary_tokens=self._compute_max_summary_tokens(context.budget),
            max_result_tokens=context.budget.result_tokens,
            replacement=self.preset.replacement.limited_to(context.budget.base),
        )

    def _build_keep(self, budget: ContextBudget) -> Keep:
        """Return what stays at a compaction, within half of what a conversation may have: what the program or else the preset keeps."""
        return limit_keep(
            self.keep or self.preset.keep(budget), None if budget.base is None else budget.base // 2
        )

    def _build_choice(self, budget: ContextBudget) -> Callable[..., Plan]:
        """Return what plans a compaction: open requests are repeated within a share of what a conversation may have."""
        most = None if budget.base is None else budget.base // REPLAYED_SHARE
        return partial(select, split=self.preset.split, max_replayed_tokens=most)

    def _compute_max_summary_tokens(self, budget: ContextBudget) -> int:
        """Return the size limit of a summary, in tokens: the budget's, or the preset's if that is lower."""
        limits = (compute_max_summary_tokens(budget), self.preset.max_summary_tokens)
        return min(limit for limit in limits if limit is not None)

    def _build_summarizer(self, context: SummarizerContext) -> Summarizer:
        return self.summarizer or self.preset.summarizer(context)

    def _build_handoff(self, context: SummarizerContext) -> Summarizer | None:
        return None if self.preset.handoff is None else self.preset.handoff(context)


def _make_prune_rule(reduce: ReduceToolResults) -> Rule:
    return prune_results(least_saving=reduce.least_saving, warm_ratio=reduce.warm_ratio)
