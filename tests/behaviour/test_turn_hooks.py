"""Hooks around the rounds of a turn: what they change, refuse and cannot break.

And tools that say that their result is an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import Message, Tool, ToolCall, ToolDefinition
from promptkit.agent import ToolDecision, TurnHooks
from promptkit.agent.session.session import AgentSession
from promptkit.agent.session.tools import CANCELLED, NOT_STARTED
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.summarizers.facts import extend_facts
from promptkit.errors import ToolError
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tools import ToolResult, is_error_result
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_view
from promptkit.wire import to_anthropic, to_chat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from promptkit import TurnResult
    from promptkit.agent.window.requests import WindowRequest
    from promptkit.testing.scripted_model import Step
    from promptkit.tools import ToolOutput


def calls(*names: str, **arguments: object) -> list[ToolCall]:
    return [
        ToolCall(id=f"c{number}", name=name, arguments=json.dumps(arguments))
        for number, name in enumerate(names, 1)
    ]


class Talk:
    """A session with hooks and two tools, `read` and `write`, and a record of what they were called with."""

    def __init__(
        self,
        hooks: TurnHooks | None,
        *steps: Step,
        run: Callable[[Mapping[str, object]], ToolOutput] | None = None,
    ) -> None:
        self.ran: list[Mapping[str, object]] = []
        self.model = ScriptedModel(steps)
        self.session = AgentSession(
            model=self.model,
            budget=10_000,
            tokenizer=WordTokenizer(),
            tools=[
                Tool(definition=ToolDefinition(name=name), run=run or self.run)
                for name in ("read", "write")
            ],
            turn_hooks=hooks,
        )

    def run(self, arguments: Mapping[str, object]) -> ToolOutput:
        self.ran.append(arguments)
        return "done"

    def go(self) -> TurnResult:
        return asyncio.run(self.session.run("Go."))

    def results(self) -> list[str]:
        return [
            message.text for message in self.session.window.view.messages if message.role == "tool"
        ]


class Decides(TurnHooks):
    """Decides what it is given for each tool, and remembers what it was asked."""

    def __init__(self, **decisions: ToolDecision | Exception | None) -> None:
        self.decisions = decisions
        self.asked: list[str] = []

    async def before_tool(self, call: ToolCall) -> ToolDecision | None:
        self.asked.append(f"{call.id} asked")
        await asyncio.sleep(0)  # as one that waits for a user
        self.asked.append(f"{call.id} decided")
        decision = self.decisions.get(call.name)
        if isinstance(decision, Exception):
            raise decision
        return decision


def test_a_refused_call_does_not_run_and_the_model_is_told_why() -> None:
    talk = Talk(
        Decides(write=ToolDecision(refusal="this file is not yours")),
        calls("read", "write", path="a"),
        "I see.",
    )
    assert talk.go().text == "I see."
    assert talk.ran == [{"path": "a"}]
    assert talk.results() == [
        "done",
        "Error: this call was refused, and not run: this file is not yours",
    ]


def test_calls_of_one_reply_are_decided_about_one_after_the_other() -> None:
    hooks = Decides()
    Talk(hooks, calls("read", "write", "read"), "Done.").go()
    assert hooks.asked == [
        f"c{number} {what}" for number in (1, 2, 3) for what in ("asked", "decided")
    ]


def test_a_call_runs_with_changed_arguments_and_the_result_says_so() -> None:
    hooks = Decides(write=ToolDecision(arguments={"path": "src/a", "mode": "w"}))
    talk = Talk(hooks, calls("write", path="a", mode="w", force=True), "Done.")
    talk.go()
    assert talk.ran == [{"path": "src/a", "mode": "w"}]
    assert talk.results() == [
        '[The call was run with changed arguments: {"path": "src/a"}, without force]\ndone'
    ]
    asked = [
        message.tool_calls for message in talk.session.window.view.messages if message.tool_calls
    ]
    # the transcript has what the model wrote
    assert json.loads(asked[0][0].arguments) == {"path": "a", "mode": "w", "force": True}


def test_a_check_that_fails_has_approved_nothing(caplog: pytest.LogCaptureFixture) -> None:
    talk = Talk(Decides(write=ValueError("the list of rules is empty")), calls("write"), "I see.")
    with caplog.at_level(logging.ERROR, "promptkit"):
        assert talk.go().text == "I see."
    assert talk.ran == []
    assert talk.results() == [
        "Error: this call was refused, and not run: the check before it failed with ValueError."
    ]
    assert "the list of rules is empty" in caplog.text


class Dialog(TurnHooks):
    """Waits for the answer of a dialog that is closed: its future is cancelled, and not the turn."""

    def __init__(self, moment: str) -> None:
        self.moment = moment

    async def before_tool(self, call: ToolCall) -> ToolDecision | None:
        if self.moment == "before":
            await self.ask()
        return None

    async def after_tool(self, call: ToolCall, result: ToolResult) -> ToolResult | None:
        if self.moment == "after":
            await self.ask()
        return None

    async def ask(self) -> None:
        answer = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(answer.cancel)
        await answer


@pytest.mark.parametrize(
    ("moment", "result"),
    [("before", "and not run: the check before it failed with RuntimeError."), ("after", "done")],
)
def test_a_hook_whose_own_work_is_cancelled_does_not_cancel_the_turn(
    moment: str, result: str
) -> None:
    talk = Talk(Dialog(moment), calls("write"), "I see.")
    assert talk.go().text == "I see."
    assert talk.results()[0].endswith(result)
    assert talk.ran == ([] if moment == "before" else [{}])


def test_no_hook_is_asked_about_a_call_that_cannot_run() -> None:
    hooks = Decides()
    wrong = [ToolCall(id="c1", name="delete"), ToolCall(id="c2", name="read", arguments="[1]")]
    Talk(hooks, wrong, "I see.").go()
    assert hooks.asked == []


def test_a_result_can_be_replaced_and_a_hook_that_raises_leaves_it_as_it_is() -> None:
    class Masks(TurnHooks):
        def after_tool(self, call: ToolCall, result: ToolResult) -> ToolResult | None:
            if call.name == "write":
                raise ValueError
            return ToolResult("masked", is_error=result.is_error) if call.name == "read" else None

    talk = Talk(Masks(), calls("read", "write"), "Done.")
    talk.go()
    assert talk.results() == ["masked", "done"]


class Adds(TurnHooks):
    """Puts a message before those of the request, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def before_request(self, request: WindowRequest) -> WindowRequest | None:
        if self.error is not None:
            raise self.error
        return attrs.evolve(
            request,
            messages=(Message(role="system", content="Today is Monday."), *request.messages),
        )


