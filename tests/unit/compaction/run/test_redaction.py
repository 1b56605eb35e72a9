"""Redaction of what summarizers get and of what they write."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, cast

import attrs
import pytest

from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import LastRequest, Summary
from promptkit.compaction.planning.user_messages import VerbatimUserMessages
from promptkit.compaction.run.compactor import Compactor
from promptkit.compaction.run.hooks import CompactionHooks, PreCompactResult
from promptkit.compaction.run.replacement import Replacement
from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.model_summarizers import (
    ChunkedSummarizer,
    FullSummarizer,
    InlineSummarizer,
    SimpleSummarizer,
)
from promptkit.messages import Message, OpaquePart, ToolCall
from promptkit.testing import ScriptedModel
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.redaction import redact_secrets
from tests.conversations import ConversationBuilder, summary_reply, words
from tests.unit.compaction.summarizers.tasks import TOKENIZER
from tests.unit.compaction.summarizers.writers import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.compaction.planning.plan import Plan, SummaryTask
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.providers.model import Model

SECRET = "ghp_" + "a1B2" * 9
TOLD = summary_reply(f"The key is {SECRET}. {words(30)}")


def secret_talk() -> ConversationBuilder:
    """A conversation that has its secret wherever one can be."""
    talk = ConversationBuilder()
    talk.append(
        Checkpoint(
            summary=f"S1 {SECRET}",
            facts={"requests": [f"old {SECRET}"], "earlier": SECRET, "odd": {SECRET: [SECRET]}},
        )
    )
    talk.user(f"Use {SECRET}. {words(50)}")
    talk.say(
        Message(
            role="assistant",
            content=(OpaquePart(value={"type": "thinking", "thinking": SECRET, "signature": "s"}),),
            tool_calls=(
                ToolCall(id="c1", name="run", arguments=json.dumps({"command": f"curl {SECRET}"})),
            ),
        )
    )
    talk.result("c1", f"Error: {words(50)} {SECRET}")
    talk.answer(f"It is {SECRET}. {words(50)}\n- [ ] use {SECRET}")
    talk.user(f"And {SECRET} stays. {words(5)}")
    return talk


def compacted(
    talk: ConversationBuilder,
    summarizer: Summarizer,
    *,
    hooks: CompactionHooks | None = None,
    last: LastRequest | None = None,
) -> Checkpoint:
    compactor = Compactor(
        talk.log,
        summarizer=summarizer,
        tokenizer=TOKENIZER,
        max_summary_tokens=200,
        redactor=redact_secrets,
        hooks=hooks or CompactionHooks(),
    )
    entry = asyncio.run(
        compactor.compact(trigger="manual", instructions=f"keep {SECRET}", last_request=last)
    )
    assert entry is not None
    assert isinstance(entry.payload, Checkpoint)
    return entry.payload


def written(made: Checkpoint) -> str:
    """What a checkpoint says of what was before it."""
    return (
        made.summary
        + json.dumps(made.facts)
        + "".join(message.text for message in made.replacement or ())
    )


MODES: list[Callable[[Model], Summarizer]] = [
    lambda model: FullSummarizer(model=model, window=2_000, tokenizer=TOKENIZER),
    lambda model: SimpleSummarizer(model=model, window=2_000, tokenizer=TOKENIZER),
    lambda model: ChunkedSummarizer(model=model, window=2_000, tokenizer=TOKENIZER),
    lambda model: FallbackSummarizer(
        [
            InlineSummarizer(model=model),
            SimpleSummarizer(model=model, window=2_000, tokenizer=TOKENIZER),
        ]
    ),
]


@pytest.mark.spec("E73")
@pytest.mark.parametrize("mode", MODES)
def test_no_secret_is_in_what_a_model_is_asked_or_in_what_it_gave(
    mode: Callable[[Model], Summarizer],
) -> None:
    with ScriptedModel([TOLD]) as model:
        made = compacted(secret_talk(), mode(model))

    sent = "\n".join(
        message.text + "".join(call.arguments for call in message.tool_calls)
        for message in model.requests[0].messages
    )
    assert SECRET not in sent
    assert sent.count("[redacted: access token]") >= 6
    assert SECRET not in written(made)
    assert "The key is [redacted: access token]." in made.summary


@pytest.mark.spec("E73")
def test_without_a_model_neither() -> None:
    made = compacted(secret_talk(), ExtractiveSummarizer(tokenizer=TOKENIZER))

    assert SECRET not in written(made)
    assert "Use [redacted: access token]." in written(made)
    assert "thinking" not in made.facts


@pytest.mark.spec("E73")
def test_the_live_request_is_as_it_was_sent_and_its_summary_is_clean() -> None:
    talk = secret_talk()
    last = LastRequest(messages=talk.view.messages[:-2])
    with ScriptedModel([TOLD]) as model:
        made = compacted(talk, InlineSummarizer(model=model, tokenizer=TOKENIZER), last=last)

    *sent, since, question = model.requests[0].messages
    assert tuple(sent) == last.messages
    # once: it is known what was sent
    assert since.text.startswith("It is [redacted: access token].")
    assert SECRET not in question.text
    assert SECRET not in written(made)


@pytest.mark.spec("E73")
def test_what_was_sent_is_known_though_the_plan_has_it_without_its_secret() -> None:
    talk = ConversationBuilder()
    talk.user(f"Use {SECRET}. {words(50)}")
    last = LastRequest(messages=talk.view.messages)
    talk.answer(f"It is {words(50)}")
    talk.user("more")
    with ScriptedModel([TOLD]) as model:
        compacted(talk, InlineSummarizer(model=model, tokenizer=TOKENIZER), last=last)

    assert [message.text for message in model.requests[0].messages[:-1]] == [
        last.messages[0].text,
        f"It is {words(50)}",
    ]


@pytest.mark.spec("E73")
def test_a_summary_of_one_s_own_is_looked_at_too() -> None:
    class Own(CompactionHooks):
        async def pre_compact(
            self, plan: Plan, *, trigger: str, instructions: str | None
        ) -> PreCompactResult:
            _ = plan, trigger, instructions
            return PreCompactResult(
                summary=Summary(text=f"mine {SECRET}", mode="hook", facts=Facts(changed=(SECRET,)))
            )

    writer = Writer()

    assert SECRET not in written(compacted(secret_talk(), writer, hooks=Own()))
    assert writer.tasks == []


def test_what_a_checkpoint_says_again_beside_its_summary_is_clean() -> None:
    talk = secret_talk()
    compactor = Compactor(
        talk.log,
        summarizer=Writer(),
        tokenizer=TOKENIZER,
        max_summary_tokens=50,
        redactor=redact_secrets,
        replacement=Replacement(originals=VerbatimUserMessages(max_tokens=500)),
    )
    asyncio.run(compactor.compact(trigger="manual"))

    *told, last = (message.text for message in talk.view.messages)
    assert any(text.startswith("[answered] Use [redacted: access token].") for text in told)
    assert not any(SECRET in text for text in told)
    assert SECRET in last  # the request that is worked on


def test_what_was_said_stays_as_it_was() -> None:
    talk = secret_talk()
    before = talk.path
    with ScriptedModel([TOLD]) as model:
        compacted(talk, SimpleSummarizer(model=model, window=2_000, tokenizer=TOKENIZER))

    assert talk.path[: len(before)] == before
    assert SECRET in talk.view.messages[-1].text


def test_without_a_redactor_nothing_is_looked_at() -> None:
    writer = Writer(text=f"S {SECRET}")
    talk = secret_talk()
    compactor = Compactor(talk.log, summarizer=writer, tokenizer=TOKENIZER, max_summary_tokens=200)
    entry = asyncio.run(compactor.compact(trigger="manual"))

    assert cast("Checkpoint", entry and entry.payload).summary == f"S {SECRET}"  # as above
    assert writer.tasks[0].redactor is None


def test_a_redactor_that_raises_ends_the_compaction_and_nothing_is_asked_or_written() -> None:
    def broken(text: str) -> str:
        raise ValueError(len(text))

    writer, talk = Writer(), secret_talk()
    compactor = Compactor(
        talk.log, summarizer=writer, tokenizer=TOKENIZER, max_summary_tokens=200, redactor=broken
    )
    entries = len(talk.log)
    with pytest.raises(ValueError, match=r"\d"):
        asyncio.run(compactor.compact(trigger="manual"))

    assert writer.tasks == []
    assert len(talk.log) == entries


@attrs.frozen
class Reads:
    """A summarizer of one's own, which says what it was given."""

    seen: list[SummaryTask]

    async def summarize(self, task: SummaryTask) -> Summary:
        self.seen.append(task)
        return Summary(text="S", mode="own")


def test_a_summarizer_of_one_s_own_is_given_no_secret() -> None:
    seen: list[SummaryTask] = []
    compacted(secret_talk(), Reads(seen))

    (task,) = seen
    assert SECRET not in str(attrs.evolve(task, last_request=None))
