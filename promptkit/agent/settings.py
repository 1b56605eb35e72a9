"""The settings of context windows as one value, made into a controller for one transcript, and checks of them and of other arguments.

A wrong setting is refused at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast, get_args

import attrs

from promptkit.agent.window.prompt import Prompt
from promptkit.compaction import (
    PRESETS,
    ArchiveDirectory,
    CarriedContext,
    ChunkedSummarizer,
    CompactionController,
    CompactionHooks,
    Events,
    FallbackSummarizer,
    MediaLimits,
    Policy,
    Preset,
    ReduceToolResults,
    Summarizer,
    SummarizerContext,
    UsageByPart,
    first_match,
)
from promptkit.compaction.planning.selection import Keep, limit_keep, select
from promptkit.compaction.policy.rules import prune_old_reasoning, prune_results
from promptkit.compaction.presets.coding_agents import vscode
from promptkit.compaction.pruning.tool_outputs import ONLY_STATED, ResultLimits
from promptkit.compaction.recall.tool import list_look_up_tools, suggest_call, suggest_entry
from promptkit.compaction.run.state import ConversationState
from promptkit.compaction.storage import ArchivingCompactor
from promptkit.compaction.summarizers.defaults import (
    UNLIMITED,
    compute_max_summary_tokens,
    make_extractive_summarizer,
)
from promptkit.elements.element import Child
from promptkit.errors import InvalidArgumentError, NoPendingMessageError
from promptkit.messages import Part, ToolDefinition
from promptkit.providers import Model
from promptkit.rendering.renderer import Defaults
from promptkit.sizes import read_tokens
from promptkit.tokens import ContextBudget, Tokenizer
from promptkit.tokens.models import model_name
from promptkit.tools import AnyTool, Supersedes, Tool, as_tool, parse_content, tool_definitions
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
class WindowSettings:
    """The settings of a context window: how its conversation is compacted, and what its requests show besides it.

    The constructor of `ContextWindow` describes them. A part of the compaction that is None is the
    preset's.

    Raises:
        InvalidArgumentError: Both a prompt and instructions are given, or no summarizer although
            the preset names a summarizing model.
        TypeError: A setting has the wrong type.
    """

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
    """The folder into which the entries that a checkpoint drops are written first. None: they are
    only in the transcript."""
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
    instructions: Child = None
    prompt: Prompt | None = None
    tokenizer: Tokenizer | None = None
    media: MediaLimits | None = None
    defaults: Defaults = "promptkit"
    promotions: Sequence[Model] = ()
    pin_marks: tuple[str, str] | None = None
    recall_tokens: int = attrs.field(default=0, converter=read_tokens)
    freeze_tools: bool = True

    def __attrs_post_init__(self) -> None:
        check_types(**{name: getattr(self, name) for name in _CHECKS if hasattr(self, name)})
        if self.preset.summary_model is not None and self.summarizer is None:
            raise InvalidArgumentError(
                f"the preset's summaries are written by {self.preset.summary_model!r}: give the window that model's object as summarizer=."
            )
        if self.prompt is not None and self.instructions is not None:
            raise InvalidArgumentError(
                "give instructions or a prompt, not both: put the instructions into the prompt."
            )

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The definitions of the tools."""
        return tuple(tool_definitions(self.tools))

    @property
    def result_tokens(self) -> dict[str, int]:
        """The limits that tools set for their results, in tokens, by name."""
        return {
            tool.definition.name: tool.max_tokens
            for tool in self.tools
            if isinstance(tool, Tool) and tool.max_tokens is not None
        }

    @property
    def supersedes(self) -> dict[str, Supersedes]:
        """Which results the tools supersede, by name."""
        return {
            tool.definition.name: tool.supersedes
            for tool in self.tools
            if isinstance(tool, Tool) and tool.supersedes
        }

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
        limits = reduce or ONLY_STATED
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
            policy=first_match(
                (
                    prune_results(least_saving=limits.least_saving, warm_ratio=limits.warm_ratio),
                    prune_old_reasoning,
                    policy.decide,
                )
            ),
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


