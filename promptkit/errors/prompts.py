"""What can go wrong with a prompt: its tree, its size, its template, its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptkit.messages import Message
    from promptkit.tracing.record import Trace

__all__ = [
    "BadChildError",
    "BadPropError",
    "BudgetExceededError",
    "ChildrenTwiceError",
    "EmitError",
    "JsonTreeError",
    "MisplacedElementError",
    "NotAComponentError",
    "OrphanResultError",
    "PromptKitError",
    "RunningLoopError",
    "TemplateError",
    "TextTooLongError",
    "TokenizerError",
    "TreeError",
    "UnansweredCallError",
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


class UnansweredCallError(TreeError):
    """A tool call that no tool message answers: providers reject such a request."""


class OrphanResultError(TreeError):
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
