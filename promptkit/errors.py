"""What can go wrong with a prompt: its tree, its size, its template, its tokens.

What can go wrong with a conversation: its transcript, its window, its summaries.
What can go wrong, and where.

* PromptKitError
  x TreeError                  the tree is ill-formed; `path` says where
    - BadChildError            something that is no child was given as one
    - ChildrenTwiceError       `element[...]` on an element that has children already
    - NotAComponentError       a subclass of PromptElement lacks `@component`
    - BadPropError             a prop has a value that it cannot have (a negative budget, NaN, an unknown unit)
    - MisplacedElementError    text outside a message, a message inside a message, a cache boundary that is no direct child of one
    - UnansweredToolCallError      a tool call that no tool message answers
    - OrphanToolResultError        a tool message that answers no call, or answers one twice
  x BudgetExceededError        what is required does not fit; carries messages, metadata and the receipt
  x RunningLoopError           a component awaits inside `render()` while an event loop is running
  x TemplateError              a template does not load, compile or render; `file` and `line` say where
  x JsonTreeError              a JSON tree that this version does not understand
  x TokenizerError
    - UnknownModelError        no window or encoding is known for a model name
    - UnknownEncodingError     no vocabulary is at hand for an encoding
    - TextTooLongError         one text is longer than the tokenizer's limit
    - UncountablePartError     no formula and no figure for the tokens of a part
  x EmitError                  a message has no form in the provider's format
  x ModelError                 a model was asked in vain; `status` and `code` are the provider's
    - ContextLengthExceededError     the request does not fit into the model's window
    - RateLimitedError         the provider wants fewer requests; `retry_after` says when
    - ModelUnavailableError    no answer, or a broken one: it may pass
    - ModelRequestError        the provider refuses the request, and would refuse it again
    - EmptyReplyError          the model answered with nothing
  x TranscriptError            a transcript cannot be read, or an entry cannot stand where it was put
    - TranscriptConflictError  another writer appended meanwhile; `entries` are what it wrote
    - TranscriptFormatError    a file that is no transcript, or of a version that is not known
    - TranscriptWriteError     a batch could not be written, and nothing of it is there; `file` says where
  x CompactionError            a conversation cannot be made smaller as it was asked for
    - ThresholdError           a threshold that is neither a share of the window nor a number of tokens
    - SettingsError             a setting from a file or a variable that cannot be taken as it was written
    - ToolsFillBudgetError     the tool definitions alone take all that a request may have
    - CutPointError            a conversation cannot be cut at the entry that was named
    - CompactionInProgressError   a compaction was asked for while another one of the same conversation is running
    - SummaryError             no summary was to be had; `reason` says in a word why
    - ContextWindowFullError          a conversation does not fit its window, and nothing more can be done
  x NoPendingMessageError       a model was to be asked, and nothing was said to it
  x MaxStepsExceededError         a model went on calling tools for as many requests as a turn may have
  x TurnInProgressError           a conversation was to go on from elsewhere while the model works on a turn
What can go wrong when a model is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptkit.messages import Message, Usage
    from promptkit.tracing.trace import Trace
    from promptkit.transcript.entries import Entry

__all__ = [
    "BadChildError",
    "BadPropError",
    "BudgetExceededError",
    "ChildrenTwiceError",
    "CompactionError",
    "CompactionInProgressError",
    "ContextLengthExceededError",
    "ContextWindowFullError",
    "CutPointError",
    "EmitError",
    "EmptyReplyError",
    "JsonTreeError",
    "MaxStepsExceededError",
    "MisplacedElementError",
    "ModelError",
    "ModelRequestError",
    "ModelUnavailableError",
    "NoPendingMessageError",
    "NotAComponentError",
    "OrphanToolResultError",
    "PromptKitError",
    "RateLimitedError",
    "RunningLoopError",
    "SettingsError",
    "SummaryError",
    "TemplateError",
    "TextTooLongError",
    "ThresholdError",
    "TokenizerError",
    "ToolsFillBudgetError",
    "TranscriptConflictError",
    "TranscriptError",
    "TranscriptFormatError",
    "TranscriptWriteError",
    "TreeError",
    "TurnInProgressError",
    "UnansweredToolCallError",
    "UncountablePartError",
    "UnknownEncodingError",
    "UnknownModelError",
]


E = TypeVar("E", bound="PromptKitError")


class PromptKitError(Exception):
    """Every error that promptkit raises on purpose. Travels between processes with all that it carries, if that can be pickled."""

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...], dict[str, object]]:
        """Made again without `__init__`: that takes facts, and `args` hold the sentence that was made of them."""
        return _made_again, (type(self), *self.args), self.__dict__


def _made_again(cls: type[E], *args: object) -> E:
    return cls.__new__(cls, *args)


class TreeError(PromptKitError):
    """The tree is ill-formed. `path` is the element path (`AgentPrompt > UserMessage[2]`), empty where none is known yet."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = ""
        self.locate(path)

    def locate(self, path: str) -> None:
        """Say where: for an error that was raised without a path. In place, as subclasses may be made of other arguments."""
        if path:
            self.args = (f"{path}: {self}",)
            self.path = path


