"""What a checkpoint covers is found again from the transcript, each entry once over all checkpoints."""

from __future__ import annotations

import pytest

from promptkit.compaction.planning.blocks import find_covered_entries, find_covered_items
from tests.conversations import ConversationBuilder


def texts(talk: ConversationBuilder, checkpoint: str) -> list[str]:
    return [item.message.text for item in find_covered_items(talk.path, checkpoint)]


def ids(talk: ConversationBuilder, checkpoint: str) -> list[str]:
    at = [entry.id for entry in talk.path].index(checkpoint)
    return [entry.id for entry in find_covered_entries(talk.path[:at], talk.path[at].payload)]


def test_everything_before_what_is_kept_is_covered() -> None:
    talk = ConversationBuilder()
    talk.user("one")
    talk.answer("two")
    kept = talk.user("three")
    checkpoint = talk.checkpoint("S", kept)
    assert texts(talk, checkpoint) == ["one", "two"]
    assert ids(talk, checkpoint) == ["e1", "e2"]


@pytest.mark.spec("E100")
def test_what_one_checkpoint_kept_is_covered_by_the_next_and_nothing_twice() -> None:
    talk = ConversationBuilder()
    talk.user("one")
    kept = talk.user("two")
    first = talk.checkpoint("S1", kept)
    talk.answer("three")
    last = talk.user("four")
    second = talk.checkpoint("S2", last)
    third = talk.checkpoint("S3")
    assert [texts(talk, each) for each in (first, second, third)] == [
        ["one"],
        ["two", "three"],
        ["four"],
    ]
    covered = [*ids(talk, first), *ids(talk, second), *ids(talk, third)]
    assert covered == [entry.id for entry in talk.path[:-1]]


@pytest.mark.spec("E24")
def test_nothing_before_a_reset_is_covered() -> None:
    talk = ConversationBuilder()
    talk.user("old")
    talk.reset()
    talk.user("new")
    assert texts(talk, talk.checkpoint("S")) == ["new"]


def test_a_checkpoint_that_was_undone_covered_nothing() -> None:
    talk = ConversationBuilder()
    talk.user("one")
    wrong = talk.checkpoint("wrong")
    talk.edit(wrong, reason="undone")
    assert texts(talk, talk.checkpoint("S")) == ["one"]


def test_what_is_no_checkpoint_covers_nothing() -> None:
    talk = ConversationBuilder()
    said = talk.user("one")
    assert find_covered_items(talk.path, said) == ()
    assert find_covered_items(talk.path, "nowhere") == ()
    assert find_covered_entries(talk.path, talk.path[0].payload) == ()
