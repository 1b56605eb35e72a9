"""The cost of summaries that no model wrote: that of the requests that the preset's own summarizers would send."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction import NativeSummarizer
from promptkit.compaction.planning.plan import LastRequest, Plan, SummaryTask
from promptkit.compaction.presets import PRESETS
from promptkit.compaction.summarizers.defaults import SummarizerContext, make_extractive_summarizer
from promptkit.compaction.summarizers.summarizer import SECTIONS
from promptkit.lab.replay.policies import ReplayTerms, SummaryCall, make_metered_summarizer
from promptkit.lab.replay.prompt_cache import MessageCounts
from promptkit.messages import Message, ToolDefinition, Usage
from promptkit.providers.model import Reply
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import tokenizer_for
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.view import ViewItem
from tests.unit.lab.replay.conversations import long_conversation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.planning.plan import Summary
    from promptkit.compaction.presets.preset import Preset
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.providers.model import Model

TOKENIZER = tokenizer_for("gpt-5")
TOOLS = (
    ToolDefinition(name="run", description="Run a command. " * 20, parameters={"type": "object"}),
)
TALK = long_conversation(6)


@attrs.define
class Asked:
    """A model that remembers its requests, and answers each with a summary."""

    name: str = "gpt-5"
    requests: list[tuple[tuple[Message, ...], tuple[ToolDefinition, ...]]] = attrs.field(
        factory=list[tuple[tuple[Message, ...], tuple[ToolDefinition, ...]]]
    )

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        self.requests.append((tuple(messages), tuple(tools)))
        text = "\n".join(
            f"{number}. {heading}\n- the parser" for number, heading in enumerate(SECTIONS, 1)
        )
        message = Message(role="assistant", content=(f"<summary>{text}</summary>",))
        return Reply(message=message, usage=Usage(input_tokens=7, output_tokens=3), finish="stop")

    @property
    def tokens(self) -> list[int]:
        """The tokens of each request."""
        return [
            sum(map(Sizer(TOKENIZER).count_message, messages))
            + TOKENIZER.count_overhead(
                tools, system=next((each.text for each in messages if each.role == "system"), False)
            ).tokens
            for messages, tools in self.requests
        ]


def items(messages: Sequence[Message]) -> tuple[ViewItem, ...]:
    return tuple(ViewItem(message=message, entry_id=str(at)) for at, message in enumerate(messages))


def task(*, prefix: Sequence[Message] = (), live: bool = False) -> SummaryTask:
    plan = Plan(leaf="", dropped=items(TALK[:24]), prefix=items(prefix), kept=items(TALK[-2:]))
    return SummaryTask(
        plan=plan,
        max_tokens=2_000,
        tools=TOOLS,
        last_request=LastRequest(messages=tuple(TALK), tools=TOOLS) if live else None,
    )


def summarize(
    preset: Preset, what: SummaryTask, *, model: Model | None = None, window: int = 32_000
) -> tuple[Summary, list[SummaryCall]]:
    """Summarize, and return the summary and the requests that were recorded."""
    budget = ContextBudget.for_model("gpt-5", tokenizer=TOKENIZER, tools=TOOLS, window=window)
    terms = ReplayTerms(
        budget=budget,
        tokenizer=TOKENIZER,
        counts=MessageCounts(TOKENIZER),
        tools=TOOLS,
        system=(),
        request_tokens=TOKENIZER.count_overhead(TOOLS, system=False).tokens,
        rng=lambda: 0.5,
        clock=lambda: 0.0,
        model=model,
    )
    context = SummarizerContext(model=model, budget=budget, tokenizer=TOKENIZER)
    calls: list[SummaryCall] = []
    summarizer = make_metered_summarizer(
        preset, context, terms=terms, calls=calls, restore=lambda messages: messages
    )
    return asyncio.run(summarizer.summarize(what)), calls


def ask(preset: Preset, what: SummaryTask) -> Asked:
    """Ask a model as the preset asks it."""
    model = Asked()
    summarize(preset, what, model=model)
    return model


@pytest.mark.parametrize(
    "name",
    ["vscode", "claude_code", "codex", "opencode", "pi", "oh_my_pi", "gsv_process", "copilot_cli"],
)
def test_a_summary_is_billed_as_the_preset_asks_for_it(name: str) -> None:
    what = task()
    summary, calls = summarize(PRESETS[name](), what)
    asked = ask(PRESETS[name](), what)
    assert [call.uncached_tokens for call in calls] == asked.tokens
    assert all(call.request == () and call.billed is None for call in calls)
    assert (len(calls), calls[0].output_tokens) == (
        1,
        TOKENIZER.count(summary.text.partition("\n\n<read-files>")[0]),
    )
    assert asked.requests[0][1] == (TOOLS if name in {"vscode", "codex", "copilot_cli"} else ())


def test_a_turn_that_is_cut_is_billed_as_two_requests() -> None:
    what = task(prefix=TALK[24:40])
    calls, asked = summarize(PRESETS["pi"](), what)[1], ask(PRESETS["pi"](), what)
    assert len(calls) == 2
    assert sorted(call.uncached_tokens for call in calls) == sorted(asked.tokens)


def test_chunks_are_billed_one_by_one() -> None:
    calls = summarize(PRESETS["gsv"](), task(), window=8_000)[1]
    assert len(calls) > 1
    assert all(call.output_tokens > 100 for call in calls)


@pytest.mark.parametrize("name", ["vscode", "claude_code", "codex", "opencode"])
def test_a_question_after_the_last_request_finds_it_in_the_cache(name: str) -> None:
    what = task(live=True)
    ((call,), asked) = summarize(PRESETS[name](), what)[1], ask(PRESETS[name](), what)
    question = asked.requests[0][0][len(TALK) :]
    assert call.request == tuple(TALK)
    assert call.uncached_tokens == sum(map(Sizer(TOKENIZER).count_message, question))


def test_what_does_not_fit_is_not_asked_and_costs_nothing() -> None:
    summary, calls = summarize(PRESETS["pi"](), attrs.evolve(task(), max_tokens=500), window=900)
    assert (summary.mode, calls) == ("extractive", [])


def test_a_preset_that_asks_no_model_pays_for_none() -> None:
    assert (
        summarize(attrs.evolve(PRESETS["pi"](), summarizer=make_extractive_summarizer), task())[1]
        == []
    )


def test_a_providers_own_compaction_is_billed_as_a_copy_of_the_messages() -> None:
    def make(context: SummarizerContext) -> Summarizer:
        return NativeSummarizer(model=context.model)  # type: ignore[arg-type]  # a model that compacts

    (call,) = summarize(attrs.evolve(PRESETS["codex"](), summarizer=make), task())[1]
    assert (
        call.uncached_tokens
        == sum(map(Sizer(TOKENIZER).count_message, TALK[:24]))
        + TOKENIZER.count_overhead((), system=False).tokens
    )


def test_a_model_that_writes_summaries_is_billed_by_its_own_figures() -> None:
    (call,) = summarize(PRESETS["pi"](), task(), model=Asked())[1]
    assert call.billed is not None
    assert (call.billed.input_tokens, call.billed.output_tokens) == (7, 3)
