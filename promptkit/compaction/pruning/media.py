"""Pictures and documents in requests: the oldest become a line each where they take more than their tokens, or more bytes than a provider accepts.

The transcript keeps all of them. A provider may also refuse a request because of its newest message,
while its window is not full.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256
from itertools import groupby
from typing import NamedTuple, TypeAlias

import attrs

from promptkit.compaction.planning.blocks import find_last_user_request
from promptkit.messages import DocumentPart, ImagePart, Message, OpaquePart, Part
from promptkit.sizes import AtLeast, read_tokens
from promptkit.transcript import Edit, Transcript, TranscriptView, ViewItem
from promptkit.wire.parts import is_media, replace_media

_LOGGER = logging.getLogger("promptkit")

Media: TypeAlias = ImagePart | DocumentPart
"""A picture or a document."""

UNKNOWN_BYTES = 1_000_000
"""Bytes that a picture behind a URL counts as: the provider reads it, and its size is not known."""

MEDIA_REASON = "media"
"""The reason in the edits that leave out the oldest pictures and documents."""

TARGET_SHARE = 0.5
"""What is left of a limit after the oldest were left out. So it happens seldom, and the requests in
between begin with the same bytes."""

MEGABYTE = 1_000_000


class Ceiling(NamedTuple):
    """What a provider accepts in one request."""

    family: str
    """How the names of its models begin."""
    max_bytes: int
    """Bytes of pictures and documents as they are sent. The rest of the request has room beside
    them."""
    number: int
    """Pictures and documents."""


CEILINGS = (
    Ceiling("claude", 28 * MEGABYTE, 100),  # of 32 MB for the body
    Ceiling("gemini", 18 * MEGABYTE, 3_000),  # of 20 MB for a request with its files inside
    Ceiling("", 45 * MEGABYTE, 500),  # of 50 MB for all pictures, OpenAI
)
"""The ceilings of providers by the beginning of the model's name; the first one that matches counts."""


def find_ceiling(model: str) -> Ceiling:
    """Return the ceiling of the provider of a model, whose name may follow that of a proxy (`anthropic/claude-…`)."""
    name = model.rpartition("/")[2]
    return next(ceiling for ceiling in CEILINGS if name.startswith(ceiling.family))


def count_media_bytes(part: Media) -> int:
    """Return the bytes of a picture or document as it is sent."""
    if isinstance(part, DocumentPart):
        return len(part.data)
    return len(part.url) if part.url.startswith("data:") else UNKNOWN_BYTES


def describe_media(part: Media) -> str:
    """Describe a picture or a document, with its bytes as they are sent."""
    if isinstance(part, DocumentPart):
        kind = " ".join(filter(None, ("document", part.name)))
        return f"{kind} ({part.media_type}, {len(part.data):,} bytes)"
    if part.url.startswith("data:"):
        kind = part.url[5:].partition(";")[0] or "of an unknown type"
        return f"picture ({kind}, {len(part.url):,} bytes)"
    return f"picture ({part.url:.80})"


