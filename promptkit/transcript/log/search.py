"""The words of messages, by which recall and the indexes of stores find them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from promptkit.transcript.log.entries import Entry

MAX_TERM_CHARACTERS = 40
"""Characters of a word that are in an index."""

LEAST_WORD = 3
"""The letters of a word that is searched for: shorter ones are too common."""

LEAST_STEM = 4
"""Letters that two forms of a word have in common at the least, but for short words with English
endings."""

_WORD = re.compile(r"[^\W_]+(?:[._/\\:-]+[^\W_]+)*|[^\W_]+", re.UNICODE)
_SEGMENT = re.compile(r"[^/\\]+")
_PART = re.compile(r"[^\W_]+")
_HUMP = re.compile("(?<=[a-zß-öø-ÿ0-9])(?=[A-ZÀ-ÖØ-Þ])|(?<=[A-ZÀ-ÖØ-Þ])(?=[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ])")
"""Matches between the parts of a name in camel case."""
_SHORT = re.compile(r"(\w\w(\w))\2?(?:e|y|e?s|ers?|e?d|ings?|ies|ied|ying)?")
"""Matches a word of three letters and an English ending: the first group of `names`, `naming` and
`named` is `nam`, that of `logging` is `log`."""
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U000323af]+"
)
"""Characters of scripts without spaces between words, and of Korean, whose words have endings:
Thai, Lao, Burmese, Khmer, Kana, Han, Hangul."""


def list_lines(entry: Entry) -> list[str]:
    """Return the lines of an entry's message, and a line for each of its tool calls."""
    message = entry.message
    return (
        []
        if message is None
        else [
            *message.text.splitlines(),
            *(f"{call.name} {call.arguments}" for call in message.tool_calls),
        ]
    )


def extract_words(text: str) -> frozenset[str]:
    """Return the words of a text, the segments of paths, and the parts of names, as in `max_size` and `maxSize`.

    Of scripts without spaces between words, each two characters that follow each other are a word.
    """
    words = set(_PART.findall(_HUMP.sub(" ", text).lower()))
    text = text.lower()
    pairs: set[str] = set()
    if not text.isascii():
        for match in _UNSPACED.finditer(text):
            run = match[0]
            pairs.update(map("".join, pairwise(run)) if len(run) > 1 else run)
        text = _UNSPACED.sub(" ", text)
    for match in _WORD.finditer(text):
        words.update([match[0]], _SEGMENT.findall(match[0]), _PART.findall(match[0]))
    return frozenset(
        pairs.union(word for word in words if len(word) >= LEAST_WORD and word not in STOP_WORDS)
    )


def find_stem(word: str) -> str:
    """Return the beginning that all forms of a word share; the word itself if it has no other forms."""
    return (_find_short_stem(word) or word[:LEAST_STEM]) if word.isalpha() else word


def _find_short_stem(word: str) -> str | None:
    short = _SHORT.fullmatch(word)
    return short and short[1]


def are_forms(word: str, other: str) -> bool:
    """Return whether two words are taken for forms of one word, as `parse` and `parsing`, or `auth` and `authentication`.

    One begins with the other, or both begin with the same letters for at least half of the longer
    one, which holds for words of many languages. Only short words are known by their endings.
    """
    if not (word.isalpha() and other.isalpha()):
        return False
    shorter, longer = sorted((word, other), key=len)
    shared = next(
        (at for at, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(shorter)
    )
    if shared >= LEAST_STEM:
        return shared == len(shorter) or 2 * shared >= len(longer)
    stem = _find_short_stem(shorter)
    return stem is not None and stem == _find_short_stem(longer)


def encode_words(words: Iterable[str]) -> list[str]:
    """Write words as ASCII letters and digits, so that every index takes them for what they are.

    A word that begins with another is written so that it begins with that one. Two words may be
    written alike. Sorted, each once.
    """
    return sorted({_encode_word(word) for word in words})


def _encode_word(word: str) -> str:
    letters = (
        each if each.isascii() and each.isalnum() else f"{ord(each):x}"
        for each in word[:MAX_TERM_CHARACTERS]
    )
    return f"w{''.join(letters)}"[: MAX_TERM_CHARACTERS + 1]


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
