"""Tokens estimated from characters, for models of which no tokenizer is known: no vocabulary, and rather too much than too little."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.errors import InvalidArgumentError
from promptkit.tokens.tokenizer import Count, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import DocumentPart, ImagePart, OpaquePart, Role, ToolCall, ToolDefinition

__all__ = ["HeuristicTokenizer"]

_LATIN_END = "\u0250"
"""The first letter behind the blocks of Latin script that are in everyday use."""

BYTES_PER_TOKEN = 3
"""Of a document in base64, of which no better is known."""


@attrs.frozen(kw_only=True)
class HeuristicTokenizer(Tokenizer):
    """One token for so many characters, and a margin above it: pi and Claude Code count 4 characters, GSV with a margin of 1.2 or 1.15.

    A character beyond Latin script counts as a whole token: there, four of them are nearly never one. Where a provider has counted a
    request, `UsageMeter` goes by that, and this is only for what came since.

    >>> HeuristicTokenizer().count("Fix the parser.")
    5
    """

    characters: float = 4.0
    """For one token."""
    margin: float = 1.2
    """What the quotient is multiplied with."""
    image: int = 1_600
    """Tokens of any image, whatever its size."""
    message: int = 4
    """Tokens of a message apart from its content."""

    def __attrs_post_init__(self) -> None:
        if not (self.characters > 0 and self.margin > 0):
            problem = f"characters={self.characters:g} and margin={self.margin:g} must be above 0."
            raise InvalidArgumentError(problem)

    @property
    def name(self) -> str:
        """Such as `characters/4*1.2`."""
        return f"characters/{self.characters:g}*{self.margin:g}"

    def count(self, text: str) -> int:
        """The estimate, rounded up: more text never has fewer tokens."""
        return self._of(self._weight(text))

    def ceiling(self, text: str) -> int | None:
        """As if no character were Latin."""
        return self._of(len(text) * max(1.0, self.characters))

    def frame(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        """The framing, with names, ids and the arguments of calls."""
        _ = role, text
        said = [name or "", tool_call_id or "", *(f"{call.id}{call.name}{call.arguments}" for call in tool_calls)]
        return Count(self.message * (1 + len(tool_calls)) + sum(map(self.count, said)), exact=False)

    def part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """An image has its constant; what says what it costs costs that; anything else goes by its length."""
        from promptkit.messages import DocumentPart, ImagePart

        if isinstance(part, ImagePart):
            return Count(self.image, exact=False)
        if part.tokens is not None:
            return Count(part.tokens, exact=False)
        if isinstance(part, DocumentPart):
            return Count(math.ceil(len(part.data) / BYTES_PER_TOKEN), exact=False)
        return Count(self.count(str(part.value)), exact=False)

    def request(self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False) -> Count:
        """The tool definitions, by the length of what they say."""
        _ = system
        said = (f"{tool.name}{tool.description or ''}{tool.parameters or ''}" for tool in tools)
        return Count(sum(self.message + self.count(text) for text in said), exact=False)

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        """The longest head or tail within so many tokens. Linear."""
        most = tokens / self.margin * self.characters
        weight = 0.0
        heavy = max(1.0, self.characters)
        for taken, letter in enumerate(text if keep == "head" else reversed(text)):
            weight += 1.0 if letter < _LATIN_END else heavy
            if weight > most:
                return text[:taken] if keep == "head" else text[len(text) - taken :]
        return text

    def _of(self, weight: float) -> int:
        return math.ceil(weight / self.characters * self.margin - 1e-9)

    def _weight(self, text: str) -> float:
        """Characters, of which those beyond Latin script count as a token each."""
        if text.isascii():
            return float(len(text))
        wide = sum(letter >= _LATIN_END for letter in text)
        return len(text) + wide * (max(1.0, self.characters) - 1)
