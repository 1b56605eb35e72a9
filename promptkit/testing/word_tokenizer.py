"""A tokenizer whose counts can be checked by eye, so that a test's budget is a number that its reader can follow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from promptkit.messages import ImagePart
from promptkit.tokens.tokenizer import Count, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import DocumentPart, OpaquePart, Role, ToolCall

__all__ = ["WordTokenizer"]

_BESIDE_SPACE = re.compile(r"(?=\s)|(?<=\s)")


@attrs.frozen(kw_only=True)
class WordTokenizer(Tokenizer):
    """One token for each word: a run of characters that are no white space. Nothing else costs anything unless told to.

    `per_message` is what each message costs besides, whatever its role; calls without text stand in no message, as with OpenAI.
    `per_call` is what each tool call costs, with its name and arguments. `per_image` is what each image costs. Documents and
    opaque parts cost the tokens that they say.

    >>> WordTokenizer().count("Fix the parser.")
    3
    """

    per_message: int = 0
    """Tokens."""

    per_call: int = 0
    """Tokens."""

    per_image: int = 0
    """Tokens."""

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        """Wherever white space begins, goes on or ends: no word is cut there."""
        return _BESIDE_SPACE

    def count(self, text: str) -> int:
        """The words of a text."""
        return len(text.split())

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        """What a message costs apart from its content."""
        _ = role, name, tool_call_id
        around = 0 if tool_calls and text is False else self.per_message
        return Count(around + self.per_call * len(tool_calls))

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """What a part that is no text costs."""
        return Count(self.per_image if isinstance(part, ImagePart) else part.tokens or 0)
