"""The context window that a program with its own loop uses."""

from __future__ import annotations

import asyncio
import copy
import itertools
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import pytest

from promptkit import (
    ContextWindow,
    Message,
    PromptElement,
    SyncContextWindow,
    ToolCall,
    ToolDefinition,
    Transcript,
    Usage,
    UserMessage,
    component,
)
from promptkit.agent.window.prompt import Conversation
from promptkit.compaction import PRESETS, DecisionMade, Events, ExtractiveSummarizer, first_match
from promptkit.compaction.presets.coding_agents import vscode
from promptkit.errors import (
    ContextLengthExceededError,
    ContextWindowFullError,
    InvalidArgumentError,
)
from promptkit.fitting import describe_omitted
from promptkit.providers import Reply
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens import CalibratedTokenizer, ContextBudget
from promptkit.transcript import Checkpoint, InMemoryStore, MessageEntry
from promptkit.transcript.log.view import TranscriptView, ViewBuilder, build_view
from tests.conversations import summary_reply, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit import Child, Sizing
    from promptkit.agent import WindowRequest
    from promptkit.agent.window.prompt import ConversationView, Prompt
    from promptkit.compaction import Event
    from promptkit.transcript import Entry

WORDS = WordTokenizer()
BUDGET = ContextBudget(window=1_000, reserved_output_tokens=0)


def window(**options: Any) -> ContextWindow:  # Any: of many types
    # Any: as above, it may be anything.
    given: dict[str, Any] = {
        "model": "some-model",
        "budget": BUDGET,
        "tokenizer": WORDS,
        "rng": lambda: 0.5,
        **options,
    }
    return ContextWindow(**given)


def user(text: str) -> Message:
    return Message(role="user", content=(text,))


def assistant(text: str = "", *calls: str) -> Message:
    return Message(
        role="assistant",
        content=(text,) if text else (),
        tool_calls=tuple(ToolCall(id=call, name="read", arguments="{}") for call in calls),
    )


def result(call: str, text: str) -> Message:
    return Message(role="tool", content=(text,), tool_call_id=call)


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def recorded(each: ContextWindow) -> list[str]:
    return [entry.message.text for entry in each.transcript.path() if entry.message]


async def turn(each: ContextWindow, question: str, answer: str) -> WindowRequest:
    each.add(user(question))
    request = await each.request()
    each.add_reply(assistant(answer))
    await each.wait_idle()
    await each.end_turn()
    return request


