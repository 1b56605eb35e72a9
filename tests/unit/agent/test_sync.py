from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import signal
import textwrap
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from promptkit import ToolCall, ToolDefinition
from promptkit.agent.session.session import AgentSession
from promptkit.agent.sync import SyncContextWindow, SyncSession
from promptkit.agent.window.window import ContextWindow
from promptkit.compaction import Events
from promptkit.errors import NoPendingMessageError
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens.budget import ContextBudget
from promptkit.tools import Tool
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.stores.store import InMemoryStore
from tests.conversations import words
from tests.unit.compaction.summarizers.writers import Recorder, Writer

if TYPE_CHECKING:
    from promptkit.compaction import Event
    from promptkit.testing.scripted_model import Step


def session(*steps: Step, events: Events | None = None) -> AgentSession:
    return AgentSession(
        model=ScriptedModel(steps),
        tools=[Tool(definition=ToolDefinition(name="read"), run=lambda _: "text")],
        budget=ContextBudget(window=1_000, reserved_output_tokens=0),
        summarizer=Writer(),
        tokenizer=WordTokenizer(),
        events=events,
        rng=lambda: 0.5,
    )


def test_a_program_without_an_event_loop_holds_a_conversation() -> None:
    heard: list[str] = []
    with SyncSession(session([ToolCall(id="c1", name="read")], "done", "again")) as talk:
        assert talk.run("look").text == "done"
        assert talk.run("and now", on_text=heard.append).text == "again"
    assert heard == ["again"]


def test_a_summary_is_made_between_two_calls_with_nobody_waiting() -> None:
    ready, told = threading.Event(), Recorder()

    def tell(event: Event) -> None:
        told(event)
        if type(event).__name__ == "CompactionCommitted":
            ready.set()

    inner = session(
        words(400, "a"),
        [ToolCall(id="c1", name="read")],
        words(400, "b"),
        "end",
        events=Events(tell),
    )
    with SyncSession(inner) as talk:
        talk.run("first")
        talk.run("second")
        talk.run("third")
        assert ready.wait(10)
    assert any(isinstance(entry.payload, Checkpoint) for entry in inner.transcript.path())
    told.check()


def test_what_a_session_can_do_can_be_done_without_a_loop() -> None:
    with SyncSession(session(words(50, "a"), words(50, "b"), "c")) as talk:
        talk.run("first")
        talk.run("second")
        assert talk.compact("mind the parser") is not None
        assert talk.undo_compaction() is not None
        talk.rewind(None)
        talk.set_model(
            ScriptedModel(["other"], name="other"),
            budget=ContextBudget(window=1_000, reserved_output_tokens=0),
        )
        assert talk.run("anew").text == "other"
        with pytest.raises(NoPendingMessageError):
            talk.resume()


def test_errors_come_out_where_the_call_was_made() -> None:
    with (
        SyncSession(session(ValueError("broken model"))) as talk,
        pytest.raises(ValueError, match="broken model"),
    ):
        talk.run("look")


def test_a_closed_session_leaves_no_thread_and_may_be_closed_again() -> None:
    before = threading.active_count()
    talk = SyncSession(session("done"))
    talk.run("look")
    talk.close()
    talk.close()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError):
        talk.run("more")


def test_sessions_may_run_side_by_side_and_inside_a_running_loop() -> None:
    async def inside() -> str:
        with SyncSession(session("one")) as first, SyncSession(session("two")) as second:
            return first.run("a").text + second.run("b").text

    assert asyncio.run(inside()) == "onetwo"


def test_what_several_threads_say_is_answered_one_after_the_other() -> None:
    with SyncSession(session(*(f"answer {number}" for number in range(8)))) as talk:
        with ThreadPoolExecutor(8) as threads:
            turns = list(threads.map(talk.run, [f"ask {number}" for number in range(8)]))
        roles = [entry.message.role for entry in talk.session.transcript.path() if entry.message]
    assert sorted(turn.text for turn in turns) == [f"answer {number}" for number in range(8)]
    assert roles == ["user", "assistant"] * 8


