"""The log of a conversation: each request shows exactly what was sent, and what it cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from promptkit import JsonlStore, Message, Transcript, Usage
from promptkit.agent import ContextWindow
from promptkit.errors import TranscriptError
from promptkit.lab.replay import ReplayOptions, ReplayRules, find_policy
from promptkit.lab.replay.conversation_log import (
    PARTS,
    RECORDED,
    ConversationLog,
    LoggedMessage,
    LogMessages,
    LogOptions,
    RequestLog,
    RequestLogger,
    log_conversation,
    log_path,
)
from promptkit.lab.replay.conversation_page import build_columns, conversation_to_html
from promptkit.lab.replay.recordings import recording_from_messages
from promptkit.lab.replay.runner import SentRequest, Simulation, replay_file
from promptkit.messages import OpaquePart
from promptkit.tokens import read_prices
from promptkit.tokens.prices import BilledTokens
from promptkit.transcript.log.entries import Checkpoint, Entry, MessageEntry, Reset
from promptkit.transcript.log.view import build_view
from tests.behaviour.transcript_strategies import transcripts
from tests.conversations import assistant_message, user_message
from tests.examples import examples
from tests.unit.lab.replay.conversations import expand_change, long_conversation, write_transcript

PRICES = read_prices()
OPTIONS = LogOptions(prices=PRICES, model="gpt-5")


def open_transcript(file: Path) -> Transcript:
    return Transcript(JsonlStore(file))


def shown_by(requests: RequestLog) -> list[list[int]]:
    """The numbers of the messages that each request shows."""
    found: list[list[int]] = []
    for request in requests.requests:
        found.append(expand_change(found[-1] if found else (), request.change))
    return found


def messages_of(log: ConversationLog, numbers: Sequence[int]) -> list[Message]:
    return [log.messages[number].message for number in numbers]


def replies(path: Sequence[Entry]) -> list[int]:
    """The places of the messages that answered a request."""
    said = [
        at
        for at, entry in enumerate(path)
        if (message := entry.message)
        and (message.content or message.tool_calls or message.role == "tool")
    ]
    return [at for at in said[1:] if (message := path[at].message) and message.role == "assistant"]


@settings(max_examples=examples(60))
@given(transcript=transcripts())
def test_a_recorded_request_shows_the_view_of_the_transcript_before_its_reply(
    transcript: Transcript,
) -> None:
    path = transcript.path()
    log = log_path(path, OPTIONS)
    shown = shown_by(log.logs[0])
    expected = [list(build_view(path[:at]).messages) for at in replies(path)]
    assert [messages_of(log, numbers) for numbers in shown] == expected


@settings(max_examples=examples(60))
@given(lists=st.lists(st.lists(st.integers(0, 30), unique=True, max_size=20), max_size=8))
def test_a_change_gives_the_messages_of_the_next_request(lists: list[list[int]]) -> None:
    messages = LogMessages(
        [LoggedMessage(message=user_message(str(number)), tokens=1) for number in range(31)]
    )
    logger = RequestLogger(messages, request_tokens=2, has_tools=True, price=None)
    nothing = BilledTokens()
    for shown in lists:
        logger.add(shown, SentRequest(reply=31, billed=nothing), simulated=True)
    before: list[int] = []
    for shown, request in zip(lists, logger.finish("x", nothing).requests, strict=True):
        before = expand_change(before, request.change)
        assert before == shown
        assert dict(zip(PARTS, request.parts, strict=True)) == dict.fromkeys(PARTS, 0) | {
            "tools": 2,
            "user": len(shown),
        }


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A conversation that outgrows a small window, in which the user says the same several times."""
    turns = long_conversation(9)
    messages = [
        each
        for at in range(0, len(turns), 8)
        for each in (user_message("go on"), assistant_message("I go on."), *turns[at : at + 8])
    ]
    return write_transcript(tmp_path_factory.mktemp("logs") / "talk.jsonl", messages)


