"""Check the arguments of context windows and sessions. A wrong argument is refused at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

from promptkit.agent.session.hooks import TurnHooks
from promptkit.compaction.planning.selection import Keep
from promptkit.compaction.presets import PRESETS
from promptkit.compaction.presets.preset import Preset
from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
from promptkit.compaction.run.events import Events
from promptkit.compaction.run.hooks import CompactionHooks
from promptkit.compaction.storage.archives import ArchiveDirectory
from promptkit.errors import InvalidArgumentError, NoPendingMessageError
from promptkit.providers.model import Model
from promptkit.rendering.renderer import Defaults
from promptkit.tools import Tool, as_tool, parse_content, tool_definitions
from promptkit.transcript.log.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.messages import Message, Part
    from promptkit.tools import AnyTool


def as_model(summarizer: Summarizer | Model | None) -> Model | None:
    """Return the model object that the preset's summarizers use, if one is given as the summarizer."""
    return summarizer if isinstance(summarizer, Model) else None


def as_summarizer(summarizer: Summarizer | Model | None) -> Summarizer | None:
    """Return the summarizer that is given, if it is one."""
    return None if summarizer is None or isinstance(summarizer, Model) else summarizer


def resolve_preset(preset: object) -> Preset:
    """Return a preset that is given by its name or as a value. Raises InvalidArgumentError."""
    if isinstance(preset, Preset):
        return preset
    build = PRESETS.get(preset) if isinstance(preset, str) else None
    if build is None:
        problem = (
            f"preset must be a Preset or one of the names {', '.join(PRESETS)}, not {preset!r:.80}."
        )
        raise InvalidArgumentError(problem)
    return build()


def check_summary_model(preset: Preset, summarizer: object) -> None:
    """Refuse a preset that names a summarizing model where no summarizer is given.

    Raises InvalidArgumentError.
    """
    if preset.summary_model is not None and summarizer is None:
        problem = f"the preset's summaries are written by {preset.summary_model!r}: give the window that model's object as summarizer=."
        raise InvalidArgumentError(problem)


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
    "turn_hooks": (
        lambda value: isinstance(value, TurnHooks),
        "a TurnHooks, an instance of a subclass of it",
    ),
    "events": (
        lambda value: isinstance(value, Events),
        "an Events, such as Events(function) for a function that takes an event",
    ),
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
    "tokenizer": (
        lambda value: _has(value, "count", "count_framing"),
        "a Tokenizer, such as tokenizer_for('gpt-5')",
    ),
    "promotions": (_are_models, "a list of model objects"),
    "archives": (lambda value: isinstance(value, ArchiveDirectory), "an ArchiveDirectory(…)"),
    "read_tool": (lambda value: isinstance(value, str), "the name of a tool"),
    "defaults": (lambda value: value in get_args(Defaults), '"promptkit" or "prompt-tsx"'),
}
"""A check and a description for each argument: the check returns whether a value has the right
type."""


def check_types(**arguments: object) -> None:
    """Refuse arguments of the wrong type at once. Raises TypeError with what to write instead."""
    for name, value in arguments.items():
        is_right, description = _CHECKS[name]
        if value is not None and not is_right(value):
            problem = f"{name} must be {description}, not {value!r:.80}."
            raise TypeError(problem)


def check_origins(messages: Sequence[Message], origins: Sequence[object] | None) -> None:
    """Refuse a wrong number of origins. Raises InvalidArgumentError."""
    if origins is not None and len(origins) != len(messages):
        problem = f"origins must have one object for each message: {len(messages)} messages have {len(origins)} origins."
        raise InvalidArgumentError(problem)


def check_tools(tools: Sequence[AnyTool]) -> Sequence[Tool]:
    """Return tools that a session can run. Raises TypeError for a value that is none."""
    tool_definitions(tools)  # refuses what is no list, or no tool
    checked: list[Tool] = []
    for tool in map(as_tool, tools):
        if not isinstance(tool, Tool):
            problem = f"a session runs tools: give it a function, or Tool(definition=ToolDefinition(name=…), run=…), not {tool!r:.80}."
            raise TypeError(problem)
        checked.append(tool)
    return checked


def check_content(content: object) -> tuple[Part, ...]:
    """Return the content of a user message.

    Raises TypeError, or NoPendingMessageError if it is empty.
    """
    parts = parse_content(content)
    if parts is None:
        problem = f"a session takes text, or a list of texts and parts such as ImagePart(url=…), not {content!r:.80}."
        raise TypeError(problem)
    if not any(part.strip() if isinstance(part, str) else True for part in parts):
        raise NoPendingMessageError
    return parts
