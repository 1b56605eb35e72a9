"""What may stand on the left of a snapshot, and how it is asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import promptkit.testing
from promptkit import Image, Message, SystemMessage, ToolDefinition, UserMessage, render
from promptkit.errors import EmitError, UnknownModelError
from promptkit.testing.snapshots.documents import (
    SnapshotOptions,
    StabilizeOptions,
    Stabilizer,
    render_levels,
)
from promptkit.testing.snapshots.snapshot import Mismatch
from promptkit.testing.word_tokenizer import WordTokenizer

if TYPE_CHECKING:
    from promptkit.testing import MessagesSnapshot, PromptSnapshot, ReceiptSnapshot

WORDS = WordTokenizer()
TOOL = ToolDefinition(name="read_file", description="Reads a file.")
PROMPT = (SystemMessage(required=True)["Be brief."], UserMessage()["What is this?"])


def test_an_element_a_tuple_a_list_and_a_rendered_are_prompts(
    prompt_snapshot: PromptSnapshot,
) -> None:
    assert prompt_snapshot(name="prompt") == PROMPT
    assert prompt_snapshot(name="prompt") == PROMPT
    assert list(PROMPT) == prompt_snapshot(name="prompt")
    assert render(PROMPT) == prompt_snapshot(name="prompt")
    assert PROMPT[0] == prompt_snapshot(name="element")


@pytest.mark.parametrize("value", ["text", None, 1, {"role": "user"}, Message(role="user")])
def test_anything_else_is_refused(prompt_snapshot: PromptSnapshot, value: object) -> None:
    with pytest.raises(
        TypeError,
        match=f"an element, a tuple of elements or a Rendered, not a {type(value).__name__}",
    ):
        assert value == prompt_snapshot


def test_a_rendered_prompt_is_not_rendered_again(prompt_snapshot: PromptSnapshot) -> None:
    with pytest.raises(TypeError, match="compare the element itself"):
        assert render(PROMPT) == prompt_snapshot.at(budgets=[10])


def test_no_budget_is_refused_at_once(prompt_snapshot: PromptSnapshot) -> None:
    with pytest.raises(ValueError, match="names no budget"):
        prompt_snapshot.at(budgets=[])


@pytest.mark.parametrize("budgets", ["gpt-5", 4_000])
# Any stands for it is wrong
def test_one_budget_that_is_no_list_is_refused_at_once(
    prompt_snapshot: PromptSnapshot, budgets: Any
) -> None:
    with pytest.raises(TypeError, match=re.escape(f"write at(budgets=[{budgets!r}])")):
        prompt_snapshot.at(budgets=budgets)


def test_a_great_change_is_counted_in_full_and_shown_in_part() -> None:
    mismatch = Mismatch(
        "a.md", tuple(f"{mark}{n}" for mark in "-+" for n in range(1_000)), is_new=False
    )
    assert str(mismatch).startswith("Lines: 1,000 removed, 1,000 new,")
    assert len(mismatch.shown_lines) == 401
    assert mismatch.shown_lines[-1] == "… and 1,600 more lines"


def test_a_form_of_ids_that_is_no_regular_expression_is_refused_at_once(
    prompt_snapshot: PromptSnapshot,
) -> None:
    with pytest.raises(re.error):
        prompt_snapshot.stabilize(ids="(")


def test_what_a_render_raises_fails_the_test(
    prompt_snapshot: PromptSnapshot, messages_snapshot: MessagesSnapshot
) -> None:
    with pytest.raises(UnknownModelError):
        assert prompt_snapshot.at(budgets=["no-such-model"]) == PROMPT
    with pytest.raises(EmitError):
        assert SystemMessage()[Image(url="data:image/png;base64,AAAA")] == messages_snapshot


def test_the_tokenizer_and_the_tools_count() -> None:
    asked = (
        SnapshotOptions(budgets=(100,)),
        SnapshotOptions(budgets=(100,), tools=(TOOL,)),
        SnapshotOptions(budgets=(100,), tokenizer=WORDS),
    )
    tokens = [
        level.rendered.tokens
        for each in asked
        for level in render_levels(PROMPT, each, Stabilizer(StabilizeOptions()))
        if level.rendered
    ]
    assert tokens == [render(PROMPT).tokens, render(PROMPT, tools=[TOOL]).tokens, 5]
    assert len(set(tokens)) == 3


def test_what_was_asked_for_before_stays(receipt_snapshot: ReceiptSnapshot) -> None:
    first = receipt_snapshot.stabilize(str.upper, dates=True).at(budgets=[10])
    second = first.stabilize(str.lower, ids="x", paths=True)(name="named")
    assert second.options.budgets == (10,)
    assert second.at(tokenizer=WORDS).at(tools=[TOOL]).options == SnapshotOptions(
        budgets=(10,), tokenizer=WORDS, tools=(TOOL,)
    )
    assert (
        second.stabilize_options.functions,
        second.stabilize_options.dates,
        second.stabilize_options.ids,
    ) == (
        (str.upper, str.lower),
        True,
        "x",
    )
    assert second.stabilize_options.find_folders
    assert second.stabilize(ids=True).stabilize_options.find_folders
    assert not first.stabilize_options.find_folders


def test_a_snapshot_is_a_place_and_no_value(prompt_snapshot: PromptSnapshot) -> None:
    assert len({prompt_snapshot, prompt_snapshot.at(budgets=[10])}) == 2
    assert repr(prompt_snapshot) == "<PromptSnapshot of test_a_snapshot_is_a_place_and_no_value>"


def test_the_types_are_offered_for_annotations() -> None:
    for name in ("PromptSnapshot", "MessagesSnapshot", "ReceiptSnapshot"):
        assert isinstance(getattr(promptkit.testing, name), type)