def _has(value: object, *methods: str) -> bool:
    """Return whether a value is an object, and not a class, with these methods."""
    return not isinstance(value, type) and all(
        callable(getattr(value, method, None)) for method in methods
    )


def _are_models(value: object) -> bool:
    # of any items
    return isinstance(value, list | tuple) and all(
        isinstance(each, Model) for each in cast("Sequence[object]", value)
    )


def _are_marks(value: object) -> bool:
    match value:
        case (str(first), str(second)):
            return isinstance(value, tuple) and bool(first and second)
        case _:
            return False


_CHECKS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "transcript": (
        lambda value: isinstance(value, Transcript),
        "a Transcript such as Transcript(JsonlStore('talk.jsonl'))",
    ),
    "prompt": (callable, "a function that takes a ConversationView, such as lambda view: …"),
    "hooks": (
        lambda value: isinstance(value, CompactionHooks),
        "a CompactionHooks, or HookChain(first, second) for several",
    ),
    "events": (
        lambda value: isinstance(value, Events),
        "an Events, such as Events(function) for a function that takes an event",
    ),
    "rng": (callable, "a function that returns numbers from 0 to below 1, such as lambda: 0.5"),
    "redactor": (callable, "a function from text to text, such as redact_secrets"),
    "policy": (
        lambda value: _has(value, "decide"),
        "an object with a method decide(state), such as default_policy()",
    ),
    "summarizer": (
        lambda value: isinstance(value, Model) or _has(value, "summarize"),
        "a Summarizer such as ExtractiveSummarizer(…), or a model object",
    ),
    "keep": (lambda value: isinstance(value, Keep), "a value such as KeepLastTurns(count=2)"),
    "reduce": (lambda value: isinstance(value, ReduceToolResults), "a ReduceToolResults(…)"),
    "media": (lambda value: isinstance(value, MediaLimits), "a MediaLimits(…)"),
    "tokenizer": (
        lambda value: _has(value, "count", "count_framing"),
        "a Tokenizer, such as tokenizer_for('gpt-5')",
    ),
    "promotions": (_are_models, "a list of model objects"),
    "carry": (callable, "a function that returns a CarriedContext"),
    "pin_marks": (
        _are_marks,
        "two texts that are not empty, such as ('[[keep]]', '[[/keep]]')",
    ),
    "archives": (lambda value: isinstance(value, ArchiveDirectory), "an ArchiveDirectory(…)"),
    "read_tool": (lambda value: isinstance(value, str), "the name of a tool"),
    "defaults": (lambda value: value in get_args(Defaults), '"promptkit" or "prompt-tsx"'),
}
"""A check and a description for each argument: the check returns whether a value has the right
type."""


def check_types(**arguments: object) -> None:
    """Refuse arguments of the wrong type at once. Raises TypeError with what to write instead."""
    for name, value in arguments.items():
        check_type(name, value, *_CHECKS[name])


def check_type(
    name: str, value: object, is_right: Callable[[object], bool], description: str
) -> None:
    """Refuse an argument that is neither None nor of the right type. Raises TypeError."""
    if value is not None and not is_right(value):
        raise TypeError(f"{name} must be {description}, not {value!r:.80}.")


def check_tools(tools: Sequence[AnyTool]) -> Sequence[Tool]:
    """Return tools that a session can run. Raises TypeError for a value that is none."""
    tool_definitions(tools)  # refuses what is no list, or no tool
    checked: list[Tool] = []
    for tool in map(as_tool, tools):
        if not isinstance(tool, Tool):
            raise TypeError(
                f"a session runs tools: give it a function, or Tool(definition=ToolDefinition(name=…), run=…), not {tool!r:.80}."
            )
        checked.append(tool)
    return checked


def check_content(content: object) -> tuple[Part, ...]:
    """Return the content of a user message.

    Raises TypeError, or NoPendingMessageError if it is empty.
    """
    parts = parse_content(content)
    if parts is None:
        raise TypeError(
            f"a session takes text, or a list of texts and parts such as ImagePart(url=…), not {content!r:.80}."
        )
    if not any(part.strip() if isinstance(part, str) else True for part in parts):
        raise NoPendingMessageError
    return parts
