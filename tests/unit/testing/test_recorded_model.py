"""Recorded replies: made once, replayed without a model, and never replaced by a live request."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from promptkit import (
    ContextBudget,
    JsonlStore,
    Message,
    ToolCall,
    ToolDefinition,
    Transcript,
    Usage,
)
from promptkit.agent import AgentSession
from promptkit.compaction import CompactionCommitted, Events
from promptkit.compaction.presets.coding_agents import VSCode, vscode
from promptkit.errors import (
    ContextLengthExceededError,
    InvalidArgumentError,
    ModelUnavailableError,
)
from promptkit.messages import ImagePart
from promptkit.providers import Reply, with_options
from promptkit.testing import (
    NotRecordedError,
    RecordedModel,
    ScriptedModel,
    WordTokenizer,
    summary_answer,
)

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.testing import Request

pytestmark = pytest.mark.anyio

SHAPE = "sk-proj-{}defghijklmnopqrstuvwxyz0123456789ABCD"
KEY = SHAPE.format("abc")
READ = ToolDefinition(name="read", description="Read a file.\nAll of it.")


def read_all(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.iterdir())


def ask(text: str) -> list[Message]:
    return [Message(role="system", content="Be brief."), Message(role="user", content=text)]


async def test_a_reply_is_recorded_once_and_replayed_without_the_model(tmp_path: Path) -> None:
    reply = Reply(
        message=Message(
            role="assistant", content="I look.", tool_calls=(ToolCall(id="c1", name="read"),)
        ),
        usage=Usage(input_tokens=12, output_tokens=3, cached_tokens=4),
        finish="tool_calls",
    )
    with ScriptedModel([reply]) as live:
        model = RecordedModel(live, tmp_path / "records")
        assert await model.complete(ask("Look."), tools=[READ]) == reply
        # the same request a second time is not sent again
        assert await model.complete(ask("Look."), tools=[READ]) == reply

    for again in (
        RecordedModel("scripted", tmp_path / "records"),
        RecordedModel(live, tmp_path / "records"),
    ):
        assert await again.complete(ask("Look."), tools=[READ]) == reply


async def test_equal_requests_in_flight_at_once_get_one_record(tmp_path: Path) -> None:
    sent: list[str] = []

    async def reply(request: Request) -> str:
        sent.append(request.messages[-1].text)
        number = len(sent)
        await asyncio.sleep(0)
        if number == 1:
            raise ModelUnavailableError("try later")
        return f"Reply {number}."

    model = RecordedModel(ScriptedModel([reply] * 5), tmp_path)
    questions = ["Look.", "Look.", "Look.", "Stop."]
    replies = await asyncio.gather(
        *(with_options(model).complete(ask(question)) for question in questions),
        return_exceptions=True,
    )

    assert isinstance(replies[0], ModelUnavailableError)
    assert sorted(sent) == ["Look.", "Look.", "Stop."]
    replayed = RecordedModel("scripted", tmp_path)
    recorded = [await replayed.complete(ask(question)) for question in questions[1:]]
    assert replies[1:] == recorded


async def test_a_request_without_a_record_fails_with_the_difference_to_the_nearest(
    tmp_path: Path,
) -> None:
    live = ScriptedModel(["First.", "Second.", "Never."])
    model = RecordedModel(live, tmp_path)
    await model.complete(ask("Look at the parser.\nThen stop."), tools=[READ])
    await model.complete([*ask("An old question."), Message(role="assistant", content="x" * 99)])

    replayed = RecordedModel(live, tmp_path)
    with pytest.raises(NotRecordedError) as raised:
        await replayed.complete(ask("Look at the lexer.\nThen stop."), tools=[READ])

    assert len(live.requests) == 2, "the live model is not asked"
    assert raised.value.nearest is not None
    assert raised.value.nearest.name.startswith("001-")
    assert [line for line in raised.value.difference if line[0] in "+-@"] == [
        "@@ line 45 # Request ## messages[1] user ### content[0] @@",
        "-Look at the parser.",
        "+Look at the lexer.",
    ]
    assert "delete the folder" in str(raised.value)


@pytest.mark.parametrize(
    ("tools", "temperature", "place"),
    [
        ([ToolDefinition(name="read", description="Read a part.")], 0.0, "tools[0] read"),
        ([READ], 1.0, "# Request"),
    ],
)
async def test_a_changed_tool_or_option_is_another_request(
    tmp_path: Path, tools: list[ToolDefinition], temperature: float, place: str
) -> None:
    model = with_options(RecordedModel(ScriptedModel(["Yes."]), tmp_path), temperature=0.0)
    await model.complete(ask("Look."), tools=[READ])

    replayed = with_options(RecordedModel("scripted", tmp_path), temperature=temperature)
    with pytest.raises(NotRecordedError, match="has no record") as raised:
        await replayed.complete(ask("Look."), tools=tools)

    assert any(place in line for line in raised.value.difference if line.startswith("@@"))


async def test_what_varies_from_run_to_run_is_the_same_request(tmp_path: Path) -> None:
    def build(day: str, folder: str, call: str) -> list[Message]:
        return [
            *ask(f"It is {day}. The file is /tmp/{folder}/cart.py."),
            Message(role="assistant", tool_calls=(ToolCall(id=call, name="read"),)),
            Message(role="tool", tool_call_id=call, content="apples"),
        ]

    await RecordedModel(ScriptedModel(["Apples."]), tmp_path).complete(
        build("2026-01-02", "tmpabcd1234", "call_Ab12345678")
    )

    replayed = RecordedModel("scripted", tmp_path)
    reply = await replayed.complete(build("2027-03-04", "tmpefgh5678", "call_Cd87654321"))

    assert reply.message.text == "Apples."


async def test_no_secret_is_written_and_the_program_gets_the_real_reply(tmp_path: Path) -> None:
    model = RecordedModel(ScriptedModel([f"It is {KEY}."]), tmp_path)
    reply = await model.complete(ask(f"The key is {KEY}."))
    assert reply.message.text == f"It is {KEY}."

    written = read_all(tmp_path)
    assert KEY not in written
    assert "[redacted" in written

    # with the reply as it was recorded, the next request is the same one as with the real reply
    replayed = RecordedModel("scripted", tmp_path)
    other_key = SHAPE.format("xyz")
    assert "[redacted" in (await replayed.complete(ask(f"The key is {other_key}."))).message.text


@pytest.mark.parametrize(
    "reply", ["Use:\n```python\nx = 1\n```", "`````x`````", "\n# Reply\n\n```json\n{}\n```\n"]
)
async def test_a_reply_with_fences_of_its_own_is_replayed(tmp_path: Path, reply: str) -> None:
    await RecordedModel(ScriptedModel([reply]), tmp_path).complete(ask(reply))

    replayed = await RecordedModel("scripted", tmp_path).complete(ask(reply))

    assert replayed.message.text == reply


async def test_a_refusal_of_the_size_is_replayed_and_other_errors_are_not_recorded(
    tmp_path: Path,
) -> None:
    refusal = ContextLengthExceededError("too long", tokens=90, window=80, status=400)
    model = RecordedModel(
        ScriptedModel([ModelUnavailableError("try later"), refusal, "Short."]), tmp_path
    )
    with pytest.raises(ModelUnavailableError):
        await model.complete(ask("Long."))
    with pytest.raises(ContextLengthExceededError):
        await model.complete(ask("Long."))
    await model.complete(ask("Short."))

    replayed = RecordedModel("scripted", tmp_path)
    with pytest.raises(ContextLengthExceededError) as raised:
        await replayed.complete(ask("Long."))
    assert (raised.value.tokens, raised.value.window, raised.value.status) == (90, 80, 400)
    assert (await replayed.complete(ask("Short."))).message.text == "Short."


async def test_the_text_of_a_replayed_reply_is_streamed(tmp_path: Path) -> None:
    await RecordedModel(ScriptedModel(["Hello."]), tmp_path).complete(ask("Hi."))
    pieces: list[str] = []

    await with_options(RecordedModel("scripted", tmp_path), on_text=pieces.append).complete(
        ask("Hi.")
    )

    assert pieces == ["Hello."]


async def test_a_session_is_replayed_as_it_was_recorded(tmp_path: Path) -> None:
    def read(path: str) -> str:
        """Read a file."""
        return f"{path}: def parse(): ..."

    async def run(model: RecordedModel) -> str:
        async with AgentSession(model=model, instructions="Review.", tools=[read]) as session:
            return (await session.run("Is there a parser?")).text

    call = ToolCall(id="call_1abcdefgh", name="read", arguments='{"path": "a.py"}')
    with ScriptedModel([call, "There is one."]) as live:
        recorded = await run(RecordedModel(live, tmp_path))

    assert await run(RecordedModel("scripted", tmp_path)) == recorded == "There is one."


def read_log(day: int) -> str:
    """Read the log of a day."""
    return f"The log of day {day}: " + "fine " * 90


async def watch_logs(request: Request) -> str | ToolCall:
    """Write a summary more slowly than everything that is replayed, or read the log and answer."""
    if request.purpose == "compaction":
        await asyncio.sleep(0.03)
        return summary_answer("There are no errors.")
    newest = request.messages[-1]
    if not request.tools or newest.role == "tool":
        return "No errors. " * 40
    day = newest.text.split()[-1]
    return ToolCall(id=f"call_{day}abcdefgh", name="read_log", arguments={"day": int(day)})


@pytest.mark.long
@pytest.mark.parametrize("background", [False, True])
async def test_a_session_that_compacts_replays_each_time_with_its_transcript_elsewhere(
    tmp_path: Path, background: bool
) -> None:
    async def talk(model: RecordedModel, path: Path) -> tuple[list[str], int]:
        events: list[object] = []
        async with AgentSession(
            model=model,
            tools=() if background else [read_log],
            recall=not background,
            transcript=Transcript(JsonlStore(path)),
            budget=ContextBudget(window=900, reserved_output_tokens=100),
            tokenizer=WordTokenizer(),
            preset="vscode" if background else vscode(VSCode(warm=1.0, jitter=0.0, cold=1.0)),
            rng=(lambda: 0.5) if background else random.random,
            events=Events(events.append),
        ) as session:
            texts: list[str] = []
            for day in range(14 if background else 9):
                texts.append((await session.run(f"Are there errors on day {day}")).text)
                if background:
                    await session.wait_idle()
        return texts, sum(isinstance(event, CompactionCommitted) for event in events)

    live = ScriptedModel([watch_logs] * 30)
    recorded = await talk(RecordedModel(live, tmp_path / "records"), tmp_path / "talk.jsonl")
    assert recorded[1] >= 1

    for number in range(3):
        path = tmp_path / f"replay {number}" / "log.jsonl"
        path.parent.mkdir()
        assert await talk(RecordedModel("scripted", tmp_path / "records"), path) == recorded


async def test_the_limit_of_a_summary_varies_with_ids_and_does_not_count(tmp_path: Path) -> None:
    live = RecordedModel(ScriptedModel(["A summary."]), tmp_path / "records")
    for limit in (1_000, 1_002):
        model = with_options(live, purpose="compaction", max_output_tokens=limit)
        assert (await model.complete(ask("Summarize."))).message.text == "A summary."


async def test_pictures_count_by_their_content_and_are_not_written(tmp_path: Path) -> None:
    def show(data: str) -> list[Message]:
        return [Message(role="user", content=(ImagePart(url=f"data:image/png;base64,{data}"),))]

    await RecordedModel(ScriptedModel(["A cat."]), tmp_path).complete(show("QUFB" * 100))

    replayed = RecordedModel("scripted", tmp_path)
    assert (await replayed.complete(show("QUFB" * 100))).message.text == "A cat."
    with pytest.raises(NotRecordedError, match="sha256"):
        await replayed.complete(show("QUFC" * 100))
    assert "QUFBQUFB" not in read_all(tmp_path)


def test_without_records_and_without_a_model_nothing_can_be_replayed(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="has no records: give RecordedModel the model"):
        RecordedModel("gpt-5", tmp_path)


def test_a_file_that_is_no_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "001-notes.md").write_text("# Notes\n")
    with pytest.raises(InvalidArgumentError, match=r"001-notes\.md is no record"):
        RecordedModel("gpt-5", tmp_path)
