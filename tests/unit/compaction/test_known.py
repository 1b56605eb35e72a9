"""What is known before a summary is made."""

from __future__ import annotations

from promptkit.compaction.facts import Facts
from promptkit.compaction.known import known_facts
from promptkit.compaction.selection import select
from promptkit.testing import WordTokenizer
from promptkit.transcript.entries import BranchSummary, Checkpoint
from tests.unit.compaction.talk import Talk, words


def known(talk: Talk) -> dict[str, object]:
    """Before all but the last request is summarized."""
    plan = select(talk.view, leaf=talk.leaf, tokenizer=WordTokenizer())
    return dict(known_facts(talk.log, plan))


def test_without_a_checkpoint_and_a_branch_nothing_is() -> None:
    talk = Talk()
    talk.user(words(9))
    talk.answer("ok")
    talk.user("more")

    assert known(talk) == {}


def test_E107_the_files_of_a_branch_that_was_left_are_known_at_the_next_checkpoint() -> None:
    talk = Talk()
    before = Facts(read=("a.py",), changed=("b.py",), requests=("Build it.",)).to_json()
    talk.append(Checkpoint(summary="S1", facts={**before, "odd": 1}))
    talk.user(words(9))
    there = Facts(read=("c.py", "a.py"), changed=("d.py",), requests=("Try the first way.",), todos=("the second way",)).to_json()
    talk.append(BranchSummary(summary="The first way fails.", leaf=talk.leaf, facts=there))
    talk.answer("ok")
    talk.user("more")

    facts = known(talk)
    assert (facts["read"], facts["changed"]) == (["a.py", "c.py"], ["b.py", "d.py"])
    assert facts["requests"] == ["Build it."]
    assert facts["odd"] == 1
    assert "todos" not in facts


def test_a_branch_that_stays_is_not_yet_carried_over() -> None:
    talk = Talk()
    talk.user(words(9))
    talk.answer("ok")
    talk.user("more")
    talk.append(BranchSummary(summary="T", leaf=talk.leaf, facts=Facts(changed=("d.py",)).to_json()))

    assert known(talk) == {}
