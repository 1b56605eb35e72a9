"""What every codec is: a format's name, how a file of it is told, and how it is read, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.transcript.codecs.head import Head
    from promptkit.transcript.codecs.source import Source
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.store import Problem

__all__ = ["Batch", "Codec"]


@attrs.frozen(kw_only=True)
class Batch:
    """What a piece of a recording comes to."""

    entries: tuple[Entry, ...] = ()
    """In the order in which they are written; each parent stands before its children, in this batch or an earlier one."""
    messages: int = 0
    """Messages as the recording counts them: its own records, whatever number of entries they became."""
    conversations: int = 0
    """Conversations that begin here."""
    scope: str = ""
    """Where call ids belong together: conversations that have nothing to do with each other have different ones."""
    skipped: tuple[Problem, ...] = ()
    """Lines that could not be read. Their text is kept as a custom entry."""
    mended: tuple[Problem, ...] = ()
    """What was read, but could not stand where the recording puts it."""


class Codec(Protocol):
    """Reads one format."""

    @property
    def name(self) -> str:
        """What the format is called on the command line, and in the names of custom entries."""
        ...

    @property
    def about(self) -> str:
        """What writes such files, in a few words."""
        ...

    def detects(self, head: Head) -> bool:
        """Whether a file that begins so is of this format."""
        ...

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a recording, in its order. Holds ids and the round that is being read, never the whole file.

        Raises TranscriptFormatError for a file that stops being of the format, after all that could be read was given.
        """
        ...