@pytest.mark.parametrize("name", ["vscode", "drop_oldest", "langchain"])
def test_a_replayed_request_shows_what_the_policy_sent(name: str, talk: Path) -> None:
    options = LogOptions(prices=PRICES, sources=(name,), model="gpt-5", window=8_000)
    entries = open_transcript(talk).path()
    recording = recording_from_messages(
        [(entry.message, entry.time) for entry in entries if entry.message]
    )
    sent: list[SentRequest] = []
    Simulation(recording, ReplayRules(model="gpt-5", window=8_000, cache="openai")).run(
        find_policy(name), seed="s", on_request=sent.append
    )
    log = log_path(entries, options, seed="s")
    shown = shown_by(log.logs[0])
    assert [messages_of(log, numbers) for numbers in shown] == [
        [count.message for count in each.messages] for each in sent
    ]
    assert [request.tokens for request in log.logs[0].requests] == [
        sum(request.parts) for request in log.logs[0].requests
    ]
    if name != "drop_oldest":
        assert sum(request.checkpoint for request in log.logs[0].requests) > 0
    # A message that was said several times is the latest one before the reply, not the first.
    for numbers, request in zip(shown, log.logs[0].requests, strict=True):
        said = [number for number in numbers if number < log.length]
        assert said == sorted(said)
        assert said[-1] == request.reply - 1


def test_a_log_costs_what_the_table_of_a_replay_says(talk: Path) -> None:
    rules = ReplayRules(model="gpt-5", window=8_000, cache="openai")
    result = replay_file(
        talk, ReplayOptions(policies=("vscode",), rules=rules, price=PRICES.for_model("gpt-5"))
    )
    log = log_conversation(
        talk, LogOptions(prices=PRICES, sources=("vscode",), model="gpt-5", window=8_000)
    )
    assert log.logs[0].price == pytest.approx(result.policies[0].price)
    prices = [request.price for request in log.logs[0].requests if request.price is not None]
    assert all(one < other for one, other in pairwise(prices))


def test_a_replay_bills_the_reported_output_where_the_text_of_thinking_is_missing() -> None:
    transcript = Transcript()
    transcript.append_messages(user_message("Hello"))
    thinking = OpaquePart(provider="anthropic", value={"type": "redacted_thinking", "data": "zz"})
    reply = attrs.evolve(assistant_message("Yes"), content=(thinking, "Yes"))
    transcript.append(MessageEntry(message=reply, usage=Usage(input_tokens=10, output_tokens=700)))
    (log,) = log_path(
        transcript.path(), LogOptions(prices=PRICES, sources=("vscode",), model="gpt-5")
    ).logs
    assert log.requests[0].billed.output_tokens == 700


def test_more_cached_tokens_than_the_request_has_do_not_make_its_price_negative() -> None:
    transcript = Transcript()
    transcript.append_messages(user_message("Hello"))
    usage = Usage(input_tokens=100, cached_tokens=9_000, written_tokens=50)
    transcript.append(MessageEntry(message=assistant_message("Yes"), usage=usage))
    (log,) = log_path(transcript.path(), OPTIONS).logs
    assert log.requests[0].billed == BilledTokens(input_tokens=100, cached_tokens=100)
    assert log.price == pytest.approx(100 * 0.125 / 1e6)


def test_a_summary_stands_for_what_the_checkpoint_covers() -> None:
    transcript = Transcript()
    transcript.append_messages(user_message("old"), assistant_message("forgotten"))
    transcript.append(Reset())
    _, kept = (transcript.append_messages(user_message(text))[0] for text in ("one", "two"))
    transcript.append(
        Checkpoint(summary="One was said.", first_kept=kept.id, usage=Usage(input_tokens=1_000_000))
    )
    transcript.append_messages(assistant_message("three"))
    log = log_path(transcript.path(), OPTIONS)
    _, request = log.logs[0].requests
    (summary,) = (each for each in log.messages if each.kind == "summary")
    assert summary.covers == (2, 3)
    assert request.checkpoint
    spent = log.logs[0].requests[0].price
    assert spent is not None
    # with the request for the summary
    assert request.price == pytest.approx(
        spent + PRICES.for_model("gpt-5").cost(request.billed) + 1.25
    )


