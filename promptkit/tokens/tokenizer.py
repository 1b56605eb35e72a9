"""What the renderer asks of a tokenizer.

A tokenizer counts text, and knows what a message costs around its text. `count` is all that a new one must define: subclass
`Tokenizer` explicitly and the rest has sensible defaults (no framing, media cost nothing, no cut is safe).
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

    `safe_cut` matches (with no width) the positions of a text at which counting is additive: for such a position p of s,
    `count(s) == count(s[:p]) + count(s[p:])`. None says that no position is known to be safe: everything still works,
    but a message of many pieces is counted again for every piece.
    """

    @property
    def name(self) -> str:
        """For receipts and errors, such as `o200k_base`."""
        return type(self).__name__

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        """The positions at which counting is additive."""
        return None

    @abstractmethod
    def count(self, text: str) -> int:
        """The tokens of a text, special-token text counted as text; 0 for the empty string."""
        ...

    def ceiling(self, text: str) -> int | None:
        """A number of tokens that a text surely does not exceed, found without counting; None if none is known."""
        _ = text
        return None

    def frame(
        self,
        role: Role,
        *,
        name: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_call_id: str | None = None,
        text: bool | None = None,
    ) -> Count:
        """The tokens of a message apart from its content: framing, role, name, tool calls. `text`: it has text beside its calls."""
        _ = role, name, tool_calls, tool_call_id, text
        return Count(0)

    def part(self, part: ImagePart | DocumentPart | OpaquePart) -> Count:
        """The tokens of a part that is not text."""
        _ = part
        return Count(0)

    def request(self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False) -> Count:
        """The tokens of a request apart from its messages: tool definitions, priming of the reply.

        `system` is the text of its first system message, or True where that is not known: then the count may be too high, never too low.
        """
        _ = tools, system
        return Count(0)

    def truncate(self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head") -> str:
        """The longest head or tail of a text that this can find within `tokens`; always a prefix or suffix of it, and never longer in tokens."""
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            piece = text[:middle] if keep == "head" else text[len(text) - middle :]
            if self.count(piece) <= tokens:
                low = middle
            else:
                high = middle - 1
        return text[:low] if keep == "head" else text[len(text) - low :]
