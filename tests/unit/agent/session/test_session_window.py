from __future__ import annotations

import asyncio
import itertools
import json
import re
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import Message, ToolCall, ToolDefinition, Transcript, Usage
from promptkit.agent import AgentSession, ContextWindow
from promptkit.compaction import PRESETS, Events, RequestPruned, RequestSent
from promptkit.compaction.pruning.processors import cap_tool_results
from promptkit.compaction.recall.tool import RECALL
from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.errors import (
    ContextLengthExceededError,
    InvalidArgumentError,
    NoPendingMessageError,
    RateLimitedError,
    SummaryError,
)
from promptkit.providers import Reply
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens.budget import ContextBudget
from promptkit.tools import Tool
from promptkit.transcript import JsonlStore
from promptkit.transcript.log.entries import Edit, Setting
from promptkit.transcript.log.view import build_summary_message
from promptkit.transcript.stores.store import InMemoryStore
from tests.conversations import summary_reply, words
from tests.unit.agent.holding import READ, calls, checkpoints, held, overflow, said, turn_and_rest
from tests.unit.compaction.summarizers.writers import WRITTEN, Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.compaction.pruning.processors import RequestLimits
    from promptkit.testing.scripted_model import Request
    from promptkit.tools import ToolOutput


@pytest.fixture
def no_extract(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the summary without a model fail, too."""

    async def fail(_: ExtractiveSummarizer, task: SummaryTask) -> Summary:
        raise SummaryError(reason="not_smaller", detail=f"{task.max_tokens} are too few.")

    monkeypatch.setattr(ExtractiveSummarizer, "summarize", fail)


@pytest.mark.parametrize("content", ["", " \n", (), ("", " ")])
def test_an_empty_message_is_refused_and_nothing_is_written(content: str | tuple[str, ...]) -> None:
    each = held()
    with pytest.raises(NoPendingMessageError):
        asyncio.run(each.session.run(content))
    assert len(each.session.transcript) == 0
    assert each.model.requests == []


def test_a_background_summary_is_put_in_place_before_the_next_request() -> None:
    each = held(words(400, "a"), calls(1), words(300, "b"), "end")

    async def talk() -> None:
        await turn_and_rest(each, words(100, "ask"))
        await turn_and_rest(each, "again")
        assert checkpoints(each.session) == []
        await turn_and_rest(each, "last")
        await each.session.close()

    asyncio.run(talk())
    instructions, summary, *kept = each.sent(-1)
    assert (instructions, kept) == ("Be brief.", [words(300, "b"), "last"])
    assert summary.startswith(build_summary_message(WRITTEN).text)
    assert each.told.ends == ["committed"]
    each.told.check()


def test_an_idle_session_has_neither_a_turn_nor_a_background_summary_running() -> None:
    each = held(words(800, "a"), calls(1), words(20, "b"))

    async def talk() -> None:
        await each.session.run("first")
        each.writer.gate = asyncio.Event()
        await turn_and_rest(each, "second")
        assert each.session.compaction.background.state == "running"
        idle = asyncio.ensure_future(each.session.wait_idle())
        await asyncio.sleep(0.01)
        assert not idle.done()
        each.writer.gate.set()
        await asyncio.wait_for(idle, 5)
        await each.session.close()

    asyncio.run(talk())


def test_an_overflow_is_summarized_in_the_foreground_and_the_request_stays() -> None:
    each = held(words(600, "a"), "done")

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run(words(500, "second"))

    asyncio.run(talk())
    instructions, summary, request = each.sent(-1)
    assert (instructions, request) == ("Be brief.", words(500, "second"))
    assert summary.startswith(build_summary_message(WRITTEN).text)
    assert "[answered] first" in summary
    assert each.told.triggers == ["foreground"]
    each.told.check()


@pytest.mark.usefixtures("no_extract")
def test_an_overflow_that_cannot_be_summarized_is_pruned() -> None:
    each = held(words(600, "a"), "done")
    each.writer.error = ValueError("no provider")

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run(words(500, "second"))

    asyncio.run(talk())
    assert each.sent(-1)[-1] == words(500, "second")
    assert words(600, "a") not in each.sent(-1)
    assert each.told.ends == ["failed", "failed"]


@pytest.mark.usefixtures("no_extract")
def test_what_a_request_leaves_out_without_a_summary_is_told_with_its_tokens() -> None:
    each = held(words(600, "a"), "done", "here")
    each.writer.error = ValueError("no provider")

    async def talk() -> None:
        await each.session.run("first")
        assert each.session.last_omitted == ()
        await each.session.run(words(500, "second"))

    asyncio.run(talk())
    omitted = ["first", words(600, "a")]  # no request without its answer
    assert [message.text for message in each.session.last_omitted] == omitted
    (told,) = [event for event in each.told.events if isinstance(event, RequestPruned)]
    assert told.messages == 2
    assert each.sent(-1)[-2] == "[2 messages omitted]"
    count = WordTokenizer().count
    saved = sum(map(count, omitted)) - count("[2 messages omitted]")
    assert told.before - told.after == saved
    assert told.before == each.session.window.context_usage().parts.conversation - len(["here"])
    assert told.by == ("truncate_history",)


def test_the_size_of_each_request_is_told_the_first_one_included() -> None:
    each = held("one", "two")
    sizes: list[int | None] = []
    for text in ("first", "second"):
        asyncio.run(each.session.run(text))
        last = each.session.window.last_request
        sizes.append(None if last is None else last.tokens)
    sent = [event for event in each.told.events if isinstance(event, RequestSent)]
    assert [event.tokens for event in sent] == sizes
    assert sizes[0] is not None


def test_a_request_that_a_processor_makes_smaller_says_by_what_and_from_what_size() -> None:
    told = Recorder()
    window = ContextWindow(
        model="gpt-4o",
        tokenizer=WordTokenizer(),
        events=Events(told),
        preset=attrs.evolve(PRESETS["vscode"](), processors=(cap_tool_results(20), _leave)),
    )
    call = ToolCall(id="c1", name="look")
    window.add(
        Message(role="user", content="Look."),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id="c1", content=words(100)),
    )
    before = sum(map(WordTokenizer().count, (each.text for each in window.view.messages)))
    asyncio.run(window.request())
    (pruned,) = [event for event in told.events if isinstance(event, RequestPruned)]
    assert (pruned.messages, pruned.by) == (1, ("cap_tool_results",))
    assert pruned.before - pruned.after >= 80
    assert pruned.before >= before


def _leave(messages: Sequence[Message], limits: RequestLimits) -> Sequence[Message]:
    _ = limits
    return list(messages)


@pytest.mark.usefixtures("no_extract")
def test_pruned_requests_begin_with_the_same_bytes_until_a_quarter_of_the_room_is_filled_anew() -> (
    None
):
    each = held(*[words(100, f"answer{number}") for number in range(20)])
    each.writer.error = ValueError("no provider")

    async def talk() -> None:
        for number in range(20):
            await each.session.run(f"question {number}")

    asyncio.run(talk())
    requests = [each.sent(number) for number in range(20)]
    pruned = [len(request) < 2 * number + 2 for number, request in enumerate(requests)]
    moved = sum(after[: len(before)] != before for before, after in itertools.pairwise(requests))
    assert (sum(pruned), moved) == (10, 4)


@pytest.mark.spec("E30")
def test_a_refusal_is_recovered_once_with_a_smaller_request() -> None:
    each = held(
        words(300, "a"),
        overflow(),
        "done",
        budget=ContextBudget(window=500, reserved_output_tokens=0),
    )

    async def talk() -> str:
        await each.session.run("first")
        return (await each.session.run("second")).text

    assert asyncio.run(talk()) == "done"
    refused, smaller = each.model.requests[1:]
    assert len(smaller.messages) < len(refused.messages)
    limit = each.session.compaction.budget.limit
    assert limit is not None
    assert limit < 310  # learnt, and kept to for the next requests


def test_the_window_that_the_provider_names_is_learnt() -> None:
    each = held(
        words(300, "a"),
        overflow(window=250),
        "done",
        budget=ContextBudget(window=100_000, reserved_output_tokens=50),
    )

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run("second")

    asyncio.run(talk())
    assert each.session.compaction.budget.window == 250
    assert sum(len(text.split()) for text in each.sent(-1)) <= 200


@pytest.mark.spec("E30")
def test_a_second_refusal_comes_out() -> None:
    each = held(words(300, "a"), overflow(), overflow(), "done")

    async def talk() -> None:
        await each.session.run("first")
        with pytest.raises(ContextLengthExceededError):
            await each.session.run("second")
        assert len(each.model.requests) == 3
        assert (await each.session.resume()).text == "done"

    asyncio.run(talk())


@pytest.mark.spec("E36")
def test_a_rate_limit_is_no_overflow() -> None:
    each = held(words(300, "a"), RateLimitedError("too many tokens a minute"), "done")

    async def talk() -> None:
        await each.session.run("first")
        with pytest.raises(RateLimitedError):
            await each.session.run("second")
        assert (await each.session.resume()).text == "done"

    asyncio.run(talk())
    assert each.writer.tasks == []
    assert checkpoints(each.session) == []


def test_a_conversation_is_compacted_on_demand_and_that_is_undone() -> None:
    each = held(words(50, "a"), words(50, "b"), "end")

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run("second")
        assert await each.session.compact("mind the parser") is not None
        assert each.writer.tasks[0].instructions == "mind the parser"
        shown = len(each.session.compaction.view.items)
        assert each.session.undo_compaction() is not None
        assert len(each.session.compaction.view.items) > shown
        await each.session.run("third")

    asyncio.run(talk())
    assert each.sent(-1) == [
        "Be brief.",
        "first",
        words(50, "a"),
        "second",
        words(50, "b"),
        "third",
    ]


@pytest.mark.spec("E111")
def test_an_empty_conversation_has_nothing_to_compact_undo_or_resume() -> None:
    each = held()

    async def talk() -> None:
        assert await each.session.compact() is None
        assert each.session.undo_compaction() is None
        with pytest.raises(NoPendingMessageError):
            await each.session.resume()

    asyncio.run(talk())
    assert len(each.session.transcript) == 0


def test_what_goes_on_beside_it_ends_when_the_conversation_goes_on_from_elsewhere() -> None:
    each = held(words(800, "a"), calls(1), words(20, "b"), calls(2), words(10, "c"))

    async def talk() -> None:
        await each.session.run("first")
        each.writer.gate = asyncio.Event()
        await turn_and_rest(each, "second")
        each.session.undo_compaction()
        assert each.session.compaction.background.plan is None
        await turn_and_rest(each, "third")
        assert each.session.compaction.background.plan is not None
        each.session.rewind(None)
        assert each.session.compaction.background.plan is None
        await each.session.close()

    asyncio.run(talk())
    each.told.check()


@pytest.mark.spec("E98")
def test_a_rewind_to_before_a_compaction_shows_what_was() -> None:
    each = held(words(50, "a"), words(50, "b"), "other way")

    async def talk() -> None:
        await each.session.run("first")
        second = each.session.transcript.leaf
        await each.session.run("second")
        await each.session.compact()
        each.session.rewind(second)
        await each.session.run("third")

    asyncio.run(talk())
    assert each.sent(-1) == ["Be brief.", "first", words(50, "a"), "third"]


def test_a_smaller_window_is_made_room_for_at_the_next_request() -> None:
    each = held(words(600, "a"))
    smaller = ScriptedModel(["done"], name="smaller")

    async def talk() -> None:
        await each.session.run("first")
        each.session.set_model(smaller, budget=ContextBudget(window=300, reserved_output_tokens=0))
        await each.session.run("second")

    asyncio.run(talk())
    system, summary, last = (message.text for message in smaller.requests[0].messages)
    assert (system, last) == ("Be brief.", "second")
    assert summary.startswith(build_summary_message(WRITTEN).text)
    settings = [
        entry.payload
        for entry in each.session.transcript.path()
        if isinstance(entry.payload, Setting)
    ]
    assert settings == [Setting(name="model", value="smaller")]


@pytest.mark.spec("E91")
def test_a_summary_in_the_making_does_not_outlive_its_model_where_the_window_is_no_larger() -> None:
    each = held(words(800, "a"), calls(1), words(20, "b"))
    other = ScriptedModel(["done"], name="other")

    async def talk() -> None:
        await each.session.run("first")
        each.writer.gate = asyncio.Event()
        await turn_and_rest(each, "second")
        assert each.session.compaction.background.state == "running"
        each.session.set_model(other, budget=each.session.compaction.budget)
        assert each.session.compaction.background.plan is None
        await each.session.run("third")
        await each.session.close()

    asyncio.run(talk())
    assert checkpoints(each.session) == []
    assert each.told.ends == ["cancelled"]


def test_a_large_result_is_cut_for_the_model_and_kept_in_full() -> None:
    async def large(arguments: Mapping[str, object]) -> ToolOutput:
        return words(5_000)

    each = held(calls(1), "done", tools=[Tool(definition=READ, run=large)])
    asyncio.run(each.session.run("look"))
    assert "was cut out" in each.sent(1)[-1]
    assert len(each.sent(1)[-1].split()) <= 500
    assert said(each.session)[2] == f"tool: {words(5_000)}"
    assert each.told.triggers == []


def read_numbers(count: int) -> Tool:
    def read(arguments: Mapping[str, object]) -> ToolOutput:
        return " ".join(f"n{number}" for number in range(count))

    return Tool(definition=READ, run=read, max_tokens=100)


def test_a_result_above_the_limit_of_its_tool_keeps_head_and_tail_and_says_how_to_read_all_of_it() -> (
    None
):
    ids = (f"e{number}" for number in itertools.count(1))
    asked = ToolCall(id="r1", name="recall", arguments='{"entry": "e3"}')
    each = held(
        calls(1),
        asked,
        "done",
        tools=[read_numbers(200)],
        transcript=Transcript(new_id=lambda: next(ids)),
    )
    asyncio.run(each.session.run("look"))
    head, tail = each.sent(1)[-1].split(
        '\n[The middle of this output was cut out: it was too long. All of it: recall({"entry": "e3"})]\n'
    )
    assert (head.split()[0], tail.split()[-1]) == ("n0", "n199")
    assert 80 < len(each.sent(1)[-1].split()) <= 100
    everything = " ".join(f"n{number}" for number in range(200))
    assert each.sent(2)[-1] == f"[result of read, entry e3]\n{everything}"
    assert said(each.session)[2] == f"tool: {everything}"


def test_a_result_within_the_limit_of_its_tool_stays_and_other_tools_have_no_part_in_it() -> None:
    other = Tool(definition=ToolDefinition(name="other"), run=lambda _: words(200))
    each = held(
        [*calls(1), ToolCall(id="o1", name="other")], "done", tools=[read_numbers(100), other]
    )
    asyncio.run(each.session.run("look"))
    assert each.sent(1)[-2:] == [" ".join(f"n{number}" for number in range(100)), words(200)]


def test_a_limit_of_a_tool_holds_in_windows_whose_size_is_unknown_and_after_a_change_of_the_model() -> (
    None
):
    each = held(
        calls(1), "done", calls(2), "done", tools=[read_numbers(300)], budget=ContextBudget()
    )
    asyncio.run(each.session.run("look"))
    assert "n150" not in each.sent(1)[-1].split()
    each.session.set_model(each.model, budget=100_000)
    asyncio.run(each.session.run("again"))
    assert ["n150" in text.split() for text in each.sent(3) if "n299" in text] == [False, False]


def test_a_result_that_recall_does_not_read_is_cut_without_its_call() -> None:
    shown = f"[user, entry e1]\n{words(200)}"  # of another transcript
    served = Tool(
        definition=attrs.evolve(RECALL, name="old__recall"), run=lambda _: shown, max_tokens=100
    )
    each = held(
        calls(1),
        ToolCall(id="o1", name="old__recall"),
        "done",
        "done",
        tools=[served, read_numbers(300)],
        transcript=Transcript(),
    )
    asyncio.run(each.session.run("look"))
    read, other = (text for text in each.sent(2) if "was cut out" in text)
    assert " All of it: recall(" in read
    assert " All of it: " not in other
    (entry,) = (
        entry
        for entry in each.session.transcript.path()
        if entry.message and entry.message.tool_call_id == "c1"
    )
    each.session.transcript.append(Edit(target=entry.id, content=(words(200),), reason="redacted"))
    asyncio.run(each.session.run("again"))
    redacted, _ = (text for text in each.sent(3) if "was cut out" in text)
    assert " All of it: " not in redacted


MARKER = re.compile(
    r'\n\[The middle of this output was cut out: it was too long\. All of it: recall\(\{"entry": "(\w+)"\}\)\]\n'
)


@pytest.mark.parametrize(
    ("tokens", "ids"), [(4_000, "abc"), (700, "abc"), (700, "aaa"), (500, "abc")]
)
def test_results_that_are_shortened_together_say_how_to_read_the_rest(
    tokens: int, ids: str
) -> None:
    # of 4,000 each one exceeds the limit of a result, too
    tool = Tool(definition=READ, run=lambda _: f"{words(tokens)} end")
    asked = [ToolCall(id=name, name="read") for name in ids]
    transcript = Transcript()
    each = held(asked, "done", tools=[tool], transcript=transcript)
    asyncio.run(each.session.run("look"))
    results = [text for text in each.sent(1) if text.endswith("end")]
    assert len(results) == 3
    entries = [
        entry.id for entry in transcript.path() if entry.message and entry.message.role == "tool"
    ]
    assert [MARKER.findall(text) for text in results] == [[entry] for entry in entries]


def test_results_that_are_shortened_together_name_no_tool_that_is_not_there() -> None:
    tool = Tool(definition=READ, run=lambda _: f"{words(700)} end")
    each = held(calls(1, 2, 3), "done", tools=[tool])
    asyncio.run(each.session.run("look"))
    results = [text for text in each.sent(1) if text.endswith("end")]
    assert [text.count("\n[… cut …]\n") for text in results] == [1, 1, 1]
    assert "recall" not in "".join(results)


def test_where_results_are_shortened_to_little_their_text_is_worth_more_than_how_to_read_the_rest() -> (
    None
):
    tool = Tool(definition=READ, run=lambda _: f"{words(700)} end")
    each = held(calls(*range(34)), "done", tools=[tool], transcript=Transcript())
    asyncio.run(each.session.run("look"))
    results = [text for text in each.sent(1) if text.endswith("end")]
    assert [text.count("\n[… cut …]\n") for text in results] == [1] * 34


@pytest.mark.parametrize("preset", ["vscode", "claude_code", "codex"])
def test_a_breadcrumb_names_no_tool_that_a_reopened_session_does_not_have(
    preset: str, tmp_path: Path
) -> None:
    def answer(request: Request) -> str:
        return summary_reply(words(30)) if request.purpose == "compaction" else words(600)

    async def talk(model: ScriptedModel, transcript: Transcript) -> None:
        def reopen(**arguments: object) -> AgentSession:
            each = {
                "transcript": transcript,
                "preset": preset,
                "budget": ContextBudget(window=20_000),
                "tokenizer": WordTokenizer(),
            }
            return AgentSession(model=model, **{**each, **arguments})  # type: ignore[arg-type]  # the test's

        session = reopen()
        await session.run("a")
        await session.run("b")
        await session.compact()
        await session.run("c")
        other = Tool(
            definition=ToolDefinition(name="recall", description="Of another program."), run=str
        )
        for arguments in ({"recall": False}, {"recall": False, "tools": [other]}, {}):
            await reopen(**arguments).run("d")

    for store in (InMemoryStore(), JsonlStore(tmp_path / "talk.jsonl")):
        model = ScriptedModel([answer] * 20)
        asyncio.run(talk(model, Transcript(store)))
        texts = [
            "".join(message.text for message in request.messages) for request in model.requests[-4:]
        ]
        assert [text.count("recall({") for text in texts] == [1, 0, 0, 1]
        assert [text.count("is kept in the transcript") for text in texts] == (
            [1] * 4 if store.address else [1, 0, 0, 1]
        )
        assert texts[3].startswith(texts[0])


@pytest.mark.parametrize("window", [2_000, 2_500, 3_000])
def test_in_a_small_window_the_pages_of_recall_show_all_of_an_entry(window: int) -> None:
    transcript = Transcript()
    seen: set[str] = set()

    def step(request: Request) -> str | ToolCall:
        if request.purpose == "compaction":
            return summary_reply(words(30))
        last = request.messages[-1]
        if last.role == "user" and last.text == "read":
            return calls(1)[0]
        if last.role == "user":
            entry = next(
                entry.id
                for entry in transcript.path()
                if entry.message and entry.message.role == "tool"
            )
            return ToolCall(id="r", name="recall", arguments=json.dumps({"entry": entry}))
        seen.update(re.findall(r"\bn\d+", last.text))
        more = re.search(r"there is more: recall\((\{.*?\})\)", last.text)
        return ToolCall(id="r", name="recall", arguments=more[1]) if more else "done"

    tool = Tool(definition=READ, run=lambda _: " ".join(f"n{number}" for number in range(3_000)))
    budget = ContextBudget(window=window, reserved_output_tokens=window // 10)
    session = AgentSession(
        model=ScriptedModel([step] * 60),
        transcript=transcript,
        budget=budget,
        tokenizer=WordTokenizer(),
        tools=[tool],
    )
    asyncio.run(session.run("read"))
    seen.clear()
    asyncio.run(session.run("look"))
    assert len(seen) == 3_000


def test_a_limit_that_leaves_no_room_for_a_result_is_refused() -> None:
    with pytest.raises(
        InvalidArgumentError,
        match="max_tokens of the tool 'read' must be at least 100, and a whole number, or None, not 99",
    ):
        Tool(definition=READ, run=str, max_tokens=99)


def test_with_no_window_known_nothing_is_compacted_until_a_provider_names_one() -> None:
    each = held(words(3_000, "a"), overflow(window=500), "done", budget=ContextBudget())

    async def talk() -> None:
        await each.session.run("first")
        assert each.told.triggers == []
        await each.session.run("second")

    asyncio.run(talk())
    assert each.session.compaction.budget.window == 500


@pytest.mark.spec("E42")
def test_a_provider_that_counts_nothing_starts_no_summary() -> None:
    nothing = Usage(input_tokens=0)
    replies = [
        Reply(message=Message(role="assistant", content=(words(5),)), usage=nothing, finish="stop")
        for _ in range(3)
    ]
    each = held(*replies)

    async def talk() -> None:
        for number in range(3):
            await each.session.run(f"turn {number}")

    asyncio.run(talk())
    assert each.told.triggers == []


@pytest.mark.spec("E40")
def test_a_summary_is_begun_and_put_in_place_inside_one_long_turn() -> None:
    each = held(*(calls(number, path=words(80, "p")) for number in range(1, 30)), "done")
    turn = asyncio.run(each.session.run("work"))
    assert turn.text == "done"
    assert len(checkpoints(each.session)) >= 2
    assert "work" in each.sent(-1)  # the request is said again behind every summary
    each.told.check()
