"""Content that is no text, and what elements say about themselves."""

from __future__ import annotations

from promptkit.element import PromptElement, component
from promptkit.messages import Json

__all__ = ["Document", "Image", "Metadata", "Opaque", "Reference"]


@component
class Image(PromptElement):
    """An image in a message.

    >>> Image(src="data:image/png;base64,iVBORw0KGgo…", detail="low")
    """

    src: str
    """A URL, a `data:` URL, or base64 of a PNG, JPEG, GIF or WebP."""

    detail: str | None = None
    """The resolution that the provider should use: `low`, `high`, `auto`."""

    media_type: str | None = None
    """Such as `image/png`; found out for base64."""

    width: int | None = None
    """Pixels; needed to count an image behind an http URL exactly."""

    height: int | None = None
    """Pixels."""


@component
class Document(PromptElement):
    """A document in a message, such as a PDF.

    >>> Document(data=base64_pdf, media_type="application/pdf", filename="report.pdf", tokens=2_400)
    """

    data: str
    """Base64."""

    media_type: str
    """Such as `application/pdf`."""

    filename: str | None = None
    """Shown to the model."""

    tokens: int | None = None
    """What it costs; no formula is published."""


@component
class Opaque(PromptElement):
    """A content part of one provider, passed through untouched.

    >>> Opaque(value={"type": "thinking", "thinking": "…", "signature": "…"}, tokens=80, provider="anthropic")
    """

    value: Json
    """The part as it goes on the wire."""

    tokens: int | None = None
    """What it costs; None counts as 0 and marks the count as not exact."""

    provider: str | None = None
    """`chat`, `responses` or `anthropic`; None sends it everywhere."""


@component
class Reference(PromptElement):
    """A source that stands behind the element around it; survives in `rendered.references` as long as that element does.

    >>> TextChunk()[source, Reference(to="src/parser.py")]
    """

    to: str
    """A URI, a path, the name of a variable."""

    detail: Json = None
    """Anything more, as JSON."""


@component
class Metadata(PromptElement):
    """A value that rides along to `rendered.metadata`; a `local` one dies with the element around it.

    >>> UserMessage()[query, Metadata(value=Intent("fix"))]
    """

    value: object
    """Anything."""

    local: bool = False
    """Dies with the element around it."""
