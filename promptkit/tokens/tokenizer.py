"""The protocol of tokenizers: what the renderer asks of one.

A tokenizer counts text and knows what a message costs around its text. `count` is all that a new one must define: subclass
`Tokenizer` explicitly, and the rest has defaults (no framing, media cost nothing, no cut is safe).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from promptkit.messages import DocumentPart, ImagePart, OpaquePart, Role, ToolCall, ToolDefinition

__all__ = ["Count", "Tokenizer"]


class Count(NamedTuple):
    """A number of tokens, and whether it is exact: what the provider bills, or a published formula that was checked against bills."""

    tokens: int
    exact: bool = True


class Tokenizer(Protocol):
    """Counts tokens for one model family.

    >>> class WordTokenizer(Tokenizer):
    ...     def count(self, text: str) -> int:
    ...         return len(text.split())
    """

    @property
    def name(self) -> str:
        """The name that receipts and errors show, such as `o200k_base`."""
        return type(self).__name__

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        """A zero-width pattern that matches where counting is additive.

        At such a position p of a text s, `count(s) == count(s[:p]) + count(s[p:])`. None means that no position is known to be safe.
        Rendering works without it, but counts a message of many parts again for every part.
        """
        return None

    @abstractmethod
    def count(self, text: str) -> int:
        """Count the tokens of a text. Text that looks like a special token counts as text; the empty string counts 0."""
        ...

    def upper_bound(self, text: str) -> int | None:
        """Return a number of tokens that the text does not exceed, without counting it; None if none is known."""
        _ = text
        return None

    def lower_bound(self, text: str) -> int:
        """Return a number of tokens that the text, and any longer text around it, has at least, without counting it; 0 if none is known."""
        _ = text
        return 0

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

        Args:
            role: The message's role.
            name: The author's name, if it has one.
            tool_calls: The tool calls of an assistant message.
            tool_call_id: The id of the tool call that a tool message answers.
            text: Whether the message has text beside its tool calls; None if that is not known.
        """
        _ = role, name, tool_calls, tool_call_id, text
        return Count(0)

    def count_part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """Count the tokens of a part that is not text."""
        _ = part
        return Count(0)

    def count_overhead(self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False) -> Count:
        """Count the tokens of a request apart from its messages: tool definitions, and the tokens that start the reply.

        Args:
            tools: The tools that the request offers.
            system: The text of the first system message, or whether there is one. With True the count may be too high, never too low.
        """
        _ = tools, system
        return Count(0)

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        """Return the longest head or tail of a text that this method can find within `tokens`.

        Args:
            text: The text.
            tokens: The most tokens that the result may have.
            keep: Which end of the text stays.

        Returns:
            A prefix or suffix of the text.
        """
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            piece = text[:middle] if keep == "head" else text[len(text) - middle :]
            if self.count(piece) <= tokens:
                low = middle
            else:
                high = middle - 1
        return text[:low] if keep == "head" else text[len(text) - low :]