def test_the_providers_figures_hold_where_they_were_recorded() -> None:
    transcript = Transcript()
    transcript.append_messages(user_message("one"))
    transcript.append(
        MessageEntry(
            message=assistant_message("two"),
            usage=Usage(input_tokens=500, cached_tokens=400, output_tokens=7),
        )
    )
    transcript.append_messages(user_message("three"), assistant_message("four"))
    log = log_path(transcript.path(), OPTIONS)
    first, second = log.logs[0].requests
    assert (
        first.tokens,
        first.billed.cached_tokens,
        first.billed.output_tokens,
        first.simulated,
    ) == (500, 400, 7, False)
    assert first.parts[PARTS.index("unrecorded")] == 500 - sum(first.parts[:-1]) > 400
    assert second.simulated
    assert second.parts[PARTS.index("unrecorded")] == 0


def test_a_file_that_has_no_such_conversation_is_refused(talk: Path, tmp_path: Path) -> None:
    with pytest.raises(
        TranscriptError, match=r"there is no conversation 2\. The file has 1, counted from 1"
    ):
        log_conversation(talk, LogOptions(prices=PRICES, branch=2))
    empty = tmp_path / "empty.jsonl"
    empty.write_text(json.dumps({"promptkit": "transcript", "version": 1}) + "\n")
    with pytest.raises(TranscriptError, match="there is no message in it"):
        log_conversation(empty, OPTIONS)


def test_each_branch_can_be_chosen(tmp_path: Path) -> None:
    transcript = open_transcript(tmp_path / "talk.jsonl")
    (first,) = transcript.append_messages(user_message("one"))
    transcript.append_messages(assistant_message("two"))
    transcript.rewind(first.id)
    transcript.append_messages(
        assistant_message("other"), user_message("more"), assistant_message("last")
    )
    logs = [
        log_conversation(tmp_path / "talk.jsonl", LogOptions(prices=PRICES, branch=branch))
        for branch in (1, 2, None)
    ]
    assert [[each.message.text for each in log.messages] for log in logs] == [
        ["one", "two"],
        *[["one", "other", "more", "last"]] * 2,
    ]
    assert [(log.branch, log.branches) for log in logs] == [(1, 2), (2, 2), (2, 2)]


@pytest.mark.slow
def test_a_page_grows_with_the_conversation_and_not_with_its_square(tmp_path: Path) -> None:
    sizes: list[int] = []
    for turns in (10, 20):
        file = write_transcript(tmp_path / f"{turns}.jsonl", long_conversation(turns, words=30))
        log = log_conversation(
            file,
            LogOptions(
                prices=PRICES, sources=(RECORDED, "drop_oldest"), model="gpt-5", window=6_000
            ),
        )
        sizes.append(
            len(conversation_to_html(log))
            - len(conversation_to_html(log_path(open_transcript(file).path()[:1], OPTIONS)))
        )
        assert json.dumps(build_columns(log)).count("load_row_7 is mended") == 1
    assert sizes[1] < 2.2 * sizes[0]


def test_a_page_shows_the_limit_that_the_conversation_ran_under() -> None:
    transcript = Transcript()
    window = ContextWindow(model="gpt-5", budget="8k", transcript=transcript)
    window.add(user_message("Hello"))
    asyncio.run(window.request())
    window.add_reply(assistant_message("Yes"))
    budgets = [
        entry.payload.budget
        for entry in transcript.path()
        if isinstance(entry.payload, MessageEntry) and entry.payload.budget
    ]
    assert [budget.limit for budget in budgets] == [8_000]
    assert log_path(transcript.path(), LogOptions(prices=PRICES)).limit == 8_000
    chosen = LogOptions(prices=PRICES, window=100_000)
    assert log_path(transcript.path(), chosen).limit != 8_000
