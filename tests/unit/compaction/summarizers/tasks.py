"""Summary tasks from conversations, and the requests that summarizers made of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import LastRequest, Plan, SummaryTask
from promptkit.compaction.planning.selection import KeepLastRound, select
from promptkit.errors import SummaryError
from promptkit.testing import WordTokenizer
from tests.conversations import ConversationBuilder, summary_text, words

if TYPE_CHECKING:
    from promptkit.compaction.planning.plan import Summary
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.messages import Message
    from promptkit.testing import ScriptedModel

__all__ = [
    "SUMMARY",
    "TAGGED",
    "TOKENIZER",
    "long_task",
    "nothing_new",
    "parser_talk",
    "refusal",
    "shown",
    "summarized",
    "task_of",
]

TOKENIZER = WordTokenizer()
SUMMARY = summary_text("The parser was read.")
TAGGED = f"<analysis>I think.</analysis>\n<summary>\n{SUMMARY}\n</summary>"


def parser_talk(previous: str | None = None) -> ConversationBuilder:
    """A conversation of two turns, behind a summary if there is one."""
    talk = ConversationBuilder()
    if previous is not None:
        talk.checkpoint(previous)
    talk.user("Read the parser.")
    talk.round("c1", "def parse(): ...")
    talk.answer("It is a recursive descent parser.")
    talk.user("Run the tests.")
    talk.round("c2", "2 passed", name="run")
    talk.round("c3", "4 passed", name="run")
    return talk


def long_task(
    turns: int = 20, *, size: int = 30, previous: str | None = None, max_tokens: int = 50
) -> SummaryTask:
    """Many turns of `size` words each; that of number 7 says w7 over and over."""
    talk = ConversationBuilder()
    if previous is not None:
        talk.checkpoint(previous)
    for number in range(turns):
        talk.user(words(size, f"w{number}"))
        talk.answer(f"a{number}")
    talk.user("last")
    return task_of(talk, max_tokens=max_tokens)


def task_of(
    talk: ConversationBuilder,
    *,
    max_tokens: int = 500,
    instructions: str | None = None,
    last: LastRequest | None = None,
) -> SummaryTask:
    """What a compaction of a conversation would ask for."""
    plan = select(talk.view, leaf=talk.leaf, tokenizer=TOKENIZER, keep=KeepLastRound())
    checkpoint = talk.view.checkpoint_id
    facts = Facts.from_json(
        getattr(talk.log.get(checkpoint).payload, "facts", {}) if checkpoint else {}
    )
    return SummaryTask(
        plan=plan, max_tokens=max_tokens, instructions=instructions, last_request=last, facts=facts
    )


def summarized(summarizer: Summarizer, task: SummaryTask) -> Summary:
    """The summary."""
    return asyncio.run(summarizer.summarize(task))


def refusal(summarizer: Summarizer, task: SummaryTask) -> SummaryError:
    """The error."""
    with pytest.raises(SummaryError) as caught:
        summarized(summarizer, task)
    return caught.value


def shown(model: ScriptedModel, request: int = -1) -> str:
    """All text of a request."""
    return "\n".join(map(_text, model.requests[request].messages))


def nothing_new() -> SummaryTask:
    """A task whose plan has the summary before and nothing else."""
    talk = ConversationBuilder()
    talk.checkpoint("S1")
    (item,) = talk.view.items
    return SummaryTask(plan=Plan(leaf=talk.leaf, previous="S1", dropped=(item,)), max_tokens=100)


def _text(message: Message) -> str:
    return message.text
