"""Encodings by name, without a network.

The bundled ones are built from this package's own data, once per process.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import attrs

from promptkit.errors import TokenizerError

if TYPE_CHECKING:
    from tiktoken import Encoding

# The patterns match what OpenAI's match. Everything but the look-ahead is in a group of its own and
# without possessive quantifiers, so that tiktoken's engine matches it in one go: o200k_base takes a
# tenth less time for it, cl100k_base two fifths.
_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_O200K_WORDS = "|".join(
    (
        r"(?:[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        + _CONTRACTION,
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        + _CONTRACTION,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+)",
        r"\s+(?!\S)",
        r"\s",
    )
)
_CL100K_WORDS = r"(?:'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+$|\s*[\r\n])|\s+(?!\S)|\s"
_HARMONY = {
    200002: "<|return|>",
    200003: "<|constrain|>",
    200005: "<|channel|>",
    200006: "<|start|>",
    200007: "<|end|>",
    200008: "<|message|>",
    200012: "<|call|>",
}


@attrs.frozen
class Bundle:
    """What an encoding that ships with promptkit is built from.

    Args:
        vocabulary: The name of its vocabulary file.
        words: The pattern that splits text into words.
        special: The special tokens: text → rank.
    """

    vocabulary: str
    words: str
    special: Mapping[str, int]


# Special tokens and ranks are OpenAI's (tiktoken_ext/openai_public.py); a test compares them, and
# what the patterns match, with the installed tiktoken.
BUNDLED: Mapping[str, Bundle] = {
    "o200k_base": Bundle(
        "o200k_base", _O200K_WORDS, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
    ),
    "o200k_harmony": Bundle(
        "o200k_base",
        _O200K_WORDS,
        {
            "<|endofprompt|>": 200018,
            "<|startoftext|>": 199998,
            "<|endoftext|>": 199999,
            **{_HARMONY.get(rank, f"<|reserved_{rank}|>"): rank for rank in range(200000, 201088)},
        },
    ),
    "cl100k_base": Bundle(
        "cl100k_base",
        _CL100K_WORDS,
        {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
}
"""Names of bundled encodings → what they are built from."""

OLDER = frozenset({"gpt2", "r50k_base", "p50k_base", "p50k_edit"})
"""OpenAI's older encodings. tiktoken would download their vocabularies without a timeout, and
counting must never hang."""


class EncodingEngine(Protocol):
    """Encodes text with one encoding, as a `tiktoken.Encoding` does.

    `promptkit.testing.check_encoding_engine` compares an engine with tiktoken.
    """

    def encode_ordinary(self, text: str, /) -> Sequence[int]:
        """Return the ranks of the tokens of a text.

        Text that looks like a special token is text. A text never has lone surrogates: promptkit
        replaces them by U+FFFD before, as tiktoken does.
        """
        ...

    def decode_bytes(self, tokens: Sequence[int], /) -> bytes:
        """Return the bytes of tokens, a part of what `encode_ordinary` returned."""
        ...


_engines: dict[str, EncodingEngine] = {}


def register_encoding_engine(encoding: str, engine: EncodingEngine) -> None:
    """Encode text with another engine than tiktoken.

    Register an engine when a program starts: a tokenizer that has counted a text keeps its engine.

    Args:
        encoding: The name of the encoding, such as `o200k_base`.
        engine: The engine. A later one replaces it.

    >>> register_encoding_engine("o200k_base", tiktoken.get_encoding("o200k_base"))
    """
    _engines[encoding] = _WellFormed(engine)


@attrs.frozen
class _WellFormed:
    """An engine that gets texts without lone surrogates."""

    _engine: EncodingEngine

    def encode_ordinary(self, text: str, /) -> Sequence[int]:
        return self._engine.encode_ordinary(replace_surrogates(text))

    def decode_bytes(self, tokens: Sequence[int], /) -> bytes:
        return self._engine.decode_bytes(tokens)


_SURROGATE = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates by U+FFFD, as tiktoken does: Rust has no strings with them."""
    return (
        text
        if text.isascii() or not _SURROGATE.search(text)
        else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def get_engine(encoding: str) -> EncodingEngine:
    """Return the engine that was registered for an encoding, or the encoding of tiktoken.

    Raises TokenizerError if there is neither.
    """
    return _engines[encoding] if encoding in _engines else get_encoding(encoding)


_encodings: dict[str, Encoding] = {}
_lock = Lock()


def get_encoding(name: str) -> Encoding:
    """Return an encoding, built once per process: the one that tiktoken has loaded, else from bundled data, else from a plugin of tiktoken.

    `o200k_base`, `o200k_harmony` and `cl100k_base` never need a network. OpenAI's older encodings
    must have been loaded by `tiktoken.get_encoding`.

    Raises TokenizerError if an encoding does not load; the message says how to provide it.
    """
    if name not in _encodings:
        with _lock:
            if name not in _encodings:
                _encodings[name] = _build(name)
    return _encodings[name]


LONGEST_TOKEN = 128
"""The bytes of the longest token of each bundled encoding. To find them takes 30 ms, which a short
program need not spend."""


@cache
def find_longest_token(name: str) -> int:
    """Return the bytes of the longest token of an encoding."""
    return (
        LONGEST_TOKEN if name in BUNDLED else max(map(len, get_encoding(name).token_byte_values()))
    )


def _build(name: str) -> Encoding:
    import tiktoken
    from tiktoken import registry

    loaded: Mapping[str, Encoding] = getattr(registry, "ENCODINGS", {})
    if name in loaded:
        return loaded[name]
    bundle = BUNDLED.get(name)
    if bundle is not None:
        return tiktoken.Encoding(
            name,
            pat_str=bundle.words,
            mergeable_ranks={
                token: rank for rank, token in enumerate(load_vocabulary(bundle.vocabulary))
            },
            special_tokens=dict(bundle.special),
        )
    if name in OLDER:
        raise TokenizerError(
            f"The vocabulary of {name!r} is not bundled and promptkit downloads nothing: call tiktoken.get_encoding({name!r}) first, which loads it."
        )
    try:
        return tiktoken.get_encoding(name)
    except Exception as error:  # a plugin of tiktoken may raise anything
        raise TokenizerError(
            f"The encoding {name!r} does not load: {error}. Use one of {', '.join(BUNDLED)}, or install the package that provides it."
        ) from error


def load_vocabulary(name: str) -> tuple[bytes, ...]:
    """Return the tokens of a bundled vocabulary (`o200k_base` or `cl100k_base`) in rank order."""
    from importlib.resources import files

    return unpack_vocabulary(
        files("promptkit.tokens").joinpath("vocab", f"{name}.zlib").read_bytes()
    )


_HEADER = 4  # bytes


def unpack_vocabulary(blob: bytes) -> tuple[bytes, ...]:
    """Return the tokens of a compressed vocabulary in rank order.

    Its form is `zlib(count as 4 bytes little-endian + one length byte per token + the tokens)`.
    Ranks are exactly 0 to n-1, so they are not stored.
    `benchmarks/maintenance/build_vocabularies.py` writes it.
    """
    data = zlib.decompress(blob)
    start = _HEADER + int.from_bytes(data[:_HEADER], "little")
    return tuple(
        data[low:high] for low, high in pairwise(accumulate(data[_HEADER:start], initial=start))
    )
