"""Compare an engine that encodes text with tiktoken, whose counts are those that OpenAI bills."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, product
from pathlib import Path
from random import Random

from promptkit.tokens.encodings import EncodingEngine, get_encoding

WILD = (
    "",
    "<|endoftext|> <|im_start|><|fim_prefix|>",
    "it's I'LL they'Re we'VE 'S\u017f 'd\u2019s",
    "def f(x):\r\n\treturn x  \r\n\r\n",
    '{"path":"src/a.py","text":"a\\\\n\\u00e9"}',
    "\u05e9\u05dc\u05d5\u05dd \u202eabc\u202c \u0915\u094d\u0937 Z\u0301\u0301\u0301",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
)
"""Texts in which engines have differed: special tokens, contractions, scripts."""

RUNS = (" ", "\n", "\r\n", "\t", "a", "A", "ab", "=", "1", "\u00e9", "\u6f22", " a", "\u00a0")
"""What the texts repeat that are runs of something."""

ALPHABET = (
    "aAbBzZ\u00e9\u00c9\u00df0123456789 \t\n\r.,;:'\"`/\\-_(){}[]<>|&*%$#@!?~^+=\u00a0\u2003\u3000\u6f22\u304b\ud55c"
    "\u0627\u05d0\u0939\u0e44\U0001f600\u200d\ufeff\u0301\x00\x7f\u2028\u01c5\u2163\u00bd\u00b2"
)
"""The characters of random texts."""

BLOCK = 256  # characters of Unicode in one text
SURROGATES = range(0xD800, 0xE000)
ASSIGNED = 0x3_0000  # nearly all assigned characters are before it


def check_encoding_engine(
    engine: EncodingEngine, encoding: str = "o200k_base", *, recordings: Iterable[Path | str] = ()
) -> None:
    """Check that an engine returns the same tokens as tiktoken, and the same bytes for them.

    The texts are runs of up to 40,000 characters, all characters of Unicode, random texts, and
    others in which engines have differed. It takes some seconds.

    Args:
        engine: The engine.
        encoding: The name of its encoding.
        recordings: Recordings in any format that `promptkit import` reads, whose texts are
            compared, too.

    Raises:
        AssertionError: The engine differs. The message has the text.

    >>> check_encoding_engine(tiktoken.get_encoding("o200k_base"))
    """
    theirs = get_encoding(encoding)
    for text in chain(WILD, _repeat(), _list_unicode(), _draw(), _read(recordings)):
        expected = theirs.encode_ordinary(text)
        found = engine.encode_ordinary(text)
        if list(found) != expected:
            raise AssertionError(
                f"The engine encodes {text!r:.200} as {len(found):,} tokens other than the {len(expected):,} of {encoding}."
            )
        if engine.decode_bytes(found) != theirs.decode_bytes(expected):
            raise AssertionError(
                f"The engine decodes the tokens of {text!r:.200} to other bytes than {encoding}."
            )


def _repeat() -> Iterator[str]:
    for unit, length in product(RUNS, (1, 2, 3, 4, 5, 16, 127, 128, 129, 1_000, 20_000)):
        yield unit * length
        yield f"x{unit * length}y"


def _list_unicode() -> Iterator[str]:
    """Yield all characters, in a row and each beside a letter and a space."""
    for start in range(0, 0x110000, BLOCK):
        characters = [chr(code) for code in range(start, start + BLOCK) if code not in SURROGATES]
        yield "".join(characters)
        if start < ASSIGNED:
            yield "".join(f"a{each} {each}" for each in characters)


def _draw() -> Iterator[str]:
    rng = Random(0)  # noqa: S311  # texts, no secrets
    yield from ("".join(rng.choices(ALPHABET, k=rng.randint(1, 300))) for _ in range(2_000))


def _read(recordings: Iterable[Path | str]) -> Iterator[str]:
    from promptkit.lab.recordings import messages_from_entries, read_recording

    for recording in recordings:
        for message in messages_from_entries(
            [entry for _, batch in read_recording(recording) for entry in batch.entries], full=True
        ):
            yield message.text
            yield from (call.arguments for call in message.tool_calls)
