"""Figures and losses do not vary with what is replaced."""

from __future__ import annotations

from typing import Any, Literal
from uuid import uuid4

import pytest

from promptkit import AssistantMessage, Count, PromptElement, Role, ToolCall, ToolMessage, Truncate, UserMessage, tokenizer_for
from promptkit.testing.levels import Asked, levels_of
from promptkit.testing.losses import prompt_document
from promptkit.testing.receipt import receipt_document
from promptkit.testing.stabilize import Stabilizer, Stable
from promptkit.testing.steady import steady
from promptkit.testing.words import WordTokenizer


def prompt(unique: str) -> tuple[PromptElement, ...]:
    return (
        *(UserMessage(priority=number)[f"{number}: the order {unique} is late, where is it?"] for number in range(20)),
        AssistantMessage(priority=50, tool_calls=(ToolCall(id=unique, name="find", arguments=f'{{"order": "{unique}"}}'),)),
        ToolMessage(priority=50, tool_call_id=unique)[f"{unique} was sent."],
        UserMessage(priority=60)[Truncate(tokens=60)[f"Log of {unique}.\n" * 30]],
    )


@pytest.mark.parametrize("write", [prompt_document, receipt_document])
def test_a_prompt_with_a_new_id_has_the_same_snapshot_at_every_budget(write: object) -> None:
    def document(unique: str) -> str:
        stable = Stable(Stabilizer(ids=True))
        levels = levels_of(prompt(unique), Asked(budgets=tuple(range(100, 500, 17))), stable)
        return prompt_document(levels) if write is prompt_document else receipt_document(levels, stable)

    # Ids of few and of many tokens: without steady counting one loses what the other keeps.
    assert document("call_aaaaaaaaaaaaaaaa1") == document(str(uuid4())) == document("chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT")


def test_without_replacements_counting_is_what_it_was() -> None:
    tokenizer = tokenizer_for(None)
    assert steady(tokenizer, Stabilizer()) is tokenizer
    assert steady(tokenizer, Stabilizer(dates=True)).count("no date") == tokenizer.count("no date")


def test_frames_parts_and_requests_are_those_of_the_tokenizer() -> None:
    tokenizer = tokenizer_for("gpt-5")
    counting = steady(tokenizer, Stabilizer(ids=True))
    calls = [ToolCall(id="<id>", name="f", arguments="{}")]
    assert counting.name == tokenizer.name
    assert counting.frame("assistant", tool_calls=[ToolCall(id="x", name="f")], text=False) == tokenizer.frame(
        "assistant", tool_calls=calls, text=False
    )
    assert counting.request() == tokenizer.request()


class _Asked(WordTokenizer):
    """Says that a frame costs as many tokens as its id has characters."""

    def frame(self, role: Role, **of: Any) -> Count:
        return Count(len(of["tool_call_id"] or ""))


def test_the_id_of_a_result_is_counted_as_its_placeholder() -> None:
    assert steady(_Asked(), Stabilizer(ids=True)).frame("tool", tool_call_id=str(uuid4())) == Count(len("<id>"))


@pytest.mark.parametrize("keep", ["head", "tail"])
def test_a_cut_is_an_end_of_the_text_that_fits_even_inside_one_long_word(keep: Literal["head", "tail"]) -> None:
    counting = steady(tokenizer_for(None), Stabilizer(ids=True))
    for text in ("", "one", "one two  three\n four " * 9, "word" * 900):
        for tokens in (0, 1, 7, 100):
            cut = counting.truncate(text, tokens, keep=keep)
            assert text.startswith(cut) if keep == "head" else text.endswith(cut)
            assert counting.count(cut) <= tokens
            assert cut or not (text and tokens)