def interrupt() -> None:
    """What Ctrl-C does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_from_the_keyboard_ends_the_turn_and_the_session_goes_on() -> None:
    async def interrupts(request: object) -> str:
        interrupt()
        await asyncio.Event().wait()
        return "never"

    with SyncSession(session(interrupts, "done", "anew")) as talk:
        with pytest.raises(KeyboardInterrupt):
            talk.run("look")
        assert talk.resume().text == "done"
        talk.rewind(None)
        assert talk.run("anew").text == "anew"


@pytest.mark.usefixtures("interruptible")
def test_right_after_an_interrupt_the_turn_has_ended() -> None:
    async def interrupts(request: object) -> str:
        interrupt()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)  # a client that closes its connection
        return "never"

    with SyncSession(session(interrupts, "anew")) as talk:
        with pytest.raises(KeyboardInterrupt):
            talk.run("look")
        talk.rewind(None)


def test_a_forgotten_session_ends_its_thread() -> None:
    before = set(threading.enumerate())
    talk = SyncSession(session("done"))
    talk.run("look")
    (thread,) = set(threading.enumerate()) - before
    del talk
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_a_session_is_not_called_from_its_own_thread() -> None:
    found: list[str] = []

    def asks_again(text: str) -> None:
        with pytest.raises(RuntimeError) as caught:
            talk.run("again")
        found.append(str(caught.value))

    with SyncSession(session("done")) as talk:
        talk.run("look", on_text=asks_again)
    assert "own thread" in found[0]


def test_closing_ends_what_other_threads_wait_for() -> None:
    asked = threading.Event()

    async def thinks(request: object) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never"

    talk = SyncSession(session(thinks))
    with ThreadPoolExecutor(3) as threads:
        waiting = threads.submit(talk.run, "look")
        assert asked.wait(10)
        for closing in [threads.submit(talk.close) for _ in range(2)]:
            closing.result(10)
        with pytest.raises(CancelledError):
            waiting.result(10)


def test_a_fork_goes_on_in_a_thread_of_its_own() -> None:
    with SyncSession(session("one", "two")) as talk:
        talk.run("first")
        with talk.fork(InMemoryStore()) as other:
            assert other.run("second").text == "two"
        assert len(talk.session.transcript) == 2


def make_inner(inner: type) -> AgentSession | ContextWindow:
    return (
        AgentSession(model=ScriptedModel([]))
        if inner is AgentSession
        else ContextWindow(model="gpt-5")
    )


@pytest.mark.parametrize(
    ("outer", "inner"), [(SyncSession, AgentSession), (SyncContextWindow, ContextWindow)]
)
def test_the_stub_has_every_method_with_the_parameters_of_the_asynchronous_one(
    outer: type, inner: type
) -> None:
    stub = Path(inspect.getfile(outer)).with_suffix(".pyi").read_text(encoding="utf-8")
    (typed,) = (
        node
        for node in ast.parse(stub).body
        if isinstance(node, ast.ClassDef) and node.name == outer.__name__
    )
    listed = {node.name: node for node in typed.body if isinstance(node, ast.FunctionDef)}
    members = {
        name: member
        for name in dir(inner)
        if not name.startswith("_")
        and not isinstance(member := inspect.getattr_static(inner, name), classmethod)
    }
    assert members.keys() <= listed.keys()
    attributes = {name for name in vars(make_inner(inner)) if not name.startswith("_")}
    assert listed.keys() - members.keys() == {
        "__init__",
        "call",
        "__enter__",
        "__exit__",
        *attributes,
    }
    assert all(hasattr(outer, name) for name in attributes)
    for name, member in members.items():
        assert hasattr(outer, name)
        function = member.fget if isinstance(member, property) else member
        assert inspect.isfunction(function)
        assert inspect.getdoc(getattr(outer, name)), name
        (written,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(written, ast.FunctionDef | ast.AsyncFunctionDef)
        assert ast.unparse(listed[name].args) == ast.unparse(written.args), name
        returned, expected = listed[name].returns, written.returns
        assert returned is not None
        assert expected is not None
        own = outer.__name__ if ast.unparse(expected) in {"Self", inner.__name__} else None
        result = own or ast.unparse(expected).removeprefix("Async")
        assert ast.unparse(returned) == result, name
