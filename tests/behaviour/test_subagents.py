"""Sub-agents see what their mode says, give back a result that can be used, and are found in both transcripts."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from promptkit import AgentSession, Message, ToolCall, Usage, tool
from promptkit.agent import Forked, Handoff, Isolated
from promptkit.cli.commands.transcript import transcript as command
from promptkit.compaction import ToolCalled
from promptkit.compaction.summarizers.summarizer import HANDOFF_SECTIONS
from promptkit.errors import MaxStepsExceededError, TranscriptError
from promptkit.providers import Reply
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.testing.server import serve
from promptkit.transcript import (
    InMemoryStore,
    JsonlStore,
    MessageEntry,
    Observation,
    Setting,
    SqlStore,
    Transcript,
)
from tests.behaviour.test_cached_sessions import APIS, RULES, connect
from tests.conversations import words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from promptkit.agent import SubagentResult, SubagentTask
    from promptkit.testing import Request
    from promptkit.testing.scripted_model import Step
    from promptkit.testing.server import Exchange, Server
    from promptkit.transcript import TranscriptStore

DOCUMENT = summary_answer("The parser scatters.", sections=HANDOFF_SECTIONS)


@tool
def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"{path} has {len(content)} characters"


def write(number: int, path: str) -> ToolCall:
    arguments = json.dumps({"path": path, "content": "x"})
    return ToolCall(id=f"w{number}", name="write_file", arguments=arguments)


def open_parent(model: ScriptedModel, store: TranscriptStore | None = None) -> AgentSession:
    """A session whose tool `ask` gives its task to a sub-agent."""

    async def ask(mode: str, task: str) -> str:
        """Have a sub-agent do a task."""
        kinds: dict[str, Callable[..., SubagentTask]] = {
            "isolated": Isolated,
            "forked": Forked,
            "handoff": Handoff,
        }
        return str(await session.delegate(kinds[mode](task=task)))

    session = AgentSession(
        model=model,
        transcript=Transcript(store) if store else None,
        instructions="You review code.",
        tools=[write_file, ask],
        tokenizer=WordTokenizer(),
        recall=False,
    )
    return session


def ask(mode: str, task: str = "Find the tests.", number: int = 0) -> ToolCall:
    arguments = json.dumps({"mode": mode, "task": task})
    return ToolCall(id=f"a{number}", name="ask", arguments=arguments)


def run(session: AgentSession, text: str = "Review the parser.") -> str:
    return asyncio.run(session.run(text)).text


def texts(request: Request) -> list[str]:
    return [f"{message.role}: {message.text}" for message in request.messages]


def test_an_isolated_sub_agent_sees_its_task_alone() -> None:
    with ScriptedModel([ask("isolated"), "They are in tests/.", "Done."]) as model:
        session = open_parent(model)
        run(session)
    assert texts(model.requests[1]) == ["system: You review code.", "user: Find the tests."]
    assert model.requests[1].tools == model.requests[0].tools
    assert texts(model.requests[2])[-1] == "tool: They are in tests/."
    assert not any(
        "Find the tests." in text for text in texts(model.requests[2]) if text[:4] == "user"
    )


def test_an_isolated_sub_agent_may_have_another_model_other_instructions_and_other_tools() -> None:
    def look() -> str:
        """Look."""
        return "A cat."

    with (
        ScriptedModel(["Mine."]) as model,
        ScriptedModel([ToolCall(id="l1", name="look"), "A cat."], name="other") as other,
    ):
        session = open_parent(model)
        task = Isolated(task="What is it?", instructions="You look.", tools=[look], model=other)
        result = asyncio.run(session.delegate(task))
        run(session)
    assert result.text == "A cat."
    assert texts(other.requests[0]) == ["system: You look.", "user: What is it?"]
    assert [tool.name for tool in other.requests[0].tools] == ["look"]
    # the parent is what it was
    assert texts(model.requests[0])[0] == "system: You review code."
    assert [tool.name for tool in model.requests[0].tools] == ["write_file", "ask"]


def test_a_forked_sub_agent_begins_with_the_parent_s_request_and_ends_with_its_task() -> None:
    calls = [write(1, "a.py"), ask("forked")]
    with ScriptedModel(["Hello.", calls, "They are in tests/.", "Done."]) as model:
        session = open_parent(model)
        run(session, "Hello.")
        run(session)
    before, forked = model.requests[1], model.requests[2]
    assert forked.messages[: len(before.messages)] == before.messages
    assert forked.tools == before.tools
    (last,) = forked.messages[len(before.messages) :]
    assert last.role == "user"
    assert last.text.endswith("Find the tests.")
    assert "sub-agent" in last.text


@pytest.mark.parametrize("api", APIS)
def test_a_fork_reads_its_parent_s_request_from_the_prompt_cache(api: str) -> None:
    def answer(exchange: Exchange) -> Message | str:
        return Message(role="assistant", tool_calls=[look]) if exchange.number == 1 else "Done."

    async def talk(server: Server) -> None:
        async def look() -> str:
            """Look."""
            return str(await session.delegate(Forked(task="Look.")))

        client, model = connect(server, api)
        async with client, AgentSession(model=model, instructions=RULES, tools=[look]) as session:
            await session.run(words(700, "first"))

    look = ToolCall(id="toolu_01abcdef", name="look")
    with serve(after=answer) as server:
        asyncio.run(talk(server))
        before, forked, _ = (exchange.usage for exchange in server.requests)
        assert [exchange.problem for exchange in server.requests if exchange.problem] == []
    assert before is not None
    assert forked is not None
    assert forked.cached_tokens > 0.9 * before.input_tokens


def test_a_forked_sub_agent_between_two_turns_continues_the_whole_conversation() -> None:
    with ScriptedModel(["It scatters.", "In tests/."]) as model:
        session = open_parent(model)
        run(session)
        asyncio.run(session.delegate(Forked(task="Find the tests.")))
    assert texts(model.requests[1])[:3] == [
        *texts(model.requests[0]),
        "assistant: It scatters.",
    ]


def test_a_handoff_begins_with_a_document_and_the_task() -> None:
    with ScriptedModel(
        [words(300, "long"), ask("handoff"), DOCUMENT, "In tests/.", "Done."]
    ) as model:
        session = open_parent(model)
        run(session, "Read all of it.")
        run(session)
    written, handed = model.requests[2], model.requests[3]
    assert written.purpose == "compaction"
    # asked for behind the parent's request, which the prompt cache holds
    assert written.messages[: len(model.requests[1].messages)] == model.requests[1].messages
    shown = texts(handed)
    assert shown[0] == "system: You review code."
    assert "The parser scatters." in shown[1]
    assert shown[2:] == ["user: Find the tests."]
    assert not any("long" in text for text in shown)


@pytest.mark.parametrize("field", ["model", "tools", "instructions"])
@pytest.mark.parametrize("kind", [Forked, Handoff])
def test_a_sub_agent_that_shares_the_parent_s_prefix_cannot_be_given_another_one(
    kind: Callable[..., Any], field: str
) -> None:
    with pytest.raises(TypeError, match=field):
        kind(task="Find the tests.", **{field: None})


@pytest.mark.parametrize("mode", ["isolated", "forked", "handoff"])
def test_the_result_has_the_text_the_files_what_is_open_and_the_place(
    mode: str, tmp_path: Path
) -> None:
    todos = [
        {"content": "Test it.", "status": "pending"},
        {"content": "Write it.", "status": "completed"},
    ]
    plan = ToolCall(id="t1", name="TodoWrite", arguments=json.dumps({"todos": todos}))
    document = [DOCUMENT] if mode == "handoff" else []
    steps: list[Step] = [
        [write(1, "old.py")],
        words(300, "hello"),
        *document,
        [write(2, "new.py"), plan],
        "It is there.",
    ]
    task = {"isolated": Isolated, "forked": Forked, "handoff": Handoff}[mode](task="Write it.")
    with ScriptedModel(steps) as model:
        session = open_parent(model, JsonlStore(tmp_path / "talk.jsonl"))
        run(session)
        result: SubagentResult = asyncio.run(session.delegate(task))
    assert result.text == "It is there."
    assert result.changed == ("new.py",), "what the parent changed is not the sub-agent's"
    assert result.open_points == ("Test it.",)
    assert result.usage is not None
    assert str(result).splitlines() == [
        "It is there.",
        "",
        "Files changed: new.py",
        "",
        "Left open:",
        "- Test it.",
        "",
        f"The sub-agent's conversation: {result.transcript}",
    ]
    assert result.transcript is not None
    kept = Transcript(JsonlStore(result.transcript))
    payloads = [entry.payload for entry in kept.path()]
    usages = [each.usage for each in payloads if isinstance(each, MessageEntry) and each.usage]
    assert result.usage.input_tokens == sum(each.input_tokens for each in usages[-2:])
    assert [entry.message.text for entry in kept.path() if entry.message][-1] == "It is there."


def test_a_reply_that_was_cut_off_is_an_open_point() -> None:
    cut = Reply(
        message=Message(role="assistant", content="Half of"),
        usage=Usage(input_tokens=1),
        finish="length",
    )
    with ScriptedModel([cut, cut]) as model:
        result = asyncio.run(open_parent(model).delegate(Isolated(task="Go.")))
    assert result.open_points == ("its last reply ended early (length)",)
    assert result.transcript is None


def test_a_sub_agent_cannot_start_another_one() -> None:
    steps: list[Step] = [ask("forked"), ask("forked", number=1), "I did it myself.", "Done."]
    with ScriptedModel(steps) as model:
        assert run(open_parent(model)) == "Done."
    assert texts(model.requests[2])[-1] == (
        "tool: Error: a sub-agent cannot start another one: do the task yourself."
    )


def test_one_sub_agent_can_follow_another() -> None:
    async def delegate(session: AgentSession) -> list[str]:
        return [(await session.delegate(Isolated(task=f"Task {at}."))).text for at in range(2)]

    with ScriptedModel(["One.", "Two."]) as model:
        assert asyncio.run(delegate(open_parent(model))) == ["One.", "Two."]


def test_sub_agents_run_at_the_same_time_and_their_parent_stays_whole() -> None:
    def answer(request: Request) -> str:
        return request.messages[-1].text

    calls = [ask("isolated", f"Task {at}.", at) for at in range(5)]
    with ScriptedModel([calls, *[answer] * 5, "Done."]) as model:
        session = open_parent(model)
        assert run(session) == "Done."
    assert sorted(texts(model.requests[-1])[-5:]) == [f"tool: Task {at}." for at in range(5)]


def test_a_sub_agent_that_fails_is_an_error_of_its_call_and_its_transcript_stays(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([write(at, "a.py") for at in range(9)])
    session = open_parent(model)
    session.max_steps = 3
    store = JsonlStore(tmp_path / "child.jsonl")
    with pytest.raises(MaxStepsExceededError):
        asyncio.run(session.delegate(Isolated(task="Go."), store=store))
    assert len(Transcript(JsonlStore(store.path)).path()) > 3
    # another one can be started afterwards
    assert session.max_steps == 3


@pytest.mark.parametrize("mode", ["isolated", "forked"])
def test_the_parent_s_stream_is_of_the_parent_alone(mode: str) -> None:
    async def collect(session: AgentSession) -> list[str]:
        return [
            event.name async for event in session.stream("Go.") if isinstance(event, ToolCalled)
        ]

    with ScriptedModel([ask(mode), [write(1, "a.py")], "In tests/.", "Done."]) as model:
        assert asyncio.run(collect(open_parent(model))) == ["ask"]


@pytest.mark.parametrize("task", ["Find the tests.", None, Isolated])
def test_a_task_that_names_no_mode_is_refused_with_a_sentence(task: SubagentTask) -> None:
    parent = open_parent(ScriptedModel([]))
    with pytest.raises(TypeError, match=r"a sub-agent takes Isolated\(task=…\), Forked"):
        asyncio.run(parent.delegate(task))
    assert len(parent.transcript) == 0


def test_a_store_with_a_conversation_is_refused() -> None:
    store = InMemoryStore()
    Transcript(store).append_messages(Message(role="user", content="Mine."))
    with pytest.raises(TranscriptError, match="not empty"):
        asyncio.run(open_parent(ScriptedModel([])).delegate(Isolated(task="Go."), store=store))


def test_each_transcript_names_the_other(tmp_path: Path) -> None:
    with ScriptedModel([ask("forked"), "In tests/.", "Done."]) as model:
        session = open_parent(model, JsonlStore(tmp_path / "talk.jsonl"))
        run(session)
    (child,) = tmp_path.glob("talk.*.jsonl")
    parents = [
        entry.payload.value
        for entry in Transcript(JsonlStore(child)).path()
        if isinstance(entry.payload, Setting) and entry.payload.name == "parent"
    ]
    assert parents == [
        {
            "mode": "forked",
            "task": "Find the tests.",
            "transcript": str(tmp_path / "talk.jsonl"),
            "leaf": session.transcript.path()[0].id,
        }
    ]


def show(address: str, *options: str) -> str:
    done = CliRunner().invoke(command, ["tree", address, *options], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_the_tree_shows_sub_agents_and_handoffs_below_their_conversation(tmp_path: Path) -> None:
    steps: list[Step] = [
        [ask("isolated"), ask("forked", number=1)],
        "One.",
        "Two.",
        words(300, "long"),
        "Three.",
        DOCUMENT,
    ]
    with ScriptedModel(steps) as model:
        session = open_parent(model, JsonlStore(tmp_path / "talk.jsonl"))
        run(session)
        # a copy of all, with the links to the first two
        asyncio.run(session.delegate(Forked(task="Once more.")))
        asyncio.run(session.handoff("Write tests.", JsonlStore(tmp_path / "next.jsonl")))
    children = {path.name for path in tmp_path.glob("talk.*.jsonl")}
    lines = show(str(tmp_path / "talk.jsonl")).replace(f"{tmp_path}/", "").splitlines()
    assert lines[0] == "talk.jsonl: 5 messages"
    assert [line.split(", ")[0] for line in lines[1:]] == [
        "  isolated 'Find the tests.'",
        "  forked 'Find the tests.'",
        "  forked 'Once more.'",
        "  handoff 'Write tests.'",
    ]
    assert {line.split(", ")[1].partition(":")[0] for line in lines[1:]} == {
        *children,
        "next.jsonl",
    }

    moved = tmp_path / "moved"
    moved.mkdir()
    for path in tmp_path.glob("*.jsonl"):
        path.rename(moved / path.name)
    (moved / "next.jsonl").unlink()
    tree = json.loads(show(str(moved / "talk.jsonl"), "--json"))
    assert [child["messages"] for child in tree["children"]] == [2, 3, 7, None]
    assert [child["children"] for child in tree["children"]] == [[], [], [], []]


def test_the_tree_shows_a_child_whose_address_is_no_file(tmp_path: Path) -> None:
    transcript = Transcript(JsonlStore(tmp_path / "talk.jsonl"))
    transcript.append(Observation(name="subagent", data={"mode": "isolated", "transcript": "/"}))
    lines = show(str(tmp_path / "talk.jsonl")).splitlines()
    assert len(lines) == 2
    assert "/" in lines[1]


def test_a_conversation_in_a_database_has_its_sub_agents_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/talks.db#one"
    with ScriptedModel([ask("isolated"), "In tests/.", "Done."]) as model:
        run(open_parent(model, SqlStore(url)))
    shown = show(url)
    assert "isolated 'Find the tests.', sqlite:///" in shown
    assert "#one." in shown
    assert "2 messages" in shown
