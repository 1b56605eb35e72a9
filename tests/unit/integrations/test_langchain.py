"""LangChain's middleware: what is sent, what stays the agent's own, and what happens after a refusal."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip(
    "langchain", reason="the framework is not installed: pip install '.[langchain]'"
)

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.tools import StructuredTool

from benchmarks.integrations import SUMMARY
from promptkit import ContextBudget, JsonlStore, Transcript
from promptkit.errors import ContextLengthExceededError, ContextWindowFullError
from promptkit.integrations.langchain import CompactionMiddleware, FitMiddleware
from tests.conversations import words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Middleware = AgentMiddleware[Any, Any, Any]  # Any: of any state and context
Request = ModelRequest[Any]
Response = ModelResponse[Any]

BUDGET = ContextBudget(window=2_000, reserved_output_tokens=200)


def read_text(path: str) -> str:
    """Read a file."""
    return path


TOOL = StructuredTool.from_function(read_text)


class NamedFake(FakeListChatModel):
    """A chat model with a name, which is never called."""

    model_name: str = "gpt-4.1"

    def bind_tools(self, tools: Any, **keywords: Any) -> Any:  # Any: as the base class has it
        return self


def talk(rounds: int, *, long: int = 400) -> list[AnyMessage]:
    """Rounds of a question, a call, its long result and an answer, and a last question; each message has an id."""
    messages: list[AnyMessage] = []
    for n in range(rounds):
        call = {"name": "read_text", "args": {"path": f"{n}.py"}, "id": f"c{n}"}
        messages += [
            HumanMessage(f"Review {n}.", id=f"h{n}"),
            AIMessage("", tool_calls=[call], id=f"a{n}", additional_kwargs={"trace": n}),
            ToolMessage(words(long), tool_call_id=f"c{n}", id=f"t{n}", artifact={"path": n}),
            AIMessage(f"{n} is sound.", id=f"b{n}"),
        ]
    return [*messages, HumanMessage("And now?", id="last")]


# Any stands for a fake
def request(
    messages: Sequence[AnyMessage], *, model: Any = None, system: str = "You review code."
) -> Request:
    fake = model or NamedFake(responses=["unused"])
    return ModelRequest(
        model=fake, messages=list(messages), system_message=SystemMessage(system), tools=[TOOL]
    )


class Provider:
    """Stands behind the middleware.

    It answers, or raises the next of its errors, and keeps what it was sent.
    """

    def __init__(self, *errors: Exception | None, answer: AIMessage | None = None) -> None:
        self.errors = list(errors)
        self.answer = answer or AIMessage("Done.", id="answer")
        self.sent: list[Request] = []

    def __call__(self, request: Request) -> Response:
        self.sent.append(request)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return ModelResponse(result=[self.answer])

    async def answer_async(self, request: Request) -> Response:
        return self(request)


def call_sync(middleware: Middleware, request: Request, provider: Provider) -> list[AnyMessage]:
    middleware.wrap_model_call(request, provider)
    return provider.sent[-1].messages


def call_async(middleware: Middleware, request: Request, provider: Provider) -> list[AnyMessage]:
    asyncio.run(middleware.awrap_model_call(request, provider.answer_async))
    return provider.sent[-1].messages


CALLS = pytest.mark.parametrize("call", [call_sync, call_async], ids=["sync", "async"])
MAKE = pytest.mark.parametrize(
    "make",
    [lambda: FitMiddleware(budget=1_500), lambda: CompactionMiddleware(budget=BUDGET)],
    ids=["fit", "compaction"],
)
Call = "Callable[[Middleware, Request, Provider], list[AnyMessage]]"


@CALLS
@MAKE
def test_unchanged_messages_are_the_agents_own_and_the_state_is_not_changed(
    call: Any, make: Callable[[], Middleware]
) -> None:
    messages = talk(8)
    before = [message.model_copy(deep=True) for message in messages]
    asked = request(messages)
    sent = call(make(), asked, Provider())
    assert messages == before
    assert asked.messages == before
    given = {message.id: message for message in messages}
    changed = [
        message for message in sent if message.id in given and message is not given[message.id]
    ]
    assert all(isinstance(message, ToolMessage) for message in changed)
    assert sent[-1] is messages[-1]
    assert (
        sum(len(message.text) for message in sent)
        < sum(len(message.text) for message in messages) / 1.5
    )


@CALLS
@MAKE
def test_a_conversation_that_fits_is_sent_as_it_is(
    call: Any, make: Callable[[], Middleware]
) -> None:
    messages = talk(2)
    sent = call(make(), request(messages), Provider())
    assert len(sent) == len(messages)
    assert all(one is other for one, other in zip(sent, messages, strict=True))


def test_a_shortened_message_is_a_copy_with_the_same_id_and_artifact() -> None:
    messages = talk(1, long=3_000)
    sent = call_sync(FitMiddleware(budget=500), request(messages), Provider())
    (short,) = [message for message in sent if message.id == "t0"]
    assert isinstance(short, ToolMessage)
    assert len(short.text) < len(messages[2].text) / 2
    assert (short.tool_call_id, short.artifact) == ("c0", {"path": 0})


@MAKE
@pytest.mark.parametrize("rounds", [3, 12])
def test_ids_of_calls_that_a_server_uses_again_stay_those_of_their_results(
    make: Callable[[], Middleware], rounds: int
) -> None:
    messages = talk(rounds, long=50 if rounds == 3 else 400)
    for message in messages:
        if isinstance(message, AIMessage) and message.tool_calls:
            message.tool_calls[0]["id"] = "call_0"
        elif isinstance(message, ToolMessage):
            message.tool_call_id = "call_0"
    # the last round stays whatever is summarized
    sent = call_sync(make(), request(messages[:-2]), Provider())
    called = [
        (one.id, call["id"], call["args"])
        for one in sent
        if isinstance(one, AIMessage)
        for call in one.tool_calls
    ]
    results = [message for message in sent if isinstance(message, ToolMessage)]
    assert len({name for _, name, _ in called}) == len(called) > 0
    assert [name for _, name, _ in called] == [message.tool_call_id for message in results]
    assert [args["path"] for _, _, args in called] == [
        f"{message.artifact['path']}.py" for message in results
    ]
    assert [str(own)[1:] for own, _, _ in called] == [str(message.id)[1:] for message in results]


@MAKE
@pytest.mark.parametrize("used_again", [False, True])
def test_a_call_with_broken_json_stays_with_the_result_that_the_agent_gave_it(
    make: Callable[[], Middleware], used_again: bool
) -> None:
    broken = InvalidToolCall(
        type="invalid_tool_call", name="read_text", args='{"path": ', id="c0", error="not JSON"
    )
    good = ToolCall(name="read_text", args={"path": "a"}, id="c1")
    asked = [
        AIMessage("", tool_calls=[good], invalid_tool_calls=[broken], id=f"m{n}")
        for n in range(1 + used_again)
    ]
    results = [
        ToolMessage("Error: not JSON", tool_call_id="c0"),
        ToolMessage("fine", tool_call_id="c1"),
    ]
    rounds: list[AnyMessage] = []
    for each in asked:
        rounds += [HumanMessage("Review."), each, *results]
    provider = Provider()
    sent = call_sync(make(), request([*rounds, HumanMessage("And now?")]), provider)
    assert sent[:4] == rounds[:4]
    assert len(sent) == len(rounds) + 1
    last = sent[-4]
    assert isinstance(last, AIMessage)
    calls = [*last.tool_calls, *last.invalid_tool_calls]
    assert {call["id"] for call in calls} == {
        message.tool_call_id for message in sent[-3:-1] if isinstance(message, ToolMessage)
    }
    assert [call["args"] for call in calls] == [good["args"], broken["args"]]


def test_arguments_that_were_shortened_are_sent_so() -> None:
    call = ToolCall(name="write_text", args={"path": "a.py", "text": words(3_000)}, id="c0")
    asked = AIMessage("", tool_calls=[call])
    messages: list[AnyMessage] = [
        HumanMessage("Write it."),
        asked,
        ToolMessage("done", tool_call_id="c0"),
        HumanMessage("Good?"),
    ]
    sent = call_sync(FitMiddleware(budget=1_000), request(messages), Provider())
    (shown,) = (
        call for message in sent if isinstance(message, AIMessage) for call in message.tool_calls
    )
    assert shown["args"]["path"] == "a.py"
    assert len(shown["args"]["text"].split()) < 1_000
    assert len(call["args"]["text"].split()) == 3_000  # the state is as it was


def test_a_result_that_is_missing_is_added_as_a_tool_message() -> None:
    messages = [message for message in talk(1) if not isinstance(message, ToolMessage)]
    sent = call_sync(FitMiddleware(budget=1_000), request(messages), Provider())
    assert [message.tool_call_id for message in sent if isinstance(message, ToolMessage)] == ["c0"]


def test_the_tools_and_the_system_prompt_count() -> None:
    with_them = call_sync(
        FitMiddleware(budget=1_000), request(talk(8), system=words(300)), Provider()
    )
    without = call_sync(FitMiddleware(budget=1_000), request(talk(8), system="Hi."), Provider())
    assert (
        sum(len(message.text) for message in with_them)
        < sum(len(message.text) for message in without) - 300
    )


@CALLS
@MAKE
def test_a_refusal_is_answered_with_one_smaller_request(
    call: Any, make: Callable[[], Middleware]
) -> None:
    middleware = make()
    refused = RuntimeError("the gateway's own words")
    refused.__cause__ = cause = ContextLengthExceededError("too large", model="gpt-4.1")
    cause.window = 400
    provider = Provider(refused)
    call(middleware, request(talk(8)), provider)
    first, second = ([message.text for message in sent.messages] for sent in provider.sent)
    assert sum(map(len, second)) < sum(map(len, first))
    later = call(middleware, request(talk(8)), Provider())
    # the limit was learned
    assert sum(len(message.text) for message in later) < sum(map(len, first))


@CALLS
@MAKE
def test_a_second_refusal_and_any_other_error_are_raised(
    call: Any, make: Callable[[], Middleware]
) -> None:
    refused = ContextLengthExceededError("too large", model="gpt-4.1")
    provider = Provider(refused, refused)
    with pytest.raises((ContextLengthExceededError, ContextWindowFullError)):
        call(make(), request(talk(8)), provider)
    assert len(provider.sent) == 2
    provider = Provider(RuntimeError("no"))
    with pytest.raises(RuntimeError, match="no"):
        call(make(), request(talk(2)), provider)
    assert len(provider.sent) == 1


@MAKE
def test_without_a_budget_it_is_the_models_by_its_name_or_its_profile(
    make: Callable[[], Middleware],
) -> None:
    middleware = type(make())()
    unknown = NamedFake(
        responses=[],
        model_name="a-model-of-nobody",
        profile={"max_input_tokens": 1_500, "max_output_tokens": 200},
    )
    assert len(call_sync(middleware, request(talk(8)), Provider())) == 33
    assert len(call_sync(middleware, request(talk(8), model=unknown), Provider())) < 33


class TestCompaction:
    def test_a_thread_keeps_one_branch_with_the_replies_and_their_usage(self) -> None:
        transcript = Transcript()
        middleware = CompactionMiddleware(budget=BUDGET, transcripts=lambda _: transcript)
        answer = AIMessage(
            "Done.",
            id="x",
            usage_metadata={"input_tokens": 700, "output_tokens": 2, "total_tokens": 702},
        )
        messages = talk(3)
        call_sync(middleware, request(messages), Provider(answer=answer))
        call_sync(middleware, request([*messages, answer, HumanMessage("More?")]), Provider())
        assert len(transcript.leaves()) == 1
        said = [entry.payload for entry in transcript.path() if entry.kind == "message"]
        assert [payload.usage.input_tokens for payload in said if payload.usage] == [700]  # type: ignore[union-attr]  # messages
        assert len(said) == len(messages) + 3

    def test_a_thread_continues_from_its_file_with_its_summary(self, tmp_path: Path) -> None:
        def open_file(thread: str) -> Transcript:
            return Transcript(JsonlStore(tmp_path / f"{thread or 'talk'}.jsonl"))

        first = call_sync(
            CompactionMiddleware(budget=BUDGET, transcripts=open_file), request(talk(8)), Provider()
        )
        entries = len(open_file(""))
        again = call_sync(
            CompactionMiddleware(budget=BUDGET, transcripts=open_file), request(talk(8)), Provider()
        )
        assert [message.text for message in again[:-1]] == [message.text for message in first[:-1]]
        assert len(open_file("")) <= entries + 2  # nothing is recorded or summarized twice

    def test_only_so_many_windows_are_kept_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        opened: list[str] = []
        thread = ""

        def open_transcript(name: str) -> Transcript:
            opened.append(name)
            return Transcript()

        middleware = CompactionMiddleware(budget=BUDGET, transcripts=open_transcript, max_threads=2)
        monkeypatch.setattr(
            "promptkit.integrations.langchain.get_config",
            lambda: {"configurable": {"thread_id": thread}},
        )
        for thread in "abaca":  # noqa: B007  # `get_config` reads it
            call_sync(middleware, request(talk(1)), Provider())
        assert opened == ["a", "b", "c"]
        thread = "b"
        call_sync(middleware, request(talk(1)), Provider())
        assert opened == ["a", "b", "c", "b"]

    def test_the_agents_own_chat_model_writes_the_summaries(self) -> None:
        model = NamedFake(responses=[SUMMARY])
        middleware = CompactionMiddleware(
            budget=ContextBudget(window=6_000, reserved_output_tokens=200), summarizer=model
        )
        sent = call_sync(middleware, request(talk(20)), Provider())
        assert any("all are sound so far" in message.text for message in sent)


def test_without_the_framework_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "promptkit.integrations.langchain")
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware", None)
    with pytest.raises(ImportError, match=r"\.\[langchain\]"):
        importlib.import_module("promptkit.integrations.langchain")
