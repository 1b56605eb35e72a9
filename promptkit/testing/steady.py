"""Counting that does not vary with what a snapshot replaces: an id has as many tokens as its placeholder.

Without it a prompt with a new uuid in each run would have other figures in each run, and at the edge of a budget lose other elements.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.testing.stabilize import Stabilizer, Stable
from promptkit.tokens.tokenizer import Count, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import DocumentPart, ImagePart, OpaquePart, Role, ToolCall, ToolDefinition

__all__ = ["steady"]


def steady(tokenizer: Tokenizer, stabilizer: Stabilizer) -> Tokenizer:
    """A tokenizer that counts text as it stands in the snapshot; the tokenizer itself where nothing is replaced."""
    return _Steady(tokenizer, Stable(stabilizer, numbered=False)) if stabilizer.replaces else tokenizer


@attrs.frozen
class _Steady(Tokenizer):
    """Another tokenizer, given stable text.

    No cut is safe: what is replaced may lie across one. Nothing is known without counting either.
    """

    _tokenizer: Tokenizer
    _stable: Stable

    @property
    def name(self) -> str:
        return self._tokenizer.name

    def count(self, text: str) -> int:
        return self._tokenizer.count(self._stable.text(text))

    def frame(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        return self._tokenizer.frame(
            role,
            name=name and self._stable.text(name),
            tool_calls=[self._stable.call(call) for call in tool_calls],
            tool_call_id=tool_call_id and self._stable.call_id(tool_call_id),
            text=text,
        )

    def part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        return self._tokenizer.part(part)

    def request(self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False) -> Count:
        return self._tokenizer.request(tools, system=system)

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        # Between words, so that no half of an id is counted as what it is; inside one only where not even the first fits.
        places = {0, len(text), *(place.start() for place in re.finditer(r"(?<=\s)(?=\S)|(?<=\S)(?=\s)", text))}
        lengths = sorted(place if keep == "head" else len(text) - place for place in places)
        fitting = bisect_right(lengths, tokens, key=lambda length: self.count(_end(text, length, keep)))
        if fitting > 1 or not text:
            return _end(text, lengths[fitting - 1], keep)
        return super().truncate(_end(text, lengths[1], keep), tokens, keep=keep)


def _end(text: str, characters: int, keep: Literal["head", "tail"]) -> str:
    return text[:characters] if keep == "head" else text[len(text) - characters :]
