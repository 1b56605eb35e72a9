"""Encrypted and signed reasoning goes only to the model that wrote it, and leaves where the prefix is read anew in any case."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from benchmarks.wishes_cache import TTL, Talk
from promptkit import Message, OpaquePart, ToolCall, Transcript
from promptkit.compaction import ExtractiveSummarizer, KeepLastTurns
from promptkit.providers import Reply
from promptkit.transcript import Checkpoint, InMemoryStore, MessageEntry, Setting, build_view
from promptkit.transcript.log.view import MODEL_SETTING
from promptkit.wire import messages_from_responses, to_responses
from promptkit.wire.parts import remove_reasoning
from tests.conversations import ConversationBuilder, result_message, user_message

if TYPE_CHECKING:
    from collections.abc import Sequence

THINKING = OpaquePart(
    value={"type": "thinking", "thinking": "I think.", "signature": "c2ln"}, provider="anthropic"
)
REDACTED = OpaquePart(
    value={"type": "redacted_thinking", "data": "YWJj"}, tokens=40, provider="anthropic"
)
SEALED = OpaquePart(
    value={"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "eHl6"},
    tokens=300,
    provider="responses",
)


def reply(*content: str | OpaquePart, calls: Sequence[ToolCall] = ()) -> Message:
    return Message(role="assistant", content=content, tool_calls=tuple(calls))


async def answer(talk: Talk, text: str, *content: str | OpaquePart) -> tuple[Message, ...]:
    """Send a message, let the model answer so, and return the messages of the request."""
    talk.window.add(user_message(text))
    request = await talk.window.request()
    usage = (await talk.model.complete(request.messages, tools=request.tools)).usage
    talk.window.add_reply(Reply(message=reply(*content), usage=usage, finish="stop"))
    talk.now += 10
    return request.messages


def reasons(messages: Sequence[Message]) -> list[bool]:
    """Whether each reply of a request has reasoning."""
    return [remove_reasoning(each) is not each for each in messages if each.role == "assistant"]


@pytest.mark.parametrize("part", [THINKING, REDACTED, SEALED])
class TestSwitch:
    def test_reasoning_goes_back_to_the_model_that_wrote_it(self, part: OpaquePart) -> None:
        async def converse() -> tuple[Message, ...]:
            talk = Talk("").open()
            await answer(talk, "One.", part, "Yes.")
            return await answer(talk, "Two.", "Yes.")

        assert reasons(asyncio.run(converse())) == [True]

    def test_another_model_never_gets_it_and_what_is_stored_stays(self, part: OpaquePart) -> None:
        async def converse() -> tuple[tuple[Message, ...], Transcript]:
            talk = Talk("").open()
            call = ToolCall(id="c1", name="read", arguments={})
            talk.window.add(user_message("Read."))
            await talk.window.request()
            talk.window.add_reply(reply(part, "I read.", calls=[call]))
            talk.window.set_model(talk.make_model("model-b"), budget=talk.window.budget)
            talk.window.add(result_message("c1", "text"))
            request = await talk.window.request()
            return request.messages, talk.window.transcript

        messages, transcript = asyncio.run(converse())
        assert reasons(messages) == [False]
        assert messages[2].text == "I read."
        assert [call.id for call in messages[2].tool_calls] == ["c1"]
        stored = [entry.message for entry in transcript.path() if entry.message]
        assert remove_reasoning(stored[1]) is not stored[1]

    def test_the_first_model_has_its_own_again_and_not_the_other_s(self, part: OpaquePart) -> None:
        async def converse() -> tuple[Message, ...]:
            talk = Talk("").open()
            first = talk.model
            call = [ToolCall(id=f"c{at}", name="read", arguments={}) for at in range(2)]
            talk.window.add(user_message("Read."))
            await talk.window.request()
            talk.window.add_reply(reply(part, calls=call[:1]))
            talk.window.set_model(talk.make_model("model-b"), budget=talk.window.budget)
            talk.window.add(result_message("c0", "text"))
            await talk.window.request()
            talk.window.add_reply(reply(part, calls=call[1:]))
            talk.window.set_model(first, budget=talk.window.budget)
            talk.window.add(result_message("c1", "text"))
            return (await talk.window.request()).messages

        assert reasons(asyncio.run(converse())) == [True, False]

    def test_a_program_that_opens_the_conversation_with_another_model_sends_none(
        self, part: OpaquePart
    ) -> None:
        async def converse() -> tuple[Message, ...]:
            store = InMemoryStore()
            await answer(Talk("").open(transcript=Transcript(store)), "One.", part, "Yes.")
            talk = Talk("")
            talk.open(transcript=Transcript(store), model=talk.make_model("model-b"))
            return await answer(talk, "Two.", "Yes.")

        assert reasons(asyncio.run(converse())) == [False]

    def test_a_reply_of_reasoning_alone_is_not_shown_to_another_model(
        self, part: OpaquePart
    ) -> None:
        async def converse() -> tuple[Message, ...]:
            talk = Talk("").open()
            await answer(talk, "One.", part)
            talk.window.set_model(talk.make_model("model-b"), budget=talk.window.budget)
            return await answer(talk, "Two.", "Yes.")

        assert reasons(asyncio.run(converse())) == []


def test_replies_of_an_unknown_model_belong_to_the_one_before_a_switch() -> None:
    talk = ConversationBuilder()
    talk.log.append(
        MessageEntry(message=user_message("One.")),
        MessageEntry(message=reply(THINKING, "Yes.")),
    )
    assert [item.model for item in build_view(talk.log.path()).items] == [None, None]
    talk.log.append(
        Setting(name=MODEL_SETTING, value="model-b"), MessageEntry(message=reply("And yes."))
    )
    assert [item.model for item in build_view(talk.log.path()).items] == [None, "", "model-b"]


def test_items_of_a_reply_do_not_name_reasoning_that_is_gone() -> None:
    items: list[dict[str, object]] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "eHl6"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": "{}"},
    ]
    (message,) = messages_from_responses(items)
    assert to_responses([message]) == items
    sent = to_responses([remove_reasoning(message)])
    assert [each["type"] for each in sent] == ["message", "function_call"]
    assert not any("id" in each for each in sent if each["type"] == "function_call")
    assert "msg_1" not in str(sent)
    assert remove_reasoning(remove_reasoning(message)) == remove_reasoning(message)


def test_sealed_fields_of_chat_completions_leave_and_others_stay() -> None:
    part = OpaquePart(
        value={"reasoning_details": [{"data": "x"}], "refusal": None, "audio": {"id": "a"}},
        provider="chat.message",
    )
    (kept,) = remove_reasoning(reply(part)).content
    assert isinstance(kept, OpaquePart)
    assert kept.value == {"refusal": None, "audio": {"id": "a"}}


class TestOld:
    def test_it_stays_while_the_cache_holds_it_and_leaves_when_the_cache_is_cold(self) -> None:
        async def converse() -> Talk:
            talk = Talk("").open()
            await answer(talk, "One.", THINKING, "Yes.")
            await answer(talk, "Two.", THINKING, "Yes.")
            assert reasons(await answer(talk, "Three.", THINKING, "Yes.")) == [True, True]
            assert not talk.misses
            talk.now += TTL + 1
            assert reasons(await answer(talk, "Four.", THINKING, "Yes.")) == [False] * 3
            assert reasons(await answer(talk, "Five.", "Yes.")) == [False, False, False, True]
            return talk

        talk = asyncio.run(converse())
        assert [told.reason for told in talk.told] == ["expired"]

    def test_that_of_the_newest_turn_stays_between_its_tool_calls(self) -> None:
        async def converse() -> tuple[Message, ...]:
            talk = Talk("").open()
            talk.window.add(user_message("Read."))
            await talk.window.request()
            talk.window.add_reply(
                reply(THINKING, calls=[ToolCall(id="c1", name="read", arguments={})])
            )
            talk.now += TTL + 1
            talk.window.add(result_message("c1", "text"))
            return (await talk.window.request()).messages

        assert reasons(asyncio.run(converse())) == [True]

    def test_a_checkpoint_takes_it_out_of_the_messages_that_stay(self) -> None:
        async def converse() -> Talk:
            talk = Talk("").open(summarizer=ExtractiveSummarizer(), keep=KeepLastTurns(count=2))
            for number in range(3):
                await talk.read(number)
                await answer(talk, f"And {number}.", THINKING, "Yes.")
            assert await talk.window.compact()
            await answer(talk, "On.", "Yes.")
            return talk

        talk = asyncio.run(converse())
        request = talk.window.last_request
        assert request is not None
        assert not any(reasons(request.messages[:-2]))
        payloads = [entry.payload for entry in talk.window.transcript.path()]
        (checkpoint,) = (each for each in payloads if isinstance(each, Checkpoint))
        assert checkpoint.tokens_after is not None
        stored = [entry.message for entry in talk.window.transcript.path() if entry.message]
        assert sum(remove_reasoning(each) is not each for each in stored) == 3