class TestRequests:
    def test_a_request_has_the_instructions_the_messages_and_their_tokens(self) -> None:
        each = window(instructions="Be brief.", tools=[ToolDefinition(name="read")])
        each.add(user("one two"))
        request = asyncio.run(each.request())
        assert texts(request.messages) == ["Be brief.", "one two"]
        assert request.tokens == request.rendered.tokens
        assert [tool.name for tool in request.tools] == ["read"]
        assert request.omitted == ()
        assert each.last_request is request

    def test_the_arguments_are_those_of_the_providers_calls(self) -> None:
        each = window(
            instructions="Be brief.",
            tools=[ToolDefinition(name="read")],
            budget="4k",
            model="gpt-5",
        )
        each.add(user("Hello."))
        request = asyncio.run(each.request())
        assert request.chat_arguments()["messages"] == request.to_chat()
        assert request.chat_arguments()["model"] == "gpt-5"
        assert request.chat_arguments()["tools"][0]["function"]["name"] == "read"
        assert request.responses_arguments()["input"] == request.to_responses()
        arguments = request.anthropic_arguments(max_tokens=100)
        assert arguments["max_tokens"] == 100
        assert arguments["system"] == request.to_anthropic().get("system")
        assert arguments["tools"][0]["name"] == "read"

    def test_what_a_caller_changes_in_the_arguments_is_in_no_other_ones(self) -> None:
        each = window(tools=[ToolDefinition(name="read", parameters={"type": "object"})])
        each.add(user("Hello."), assistant("I read it.", "c1"), result("c1", "done"))
        request = asyncio.run(each.request())
        before = copy.deepcopy(request.chat_arguments())

        def spoil(value: Any) -> None:  # Any: JSON of any shape
            if isinstance(value, dict | list):
                for child in [*(value.values() if isinstance(value, dict) else value)]:  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # as above
                    spoil(child)
                value.clear()

        spoil(request.chat_arguments())
        assert request.chat_arguments() == before
        each.add_reply(assistant("ok"))
        each.add(user("Again."))
        assert asyncio.run(each.request()).chat_arguments()["messages"][:3] == before["messages"]

    def test_anthropic_without_a_known_output_limit_is_refused_with_what_to_write(self) -> None:
        each = window(budget=ContextBudget(max_tokens=1_000))
        each.add(user("Hello."))
        request = asyncio.run(each.request())
        with pytest.raises(InvalidArgumentError, match=r"anthropic_arguments\(max_tokens=4096\)"):
            request.anthropic_arguments()

    def test_origins_come_back_with_the_messages_that_are_unchanged(self) -> None:
        each = window(instructions="Be brief.")
        first, second = object(), object()
        each.add(user("same"), user("same"), origins=[first, second])
        request = asyncio.run(each.request())
        assert request.origins == (None, first, second)

    def test_a_pruned_request_has_the_origins_of_tool_calls_without_text(self) -> None:
        each = window(preset="truncate_only")
        messages = [user("Fix it.")]
        for number in range(20):
            messages += [assistant("", f"c{number}"), result(f"c{number}", words(100))]
        each.add(*messages, origins=messages)
        request = asyncio.run(each.request())
        assert request.pruned
        assert len(request.messages) < len(messages)
        (marker,) = [
            message
            for message in request.messages
            if message.text == describe_omitted(len(request.omitted))
        ]
        assert request.origins == tuple(
            None if message is marker else message for message in request.messages
        )

    def test_a_wrong_number_of_origins_is_refused_before_anything_is_written(self) -> None:
        each = window()
        with pytest.raises(InvalidArgumentError, match="1 messages have 2 origins"):
            each.add(user("a"), origins=[1, 2])
        assert len(each.transcript) == 0

    def test_what_does_not_fit_raises_and_the_window_can_be_used_again(self) -> None:
        each = window()
        entry = each.add(user(words(2_000)))[0]
        with pytest.raises(ContextWindowFullError):
            asyncio.run(each.request())
        each.rewind(None)
        each.add(user("short"))
        assert texts(asyncio.run(each.request()).messages) == ["short"]
        assert entry.id in each.transcript

    def test_messages_that_a_pruned_request_leaves_out_are_omitted(self) -> None:
        each = window(enabled=False)

        async def work() -> WindowRequest:
            for number in range(8):
                await turn(each, f"question {number}", words(200, f"answer{number}"))
            each.add(user("last"))
            return await each.request()

        request = asyncio.run(work())
        assert request.pruned
        shown = texts(request.messages)
        assert [text for text in recorded(each) if text not in shown] == texts(request.omitted)
        assert "last" in shown


