"""The words of a text, the forms of a word, and how an index has them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from promptkit.transcript.log.search import are_forms, encode_words, extract_words, find_stem
from tests.examples import examples


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "userAuthenticationTimeoutMs",
            {"userauthenticationtimeoutms", "user", "authentication", "timeout"},
        ),
        ("HTTPServerError", {"httpservererror", "http", "server", "error"}),
        ("maxÜberlaufGröße", {"maxüberlaufgröße", "max", "überlauf", "größe"}),
        ("sha256Sum", {"sha256sum", "sha256", "sum"}),
        ("max_upload_bytes", {"max_upload_bytes", "max", "upload", "bytes"}),
        (
            "src/parserTests.py",
            {"src/parsertests.py", "src", "parsertests.py", "parsertests", "parser", "tests"},
        ),
        ("Plain WORDS here", {"plain", "words", "here"}),
    ],
)
def test_the_parts_of_names_are_words_in_snake_case_and_in_camel_case(
    text: str, words: set[str]
) -> None:
    assert extract_words(text) == words


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("parse", "parsing"),
        ("index", "indexes"),
        ("rebuild", "rebuilt"),
        ("rebuilding", "rebuilt"),
        ("review", "reviewer"),
        ("retry", "retried"),
        ("test", "tests"),
        ("job", "jobs"),
        ("naming", "names"),
        ("logging", "logged"),
        ("run", "running"),
        ("copies", "copied"),
        ("auth", "authentication"),
        ("configuration", "config"),
        ("датчик", "датчика"),
        ("contraseña", "contraseñas"),
    ],
)
def test_these_are_forms_of_one_word(word: str, other: str) -> None:
    assert are_forms(word, other)
    assert are_forms(other, word)


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("line", "link"),
        ("test", "text"),
        ("transaction", "translate"),
        ("international", "interview"),
        ("e4412", "e4415"),
        ("module_3.py", "module_4.py"),
        ("run", "rust"),
        ("端口", "端点"),
    ],
)
def test_these_are_not(word: str, other: str) -> None:
    assert not are_forms(word, other)


_WORDS = st.one_of(
    st.text(st.sampled_from("abgin"), min_size=1, max_size=9),
    st.builds(
        "{}{}".format,
        st.sampled_from(["log", "name", "pars"]),
        st.sampled_from(["", "s", "es", "ing", "ging", "ed", "ging", "e", "er"]),
    ),
    st.text(max_size=60),
)


@settings(max_examples=examples(400))
@given(_WORDS, _WORDS)
def test_every_form_of_a_word_begins_with_its_stem(word: str, other: str) -> None:
    assert word.startswith(find_stem(word))
    if are_forms(word, other):
        assert other.startswith(find_stem(word))


@settings(max_examples=examples(400))
@given(_WORDS, st.integers(1, 60))
def test_an_index_finds_a_word_by_its_beginning(word: str, length: int) -> None:
    (term,) = encode_words([word])
    (beginning,) = encode_words([word[:length]])
    assert term.startswith(beginning)
    assert term.isascii()
    assert term.isalnum()
