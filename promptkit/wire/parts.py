"""Helpers of all wire formats: check messages, select and read their parts, read arguments and `data:` URLs, remove reasoning, replace halves of surrogate pairs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, Literal, NamedTuple, TypeAlias

import attrs

from promptkit.errors import EmitError, InvalidArgumentError
from promptkit.messages import (
    OPENAI_CACHE_TTLS,
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
    copy_json,
    is_instance,
    read_part,
    read_tool_call,
)
from promptkit.reprs import clip
from promptkit.tokens.encodings import replace_surrogates
from promptkit.tokens.tokenizer import find_texts

WireFormat: TypeAlias = Literal["chat", "responses", "anthropic"]
"""The wire format of a provider's API."""

# Any: a dict is assignable to the SDKs' TypedDicts only if its values are Any
WireDict: TypeAlias = dict[str, Any]
"""One JSON object of a request."""

# Any: a list of dicts is not assignable to the SDKs' lists of TypedDicts, a list of Any is
Payload: TypeAlias = list[Any]
"""One JSON array of a request, such as its messages."""

Marks: TypeAlias = dict[int, dict[int, WireDict]]
"""The `prompt_cache_breakpoint` of a message's part, by the indices of both."""


def check_messages(messages: Sequence[Message], target: WireFormat) -> None:
    """Raise EmitError if a message has tool calls but is not an assistant message, or if a tool message has no call id."""
    for index, message in enumerate(messages):
        if message.tool_calls and message.role != "assistant":
            raise unsupported_error(
                index,
                message,
                "tool calls",
                target,
                "only assistant messages have tool calls, so use the role assistant",
            )
        if message.role == "tool" and message.tool_call_id is None:
            raise unsupported_error(
                index,
                message,
                "no tool_call_id",
                target,
                "set it to the id of the tool call that this message answers",
            )


def select_parts(message: Message, target: WireFormat, *, cache: bool = True) -> list[Part]:
    """Select the parts of a message that a wire format can express.

    Adjacent texts are joined, up to a border that the format itself has between them. Empty texts
    and opaque parts of other providers are dropped. Texts on either side of a part that is dropped
    stay apart, because they are counted apart.

    Args:
        message: The message.
        target: The wire format.
        cache: Whether cache breakpoints are kept.
    """
    parts: list[Part] = []
    for _, run in groupby(message.content, key=lambda part: isinstance(part, str)):
        texts: list[str] = []
        for part in run:
            if isinstance(part, str):
                texts.append(part)
            elif not is_foreign(part, target) and (
                cache or not isinstance(part, CacheBreakpointPart)
            ):
                parts.append(part)
        if joined := "".join(texts):
            parts.append(joined)
    return parts


def place_parts(
    messages: Sequence[Message], target: WireFormat, *, cache: bool
) -> tuple[list[Sequence[Part]], Marks]:
    """Select the parts of each message that a format of OpenAI sends, and place `prompt_cache_breakpoint` on some.

    A cache breakpoint is placed on the nearest text, image or document before it that is not output
    of the model: OpenAI accepts breakpoints on input parts only. A cache breakpoint with nothing
    before it is dropped. Their number is not limited: OpenAI writes the last four of a request and
    matches the last eighty.

    Args:
        messages: The messages.
        target: The wire format.
        cache: Whether cache breakpoints are sent.

    Returns:
        The parts of each message, which are its own content if that is one text, and the
        breakpoints.
    """
    contents: list[Sequence[Part]] = []
    marks: Marks = {}
    at, place = -1, 0  # the message with the nearest input part, and the index of that part
    for index, message in enumerate(messages):
        content = message.content
        if len(content) == 1 and isinstance(content[0], str) and content[0]:  # as most messages
            contents.append(content)
            if message.role != "assistant":
                at, place = index, 0
            continue
        parts: list[Part] = []
        contents.append(parts)
        for part in select_parts(message, target, cache=cache):
            if not isinstance(part, CacheBreakpointPart):
                if message.role != "assistant" and not isinstance(part, OpaquePart):
                    at, place = index, len(parts)
                parts.append(part)
            elif at >= 0:
                ttl = {"ttl": part.ttl} if part.ttl in OPENAI_CACHE_TTLS else {}
                marks.setdefault(at, {})[place] = {"mode": "explicit", **ttl}
    return contents, marks


