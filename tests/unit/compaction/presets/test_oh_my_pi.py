"""oh-my-pi's summaries: from a service, or by the model's provider, where these are set."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from promptkit import OpenAIModel
from promptkit.compaction.planning.plan import Plan, Summary, SummaryTask
from promptkit.compaction.presets.coding_agents import OhMyPi, oh_my_pi
from promptkit.compaction.summarizers.defaults import SummarizerContext
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.testing.server import serve
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript import MessageEntry
from tests.conversations import (
    ConversationBuilder,
    call_message,
    summary_reply,
    summary_text,
    words,
)
from tests.unit.compaction.summarizers.test_remote import Service, running
from tests.unit.providers.openai.asking import client

if TYPE_CHECKING:
    from promptkit.providers import Model

TOKENIZER = WordTokenizer()
BUDGET = ContextBudget(window=4_000, reserved_output_tokens=0)


def split_talk() -> Plan:
    """A plan that drops a turn, and the beginning of one, in which a file is read."""
    talk = ConversationBuilder()
    talk.user(f"first {words(200)}")
    talk.answer(words(200, "yes"))
    talk.user(f"second {words(200)}")
    talk.append(MessageEntry(message=call_message("c1", arguments='{"path": "a.py"}')))
    talk.result("c1", words(200))
    items = talk.view.items
    return Plan(leaf=items[-1].entry_id, dropped=items[:2], prefix=items[2:])


def summarize(settings: OhMyPi, model: Model) -> Summary:
    context = SummarizerContext(model=model, budget=BUDGET, tokenizer=TOKENIZER)
    task = SummaryTask(plan=split_talk(), max_tokens=600)
    return asyncio.run(oh_my_pi(settings).summarizer(context).summarize(task))


def test_a_service_writes_both_parts_of_a_split_turn_and_the_files_are_listed() -> None:
    body = json.dumps({"summary": summary_text("From the service.")}).encode()
    with running(Service(body)) as service, ScriptedModel([]) as model:
        made = summarize(OhMyPi(remote_endpoint=service.url), model)
    assert len(service.asked) == 2
    assert made.text.count("From the service.") == 2
    assert "<read-files>\na.py\n</read-files>" in made.text


def test_a_service_that_fails_is_followed_by_the_model() -> None:
    with (
        running(Service(b"", status=500)) as service,
        ScriptedModel([summary_reply("A"), summary_reply("B")]) as model,
    ):
        made = summarize(OhMyPi(remote_endpoint=service.url), model)
    assert "<read-files>" in made.text


def test_a_service_that_is_switched_off_is_not_asked() -> None:
    body = json.dumps({"summary": summary_text("From the service.")}).encode()
    with (
        running(Service(body)) as service,
        ScriptedModel([summary_reply("A"), summary_reply("B")]) as model,
    ):
        summarize(OhMyPi(remote_endpoint=service.url, remote_enabled=False), model)
    assert service.asked == []


def test_the_provider_compacts_where_it_can_with_a_text_beside_it() -> None:
    async def ask(url: str) -> Summary:
        async with client(url) as over:
            model = OpenAIModel("gpt-5", client=over)
            context = SummarizerContext(model=model, budget=BUDGET, tokenizer=TOKENIZER)
            task = SummaryTask(plan=split_talk(), max_tokens=600)
            preset = oh_my_pi(OhMyPi(remote_enabled=True))
            return await preset.summarizer(context).summarize(task)

    with serve() as server:
        made = asyncio.run(ask(server.url))
        (exchange,) = server.requests
    assert made.mode == "native"
    assert made.replacement
    assert made.text.startswith("1. ")
    assert "<read-files>\na.py\n</read-files>" in made.text
    assert exchange.path.endswith("/compact")


def test_without_an_endpoint_and_a_provider_that_can_the_model_writes() -> None:
    with ScriptedModel([summary_reply("A"), summary_reply("B")]) as model:
        assert summarize(OhMyPi(remote_enabled=True), model).mode == "simple"


def test_the_strategy_off_compacts_nothing_by_itself() -> None:
    assert not oh_my_pi(OhMyPi(strategy="off")).enabled
