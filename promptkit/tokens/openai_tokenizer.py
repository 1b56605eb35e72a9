"""OpenAI's tokens: text by its encodings, and what its chat format adds around text.

Framing: OpenAI cookbook, "How to count tokens with tiktoken". Tools and images: see `tools.py` and `images.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from promptkit.messages import ImagePart
from promptkit.tokens.counter import MAX_TEXT_BYTES, TextCounter
from promptkit.tokens.images import UNKNOWN, ImageRule, image_tokens
from promptkit.tokens.tokenizer import Count, Tokenizer
from promptkit.tokens.tool_schemas import SYSTEM_SAVES, call_tokens, definition_tokens, line_break

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from promptkit.messages import DocumentPart, OpaquePart, Role, ToolCall, ToolDefinition

__all__ = ["OpenAITokenizer"]

FRAMING = 3
PRIMING = 3
NAME = 1
TOOL_RESULT = 2  # a result's framing has no room for a name: the call pays for it


class OpenAITokenizer(Tokenizer):
    """Counts as OpenAI does for one encoding and family of models.

    `images` is the rule for images. `exact` says that the chat framing of the models is known: what is not known is counted as
    for gpt-4o and flagged. `max_text_bytes` (UTF-8) limits one text; longer ones raise TextTooLongError.
    """

    def __init__(
        self,
        encoding: str = "o200k_base",
        *,
        images: ImageRule = UNKNOWN,
        exact: bool = True,
        max_text_bytes: int = MAX_TEXT_BYTES,
        counter: TextCounter | None = None,
    ) -> None:
        self._counter = counter or TextCounter(encoding, max_text_bytes=max_text_bytes)
        self._images = images
        self._exact = exact
        # Thousands of calls per render: the counter's own method, without another around it.
        self.__dict__["count"] = self._counter.count

    @property
    def name(self) -> str:
        """The encoding's name."""
        return self._counter.encoding_name

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        """Before a single space between two words, and behind a line break before anything but white space and `/`."""
        return self._counter.cut

    def count(self, text: str) -> int:
        """The tokens of a text, special-token text counted as text, as in what users write. Remembered by text.

        Raises TextTooLongError.
        """
        return self._counter.count(text)

    def ceiling(self, text: str) -> int | None:
        """Every token has at least one byte, so a text has at most as many tokens as bytes: UTF-8 takes up to 4 a character."""
        return len(text) if text.isascii() else 4 * len(text)

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        """A head or tail of at most `tokens`, and the text itself exactly if it fits; the rest of a long text is not encoded."""
        return self._counter.truncate(text, tokens, keep)

    def frame(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        """The tokens of a message apart from its content: framing, role, name, tool calls.

        `text`: the message has text. It matters beside tool calls, which then stand in a message of their own; unknown counts as yes.
        """
        _ = tool_call_id
        if role == "tool":
            return Count(TOOL_RESULT + self.count(role), self._exact)
        tokens = FRAMING + self.count(role) + (NAME + self.count(name) if name else 0)
        if not tool_calls:
            return Count(tokens, self._exact)
        calls = call_tokens(tool_calls, self.count)
        return Count(calls.tokens + (0 if text is False else tokens), self._exact and calls.exact and text is not None)

    def part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """The tokens of a part that is not text: images by their formula, others by the tokens that they say, or 0 and not exact."""
        if isinstance(part, ImagePart):
            tokens, exact = image_tokens(part, self._images)
            return Count(tokens, exact and self._exact)
        return Count(0, exact=False) if part.tokens is None else Count(part.tokens)

    def request(self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False) -> Count:
        """The tokens of a request apart from its messages: priming of the reply, tool definitions.

        `system`: the text of its first system message. True instead of the text assumes that the line break behind it, which
        definitions need, is a token of its own: never too few, at times one too many.
        """
        if not tools:
            return Count(PRIMING, self._exact)
        definitions = definition_tokens(tools, self.count)
        tokens = PRIMING + definitions.tokens
        if system is not False:
            tokens += (1 if system is True else line_break(system, self.count)) - SYSTEM_SAVES
        return Count(tokens, self._exact and definitions.exact and system is not True)
