"""Content other than text (images, documents, opaque parts), references and metadata."""

from __future__ import annotations

from promptkit.elements.component import component
from promptkit.elements.element import PromptElement
from promptkit.messages import Json


@component
class Image(PromptElement):
    """An image in a message.

    >>> Image(url="data:image/png;base64,iVBORw0KGgo…", detail="low")
    """

    url: str
    """A URL, a `data:` URL, or base64 of a PNG, JPEG, GIF or WebP."""

    detail: str | None = None
    """The resolution hint for the provider: `low`, `high` or `auto`."""

    media_type: str | None = None
    """The media type, such as `image/png`. It is detected for base64."""

    width: int | None = None
    """The width in pixels, needed for an exact token count of an image behind an http URL."""

    height: int | None = None
    """The height in pixels, see `width`."""


@component
class Document(PromptElement):
    """A document in a message, such as a PDF.

    >>> Document(data=base64_pdf, media_type="application/pdf", name="report.pdf", tokens=2_400)
    """

    data: str
    """The bytes of the document, in base64."""

    media_type: str
    """The media type, such as `application/pdf`."""

    name: str | None = None
    """The file name that the model sees."""

    tokens: int | None = None
    """The cost in tokens, as the caller knows it: providers publish no formula for documents."""


@component
class Opaque(PromptElement):
    """A provider's own content part, sent unchanged.

    >>> Opaque(value={"type": "thinking", "thinking": "…", "signature": "…"}, tokens=80, provider="anthropic")
    """

    value: Json
    """The part in the provider's wire format."""

    tokens: int | None = None
    """The cost in tokens. None counts the text in the part (a refusal, thinking, a summary), and
    marks the count as inexact."""

    provider: str | None = None
    """The only wire format that gets the part: `chat`, `responses` or `anthropic`. None sends it in
    every format."""


@component
class Reference(PromptElement):
    """A source of the element around it. `rendered.references` lists it if that element is kept.

    >>> TextChunk()[source, Reference(to="src/parser.py")]
    """

    to: str
    """The source: a URI, a path, the name of a variable."""

    detail: Json = None
    """Further information, as JSON."""


@component
class Metadata(PromptElement):
    """A value that is passed on to `rendered.metadata`.

    >>> UserMessage()[query, Metadata(value=Intent("fix"))]
    """

    value: object
    """Any value."""

    local: bool = False
    """Whether the value is dropped when the element around it is pruned."""
