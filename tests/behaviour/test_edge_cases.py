"""Edge cases of compaction that concern several parts at once.

All of them, with their tests, are listed in docs/edge-cases.md.
"""

from __future__ import annotations

import asyncio

import pytest

from promptkit import ContextBudget, Message, ToolCall, Transcript, Usage
from promptkit.compaction import CompactionCommitted
from promptkit.compaction.planning.selection import KeepLastMessages, KeepRecentTokens, select
from promptkit.compaction.policy.rules import (
    compact_above,
    compact_on_demand,
    first_match,
    on_overflow,
    promote,
)
from promptkit.compaction.policy.state import Compact, Decision, Phase, PolicyState, Promote
from promptkit.compaction.policy.usage import UsageMeter
from promptkit.compaction.pruning.tool_outputs import ReduceToolResults, prune_outputs
from promptkit.compaction.run.compactor import Compactor
from promptkit.compaction.summarizers.model_summarizers import SimpleSummarizer
from promptkit.compaction.summarizers.quirks import REMINDER
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.transcript.log.entries import Checkpoint, MessageEntry
from promptkit.transcript.log.view import build_summary_message
from tests.conversations import ConversationBuilder, summary_reply, summary_text, words
from tests.unit.agent.holding import Held, calls, checkpoints, held, said, turn_and_rest
from tests.unit.compaction.summarizers.tasks import parser_talk
from tests.unit.compaction.summarizers.writers import Writer

TOKENIZER = WordTokenizer()
SECRET = "ghp_" + "a1B2" * 9


@pytest.mark.spec("E11")
def test_a_compaction_that_was_interrupted_while_a_call_ran_is_done_again_and_repeats_nothing() -> (
    None
):
    talk = ConversationBuilder()
    talk.user(words(50))
    talk.round("c1", words(50))
    talk.answer(words(50))
    talk.user("go on")
    talk.calls("c2", "c3")
    talk.result("c3", "done")
    writer = Writer(gate=asyncio.Event())
    compactor = Compactor(talk.log, summarizer=writer, tokenizer=TOKENIZER, max_summary_tokens=20)

    async def interrupted() -> None:
        running = asyncio.ensure_future(compactor.compact(trigger="manual"))
        for _ in range(3):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        writer.gate = None
        assert await compactor.compact(trigger="manual") is not None

    asyncio.run(interrupted())
    # a placeholder
    assert [message.tool_call_id for message in talk.view.messages if message.role == "tool"] == [
        "c3",
        "c2",
    ]
    talk.result("c2", "done, too")
    shown = talk.view
    assert [call.id for message in shown.messages for call in message.tool_calls] == ["c2", "c3"]
    assert {
        message.tool_call_id: message.text for message in shown.messages if message.role == "tool"
    } == {"c2": "done, too", "c3": "done"}
    assert shown.repairs == ()


@pytest.mark.spec("E17")
def test_where_all_of_it_may_stay_nobody_is_asked_and_nothing_is_written() -> None:
    talk, writer = parser_talk(), Writer()
    compactor = Compactor(
        talk.log,
        summarizer=writer,
        tokenizer=TOKENIZER,
        max_summary_tokens=20,
        keep=KeepRecentTokens(tokens=10_000),
    )
    before = len(talk.log)

    assert asyncio.run(compactor.compact(trigger="manual")) is None
    assert writer.tasks == []
    assert len(talk.log) == before


@pytest.mark.spec("E19")
def test_a_setting_from_before_the_cut_still_holds_behind_it() -> None:
    talk = ConversationBuilder()
    talk.user(words(50))
    talk.answer(words(50))
    talk.setting("effort")
    talk.user("more")
    compactor = Compactor(
        talk.log,
        summarizer=Writer(),
        tokenizer=TOKENIZER,
        max_summary_tokens=20,
        keep=KeepLastMessages(count=1),
    )
    entry = asyncio.run(compactor.compact(trigger="manual"))

    assert entry is not None
    assert isinstance(entry.payload, Checkpoint)
    assert entry.payload.first_kept == talk.path[3].id
    assert talk.log.settings() == {"effort": "m"}


