"""A number of tokens may be written as text wherever one is taken."""

from __future__ import annotations

import pytest

from promptkit import (
    ContextBudget,
    TextChunk,
    TokenLimit,
    Truncate,
    UserMessage,
    register_model,
    render,
)
from promptkit.compaction import (
    KeepLastMessages,
    KeepLastRound,
    KeepLastTurns,
    KeepRecentTokens,
    KeepUserMessages,
    RecentFiles,
    ReduceToolResults,
    Replacement,
    UserMessageHistory,
    VerbatimUserMessages,
)
from promptkit.elements import Isolate, Reserve
from promptkit.errors import InvalidArgumentError
from promptkit.testing import WordTokenizer

LONG = "word " * 3_000


def test_elements_read_sizes_as_text() -> None:
    assert TokenLimit(max_tokens="1.5k") == TokenLimit(max_tokens=1_500)
    assert Truncate(max_tokens="1k") == Truncate(max_tokens=1_000)
    assert Isolate(tokens="1k") == Isolate(tokens=1_000)
    assert Reserve(tokens="1k") == Reserve(tokens=1_000)


def test_a_render_reads_the_reserve_as_text() -> None:
    prompt = UserMessage()[TextChunk()[LONG[:500]]]
    with_text, with_number = (
        render(prompt, reserved_output_tokens=size, tokenizer=WordTokenizer())
        for size in ("4k", 4_000)
    )
    assert with_text.budget == with_number.budget == 124_000


def test_a_budget_reads_every_size_as_text() -> None:
    assert ContextBudget(
        window="200k",
        max_input="150k",
        max_output_tokens="8k",
        reserved_output_tokens="4k",
        max_tokens="100k",
        reserve_tokens="20k",
        tools="1k",
    ) == ContextBudget(
        window=200_000,
        max_input=150_000,
        max_output_tokens=8_000,
        reserved_output_tokens=4_000,
        max_tokens=100_000,
        reserve_tokens=20_000,
        tools=1_000,
    )
    assert ContextBudget.for_model("gpt-4o", max_tokens="8k").limit == 8_000


def test_what_compaction_keeps_is_read_as_text() -> None:
    assert KeepRecentTokens(tokens="20k") == KeepRecentTokens(tokens=20_000)
    assert KeepUserMessages(tokens="2k") == KeepUserMessages(tokens=2_000)
    for keep in (KeepLastRound, KeepLastTurns, KeepLastMessages):
        assert keep(count=1, max_tokens="1k") == keep(count=1, max_tokens=1_000)
    for history in (UserMessageHistory, VerbatimUserMessages):
        assert history(max_tokens="4k", max_message_tokens="1k") == history(
            max_tokens=4_000, max_message_tokens=1_000
        )
    assert ReduceToolResults(protect_tokens="8k", least_saving="2k") == ReduceToolResults(
        protect_tokens=8_000, least_saving=2_000
    )
    assert RecentFiles(read=str, max_tokens="8k", max_file_tokens="2k") == RecentFiles(
        read=str, max_tokens=8_000, max_file_tokens=2_000
    )
    assert Replacement(carry_tokens="2k") == Replacement(carry_tokens=2_000)


def test_the_sizes_of_a_registered_model_are_read_as_text() -> None:
    model = register_model("a-size", window="32k", max_input="24k", max_output_tokens="8k")
    assert (model.window, model.max_input, model.max_output_tokens) == (32_000, 24_000, 8_000)


@pytest.mark.parametrize("make", [TokenLimit, Truncate])
def test_text_that_is_no_size_is_refused_where_it_is_written(
    make: type[TokenLimit | Truncate],
) -> None:
    with pytest.raises(InvalidArgumentError, match="invalid token count '8q': use 8000, 8k or 1m"):
        make(max_tokens="8q")
