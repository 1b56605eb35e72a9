"""Which words of a message are names, and which of them need no memory."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from promptkit import Message, ToolCall
from promptkit.compaction.planning.facts import Facts, Name
from promptkit.compaction.planning.names import (
    find_names,
    find_replaced_names,
    find_words,
    is_common,
    is_name,
    iter_texts,
    remove_name_list,
)
from promptkit.compaction.run.replacement import LEAST_RATING
from promptkit.compaction.summarizers.facts import rate_name

NOTHING: set[str] = set()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Why does load_file in src/io.py fail?", {"load_file", "src/io.py"}),
        ("See parser.py and os.path.join.", {"parser.py", "os.path.join"}),
        ("class HttpServer: getValue()", {"HttpServer", "getValue"}),
        ("order 4WQ150 of mia_li_3668@example.org", {"4WQ150", "mia_li_3668@example.org"}),
        ("commit 3ea751c087f3", {"3ea751c087f3"}),
        ("The end.Then we went on, e.g. home. 12345 and 2026-11-21 are numbers.", NOTHING),
        ("Nothing to see here, only words!", NOTHING),
    ],
)
def test_names_are_identifiers_and_paths(text: str, names: set[str]) -> None:
    assert find_names(text) == names


def test_arguments_of_calls_are_read_as_what_they_say_and_not_as_json() -> None:
    arguments = '{"text": "first\\nload_row here", "deep": [{"path": "src/io.py"}]}'
    call = ToolCall(id="c", name="read_file", arguments=arguments)
    broken = ToolCall(id="c", name="run", arguments='{"path": "src/io.py')
    deep = ToolCall(
        id="c", name="run", arguments="[" * 50_000 + '"src/io.py"' + "]" * 50_000
    )  # needs no recursion
    for each, names in (
        (call, {"read_file", "load_row", "src/io.py"}),
        (broken, {"src/io.py"}),
        (deep, {"src/io.py"}),
    ):
        texts = iter_texts(Message(role="assistant", tool_calls=(each,)))
        assert set().union(*map(find_names, texts)) <= names


@given(st.text('aeBZ_1é .,-/+~@\n(\\]^"\u2014\u00b2', max_size=60))
def test_the_names_of_a_text_are_those_of_its_words_that_are_names(text: str) -> None:
    assert find_names(text) == set(filter(is_name, find_words(text)))


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "a/",
        "a_",
        "/",
        "@",
        "aB",
        "1a",
        ".",
        " ",
        "a ",
        "an A\n",
        "9 ",
        "a\u2014",
        "<names-seen>",
    ],
)
def test_hostile_text_is_read_once(unit: str) -> None:
    find_names(remove_name_list(unit * 100_000))  # what takes quadratic time does not end today


def test_words_of_languages_and_of_every_project_need_no_memory() -> None:
    assert all(map(is_common, ("ValueError", "__init__", "console.log", "README.md")))
    assert not any(map(is_common, ("load_row", "src/io.py", "consoleRow")))


def test_a_list_of_names_is_taken_out_of_a_text_and_all_else_stays() -> None:
    listed = "before <names-seen>\na_b, c_d\n</names-seen> after"
    assert remove_name_list(listed) == "before  after"
    assert remove_name_list("before <names-seen> after") == "before <names-seen> after"


def test_names_that_were_written_repeated_and_seen_lately_come_first() -> None:
    written = Name("of_the_model", written=2, seen=2, last=90)
    repeated = Name("read_twice", written=0, seen=2, last=90)
    read = Name("read_once", written=0, seen=1, last=90)
    old = Name("read_long_ago", written=0, seen=1, last=10)
    ratings = [rate_name(name, messages=100) for name in (written, repeated, read, old)]
    assert ratings == sorted(set(ratings), reverse=True)


@pytest.mark.parametrize(
    ("written", "seen", "messages"),
    [(0, 2, 4), (1, 2, 17), (10, 10, 50)],
    ids=["printed twice", "written and printed", "written ten times"],
)
def test_a_name_is_listed_for_longer_the_more_often_the_model_wrote_it(
    written: int, seen: int, messages: int
) -> None:
    name = Name("load_row", written, seen, last=10)
    assert rate_name(name, messages=10 + messages) >= LEAST_RATING
    assert rate_name(name, messages=11 + messages) < LEAST_RATING


def test_a_name_that_a_tool_printed_once_is_not_listed() -> None:
    assert rate_name(Name("load_row", written=0, seen=1, last=10), messages=10) < LEAST_RATING


def test_an_edit_removes_the_names_that_only_the_text_has_which_it_replaces() -> None:
    arguments = {
        "path": "src/io.py",
        "edits": [{"oldText": "load_row(a_b); save_row()", "newText": "read_row(a_b)"}],
    }
    edit = ToolCall(id="c", name="edit", arguments=json.dumps(arguments))
    message = Message(role="assistant", content=("save_row stays elsewhere",), tool_calls=(edit,))
    assert find_replaced_names(message) == {"load_row"}
    assert find_replaced_names(Message(role="assistant", content=("load_row",))) == NOTHING


def test_counts_that_another_program_wrote_are_rated_whatever_they_are() -> None:
    facts = Facts.from_json(
        {"messages": 100, "names": [{"text": "load_row", "written": -9, "seen": -1, "last": 105}]}
    )
    assert rate_name(facts.names[0], messages=facts.messages) > 0