@pytest.mark.spec("E20")
def test_of_the_first_turn_cut_in_two_one_summary_is_made_of_its_beginning() -> None:
    talk = ConversationBuilder()
    talk.user("Build it.")
    for number in range(4):
        talk.round(f"c{number}", words(50, f"r{number}"))
    plan = select(
        talk.view, leaf=talk.leaf, tokenizer=TOKENIZER, keep=KeepLastMessages(count=2), split=True
    )
    assert (plan.dropped, bool(plan.prefix)) == ((), True)
    with ScriptedModel([summary_reply()]) as model:
        writer = SimpleSummarizer(model=model, window=4_000, tokenizer=TOKENIZER)
        compactor = Compactor(
            talk.log, summarizer=writer, tokenizer=TOKENIZER, max_summary_tokens=20
        )
        asyncio.run(compactor.compact(plan, trigger="manual"))

    (request,) = model.requests
    assert "r2" in request.messages[1].text
    assert [message.text for message in talk.view.messages] == [
        build_summary_message(summary_text()).text,
        "Build it.",
        "",
        words(50, "r3"),
    ]


@pytest.mark.spec("E44")
def test_an_answer_of_which_no_input_was_counted_leaves_the_count_before() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.answer(words(4), used=Usage(input_tokens=100, output_tokens=10))
    talk.user(words(4))
    talk.answer(words(4), used=Usage(input_tokens=0, output_tokens=7, cached_tokens=90))
    reading = UsageMeter(TOKENIZER).read(talk.path, talk.view)

    assert (reading.counted_entry_id, reading.provider) == ("e2", 110 + 4 + 4)


@pytest.mark.spec("E54")
@pytest.mark.parametrize(
    ("phase", "decision"),
    [
        ("turn_end", Compact),
        ("before_render", Compact),
        ("overflow", Promote),
        ("rejected", Promote),
    ],
)
def test_that_there_is_a_larger_model_does_not_put_off_what_is_due_at_a_threshold(
    phase: Phase, decision: type[Decision]
) -> None:
    due = compact_above(lambda _: 9_000, "turn_end", "before_render")
    policy = first_match([compact_on_demand, promote(), on_overflow(), due])
    state = PolicyState(
        phase=phase,
        budget=ContextBudget(window=10_000, reserved_output_tokens=0),
        tokens=9_500,
        larger_model="big",
    )

    assert isinstance(policy.decide(state), decision)


@pytest.mark.spec("E58")
@pytest.mark.parametrize(
    ("first", "second", "trigger"), [(880, 30, "background"), (600, 500, "foreground")]
)
def test_a_summary_that_fails_leaves_nothing_behind_and_the_turns_go_on(
    first: int, second: int, trigger: str
) -> None:
    each = held(words(first, "a"), "done", "more")
    each.writer.error = ValueError("no provider")

    async def talk() -> list[str]:
        answers = [
            await turn_and_rest(each, "first"),
            await turn_and_rest(each, words(second, "second")),
            await turn_and_rest(each, "third"),
        ]
        await each.session.close()
        return answers

    assert asyncio.run(talk()) == [words(first, "a"), "done", "more"]
    assert each.told.triggers[0] == trigger
    assert each.told.ends[0] == "failed"
    modes = [event.mode for event in each.told.events if isinstance(event, CompactionCommitted)]
    if trigger == "foreground":  # the request does not fit, and the extract needs no model
        assert modes == ["extractive"]
        return
    assert modes == []
    assert all(isinstance(entry.payload, MessageEntry) for entry in each.session.transcript.path())
    assert [message.role for message in each.session.compaction.view.messages] == [
        "user",
        "assistant",
    ] * 3


@pytest.mark.spec("E67")
def test_whoever_writes_a_summary_is_given_the_one_before() -> None:
    talk = parser_talk()
    compactor = Compactor(
        talk.log, summarizer=Writer(text="S1"), tokenizer=TOKENIZER, max_summary_tokens=20
    )
    first = asyncio.run(compactor.compact(trigger="manual"))
    for _ in range(2):
        talk.user("Go on.")
        talk.answer(words(20))

    # Such as one that hands the messages to a service of the provider: that knows nothing but what
    # it is sent.
    other = compactor.summarizer = Writer(text="S2")
    asyncio.run(compactor.compact(trigger="manual"))

    (task,) = other.tasks
    assert first is not None
    assert task.plan.previous == "S1"
    assert task.plan.dropped[0].entry_id == first.id
    assert task.plan.dropped[0].message == build_summary_message("S1")


