"""Errors travel between processes whole, and say where even if they learn it late."""

from __future__ import annotations

import copy
import pickle

import pytest

from promptkit import errors
from promptkit.elements.builtin import Metadata, UserMessage
from promptkit.errors import (
    BadPropError,
    BudgetExceededError,
    CompactionInProgressError,
    ContextLengthExceededError,
    InvalidArgumentError,
    MaxStepsExceededError,
    NoPendingMessageError,
    PromptKitError,
    RateLimitedError,
    SettingsError,
    SummaryError,
    TemplateError,
    ToolsFillBudgetError,
    TranscriptConflictError,
    TranscriptFormatError,
    TranscriptWriteError,
    TreeError,
    TurnInProgressError,
    UnknownModelError,
)
from promptkit.messages import Message
from promptkit.rendering.renderer import render
from promptkit.testing import WordTokenizer


class OfCountError(TreeError):
    """A user's own, made of something else than a sentence and a path."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} are too many.")
        self.count = count


MESSAGE = Message(role="user", content=("a b",))
SAMPLES: tuple[PromptKitError, ...] = (
    BudgetExceededError(
        budget=1,
        required=2,
        largest={"UserMessage": 2},
        messages=[MESSAGE],
        metadata=["m"],
        removed=[],
        where="TokenLimit",
    ),
    CompactionInProgressError(),
    NoPendingMessageError(),
    InvalidArgumentError("max_steps must be at least 1, not 0."),
    OfCountError(7),
    SettingsError(source="promptkit.toml", setting="threshold", why="no number"),
    SummaryError(reason="empty", detail="the model said nothing."),
    TemplateError("no such tag.", file="a.md", line=3),
    ToolsFillBudgetError(tools=9, budget=8),
    MaxStepsExceededError(3),
    TranscriptConflictError("e1", []),
    TranscriptFormatError("no transcript.", file="talk.jsonl"),
    TranscriptWriteError("the disk is full.", file="talk.jsonl"),
    TurnInProgressError(),
    UnknownModelError("gtp-5", "No model 'gtp-5' is known."),
)


def one(kind: type[PromptKitError]) -> PromptKitError:
    for sample in SAMPLES:
        if type(sample) is kind:
            return copy.copy(sample)
    if issubclass(kind, TreeError):
        return kind("no such prop.", path="UserMessage > Group[2]")
    return kind("something.")


PUBLIC = [getattr(errors, name) for name in errors.__all__]
EVERY = [OfCountError, *(kind for kind in PUBLIC if issubclass(kind, PromptKitError))]


def test_every_error_survives_pickling_and_copying_with_all_that_it_carries() -> None:
    for kind in EVERY:
        error = one(kind)
        error.add_note("in element UserMessage")
        dumps = [pickle.dumps(error, number) for number in range(pickle.HIGHEST_PROTOCOL + 1)]
        for back in (copy.copy(error), *map(pickle.loads, dumps)):
            assert type(back) is kind
            assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))


def test_what_a_render_raises_survives_pickling_with_its_receipt() -> None:
    prompt = UserMessage()[UserMessage.__name__, Metadata(value={"a": 1})].replace(required=True)
    with pytest.raises(BudgetExceededError) as caught:
        render((UserMessage(priority=1)["gone first"], prompt), budget=0, tokenizer=WordTokenizer())
    back = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own bytes
    assert back.messages == caught.value.messages != ()
    assert vars(back) == vars(caught.value)


def test_an_error_is_told_where_without_being_made_again() -> None:
    error = OfCountError(7)
    error.locate("UserMessage > Text")
    assert (error.path, str(error), error.count) == (
        "UserMessage > Text",
        "UserMessage > Text: 7 are too many.",
        7,
    )


def test_a_path_given_late_is_shown_like_one_given_at_once() -> None:
    late = BadPropError("no.")
    late.locate("Group")
    assert str(late) == str(BadPropError("no.", path="Group")) == "Group: no."


def test_no_path_is_no_prefix() -> None:
    error = BadPropError("no.")
    error.locate("")
    assert (str(error), error.path) == ("no.", "")


def test_what_a_provider_reports_can_be_given_to_the_error() -> None:
    overflow = ContextLengthExceededError("too long", model="m", tokens=5, window=4, status=400)
    assert (str(overflow), overflow.tokens, overflow.window, overflow.status) == (
        "m: too long",
        *(5, 4, 400),
    )
    limited = RateLimitedError("slow down", retry_after=2.5)
    assert (limited.retry_after, limited.model) == (2.5, "")
    for error in (overflow, limited):
        copied = copy.copy(error)
        assert (str(copied), vars(copied)) == (str(error), vars(error))
