"""Old tool outputs are pruned from the view: examples of each rule. The laws: tests/behaviour/test_reduction.py."""

from __future__ import annotations

import pytest

from promptkit.compaction.pruning.messages import drop_images
from promptkit.compaction.pruning.tool_outputs import PRUNED_REASON, Pruning, edits_from_reduction, prune_outputs
from promptkit.messages import ImagePart, Part
from promptkit.testing import WordTokenizer
from tests.conversations import ConversationBuilder, words

TOKENIZER = WordTokenizer(per_image=100)
PLACEHOLDER = 6  # "[old tool output removed: 100 tokens]"
IMAGE = ImagePart(url="https://example.com/x.png")


def prune(talk: ConversationBuilder, *, protect: int = 1_000, least: int = 1, tools: tuple[str, ...] = ("skill",)) -> Pruning:
    return prune_outputs(talk.path, talk.view, tokenizer=TOKENIZER, protected_tokens=protect, min_saved_tokens=least, exempt=tools)


def pruned(made: Pruning) -> list[str]:
    return [edit.target for edit in made.edits]


def outputs(*sizes: int, name: str = "read") -> ConversationBuilder:
    """A question, then a round for each size: the results are the entries e3, e5, … ; then an answer."""
    talk = ConversationBuilder()
    talk.user("q")
    for number, size in enumerate(sizes):
        talk.round(f"c{number}", words(size), name=name)
    talk.answer("done")
    return talk


@pytest.mark.parametrize(
    ("sizes", "targets"),
    [
        ((100, 100, 400, 600), ["e3", "e5"]),  # the newest two are exactly what is protected
        ((100, 100, 400, 601), ["e3", "e5", "e7"]),  # the one on the edge goes
        ((100, 100, 400, 599), ["e3", "e5"]),
        ((1_000,), []),
        ((1_001,), ["e3"]),
        ((), []),
    ],
)
def test_the_newest_outputs_are_protected(sizes: tuple[int, ...], targets: list[str]) -> None:
    assert pruned(prune(outputs(*sizes))) == targets


@pytest.mark.parametrize(("least", "worth"), [(387, True), (388, True), (389, False)])
def test_pruning_that_saves_too_little_is_left_off(least: int, worth: bool) -> None:
    made = prune(outputs(200, 200, 1_000), least=least)  # 400, less two placeholders of six words
    assert made.possible_tokens == 388
    assert (pruned(made), made.saved_tokens) == ((["e3", "e5"], 388) if worth else ([], 0))


def test_by_default_forty_thousand_tokens_stay_and_twenty_thousand_are_worth_it() -> None:
    def default(*sizes: int) -> list[str]:
        talk = outputs(*sizes)
        return pruned(prune_outputs(talk.path, talk.view, tokenizer=TOKENIZER))

    assert default(20_006, 40_000) == ["e3"]
    assert default(20_005, 40_000) == []
    assert default(20_006, 39_999) == ["e3"]
    assert default(60_000) == ["e3"]
    assert default(30_000, 10_000) == []


def test_a_pruned_output_says_what_it_was_and_keeps_its_call() -> None:
    talk = outputs(100, 1_000)
    talk.append(*prune(talk).edits)
    assert [message.text for message in talk.view.messages][2] == "[old tool output removed: 100 tokens]"
    assert [message.tool_call_id for message in talk.view.messages if message.role == "tool"] == ["c0", "c1"]
    assert talk.log.get("e3").message == talk.log.path()[2].message
    assert (
        talk.path[-1].payload
        == prune_outputs(
            list(talk.path)[:-1], outputs(100, 1_000).view, tokenizer=TOKENIZER, protected_tokens=1_000, min_saved_tokens=1
        ).edits[0]
    )
    assert not talk.view.repairs


def test_outputs_of_protected_tools_stay_and_are_not_counted() -> None:
    talk = outputs(5_000, 5_000, name="skill")
    assert pruned(prune(talk)) == []
    talk.round("x", words(900))
    talk.round("y", words(200))
    talk.answer("done")
    assert pruned(prune(talk)) == ["e8"]
    assert pruned(prune(talk, tools=())) == ["e3", "e5", "e8"]


