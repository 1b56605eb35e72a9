"""What a request still shows: the lines and names that answers use again, and the user's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import Message
from promptkit.lab.replay.prompt_cache import MessageCounts
from promptkit.lab.replay.retention import (
    RecordingUses,
    RetentionCounts,
    RetentionTracker,
    find_working_directory,
    join_words,
)
from promptkit.tokens import tokenizer_for
from tests.conversations import assistant_message, call_message, result_message, user_message
from tests.unit.lab.replay.conversations import recording_of, run_call

if TYPE_CHECKING:
    from collections.abc import Sequence


PATH = "transcripts/replayed.jsonl"

CODE = "    raise KeyError('no such row')"

TALK = [
    user_message("Mend load_row, please."),
    run_call("c", path="src/io.py"),
    result_message("c", f"src/io.py has load_row:\n{CODE}"),
    assistant_message("It raises KeyError."),
    user_message("And now?"),
    assistant_message(f"src/io.py is mended, load_row is whole. I removed\n{CODE}"),
]
LAST = 5


def kept(
    shown: Sequence[Message],
    *,
    transcript_path: str | None = None,
    system: Sequence[Message] = (),
    talk: Sequence[Message] = TALK,
) -> RetentionCounts:
    """The counts of a policy's only request, whose reply is the last message."""
    pieces = MessageCounts(tokenizer_for(None))
    uses = RecordingUses(recording_of([*system, *talk]), pieces)
    retention = RetentionTracker(uses, transcript_path=transcript_path)
    retention.on_request(pieces.count_messages(shown), len(talk) - 1)
    return retention.counts


def test_what_is_shown_as_it_was_said_is_quoted_named_and_in_context() -> None:
    found = kept(TALK[:LAST])
    assert (found.lines_used, found.lines_shown) == (1, 1)
    assert (found.names_used, found.names_shown) == (2, 2)  # src/io.py and load_row
    assert (found.contexts_used, found.contexts_shown) == (2, 2)
    assert (found.user_messages, found.user_messages_known) == (2, 2)
    assert found.answers_lacking == 0


def test_a_list_of_names_spells_them_and_gives_neither_lines_nor_context() -> None:
    listed = user_message("A summary.\n\n<names-seen>\nload_row, src/io.py\n</names-seen>")
    found = kept([listed, user_message("And now?")])
    assert (found.names_shown, found.contexts_shown, found.lines_shown) == (2, 0, 0)
    assert found.answers_lacking == 1


def test_a_name_is_in_context_beside_a_word_that_stood_beside_it() -> None:
    beside, alone = user_message("Task: Mend load_row."), user_message("Think of load_row at last.")
    assert kept([beside]).contexts_shown == 1
    assert kept([alone]).contexts_shown == 0
    assert kept([alone]).names_shown == 1


def test_a_line_is_shown_where_it_stands_whole_and_a_printed_number_is_no_part_of_it() -> None:
    assert kept([user_message(f"   12\t{CODE}")]).lines_shown == 1
    assert kept([user_message(f"   12→{CODE}")]).lines_shown == 1
    assert kept([user_message(CODE[:-3])]).lines_shown == 0
    assert kept([user_message(f"so {CODE}")]).lines_shown == 0


def test_what_needs_no_memory_is_not_counted() -> None:
    talk = [
        user_message("Mend /home/me/work/src/io.py with run_tool; ValueError, os.path.join"),
        run_call("c", path="/home/me/work/src/io.py", other="/home/me/work/tests/row.py"),
        result_message("c", "cd /home/me/work && run_tool: src/io.py ValueError"),
        call_message("d", name="run_tool", arguments="{}"),
        result_message("d", "done"),
        assistant_message(
            "In home/me/work I called run_tool, os.path.join and ValueError on src/io.py."
        ),
    ]
    assert kept([], talk=talk).names_used == 1
    assert find_working_directory(talk) == "home/me/work"
    # a path is the same with the working directory and without it
    for text in ("It is /home/me/work/src/io.py.", "It is src/io.py."):
        assert kept([user_message(text)], talk=talk).names_shown == 1


def test_what_the_system_message_says_is_shown_by_every_request() -> None:
    system = Message(role="system", content=("Work in src/io.py on load_row.",))
    found = kept([system, user_message("And now?")], system=[system])
    assert (found.names_used, found.names_shown) == (2, 2)


def test_what_an_answer_says_first_is_no_use_of_anything() -> None:
    pieces = MessageCounts(tokenizer_for(None))
    uses = RecordingUses(recording_of(TALK), pieces).uses
    assert [len(uses[at].names) for at in (1, 3, LAST)] == [0, 0, 2]
    assert [len(uses[at].lines) for at in (1, 3, LAST)] == [0, 0, 1]


def test_messages_that_come_and_go_are_counted_as_they_are_shown() -> None:
    pieces = MessageCounts(tokenizer_for(None))
    retention = RetentionTracker(RecordingUses(recording_of(TALK), pieces), transcript_path=None)
    retention.on_request(pieces.count_messages(TALK[:1]), 1)
    retention.on_request(pieces.count_messages([TALK[0], TALK[2]]), 3)
    retention.on_request(pieces.count_messages(TALK[4:5]), LAST)
    assert (retention.counts.names_used, retention.counts.names_shown) == (2, 0)
    assert (retention.counts.user_messages, retention.counts.user_messages_known) == (4, 3)


def test_a_users_message_is_reachable_only_where_the_request_says_where_the_transcript_is() -> None:
    bare, told = user_message("A summary."), user_message(f"A summary. More is in {PATH}.")
    now = user_message("And now?")
    assert kept([bare, now], transcript_path=PATH).user_messages_known == 1
    assert kept([told, now], transcript_path=PATH).user_messages_known == 2
    assert kept([told, now], transcript_path=PATH).user_messages_present == 1
    assert kept([told, now], transcript_path=None).user_messages_known == 1


def test_a_path_that_is_not_in_the_request_any_more_reaches_nothing() -> None:
    pieces = MessageCounts(tokenizer_for(None))
    retention = RetentionTracker(RecordingUses(recording_of(TALK), pieces), transcript_path=PATH)
    told = user_message(f"A summary. More is in {PATH}.")
    retention.on_request(pieces.count_messages([told, TALK[2]]), 3)
    retention.on_request(pieces.count_messages(TALK[4:5]), LAST)
    assert (retention.counts.user_messages, retention.counts.user_messages_known) == (3, 2)


def test_a_shortened_result_shows_what_is_left_of_it() -> None:
    short = result_message("c", "src/io.py has load_row: […]")
    found = kept([*TALK[4:5], TALK[1], short])
    assert (found.names_shown, found.lines_shown) == (2, 0)


@pytest.mark.parametrize("unit", ["a", "a/", "/", "/a", "1", "1:", "→", "<names-seen>", " "])
def test_hostile_text_is_read_once(unit: str) -> None:
    talk = [user_message("Go."), run_call("c", text=unit * 100_000), result_message("c", unit)]
    kept([], talk=[*talk, assistant_message(unit * 100_000)])  # quadratic time does not end today


def test_words_are_the_same_however_they_were_laid_out() -> None:
    assert join_words("- Mend the\n  parser, please!") == join_words("Mend the parser please")
