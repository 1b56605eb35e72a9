"""The rules of others, with the figures that they are documented with."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import ContextBudget, Message
from promptkit.lab.replay.policies import (
    OPENING,
    TOO_LONG,
    CountedMessages,
    LangChainRun,
    ReplayTerms,
    drop_oldest,
    trim_last,
    truncate_in_steps,
)
from promptkit.lab.replay.prompt_cache import MessageCounts
from promptkit.tokens import tokenizer_for
from tests.conversations import assistant_message, result_message, user_message
from tests.unit.lab.replay.conversations import long_conversation, run_call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def build_conversation(messages: Sequence[Message], tokens: int) -> CountedMessages:
    known = CountedMessages()
    for message in messages:
        known.add(message, tokens)
    return known


def chat(count: int) -> list[Message]:
    return [
        user_message(f"m{number}") if number % 2 == 0 else assistant_message(f"m{number}")
        for number in range(count)
    ]


@pytest.mark.parametrize("rule", [drop_oldest, trim_last, truncate_in_steps])
def test_messages_that_fit_are_kept(
    rule: Callable[[CountedMessages, int], Sequence[Message]],
) -> None:
    messages = chat(9)
    assert list(rule(build_conversation(messages, 10), 90)) == messages


def test_prompt_poet_moves_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("promptkit.lab.replay.policies.TRUNCATION_STEP", 50)
    first = [
        truncate_in_steps(build_conversation(chat(count), 10), 90)[0].text for count in range(9, 26)
    ]
    assert first == ["m0", *["m5"] * 5, *["m10"] * 5, *["m15"] * 5, "m20"]


def test_prompt_poet_never_cuts_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("promptkit.lab.replay.policies.TRUNCATION_STEP", 1_000)
    assert [
        message.text for message in truncate_in_steps(build_conversation(chat(10), 10), 90)
    ] == ["m9"]


def test_trim_last_starts_with_a_user_message_or_is_empty() -> None:
    assert [message.text for message in trim_last(build_conversation(chat(10), 10), 35)] == [
        "m8",
        "m9",
    ]
    turn = [
        user_message("Mend it."),
        *(
            each
            for number in range(9)
            for each in (run_call(f"c{number}"), result_message(f"c{number}", "out"))
        ),
    ]
    assert list(trim_last(build_conversation(turn, 10), 50)) == []


def test_drop_oldest_keeps_calls_with_results_and_what_was_asked_in_front() -> None:
    turn = [
        user_message("Mend it."),
        *(
            each
            for number in range(9)
            for each in (run_call(f"c{number}"), result_message(f"c{number}", "out"))
        ),
    ]
    assert list(drop_oldest(build_conversation(turn, 10), 60)) == [turn[0], *turn[-4:]]
    assert list(drop_oldest(build_conversation(chat(10), 10), 35)) == chat(10)[-2:]


def terms(window: int) -> ReplayTerms:
    tokenizer = tokenizer_for("gpt-5")
    return ReplayTerms(
        budget=ContextBudget(window=window, reserved_output_tokens=0),
        tokenizer=tokenizer,
        counts=MessageCounts(tokenizer),
        tools=(),
        system=(),
        request_tokens=3,
        rng=lambda: 0.0,
        clock=lambda: 0.0,
    )


def sent(run: LangChainRun, messages: Sequence[Message]) -> list[list[Message]]:
    async def play() -> list[list[Message]]:
        found: list[list[Message]] = []
        for message in messages:
            if message.role == "assistant":
                found.append(list(await run.request()))
                await run.add_reply(message, None)
            else:
                await run.add(message)
        return found

    return asyncio.run(play())


def test_langchain_keeps_the_newest_twenty_behind_a_summary_of_the_last_4000_tokens() -> None:
    run = LangChainRun(terms(8_000))
    requests = sent(run, long_conversation(14))
    first = next(request for request in requests if request[0].text.startswith(OPENING))
    assert 20 <= len(first) - 1 <= 22  # a cut between a call and its result goes back to the call
    assert first[1].role != "tool"
    assert run.checkpoints == run.waits == sum(a[:1] != b[:1] for a, b in pairwise(requests))
    assert run.summary_calls
    assert all(
        call.uncached_tokens < 8_000 and call.output_tokens > 0 and not call.request
        for call in run.summary_calls
    )  # 4,000 by its own count


def test_langchain_gives_up_a_long_turn_without_asking_a_model() -> None:
    turn = [user_message("Mend it. " + "word " * 300)]
    for number in range(40):
        turn += [run_call(f"c{number}"), result_message(f"c{number}", "out " * 600)]
    run = LangChainRun(terms(20_000))
    requests = sent(run, turn)
    assert any(request[0].text == OPENING + TOO_LONG for request in requests)
    assert not run.summary_calls


def test_langchain_with_a_known_limit_only() -> None:
    unknown = attrs.evolve(terms(8_000), budget=ContextBudget())
    talk = long_conversation(14)
    assert sent(LangChainRun(unknown), talk)[-1] == talk[:-1]
