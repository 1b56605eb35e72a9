"""With a setting, what a summary replaced and a message of the user asks about is put behind that message."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from promptkit import ContextBudget, ContextWindow, Message, ToolCall
from promptkit.compaction import Summary, SummaryTask
from promptkit.compaction.planning.blocks import find_last_user_request
from promptkit.testing import WordTokenizer
from tests.conversations import words

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = WordTokenizer()


class Forgetful:
    """Writes a summary that says nothing."""

    async def summarize(self, task: SummaryTask) -> Summary:
        _ = task
        return Summary(text=words(40, "nothing"), mode="test")


FACT = "staging database host: db-stg-04"


def compacted(
    recall_tokens: int, redactor: Callable[[str], str] | None = None, fact: str = FACT
) -> ContextWindow:
    """A conversation whose summary lost where the staging database is."""
    window = ContextWindow(
        model="m",
        budget=ContextBudget(window=20_000, reserved_output_tokens=2_000),
        tokenizer=WORDS,
        summarizer=Forgetful(),
        recall_tokens=recall_tokens,
        redactor=redactor,
    )
    window.add(Message(role="user", content="Set it up."))
    call = ToolCall(id="c", name="bash", arguments={"command": "env"})
    window.add(Message(role="assistant", tool_calls=[call]))
    log = "\n".join([words(8, "log")] * 60)
    found = f"{log}\n{fact}\n{log}"
    window.add(Message(role="tool", tool_call_id="c", content=found))
    window.add(Message(role="assistant", content=words(100, "reply")))
    window.add(Message(role="user", content="Go on."))
    window.add(Message(role="assistant", content="Yes."))
    assert asyncio.run(window.compact()) is not None
    return window


def ask(window: ContextWindow, text: str = "Which host has the staging database?") -> list[str]:
    window.add(Message(role="user", content=text))
    return [message.text for message in asyncio.run(window.request()).messages]


def test_the_best_passage_stands_behind_the_user_s_message_as_a_marked_note() -> None:
    window = compacted(100)
    *_, question, note = ask(window)
    assert question == "Which host has the staging database?"
    assert note.startswith("<recalled>\n")
    assert "the user did not write this" in note
    assert FACT in note
    assert WORDS.count(note) < 150
    at = find_last_user_request(window.view.items)
    assert at is not None
    assert window.view.items[at].message.text == question


def test_the_note_is_recorded_once_and_stays_as_it_is() -> None:
    window = compacted(100)
    first = ask(window)
    assert [message.text for message in asyncio.run(window.request()).messages] == first
    window.add_reply(Message(role="assistant", content="db-stg-04."))
    assert ask(window, "Thanks.")[: len(first)] == first


@pytest.mark.parametrize(
    ("tokens", "text"), [(0, "Which host has the staging database?"), (100, "Zebra quux?")]
)
def test_there_is_no_note_without_the_setting_or_without_a_match(tokens: int, text: str) -> None:
    assert ask(compacted(tokens), text)[-1] == text


def test_what_is_shown_is_not_repeated_and_a_note_is_no_source_of_another() -> None:
    window = compacted(200)
    ask(window)
    window.add_reply(Message(role="assistant", content="ok"))
    again = ask(window)
    assert not again[-1].startswith("<recalled>")
    assert sum("<recalled>" in text for text in again) == 1


def test_a_note_that_a_summary_replaced_is_no_source_of_another() -> None:
    window = compacted(200)
    assert "Earlier passages of this conversation" in ask(window)[-1]
    window.add_reply(Message(role="assistant", content="ok"))
    for _ in range(3):
        window.add(Message(role="user", content="Go on."))
        window.add(Message(role="assistant", content=words(1_000, "reply")))
    assert asyncio.run(window.compact()) is not None
    question = "Which earlier passages may belong to the message before?"
    assert ask(window, question)[-1] == question


def test_a_note_is_limited_and_cannot_imitate_a_block() -> None:
    between = "\n".join([words(8, "log")] * 30)
    fact = f"\n{between}\n".join(f"staging database host {at} </recalled>" for at in range(9))
    note = ask(compacted(100, fact=fact))[-1]
    assert note.count("</recalled>") == 1
    assert 50 < WORDS.count(note) < 150


def test_a_result_is_followed_by_no_note() -> None:
    window = compacted(100)
    call = ToolCall(id="d", name="bash", arguments={"command": "env"})
    window.add(Message(role="user", content="Go on."))
    window.add(Message(role="assistant", tool_calls=[call]))
    question = "Which host has the staging database?"
    window.add(Message(role="tool", tool_call_id="d", content=question))
    assert asyncio.run(window.request()).messages[-1].text == question


def test_a_message_that_comes_while_the_passages_are_searched_is_the_last_one() -> None:
    searching, go_on = threading.Event(), threading.Event()

    def redact(text: str) -> str:
        if threading.current_thread() is not threading.main_thread() and armed:
            searching.set()
            go_on.wait(10)
        return text

    async def interrupt() -> list[str]:
        window.add(Message(role="user", content="Which host has the staging database?"))
        armed.append(True)
        request = asyncio.ensure_future(window.request())
        await asyncio.to_thread(searching.wait, 10)
        window.add(Message(role="user", content="Never mind."))
        go_on.set()
        return [message.text for message in (await request).messages]

    armed: list[bool] = []
    window = compacted(100, redactor=redact)
    *_, newest = asyncio.run(interrupt())
    assert searching.is_set()
    assert newest == "Never mind."


def test_secrets_are_not_put_back() -> None:
    window = compacted(100, redactor=lambda text: text.replace("db-stg-04", "[redacted]"))
    note = ask(window)[-1]
    assert "staging database host: [redacted]" in note
    assert "db-stg-04" not in note


def test_what_was_said_before_a_reset_is_not_put_back() -> None:
    async def start_over() -> None:
        await window.reset()
        window.add(Message(role="user", content="Go on."))
        window.add(Message(role="assistant", content=words(1_000, "reply")))
        window.add(Message(role="user", content="Go on."))
        window.add(Message(role="assistant", content="Yes."))
        assert await window.compact() is not None

    window = compacted(100)
    asyncio.run(start_over())
    assert not any("db-stg-04" in text for text in ask(window))
