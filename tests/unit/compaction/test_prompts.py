"""The requests for summaries, as Markdown: what they say, and what they lose where there is less room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import UserMessage, recorded, render
from promptkit.compaction.live import LiveSummarizer
from promptkit.compaction.plan import LastRequest
from promptkit.compaction.prompts import SECTIONS, SummaryInstructions, SummaryOfMessages, SummaryOfText
from promptkit.compaction.quirks import Quirks
from promptkit.errors import TemplateError
from promptkit.testing import ScriptedModel
from tests.unit.compaction.talk import Talk, words
from tests.unit.compaction.tasks import TAGGED, TOKENIZER, parser_talk, summarized, task_of

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.testing import PromptSnapshot

OPUS = Quirks(say_no_tools=True)


def talk() -> Talk:
    """A summary, two turns, a result that is too long, a round that stays."""
    said = parser_talk("The person wants the parser mended. Nothing is mended yet.")
    said.answer("All pass.")
    said.user("Mend it.")
    said.round("c4", words(300, "line"))
    said.round("c5", "written")
    return said


def test_the_request_of_messages(prompt_snapshot: PromptSnapshot) -> None:
    prompt = SummaryOfMessages(task=task_of(talk(), max_tokens=100, instructions="Heed the tests."), result_tokens=60)

    assert prompt == prompt_snapshot.at(budgets=[2_000, 660, 570])


def test_the_request_of_one_text(prompt_snapshot: PromptSnapshot) -> None:
    prompt = SummaryOfText(task=task_of(talk(), max_tokens=100, instructions="Heed the tests."), quirks=OPUS, result_tokens=60)

    assert prompt == prompt_snapshot.at(budgets=[2_000, 660, 570])


def test_the_request_behind_the_conversation(prompt_snapshot: PromptSnapshot) -> None:
    said = talk()
    task = task_of(said, instructions="Heed the tests.", last=LastRequest(messages=said.view.messages))
    with ScriptedModel([TAGGED], name="claude-opus-4-1") as model:
        summarized(LiveSummarizer(model=model, tokenizer=TOKENIZER), task)

    assert [recorded(message) for message in model.requests[0].messages] == prompt_snapshot


def text(instructions: SummaryInstructions) -> str:
    (message,) = render(UserMessage()[instructions], tokenizer=TOKENIZER).messages
    return message.text


@pytest.mark.parametrize("live", [True, False])
def test_the_eight_sections_are_asked_for_in_order(live: bool) -> None:  # pytest gives it by its name
    asked = text(SummaryInstructions(live=live))

    places = [asked.index(f"{number}. {section}:") for number, section in enumerate(SECTIONS, 1)]
    assert places == sorted(places)


def test_what_the_person_wants_is_data_and_no_template() -> None:
    asked = text(SummaryInstructions(instructions="{{ live }} {% raise %} <b>"))

    assert "{{ live }} {% raise %} <b>" in asked


def test_without_what_the_person_wants_nothing_is_said_of_it() -> None:
    assert "heed this" not in text(SummaryInstructions())
    assert "heed this" in text(SummaryInstructions(instructions="x"))


def test_a_template_of_ones_own_has_the_same_values(tmp_path: Path) -> None:
    file = tmp_path / "mine.j2"
    file.write_text("{{ instructions }} {{ live }} {{ say_no_tools }}", encoding="utf-8")

    assert text(SummaryInstructions(instructions="x", live=True, template=file)) == "x True False"


def test_a_template_with_a_mistake_says_where(tmp_path: Path) -> None:
    file = tmp_path / "mine.j2"
    file.write_text("\n{{ nobody }}", encoding="utf-8")

    with pytest.raises(TemplateError, match=r"mine\.j2:2"):
        text(SummaryInstructions(template=file))
