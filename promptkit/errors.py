"""Exceptions raised by promptkit.

* PromptKitError
  x InvalidArgumentError             an argument has a value that it cannot have; also a ValueError
  x TreeError                        the element tree is ill-formed; `path` names the element
    - BadChildError                  a value that cannot be a child was given as one
    - BadPropError                   a prop has a value that it cannot have
    - UnansweredToolCallError        no tool message answers a tool call
    - OrphanToolResultError          a tool message answers no call, or answers one twice
  x BudgetExceededError              a render: the required content does not fit the token budget
  x RunningLoopError                 `render()` met an async component inside a running event loop
  x TemplateError                    a template does not load, compile or render; `file`, `line`
  x TokenizerError                   tokens cannot be counted
    - UnknownModelError              no context window or encoding is known for a model name
    - TextTooLongError               a text is longer than the tokenizer's limit
  x EmitError                        a message cannot be written in the provider's format
  x ModelError                       a request to a model failed
    - ContextLengthExceededError     a provider: the request is larger than the model's window
    - RateLimitedError               too many requests; `retry_after` is in seconds
    - ModelUnavailableError          no answer, or a broken one; a later attempt may succeed
    - ModelRequestError              the provider rejects the request, and would reject it again
    - EmptyReplyError                the reply has neither text nor tool calls
  x TranscriptError                  a transcript cannot be read, or an entry cannot be appended
    - TranscriptConflictError        another writer appended first; `entries` holds what it wrote
    - TranscriptFormatError          a file is not a transcript, or its version is unknown
    - TranscriptWriteError           a batch could not be written; none of it is in the file
  x CompactionError                  a conversation cannot be compacted
    - SummaryError                   no summary was made; `reason` says why in a word
    - CompactionInProgressError      another compaction of the same conversation is running
    - ToolsFillBudgetError           the tool definitions alone fill the token budget
    - ContextWindowFullError         a session: it does not fit, whatever is compacted or pruned
  x SettingsError                    a setting from a file or an environment variable is invalid
  x NoPendingMessageError            there is no message for the model to answer
  x ToolError                        a tool could not do what was asked; the model is told the text
  x MaxStepsExceededError            a turn needed more requests than `max_steps`
  x TurnInProgressError              the operation is not possible while a turn is running

Three errors say that something is too large. `BudgetExceededError` comes from a single render.
`ContextLengthExceededError` comes from a provider that refused a request. `ContextWindowFullError`
comes from a session or a context window after compaction and pruning could not make the request
small enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypedDict, Unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptkit.messages import Message, Usage
    from promptkit.tracing import Trace
    from promptkit.transcript import Entry

__all__ = [
    "BadChildError",
    "BadPropError",
    "BudgetExceededError",
    "CompactionError",
    "CompactionInProgressError",
    "ContextLengthExceededError",
    "ContextWindowFullError",
    "EmitError",
    "EmptyReplyError",
    "InvalidArgumentError",
    "MaxStepsExceededError",
    "ModelError",
    "ModelRequestError",
    "ModelUnavailableError",
    "NoPendingMessageError",
    "NotProvidedError",
    "OrphanToolResultError",
    "PromptKitError",
    "RateLimitedError",
    "RunningLoopError",
    "SettingsError",
    "SummaryError",
    "TemplateError",
    "TextTooLongError",
    "TokenizerError",
    "ToolError",
    "ToolsFillBudgetError",
    "TranscriptConflictError",
    "TranscriptError",
    "TranscriptFormatError",
    "TranscriptWriteError",
    "TreeError",
    "TurnInProgressError",
    "UnansweredToolCallError",
    "UnknownModelError",
]


class PromptKitError(Exception):
    """Base class of every error that promptkit raises.

    It can be pickled, with its attributes, if these can.
    """

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...], dict[str, object]]:
        """Rebuild without `__init__`, which takes the figures: `args` already hold the finished sentence."""
        return type(self).__new__, (type(self), *self.args), self.__dict__


class InvalidArgumentError(PromptKitError, ValueError):
    """An argument has a value that it cannot have.

    The text names the argument and says what to write.
    """


class TreeError(PromptKitError):
    """The element tree is ill-formed.

    `path` is the element path (`AgentPrompt > UserMessage[2]`), or empty where it is not known yet.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = ""
        self.locate(path)

    def locate(self, path: str) -> None:
        """Add the element path to an error that was raised without one.

        Works in place, since subclasses may take other arguments.
        """
        if path:
            self.args = (f"{path}: {self}",)
            self.path = path


