"""Refusals that are about one message: the provider refuses a request as too large, and its window is not full."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptkit.compaction.pruning.media import count_media_bytes, describe_media
from promptkit.messages import DocumentPart, ImagePart, Message, OpaquePart, Part
from promptkit.transcript import Edit, Transcript, ViewItem
from promptkit.wire.parts import is_media, replace_media

SMALLEST_BODY = 100_000
"""Bytes: no server has a lower limit for the body of a request by default. A smaller body that is
refused is not refused because of its size."""

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
        return ", ".join(
            describe_media(part) for part in parts if isinstance(part, ImagePart | DocumentPart)
        )

    def leave_out_media(self, transcript: Transcript) -> list[Edit]:
        """Return the edits after which requests name these pictures and documents in place of showing them."""
        return [
            Edit(
                target=item.entry_id,
                content=replace_media(
                    message,
                    lambda _, part: (
                        f"[{describe_media(part)} left out: the provider refused a request with it as too large]"
                    ),
                ).content,
                reason=REFUSED_REASON,
            )
            for item in self.items
            if any(map(is_media, item.message.content))
            and (message := transcript.get(item.entry_id).message) is not None
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
        case ImagePart() | DocumentPart():
            return count_media_bytes(part)
        case OpaquePart():
            return len(str(part.value))
        case _:
            return 0