class TestCompaction:
    def test_a_summary_is_made_in_the_background_and_applied_to_a_later_request(self) -> None:
        each = window(summarizer=ExtractiveSummarizer(tokenizer=WORDS))

        async def work() -> WindowRequest:
            for number in range(12):
                each.add(user(f"question {number}"))
                await each.request()
                each.add_reply(assistant("", f"c{number}"))
                each.add(result(f"c{number}", words(90, "text")))
                await each.request()
                each.add_reply(assistant("done"))
                await each.wait_idle()
                await each.end_turn()
            each.add(user("last"))
            return await each.request()

        request = asyncio.run(work())
        assert any(isinstance(entry.payload, Checkpoint) for entry in each.transcript.path())
        assert request.messages[0].text.startswith("<conversation-summary>")
        assert request.tokens <= 1_000

    def test_a_name_alone_needs_no_model_for_a_summary(self) -> None:
        each = window()

        async def work() -> None:
            for number in range(6):
                await turn(each, f"question {number}", words(60, "answer"))
            assert await each.compact("keep the numbers") is not None
            assert each.undo_compaction() is not None

        asyncio.run(work())

    def test_a_model_object_as_summarizer_writes_the_summaries(self) -> None:
        writer = ScriptedModel([summary_reply("The numbers are kept.")])
        each = window(summarizer=writer)

        async def work() -> None:
            for number in range(4):
                await turn(each, f"question {number}", words(60, "answer"))
            await each.compact()

        asyncio.run(work())
        assert len(writer.requests) == 1
        assert "The numbers are kept." in each.view.messages[0].text

    @pytest.mark.parametrize("name", sorted(PRESETS))
    def test_a_preset_is_accepted_by_its_name(self, name: str) -> None:
        each = window(preset=name)
        each.add(user("hi"))
        assert texts(asyncio.run(each.request()).messages)[-1] == "hi"

    def test_an_unknown_preset_is_refused_with_the_known_names(self) -> None:
        with pytest.raises(InvalidArgumentError, match=r"vscode, .*not 'no such'"):
            window(preset="no such")

    @pytest.mark.parametrize(
        ("argument", "value"),
        [
            ("transcript", "talk.jsonl"),
            ("prompt", "Be brief."),
            ("hooks", []),
            ("events", print),
            ("policy", 1),
            ("policy", type(first_match(()))),
            ("summarizer", ExtractiveSummarizer),
            ("keep", 3),
            ("tokenizer", "o200k_base"),
            ("promotions", ["gpt-4.1"]),
            ("archives", "archives"),
            ("read_tool", print),
            ("model", 3),
            ("tools", 1),
            ("tools", ToolDefinition(name="read")),
        ],
    )
    def test_an_argument_of_a_wrong_type_is_refused_at_once_with_its_name(
        self, argument: str, value: object
    ) -> None:
        with pytest.raises(TypeError, match=f"^{argument} must be "):
            window(**{argument: value})


class TestReplies:
    def test_a_reply_is_recorded_with_what_it_cost(self) -> None:
        each = window()
        each.add(user("hi"))
        asyncio.run(each.request())
        usage = Usage(input_tokens=11, output_tokens=2)
        entry = each.add_reply(Reply(message=assistant("hello"), usage=usage, finish="stop"))
        assert isinstance(entry.payload, MessageEntry)
        assert (entry.payload.usage, entry.payload.model, entry.payload.finish) == (
            usage,
            "some-model",
            "stop",
        )

    def test_a_user_message_is_no_reply(self) -> None:
        with pytest.raises(TypeError, match=r"use add\(\)"):
            window().add_reply(user("hi"))


def bounded(*more: PromptElement) -> Prompt:
    """Make a prompt of the conversation and more elements that fails instead of being rendered for ever."""
    renders = itertools.count(1)

    def prompt(view: ConversationView) -> Child:
        assert next(renders) < 10, "the request is rendered for ever"
        return Conversation(view=view), *more

    return prompt


