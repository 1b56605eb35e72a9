"""Whatever is said and however a checkpoint is built: what it shows is valid, the same for every reader, and nothing of ours is the person's."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import attrs
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from promptkit.compaction.carried import Carried
from promptkit.compaction.draft import checkpoint_of
from promptkit.compaction.originals import Originals
from promptkit.compaction.plan import Plan, Summary
from promptkit.compaction.replacement import Replacement
from promptkit.compaction.selection import Keep, select
from promptkit.rendering.sizing import Sizer
from promptkit.tool_pairing import pair
from promptkit.transcript.store import MemoryStore
from promptkit.transcript.transcript import Transcript
from promptkit.transcript.view import project
from tests.behaviour.conversations import TOKENIZER, keeps, talks
from tests.unit.compaction.writers import draft

if TYPE_CHECKING:
    from tests.unit.compaction.talk import Talk

OURS = "made by nobody"


def carry(plan: Plan, summary: Summary) -> Carried:
    _ = plan, summary
    return Carried(plan=OURS)


def forms() -> st.SearchStrategy[Replacement]:
    return st.builds(
        Replacement,
        place=st.sampled_from(["first", "last"]),
        role=st.sampled_from(["user", "system"]),
        preface=st.sampled_from([None, f"{OURS}: "]),
        originals=st.none() | st.builds(Originals, tokens=st.integers(0, 30), each=st.none() | st.integers(0, 8)),
        carry=st.sampled_from([None, carry]),
    )


def compacted(talk: Talk, form: Replacement, keep: Keep, number: int) -> None:
    """Put a summary in place, as a compactor would."""
    plan = select(talk.view, leaf=talk.leaf, tokenizer=TOKENIZER, keep=keep)
    assume(not plan.is_empty)
    made = attrs.evolve(draft(number), plan=plan, summary=Summary(text=f"{OURS}, number {number}", mode="test"))
    replaced = form.build(plan, made.summary, TOKENIZER)
    before = talk.view.items
    talk.append(checkpoint_of(made, before, replaced=replaced, count=Sizer(TOKENIZER).message))
    kept = [item.message for item in before[len(before) - len(plan.kept) :]]
    assert list(talk.view.messages) == [*replaced.messages, *kept]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(talk=talks(), form=forms(), keep=keeps())
def test_i5_i8_what_is_shown_is_paired_and_the_same_after_loading(talk: Talk, form: Replacement, keep: Keep) -> None:
    assume(talk.leaf)
    compacted(talk, form, keep, 1)
    assert pair(talk.view.messages).repairs == ()
    loaded = Transcript(MemoryStore(talk.log.entries))
    assert project(loaded.path()) == talk.view


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(talk=talks(), form=forms(), keep=keeps())
def test_e69_nothing_that_we_made_survives_the_next_checkpoint_and_no_request_is_doubled(talk: Talk, form: Replacement, keep: Keep) -> None:
    assume(talk.leaf)
    numbers = itertools.count(1)
    compacted(talk, form, keep, next(numbers))
    talk.user("another wish")
    talk.answer("granted")
    talk.user("and one more")
    compacted(talk, form, keep, next(numbers))
    ours = Counter(item.kind for item in talk.view.items if OURS in item.message.text)
    assert set(ours) <= {"summary"}
    assert ours["summary"] == 1 + (form.carry is not None)
    assert f"{OURS}, number 2" in "".join(talk.view.messages[at].text for at in range(len(talk.view.items)))
    said = Counter(item.message.text for item in talk.view.items if item.message.role == "user")
    assert said["another wish"] <= 1
    assert said["and one more"] <= 1
