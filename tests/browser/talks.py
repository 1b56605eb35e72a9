"""Logs of conversations for the tests and the screenshots of their page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from promptkit import Message, ToolCall, Transcript, Usage
from promptkit.lab.replay.conversation_log import (
    RECORDED,
    ConversationLog,
    LoggedMessage,
    LogMessages,
    LogOptions,
    RequestLogger,
    log_path,
)
from promptkit.lab.replay.runner import SentRequest
from promptkit.messages import OpaquePart
from promptkit.tokens import read_prices
from promptkit.tokens.prices import BilledTokens
from promptkit.tools import ERROR_MARK
from promptkit.transcript.log.entries import Checkpoint, Edit, MessageEntry
from tests.browser.prompts import HOSTILE
from tests.conversations import assistant_message, call_message, result_message, user_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.transcript import Entry

__all__ = ["agent_log", "compacted_talk", "hostile_log", "long_log", "talk_log", "work_talk"]

PRICES = read_prices()


def compacted_talk() -> Sequence[Entry]:
    """A conversation with a pruned result and two checkpoints, as a session records it."""
    transcript = Transcript(
        clock=iter(range(1_790_000_000, 1_800_000_000, 30)).__next__,
        new_id=iter(f"e{n}" for n in range(10_000)).__next__,
    )
    for turn in range(6):
        transcript.append_messages(user_message(f"Question {turn}: what does part {turn} do?"))
        usage = Usage(input_tokens=400 + 200 * turn, cached_tokens=150 * turn, output_tokens=20)
        transcript.append(
            MessageEntry(message=call_message(f"c{turn}", text=f"I read part {turn}."), usage=usage)
        )
        (result,) = transcript.append_messages(
            result_message(f"c{turn}", f"def part_{turn}(): return {turn}\n" * 12)
        )
        transcript.append(
            MessageEntry(message=assistant_message(f"Part {turn} returns {turn}."), usage=usage)
        )
        if turn == 1:
            transcript.append(Edit(target=result.id, content=("[pruned]",), reason="pruned"))
        if turn in {2, 4}:
            transcript.append(
                Checkpoint(
                    summary=f"Parts 0 to {turn} were read.",
                    first_kept=transcript.append_messages(user_message("Go on."))[0].id,
                )
            )
            transcript.append_messages(assistant_message("I go on."))
    return transcript.path()


def talk_log(*sources: str, window: int = 4_000) -> ConversationLog:
    """Its log."""
    return log_path(
        compacted_talk(),
        LogOptions(prices=PRICES, sources=sources or (RECORDED,), model="gpt-5", window=window),
        seed="s",
    )


def agent_log() -> ConversationLog:
    """A short conversation with thinking, an edit, a failed call, and a long result."""
    thinking = OpaquePart(value={"type": "thinking", "thinking": "The date has no zone."})
    edit = {
        "path": "a.py",
        "old_string": "import json\nnow()\n",
        "new_string": "import json\nnow(UTC)\n",
    }
    call = ToolCall(id="c2", name="edit_file", arguments=json.dumps(edit))
    long = "".join(f"line {number}\n" for number in range(400)) + "the needle\n"
    transcript = Transcript()
    transcript.append_messages(
        user_message("Mend a.py."),
        call_message("c1", name="read_file", arguments='{"path": "a.py"}'),
        result_message("c1", long),
        Message(role="assistant", content=(thinking, "I edit it."), tool_calls=(call,)),
        Message(role="tool", tool_call_id="c2", content=("No such file.", ERROR_MARK)),
        call_message("c3", name="list_files", arguments="{}"),
    )
    return log_path(transcript.path(), LogOptions(prices=PRICES, model="gpt-5"))


def hostile_log() -> ConversationLog:
    """Content that tries to be more than text, wherever a conversation has any."""
    transcript = Transcript()
    for text in HOSTILE:
        call = ToolCall(id=text[:60], name=text[:60], arguments=text)
        transcript.append_messages(Message(role="user", name=text[:60], content=(text,)))
        transcript.append(
            MessageEntry(
                message=Message(role="assistant", content=(text, text), tool_calls=(call,)),
                model=text[:60],
            )
        )
        transcript.append_messages(result_message(text[:60], text))
    transcript.append(
        Checkpoint(
            summary="\n".join(HOSTILE),
            first_kept=transcript.append_messages(user_message("Go on."))[0].id,
        )
    )
    transcript.append_messages(assistant_message("end"))
    return log_path(transcript.path(), LogOptions(prices=PRICES, model="gpt-5", window=20_000))


def long_log(requests: int, *, window: int = 60) -> ConversationLog:
    """A long conversation that is summarized whenever a request shows more than `window` messages."""
    conversation: list[LoggedMessage] = []
    for number in range(requests):
        conversation.append(
            LoggedMessage(
                message=user_message(
                    f"Question {number}: " + "words that fill it " * (3 + number % 9)
                ),
                tokens=40,
            )
        )
        conversation.append(
            LoggedMessage(message=assistant_message(f"Answer {number}."), tokens=10)
        )
    messages = LogMessages(conversation)
    logger = RequestLogger(
        messages, request_tokens=20, has_tools=True, price=PRICES.for_model("gpt-5")
    )
    shown: list[int] = []
    for number in range(requests):
        checkpoint = len(shown) > window
        if checkpoint:
            summary = LoggedMessage(
                message=user_message(f"Summary before {number}."),
                tokens=30,
                kind="summary",
                covers=(0, 2 * number),
            )
            shown = [messages.add(summary)]
        shown.append(2 * number)
        billed = BilledTokens(
            input_tokens=20 + sum(messages.all[each].tokens for each in shown), output_tokens=10
        )
        request = SentRequest(reply=2 * number + 1, billed=billed, checkpoint=checkpoint)
        logger.add(shown, request, simulated=True)
        shown.append(2 * number + 1)
    log = logger.finish(RECORDED, BilledTokens())
    return ConversationLog(
        messages=tuple(messages.all),
        length=messages.length,
        logs=(log,),
        model="gpt-5",
        window=2_000,
        limit=1_600,
    )


def work_talk(turns: int) -> list[Message]:
    """A conversation of a coding agent: reading, editing, and running tests."""
    talk: list[Message] = [
        Message(
            role="system",
            content=(
                "You are a coding agent. You read before you edit, and run the tests after it. "
                * 12,
            ),
        )
    ]
    for turn in range(turns):
        talk.append(
            user_message(
                f"Mend the import of format {turn}: the recording in tests/data/format_{turn}.json is not read."
            )
        )
        for step, (name, size) in enumerate(
            (
                ("read_file", 30 + 17 * (turn % 5)),
                ("grep", 12),
                ("edit_file", 3),
                ("run_tests", 9 + 8 * (turn % 3)),
            )
        ):
            call = f"call_{turn}_{step}"
            talk.append(
                call_message(
                    call,
                    text=f"Step {step + 1} of format {turn}.",
                    name=name,
                    arguments=f'{{"path": "src/format_{turn}.py"}}',
                )
            )
            talk.append(
                result_message(
                    call,
                    "".join(f"{line}: format_{turn}.read(value_{line})\n" for line in range(size)),
                )
            )
        talk.append(
            assistant_message(
                f"format_{turn} is read now: its dates have no zone, so src/format_{turn}.py adds UTC. The tests pass."
            )
        )
    return talk