class TestVersions:
    """A request ends by what the transcript, the budget and the model are, not by which objects views are."""

    @pytest.fixture(autouse=True)
    def _build_each_view_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def build(_: ViewBuilder, path: Sequence[Entry]) -> TranscriptView:
            return build_view(path)

        monkeypatch.setattr(ViewBuilder, "build", build)

    def test_a_request_ends_although_equal_views_are_different_objects(self) -> None:
        each = window(prompt=bounded())
        each.add(user("one two"))
        assert each.view is not each.view
        assert texts(asyncio.run(each.request()).messages) == ["one two"]

    def test_a_second_refusal_of_a_request_is_still_known_as_one(self) -> None:
        each = window(prompt=bounded())

        async def work() -> None:
            await turn(each, "question", words(100))
            each.add(user("last"))
            await each.request()
            assert await each.recover(ContextLengthExceededError("too large"))
            await each.request()
            assert not await each.recover(ContextLengthExceededError("too large"))

        asyncio.run(work())

    def test_a_request_shows_what_was_appended_while_a_component_awaited(self) -> None:
        @component
        class Slow(PromptElement):
            async def render(self, sizing: Sizing) -> Child:
                _ = sizing
                each.add(user("meanwhile"))
                return UserMessage()["looked up"]

        each = window(prompt=bounded(Slow()))
        each.add(user("question"))
        assert texts(asyncio.run(each.request()).messages) == ["question", "meanwhile", "looked up"]

    def test_a_request_is_for_the_model_that_was_set_while_a_component_awaited(self) -> None:
        @component
        class Slow(PromptElement):
            async def render(self, sizing: Sizing) -> Child:
                if sizing.model == "some-model":
                    each.set_model("other-model", budget=BUDGET)
                return UserMessage()["looked up"]

        each = window(prompt=bounded(Slow()))
        each.add(user("question"))
        assert asyncio.run(each.request()).model == "other-model"

    def test_a_request_keeps_to_the_window_that_was_learned_while_a_component_awaited(self) -> None:
        sent: list[WindowRequest] = []

        @component
        class Slow(PromptElement):
            async def render(self, sizing: Sizing) -> Child:
                if sent and sizing.token_budget > 600:
                    error = ContextLengthExceededError("too large")
                    error.window = 500
                    assert await each.recover(error, sent[1])
                return UserMessage()["looked up"]

        each = window(prompt=bounded(Slow()))

        async def work() -> None:
            sent.extend([await turn(each, "question", words(300)) for _ in range(3)])
            each.add(user("question"))
            tokens = (await each.request()).tokens
            assert tokens <= (each.budget.render_budget or 0) < 600

        asyncio.run(work())


class TestRecovery:
    def test_a_refusal_teaches_the_window_and_makes_room_once(self) -> None:
        each = window(budget=ContextBudget(window=10_000, reserved_output_tokens=0))

        async def work() -> None:
            for number in range(10):
                await turn(each, f"question {number}", words(100, f"answer{number}"))
            each.add(user("last"))
            first = await each.request()
            error = ContextLengthExceededError("too large")
            error.window = 500
            assert await each.recover(error)
            assert each.budget.window == 500
            second = await each.request()
            assert second.tokens < 500 < first.tokens
            assert not await each.recover(error), "the same request is not retried for ever"
            assert not await each.recover(error)
            each.add_reply(assistant("done"))

        asyncio.run(work())

    def test_a_second_call_for_one_refusal_says_no(self) -> None:
        each = window()

        async def work() -> None:
            await turn(each, "question", words(100))
            each.add(user("last"))
            await each.request()
            assert await each.recover(ContextLengthExceededError("too large"))
            assert not await each.recover(ContextLengthExceededError("too large"))

        asyncio.run(work())

    def test_the_state_of_a_refused_request_ends_when_the_model_or_the_conversation_changes(
        self,
    ) -> None:
        each = window(preset="truncate_only")

        async def work() -> None:
            for number in range(4):
                await turn(each, f"question {number}", words(100))
            each.add(user("last"))
            await each.request()
            assert await each.recover(ContextLengthExceededError("too large"))
            each.set_model("larger", budget="100k")
            each.add(user("more"))
            request = await each.request()
            assert not request.pruned
            assert request.omitted == ()

        asyncio.run(work())

    def test_an_sdks_own_exception_is_understood(self) -> None:
        class BadRequestError(Exception):
            status_code = 400
            body: object = {
                "error": {
                    "code": "context_length_exceeded",
                    "message": "maximum context length is 600 tokens",
                }
            }

        each = window(budget=ContextBudget(window=10_000, reserved_output_tokens=0))

        async def work() -> None:
            for number in range(10):
                await turn(each, f"question {number}", words(100, f"answer{number}"))
            each.add(user("last"))
            await each.request()
            assert await each.recover(BadRequestError("Error code: 400"))
            assert (await each.request()).tokens < 1_000

        asyncio.run(work())

    @pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), TimeoutError()])
    def test_other_errors_are_the_callers(self, error: BaseException) -> None:
        each = window()
        each.add(user("hi"))

        async def work() -> None:
            await each.request()
            assert not await each.recover(error)
            assert each.budget == BUDGET

        asyncio.run(work())