@pytest.mark.spec("E74")
def test_what_was_pruned_before_does_not_hide_older_outputs() -> None:
    talk = outputs(100, 100, 100, 1_000)
    talk.edit("e5", "[old tool output removed: 100 tokens]", reason=PRUNED_REASON)
    assert pruned(prune(talk)) == ["e3", "e7"]


@pytest.mark.spec("E76")
@pytest.mark.parametrize(("size", "gone"), [(1, False), (6, False), (7, False), (49, False), (50, True)])
def test_an_output_that_is_hardly_more_than_its_placeholder_stays(size: int, gone: bool) -> None:
    assert bool(prune(outputs(size, 1_001)).edits[:-1]) is gone


@pytest.mark.spec("E77")
def test_nothing_before_the_checkpoint_is_touched() -> None:
    talk = outputs(500, 500, 500)
    talk.checkpoint("S", first_kept="e4")
    talk.user("on")
    talk.round("x", words(500))
    talk.round("y", words(900))
    talk.answer("done")
    assert pruned(prune(talk)) == ["e12"]
    assert {entry.id for entry in talk.path[:9]}.isdisjoint(pruned(prune(talk, protect=0)))


@pytest.mark.spec("E79")
@pytest.mark.parametrize(
    ("content", "after"),
    [
        ((words(50), IMAGE, words(60)), ("[old tool output removed: 110 tokens]", IMAGE)),
        ((IMAGE, words(80)), (IMAGE, "[old tool output removed: 80 tokens]")),
    ],
)
def test_images_stay_and_only_text_is_saved(content: tuple[Part, ...], after: tuple[Part, ...]) -> None:
    talk = ConversationBuilder()
    talk.round("a", *content)
    talk.round("b", words(1_000))
    talk.answer("done")
    made = prune(talk)
    assert made.edits[0].content == after
    assert made.saved_tokens == sum(TOKENIZER.count(part) for part in content if isinstance(part, str)) - PLACEHOLDER


def test_an_output_of_images_alone_stays() -> None:
    talk = ConversationBuilder()
    talk.round("a", IMAGE, IMAGE)
    talk.round("b", words(2_000))
    talk.answer("done")
    assert pruned(prune(talk)) == ["e4"]


def test_what_the_model_has_not_answered_to_stays_however_large_it_is() -> None:
    talk = ConversationBuilder()
    talk.user("q")
    talk.round("a", words(500))
    talk.round("b", words(90_000))
    assert pruned(prune(talk)) == []
    assert pruned(prune(talk, protect=0)) == ["e3"]
    talk.user("what does it say?")
    assert pruned(prune(talk, protect=0)) == ["e3"]
    talk.answer("I read it")
    assert pruned(prune(talk)) == ["e3", "e5"]


def test_a_result_that_was_never_written_has_no_entry_to_prune() -> None:
    talk = ConversationBuilder()
    talk.calls("a", "b")
    talk.result("a", words(500))
    talk.answer("never mind")
    assert pruned(prune(talk, protect=0)) == ["e2"]
    assert pruned(prune(talk, protect=0, least=10_000)) == []


def test_what_has_no_entry_after_the_checkpoint_is_not_edited() -> None:
    talk = ConversationBuilder()
    talk.user("look", IMAGE)
    talk.answer("yes")
    talk.checkpoint("S", first_kept="e1")
    talk.user("look", IMAGE)
    talk.calls("a", "b")
    talk.result("a", IMAGE)
    talk.answer("yes")
    talk.user("on")
    done = drop_images(talk.view.messages, tokenizer=TOKENIZER)
    assert len(done.changes) == 3
    edits = edits_from_reduction(talk.path, talk.view, done, reason="images")
    assert [(edit.target, edit.reason) for edit in edits] == [("e4", "images"), ("e6", "images")]
    assert talk.log.append(*edits)
