r"""Characters that a reader of a snapshot would not see, or that a text file would not hold.

Control characters (a file in text mode also loses `\r`), separators and marks that show nothing, marks that change the direction of writing,
the invisible tag characters, and lone surrogates. Tab and line feed are plain.
"""

from __future__ import annotations

import json
import re

__all__ = ["backslashed", "has_unseen", "inline", "json_safe"]

# Written as escapes: the characters themselves would be as invisible here as they are in a prompt.
_UNSEEN = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb"
    "\\ud800-\\udfff\\U000e0000-\\U000e007f]"
)


def has_unseen(text: str) -> bool:
    """Whether a text has such a character."""
    return _UNSEEN.search(text) is not None


def json_safe(text: str) -> str:
    r"""JSON text with each of these characters as its `\uXXXX` escape: the same value, readable and writable."""
    return _UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def backslashed(text: str) -> str:
    r"""A text with each of these characters as an escape, and each backslash doubled, so that nothing else looks like one.

    >>> print(backslashed("one\r\ntwo"))
    one\r
    two
    """
    return json_safe(text.replace("\\", "\\\\"))


def inline(text: str) -> str:
    r"""A name, id or path for the inside of a line: as it is where that is plain, else in quotes, with escapes.

    >>> inline("call_1"), inline("two words")
    ('call_1', 'two words')
    >>> print(inline("two\nlines"))
    "two\nlines"
    """
    plain = text and text == text.strip() and not set('"`\n\t') & set(text) and not has_unseen(text)
    return text if plain else json_safe(json.dumps(text, ensure_ascii=False))
