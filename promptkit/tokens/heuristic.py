"""Token counts estimated from characters, for models without a known tokenizer. The estimate is rather too high than too low."""

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
"""The first letter after the blocks of Latin script in everyday use."""

_BASE64_PER_TOKEN = 3
"""Characters of base64 that count as a token of a document whose tokens are unknown."""


@attrs.frozen(kw_only=True)
class HeuristicTokenizer(Tokenizer):
    """Counts one token for a number of characters, and adds a margin.

    pi and Claude Code count 4 characters as a token, GSV with a margin of 1.2 or 1.15. A character beyond Latin script counts as a
    whole token: there, four of them are almost never one. Where a provider has counted a request, `UsageMeter` uses that count, and
    this one only for the messages after it.

    >>> HeuristicTokenizer().count("Fix the parser.")
    5
    """

    characters_per_token: float = 4.0
    """Characters of one token."""
    margin: float = 1.2
    """Factor by which the estimate is raised."""
    image_tokens: int = 1_600
    """Tokens of any image, whatever its size."""
    message_tokens: int = 4
    """Tokens of a message apart from its content."""

    def __attrs_post_init__(self) -> None:
        if not (self.characters_per_token > 0 and self.margin > 0):
            problem = f"characters_per_token={self.characters_per_token:g} and margin={self.margin:g} must be above 0."
            raise InvalidArgumentError(problem)

    @property
    def name(self) -> str:
        """Return the rule, such as `characters/4*1.2`."""
        return f"characters/{self.characters_per_token:g}*{self.margin:g}"

    def count(self, text: str) -> int:
        """Estimate the tokens of a text, rounded up. More text never has fewer tokens."""
        return self._estimate(self._weight(text))

    def upper_bound(self, text: str) -> int | None:
        """Return the estimate for a text of this length without any Latin character."""
        return self._estimate(len(text) * max(1.0, self.characters_per_token))

    def lower_bound(self, text: str) -> int:
        """Return the estimate for a text of this length with Latin characters only."""
        return self._estimate(len(text))

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        """Estimate the framing of a message, with names, ids and the arguments of tool calls."""
        _ = role, text
        texts = [name or "", tool_call_id or "", *(f"{call.id}{call.name}{call.arguments}" for call in tool_calls)]
        return Count(self.message_tokens * (1 + len(tool_calls)) + sum(map(self.count, texts)), exact=False)

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """Estimate the tokens of a part: `image_tokens` of an image, `tokens` of a part that has them, and otherwise by its length."""
        from promptkit.messages import DocumentPart, ImagePart

        if isinstance(part, ImagePart):
            return Count(self.image_tokens, exact=False)
        if part.tokens is not None:
            return Count(part.tokens, exact=False)
        if isinstance(part, DocumentPart):
            return Count(math.ceil(len(part.data) / _BASE64_PER_TOKEN), exact=False)
        return Count(self.count(str(part.value)), exact=False)

    def count_overhead(self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False) -> Count:
        """Estimate the tokens of tool definitions by the length of their texts."""
        _ = system
        texts = (f"{tool.name}{tool.description or ''}{tool.parameters or ''}" for tool in tools)
        return Count(sum(self.message_tokens + self.count(text) for text in texts), exact=False)

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        """Return the longest head or tail of a text within `tokens`, in linear time."""
        max_weight = tokens / self.margin * self.characters_per_token
        weight = 0.0
        heavy = max(1.0, self.characters_per_token)
        for taken, letter in enumerate(text if keep == "head" else reversed(text)):
            weight += 1.0 if letter < _LATIN_END else heavy
            if weight > max_weight:
                return text[:taken] if keep == "head" else text[len(text) - taken :]
        return text

    def _estimate(self, weight: float) -> int:
        return math.ceil(weight / self.characters_per_token * self.margin - 1e-9)

    def _weight(self, text: str) -> float:
        """Return the number of characters, with those beyond Latin script weighing a token each."""
        if text.isascii():
            return float(len(text))
        wide = sum(letter >= _LATIN_END for letter in text)
        return len(text) + wide * (max(1.0, self.characters_per_token) - 1)
