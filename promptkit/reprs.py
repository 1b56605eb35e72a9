"""Representations of results in one line: figures and short texts in place of contents."""

from __future__ import annotations

from collections.abc import Sized
from typing import TypeGuard

import attrs

MAX_LINE, MAX_TEXT = 120, 50
"""The most characters of a representation, and of a text in it."""


def describe(owner: object, /, **facts: object) -> str:
    """Return a line with the name of an object's class and facts about it.

    Facts that are None or empty are omitted, collections are counted, and texts are shortened.

    >>> describe(rendered, messages=rendered.messages, tokens=rendered.tokens)
    '<Rendered messages: 3, tokens: 96>'
    """
    shown = [
        f"{name}: {_show(value)}"
        for name, value in facts.items()
        if value is not None and not (_is_collection(value) and not len(value))
    ]
    line = " ".join([type(owner).__name__, ", ".join(shown)]).rstrip()
    return f"<{line if len(line) <= MAX_LINE - 2 else line[: MAX_LINE - 3] + '…'}>"


def describe_fields(self: attrs.AttrsInstance) -> str:
    """Describe an object by its fields that differ from their defaults."""
    shown = {
        each.name: value
        for each in attrs.fields(type(self))
        if each.repr and (value := getattr(self, each.name)) != each.default
    }
    return describe(self, **shown)


def clip(text: str, most: int) -> str:
    """Return the first characters of a text, with an ellipsis behind them if it has more."""
    return text if len(text) <= most else f"{text[:most]}…"


def _show(value: object) -> str:
    if isinstance(value, str):
        text = " ".join(value.split())
        return repr(text if len(text) <= MAX_TEXT else f"{text[:30]}…{text[29 - MAX_TEXT :]}")
    if _is_collection(value):
        return str(len(value))
    if isinstance(value, float):
        return str(round(value, 4))
    name: object = getattr(value, "__name__", None)
    return name if isinstance(name, str) else " ".join(repr(value).split())


def _is_collection(value: object) -> TypeGuard[Sized]:
    return isinstance(value, Sized) and hasattr(value, "__iter__")
