"""VS Code's settings: how the model is asked for a summary, how large a request may be, and which model writes summaries."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from promptkit.agent.session.session import AgentSession
from promptkit.agent.window.window import ContextWindow
from promptkit.compaction.presets.coding_agents import VSCode, vscode
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.errors import InvalidArgumentError
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens.budget import ContextBudget
from tests.conversations import summary_reply, words

CHEAP = VSCode(summary_model="gpt-4o-mini", summary_model_filter=("GPT-5", "sonnet"))


def ways(window: ContextWindow) -> list[tuple[str, str, int]]:
    """Return the kind, the model and the window in tokens of each summarizer, in the order in which they are asked."""
    chain = window.compaction.compactor.summarizer
    assert isinstance(chain, FallbackSummarizer)
    return [
        (type(each).__name__.removesuffix("Summarizer"), each.model.name, each.window)  # type: ignore[attr-defined]  # those with a model have both
        for each in chain.summarizers
        if hasattr(each, "model")
    ]


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [("auto", ["Inline", "Full", "Simple"]), ("full", ["Full", "Simple"]), ("simple", ["Simple"])],
)
def test_the_mode_says_how_the_model_is_asked(
    mode: Literal["auto", "full", "simple"], kinds: list[str]
) -> None:
    window = ContextWindow(model=ScriptedModel([], name="gpt-5"), preset=vscode(VSCode(mode=mode)))
    assert [kind for kind, _, _ in ways(window)] == kinds


def test_the_context_size_is_the_most_that_requests_take() -> None:
    small = vscode(VSCode(context_size=64_000))
    assert small.adjust_budget(ContextBudget(window=200_000)).limit == 64_000
    assert small.adjust_budget(ContextBudget(window=200_000, max_tokens=30_000)).limit == 30_000
    assert (
        small.adjust_budget(ContextBudget(window=40_000)).limit
        == ContextBudget(window=40_000).limit
    )


def test_another_model_writes_the_summaries_of_the_models_that_the_filter_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    session = AgentSession(model=ScriptedModel([], name="claude-sonnet-4-5"), preset=vscode(CHEAP))
    # no cache of it to ask behind
    assert ways(session.window) == [
        ("Full", "gpt-4o-mini", 128_000),
        ("Simple", "gpt-4o-mini", 128_000),
    ]
    session.set_model(ScriptedModel([], name="gemini-2.5-pro"))
    assert {(kind, model) for kind, model, _ in ways(session.window)} == {
        (kind, "gemini-2.5-pro") for kind in ("Inline", "Full", "Simple")
    }


def test_the_other_model_is_asked_and_the_one_that_answers_is_not() -> None:
    cheap = ScriptedModel([summary_reply("Words were said.")], name="cheap")

    async def talk() -> None:
        answers = [words(900, "answer"), words(100, "answer"), "Yes."]
        session = AgentSession(
            model=ScriptedModel(answers, name="gpt-5"),
            summarizer=cheap,
            preset=vscode(CHEAP),
            budget=ContextBudget(window=2_000, reserved_output_tokens=0),
            tokenizer=WordTokenizer(),
        )
        await session.run("Say something.")
        await session.run("And more.")
        assert await session.compact() is not None
        assert (await session.run("Again?")).text == "Yes."

    asyncio.run(talk())
    assert len(cheap.requests) == 1


def test_a_window_is_given_the_object_of_the_model_that_the_settings_name() -> None:
    with pytest.raises(
        InvalidArgumentError,
        match="'gpt-4o-mini': give the window that model's object as summarizer=",
    ):
        ContextWindow(model="gpt-5", preset=vscode(CHEAP))
    ContextWindow(
        model="gpt-5", preset=vscode(CHEAP), summarizer=ScriptedModel([], name="gpt-4o-mini")
    )
