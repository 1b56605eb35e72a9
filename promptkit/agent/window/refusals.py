"""Refusals that are about one message: the provider refuses a request as too large, and its window is not full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from promptkit.messages import DocumentPart, ImagePart, Message, OpaquePart, Part
from promptkit.transcript import Edit, Entry, Transcript, ViewItem

SMALLEST_BODY = 100_000
"""Bytes: no server has a lower limit for the body of a request by default. A smaller body that is
refused is not refused because of its size."""

UNKNOWN_BYTES = 1_000_000
"""Bytes that a picture behind a URL counts as: the provider reads it, and its size is not known."""

REFUSED_REASON = "refused"
"""The reason in the edits that leave out what a provider has refused."""


@attrs.frozen(kw_only=True)
class NewestMessages:
    """The last user message and what follows it: what no compaction takes out of a request."""

    items: Sequence[ViewItem]
    size: int
    """Bytes of these messages, without the texts of tool results, which can be shortened."""
    body: int
    """Bytes of all messages of the request."""

    @property
    def is_most(self) -> bool:
        """Return whether these parts are at least half of the request body."""
        return 2 * self.size >= self.body

    def describe_media(self) -> str:
        """List the pictures and documents of these messages, or return an empty text if there are none."""
        parts = [part for item in self.items for part in item.message.content]
        return ", ".join(_describe(part) for part in parts if _is_media(part))

    def leave_out_media(self, transcript: Transcript) -> list[Edit]:
        """Return the edits after which requests name these pictures and documents in place of showing them."""
        return [
            Edit(
                target=entry.id, content=tuple(_name_media(message.content)), reason=REFUSED_REASON
            )
            for item in self.items
            if any(map(_is_media, item.message.content))
            for entry in [transcript.get(item.entry_id)]
            for message in _iterate_message(entry)
        ]


def find_newest(
    items: Sequence[ViewItem], at: int | None, request: Sequence[Message]
) -> NewestMessages:
    """Return the items of a view from the last user message (at an index) on, with their share of a request."""
    newest = items[at or 0 :]
    return NewestMessages(
        items=newest,
        size=sum(_count_bytes(item.message, results=False) for item in newest),
        body=sum(map(_count_bytes, request)),
    )


def _iterate_message(entry: Entry) -> Iterator[Message]:
    if entry.message is not None:
        yield entry.message


def _count_bytes(message: Message, *, results: bool = True) -> int:
    counted = (
        part
        for part in message.content
        if results or message.role != "tool" or not isinstance(part, str)
    )
    arguments = (len(call.arguments.encode(errors="replace")) for call in message.tool_calls)
    return sum(map(_count_part, counted)) + sum(arguments)


def _count_part(part: Part) -> int:
    match part:
        case str():
            return len(part.encode(errors="replace"))
        case ImagePart():
            return len(part.url) if part.url.startswith("data:") else UNKNOWN_BYTES
        case DocumentPart():
            return len(part.data)
        case OpaquePart():
            return len(str(part.value))
        case _:
            return 0


def _is_media(part: Part) -> bool:
    return isinstance(part, ImagePart | DocumentPart)


def _describe(part: Part) -> str:
    """Describe a picture or a document, with its bytes as they are sent."""
    if isinstance(part, DocumentPart):
        kind = " ".join(filter(None, ("document", part.name)))
        return f"{kind} ({part.media_type}, {len(part.data):,} bytes)"
    if isinstance(part, ImagePart) and part.url.startswith("data:"):
        kind = part.url[5:].partition(";")[0] or "of an unknown type"
        return f"picture ({kind}, {len(part.url):,} bytes)"
    return f"picture ({part.url:.80})" if isinstance(part, ImagePart) else ""


def _name_media(content: Iterable[Part]) -> Iterator[Part]:
    for part in content:
        yield (
            f"[{_describe(part)} left out: the provider refused a request with it as too large]"
            if _is_media(part)
            else part
        )
