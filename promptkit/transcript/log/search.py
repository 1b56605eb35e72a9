"""The words of messages, by which recall and the indexes of stores find them."""

from __future__ import annotations

import re
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptkit.transcript.log.entries import Entry

MAX_WORD_CHARACTERS = 40
"""Longer words are in an index by their hash."""

_WORD = re.compile(r"[^\W_]+(?:[._/\\:-]+[^\W_]+)*|[^\W_]+", re.UNICODE)
_SEGMENT = re.compile(r"[^/\\]+")
_PART = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U000323af]+"
)
"""Characters of scripts without spaces between words, and of Korean, whose words have endings:
Thai, Lao, Burmese, Khmer, Kana, Han, Hangul."""


def list_lines(entry: Entry) -> list[str]:
    """Return the lines of an entry's message, and a line for each of its tool calls."""
    message = entry.message
    if message is None:
        return []
    return [
        *message.text.splitlines(),
        *(f"{call.name} {call.arguments}" for call in message.tool_calls),
    ]


def extract_words(text: str) -> frozenset[str]:
    """Return the words of a text, the segments of paths, and the parts of names.

    Of scripts without spaces between words, each two characters that follow each other are a word.
    """
    words: set[str] = set()
    text = text.lower()
    pairs: set[str] = set()
    if not text.isascii():
        for match in _UNSPACED.finditer(text):
            run = match[0]
            pairs.update(map("".join, pairwise(run)) if len(run) > 1 else run)
        text = _UNSPACED.sub(" ", text)
    for match in _WORD.finditer(text):
        words.add(match[0])
        words.update(_SEGMENT.findall(match[0]))
        words.update(_PART.findall(match[0]))
    return frozenset(
        pairs.union(word for word in words if len(word) > 2 and word not in STOP_WORDS)  # noqa: PLR2004  # letters; shorter words are too common
    )


def encode_words(words: Iterable[str]) -> list[str]:
    """Write words as short ASCII letters and digits, so that every index takes them for what they are.

    Sorted, each once.
    """
    return sorted({_encode_word(word) for word in words})


def _encode_word(word: str) -> str:
    if word.isascii() and word.isalnum() and len(word) <= MAX_WORD_CHARACTERS:
        return f"w{word}"
    data = word.encode("utf-8", "surrogatepass")
    return (
        f"x{data.hex()}"
        if len(data) <= MAX_WORD_CHARACTERS // 2
        else f"h{blake2b(data, digest_size=12).hexdigest()}"
    )


STOP_WORDS = frozenset(
    [
        "about",
        "above",
        "after",
        "again",
        "also",
        "and",
        "any",
        "are",
        "because",
        "been",
        "before",
        "but",
        "can",
        "could",
        "did",
        "does",
        "done",
        "for",
        "from",
        "had",
        "has",
        "have",
        "how",
        "into",
        "its",
        "just",
        "like",
        "make",
        "made",
        "many",
        "more",
        "most",
        "much",
        "not",
        "now",
        "only",
        "other",
        "our",
        "out",
        "over",
        "should",
        "some",
        "such",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "use",
        "used",
        "was",
        "way",
        "were",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)
"""Words of a question that are too common to search for."""
