"""Pictures and documents in requests: the oldest become a line each where they take more than their tokens, or more bytes than a provider accepts.

The transcript keeps all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256
from itertools import groupby
from typing import NamedTuple, TypeAlias

import attrs

from promptkit.compaction.planning.blocks import find_last_user_request
from promptkit.errors import InvalidArgumentError
from promptkit.messages import DocumentPart, ImagePart, Part
from promptkit.sizes import read_tokens
from promptkit.transcript import Edit, TranscriptView
from promptkit.wire.parts import replace_media

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
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """The most tokens. None: the context window alone is the limit."""
    max_bytes: int | None = None
    """The most bytes as they are sent, in base64. None: what the model's provider accepts, which is
    never exceeded."""
    describe: Callable[[Media], str | None] = lambda _: None
    """Returns what a picture or document shows, in a sentence; None: it is not known.

    An exception is logged, and nothing is known then."""

    def __attrs_post_init__(self) -> None:
        for name in ("max_tokens", "max_bytes"):
            value: int | None = getattr(self, name)
            if value is not None and value < 0:
                raise InvalidArgumentError(
                    f"{name} of MediaLimits must be at least 0, not {value}."
                )

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
        left = replace_media(
            item.message,
            lambda place, part: self._describe(part, item.entry_id) if place in places else None,
        )
        return Edit(target=item.entry_id, content=left.content, reason=MEDIA_REASON)

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
