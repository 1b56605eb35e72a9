"""Conversations of every shape that a transcript allows: parallel calls, missing results, reminders, edits, resets, compactions, branches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from promptkit.compaction.planning.selection import (
    Keep,
    KeepLastMessages,
    KeepLastRound,
    KeepLastTurns,
    KeepNothing,
    KeepRecentTokens,
    KeepUserMessages,
    select,
)
from promptkit.messages import ImagePart, Message
from promptkit.testing import WordTokenizer
from tests.conversations import (
    ConversationBuilder,
    assistant_message,
    call_message,
    result_message,
    user_message,
    words,
)

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

__all__ = ["TOKENIZER", "conversations", "keeps", "talks"]

TOKENIZER = WordTokenizer(per_message=1, per_call=2, per_image=5)
SAID = (
    "user",
    "user",
    "image",
    "system",
    "answer",
    "answer",
    "failed",
    "round",
    "round",
    "round",
    "late",
    "reminder",
    "branch",
    "setting",
)
POINTS = json.dumps({"points": list(range(90))})
"""Arguments that cannot be shortened."""
CHANGES = ("edit", "hide", "reset", "compact", "rewind")


def keeps() -> st.SearchStrategy[Keep]:
    """Every way to keep something."""
    few, tokens = st.integers(0, 6), st.integers(0, 60)
    return st.one_of(
        st.builds(KeepLastRound, count=few, background=st.booleans()),
        st.builds(KeepRecentTokens, tokens=tokens),
        st.builds(KeepLastMessages, count=few),
        st.builds(KeepLastTurns, count=few),
        st.builds(KeepUserMessages, tokens=tokens),
        st.just(KeepNothing()),
    )


@st.composite
def talks(draw: DrawFn, *, size: int = 14) -> ConversationBuilder:
    """A conversation of up to `size` steps."""
    talk = ConversationBuilder()
    unanswered: list[str] = []
    for number, step in enumerate(
        draw(st.lists(st.sampled_from((*SAID, *CHANGES)), max_size=size))
    ):
        text = words(draw(st.integers(1, 12)), f"w{number}")
        if step == "round":
            _round(draw, talk, number, text, unanswered)
        elif step == "late" and unanswered:
            talk.result(unanswered.pop(), text)
        elif step in CHANGES and talk.leaf:
            _change(draw, talk, step, unanswered)
        else:
            _say(talk, step, text, f"f{number}")
    return talk


def _say(talk: ConversationBuilder, step: str, text: str, call: str) -> None:
    match step:
        case "user":
            talk.user(text)
        case "image":
            talk.user(text, ImagePart(url="https://example.com/x.png"))
        case "system":
            talk.system(text)
        case "answer":
            talk.answer(text)
        case "failed":
            talk.calls(call, finish="error")
        case "reminder":
            talk.reminder(text)
        case "branch" if talk.leaf:
            talk.branch(text)
        case _:
            talk.setting()


def _round(
    draw: DrawFn, talk: ConversationBuilder, number: int, text: str, unanswered: list[str]
) -> None:
    calls = [f"c{number}_{at}" for at in range(draw(st.integers(1, 3)))]
    talk.calls(*calls, name=draw(st.sampled_from(["read", "skill"])))
    for call in calls:
        if draw(st.integers(0, 5)):
            talk.result(call, text)
        else:
            unanswered.append(call)


def _change(draw: DrawFn, talk: ConversationBuilder, step: str, unanswered: list[str]) -> None:
    """What changes the view of what is there."""
    if step == "reset":
        talk.reset()
        unanswered.clear()
    elif step == "rewind":
        talk.log.rewind(draw(st.sampled_from([entry.id for entry in talk.path])))
        unanswered.clear()
    elif step == "compact":
        plan = select(talk.view, leaf=talk.leaf, tokenizer=TOKENIZER, keep=draw(keeps()))
        if not plan.is_empty:
            talk.compact(plan)
    else:
        said = [entry.id for entry in talk.path if entry.message and entry.message.role == "tool"]
        if said:
            talk.edit(draw(st.sampled_from(said)), *(["edited"] if step == "edit" else []))


@st.composite
def conversations(draw: DrawFn) -> list[Message]:
    """Conversations with very long and very short messages, with and without calls."""
    lengths = st.sampled_from([0, 1, 3, 20, 150, 800])
    said: list[Message] = []
    for number in range(draw(st.integers(0, 12))):
        text = words(draw(lengths), f"w{number}") + draw(
            st.sampled_from(["", "\nend", "\n\n", "é"])
        )
        match draw(
            st.sampled_from(["system", "user", "user", "assistant", "round", "round", "round"])
        ):
            case "system":
                said.append(Message(role="system", content=(text,)))
            case "user":
                said.append(user_message(text))
            case "assistant":
                said.append(assistant_message(text))
            case _:
                ids = [f"c{number}_{at}" for at in range(draw(st.integers(1, 3)))]
                arguments = json.dumps(
                    {
                        "path": "a.py",
                        "text": words(draw(lengths), "x"),
                        "lines": ["one\ntwo", {"deep": text}],
                    }
                )
                said.append(
                    call_message(
                        *ids,
                        text=draw(st.sampled_from(["", "I look."])),
                        arguments=draw(st.sampled_from(["{}", arguments, POINTS])),
                    )
                )
                said += [result_message(each, words(draw(lengths), f"r{number}")) for each in ids]
    return said