class BadChildError(TreeError):
    """A child is not a string, an element, a sequence of these, None or a boolean."""


class BadPropError(TreeError):
    """A prop has a value that it cannot have."""


class NotProvidedError(TreeError):
    """A component asks for a value that no `Provide` around it provides."""


class UnansweredToolCallError(TreeError):
    """No tool message answers a tool call. Providers reject such a request."""


class OrphanToolResultError(TreeError):
    """A tool message has no preceding call with its id, or answers a call that is answered already."""


class BudgetExceededError(PromptKitError):
    """A prompt does not fit its token budget, however much of it is pruned.

    Raised by a render when all prunable content is removed and the rest is still larger than the
    budget, or than a `TokenLimit`. The last user message without a priority is not prunable. Nor is
    the user message that would be pruned last, since no request is made without one. In a prompt
    without user messages, the message that would be pruned last is not.

    Attributes:
        budget: The limit that was exceeded, in tokens.
        required: The tokens of what cannot be pruned.
        over: `required` less `budget`.
        largest: The largest elements with their tokens, the largest first: their labels, or their
            paths.
        messages: The unpruned messages, for example as input of a summary.
        metadata: The metadata of the remaining elements.
        removed: What was pruned, in order.
        where: The path of the `TokenLimit` that was exceeded; empty for the budget itself.
        cache_breakpoint: The path of the last cache breakpoint, if content stays only because it
            stands before it; otherwise empty.
        pinned: The tokens of that content. They could be pruned if the cache breakpoint stood
            before them.
        last_message: What receipts call the message that would be pruned next, if that is the only
            user message that is left, or the only message of a prompt without user messages;
            otherwise empty.
        trace: The trace of the render, if one was requested and the budget itself was exceeded.
    """

    def __init__(  # noqa: PLR0913  # an error that carries the receipt has this many attributes
        self,
        *,
        budget: int,
        required: int,
        largest: Mapping[str, int],
        messages: Sequence[Message],
        metadata: Sequence[object],
        removed: Sequence[object],
        where: str = "",
        cache_breakpoint: str = "",
        pinned: int = 0,
        last_message: str = "",
        last_role: str | None = None,
        advice: str | None = None,
    ) -> None:
        over = required - budget
        listed = "; ".join(f"{path} {tokens:,}" for path, tokens in largest.items())
        limit = f"the limit of {budget:,} at {where}" if where else f"a budget of {budget:,}"
        if last_message:
            kind = " ".join(filter(None, ("last", last_role, "message")))
            problem = f"{required:,} tokens do not fit {limit} (over by {over:,}), and what would be pruned next is the {kind}, {last_message}."
            advice = (
                advice
                or "Give what may go before it a lower priority, shorten one of them, or raise the budget."
            )
        else:
            problem = f"{required:,} required tokens do not fit {limit} (over by {over:,})."
            advice = (
                advice
                or "Make one of them prunable, give it a shorter variant, or raise the budget."
            )
        kept = ""
        if cache_breakpoint:
            kept = f"{pinned:,} of them stay only because they stand before the cache breakpoint {cache_breakpoint}."
            advice = (
                f"Move the breakpoint before what may be pruned, {advice[0].lower()}{advice[1:]}"
            )
        super().__init__(
            " ".join(filter(None, (problem, kept, listed and f"Largest: {listed}.", advice)))
        )
        self.budget = budget
        self.required = required
        self.over = over
        self.largest = dict(largest)
        self.messages = tuple(messages)
        self.metadata = tuple(metadata)
        self.removed = tuple(removed)
        self.where = where
        self.cache_breakpoint = cache_breakpoint
        self.pinned = pinned
        self.last_message = last_message
        self.trace: Trace | None = None


