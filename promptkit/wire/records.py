"""Helpers of the readers of all wire formats: read the content of a message, and collect the parts and tool calls of a reply in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from promptkit.errors import InvalidArgumentError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    SdkObject,
    ToolCall,
    as_wire_object,
    is_instance,
    read_part,
    read_tool_call,
)
from promptkit.tokens.tokenizer import find_texts
from promptkit.wire.parts import WireFormat

WireMessage: TypeAlias = Mapping[str, object] | SdkObject
"""A message of a provider: a dict, or an object of its SDK."""

WireRecord: TypeAlias = "Mapping[str, Json]"
"""A message or an item of a provider as JSON."""


def read_records(messages: Iterable[WireMessage], name: str) -> Iterator[tuple[str, WireRecord]]:
    """Yield each message as a JSON object, with its place for errors, such as `messages[3]`.

    Raises TypeError for what is none.
    """
    if is_instance(messages, (str, Mapping)):
        raise TypeError(f"{name} must be a list of dicts or SDK objects, not {messages!r:.80}.")
    for index, message in enumerate(messages):
        record = as_wire_object(message)
        if record is None:
            raise TypeError(
                f"{name}[{index}] must be a dict or an SDK object, not {message!r:.80}."
            )
        yield f"{name}[{index}]", record


_ANTHROPIC_BLOCKS = {
    "tool_use",
    "tool_result",
    "thinking",
    "redacted_thinking",
    "image",
    "document",
    "search_result",
    "server_tool_use",
}
_RESPONSES_PARTS = {"input_text", "output_text", "input_image", "input_file"}


def find_format(record: WireRecord) -> WireFormat | None:
    """Detect the wire format of a message or an item; None if it fits every format, as plain text does."""
    content = record.get("content")
    blocks = [as_wire_object(block) or {} for block in content] if isinstance(content, list) else []
    kinds = {kind for block in blocks if isinstance(kind := block.get("type"), str)}
    if kinds & _ANTHROPIC_BLOCKS or (record.get("type") == "message" and "text" in kinds):
        return "anthropic"
    if isinstance(record.get("type"), str) or kinds & _RESPONSES_PARTS:
        return "responses"
    return "chat" if record.get("tool_calls") or record.get("role") == "tool" else None


def read_content(
    content: Json,
    target: WireFormat,
    where: str,
    *,
    attachments: bool = True,
    breakpoints: bool = True,
) -> list[Part]:
    """Read the content of a message: None, a text or a list of parts.

    Texts that the format has apart stay apart.

    Args:
        content: The content.
        target: The wire format.
        where: The place of the message, for errors.
        attachments: Whether the emitter accepts images and documents in this message. If not, they
            are opaque parts.
        breakpoints: Whether the emitter sends cache breakpoints at their place in this message. If
            not, their parts are opaque parts.

    Raises:
        InvalidArgumentError: The content is none of these.
    """
    if content is None or isinstance(content, str):
        return [content] if content else []
    if not isinstance(content, Sequence):
        raise InvalidArgumentError(
            f"the content of {where} must be a string or a list of parts, not {content!r:.80}."
        )
    refused: tuple[type[Part], ...] = () if attachments else (ImagePart, DocumentPart)
    refused = refused if breakpoints else (*refused, CacheBreakpointPart)
    parts: list[Part] = []
    for block in content:
        read = (block,) if isinstance(block, str) else _read_block(block, target, where, refused)
        if parts and read and isinstance(parts[-1], str) and isinstance(read[0], str):
            parts.append(OpaquePart(value={}, tokens=0, provider=f"{target}.part"))
        parts.extend(read)
    return parts


def _read_block(
    block: Json, target: WireFormat, where: str, refused: tuple[type[Part], ...]
) -> tuple[Part, ...]:
    record = as_wire_object(block)
    if record is None:
        raise InvalidArgumentError(
            f"the content of {where} must have dicts such as {{'type': 'text', 'text': 'Hello'}}, not {block!r:.80}."
        )
    try:
        parts = read_part(record, target)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"the content of {where}: {error}") from error
    return (
        (OpaquePart(value=record, provider=target),)
        if any(isinstance(part, refused) for part in parts)
        else parts
    )


def read_call(call: Json, where: str) -> ToolCall:
    """Read a tool call. Raises InvalidArgumentError with its place for what is none."""
    try:
        return read_tool_call(call)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: {error}") from error


def omit_fields(record: WireRecord, *names: str) -> dict[str, Json]:
    """Return the fields of a record with a value, without those of these names."""
    return {
        name: value for name, value in record.items() if value is not None and name not in names
    }


def fields_part(fields: Mapping[str, Json], provider: str) -> tuple[Part, ...]:
    """Return the opaque part with fields that promptkit's messages do not have; none without fields.

    Text in it counts, as a refusal does.
    """
    return (
        (OpaquePart(value=fields, tokens=None if find_texts(fields) else 0, provider=provider),)
        if fields
        else ()
    )


class AssistantContent:
    """The parts and tool calls of an assistant message in the order of the wire.

    A message has its calls after its content. Where the wire has them elsewhere, or with more
    fields, an opaque part keeps their place.
    """

    def __init__(self, target: WireFormat) -> None:
        self.target = target
        self.parts: list[Part] = []
        self.calls: list[ToolCall] = []
        self.unplaced: list[str] = []
        """The ids of the calls that have no place in `parts` yet."""

    def add_parts(self, parts: Iterable[Part]) -> None:
        """Append content."""
        added = tuple(parts)
        if added:
            self._place_calls()
            self.parts.extend(added)

    def add_call(self, call: ToolCall, fields: Mapping[str, Json]) -> None:
        """Append a tool call, with its other fields."""
        if fields:
            self._place_calls()
            self.parts.extend(fields_part({"call": call.id, **fields}, f"{self.target}.call"))
        else:
            self.unplaced.append(call.id)
        self.calls.append(call)

    def build_message(self) -> Message | None:
        """Return the message, or None if nothing was added."""
        if not self.parts and not self.calls:
            return None
        return Message(role="assistant", content=tuple(self.parts), tool_calls=tuple(self.calls))

    def _place_calls(self) -> None:
        for call_id in self.unplaced:
            self.parts.extend(fields_part({"call": call_id}, f"{self.target}.call"))
        self.unplaced.clear()