def merge_system_messages(messages: Sequence[Message]) -> list[Message]:
    """Join neighbouring system messages of one name by a line break.

    That takes no more tokens than sending each, since a line break is shorter than the framing of a
    message.
    """
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last is not None and last.role == message.role == "system" and last.name == message.name:
            merged[-1] = attrs.evolve(last, content=_join_lines(last.content, message.content))
        else:
            merged.append(message)
    return merged


def _join_lines(before: Sequence[Part], after: Sequence[Part]) -> tuple[Part, ...]:
    """Join contents by a line break. Texts beside it become one text, as which they are sent and counted."""
    head, end = (
        (before[:-1], before[-1]) if before and isinstance(before[-1], str) else (before, "")
    )
    start, tail = (after[0], after[1:]) if after and isinstance(after[0], str) else ("", after)
    return (*head, f"{end}\n{start}", *tail)


def move_media(messages: Iterable[Message], roles: set[str]) -> Iterator[Message]:
    """Move images and documents out of the messages of these roles, into a user message after them and the tool results that follow."""
    moved: list[Part] = []
    for message in messages:
        if moved and message.role != "tool":
            yield Message(role="user", content=tuple(moved))
            moved = []
        media = [part for part in message.content if is_media(part)]
        if media and message.role in roles:
            moved += media
            yield _name_all(message, "shown in the message behind the results")
        else:
            yield message
    if moved:
        yield Message(role="user", content=tuple(moved))


def name_media(messages: Iterable[Message], why: str) -> list[Message]:
    """Return messages in which a note stands for each image and document, with a clause that says why."""
    return [_name_all(message, why) for message in messages]


def _name_all(message: Message, why: str) -> Message:
    return replace_media(message, lambda _, part: f"[{_describe_media(part)}, {why}]")


def is_media(part: Part) -> bool:
    """Return whether a part is an image or a document."""
    return isinstance(part, ImagePart | DocumentPart)


def have_media(messages: Iterable[Message]) -> bool:
    """Return whether messages have an image or a document."""
    # faster than a look at each part
    return not _MEDIA.isdisjoint(map(type, chain(*[message.content for message in messages])))


_MEDIA = frozenset({ImagePart, DocumentPart})


def replace_media(
    message: Message, write: Callable[[int, ImagePart | DocumentPart], str | None]
) -> Message:
    """Put a note in place of images and documents of a message, in one text with the texts beside it, as it is sent and counted.

    `write` takes the index of a part and the part, and returns the note; None: the part stays.
    """
    if not any(map(is_media, message.content)):
        return message
    content: list[Part] = []
    for at, part in enumerate(message.content):
        written = write(at, part) or part if isinstance(part, ImagePart | DocumentPart) else part
        last = content[-1] if content else None
        beside = is_media(part) or (at > 0 and is_media(message.content[at - 1]))
        if beside and isinstance(written, str) and isinstance(last, str):
            content[-1] = last + written if last.endswith("\n") else f"{last}\n{written}"
        else:
            content.append(written)
    return attrs.evolve(message, content=tuple(content))


def _describe_media(part: ImagePart | DocumentPart) -> str:
    if isinstance(part, ImagePart):
        return "an image"
    return f"the document {part.name}" if part.name else "a document"


BEGINNING = Message(role="user", content=("[The conversation begins here.]",))
"""The user message before a conversation that begins with a message of the model, which Anthropic
and many servers refuse."""


