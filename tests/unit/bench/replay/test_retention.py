"""What a request still knows: facts that answers use again, and what the person asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit import Message, tokenizer_for
from promptkit.bench.replay.pieces import Pieces
from promptkit.bench.replay.retention import Kept, Needs, Retention
from tests.unit.bench.replay.talks import asked, call, recorded, result, said

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACE = "transcripts/replayed.jsonl"

TALK = [
    asked("Mend load_row, please."),
    call("c", path="src/io.py"),
    result("c", "def load_row(): raise KeyError"),
    said("It raises KeyError."),
    asked("And now?"),
    said("src/io.py is mended: load_row is whole."),
]
LAST = 5


def kept(shown: Sequence[Message], *, place: str | None = None, system: Sequence[Message] = ()) -> Kept:
    """What a policy's only request knows, in the place of that which the last answer answered."""
    pieces = Pieces(tokenizer_for(None))
    needs = Needs(recorded([*system, *TALK]), pieces)
    retention = Retention(needs, place=place)
    retention.request(pieces.of(shown), LAST)
    return retention.kept


def test_what_is_shown_as_it_was_said_is_not_dropped() -> None:
    found = kept(TALK[:LAST])
    assert (found.uses, found.dropped, found.present) == (2, 0, 0)  # src/io.py and load_row
    assert (found.asked, found.asked_known) == (2, 2)


def test_a_fact_whose_message_was_dropped_is_present_where_another_says_it() -> None:
    summary = asked("<conversation-summary>\nMend load_row, please. It is broken.\n</conversation-summary>")
    found = kept([summary, asked("And now?")], place=PLACE)
    assert (found.dropped, found.present, found.reachable) == (2, 1, 0)
    assert (found.asked, found.asked_known) == (2, 2)


def test_a_fact_is_reachable_only_where_the_request_says_where_the_transcript_is() -> None:
    bare, told = asked("A summary."), asked(f"A summary. More is in {PLACE}.")
    assert kept([bare, asked("And now?")], place=PLACE).reachable == 0
    assert kept([told, asked("And now?")], place=PLACE).reachable == 2
    assert kept([told, asked("And now?")], place=PLACE).asked_known == 2
    assert kept([told, asked("And now?")], place=None).reachable == 0
    assert kept([told, asked("And now?")], place=None).asked_known == 1


def test_what_the_system_message_says_is_never_dropped() -> None:
    system = Message(role="system", content=("Work in src/io.py on load_row.",))
    assert kept([system, asked("And now?")], system=[system]).dropped == 0


def test_what_an_answer_says_first_is_no_use_of_anything() -> None:
    pieces = Pieces(tokenizer_for(None))
    needs = Needs(recorded(TALK), pieces)
    assert [len(needs.uses[at]) for at in (1, 3, LAST)] == [0, 1, 2]


def test_messages_that_come_and_go_are_counted_as_they_are_shown() -> None:
    pieces = Pieces(tokenizer_for(None))
    needs = Needs(recorded(TALK), pieces)
    retention = Retention(needs, place=None)
    retention.request(pieces.of(TALK[:1]), 1)
    retention.request(pieces.of([TALK[0], TALK[2]]), 3)
    retention.request(pieces.of(TALK[4:5]), LAST)
    assert retention.kept.dropped == 2
    assert retention.kept.present == 0
    assert (retention.kept.asked, retention.kept.asked_known) == (4, 3)
    assert (retention.kept.asked_last, retention.kept.asked_last_known) == (2, 1)


def test_a_way_that_is_not_shown_any_more_leads_nowhere() -> None:
    pieces = Pieces(tokenizer_for(None))
    retention = Retention(Needs(recorded(TALK), pieces), place=PLACE)
    retention.request(pieces.of([asked(f"A summary. More is in {PLACE}."), TALK[2]]), 3)
    retention.request(pieces.of(TALK[4:5]), LAST)
    assert (retention.kept.dropped, retention.kept.reachable) == (2, 0)


def test_a_shortened_result_knows_what_is_left_of_it() -> None:
    short = result("c", "def load_row(): […]")
    found = kept([TALK[0], TALK[1], short, *TALK[3:5]])
    assert found.dropped == 0  # load_row was said first by the person
    gone = kept([*TALK[4:5], TALK[1], short])
    assert (gone.dropped, gone.present) == (1, 1)
