"""Tools that change do not break the prompt cache: they are announced at the end, and offered where the prefix is read anew in any case."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import attrs
import pytest

from benchmarks.wishes_cache import RULES, TTL, Talk, prefix_breaks
from promptkit import AgentSession, Message, SyncSession, Tool, ToolCall, ToolDefinition, Transcript
from promptkit.compaction import Events, ExtractiveSummarizer, ToolsChanged
from promptkit.compaction.planning.selection import KeepLastTurns
from promptkit.errors import ToolsFillBudgetError
from promptkit.testing import ScriptedModel, assert_cache_stable
from promptkit.tokens import ContextBudget
from promptkit.transcript import CustomMessage, InMemoryStore, JsonlStore, MessageEntry
from tests.conversations import user_message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from promptkit.agent import WindowRequest


def tool(name: str) -> Tool:
    """A tool that returns its name."""
    definition = ToolDefinition(
        name=name,
        description=f"Do {name}.",
        parameters={"type": "object", "properties": {"what": {"type": "string"}}},
    )
    return Tool(definition=definition, run=lambda _: f"{name} ran")


READ, GREP, SEARCH_WEB = tool("read"), tool("grep"), tool("search_web")


def names(request: WindowRequest | None) -> list[str]:
    """The tools that a request offers."""
    assert request is not None
    return [each.name for each in request.tools]


def offered(talk: Talk) -> list[str]:
    return names(talk.window.last_request)


def announcements(transcript: Transcript) -> list[str]:
    """The messages that told the model of tools."""
    payloads = [entry.payload for entry in transcript.path()]
    return [each.message.text for each in payloads if isinstance(each, CustomMessage)]


def open_talk(*tools: Tool, **settings: object) -> Talk:
    return Talk("").open(tools=tools, **settings)


class TestFrozen:
    def test_tools_are_offered_in_the_given_order(self) -> None:
        talk = open_talk(SEARCH_WEB, GREP, READ)
        asyncio.run(talk.turn())
        assert offered(talk) == ["search_web", "grep", "read"]

    def test_what_is_given_before_the_first_request_is_offered_by_it(self) -> None:
        talk = open_talk(READ)
        talk.window.set_tools([GREP, READ])
        asyncio.run(talk.turn())
        assert offered(talk) == ["grep", "read"]
        assert not announcements(talk.window.transcript)

    def test_later_tools_are_announced_at_the_end_with_all_that_a_call_needs(self) -> None:
        async def converse() -> Talk:
            talk = open_talk(READ)
            await talk.turn()
            talk.window.set_tools([READ, SEARCH_WEB])
            await talk.turn()
            await talk.turn()
            return talk

        talk = asyncio.run(converse())
        assert offered(talk) == ["read"]
        (text,) = announcements(talk.window.transcript)
        assert "search_web: Do search_web." in text
        assert json.dumps(dict(SEARCH_WEB.definition.parameters or {})) in text
        assert talk.window.last_request is not None
        assert text in talk.window.last_request.messages[4].text  # it stays where it was put
        assert not talk.misses
        assert_cache_stable(talk.window)

    def test_tools_that_leave_stay_in_the_list_and_the_model_is_told(self) -> None:
        async def converse() -> Talk:
            talk = open_talk(READ, GREP)
            await talk.turn()
            talk.window.set_tools([READ])
            await talk.turn()
            return talk

        talk = asyncio.run(converse())
        assert offered(talk) == ["read", "grep"]
        assert "there is no tool grep" in announcements(talk.window.transcript)[0]
        assert_cache_stable(talk.window)

    def test_a_tool_that_comes_back_is_announced_again(self) -> None:
        async def converse() -> Talk:
            talk = open_talk(READ, GREP)
            await talk.turn()
            talk.window.set_tools([READ])
            await talk.turn()
            talk.window.set_tools([READ, GREP])
            await talk.turn()
            return talk

        talk = asyncio.run(converse())
        left, back = announcements(talk.window.transcript)
        assert "no tool grep" in left
        assert "grep: Do grep." in back
        assert not talk.misses


class TestJoining:
    @staticmethod
    async def converse(*texts: str, pause: float = 0.0, **settings: object) -> Talk:
        talk = open_talk(READ, **settings)
        await talk.turn()
        talk.window.set_tools([READ, GREP, SEARCH_WEB])
        await talk.turn()
        talk.now += pause
        for text in texts or ("Go on.",):
            await talk.turn(user_message(text))
        return talk

    def test_a_cold_cache_is_the_time_for_new_tools(self) -> None:
        talk = asyncio.run(self.converse(pause=TTL + 1))
        assert offered(talk) == ["read", "grep", "search_web"]
        assert offered(asyncio.run(self.converse(pause=TTL - 30))) == ["read"]

    def test_a_tool_that_the_user_asks_for_is_offered_at_once(self) -> None:
        assert offered(asyncio.run(self.converse("Look with search_web."))) == [
            "read",
            "grep",
            "search_web",
        ]
        assert len(offered(asyncio.run(self.converse("Use `grep`.")))) == 3

    def test_a_word_that_is_also_the_name_of_a_tool_asks_for_nothing(self) -> None:
        assert offered(asyncio.run(self.converse("I grep the file; my_search_web_x."))) == ["read"]

    def test_a_checkpoint_is_the_time_for_new_tools(self) -> None:
        async def converse() -> Talk:
            talk = await self.converse(summarizer=ExtractiveSummarizer())
            for number in range(3):
                await talk.read(number)
            assert offered(talk) == ["read"]
            assert await talk.window.compact()
            await talk.turn()
            return talk

        talk = asyncio.run(converse())
        assert offered(talk) == ["read", "grep", "search_web"]
        assert [told.change for told in talk.told] == ["compaction; added grep, search_web"]

    def test_a_request_without_tools_is_followed_by_one_with_those_that_were_given(self) -> None:
        async def converse() -> Talk:
            talk = open_talk()
            await talk.turn()
            talk.window.set_tools([READ])
            await talk.turn()
            return talk

        talk = asyncio.run(converse())
        assert offered(talk) == ["read"]
        assert not announcements(talk.window.transcript)

    def test_a_start_without_tools_offers_those_of_the_calls_that_are_still_shown(self) -> None:
        async def converse() -> list[str]:
            store = InMemoryStore()
            first = open_talk(
                READ,
                transcript=Transcript(store),
                summarizer=ExtractiveSummarizer(),
                keep=KeepLastTurns(count=2),
            )
            for number in range(6):
                await first.read(number)
            assert await first.window.compact()
            again = open_talk(transcript=Transcript(store))
            assert any(each.tool_calls for each in again.window.view.messages)
            await again.turn()
            return offered(again)

        assert asyncio.run(converse()) == ["read"]

    def test_another_model_has_another_cache(self) -> None:
        async def converse() -> Talk:
            talk = await self.converse()
            talk.window.set_model(talk.make_model("model-b"), budget=talk.window.budget)
            await talk.turn()
            return talk

        assert offered(asyncio.run(converse())) == ["read", "grep", "search_web"]

    def test_without_freezing_the_next_request_offers_them(self) -> None:
        talk = asyncio.run(self.converse(freeze_tools=False))
        assert offered(talk) == ["read", "grep", "search_web"]
        assert not announcements(talk.window.transcript)
        assert [told.describe() for told in talk.told] == ["tools differ: added grep, search_web"]

    def test_events_say_what_changed_and_why(self) -> None:
        told: list[ToolsChanged] = []
        events = Events(lambda each: told.append(each) if isinstance(each, ToolsChanged) else None)
        asyncio.run(self.converse("Look with search_web.", events=events))
        assert [(each.change, each.offered) for each in told] == [
            ("added grep, search_web", False),
            ("added grep, search_web", True),
        ]
        assert told[1].why == "search_web was asked for"

    def test_the_last_tool_stays_in_the_list_while_messages_have_its_calls(self) -> None:
        async def converse() -> Talk:
            talk = open_talk(READ, freeze_tools=False)
            await talk.read(1)
            talk.window.set_tools([])
            await talk.turn()
            return talk

        assert offered(asyncio.run(converse())) == ["read"]


class TestTranscript:
    def test_the_list_is_written_with_the_first_reply_and_where_it_changes(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "talk.jsonl"

        async def converse() -> None:
            talk = open_talk(
                GREP, READ, transcript=Transcript(JsonlStore(file)), freeze_tools=False
            )
            await talk.turn()
            await talk.turn()
            talk.window.set_tools([READ])
            await talk.turn()
            await talk.window.close()

        asyncio.run(converse())
        replies = [
            entry.payload
            for entry in Transcript(JsonlStore(file)).path()
            if isinstance(entry.payload, MessageEntry) and entry.message
        ]
        assert [
            each.tools and [tool.name for tool in each.tools]
            for each in replies
            if each.message.role == "assistant"
        ] == [["grep", "read"], None, ["read"]]

    def test_a_program_that_starts_again_with_other_tools_keeps_the_prefix(self) -> None:
        async def converse(*tools: Tool) -> tuple[Sequence[str], list[str]]:
            store = InMemoryStore()
            first = open_talk(READ, GREP, transcript=Transcript(store))
            await first.turn()
            again = open_talk(*tools, transcript=Transcript(store))
            await again.turn()
            return offered(again), announcements(again.window.transcript)

        assert asyncio.run(converse(READ, GREP)) == (["read", "grep"], [])
        kept, told = asyncio.run(converse(GREP, SEARCH_WEB))
        assert kept == ["read", "grep"]
        assert len(told) == 1

    def test_what_was_announced_is_not_announced_again_after_a_start_or_in_a_fork(
        self, tmp_path: Path
    ) -> None:
        async def converse() -> tuple[list[str], list[str]]:
            file = tmp_path / "talk.jsonl"
            for tools in ([READ], [READ, GREP], [READ, GREP], [GREP], [GREP]):
                talk = open_talk(*tools, transcript=Transcript(JsonlStore(file)))
                await talk.turn()
                await talk.window.close()
            fork = talk.window.fork(InMemoryStore())
            fork.add(user_message("On."))
            await fork.request()
            return announcements(talk.window.transcript), announcements(fork.transcript)

        own, copied = asyncio.run(converse())
        assert len(own) == 2
        assert "there is no tool read:" in own[1]
        assert copied == own

    def test_results_of_a_tool_that_left_keep_its_limit(self) -> None:
        short = attrs.evolve(READ, max_tokens=100, definition=ToolDefinition(name="read_file"))

        async def converse() -> Talk:
            talk = open_talk(short, freeze_tools=False)
            await talk.read(1)
            talk.window.set_tools([GREP])
            await talk.turn()
            return talk

        talk = asyncio.run(converse())
        assert talk.window.last_request is not None
        result = talk.window.last_request.messages[3]
        assert result.role == "tool"
        assert len(result.text.split()) < 120
        assert [told.block for told in talk.told] == ["tools"]


class TestSessions:
    def test_a_tool_that_is_not_offered_yet_can_be_called_and_one_that_left_is_an_error(
        self,
    ) -> None:
        async def converse() -> AgentSession:
            model = ScriptedModel(
                [
                    "Hello.",
                    [ToolCall(id="c1", name="grep"), ToolCall(id="c2", name="read")],
                    "Done.",
                ]
            )
            session = AgentSession(model=model, tools=[READ], instructions=RULES)
            await session.run("Hello.")
            session.set_tools([GREP])
            await session.run("Look.")
            assert all(names == ["read"] for names in map(_names, model.requests))
            return session

        session = asyncio.run(converse())
        results = [each.text for each in session.window.view.messages if each.role == "tool"]
        assert results[0] == "grep ran"
        assert "there is no tool 'read'" in results[1]
        assert_cache_stable(session)

    def test_a_session_keeps_its_own_tools_and_so_does_a_fork(self) -> None:
        async def converse() -> None:
            session = AgentSession(
                model=ScriptedModel(["a", "b"]), tools=[READ], recall=True, compact_tool=True
            )
            session.set_tools([GREP])
            await session.run("Hello.")
            assert names(session.window.last_request) == ["grep", "recall", "compact"]
            fork = session.fork(InMemoryStore())
            await fork.run("On.")
            assert names(fork.window.last_request) == ["grep", "recall", "compact"]
            assert list(fork.tools) == ["grep", "recall", "compact"]

        asyncio.run(converse())

    def test_a_synchronous_session_has_it_too(self) -> None:
        with SyncSession(AgentSession(model=ScriptedModel(["a"]))) as session:
            session.set_tools([GREP])
            session.run("Hello.")
            assert session.call(lambda each: names(each.window.last_request)) == ["grep"]

    def test_tools_that_leave_no_room_are_refused_and_nothing_changes(self) -> None:
        session = AgentSession(
            model=ScriptedModel([]), tools=[READ], budget=ContextBudget(window=2_000)
        )
        large = attrs.evolve(GREP, definition=ToolDefinition(name="grep", description="w " * 9_000))
        with pytest.raises(ToolsFillBudgetError):
            session.set_tools([large])
        assert list(session.tools) == ["read"]


def _names(request: object) -> list[str]:
    tools: Sequence[ToolDefinition] = getattr(request, "tools", ())
    return [each.name for each in tools]


@pytest.mark.long
def test_tools_that_change_between_turns_break_no_prefix_unless_they_are_offered_at_once() -> None:
    assert asyncio.run(prefix_breaks()) == 0
    assert asyncio.run(prefix_breaks(freeze_tools=False)) > 20


def test_a_result_that_comes_late_stays_beside_its_call() -> None:
    async def converse() -> Talk:
        talk = open_talk(READ)
        await talk.turn()
        call = ToolCall(id="c1", name="read", arguments={})
        talk.window.add(user_message("Read."), Message(role="assistant", tool_calls=(call,)))
        talk.window.set_tools([READ, GREP])
        await talk.turn(Message(role="tool", tool_call_id="c1", content="text"))
        return talk

    talk = asyncio.run(converse())
    assert talk.window.last_request is not None
    roles = [each.role for each in talk.window.last_request.messages]
    assert roles[-3:] == ["assistant", "tool", "user"]