def begin_with_user(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages of which the first besides system messages is the user's."""
    start = next((at for at, each in enumerate(messages) if each.role != "system"), None)
    return (
        messages
        if start is None or messages[start].role == "user"
        else (*messages[:start], BEGINNING, *messages[start:])
    )


def is_foreign(part: Part, target: WireFormat) -> bool:
    """Return whether a part is another provider's, so that a wire format does not send it."""
    return isinstance(part, OpaquePart) and part.provider not in {
        None,
        target,
        *PLACED_FIELDS[target],
    }


PLACED_FIELDS: Mapping[WireFormat, tuple[str, ...]] = {
    "chat": (),
    "responses": ("responses.message", "responses.call"),
    "anthropic": ("anthropic.call",),
}
"""Providers of opaque parts with fields of a message or a tool call, where their position matters:
it is that of the item or the block."""


def collect_message_fields(message: Message, *providers: str) -> WireDict:
    """Return the fields of a wire message that its opaque parts of these providers have."""
    fields: WireDict = {}
    for part in message.content:
        if (
            isinstance(part, OpaquePart)
            and part.provider in providers
            and isinstance(part.value, Mapping)
        ):
            fields |= copy_json(part.value)
    return fields


def has_text_borders(message: Message, target: WireFormat) -> bool:
    """Return whether a wire format has texts of this message apart, so that it needs a list of parts even for texts alone."""
    return any(
        isinstance(part, OpaquePart) and part.provider == f"{target}.part"
        for part in message.content
    )


def read_call_fields(part: OpaquePart) -> tuple[str, WireDict]:
    """Return the id of the tool call whose place an opaque part keeps, and the other fields of that call.

    Two calls may have one id.
    """
    fields: WireDict = copy_json(part.value) if isinstance(part.value, Mapping) else {}
    return str(fields.pop("call", "")), fields


def unsupported_error(
    index: int, message: Message, what: str, target: WireFormat, advice: str
) -> EmitError:
    """Create the error for content that a wire format does not accept.

    Args:
        index: The index of the message.
        message: The message.
        what: The content, as a noun phrase.
        target: The wire format.
        advice: What to do instead, as an imperative clause.
    """
    return EmitError(
        f"messages[{index}] ({message.role}) has {what}, which {FORMAT_NAMES[target]} does not accept: {advice}."
    )


def unsupported_part_error(
    index: int, message: Message, part: Part, target: WireFormat
) -> EmitError:
    """Create the error for an image or a document in a message whose role does not allow it."""
    return unsupported_error(
        index,
        message,
        "an image" if isinstance(part, ImagePart) else "a document",
        target,
        "put it into a user message",
    )


FORMAT_NAMES: Mapping[WireFormat, str] = {
    "chat": "Chat Completions",
    "responses": "the Responses API",
    "anthropic": "Anthropic's Messages API",
}

DEFAULT_FILE_NAMES: Mapping[str, str] = {
    "application/pdf": "document.pdf",
    "text/plain": "document.txt",
}
"""Media type → the name of a document without one."""


def to_file_fields(part: DocumentPart) -> WireDict:
    """Return `filename` and `file_data` of a document, for OpenAI.

    OpenAI requires a name, so a document without one gets a default name.
    """
    return {
        "filename": part.name or DEFAULT_FILE_NAMES.get(part.media_type, "document"),
        "file_data": f"data:{part.media_type};base64,{part.data}",
    }


def parse_arguments(text: str) -> dict[str, Json]:
    """Parse the arguments of a tool call, for wire formats that need an object instead of the model's text.

    Empty text, which some models write for no arguments, is an empty object. Integers keep every
    digit; a fraction becomes the nearest double, as in every JSON reader.

    Raises:
        ValueError: The text is not a JSON object, or the model would receive it changed: an object
            has a key twice, a number is beyond the range of doubles, or a number is NaN.
    """
    if not text.strip():
        return {}
    try:
        value: Json = json.loads(
            text,
            object_pairs_hook=_build_object,
            parse_float=_parse_finite_float,
            parse_constant=_reject_constant,
        )
    except RecursionError:
        raise ValueError("they are nested too deeply") from None
    if isinstance(value, dict):
        return value
    raise ValueError(f"they are JSON but not an object: {clip(text, _SHOWN)}")


_SHOWN = 40  # characters of wrong arguments that an error shows


def _build_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result: dict[str, Json] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} occurs twice in one object")
        result[key] = value
    return result


def _parse_finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits} is beyond the range of doubles")
    return number


def _reject_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


class DataUrl(NamedTuple):
    """The components of a `data:` URL (RFC 2397).

    `media_type` is empty if the URL has none; `data` is not decoded.
    """

    media_type: str
    is_base64: bool
    data: str


def parse_data_url(url: str) -> DataUrl | None:
    """Parse a `data:` URL. Returns None for any other URL."""
    if url[:5].lower() != "data:":
        return None
    head, _, data = url[5:].partition(",")
    media_type, *fields = head.split(";")
    return DataUrl(
        media_type.strip().lower(),
        is_base64="base64" in {field.strip().lower() for field in fields},
        data=data,
    )


