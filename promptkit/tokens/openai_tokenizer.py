"""OpenAI's tokens: text by its encodings, and what the chat format adds around text.

Framing: OpenAI cookbook, "How to count tokens with tiktoken". Tools and images: see
`tool_schemas.py` and `images.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from promptkit.messages import DocumentPart, ImagePart, OpaquePart, Role, ToolCall, ToolDefinition
from promptkit.tokens.counter import MAX_TEXT_BYTES, TextCounter
from promptkit.tokens.encodings import find_longest_token
from promptkit.tokens.images import UNKNOWN_IMAGE_RULE, ImageRule, count_image
from promptkit.tokens.tokenizer import Count, Tokenizer, count_opaque
from promptkit.tokens.tool_schemas import (
    SYSTEM_DISCOUNT,
    count_definitions,
    count_line_break,
    count_tool_calls,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence


_FRAMING = 3
_REPLY_START = 3
_NAME = 1
_TOOL_RESULT = 2  # the name of the tool is counted with the call


class OpenAITokenizer(Tokenizer):
    """Counts as OpenAI does for one encoding and family of models.

    Args:
        encoding: The encoding's name.
        images: The rule that counts images.
        exact: Whether the models' chat framing is known. Where it is not, it counts as for gpt-4o,
            and counts are not exact.
        max_text_bytes: The longest text in UTF-8 bytes. Longer ones raise TextTooLongError.
        counter: Counts text; it may be shared with other tokenizers of the same encoding.

    >>> OpenAITokenizer("o200k_base").count("Fix the parser.")
    4
    """

    def __init__(
        self,
        encoding: str = "o200k_base",
        *,
        images: ImageRule = UNKNOWN_IMAGE_RULE,
        exact: bool = True,
        max_text_bytes: int = MAX_TEXT_BYTES,
        counter: TextCounter | None = None,
    ) -> None:
        self._counter = counter or TextCounter(encoding, max_text_bytes=max_text_bytes)
        self._images = images
        self._exact = exact
        self._frames: dict[Role, Count] = {}
        # A render calls it thousands of times, so this is the counter's own method without another
        # call around it.
        self.__dict__["count"] = self._counter.count

    @property
    def name(self) -> str:
        """Return the encoding's name."""
        return self._counter.encoding_name

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        """Match before a single space between two words, and after a line break before anything but white space and `/`."""
        return self._counter.safe_cut

    def count(self, text: str) -> int:
        """Count the tokens of a text.

        Text that looks like a special token counts as text. Counts are cached.

        Raises TextTooLongError.
        """
        return self._counter.count(text)

    def upper_bound(self, text: str) -> int | None:
        """Return the bytes of the text in UTF-8: every token has at least one byte."""
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    def lower_bound(self, text: str) -> int:
        """Return the tokens that the text has if each is the longest of the vocabulary: every character has at least one byte."""
        return -(-len(text) // find_longest_token(self._counter.encoding_name))

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        """Return a head or tail of at most `tokens`, or the text itself exactly if it fits.

        The rest of a long text is not encoded.
        """
        return self._counter.truncate(text, tokens, keep)

    def count_framing(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        """Count the tokens of a message apart from its content: framing, role, name and tool calls.

        Tool calls beside a text count as a message of their own. Where `text` is None, they count
        as if there were a text.
        """
        frame = self._frames.get(role)
        if frame is None:
            tokens = (_TOOL_RESULT if role == "tool" else _FRAMING) + self.count(role)
            frame = self._frames[role] = Count(tokens, self._exact)
        if role == "tool" or not (name or tool_calls):
            return frame
        tokens = frame.tokens + (_NAME + self.count(name) if name else 0)
        if not tool_calls:
            return Count(tokens, self._exact)
        calls = count_tool_calls(tool_calls, self.count)
        return Count(
            calls.tokens + (0 if text is False else tokens),
            self._exact and calls.exact and text is not None,
        )

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """Count the tokens of a part that is not text: images by their formula, others by their `tokens`.

        Without `tokens`, an opaque part counts the text in it, and a document nothing; that is
        exact only for a refusal.
        """
        if isinstance(part, ImagePart):
            tokens, exact = count_image(part, self._images)
            return Count(tokens, exact and self._exact)
        if isinstance(part, OpaquePart):
            return count_opaque(part, self.count)
        return Count(0, exact=False) if part.tokens is None else Count(part.tokens)

    def count_overhead(
        self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
    ) -> Count:
        """Count the tokens of a request apart from its messages: the start of the reply, and tool definitions.

        With `system=True` instead of the text, the line break after the system message, which
        definitions need, counts as a token of its own. So the count is never too low, and at times
        one too high.
        """
        if not tools:
            return Count(_REPLY_START, self._exact)
        definitions = count_definitions(tools, self.count)
        tokens = _REPLY_START + definitions.tokens
        if system is not False:
            tokens += (
                1 if system is True else count_line_break(system, self.count)
            ) - SYSTEM_DISCOUNT
        return Count(tokens, self._exact and definitions.exact and system is not True)
