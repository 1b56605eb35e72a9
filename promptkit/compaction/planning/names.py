"""Find the names in messages: identifiers and paths, which a model must spell exactly to use them again.

They are found by fixed rules in linear time, so the same text has the same names.
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Iterator
from functools import lru_cache

from promptkit.messages import Message, ToolCall, as_mapping, as_sequence

# Sets of characters have those of ASCII first: each is looked up in a table, and in no category.
_LETTER = r"[0-9A-Za-z_~@\w]"
_NO_LETTER = r"[^0-9A-Za-z_~@\w]"
_GAP = r" \n\r\t\"#$%&'()*,:;<=>?\[\\\]^`{|}!"
# A run of characters without the punctuation around it. The pattern matches every character at most
# once: text between two matches is not searched again. Most runs have one part, and end at a look
# ahead in less time than at a repetition of nothing.
_RUN_PATTERN = rf"{_LETTER}++(?:(?![./+\-])|(?:[./+\-]++{_LETTER}++)*+)"
_RUN = re.compile(_RUN_PATTERN)
# The same after words of letters alone, which are no names and most of what is said: many are passed
# over at once, and so are numbers. Something matches everywhere, so that no word is passed over twice.
_CANDIDATE = re.compile(
    rf"(?:[A-Z]*+[a-z{_GAP}]*[{_GAP}])*+"
    rf"(?:[0-9]++[{_GAP}]|({_RUN_PATTERN})[./+\-{_GAP}]*+|{_NO_LETTER}++|\Z)"
)
_CAMEL_CASE = re.compile(r"[a-z][A-Z]|[A-Z][a-z]+[A-Z]")

_MARKS = frozenset("/_@")
_PUNCTUATION = "(~).,;:!?"
_DIGIT = re.compile(r"\d")
_FIGURE = re.compile(r"[($€£~]*\d[\d.,_:]*(?:%|[^\W\d_]{0,4})[).,;:!?]*")
MAX_FIGURE = 24
"""Characters of a figure, and of a word beside it."""

NAMES_TAG = "names-seen"
"""The tag of a list of names beside a summary."""

MIN_LENGTH, MAX_LENGTH = 5, 200
"""Characters of a name."""

KNOWN_RUNS = 1 << 15
"""Runs of characters whose verdict is remembered: a conversation repeats its words. They take some
megabytes."""


LANGUAGE = frozenset(dir(builtins)).union(
    ("Array", "Date", "JSON", "Math", "Object", "Promise", "console", "process"),
    ("json", "os", "re", "self.assertEqual", "sys"),
    ("bin/bash", "dev/null", "usr/bin/env", "python3", "utf-8"),
    ("GitHub", "JavaScript", "README.md", "TypeScript"),
)
"""Words that a model knows without having read them: those of languages and of every project. A
name that continues one of them after a dot counts as one, too."""


def find_names(text: str) -> set[str]:
    """Return the identifiers and paths of a text.

    `Why does load_file in src/io.py fail? ValueError: no such row` has `load_file`, `src/io.py` and
    `ValueError`.
    """
    return set(filter(is_name, find_candidates(text)))


def find_candidates(text: str) -> set[str]:
    """Return the words of a text that may be names: most of those of letters alone, and of numbers, are not among them."""
    return set(_CANDIDATE.findall(text))


def find_words(text: str) -> list[str]:
    """Return the words of a text, each identifier or path as one of them."""
    return _RUN.findall(text)


@lru_cache(KNOWN_RUNS)  # names and words recur in each message of a conversation
def is_name(word: str) -> bool:
    """Return whether a word is an identifier or a path, rather than a word of a language or a number."""
    return (
        MIN_LENGTH <= len(word) <= MAX_LENGTH
        and any(map(str.isalpha, word))
        and (
            not _MARKS.isdisjoint(word[1:-1])
            or _is_dotted(word)
            or _CAMEL_CASE.search(word) is not None
            or any(map(str.isdigit, word))
        )
    )


def is_common(name: str) -> bool:
    """Return whether a name is one of a language, or of every project."""
    is_special = name.startswith("__") and name.endswith("__")
    return is_special or name in LANGUAGE or name.partition(".")[0] in LANGUAGE


def iter_texts(message: Message) -> Iterator[str]:
    """Yield the text of a message, and the names and the texts of the arguments of its tool calls."""
    yield message.text
    for call in message.tool_calls:
        yield call.name
        for _, text in _iter_arguments(call):
            yield text


def find_replaced_names(message: Message) -> set[str]:
    """Return the names that an edit removes: the text that it replaces has them, and nothing else in the message does.

    That text is in arguments such as `old_string` and `oldText`.
    """
    if not any('"old' in call.arguments for call in message.tool_calls):
        return set()
    arguments = [each for call in message.tool_calls for each in _iter_arguments(call)]
    old = (text for name, text in arguments if name.startswith("old"))
    others = (text for name, text in arguments if not name.startswith("old"))
    return (
        set[str]()
        .union(*map(find_names, old))
        .difference(*map(find_names, (message.text, *others)))
    )


def _iter_arguments(call: ToolCall) -> Iterator[tuple[str, str]]:
    """Yield the strings in a tool call's arguments, each with the name of its argument.

    Arguments that are not JSON are one string.
    """
    try:
        left: list[tuple[str, object]] = [("", json.loads(call.arguments))]
    except (ValueError, RecursionError):
        yield "", call.arguments
        return
    while left:
        name, value = left.pop()
        if isinstance(value, str):
            yield name, value
            continue
        left.extend(as_mapping(value).items() or ((name, each) for each in as_sequence(value)))


def _is_dotted(run: str) -> bool:
    """Accept `parser.py` and `os.path.join`.

    Reject the end of a sentence with the start of the next, and `e.g`.
    """
    before, dot, after = run.rpartition(".")
    return bool(dot) and len(before) > 1 and len(after) > 1 and after[0].islower()


def find_figures(text: str) -> Iterator[str]:
    """Yield the figures of a text, each with the words beside it.

    `The latency budget is 180 ms now.` has `budget is 180 ms`. A number of one digit is none, and
    neither is that of a list.
    """
    for line in text.splitlines():
        # most lines have no digit behind their first word
        words = line.split() if _DIGIT.search(line, line.find(" ") + 1) else ()
        for at, word in enumerate(words):
            if word[0].isalpha() or not at:  # most words are no figure
                continue
            if 1 < len(word.strip(_PUNCTUATION)) <= MAX_FIGURE and _FIGURE.fullmatch(word):
                near = (each for each in words[max(0, at - 2) : at + 2] if len(each) <= MAX_FIGURE)
                yield " ".join(near).strip(_PUNCTUATION)


def remove_name_list(text: str) -> str:
    """Return a text without the list of names in it, as a checkpoint shows one."""
    before, _, rest = text.partition(f"<{NAMES_TAG}>")
    _, end, after = rest.partition(f"</{NAMES_TAG}>")
    return f"{before}{after}" if end else text