@attrs.frozen(kw_only=True)
class MediaLimits:
    """How much of a request pictures and documents may take. Beyond it the oldest become a line each.

    The line has the size, a hash, the id of the entry that still holds it, and what `describe`
    returns. The newest request of the user and what the model has not replied to stay. It happens
    when a limit is exceeded, or at a compaction where they take more than half of one; half of the
    limit is left then.

    >>> AgentSession(model=model, media=MediaLimits(max_tokens=20_000, describe=captions.get))
    """

    max_tokens: int | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(read_tokens),
        validator=attrs.validators.optional(AtLeast(0)),
    )
    """The most tokens. None: the context window alone is the limit."""
    max_bytes: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(AtLeast(0))
    )
    """The most bytes as they are sent, in base64. None: what the model's provider accepts, which is
    never exceeded."""
    describe: Callable[[Media], str | None] = lambda _: None
    """Returns what a picture or document shows, in a sentence; None: it is not known.

    An exception is logged, and nothing is known then."""

    def plan(
        self,
        view: TranscriptView,
        model: str,
        count_part: Callable[[Part], int],
        *,
        compacted: bool = False,
        refused: bool = False,
    ) -> list[Edit]:
        """Plan the edits that leave out the oldest pictures and documents of a view, if a limit is exceeded.

        Args:
            view: The messages of the next request.
            model: The name of the model that answers.
            count_part: Counts the tokens of a part.
            compacted: Whether the request begins with a new summary, so that its beginning is in no
                prompt cache: then half of a limit must not be exceeded either.
            refused: Whether the provider refused the last request because of its bytes: then half
                of them are left out.
        """
        if not view.has_media:
            return []
        # a document's tokens are counted by reading it
        pieces = list(_iterate_media(view, count_part if self.max_tokens is not None else None))
        total = [sum(sizes) for sizes in zip(*(piece.sizes for piece in pieces), strict=True)] or [
            0,
            0,
            0,
        ]
        ceiling = find_ceiling(model)
        limits = (
            self.max_tokens,
            min(filter(None, (self.max_bytes, ceiling.max_bytes))),
            ceiling.number,
        )
        targets: Sequence[int | None] = [
            None if limit is None else int(limit * TARGET_SHARE) for limit in limits
        ]
        if refused:
            targets = (None, total[1] // 2, None)
        elif not (compacted or _exceeds(total, limits)):
            return []
        chosen: list[_Piece] = []
        for piece in pieces:
            if _exceeds(total, targets) and not piece.is_new:
                chosen.append(piece)
                total = [size - less for size, less in zip(total, piece.sizes, strict=True)]
        return [
            self._leave_out(view, at, {piece.place for piece in group})
            for at, group in groupby(chosen, lambda piece: piece.item)
        ]

    def _leave_out(self, view: TranscriptView, at: int, places: Collection[int]) -> Edit:
        """Return the edit that writes a line in place of some parts of a message."""
        item = view.items[at]
        return Edit(
            target=item.entry_id,
            content=replace_media(
                item.message,
                lambda place, part: (
                    self._describe(part, item.entry_id) if place in places else None
                ),
            ).content,
            reason=MEDIA_REASON,
        )

    def _describe(self, part: Media, entry: str) -> str:
        data = part.url if isinstance(part, ImagePart) else part.data
        try:
            found = self.describe(part)
        except Exception:
            _LOGGER.exception("describe of MediaLimits raised an error")
            found = None
        # a line break would let a description imitate a message
        known = "\\n".join(found.splitlines()) if isinstance(found, str) else ""
        shows = f"; it shows: {known}" if known else ""
        digest = sha256(data.encode(errors="surrogatepass")).hexdigest()[:12]
        return (
            f"[{describe_media(part)} left out to make room: sha256 {digest}, entry {entry}{shows}]"
        )


class _Piece(NamedTuple):
    """A picture or document of a view."""

    item: int
    """The index of its item."""
    place: int
    """Its index in the content of the message."""
    sizes: tuple[int, int, int]
    """Tokens, bytes, and 1."""
    is_new: bool
    """Whether it stays: the model has not replied to it, or it is of the newest request."""


def _iterate_media(view: TranscriptView, count: Callable[[Part], int] | None) -> Iterator[_Piece]:
    """Yield the pictures and documents of a view that have an entry of their own, the oldest first."""
    items = view.items
    request = find_last_user_request(items)
    replied = max(
        (at for at, item in enumerate(items) if item.message.role == "assistant"), default=-1
    )
    for at, item in enumerate(items):
        for place, part in enumerate(item.message.content):
            if isinstance(part, ImagePart | DocumentPart) and item.kind == "message":
                sizes = (count(part) if count else 0, count_media_bytes(part), 1)
                yield _Piece(at, place, sizes, is_new=at == request or at > replied)


def _exceeds(sizes: Sequence[int], limits: Sequence[int | None]) -> bool:
    return any(
        limit is not None and size > limit for size, limit in zip(sizes, limits, strict=True)
    )


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
        return ", ".join(
            describe_media(part)
            for item in self.items
            for part in item.message.content
            if isinstance(part, ImagePart | DocumentPart)
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
