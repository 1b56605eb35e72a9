"""The settings of context windows as one value, and checks of them and of other arguments. A wrong one is refused at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast, get_args

import attrs

from promptkit.agent.window.prompt import Prompt
from promptkit.compaction import (
    ArchiveDirectory,
    CompactionHooks,
    Events,
    MediaLimits,
    ReduceToolResults,
)
from promptkit.compaction.config import CompactionConfig
from promptkit.compaction.planning.selection import Keep
from promptkit.elements.element import Child
from promptkit.errors import InvalidArgumentError, NoPendingMessageError
from promptkit.messages import Message, Part
from promptkit.providers import Model
from promptkit.rendering.renderer import Defaults
from promptkit.sizes import read_tokens
from promptkit.tokens import Tokenizer
from promptkit.tools import AnyTool, Tool, as_tool, parse_content, tool_definitions
from promptkit.transcript import Transcript


@attrs.frozen(kw_only=True)
class WindowSettings(CompactionConfig):
    """The settings of a context window: how its conversation is compacted, and what its requests show besides it.

    The constructor of `ContextWindow` describes them.

    Raises:
        InvalidArgumentError: Both a prompt and instructions are given, or no summarizer although
            the preset names a summarizing model.
        TypeError: A setting has the wrong type.
    """

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


def _has(value: object, *methods: str) -> bool:
    """Return whether a value is an object, and not a class, with these methods."""
    return not isinstance(value, type) and all(
        callable(getattr(value, method, None)) for method in methods
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
    "promotions": (
        lambda value: (
            isinstance(value, list | tuple)
            and all(isinstance(each, Model) for each in cast("Sequence[object]", value))
        ),
        "a list of model objects",
    ),
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


def check_origins(messages: Sequence[Message], origins: Sequence[object] | None) -> None:
    """Refuse a wrong number of origins. Raises InvalidArgumentError."""
    if origins is not None and len(origins) != len(messages):
        raise InvalidArgumentError(
            f"origins must have one object for each message: {len(messages)} messages have {len(origins)} origins."
        )


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
