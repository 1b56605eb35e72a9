# pyright: reportMissingTypeStubs=false
# tiktoken has types, its plugins have none.

from __future__ import annotations

import subprocess
import sys
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import pytest
import tiktoken
from tiktoken_ext import openai_public  # type: ignore[import-untyped]  # tiktoken has types, its plugins have none

from benchmarks.maintenance.build_vocabularies import SHA256
from promptkit.errors import TokenizerError
from promptkit.tokens.encodings import BUNDLED, find_longest_token, get_encoding, load_vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_a_bundled_encoding_is_tiktokens_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes: list[str | None] = []

    def load(file: str, expected_hash: str | None = None) -> dict[bytes, int]:
        hashes.append(expected_hash)
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", load)
    theirs: dict[str, Any] = openai_public.ENCODING_CONSTRUCTORS[name]()
    ours = BUNDLED[name]
    assert dict(ours.special) == theirs["special_tokens"]
    assert hashes == [SHA256[ours.vocabulary]]
    if ours.vocabulary == name:
        own, other = get_encoding(name), _build(name, theirs["pat_str"])
        for text in chain(_list_short_texts(), _list_texts_of_all_characters()):
            assert own.encode_ordinary(text) == other.encode_ordinary(text), repr(text)


def _build(name: str, words: str) -> tiktoken.Encoding:
    ranks = {token: rank for rank, token in enumerate(load_vocabulary(name))}
    return tiktoken.Encoding(name, pat_str=words, mergeable_ranks=ranks, special_tokens={})


def _list_short_texts() -> Iterator[str]:
    """List texts of what the patterns distinguish: letters of each case, digits, signs, white space."""
    pieces = (
        *("", "a", "S", "ǅ", "ʰ", "中", "\u093e", "\u017f", "7", "½", ".", "/", "'", "_", "🙂"),
        *(" ", "\t", "\n", "\r", "\u00a0", "\u3000", "  ", "'ll", "ing"),
    )
    return ("".join(chosen) for chosen in product(pieces, repeat=3))


def _list_texts_of_all_characters() -> Iterator[str]:
    """List texts that hold every character, some beside the next ones and some between letters."""
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    for start in range(0, len(characters), 512):
        batch = characters[start : start + 512]
        yield "".join(batch)
        yield "a".join(batch)
        yield " ".join(batch)


@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_the_longest_token_of_a_bundled_encoding_is_known_without_its_vocabulary(name: str) -> None:
    assert find_longest_token(name) == max(map(len, get_encoding(name).token_byte_values()))


def test_an_encoding_is_made_once() -> None:
    assert get_encoding("o200k_base") is get_encoding("o200k_base")
    assert get_encoding("o200k_base").encode_ordinary("Hello world!") == [13225, 2375, 0]


def test_what_tiktoken_has_loaded_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tiktoken.Encoding("mine", pat_str=r"\S", mergeable_ranks={b"a": 0}, special_tokens={})
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "mine", mine)
    assert get_encoding("mine") is mine


def test_the_longest_token_of_another_encoding_is_found_in_its_vocabulary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = {b"a": 0, b"b": 1, b"aa": 2, b"aaa": 3}
    letters = tiktoken.Encoding("letters", pat_str=r"\S+", mergeable_ranks=ranks, special_tokens={})
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "letters", letters)
    assert find_longest_token("letters") == 3


@pytest.mark.parametrize("name", ["gpt2", "r50k_base", "p50k_base", "p50k_edit"])
def test_an_older_encoding_is_not_downloaded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> tiktoken.Encoding:
        raise AssertionError(f"{name} would be downloaded")

    monkeypatch.setattr(tiktoken, "get_encoding", refuse)
    with pytest.raises(TokenizerError, match=rf"call tiktoken.get_encoding\('{name}'\) first"):
        get_encoding(name)


def test_an_encoding_that_nobody_has_is_named() -> None:
    with pytest.raises(TokenizerError, match="'o900k_base' does not load"):
        get_encoding("o900k_base")


def test_importing_promptkit_does_not_import_tiktoken() -> None:
    code = "import sys, promptkit; print([name for name in ('tiktoken', 'regex', 'requests') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