class TestUnknownModels:
    def test_a_window_without_a_budget_warns_once_and_says_what_to_write(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        window(model="llama-of-mine", budget=None)
        each = window(model="llama-of-mine", budget=None)
        each.set_model("mistral-of-mine")
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
        first, second = caplog.messages
        assert "the context window of 'llama-of-mine' is not known" in first
        assert "write budget=ContextBudget(window=…), or register_model('llama-of-mine'" in first
        assert "mistral-of-mine" in second

    def test_a_budget_a_known_model_and_a_scripted_one_need_no_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        window(model="gemma-of-mine", budget="8k")
        window(model="gpt-5", budget=None)
        window(model=ScriptedModel([]), budget=None)
        assert not caplog.records


class TestSync:
    def test_only_new_messages_are_appended(self) -> None:
        each = window()
        assert len(each.sync([user("one"), assistant("1")])) == 2
        assert texts(
            [
                entry.message
                for entry in each.sync([user("one"), assistant("1"), user("two")])
                if entry.message
            ]
        ) == ["two"]
        assert each.sync([user("one"), assistant("1"), user("two")]) == []
        assert recorded(each) == ["one", "1", "two"]

    def test_an_edit_makes_a_branch_and_keeps_what_was_there(self) -> None:
        each = window()
        each.sync([user("one"), assistant("1"), user("two"), assistant("2")])
        each.sync([user("one"), assistant("1"), user("other")])
        assert texts(each.view.messages) == ["one", "1", "other"]
        assert sorted(entry.message.text for entry in each.transcript.entries if entry.message) == [
            "1",
            "2",
            "one",
            "other",
            "two",
        ]

    def test_a_shorter_list_is_a_rewind(self) -> None:
        each = window()
        each.sync([user("one"), assistant("1"), user("two")])
        each.sync([user("one")])
        assert texts(each.view.messages) == ["one"]
        each.sync([])
        assert texts(each.view.messages) == []

    @pytest.mark.parametrize("undone", [0, 1, 2])
    def test_what_was_undone_and_is_there_again_is_not_appended_again(self, undone: int) -> None:
        each = window()
        messages = [user("one"), assistant("1"), user("two")]
        each.sync(messages)
        each.sync(messages[:undone])
        assert each.sync(messages) == []
        assert recorded(each) == ["one", "1", "two"]
        assert len(each.sync([*messages, assistant("2")])) == 1

    def test_a_list_that_was_recorded_before_switches_back_to_its_branch(self) -> None:
        each = window()
        first = [user("one"), assistant("1"), user("two"), assistant("2")]
        each.sync(first)
        each.sync([user("one"), assistant("1"), user("other")])
        assert len(each.sync([*first, user("three")])) == 1
        assert texts(each.view.messages) == ["one", "1", "two", "2", "three"]
        assert len([entry for entry in each.transcript.entries if entry.message]) == 6

    def test_an_assistant_message_after_a_request_is_its_reply(self) -> None:
        each = window(summarizer=ExtractiveSummarizer(tokenizer=WORDS))

        async def work() -> None:
            talk: list[Message] = []
            for number in range(14):
                talk += [user(f"question {number}")]
                each.sync(talk)
                request = await each.request()
                assert request.tokens <= 1_000
                talk += [assistant("", f"c{number}"), result(f"c{number}", words(90, "text"))]
                each.sync(talk)
                await each.request()
                talk += [assistant("done")]
                each.sync(talk)
                await each.wait_idle()
                await each.end_turn()
            assert texts(talk) == recorded(each), (
                "the framework's list is the whole conversation, whatever requests show"
            )
            assert any(isinstance(entry.payload, Checkpoint) for entry in each.transcript.path())

        asyncio.run(work())

    def test_new_messages_are_written_as_one_batch(self) -> None:
        batches: list[int] = []

        class Watched(InMemoryStore):
            def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
                batches.append(len(entries))
                super().append(entries, expect=expect)

        store = Watched()
        each = window(transcript=Transcript(store))
        talk = [user("one"), assistant("1"), user("two")]
        each.sync(talk)
        assert batches == [3]
        asyncio.run(each.request())
        talk += [assistant("", "c"), result("c", "text"), user("three")]
        each.sync(talk)
        assert batches == [3, 1, 2]
        assert recorded(each) == texts(talk)

    @pytest.mark.parametrize("edited", [-1, -2])
    def test_a_summary_of_messages_that_stay_survives_an_edit(self, edited: int) -> None:
        each = window(summarizer=ExtractiveSummarizer(tokenizer=WORDS))
        talk = [
            message
            for number in range(12)
            for message in (user(f"question {number}"), assistant(words(90, f"answer{number}")))
        ]

        async def work() -> None:
            each.sync(talk)
            await each.request()
            assert each.sync([*talk[:edited], user("edited")])
            assert any(isinstance(entry.payload, Checkpoint) for entry in each.transcript.path())
            request = await each.request()
            assert request.tokens <= 1_000

        asyncio.run(work())
        summaries = {
            entry.payload.summary
            for entry in each.transcript.entries
            if isinstance(entry.payload, Checkpoint)
        }
        assert len(summaries) == 1, "the summary is not made again"
        assert any(isinstance(entry.payload, Checkpoint) for entry in each.transcript.path())
        assert each.view.messages[-1].text == "edited"
        assert recorded(each) == texts([*talk[:edited], user("edited")])

    def test_a_summary_of_a_message_that_was_edited_is_not_kept(self) -> None:
        each = window(summarizer=ExtractiveSummarizer(tokenizer=WORDS))
        talk = [
            message
            for number in range(12)
            for message in (user(f"question {number}"), assistant(words(90, f"answer{number}")))
        ]

        async def work() -> None:
            each.sync(talk)
            await each.request()
            each.sync([*talk[:2], user("edited")])

        asyncio.run(work())
        assert not any(isinstance(entry.payload, Checkpoint) for entry in each.transcript.path())
        assert texts(each.view.messages) == texts([*talk[:2], user("edited")])
        assert each.sync(talk) == [], "the first branch is there, with its summary"
        assert any(isinstance(entry.payload, Checkpoint) for entry in each.transcript.path())

    def test_origins_are_those_of_the_newest_list(self) -> None:
        each = window()
        each.sync([user("one"), assistant("1")], origins=["a", "b"])
        each.sync([user("one"), assistant("1"), user("two")], origins=["x", "y", "z"])
        assert asyncio.run(each.request()).origins == ("x", "y", "z")


class TestOtherUses:
    def test_a_fork_of_a_subclass_keeps_what_its_constructor_set(self) -> None:
        class NamedWindow(ContextWindow):
            def __init__(self, name: str) -> None:
                super().__init__(model="gpt-4.1", budget=8_000)
                self.name = name

        window = NamedWindow("first")
        window.add(Message(role="user", content=("hello",)))
        fork = window.fork(InMemoryStore())
        assert fork.name == "first"
        assert fork.transcript is not window.transcript
        assert fork.compaction is not window.compaction

    def test_a_fork_has_the_same_settings_and_a_conversation_of_its_own(self) -> None:
        each = window(instructions="Be brief.")
        each.add(user("one"))
        other = each.fork(InMemoryStore())
        other.add(user("two"))
        assert texts(asyncio.run(other.request()).messages) == ["Be brief.", "one", "two"]
        assert texts(each.view.messages) == ["one"]

    def test_another_model_is_used_from_the_next_request_on(self) -> None:
        each = window()
        each.add(user("one"))
        each.set_model("gpt-4o", budget=BUDGET)
        assert asyncio.run(each.request()).model == "gpt-4o"
        assert each.transcript.settings()["model"] == "gpt-4o"

    def test_an_existing_transcript_is_continued(self) -> None:
        each = window()
        each.add(user("one"))
        again = window(transcript=Transcript(each.transcript.store))
        assert texts(asyncio.run(again.request()).messages) == ["one"]

    def test_a_program_without_an_event_loop_uses_the_same_window(self) -> None:
        calls: list[Callable[[], object]] = []
        with SyncContextWindow(window(summarizer=ExtractiveSummarizer(tokenizer=WORDS))) as each:
            for number in range(12):
                each.add(user(f"question {number}"))
                assert each.request().tokens <= 1_000
                each.add_reply(assistant("", f"c{number}"))
                each.add(result(f"c{number}", words(90, "text")))
                each.request()
                each.add_reply(assistant("done"))
                each.wait_idle()
                each.end_turn()
            assert each.view.messages[0].text.startswith("<conversation-summary>")
            calls.append(each.context_usage)
        with pytest.raises(RuntimeError, match="closed"):
            calls[0]()


class TestLearningTheMargin:
    """A model whose vocabulary is not public: `tokenizer_for` gives a measured margin, and the provider's reports the real one."""

    async def converse(self, each: ContextWindow, turns: int, ratio: float) -> list[int]:
        """Take some turns with a provider that counts `ratio` tokens for one of the base; return what it counts."""
        reported: list[int] = []
        for number in range(turns):
            each.add(user(f"question {number} {words(400)}"))
            request = await each.request()
            tokenizer = each.tokenizer
            assert isinstance(tokenizer, CalibratedTokenizer)
            reported.append(int(request.tokens / tokenizer.margin * ratio))
            each.add_reply(
                assistant("answer"), usage=Usage(input_tokens=reported[-1], output_tokens=5)
            )
        return reported

    def test_the_margin_follows_what_the_provider_reports(self) -> None:
        each = window(model="claude-opus-4-5", tokenizer=None, budget=50_000)
        assert each.tokenizer.name == "o200k_base*1.45"
        asyncio.run(self.converse(each, 8, 1.2))
        assert each.tokenizer.name == "o200k_base*1.26"
        usage = each.context_usage()
        assert usage.reading.provider is not None
        assert usage.tokens < 1.3 * usage.reading.provider

    def test_no_request_is_above_the_budget_by_the_provider_s_count_once_it_was_reported(
        self,
    ) -> None:
        each = window(
            model="claude-opus-4-5",
            tokenizer=None,
            budget=ContextBudget(window=8_000, reserved_output_tokens=0),
        )
        reported = asyncio.run(self.converse(each, 30, 1.6))
        assert max(reported[8:]) <= 8_000
        assert max(reported[8:]) > 5_000  # and the room is used

    def test_another_model_has_a_margin_of_its_own(self) -> None:
        each = window(model="claude-opus-4-5", tokenizer=None, budget=50_000)
        asyncio.run(self.converse(each, 8, 1.2))
        each.set_model("claude-opus-4-8")
        assert each.tokenizer.name == "o200k_base*1.85"

    def test_a_report_that_changes_nothing_makes_nothing_be_counted_again(self) -> None:
        counted = CountingTokenizer()
        each = window(tokenizer=CalibratedTokenizer(counted, 1.3), budget=200_000)
        asyncio.run(self.converse(each, 20, 1.2))
        counted.texts.clear()
        asyncio.run(self.converse(each, 1, 1.2))
        assert 0 < len(counted.texts) < 20

    def test_a_tokenizer_that_is_exact_stays_the_same(self) -> None:
        each = window(model="gpt-4o", tokenizer=None, budget=50_000)
        before = each.tokenizer
        each.add(user(words(3_000)))
        request = asyncio.run(each.request())
        each.add_reply(assistant("answer"), usage=Usage(input_tokens=2 * request.tokens))
        assert each.tokenizer is before


class CountingTokenizer(WordTokenizer):
    """Counts words, and keeps the texts that it counted."""

    texts: ClassVar[list[str]] = []

    def count(self, text: str) -> int:
        self.texts.append(text)
        return super().count(text)


def test_warmth_follows_what_the_provider_read_from_its_cache_and_the_time_since() -> None:
    now = [0.0]
    told: list[Event] = []
    each = window(
        clock=lambda: now[0],
        events=Events(told.append),
        preset=attrs.evolve(vscode(), cache_seconds=600.0),
    )
    seen: list[bool | None] = []

    async def turn(cached: int) -> None:
        each.add(user("on"))
        seen.append(each.compaction.warm)
        await each.request()
        each.add_reply(
            assistant("yes"), usage=Usage(input_tokens=100, output_tokens=1, cached_tokens=cached)
        )
        seen.append(next(event.warm for event in reversed(told) if isinstance(event, DecisionMade)))

    async def talk() -> None:
        await turn(0)  # nothing is known yet: a first request
        await turn(90)
        now[0] += 599
        await turn(90)
        now[0] += 601
        await turn(10)
        await turn(90)
        each.set_model("another-model", budget=BUDGET)
        await turn(0)

    asyncio.run(talk())
    assert seen == [False, False, False, True, True, True, False, False, False, True, False, False]


def test_the_calls_that_still_wait_for_results_are_pending_while_results_come_one_by_one() -> None:
    window = ContextWindow(model="gpt-4.1", budget="8k")
    window.add(Message(role="user", content="Look."))
    asyncio.run(window.request())
    first, second = ToolCall(id="c1", name="read"), ToolCall(id="c2", name="read")
    window.add_reply(Message(role="assistant", tool_calls=[first, second]))
    assert list(window.pending_calls) == [first, second]
    window.add(Message(role="tool", tool_call_id="c2", content="two"))
    assert list(window.pending_calls) == [first]
    window.add(Message(role="tool", tool_call_id="c1", content="one"))
    assert not window.pending_calls


def test_no_call_is_pending_once_the_user_has_said_more() -> None:
    window = ContextWindow(model="gpt-4.1", budget="8k")
    window.add(Message(role="user", content="Look."))
    window.add(Message(role="assistant", tool_calls=[ToolCall(id="c1", name="read")]))
    window.add(Message(role="user", content="Never mind."))
    assert not window.pending_calls


class TestTheEventLoop:
    """A long conversation is read, drafted and compacted while other tasks go on."""

    def test_goes_on_while_a_long_conversation_is_read_and_compacted(self) -> None:
        counting = threading.Event()
        others = 0

        class Slow(WordTokenizer):
            def count(self, text: str) -> int:
                if threading.current_thread() is not threading.main_thread():
                    counting.set()
                return super().count(text)

        async def main() -> None:
            nonlocal others
            each = window(tokenizer=Slow(), budget="2k")
            for number in range(300):
                each.add(user(f"{number} {words(20)}"), assistant(words(20)))
            each.add(user("last"))
            asking = asyncio.create_task(each.request())
            while not asking.done():
                others += 1
                await asyncio.sleep(0)
            request = await asking
            assert request.tokens <= 2_000
            assert each.view.checkpoint_id is not None

        asyncio.run(main())

        assert counting.is_set()
        assert others > 3

    @pytest.mark.parametrize("iterations", range(0, 60, 7))
    def test_leaves_nothing_half_written_when_a_draft_is_cancelled(self, iterations: int) -> None:
        async def main() -> None:
            each = window(budget="2k")
            for number in range(300):
                each.add(user(f"{number} {words(20)}"), assistant(words(20)))
            each.add(user("last"))
            before = len(each.transcript)
            asking = asyncio.create_task(each.request())
            for _ in range(iterations):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            kinds = [entry.kind for entry in each.transcript.path()[before:]]
            assert kinds in ([], ["checkpoint"])
            request = await each.request()
            assert request.tokens <= 2_000
            assert [entry.kind for entry in each.transcript.path()[before:]] == ["checkpoint"]

        asyncio.run(main())
