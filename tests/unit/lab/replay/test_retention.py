"""What a request still contains: facts that answers use again, and the user's messages.

What counts as a fact: names, paths and errors, and nothing of ordinary language.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import Message, ToolCall
from promptkit.lab.replay.message_counts import MessageCounts
from promptkit.lab.replay.retention import (
    RecordingFacts,
    RetentionCounts,
    RetentionTracker,
    find_facts,
    join_words,
)
from promptkit.tokens import tokenizer_for
from tests.conversations import assistant_message, result_message, user_message
from tests.unit.lab.replay.conversations import recording_of, run_call

if TYPE_CHECKING:
    from collections.abc import Sequence


PATH = "transcripts/replayed.jsonl"

TALK = [
    user_message("Mend load_row, please."),
    run_call("c", path="src/io.py"),
    result_message("c", "def load_row(): raise KeyError"),
    assistant_message("It raises KeyError."),
    user_message("And now?"),
    assistant_message("src/io.py is mended: load_row is whole."),
]
LAST = 5


def kept(
    shown: Sequence[Message], *, transcript_path: str | None = None, system: Sequence[Message] = ()
) -> RetentionCounts:
    """The counts of a policy's only request, whose reply is the last message."""
    pieces = MessageCounts(tokenizer_for(None))
    needs = RecordingFacts(recording_of([*system, *TALK]), pieces)
    retention = RetentionTracker(needs, transcript_path=transcript_path)
    retention.on_request(pieces.count_messages(shown), LAST)
    return retention.counts


def test_what_is_shown_as_it_was_said_is_not_dropped() -> None:
    found = kept(TALK[:LAST])
    # src/io.py and load_row
    assert (found.facts_used, found.facts_dropped, found.facts_present) == (2, 0, 0)
    assert (found.user_messages, found.user_messages_known) == (2, 2)


def test_a_fact_whose_message_was_dropped_is_present_where_another_says_it() -> None:
    summary = user_message(
        "<conversation-summary>\nMend load_row, please. It is broken.\n</conversation-summary>"
    )
    found = kept([summary, user_message("And now?")], transcript_path=PATH)
    assert (found.facts_dropped, found.facts_present, found.facts_reachable) == (2, 1, 0)
    assert (found.user_messages, found.user_messages_known) == (2, 2)


def test_a_fact_is_reachable_only_where_the_request_says_where_the_transcript_is() -> None:
    bare, told = user_message("A summary."), user_message(f"A summary. More is in {PATH}.")
    assert kept([bare, user_message("And now?")], transcript_path=PATH).facts_reachable == 0
    assert kept([told, user_message("And now?")], transcript_path=PATH).facts_reachable == 2
    assert kept([told, user_message("And now?")], transcript_path=PATH).user_messages_known == 2
    assert kept([told, user_message("And now?")], transcript_path=None).facts_reachable == 0
    assert kept([told, user_message("And now?")], transcript_path=None).user_messages_known == 1


def test_what_the_system_message_says_is_never_dropped() -> None:
    system = Message(role="system", content=("Work in src/io.py on load_row.",))
    assert kept([system, user_message("And now?")], system=[system]).facts_dropped == 0


def test_what_an_answer_says_first_is_no_use_of_anything() -> None:
    pieces = MessageCounts(tokenizer_for(None))
    needs = RecordingFacts(recording_of(TALK), pieces)
    assert [len(needs.facts_used[at]) for at in (1, 3, LAST)] == [0, 1, 2]


def test_messages_that_come_and_go_are_counted_as_they_are_shown() -> None:
    pieces = MessageCounts(tokenizer_for(None))
    needs = RecordingFacts(recording_of(TALK), pieces)
    retention = RetentionTracker(needs, transcript_path=None)
    retention.on_request(pieces.count_messages(TALK[:1]), 1)
    retention.on_request(pieces.count_messages([TALK[0], TALK[2]]), 3)
    retention.on_request(pieces.count_messages(TALK[4:5]), LAST)
    assert retention.counts.facts_dropped == 2
    assert retention.counts.facts_present == 0
    assert (retention.counts.user_messages, retention.counts.user_messages_known) == (4, 3)
    assert (retention.counts.last_user_messages, retention.counts.last_user_messages_known) == (
        2,
        1,
    )


def test_a_path_that_is_not_in_the_request_any_more_reaches_nothing() -> None:
    pieces = MessageCounts(tokenizer_for(None))
    retention = RetentionTracker(RecordingFacts(recording_of(TALK), pieces), transcript_path=PATH)
    retention.on_request(
        pieces.count_messages([user_message(f"A summary. More is in {PATH}."), TALK[2]]), 3
    )
    retention.on_request(pieces.count_messages(TALK[4:5]), LAST)
    assert (retention.counts.facts_dropped, retention.counts.facts_reachable) == (2, 0)


def test_a_shortened_result_knows_what_is_left_of_it() -> None:
    short = result_message("c", "def load_row(): […]")
    found = kept([TALK[0], TALK[1], short, *TALK[3:5]])
    assert found.facts_dropped == 0  # load_row was said first by the user
    gone = kept([*TALK[4:5], TALK[1], short])
    assert (gone.facts_dropped, gone.facts_present) == (1, 1)


NOTHING: set[str] = set()


def found(text: str) -> set[str]:
    return set(find_facts(Message(role="user", content=(text,))))


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
    call = ToolCall(
        id="c",
        name="read_file",
        arguments='{"text": "first\\nload_row here", "deep": [{"path": "src/io.py"}]}',
    )
    assert find_facts(Message(role="assistant", tool_calls=(call,))) == {
        "read_file",
        "load_row",
        "src/io.py",
    }
    broken = ToolCall(id="c", name="run", arguments='{"path": "src/io.py')
    assert find_facts(Message(role="assistant", tool_calls=(broken,))) == {"src/io.py"}


@pytest.mark.parametrize(
    "unit", ["a", "a/", "a_", "/", "@", "Error: ", "Error:", "aB", "1a", ".", " "]
)
def test_hostile_text_is_read_once(unit: str) -> None:
    found(unit * 100_000)  # what takes quadratic time does not end today


def test_deep_arguments_need_no_recursion() -> None:
    arguments = "[" * 50_000 + '"src/io.py"' + "]" * 50_000
    assert find_facts(
        Message(role="assistant", tool_calls=(ToolCall(id="c", name="run", arguments=arguments),))
    ) <= {"src/io.py"}


def test_words_are_the_same_however_they_were_laid_out() -> None:
    assert join_words("- Mend the\n  parser, please!") == join_words("Mend the parser please")


def test_an_answer_that_uses_a_fact_which_the_request_does_not_show_lacks_it_reachable_or_not() -> (
    None
):
    told = user_message(f"A summary. More is in {PATH}.")
    assert kept(TALK[:LAST]).answers_lacking == 0
    assert kept([told, user_message("And now?")], transcript_path=PATH).answers_lacking == 1


def test_a_users_message_that_can_only_be_looked_up_is_not_shown() -> None:
    told = user_message(f"A summary. More is in {PATH}.")
    found = kept([told, user_message("And now?")], transcript_path=PATH)
    assert (found.user_messages_known, found.user_messages_present) == (2, 1)