def test_a_request_can_be_changed_and_its_size_is_that_of_what_is_sent() -> None:
    talk = Talk(Adds(), "Done.")
    talk.go()
    (sent,) = talk.model.requests
    assert [message.text for message in sent.messages] == ["Today is Monday.", "Go."]
    last = talk.session.window.last_request
    assert last is not None
    assert (last.messages, last.tokens) == (sent.messages, 4)
    assert [message.text for message in talk.session.window.view.messages] == ["Go.", "Done."]


def test_an_error_before_a_request_ends_the_turn_which_can_be_resumed() -> None:
    hooks = Adds(ConnectionError("no clock"))
    talk = Talk(hooks, "Done.")
    with pytest.raises(ConnectionError, match="no clock"):
        talk.go()
    hooks.error = None
    assert asyncio.run(talk.session.resume()).text == "Done."


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_turn_that_is_cancelled_in_a_hook_leaves_a_session_that_goes_on(moment: str) -> None:
    waiting = asyncio.Event()

    class Waits(TurnHooks):
        async def before_tool(self, call: ToolCall) -> ToolDecision | None:
            if moment == "before" and call.name == "write":
                waiting.set()
                await asyncio.Event().wait()
            return None

        async def after_tool(self, call: ToolCall, result: ToolResult) -> ToolResult | None:
            if moment == "after":
                waiting.set()
                await asyncio.Event().wait()
            return None

    talk = Talk(Waits(), calls("read", "write"), "I see.")

    async def cancelled() -> str:
        running = asyncio.ensure_future(talk.session.run("Go."))
        await asyncio.wait_for(waiting.wait(), 10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return (await talk.session.run("Never mind.")).text

    assert asyncio.run(cancelled()) == "I see."
    assert talk.results() == (["done", "done"] if moment == "after" else [NOT_STARTED, NOT_STARTED])
    assert CANCELLED not in talk.results()


class Mistaken(TurnHooks):
    """Returns, from one of its methods, what no hook returns."""

    def __init__(self, method: str) -> None:
        setattr(self, method, self.answer)

    def answer(self, *_: object) -> dict[str, str]:
        return {"refusal": "no"}


@pytest.mark.parametrize(
    ("method", "result"),
    [
        (
            "before_tool",
            "Error: this call was refused, and not run: the check before it failed with TypeError.",
        ),
        ("after_tool", "the result"),
    ],
)
def test_what_no_hook_returns_is_an_error_of_the_hook_and_loses_no_result(
    method: str, result: str, caplog: pytest.LogCaptureFixture
) -> None:
    tool = Tool(definition=ToolDefinition(name="look"), run=lambda _: "the result")
    session = AgentSession(
        model=ScriptedModel([calls("look"), "Done."]),
        tools=[tool],
        turn_hooks=Mistaken(method),
        budget="8k",
    )
    assert asyncio.run(session.run("Look.")).text == "Done."
    assert [message.text for message in session.window.view.messages if message.role == "tool"] == [
        result
    ]
    assert f"{method} of the turn hooks must return a " in caplog.text


def test_a_request_that_is_none_ends_the_turn_with_what_to_return() -> None:
    session = AgentSession(
        model=ScriptedModel(["Done."]), turn_hooks=Mistaken("before_request"), budget="8k"
    )
    with pytest.raises(
        TypeError, match="before_request of the turn hooks must return a WindowRequest or None"
    ):
        asyncio.run(session.run("Look."))


def test_hooks_of_the_wrong_type_are_refused() -> None:
    with pytest.raises(TypeError, match="turn_hooks must be a TurnHooks"):
        AgentSession(model=ScriptedModel([]), turn_hooks=print)  # type: ignore[arg-type]  # wrong on purpose


class TestToolErrors:
    def test_a_tool_says_in_its_own_words_what_went_wrong(self) -> None:
        def run(arguments: Mapping[str, object]) -> ToolOutput:
            raise ToolError("there is no file 'a'; the files are b, c")

        talk = Talk(None, calls("read"), "I see.", run=run)
        talk.go()
        assert talk.results() == ["Error: there is no file 'a'; the files are b, c"]

    @pytest.mark.parametrize("failed", [True, False])
    def test_anthropic_is_told_which_results_are_errors_and_openai_reads_the_text(
        self, failed: bool
    ) -> None:
        talk = Talk(
            None,
            calls("read"),
            "I see.",
            run=lambda _: ToolResult("exit status 2", is_error=failed),
        )
        talk.go()
        messages = talk.session.window.view.messages
        assert [is_error_result(message) for message in messages] == [False, False, failed, False]
        result = to_anthropic(messages)["messages"][2]["content"][0]
        assert (result["content"], result.get("is_error", False)) == ("exit status 2", failed)
        assert to_chat(messages)[2] == {
            "role": "tool",
            "content": "exit status 2",
            "tool_call_id": "c1",
        }

    def test_what_a_tool_raises_is_an_error_too(self) -> None:
        talk = Talk(
            None,
            [ToolCall(id="c1", name="read"), ToolCall(id="c2", name="gone")],
            "I see.",
            run=lambda _: 1 / 0,  # type: ignore[arg-type, return-value]  # it raises
        )
        talk.go()
        assert [
            is_error_result(message)
            for message in talk.session.window.view.messages
            if message.role == "tool"
        ] == [True, True]

    def test_facts_have_the_error_of_a_read_that_failed(self) -> None:
        transcript = Transcript()
        for number, failed in ((1, True), (2, False)):
            call = ToolCall(id=f"c{number}", name="read_file", arguments={"path": f"{number}.py"})
            result = ToolResult(f"no such file: {number}.py", is_error=failed)
            transcript.append_messages(
                Message(role="assistant", tool_calls=[call]), result.to_message(call)
            )
        assert extend_facts(Facts(), build_view(transcript.path()).items).errors == (
            "no such file: 1.py",
        )