@pytest.mark.spec("E68")
def test_what_every_request_begins_with_is_not_repeated_by_a_checkpoint() -> None:
    log = Transcript()
    log.append_messages(Message(role="system", content=("The project's rules.",)))
    each = held(*(words(50, name) for name in "abcd"), transcript=log)

    async def talk() -> None:
        for name in ("first", "second"):
            await each.session.run(name)
        await each.session.compact()
        await each.session.run("third")
        await each.session.compact()
        await each.session.run("fourth")

    asyncio.run(talk())
    assert len(checkpoints(each.session)) == 2
    sent = each.sent(-1)
    assert sent.count("Be brief.") == 1
    assert sent.count("The project's rules.") == 1
    assert len([text for text in sent if text.startswith("<conversation-summary>")]) == 1
    for entry in checkpoints(each.session):
        assert isinstance(entry.payload, Checkpoint)
        assert "Be brief." not in [message.text for message in entry.payload.replacement or ()]


def reading(*sizes: int) -> ConversationBuilder:
    """The same file read again and again, each time with so many words; then an answer."""
    talk = ConversationBuilder()
    talk.user("Read the rules.")
    for number, size in enumerate(sizes):
        call = ToolCall(id=f"c{number}", name="read", arguments='{"path": "AGENTS.md"}')
        talk.say(Message(role="assistant", tool_calls=(call,)))
        talk.result(call.id, words(size, f"r{number}"))
    talk.answer("I know the rules.")
    return talk


@pytest.mark.spec("E75")
def test_a_read_whose_result_was_pruned_still_shows_what_was_read() -> None:
    talk = reading(500, 500, 500)
    pruning = prune_outputs(
        talk.path, talk.view, ReduceToolResults(protect_tokens=500), tokenizer=TOKENIZER
    )
    talk.append(*pruning.edits)

    shown = talk.view.messages
    assert shown[2].text.startswith("[removed: a newer output of this call follows")
    assert [call.arguments for message in shown for call in message.tool_calls] == [
        '{"path": "AGENTS.md"}'
    ] * 3
    assert not talk.view.repairs
    assert talk.log.get(pruning.edits[0].target).message == Message(
        role="tool", content=(words(500, "r0"),), tool_call_id="c0"
    )


@pytest.mark.spec("E78")
@pytest.mark.parametrize("again", [1, 20, 249])
def test_a_short_or_failed_second_read_does_not_take_the_first_one_out(again: int) -> None:
    talk = reading(500, again)

    assert (
        prune_outputs(
            talk.path, talk.view, ReduceToolResults(protect_tokens=1_000), tokenizer=TOKENIZER
        ).edits
        == ()
    )


def long_turn(name: str) -> tuple[Held, ScriptedModel]:
    """A turn of twelve rounds, in a window that holds half of them."""
    model = ScriptedModel(
        [*(calls(number, path=words(60)) for number in range(12)), "done"], name=name
    )
    each = held(budget=ContextBudget(window=500, reserved_output_tokens=0))
    each.session.set_model(model, budget=ContextBudget(window=500, reserved_output_tokens=0))

    async def talk() -> None:
        await each.session.run("go")
        await each.session.close()

    asyncio.run(talk())
    each.told.check()
    return each, model


@pytest.mark.spec("E90")
def test_a_turn_goes_on_behind_a_summary_without_a_word_that_nobody_said() -> None:
    each, model = long_turn("gpt-5")

    assert checkpoints(each.session)
    told = said(each.session)
    assert [line for line in told if line.startswith("user")] == ["user: go"]
    assert len([line for line in told if line.startswith("assistant")]) == len(model.requests) == 13
    assert [message.text for message in model.requests[-1].messages].count("go") == 1


@pytest.mark.spec("E90")
def test_a_model_that_must_be_told_to_go_on_is_told_once_in_each_request() -> None:
    each, model = long_turn("gpt-4.1")

    told = [
        sum(message.text == REMINDER for message in request.messages) for request in model.requests
    ]
    assert set(told) == {0, 1}
    assert told == sorted(told)
    assert all(REMINDER not in line for line in said(each.session))
