"""A tokenizer that counts words, so that the reader of a test can check its budgets by eye."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from promptkit.messages import DocumentPart, ImagePart, OpaquePart, Role, ToolCall
from promptkit.tokens.tokenizer import Count, Tokenizer, count_opaque

_EDGE_OF_SPACE = re.compile(r"(?=\s)|(?<=\s)")


@attrs.frozen(kw_only=True)
class WordTokenizer(Tokenizer):
    """A tokenizer that counts one token for each word, a run of characters without white space.

    Messages, tool calls and images cost nothing unless the attributes below say so. Documents and
    opaque parts cost the `tokens` that they declare; without, an opaque part costs the words of the
    text in it.

    >>> WordTokenizer().count("Fix the parser.")
    3
    """

    per_message: int = 0
    """Tokens of each message, beside those of its text. A message of tool calls without text is
    none, as with OpenAI."""

    per_call: int = 0
    """Tokens of each tool call, its name and arguments included."""

    per_image: int = 0
    """Tokens of each image."""

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        """The edges of white space, where no word is cut."""
        return _EDGE_OF_SPACE

    def count(self, text: str) -> int:
        """Count the words of a text."""
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
        """Count the tokens of a message apart from its content."""
        return Count(
            (0 if tool_calls and text is False else self.per_message)
            + self.per_call * len(tool_calls)
        )

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """Count the tokens of an image, a document or an opaque part."""
        return Count(
            self.per_image
            if isinstance(part, ImagePart)
            else count_opaque(part, self.count).tokens
            if isinstance(part, OpaquePart)
            else part.tokens or 0
        )