WireMessage: TypeAlias = Mapping[str, object] | SdkObject
"""A message of a provider: a dict, or an object of its SDK."""

WireRecord: TypeAlias = "Mapping[str, Json]"
"""A message or an item of a provider as JSON."""


_RECORD: type[dict[str, Json]] = (
    dict  # as most are: a look at the class takes less time than a call
)


def read_records(messages: Iterable[object], name: str) -> Iterator[WireRecord]:
    """Yield each message as a JSON object.

    Raises TypeError for what is none. `name` is that of the list.
    """
    if is_instance(messages, (str, Mapping)):
        raise TypeError(f"{name} must be a list of dicts or SDK objects, not {messages!r:.80}.")
    for index, message in enumerate(messages):
        record = message if type(message) is _RECORD else as_wire_object(message)
        if record is None:
            raise TypeError(
                f"{name}[{index}] must be a dict or an SDK object, not {message!r:.80}."
            )
        yield record


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
        self.target: WireFormat = target
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
        return (
            Message(role="assistant", content=tuple(self.parts), tool_calls=tuple(self.calls))
            if self.parts or self.calls
            else None
        )

    def _place_calls(self) -> None:
        for call_id in self.unplaced:
            self.parts.extend(fields_part({"call": call_id}, f"{self.target}.call"))
        self.unplaced.clear()


REASONING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""The types of reasoning in Anthropic's Messages API and in the Responses API."""

REASONING_FIELDS = frozenset({"reasoning_details", "thinking_blocks"})
"""Fields of a message of Chat Completions that hold sealed reasoning, of OpenRouter and of LiteLLM."""


def remove_reasoning(message: Message) -> Message:
    """Return a message without encrypted and signed reasoning; the same message if it has none.

    In the Responses API other items of the reply name the reasoning that they followed by their ids,
    and are refused without it. They lose their ids, and the provider's own items leave.
    """
    if not any(isinstance(part, OpaquePart) and _is_reasoning(part) for part in message.content):
        return message
    return attrs.evolve(
        message,
        content=[stripped for part in message.content if (stripped := _strip(part)) is not None],
    )


def _is_reasoning(part: OpaquePart) -> bool:
    value = part.value
    return isinstance(value, Mapping) and (
        value.get("type") in REASONING_TYPES or not REASONING_FIELDS.isdisjoint(value)
    )


def _strip(part: Part) -> Part | None:
    """Return a part of a message whose reasoning is removed; None if it leaves."""
    if not isinstance(part, OpaquePart) or not isinstance(part.value, Mapping):
        return part
    if part.value.get("type") in REASONING_TYPES or (
        part.provider == "responses" and "id" in part.value
    ):
        return None
    dropped = {*REASONING_FIELDS, *(("id",) if part.provider in PLACED_FIELDS["responses"] else ())}
    return attrs.evolve(
        part, value={name: value for name, value in part.value.items() if name not in dropped}
    )


def replace_lone_surrogates(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with U+FFFD for each lone surrogate, as tokenizers count it.

    Other messages stay the same objects.

    A request with a lone surrogate is refused or cannot be sent, and so every later request of that
    conversation. They are in names of files that are not UTF-8, in replies that were cut inside a
    pair, and in recordings of both.
    """
    replaced = list(messages)
    for at, message in enumerate(messages):
        try:  # the codec tells it ten times faster than a search
            for part in message.content:
                if isinstance(part, str) and not part.isascii():
                    part.encode()
            for call in message.tool_calls:
                if not (call.name.isascii() and call.arguments.isascii()):
                    call.name.encode()
                    call.arguments.encode()
        except UnicodeEncodeError:
            replaced[at] = _replace_in_message(message)
    return replaced


def _replace_in_message(message: Message) -> Message:
    return attrs.evolve(
        message,
        content=tuple(
            replace_surrogates(part) if isinstance(part, str) else part for part in message.content
        ),
        tool_calls=tuple(
            attrs.evolve(
                call,
                name=replace_surrogates(call.name),
                arguments=replace_surrogates(call.arguments),
            )
            for call in message.tool_calls
        ),
    )
