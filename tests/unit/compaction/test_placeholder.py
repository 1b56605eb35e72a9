"""The last of three tiers: a note, with counts, only where somebody put it and only behind everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction.chunked import ChunkedSummarizer
from promptkit.compaction.facts import Facts
from promptkit.compaction.placeholder import PlaceholderSummarizer
from promptkit.compaction.summarizer import Chain
from promptkit.errors import BadPropError, ContextOverflowError
from promptkit.messages import ImagePart
from promptkit.testing import ScriptedModel
from tests.unit.compaction.talk import Talk, words
from tests.unit.compaction.tasks import TOKENIZER, nothing_new, refusal, summarized, task_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message, ToolDefinition
    from promptkit.providers.model import Reply

PLACEHOLDER = PlaceholderSummarizer(tokenizer=TOKENIZER)
TAGGED = "<summary>told</summary>"


def pictures(previous: str | None = None) -> Talk:
    talk = Talk()
    if previous:
        talk.checkpoint(previous)
    talk.user("look", ImagePart(url="https://example.org/a.png"), ImagePart(url="https://example.org/b.png"))
    talk.answer("I see.")
    talk.user("next")
    return talk


def huge() -> Talk:
    """A message that is larger than half of a window of 1,000, between small ones."""
    talk = Talk()
    talk.user("small one")
    talk.answer("yes")
    talk.user(words(700))
    talk.answer("well")
    talk.user("small two")
    talk.answer("yes")
    talk.user("next")
    return talk


def test_e110_messages_and_images_are_counted() -> None:
    made = summarized(PLACEHOLDER, task_of(pictures()))
    assert made.text == "[2 earlier messages are left out here, with 2 images. They could not be summarized.]"
    assert Facts.from_json(made.facts).requests == ("look",)


def test_the_summary_before_stays_while_there_is_room() -> None:
    task = task_of(pictures("S1 " + words(20)))
    assert summarized(PLACEHOLDER, task).text.startswith("S1 w w")
    assert summarized(PLACEHOLDER, attrs.evolve(task, max_tokens=20)).text.startswith("[2 earlier")
    assert refusal(PLACEHOLDER, attrs.evolve(task, max_tokens=5)).reason == "does_not_fit"
    assert refusal(PLACEHOLDER, nothing_new()).reason == "nothing"


def test_it_can_only_be_the_last_of_a_chain() -> None:
    with pytest.raises(BadPropError, match="last of a chain"):
        Chain([PLACEHOLDER, PLACEHOLDER])


def test_a_stretch_larger_than_half_the_window_is_named_by_its_size_and_nobody_is_asked_for_it() -> None:
    with ScriptedModel([TAGGED, TAGGED.replace("told", "told all")]) as model:
        chunked = ChunkedSummarizer(model=model, window=1_000, tokenizer=TOKENIZER, largest=0.5)
        made = summarized(chunked, task_of(huge(), max_tokens=100))
    assert made.text == "told all"
    before = "<conversation-summary>\ntold\n\n[1 message of about 702 tokens followed, too large to be summarized]\n</conversation-summary>"
    assert before in model.requests[1].messages[1].text


@attrs.define
class Full:
    """A model whose window holds nothing of what it is asked."""

    name: str = "full"
    asked: int = 0

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> Reply:
        _ = messages, tools
        self.asked += 1
        problem = "too large"
        raise ContextOverflowError(problem)


def test_e56_three_tiers_full_then_by_size_then_a_note() -> None:
    model = Full()
    chain = Chain(
        [
            ChunkedSummarizer(model=model, window=1_000, tokenizer=TOKENIZER),
            ChunkedSummarizer(model=model, window=1_000, tokenizer=TOKENIZER, largest=0.5),
            PLACEHOLDER,
        ]
    )
    made = summarized(chain, task_of(huge(), max_tokens=100))
    assert made.mode == "placeholder"
    assert made.text.startswith("[6 earlier messages are left out here.")
    assert model.asked == 2 + 2
