"""The text in the content parts of providers that promptkit sends unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptkit.messages import Json

_TEXT_FIELDS = frozenset(
    {
        "content",
        "context",
        "parts",
        "reasoning",
        "reasoning_content",
        "refusal",
        "summary",
        "text",
        "thinking",
        "title",
        "transcript",
    }
)
"""The fields of providers' content parts that hold text for a model to read, or lists with such
text."""

_WRITTEN_FIELDS = frozenset({"arguments", "input", "output", "result"})
"""The fields in which every string is such text, however deep."""


def find_texts(value: Json) -> list[str]:
    """Return the texts in a provider's content part that a model reads: not its ids, types, signatures, addresses and encrypted content."""
    texts: list[str] = []
    # a value, whether it is text, and whether everything in it is
    todo: list[tuple[Json, bool, bool]] = [(value, False, False)]
    while todo:
        item, is_text, is_written = todo.pop()
        if isinstance(item, str):
            if is_text:
                texts.append(item)
        elif isinstance(item, Mapping):
            plain = item.get("type") == "text"  # a text document has its text in `data`
            for key, child in item.items():
                written = is_written or key in _WRITTEN_FIELDS
                todo.append(
                    (child, written or key in _TEXT_FIELDS or (plain and key == "data"), written)
                )
        elif isinstance(item, list | tuple):
            todo.extend((child, is_text, is_written) for child in item)
    return texts
