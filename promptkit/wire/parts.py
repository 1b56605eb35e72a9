"""Helpers of all emitters: check messages, select parts, collect the fields of one format, read arguments and `data:` URLs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, Literal, NamedTuple, TypeAlias

import attrs

from promptkit.errors import EmitError
from promptkit.messages import (
    OPENAI_CACHE_TTLS,
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    copy_json,
)

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
    contents = chain.from_iterable([message.content for message in messages])
    return not _MEDIA.isdisjoint(map(type, contents))  # faster than a look at each part


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
        written = part
        if isinstance(part, ImagePart | DocumentPart):
            written = write(at, part) or part
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
    if start is None or messages[start].role == "user":
        return messages
    return (*messages[:start], BEGINNING, *messages[start:])


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
    border = f"{target}.part"
    return any(isinstance(part, OpaquePart) and part.provider == border for part in message.content)


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
    match value:
        case dict():
            return value
        case _:
            more = "…" if len(text) > _SHOWN else ""
            raise ValueError(f"they are JSON but not an object: {text[:_SHOWN]}{more}")


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