class RunningLoopError(PromptKitError):
    """`render()` met a component that awaits while an event loop is running.

    Use `await render_async(...)`.
    """


class TemplateError(PromptKitError):
    """A template does not load, compile or render.

    `file` is its path or `<template>`; `line` counts from 1, and is 0 if unknown.
    """

    def __init__(self, message: str, *, file: str, line: int) -> None:
        super().__init__(f"{file}:{line}: {message}" if line else f"{file}: {message}")
        self.file = file
        self.line = line


class TokenizerError(PromptKitError):
    """Tokens cannot be counted, for example because a vocabulary is not installed."""


class UnknownModelError(TokenizerError):
    """No context window or encoding is known for a model name. `register_model` adds one.

    `model` is the name. `problem` is the sentence without what a Python program can do about it.
    """

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(
            f"{problem} Give the render a `budget`, or register the model: register_model({model!r}, window=…)."
        )
        self.model = model
        self.problem = problem


class TextTooLongError(TokenizerError):
    """A text is longer than the tokenizer's limit, which the caller can raise."""


class EmitError(PromptKitError):
    """A message, or a part of it, cannot be written in the provider's format."""


class TranscriptError(PromptKitError):
    """A transcript cannot be read, or an entry cannot be appended at the requested place."""


class TranscriptConflictError(TranscriptError):
    """Another writer appended first, so nothing was written.

    `entries` holds what the other writer appended.
    """

    def __init__(self, expected: str, entries: Sequence[Entry]) -> None:
        behind = f"behind {expected!r}" if expected else "to an empty transcript"
        new = f"{len(entries):,} entries were" if len(entries) != 1 else "1 entry was"
        super().__init__(
            f"{new} appended {behind} meanwhile, so nothing was written: look at what is new, and append again."
        )
        self.expected = expected
        self.entries = tuple(entries)


class TranscriptWriteError(TranscriptError):
    """A batch could not be written, for example because the disk is full, the folder is read-only or another process holds the lock.

    None of the batch is in `file`.
    """

    def __init__(self, message: str, *, file: str) -> None:
        super().__init__(f"{file}: {message}")
        self.file = file


class TranscriptFormatError(TranscriptError):
    """A file is not a transcript, or has a version that is not supported. It is left unchanged.

    `line` counts from 1; None for a database.
    """

    def __init__(self, message: str, *, file: str, line: int | None = 1) -> None:
        super().__init__(f"{file}: {message}" if line is None else f"{file}:{line}: {message}")
        self.file = file
        self.line = line


class CompactionError(PromptKitError):
    """A conversation cannot be compacted."""


class ToolsFillBudgetError(CompactionError):
    """The tool definitions alone fill the token budget. `tools` and `budget` are tokens."""

    def __init__(self, *, tools: int, budget: int) -> None:
        super().__init__(
            f"the tool definitions take {tools:,} tokens of a budget of {budget:,}, and nothing is left for messages: "
            f"offer fewer tools, or raise the threshold, the limit or the window."
        )
        self.tools = tools
        self.budget = budget


class SummaryError(CompactionError):
    """No summary was made: every summarizer that was asked has failed.

    Attributes:
        reason: `nothing`, `empty`, `untagged`, `no_sections`, `too_short`, `cut`, `too_large`,
            `not_smaller`, `tool_call`, `withheld`, `does_not_fit`, `no_request`, `timeout`, or
            `every` if every summarizer of a fallback chain failed.
        usage: The cost of the failed attempts in tokens, as far as the provider reported it.
    """

    def __init__(self, *, reason: str, detail: str, usage: Usage | None = None) -> None:
        super().__init__(f"no summary: {detail}")
        self.reason = reason
        self.usage = usage


class CompactionInProgressError(CompactionError):
    """A compaction was requested while another one of the same conversation is running."""

    def __init__(self) -> None:
        super().__init__("a compaction of this conversation is running: wait for it, or cancel it.")