class BadChildError(TreeError):
    """A child is neither a string, an element, a sequence of these, None nor a boolean."""


class ChildrenTwiceError(TreeError):
    """`element[...]` was used on an element that already has children."""


class NotAComponentError(TreeError):
    """A subclass of PromptElement was instantiated without `@component` on it."""


class BadPropError(TreeError):
    """A prop has a value that it cannot have."""


class MisplacedElementError(TreeError):
    """An element stands where it has no meaning, such as text outside a message."""


class UnansweredToolCallError(TreeError):
    """A tool call that no tool message answers: providers reject such a request."""


class OrphanToolResultError(TreeError):
    """A tool message without a preceding call of its id, or a second answer to one call."""


class BudgetExceededError(PromptKitError):
    """What must be kept does not fit.

    Raised by a render when everything that may be pruned is gone and the rest is still larger than the budget, or than a
    `TokenLimit` around it. `messages` are the unpruned messages, so that a summary can be made of them; `metadata` is what
    the surviving elements carry; `largest` maps element paths to tokens, largest first; `trace` is the record, if one was asked for
    and it is the whole that does not fit.
    """

    def __init__(  # noqa: PLR0913  # an error that carries the receipt has this many facts
        self,
        *,
        budget: int,
        required: int,
        largest: Mapping[str, int],
        messages: Sequence[Message],
        metadata: Sequence[object],
        removed: Sequence[object],
        where: str = "",
    ) -> None:
        over = required - budget
        listed = "; ".join(f"{path} {tokens:,}" for path, tokens in largest.items())
        limit = f"the limit of {budget:,} at {where}" if where else f"a budget of {budget:,}"
        super().__init__(
            f"{required:,} required tokens do not fit {limit} (over by {over:,})."
            + (f" Largest: {listed}." if listed else "")
            + " Make one of them prunable, give it a shorter variant, or raise the budget."
        )
        self.budget = budget
        self.required = required
        self.over = over
        self.largest = dict(largest)
        self.messages = tuple(messages)
        self.metadata = tuple(metadata)
        self.removed = tuple(removed)
        self.where = where
        self.trace: Trace | None = None


class RunningLoopError(PromptKitError):
    """`render()` met a component that really awaits while an event loop is running: use `await render_async(...)`."""


class TemplateError(PromptKitError):
    """A template does not load, compile or render. `file` is its path or `<template>`, `line` counts from 1 (0 where unknown)."""

    def __init__(self, message: str, *, file: str, line: int) -> None:
        super().__init__(f"{file}:{line}: {message}" if line else f"{file}: {message}")
        self.file = file
        self.line = line


class JsonTreeError(PromptKitError):
    """A JSON tree of another version, or one that is damaged."""


class TokenizerError(PromptKitError):
    """Tokens cannot be counted."""


class UnknownModelError(TokenizerError):
    """No window or encoding is known for a model name."""


class UnknownEncodingError(TokenizerError):
    """No vocabulary is at hand for an encoding."""


class TextTooLongError(TokenizerError):
    """One text is longer than the tokenizer's limit, which the caller can raise."""


class UncountablePartError(TokenizerError):
    """A part (a document, an opaque value) has no formula, and no figure was given for it."""


class EmitError(PromptKitError):
    """A message, or a part of it, has no form in the provider's format."""


class TranscriptError(PromptKitError):
    """A transcript cannot be read, or an entry cannot stand where it was put."""


class TranscriptConflictError(TranscriptError):
    """Another writer has appended since the caller looked; nothing of the caller's was written. `entries` are what is new."""

    def __init__(self, expected: str, entries: Sequence[Entry]) -> None:
        behind = f"behind {expected!r}" if expected else "to an empty transcript"
        new = f"{len(entries):,} entries were" if len(entries) != 1 else "1 entry was"
        super().__init__(f"{new} appended {behind} meanwhile, so nothing was written: look at what is new, and append again.")
        self.expected = expected
        self.entries = tuple(entries)


class TranscriptWriteError(TranscriptError):
    """A batch could not be written: the disk is full, the folder read-only, another process keeps the lock. Nothing of it is there."""

    def __init__(self, message: str, *, file: str) -> None:
        super().__init__(f"{file}: {message}")
        self.file = file


class TranscriptFormatError(TranscriptError):
    """A file that is no transcript, or one of a version that this one does not know: it is left as it is. `line` counts from 1."""

    def __init__(self, message: str, *, file: str, line: int = 1) -> None:
        super().__init__(f"{file}:{line}: {message}")
        self.file = file
        self.line = line


