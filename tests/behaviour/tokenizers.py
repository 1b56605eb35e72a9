"""Tokenizers whose counts can be checked by eye, and one whose counts change at every joint."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

import attrs

from promptkit.tokens.tokenizer import Count, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import DocumentPart, ImagePart, OpaquePart, Role, ToolCall

__all__ = ["Chars", "Runs", "Words"]


def _opaque(part: ImagePart | DocumentPart | OpaquePart, image: int) -> Count:
    tokens = getattr(part, "tokens", image)
    return Count(0 if tokens is None else tokens)


@attrs.frozen
class Words(Tokenizer):
    """One token per run of what is no white space."""

    message: int = 0
    call: int = 0
    image: int = 0

    @property
    def safe_cut(self) -> re.Pattern[str]:
        return re.compile(r"(?=\s)|(?<=\s)")

    def count(self, text: str) -> int:
        return len(re.findall(r"\S+", text))

    def frame(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        # As with OpenAI, calls that stand alone have no message around them.
        return Count((0 if tool_calls and text is False else self.message) + self.call * len(tool_calls))

    def part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        return _opaque(part, self.image)


@attrs.frozen
class Chars(Words):
    """One token per character: everything is additive everywhere."""

    @property
    def safe_cut(self) -> re.Pattern[str]:
        return re.compile("")

    def count(self, text: str) -> int:
        return len(text)


@attrs.frozen
class Runs(Words):
    """One token per run of letters, of digits, of white space, of the rest; a run of over four letters is two.

    Nothing is additive, and taking text away can make the rest more expensive, or not cheaper.
    """

    @property
    def safe_cut(self) -> None:  # type: ignore[override]  # no position is known to be safe
        return None

    def count(self, text: str) -> int:
        runs = ((kind, len(list(group))) for kind, group in groupby(text, _kind))
        return sum(2 if kind == "letter" and length > 4 else 1 for kind, length in runs)


def _kind(character: str) -> str:
    if character.isalpha():
        return "letter"
    if character.isdigit():
        return "digit"
    return "space" if character.isspace() else "other"
