"""What a model reads and writes, independent of any provider: the values that rendering ends in and emitters start from."""

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
"""Who says a message."""

Json: TypeAlias = "bool | int | float | str | list[Json] | Mapping[str, Json] | None"
"""A JSON value."""


@attrs.frozen(kw_only=True)
class ImagePart:
    """An image: a URL, or the bytes themselves as a `data:` URL.

    `detail` is the provider's resolution hint (`low`, `high`, `auto`). `width` and `height` are pixels, for counting an image
    that stands behind an http URL; those of a `data:` URL are read from its header.
    """

    url: str
    detail: str | None = None
    media_type: str | None = None
    width: int | None = None
    height: int | None = None


@attrs.frozen(kw_only=True)
class DocumentPart:
    """A document, such as a PDF, as base64 `data`. `tokens` is what the caller says that it costs: no formula is published."""

    data: str
    media_type: str
    name: str | None = None
    tokens: int | None = None


@attrs.frozen(kw_only=True)
class OpaquePart:
    """A provider's own content part (thinking, citations, audio), sent as it is.

    `provider` limits it to one wire format (`chat`, `responses`, `anthropic`); elsewhere it is left out. `tokens` is its cost.
    """

    value: Json
    tokens: int | None = None
    provider: str | None = None


@attrs.frozen(kw_only=True)
class CacheBreakpointPart:
    """The end of a prefix that the provider should cache. `kind` is the provider's cache type, `ttl` its life time (`5m`, `1h`)."""

    kind: str | None = None
    ttl: str | None = None


Part: TypeAlias = str | ImagePart | DocumentPart | OpaquePart | CacheBreakpointPart
"""One piece of a message's content. Text is a plain string."""


@attrs.frozen(kw_only=True)
class ToolCall:
    """The model's wish to run a tool. `arguments` is JSON text exactly as the model wrote it: it is never parsed and re-written."""

    id: str
    name: str
    arguments: str = "{}"


@attrs.frozen(kw_only=True)
class Message:
    """One message. `tool_calls` belongs to assistant messages, `tool_call_id` to tool messages.

    >>> Message(role="user", content=("Hello",)).text
    'Hello'
    """

    role: Role
    content: tuple[Part, ...] = ()
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The text parts, joined without a separator."""
        return "".join(part for part in self.content if isinstance(part, str))


@attrs.frozen(kw_only=True)
class ToolDefinition:
    """A tool that the model may call. `parameters` is a JSON Schema object."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Json] | None = None
    strict: bool | None = None


@attrs.frozen(kw_only=True)
class Repair:
    """What a component mended in what it was given, so that the receipt can say so: `kind` in a word or two, `detail` in a sentence."""

    kind: str
    detail: str


@attrs.frozen(kw_only=True)
class Usage:
    """What the provider says that a request cost, in tokens."""

    input_tokens: int
    output_tokens: int = 0
    cached_tokens: int = 0
