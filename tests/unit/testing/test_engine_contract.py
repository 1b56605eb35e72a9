"""`check_encoding_engine`: an engine that differs from tiktoken is found, with the text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from promptkit.testing import check_encoding_engine
from promptkit.tokens.encodings import get_encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

THEIRS = get_encoding("o200k_base")
TALK = Path("components/promptkit_components/demo.jsonl")


class Changed:
    """tiktoken, with a fault."""

    def __init__(
        self,
        encode: Callable[[str], list[int]] = THEIRS.encode_ordinary,
        decode: Callable[[Sequence[int]], bytes] = THEIRS.decode_bytes,
    ) -> None:
        self.encode = encode
        self.decode = decode

    def encode_ordinary(self, text: str) -> list[int]:
        return self.encode(text)

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        return self.decode(tokens)


@pytest.mark.long
def test_tiktoken_meets_the_contract() -> None:
    check_encoding_engine(Changed(), recordings=[TALK])


@pytest.mark.parametrize(
    "wrong", ["<|endoftext|>", " " * 19_000, "\u1e9e"], ids=["special", "long run", "rare letter"]
)
def test_an_engine_that_encodes_a_text_otherwise_is_refused(wrong: str) -> None:
    def encode(given: str) -> list[int]:
        return [*THEIRS.encode_ordinary(given), *([0] if wrong in given else [])]

    with pytest.raises(AssertionError, match="The engine encodes") as raised:
        check_encoding_engine(Changed(encode))
    assert wrong[:100] in str(raised.value)


def test_an_engine_that_decodes_tokens_otherwise_is_refused() -> None:
    with pytest.raises(AssertionError, match="decodes"):
        check_encoding_engine(Changed(decode=lambda tokens: b"x" * len(tokens)))


def test_the_texts_of_recordings_are_compared() -> None:
    def encode(given: str) -> list[int]:
        return THEIRS.encode_ordinary(given)[: None if len(given) < 100 or "\n" not in given else 1]

    with pytest.raises(AssertionError):
        check_encoding_engine(Changed(encode), recordings=[TALK])