class ContextWindowFullError(CompactionError):
    """A conversation does not fit its context window, and neither a summary nor pruning can change that.

    The text says why.

    Raised by `ContextWindow.request` and by sessions. The transcript is complete, and the window
    can be used again.
    """


class SettingsError(PromptKitError):
    """A setting is invalid.

    `source` is the file or the environment variable, `setting` the name, `why` the reason.
    """

    def __init__(self, *, source: str, setting: str, why: str) -> None:
        end = "" if why.endswith("?") else "."
        super().__init__(f"{source}: {setting}: {why}{end}" if setting else f"{source}: {why}{end}")
        self.source = source
        self.setting = setting
        self.why = why


class MaxStepsExceededError(PromptKitError):
    """A turn needed more than `max_steps` requests to the model.

    All of its messages are in the transcript.
    """

    def __init__(self, steps: int) -> None:
        super().__init__(
            f"the model went on calling tools for {steps:,} requests: raise max_steps, or send another message."
        )
        self.steps = steps


class TurnInProgressError(PromptKitError):
    """The operation would move the conversation to another branch while a turn is running, or while tool calls wait for results.

    Attributes:
        waiting: The calls of a context window that wait for results, by name and id.
    """

    def __init__(self, waiting: Sequence[str] = ()) -> None:
        self.waiting = tuple(waiting)
        super().__init__(
            f"tool calls wait for results: {', '.join(waiting)}. Add the results first, or write abandon_calls=True to go on without them."
            if waiting
            else "a turn of this conversation is running: wait for it or cancel it, and then try again."
        )


class ToolError(PromptKitError):
    """A tool could not do what was asked.

    A tool raises it, and the model is told its text as the call's error.

    >>> raise ToolError(f"there is no file {path!r}; the files are {names}")
    """


class NoPendingMessageError(PromptKitError):
    """There is no message for the model to answer: the new message is empty, the model's reply is the last message, or nothing is shown.

    Attributes:
        empty: The conversation shows no message at all, for example because another program has
            reset it.
    """

    def __init__(self, *, empty: bool = False) -> None:
        self.empty = empty
        super().__init__(
            "the request would have no messages: the conversation is empty, or it was reset meanwhile. Add a user message first."
            if empty
            else "there is no message for the model to answer: send a message that is not empty."
        )


class _KnownOfFailure(TypedDict, total=False):
    """The keywords of a `ModelError`."""

    model: str
    status: int | None
    code: str | None
    param: str | None


class ModelError(PromptKitError):
    """A request to a model failed. `__cause__` is the SDK's exception.

    Attributes:
        model: The model's name.
        status: The HTTP status, or None.
        code: The provider's error code, or None.
        param: The request parameter that the provider names, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        model: str = "",
        status: int | None = None,
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        # one line, whatever the server wrote
        message = " ".join(message.split())
        super().__init__(f"{model}: {message}" if model else message)
        self.model = model
        self.status = status
        self.code = code
        self.param = param


class ContextLengthExceededError(ModelError):
    """The provider refused a request that is larger than the model's context window.

    `tokens` and `window` are the provider's figures, if it reports them.
    """

    def __init__(
        self,
        message: str,
        *,
        tokens: int | None = None,
        window: int | None = None,
        **known: Unpack[_KnownOfFailure],
    ) -> None:
        super().__init__(message, **known)
        self.tokens = tokens
        self.window = window


class RateLimitedError(ModelError):
    """The provider asks for fewer requests, or fewer tokens per minute.

    `retry_after` is the time to wait in seconds, if it is reported.
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, **known: Unpack[_KnownOfFailure]
    ) -> None:
        super().__init__(message, **known)
        self.retry_after = retry_after


class ModelUnavailableError(ModelError):
    """No answer within the time limit, a broken connection, an interrupted stream or a failing server.

    A later attempt may succeed.
    """


class ModelRequestError(ModelError):
    """The provider rejects the request and would reject it again: an invalid key, an exhausted quota, an unsupported parameter."""


class EmptyReplyError(ModelError):
    """The reply has neither text nor tool calls, or is not a reply.

    `finish` and `usage` are the provider's.
    """

    finish: str | None = None
    usage: Usage | None = None
