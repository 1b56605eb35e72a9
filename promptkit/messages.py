"""Provider-neutral values: messages, their parts, tool calls, tool definitions and usage.

Rendering ends in these values, and the emitters turn them into a provider's wire format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

__all__ = [
    "CacheBreakpointPart",
    "DocumentPart",
    "ImagePart",
    "Json",
    "Message",
    "OpaquePart",
    "Part",
    "Repair",
    "Role",
    "ToolCall",
    "ToolDefinition",
    "Usage",
]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
"""The author of a message."""

Json: TypeAlias = "bool | int | float | str | list[Json] | Mapping[str, Json] | None"
"""A JSON value."""


@attrs.frozen(kw_only=True)
class ImagePart:
    """An image, given by its URL. A `data:` URL holds the bytes themselves."""

    url: str
    """An http(s) URL or a `data:` URL."""

    detail: str | None = None
    """The resolution hint for the provider: `low`, `high` or `auto`."""

    media_type: str | None = None
    """The media type, such as `image/png`."""

    width: int | None = None
    """The width in pixels. Token counts need it for an http URL; for a `data:` URL it is read from the image's header."""

    height: int | None = None
    """The height in pixels, see `width`."""


@attrs.frozen(kw_only=True)
class DocumentPart:
    """A document, such as a PDF."""

    data: str
    """The bytes of the document, in base64."""

    media_type: str
    """The media type, such as `application/pdf`."""

    name: str | None = None
    """The file name that the model sees."""

    tokens: int | None = None
    """The cost in tokens, as the caller knows it: providers publish no formula for documents."""


@attrs.frozen(kw_only=True)
class OpaquePart:
    """A provider's own content part (thinking, citations, audio), sent unchanged."""

    value: Json
    """The part in the provider's wire format."""

    tokens: int | None = None
    """The cost in tokens. None counts as 0 and marks the count as inexact."""

    provider: str | None = None
    """The only wire format that gets the part: `chat`, `responses` or `anthropic`. None sends it in every format."""


@attrs.frozen(kw_only=True)
class CacheBreakpointPart:
    """The end of a prefix that the provider should put into its prompt cache."""

    kind: str | None = None
    """The provider's cache type, such as `ephemeral`."""

    ttl: str | None = None
    """The time to live in the cache, in the provider's notation, such as `5m` or `1h`."""


Part: TypeAlias = str | ImagePart | DocumentPart | OpaquePart | CacheBreakpointPart
"""One part of a message's content. Text is a plain string."""


@attrs.frozen(kw_only=True)
class ToolCall:
    """A model's request to run a tool."""

    id: str
    """The id that the tool result refers to."""

    name: str
    """The name of the tool."""

    arguments: str = "{}"
    """JSON text exactly as the model wrote it. promptkit never parses and rewrites it."""


@attrs.frozen(kw_only=True)
class Message:
    """One message of a conversation.

    >>> Message(role="user", content=("Hello",)).text
    'Hello'
    """

    role: Role
    """The author."""

    content: tuple[Part, ...] = ()
    """Text and other parts, in order."""

    name: str | None = None
    """The participant's name, for providers that accept one."""

    tool_calls: tuple[ToolCall, ...] = ()
    """The tool calls of an assistant message."""

    tool_call_id: str | None = None
    """The id of the tool call that a tool message answers."""

    @property
    def text(self) -> str:
        """The text parts, joined without a separator."""
        return "".join(part for part in self.content if isinstance(part, str))


@attrs.frozen(kw_only=True)
class ToolDefinition:
    """The declaration of a tool that the model may call."""

    name: str
    """The name that the model calls."""

    description: str | None = None
    """What the tool does, for the model."""

    parameters: Mapping[str, Json] | None = None
    """The arguments as a JSON Schema object."""

    strict: bool | None = None
    """Whether the provider must make the arguments match the schema. None leaves it to the provider."""


@attrs.frozen(kw_only=True)
class Repair:
    """A correction that a component made to its input, reported in `rendered.repairs`."""

    kind: str
    """The kind in a word or two, such as `missing result`."""

    detail: str
    """The place and the correction, in one sentence."""


@attrs.frozen(kw_only=True)
class Usage:
    """The tokens that a provider reports for one request."""

    input_tokens: int
    """Tokens of the request, the cached ones included."""

    output_tokens: int = 0
    """Tokens of the reply."""

    cached_tokens: int = 0
    """Input tokens that the provider read from its prompt cache."""
