"""Estimated token counts, for models without a known tokenizer: from another model's tokens, or from characters.

An estimate is rather too high than too low.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Self

import attrs

from promptkit.errors import InvalidArgumentError
from promptkit.messages import (
    DocumentPart,
    ImagePart,
    OpaquePart,
    Role,
    ToolCall,
    ToolDefinition,
    is_instance,
)
from promptkit.tokens.tokenizer import IMAGE_TOKENS, Count, Tokenizer, count_opaque

LEAST_TOKENS = 1_000
"""Counted tokens of the smallest request that a tokenizer learns from. In a smaller one, what the
provider adds weighs too much."""

HEADROOM = 1.05
"""Factor of a learned margin above the highest ratio that was seen, because later messages may have
more tokens per character."""

STEP = 0.02
"""Learned margins are multiples of this, and fall by two steps at least, so that they seldom
change."""

MAX_RATIOS = 5
"""Number of the newest requests that a learned margin is made of."""

RATIO_RANGE = (0.5, 3.0)
"""The ratios that are learned. Another one has another cause than the way of counting, such as a
report without the cached tokens, or with content that only the provider has, and is ignored."""


@attrs.frozen
class CalibratedTokenizer(Tokenizer):
    """Counts with another tokenizer and raises its counts by a margin, for models whose vocabulary is not public.

    `tokenizer_for` returns one for the families in `promptkit.tokens.models.MARGINS`, with margins
    that were measured. The margin holds for text and for everything that is written as text:
    framing, tool calls and tool definitions. The counts are never exact. A `ContextWindow` learns
    from the usage that the provider reports: it continues with the tokenizer that `learn` returns.

    Args:
        base: Counts the text.
        margin: The provider's tokens for each token that `base` counts.
        floor: The lowest margin that is learned.

    >>> CalibratedTokenizer(tokenizer_for("gpt-5"), margin=1.4).count("Fix the parser in the morning.")
    10
    """

    _base: Tokenizer
    margin: float = 1.2
    """The provider's tokens for each token of `base`."""
    floor: float = attrs.field(default=1.0, kw_only=True)
    """The lowest margin that is learned."""
    # they do not change what is counted
    _ratios: tuple[float, ...] = attrs.field(default=(), kw_only=True, eq=False)
    """The newest ratios of reported tokens to tokens of `base`, oldest first."""

    def __attrs_post_init__(self) -> None:
        if not (0 < self.margin < math.inf and 0 < self.floor < math.inf):
            raise InvalidArgumentError(
                f"margin={self.margin:g} and floor={self.floor:g} must be above 0: write margin=1.2 for 20 % more tokens than `base` counts."
            )
        if self._base.base is not self._base:
            raise InvalidArgumentError(
                f"base is {self._base.name}, which is calibrated already: give its base, and the product of the margins."
            )

    @property
    def base(self) -> Tokenizer:
        """The tokenizer whose counts are raised."""
        return self._base

    @property
    def name(self) -> str:
        """Return the tokenizer and the margin, such as `o200k_base*1.4`."""
        return f"{self._base.name}*{self.margin:g}"

    def scale(self, tokens: int) -> int:
        """Return a number of tokens of `base`, raised by the margin and rounded up."""
        return math.ceil(tokens * self.margin - 1e-9)

    def count(self, text: str) -> int:
        """Estimate the tokens of a text, rounded up."""
        return self.scale(self._base.count(text))

    def upper_bound(self, text: str) -> int | None:
        """Return the bound of `base`, raised by the margin."""
        bound = self._base.upper_bound(text)
        return None if bound is None else self.scale(bound)

    def lower_bound(self, text: str) -> int:
        """Return the bound of `base`, raised by the margin."""
        return self.scale(self._base.lower_bound(text))

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        """Estimate the tokens of a message apart from its content: framing, role, name and tool calls."""
        return Count(
            self.scale(
                self._base.count_framing(
                    role, name=name, tool_calls=tool_calls, tool_call_id=tool_call_id, text=text
                ).tokens
            ),
            exact=False,
        )

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """Count the tokens of a part that is not text, as `base` does.

        The margin applies only to text inside opaque parts.
        """
        counted = self._base.count_part(part)
        if isinstance(part, OpaquePart) and part.tokens is None:
            return Count(self.scale(counted.tokens), exact=False)
        return counted

    def count_overhead(
        self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
    ) -> Count:
        """Estimate the tokens of a request apart from its messages: the start of the reply, and tool definitions."""
        return Count(
            self.scale(self._base.count_overhead(tools, system=system).tokens), exact=False
        )

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        """Truncate a text with `base`, to `tokens` divided by the margin."""
        return self._base.truncate(text, math.floor(tokens / self.margin + 1e-9), keep=keep)

    def learn(self, *, counted: int, reported: int) -> Self:
        """Return the tokenizer with the margin that the newest reports of the provider give.

        The margin is the highest ratio of the last five requests and 5 % more, rounded up to a
        multiple of 0.02, and never below `floor`. It rises at once. It falls when it is 0.04 too
        high, so that requests are not pruned differently after every reply. Requests below 1,000
        counted tokens are ignored, and reports of less than half a token, or more than three, for
        one of `base`.

        Args:
            counted: The tokens that this tokenizer counted for the request.
            reported: The input tokens that the provider reported, cached ones included.

        Raises:
            InvalidArgumentError: A value is no whole number.
        """
        for name, tokens in (("counted", counted), ("reported", reported)):
            if not is_instance(tokens, int) or is_instance(tokens, bool):
                raise InvalidArgumentError(
                    f"{name} must be a whole number of tokens, not {tokens!r:.80}: without a report, do not call learn."
                )
        lowest, highest = RATIO_RANGE
        if (
            counted < LEAST_TOKENS
            or not lowest * counted <= reported * self.margin <= highest * counted
        ):
            return self
        ratios = (*self._ratios, reported * self.margin / counted)[-MAX_RATIOS:]
        needed = max(self.floor, max(ratios) * HEADROOM)
        is_near = self.margin - 2 * STEP < needed <= self.margin
        margin = self.margin if is_near else round(math.ceil(needed / STEP - 1e-9) * STEP, 4)
        return attrs.evolve(self, ratios=ratios, margin=margin)


