"""How a conversation is compacted: a preset and the parts that a program replaces, made into a controller for one transcript."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial

import attrs

from promptkit.compaction.planning.plan import CarriedContext
from promptkit.compaction.planning.selection import Keep, limit_keep, select
from promptkit.compaction.policy.rules import (
    Policy,
    first_match,
    prune_old_reasoning,
    prune_results,
)
from promptkit.compaction.policy.usage import UsageByPart
from promptkit.compaction.presets import PRESETS
from promptkit.compaction.presets.preset import Preset
from promptkit.compaction.presets.vscode import vscode
from promptkit.compaction.pruning.tool_outputs import ONLY_STATED, ReduceToolResults, ResultLimits
from promptkit.compaction.recall.tool import (
    list_look_up_tools,
    suggest_call,
    suggest_entry,
)
from promptkit.compaction.run.controller import CompactionController
from promptkit.compaction.run.events import Events
from promptkit.compaction.run.hooks import CompactionHooks
from promptkit.compaction.run.state import ConversationState
from promptkit.compaction.storage.archives import ArchiveDirectory, ArchivingCompactor
from promptkit.compaction.summarizers.defaults import (
    UNLIMITED,
    SummarizerContext,
    compute_max_summary_tokens,
    make_extractive_summarizer,
)
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.model_summarizers import ChunkedSummarizer
from promptkit.compaction.summarizers.summarizer import Summarizer
from promptkit.errors import InvalidArgumentError
from promptkit.messages import ToolDefinition
from promptkit.providers import Model
from promptkit.tokens import ContextBudget, Tokenizer
from promptkit.tokens.models import model_name
from promptkit.tools import AnyTool, Supersedes, Tool, tool_definitions
from promptkit.transcript import Redactor, Transcript

REPLAYED_SHARE = 4
"""The open requests that a compaction repeats may have a quarter of what a conversation may have;
the newest one may always stay."""


def resolve_preset(preset: object) -> Preset:
    """Return a preset that is given by its name or as a value. Raises InvalidArgumentError."""
    if isinstance(preset, Preset):
        return preset
    build = PRESETS.get(preset) if isinstance(preset, str) else None
    if build is None:
        raise InvalidArgumentError(
            f"preset must be a Preset or one of the names {', '.join(PRESETS)}, not {preset!r:.80}."
        )
    return build()


def _or_new_events(events: Events | None) -> Events:
    return Events() if events is None else events


@attrs.frozen(kw_only=True)
class CompactionConfig:
    """The parts of a conversation's compaction. A part that is None is the preset's."""

    preset: Preset = attrs.field(factory=vscode, converter=resolve_preset)
    """A `Preset`, or its name."""
    policy: Policy | None = None
    summarizer: Summarizer | Model | None = None
    """A summarizer, or the model object that the preset's summarizers use."""
    keep: Keep | None = None
    reduce: ReduceToolResults | None = None
    """Replaces old and superseded tool results by placeholders, permanently. None: as the preset
    does."""
    hooks: CompactionHooks | None = None
    redactor: Redactor | None = None
    """Removes secrets from what summarizers read and write."""
    events: Events = attrs.field(factory=Events, converter=_or_new_events)
    archives: ArchiveDirectory | None = None
    """Where the entries that a checkpoint drops are written first; None: they are only in the
    transcript."""
    tools: Sequence[AnyTool] = ()
    """The tools of the conversation."""
    carry: Callable[[], CarriedContext] | None = None
    """Returns the present plan, todos, skills, rules and agent, which each summary then shows
    instead of those that the conversation recorded. None: those are shown."""
    read_tool: str = "read_file"
    """The name of a tool with which the model can read the transcript's file, for a conversation
    without the tool `recall`."""
    enabled: bool = True
    """False: nothing is compacted automatically. The preset can say so, too."""
    rng: Callable[[], float] = random.random
    """Returns numbers from 0 to below 1, for the jitter of thresholds."""
    clock: Callable[[], float] = time.monotonic
    """Returns seconds that only grow."""

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The definitions of the tools."""
        return tuple(tool_definitions(self.tools))

    @property
    def result_tokens(self) -> dict[str, int]:
        """The limits that tools set for their results, in tokens, by name."""
        own = (tool for tool in self.tools if isinstance(tool, Tool))
        return {
            each.definition.name: each.max_tokens for each in own if each.max_tokens is not None
        }

    @property
    def supersedes(self) -> dict[str, Supersedes]:
        """Which results the tools supersede, by name."""
        own = (tool for tool in self.tools if isinstance(tool, Tool))
        return {each.definition.name: each.supersedes for each in own if each.supersedes}

    def build_context(
        self, model: str | Model, budget: ContextBudget, tokenizer: Tokenizer
    ) -> SummarizerContext:
        """Return what summarizers of conversations with a model are made of.

        Args:
            model: The name of the model that answers, or a model object.
            budget: The model's budget, to which the preset's thresholds and reserves are applied.
            tokenizer: Counts tokens.
        """
        name = model_name(model)
        writer = None if isinstance(model, str) else model
        if isinstance(self.summarizer, Model) and self.preset.allows_summary_model(name):
            writer = self.summarizer
        return SummarizerContext(
            model=writer,
            budget=self.preset.adjust_budget(budget),
            tokenizer=tokenizer,
            answering_model=name,
        )

    def build_controller(
        self,
        transcript: Transcript,
        model: str | Model,
        context: SummarizerContext,
        count_fixed: Callable[[], UsageByPart],
    ) -> CompactionController:
        """Build the controller of a transcript.

        Args:
            transcript: The conversation.
            model: The model that answers.
            context: Its budget, the tokenizer and the summarizing model.
            count_fixed: Returns the parts of every request besides the conversation, for the sizes
                in events.
        """
        preset, tools = self.preset, self.definitions
        policy, reduce = self.policy or preset.policy(self.rng), self.reduce or preset.reduce
        policy = first_match((prune_old_reasoning, policy.decide))
        rule = prune_results(
            least_saving=(reduce or ONLY_STATED).least_saving,
            warm_ratio=(reduce or ONLY_STATED).warm_ratio,
        )
        policy = first_match((rule, policy.decide))
        compactor = ArchivingCompactor(
            transcript,
            summarizer=self._build_summarizer(context),
            tokenizer=context.tokenizer,
            max_summary_tokens=self._compute_max_summary_tokens(context.budget),
            result_limits=ResultLimits(
                by_tool=self.result_tokens,
                describe_rest=partial(suggest_entry, tools, transcript),
                tools=list_look_up_tools(tools),
            ),
            tools=tools,
            supersedes=self.supersedes,
            hooks=self.hooks or CompactionHooks(),
            redactor=self.redactor,
            events=self.events,
            look_up=partial(
                suggest_call, tools, read_tool=self.read_tool, location=transcript.store.address
            ),
            file_rules=preset.file_rules,
            count_fixed=count_fixed,
            clock=self.clock,
        )
        compactor.archives = self.archives
        controller = CompactionController(
            compactor,
            ConversationState(model=model, budget=context.budget, tokenizer=context.tokenizer),
            policy=policy,
            enabled=self.enabled and preset.enabled,
            reduce=reduce,
            processors=preset.processors,
            preset_cache_seconds=preset.cache_seconds,
            clock=self.clock,
        )
        self.update_budget(controller, context)
        return controller

    def update_budget(
        self,
        controller: CompactionController,
        context: SummarizerContext,
        *,
        holder: SummarizerContext | None = None,
    ) -> None:
        """Let a controller use another budget, tokenizer and summarizing model from now on.

        Args:
            controller: The controller of a conversation.
            context: What its summarizers are made of.
            holder: The context of the larger model that the conversation was with: until this method
                is called without it, that model summarizes, and is shown what it was shown before.
        """
        budget, compactor = context.budget, controller.compactor
        base = budget.base
        controller.set_budget(budget)
        compactor.keep = limit_keep(
            self.keep or self.preset.keep(budget), None if base is None else base // 2
        )
        compactor.choose = partial(
            select,
            split=self.preset.split,
            max_replayed_tokens=None if base is None else base // REPLAYED_SHARE,
        )
        compactor.handoff = None if self.preset.handoff is None else self.preset.handoff(context)
        compactor.update_settings(
            summarizer=self._build_summarizer(context)
            if holder is None
            else self._build_switch_summarizer(holder, context),
            tokenizer=context.tokenizer,
            max_summary_tokens=self._compute_max_summary_tokens(budget),
            max_result_tokens=(holder or context).budget.result_tokens,
            replacement=attrs.evolve(self.preset.replacement.limited_to(base), live=self.carry),
        )

    def _compute_max_summary_tokens(self, budget: ContextBudget) -> int:
        """Return the size limit of a summary, in tokens: the budget's, or the preset's if that is lower."""
        limits = (compute_max_summary_tokens(budget), self.preset.max_summary_tokens)
        return min(limit for limit in limits if limit is not None)

    def _build_summarizer(self, context: SummarizerContext) -> Summarizer:
        own = self.summarizer
        return self.preset.summarizer(context) if own is None or isinstance(own, Model) else own

    def _build_switch_summarizer(
        self, holder: SummarizerContext, context: SummarizerContext
    ) -> Summarizer:
        """Build the summarizer for a switch to a smaller window: the model that holds the conversation, else the new one chunk by chunk."""
        own = self._build_summarizer(holder)
        if context.model is None or own is self.summarizer:
            return own
        every = own.summarizers if isinstance(own, FallbackSummarizer) else [own]
        asked = [each for each in every if not getattr(each, "without_model", False)]
        chunked = ChunkedSummarizer(
            model=context.model, window=context.window or UNLIMITED, tokenizer=context.tokenizer
        )
        last = [each for each in every if each not in asked]
        return FallbackSummarizer(
            [*asked, chunked, *(last or [make_extractive_summarizer(context)])]
        )