class CompactionError(PromptKitError):
    """A conversation cannot be made smaller as it was asked for."""


class ThresholdError(CompactionError):
    """A threshold that may be meant as a share or as tokens: `setting` is its name, `value` what it was."""

    def __init__(self, *, setting: str, value: float) -> None:
        super().__init__(
            f"{setting}={value:g} is neither a share nor a number of tokens: "
            f"write a ratio above 0 and up to 1 ({value / 100:g} for {value:g} %), or at least 100 tokens."
        )
        self.setting = setting
        self.value = value


class SettingsError(CompactionError):
    """A setting that cannot be taken as it was written: `source` is the file or the variable, `setting` the name, `why` the reason."""

    def __init__(self, *, source: str, setting: str, why: str) -> None:
        super().__init__(f"{source}: {setting}: {why}." if setting else f"{source}: {why}.")
        self.source = source
        self.setting = setting
        self.why = why


class ToolsFillBudgetError(CompactionError):
    """The tool definitions alone take all that a request may have: `tools` and `budget` are tokens."""

    def __init__(self, *, tools: int, budget: int) -> None:
        super().__init__(
            f"the tool definitions take {tools:,} tokens of a budget of {budget:,}, and nothing is left for messages: "
            f"offer fewer tools, or raise the threshold, the picked context size or the window."
        )
        self.tools = tools
        self.budget = budget


class CutPointError(CompactionError):
    """A conversation cannot be cut at the entry that was named: it is not shown, or its calls are still running."""

    def __init__(self, *, entry: str, why: str) -> None:
        super().__init__(f"nothing can be dropped through the entry {entry!r}: {why}.")
        self.entry = entry


class SummaryError(CompactionError):
    """No summary was to be had.

    `reason` is `nothing`, `empty`, `untagged`, `too_large`, `not_smaller`, `tool_call`, `withheld`, `does_not_fit`, `no_request`, or
    `every` for a chain of which every link failed. `usage` is what the attempts cost, as far as a model was asked and said so.
    """

    def __init__(self, *, reason: str, detail: str, usage: Usage | None = None) -> None:
        super().__init__(f"no summary: {detail}")
        self.reason = reason
        self.usage = usage


class CompactionInProgressError(CompactionError):
    """A compaction was asked for while another one of the same conversation is running: wait for it, or cancel it."""

    def __init__(self) -> None:
        super().__init__("a compaction of this conversation is running: wait for it, or cancel it.")


class ContextWindowFullError(CompactionError):
    """A conversation does not fit its window, and no summary, no pruning and no smaller request can change that; the text says why."""


class MaxStepsExceededError(PromptKitError):
    """A model went on calling tools for as many requests as a turn may have. What was said is in the transcript."""

    def __init__(self, rounds: int) -> None:
        super().__init__(f"the model went on calling tools for {rounds:,} requests: raise max_rounds, or say something to it.")
        self.rounds = rounds


class TurnInProgressError(PromptKitError):
    """A conversation was to go on from elsewhere while the model works on a turn, whose answer would stand behind what it does not answer."""

    def __init__(self) -> None:
        super().__init__("the model works on a turn of this conversation: wait for it or cancel it, and go on from elsewhere then.")


class NoPendingMessageError(PromptKitError):
    """A model was to be asked and there is nothing to ask: the message is empty, or the model has had the last word."""

    def __init__(self) -> None:
        super().__init__("there is nothing for the model to answer: say something that is not empty.")


class ModelError(PromptKitError):
    """A model was asked in vain. What its client raised is the `__cause__`.

    `model` is its name, `status` the HTTP status, `code` and `param` what the provider says of its error; None where nothing is said.
    """

    def __init__(
        self, message: str, *, model: str = "", status: int | None = None, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(f"{model}: {message}" if model else message)
        self.model = model
        self.status = status
        self.code = code
        self.param = param


class ContextLengthExceededError(ModelError):
    """The request does not fit into the model's window. `tokens` and `window` are what the provider says of both, if it does."""

    tokens: int | None = None
    window: int | None = None


class RateLimitedError(ModelError):
    """The provider wants fewer requests, or fewer tokens a minute. `retry_after` is how many seconds to wait, if it says so."""

    retry_after: float | None = None


class ModelUnavailableError(ModelError):
    """No answer within the time limit, a broken connection, a stream cut short or a failing server: it may pass."""


class ModelRequestError(ModelError):
    """The provider refuses the request, and would refuse it again: a key, a quota, a parameter that the model does not take."""


class EmptyReplyError(ModelError):
    """The model answered without text and without a tool call, or with what is no reply. `finish` and `usage` are what it said of it."""

    finish: str | None = None
    usage: Usage | None = None