_LATIN_END = "\u0250"
"""The first letter after the blocks of Latin script in everyday use."""

_MESSAGE_TOKENS = 4
"""Tokens of a message apart from its content."""

_BASE64_PER_TOKEN = 3
"""Characters of base64 that count as a token of a document whose tokens are unknown."""


@attrs.frozen(kw_only=True)
class HeuristicTokenizer(Tokenizer):
    """Counts one token for a number of characters, and adds a margin.

    pi and Claude Code count 4 characters as a token, GSV with a margin of 1.2 or 1.15. A character
    beyond Latin script counts as a whole token: there, four of them are almost never one. Where a
    provider has counted a request, `UsageMeter` uses that count, and this one only for the messages
    after it.

    >>> HeuristicTokenizer().count("Fix the parser.")
    5
    """

    characters_per_token: float = 4.0
    """Characters of one token."""
    margin: float = 1.2
    """Factor by which the estimate is raised."""

    def __attrs_post_init__(self) -> None:
        if not (self.characters_per_token > 0 and self.margin > 0):
            raise InvalidArgumentError(
                f"characters_per_token={self.characters_per_token:g} and margin={self.margin:g} must be above 0."
            )

    @property
    def name(self) -> str:
        """Return the rule, such as `characters/4*1.2`."""
        return f"characters/{self.characters_per_token:g}*{self.margin:g}"

    def count(self, text: str) -> int:
        """Estimate the tokens of a text, rounded up. More text never has fewer tokens."""
        # characters beyond Latin script weigh a token each
        wide = 0 if text.isascii() else sum(letter >= _LATIN_END for letter in text)
        return self._estimate(len(text) + wide * (max(1.0, self.characters_per_token) - 1))

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
        texts = [
            name or "",
            tool_call_id or "",
            *(f"{call.id}{call.name}{call.arguments}" for call in tool_calls),
        ]
        return Count(
            _MESSAGE_TOKENS * (1 + len(tool_calls)) + sum(map(self.count, texts)), exact=False
        )

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """Estimate the tokens of a part: 1,600 tokens of an image, `tokens` of a part that has them, otherwise by its text or length."""
        match part:
            case ImagePart():
                tokens = IMAGE_TOKENS
            case DocumentPart():
                tokens = (
                    math.ceil(len(part.data) / _BASE64_PER_TOKEN)
                    if part.tokens is None
                    else part.tokens
                )
            case OpaquePart():
                tokens = count_opaque(part, self.count).tokens
        return Count(tokens, exact=False)

    def count_overhead(
        self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
    ) -> Count:
        """Estimate the tokens of tool definitions by the length of their texts."""
        return Count(
            sum(
                _MESSAGE_TOKENS
                + self.count(f"{tool.name}{tool.description or ''}{tool.parameters or ''}")
                for tool in tools
            ),
            exact=False,
        )

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
