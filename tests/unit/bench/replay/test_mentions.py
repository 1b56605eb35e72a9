"""What counts as a fact: names, paths and errors, and nothing of ordinary language."""

from __future__ import annotations

import pytest

from promptkit import Message, ToolCall
from promptkit.bench.replay.mentions import mentions, words_of

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
