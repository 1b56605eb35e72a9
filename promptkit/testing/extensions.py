"""Where syrupy keeps the three kinds of snapshots, and how it writes them: one file each, named after its test.

The suffixes have no dot of their own: a suffix that ends in another's (`.messages.json`) would let syrupy take one kind for the other
and delete what is in use.

Each takes a function that returns what is to be written, and calls it: so what a render raises is to syrupy a comparison that failed,
and not a snapshot that no test uses any more.
"""

from __future__ import annotations

from typing import Any

from syrupy.extensions.json import JSONSnapshotExtension
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from promptkit.testing.characters import json_safe

__all__ = ["MessagesExtension", "PromptExtension", "ReceiptExtension"]


class PromptExtension(SingleFileSnapshotExtension):
    """Markdown, which is text already."""

    _write_mode = WriteMode.TEXT
    file_extension = "md"

    def serialize(self, data: Any, **_: Any) -> str:  # noqa: ANN401  # Any: what syrupy declares
        """The text that the function `data` returns."""
        return str(data())


class ReceiptExtension(PromptExtension):
    """Text."""

    file_extension = "receipt"


class MessagesExtension(JSONSnapshotExtension):
    """JSON, with syrupy's `matcher`, `include` and `exclude`."""

    _max_depth = 500  # of nesting, below which syrupy would leave values out
    file_extension = "messages"

    def serialize(self, data: Any, **kwargs: Any) -> str:  # noqa: ANN401  # Any: what syrupy declares
        """What the function `data` returns as JSON text, without characters that a reader would not see or a file not hold."""
        return json_safe(str(super().serialize(data(), **kwargs)))
