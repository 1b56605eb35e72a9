"""A provider's own compaction over real HTTP: kept byte for byte, sent back, and replaced at another provider."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from promptkit.compaction.planning.selection import KeepNothing, KeepRecentTokens
from promptkit.compaction.run.compactor import Compactor
from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.native import NativeSummarizer, make_portable
from promptkit.errors import EmptyReplyError, ModelRequestError
from promptkit.messages import OpaquePart
from promptkit.providers.openai.api import summary_from_compaction
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing import WordTokenizer
from promptkit.testing.server import serve
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_view
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.wire import to_anthropic, to_responses
from tests.conversations import ConversationBuilder, words
from tests.unit.compaction.summarizers.tasks import nothing_new, refusal
from tests.unit.providers.openai.asking import client

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.compaction.planning.selection import Keep
    from promptkit.messages import Json, Message
    from promptkit.transcript.log.entries import Entry

TOKENIZER = WordTokenizer()


def spoken(talk: ConversationBuilder | None = None) -> ConversationBuilder:
    talk = talk or ConversationBuilder()
    talk.user("Read the parser.")
    talk.round("c1", words(200))
    talk.answer("It descends.")
    return talk


def compact(talk: ConversationBuilder, url: str, *, keep: Keep | None = None) -> Entry | None:
    async def run() -> Entry | None:
        async with client(url) as over:
            model = OpenAIModel("gpt-5", client=over)
            compactor = Compactor(
                talk.log,
                summarizer=NativeSummarizer(model=model),
                keep=keep or KeepNothing(),
                tokenizer=TOKENIZER,
                max_summary_tokens=150,
            )
            return await compactor.compact(trigger="manual")

    return asyncio.run(run())


def sealed(messages: tuple[Message, ...]) -> list[Json]:
    return [
        part.value
        for message in messages
        for part in message.content
        if isinstance(part, OpaquePart)
    ]


def test_the_checkpoint_keeps_what_the_provider_sealed_and_a_text_beside_it() -> None:
    talk = spoken()
    with serve() as server:
        entry = compact(talk, server.url)
        (exchange,) = server.requests
    assert exchange.path.endswith("/responses/compact")
    assert entry is not None
    payload = entry.payload
    assert isinstance(payload, Checkpoint)
    assert payload.replacement is not None
    assert [message.text for message in payload.replacement] == ["Read the parser.", ""]
    (seal,) = sealed(payload.replacement)
    assert to_responses(talk.view.messages)[-1] == seal
    assert payload.portable is not None
    assert sealed(payload.portable) == []
    assert "Read the parser." in payload.portable[0].text
    assert payload.usage is not None
    assert payload.usage.input_tokens > 0
    assert payload.model == "gpt-5"


def test_what_is_kept_follows_and_the_next_request_sends_the_seal_back_byte_for_byte(
    tmp_path: Path,
) -> None:
    talk = ConversationBuilder()
    talk.log = Transcript(JsonlStore(tmp_path / "t.jsonl"))
    spoken(talk)
    talk.user("And the lexer?")
    talk.answer(words(20))
    with serve() as server:
        compact(talk, server.url, keep=KeepRecentTokens(tokens=24))
    again = build_view(Transcript(JsonlStore(tmp_path / "t.jsonl")).path())
    assert again == talk.view
    assert [item.kind for item in again.items] == ["replacement", "summary", "message", "message"]
    assert sealed(again.messages) == sealed(talk.view.messages) != []


@pytest.mark.spec("E67")
def test_the_next_compaction_sends_the_earlier_summary_or_seal() -> None:
    talk = ConversationBuilder()
    talk.checkpoint("the local summary")
    spoken(talk)
    with serve() as server:
        compact(talk, server.url)
        spoken(talk)
        entry = compact(talk, server.url)
        first, second = server.requests
    assert "the local summary" in str(first.body["input"])
    assert "'type': 'compaction'" in str(second.body["input"])
    assert entry is not None
    assert isinstance(entry.payload, Checkpoint)
    assert len(sealed(talk.view.messages)) == 1
    # what the text beside it is made of goes on, too
    assert "the local summary" in entry.payload.summary


@pytest.mark.spec("E66")
def test_at_another_provider_the_portable_summary_stands_in_its_place_and_nothing_else_changes() -> (
    None
):
    talk = spoken()
    talk.user("And the lexer?")
    talk.answer(words(20))
    with serve() as server:
        compact(talk, server.url, keep=KeepRecentTokens(tokens=30))
    talk.user("later")
    before = talk.view.messages
    assert make_portable(talk.log, provider="responses", model="gpt-5") is None
    assert make_portable(talk.log, provider="anthropic", model="gpt-5") is not None
    messages = talk.view.messages
    assert sealed(messages) == []
    assert "Read the parser." in messages[0].text
    assert [message.text for message in messages[1:]] == [message.text for message in before[2:]]
    assert "Read the parser." in str(to_anthropic(messages))
    assert make_portable(talk.log, provider="anthropic", model="gpt-5") is None
    assert make_portable(talk.log, provider="responses", model="gpt-5") is None


def test_another_model_of_the_same_provider_gets_the_portable_summary_too() -> None:
    talk = spoken()
    with serve() as server:
        compact(talk, server.url)
    assert make_portable(talk.log, provider="responses", model="gpt-5") is None
    assert make_portable(talk.log, provider="responses", model="gpt-5-mini") is not None
    assert sealed(talk.view.messages) == []


def test_a_view_without_a_seal_is_portable_as_it_is() -> None:
    talk = ConversationBuilder()
    assert make_portable(talk.log, provider="chat", model="gpt-5") is None
    talk.checkpoint("S")
    assert make_portable(talk.log, provider="chat", model="gpt-5") is None
    talk = spoken()
    with serve() as server:
        entry = compact(talk, server.url)
    assert entry is not None
    talk.edit(entry.id, "redacted")
    assert make_portable(talk.log, provider="chat", model="gpt-5") is None


def test_where_the_provider_has_no_compaction_the_next_summarizer_runs() -> None:
    async def run() -> str:
        async with client("http://127.0.0.1:9/v1") as over:
            model = OpenAIModel("gpt-5", api="chat", client=over)
            with pytest.raises(ModelRequestError, match="no compaction request"):
                await model.compact(())
            talk = spoken()
            native = NativeSummarizer(model=model)
            compactor = Compactor(
                talk.log,
                summarizer=FallbackSummarizer([native, ExtractiveSummarizer(tokenizer=TOKENIZER)]),
                keep=KeepNothing(),
                tokenizer=TOKENIZER,
                max_summary_tokens=150,
            )
            entry = await compactor.compact(trigger="manual")
            assert entry is not None
            assert isinstance(entry.payload, Checkpoint)
            assert sealed(talk.view.messages) == []
            return talk.view.messages[0].text

    assert "Read the parser." in asyncio.run(run())


def test_nothing_new_asks_nobody() -> None:
    model = OpenAIModel("gpt-5")
    assert refusal(NativeSummarizer(model=model), nothing_new()).reason == "nothing"


@pytest.mark.parametrize(
    "output",
    [
        None,
        [],
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        ["nonsense"],
        "x",
    ],
)
def test_an_answer_that_stands_for_nothing_is_a_failure(output: object) -> None:
    with pytest.raises(EmptyReplyError):
        summary_from_compaction({"output": output}, "gpt-5")


def test_what_is_no_plain_text_of_the_user_is_kept_as_it_is() -> None:
    picture = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_image", "image_url": "https://example.org/a.png"}],
    }
    seal = {"type": "compaction", "id": "cmp_1", "encrypted_content": "xyz", "created_by": "them"}
    made = summary_from_compaction(
        {"output": [picture, seal], "usage": {"input_tokens": 9, "output_tokens": 5}}, "gpt-5"
    )
    assert to_responses(made.messages) == [
        picture,
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "xyz"},
    ]
    assert [
        part.tokens
        for message in made.messages
        for part in message.content
        if isinstance(part, OpaquePart)
    ][1] == 5
    assert made.usage.input_tokens == 9
