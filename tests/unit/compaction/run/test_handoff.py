"""A handoff opens a new conversation with what serves its goal, or leaves both unchanged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from promptkit.compaction.planning.plan import LastRequest
from promptkit.compaction.run.branches import PARENT_SETTING, SummaryWriter, handoff
from promptkit.compaction.summarizers.model_summarizers import InlineSummarizer
from promptkit.compaction.summarizers.summarizer import HANDOFF_SECTIONS, HANDOFF_TEMPLATE
from promptkit.errors import SummaryError, TranscriptConflictError, TranscriptError
from promptkit.messages import ToolDefinition
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.transcript.log.entries import CustomMessage
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_view
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.transcript.stores.store import InMemoryStore
from tests.conversations import ConversationBuilder
from tests.unit.compaction.summarizers.writers import Writer

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.transcript.stores.store import TranscriptStore

GOAL = "Port the parser to Rust."


def spoken() -> ConversationBuilder:
    talk = ConversationBuilder()
    talk.system("rules")
    talk.user("Read the parser.")
    talk.answer("It descends recursively.")
    return talk


def handed(
    talk: ConversationBuilder,
    writer: Summarizer,
    store: TranscriptStore | None = None,
    *,
    last: LastRequest | None = None,
) -> str:
    """Hand a conversation off, and return the document that the new one starts with."""
    given = InMemoryStore() if store is None else store
    writing = SummaryWriter(summarizer=writer, max_tokens=50, last_request=last)
    new = asyncio.run(handoff(talk.log, talk.view, GOAL, given, writer=writing))
    payload = new.path()[-1].payload
    assert isinstance(payload, CustomMessage)
    return payload.message.text


def test_the_new_conversation_begins_with_the_document_and_knows_where_it_comes_from(
    tmp_path: Path,
) -> None:
    talk = spoken()
    leaf = talk.leaf
    document = handed(
        talk, Writer(text="The parser is in p.py."), JsonlStore(tmp_path / "new.jsonl")
    )
    assert document == "The parser is in p.py."
    new = Transcript(JsonlStore(tmp_path / "new.jsonl"))
    assert [
        (item.kind, item.message.role, item.message.text) for item in build_view(new.path()).items
    ] == [
        ("message", "system", "rules"),
        ("custom_message", "user", "The parser is in p.py."),
    ]
    assert new.settings()[PARENT_SETTING] == {"transcript": None, "leaf": leaf, "goal": GOAL}
    noted = talk.path[-1]
    assert noted.kind == "observation"
    assert "checkpoint" not in [entry.kind for entry in talk.path]


def test_the_document_is_asked_for_behind_the_live_request_with_the_goal_in_one_message() -> None:
    talk = spoken()
    tools = (ToolDefinition(name="read"),)
    sent = talk.view.messages
    with ScriptedModel(
        [
            f"<analysis>hm</analysis>{summary_answer('Begin with the lexer.', sections=HANDOFF_SECTIONS)}"
        ]
    ) as model:
        writer = InlineSummarizer(model=model, tokenizer=WordTokenizer(), template=HANDOFF_TEMPLATE)
        document = handed(talk, writer, last=LastRequest(messages=sent, tools=tools))
    assert "Begin with the lexer." in document
    (request,) = model.requests
    assert request.tools == tools
    assert request.messages[: len(sent)] == sent
    (question,) = request.messages[len(sent) :]
    assert GOAL in question.text
    assert "new conversation" in question.text


@pytest.mark.parametrize(
    "writer", [Writer(error=SummaryError(reason="empty", detail="nothing.")), Writer(text=" ")]
)
def test_without_a_document_the_error_comes_out_and_nothing_is_written(writer: Writer) -> None:
    talk = spoken()
    before = len(talk.log)
    store = InMemoryStore()
    with pytest.raises(SummaryError):
        handed(talk, writer, store)
    assert (len(talk.log), store.load().entries) == (before, ())


def test_a_store_that_holds_something_is_refused_before_anybody_is_asked() -> None:
    talk, writer = spoken(), Writer()
    with pytest.raises(TranscriptError, match="empty"):
        handed(talk, writer, spoken().log.store)
    assert writer.tasks == []


def test_an_empty_conversation_cannot_be_handed_on() -> None:
    with pytest.raises(SummaryError):
        handed(ConversationBuilder(), Writer())


def test_what_is_said_meanwhile_is_not_lost_in_a_handoff() -> None:
    talk = spoken()
    store = InMemoryStore()

    async def run() -> None:
        gate = asyncio.Event()
        writer = Writer(gate=gate)
        running = asyncio.ensure_future(
            handoff(talk.log, talk.view, GOAL, store, writer=SummaryWriter(summarizer=writer))
        )
        await asyncio.sleep(0)
        talk.user("wait")
        gate.set()
        with pytest.raises(TranscriptConflictError):
            await running

    asyncio.run(run())
    assert store.load().entries == ()


def test_secrets_do_not_travel() -> None:
    talk = spoken()
    store = InMemoryStore()
    writer = Writer(text="key SECRET")
    writing = SummaryWriter(summarizer=writer, redactor=lambda text: text.replace("SECRET", "-"))
    new = asyncio.run(handoff(talk.log, talk.view, GOAL, store, writer=writing))
    payload = new.path()[-1].payload
    assert isinstance(payload, CustomMessage)
    assert payload.message.text == "key -"
