"""What a request still knows: facts that answers use again, and what the person asked.

What counts as a fact: names, paths and errors, and nothing of ordinary language.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import Message, ToolCall, tokenizer_for
from promptkit.replay.message_counts import MessageCounts
from promptkit.replay.retention import Kept, Needs, Retention, mentions, words_of
from tests.unit.replay.conversations import asked, call, recorded, result, said

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
    pieces = MessageCounts(tokenizer_for(None))
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
    pieces = MessageCounts(tokenizer_for(None))
    needs = Needs(recorded(TALK), pieces)
    assert [len(needs.uses[at]) for at in (1, 3, LAST)] == [0, 1, 2]


def test_messages_that_come_and_go_are_counted_as_they_are_shown() -> None:
    pieces = MessageCounts(tokenizer_for(None))
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
    pieces = MessageCounts(tokenizer_for(None))
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


NOTHING: set[str] = set()


def found(text: str) -> set[str]:
    return set(mentions(Message(role="user", content=(text,))))


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("Why does load_file in src/io.py fail?", {"load_file", "src/io.py"}),
        ("See parser.py and os.path.join.", {"parser.py", "os.path.join"}),
        ("class HttpServer: getValue()", {"HttpServer", "getValue"}),
        ("order 4WQ150 of mia_li_3668@example.org", {"4WQ150", "mia_li_3668@example.org"}),
        ("commit 3ea751c087f3", {"3ea751c087f3"}),
        ("It failed with KeyError: 'name' at last", {"KeyError", "error: 'name' at last"}),
        ("error[E0308]: mismatched types", {"E0308", "error: mismatched types"}),
        ("The end.Then we went on, e.g. home. 12345 and 2026-11-21 are numbers.", NOTHING),
        ("Nothing to see here, only words!", NOTHING),
    ],
)
def test_facts_are_names_paths_and_errors(text: str, facts: set[str]) -> None:
    assert found(text) == facts


def test_arguments_of_calls_are_read_as_what_they_say_and_not_as_json() -> None:
    call = ToolCall(id="c", name="read_file", arguments='{"text": "first\\nload_row here", "deep": [{"path": "src/io.py"}]}')
    assert mentions(Message(role="assistant", tool_calls=(call,))) == {"read_file", "load_row", "src/io.py"}
    broken = ToolCall(id="c", name="run", arguments='{"path": "src/io.py')
    assert mentions(Message(role="assistant", tool_calls=(broken,))) == {"src/io.py"}


@pytest.mark.parametrize("unit", ["a", "a/", "a_", "/", "@", "Error: ", "Error:", "aB", "1a", ".", " "])
def test_hostile_text_is_read_once(unit: str) -> None:
    found(unit * 100_000)  # what takes quadratic time does not end today


def test_deep_arguments_need_no_recursion() -> None:
    arguments = "[" * 50_000 + '"src/io.py"' + "]" * 50_000
    assert mentions(Message(role="assistant", tool_calls=(ToolCall(id="c", name="run", arguments=arguments),))) <= {"src/io.py"}


def test_words_are_the_same_however_they_were_laid_out() -> None:
    assert words_of("- Mend the\n  parser, please!") == words_of("Mend the parser please")
