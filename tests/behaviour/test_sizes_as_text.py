"""A number of tokens may be written as text wherever one is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import (
    ContextBudget,
    TextChunk,
    TokenLimit,
    Truncate,
    UserMessage,
    register_model,
    render,
    tool,
)
from promptkit.bench import measure
from promptkit.compaction import (
    ChunkedSummarizer,
    FullSummarizer,
    InlineSummarizer,
    KeepLastMessages,
    KeepLastRound,
    KeepLastTurns,
    KeepRecentTokens,
    KeepUserMessages,
    MediaLimits,
    RecentFiles,
    ReduceToolResults,
    Replacement,
    SimpleSummarizer,
    UserMessageHistory,
    VerbatimUserMessages,
    load_settings,
)
from promptkit.compaction.presets.coding_agents import Pi
from promptkit.elements import Isolate, Reserve
from promptkit.errors import InvalidArgumentError
from promptkit.lab.replay import ReplayRules
from promptkit.messages import ToolDefinition
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tools import Tool

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_tool_a_summarizer_and_a_replay_read_their_sizes_as_text() -> None:
    definition = ToolDefinition(name="read", description="", parameters={})
    assert Tool(definition=definition, run=str, max_tokens="2k").max_tokens == 2_000
    assert tool(name="read", max_tokens="2k")(lambda: "x").max_tokens == 2_000
    model = ScriptedModel([])
    for summarizer in (InlineSummarizer, FullSummarizer, SimpleSummarizer, ChunkedSummarizer):
        assert summarizer(model=model, window="128k").window == 128_000
    rules = ReplayRules(model="gpt-5", window="32k", cache="openai", summary_tokens="2.6k")
    assert (rules.window, rules.summary_tokens) == (32_000, 2_600)
    assert MediaLimits(max_tokens="20k").max_tokens == 20_000
    assert measure(UserMessage()["Hello"], budgets=["1k"]).budgets == (1_000,)


def test_the_sizes_of_presets_are_read_as_text_from_files_and_variables(tmp_path: Path) -> None:
    file = tmp_path / "pi.toml"
    file.write_text('keep_recent_tokens = "20k"\n', encoding="utf-8")
    assert load_settings(Pi, prefix="MINE_", file=file, environ={}).keep_recent_tokens == 20_000
    found = load_settings(Pi, prefix="MINE_", environ={"MINE_KEEP_RECENT_TOKENS": "20k"})
    assert found.keep_recent_tokens == 20_000


def test_the_sizes_of_a_registered_model_are_read_as_text() -> None:
    model = register_model("a-size", window="32k", max_input="24k", max_output_tokens="8k")
    assert (model.window, model.max_input, model.max_output_tokens) == (32_000, 24_000, 8_000)


@pytest.mark.parametrize("make", [TokenLimit, Truncate])
def test_text_that_is_no_size_is_refused_where_it_is_written(
    make: type[TokenLimit | Truncate],
) -> None:
    with pytest.raises(InvalidArgumentError, match="invalid token count '8q': use 8000, 8k or 1m"):
        make(max_tokens="8q")
