"""The tokenizer for measurements: one loaded vocabulary, and an empty cache for every cold render."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final
from unittest.mock import patch

from tiktoken import Encoding
from tiktoken_ext import openai_public  # type: ignore[import-untyped]  # tiktoken has types, its plugins have none

from promptkit.tokens.encodings import get_engine, load_vocabulary
from promptkit.tokens.models import DEFAULT_ENCODING
from promptkit.tokens.openai_tokenizer import OpenAITokenizer

__all__ = ["WitnessedEncoding", "encoding", "fresh_tokenizer", "tokens"]

ENCODING: Final = DEFAULT_ENCODING


@cache
def encoding() -> Encoding:
    """Return tiktoken's own encoding, which is loaded once per process: what a floor tokenises with.

    promptkit's has a pattern that matches the same in less time.
    """
    ranks = {token: rank for rank, token in enumerate(load_vocabulary(ENCODING))}
    with patch.object(openai_public, "load_tiktoken_bpe", return_value={}):
        pattern = str(openai_public.ENCODING_CONSTRUCTORS[ENCODING]()["pat_str"])
    return Encoding(ENCODING, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def fresh_tokenizer(witness: WitnessedEncoding | None = None) -> OpenAITokenizer:
    """Return the default tokenizer with an empty cache.

    With a witness, the tokenised bytes are counted.
    """
    tokenizer = OpenAITokenizer(ENCODING)
    tokenizer.encoding = get_engine(ENCODING) if witness is None else witness
    return tokenizer


def tokens(contents: Iterable[str]) -> int:
    """Return the tokens of all texts, without message framing."""
    return sum(map(fresh_tokenizer().count, contents))


class WitnessedEncoding:
    """An encoding that counts the bytes that it tokenises."""

    def __init__(self, inner: Encoding) -> None:
        self.inner = inner
        self.bytes = 0

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        self.bytes += len(text.encode())
        return self.inner.encode_ordinary(text)

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes of tokens."""
        return self.inner.decode_bytes(tokens)

    def __getattr__(self, name: str) -> object:
        # Any other method would tokenise bytes without counting them.
        raise AttributeError(f"A render asked the encoding for {name}, which is not witnessed.")
