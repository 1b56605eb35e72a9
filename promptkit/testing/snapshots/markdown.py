r"""Messages as Markdown that is read in a review.

One heading for each message, and below it the text in a fence that is longer than any in the text: whatever a prompt holds, headings
and other lines outside a fence are never part of it. A text with characters that nobody would see stands in a fence marked `escaped`.

Characters that a reader of a snapshot would not see, or that a text file would not hold.

Control characters (a file in text mode also loses `\r`), separators and marks that show nothing, marks that change the direction of writing,
the invisible tag characters, and lone surrogates. Tab and line feed are plain.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from hashlib import sha256
from typing import TYPE_CHECKING

from promptkit.emitters.parts import parse_data_url
from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, Json, Message, OpaquePart, Part, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "as_markdown",
    "backslashed",
    "body_of",
    "fenced",
    "has_unseen",
    "headed",
    "headline",
    "inline",
    "json_safe",
    "outside_fences",
    "sized",
    "title_of",
    "tool_names",
]


# Written as escapes: the characters themselves would be as invisible here as they are in a prompt.
_UNSEEN = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb"
    "\\ud800-\\udfff\\U000e0000-\\U000e007f]"
)


def has_unseen(text: str) -> bool:
    """Whether a text has such a character."""
    return _UNSEEN.search(text) is not None


def json_safe(text: str) -> str:
    r"""JSON text with each of these characters as its `\uXXXX` escape: the same value, readable and writable."""
    return _UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def backslashed(text: str) -> str:
    r"""A text with each of these characters as an escape, and each backslash doubled, so that nothing else looks like one.

    >>> print(backslashed("one\r\ntwo"))
    one\r
    two
    """
    return json_safe(text.replace("\\", "\\\\"))


def inline(text: str) -> str:
    r"""A name, id or path for the inside of a line: as it is where that is plain, else in quotes, with escapes.

    >>> inline("call_1"), inline("two words")
    ('call_1', 'two words')
    >>> print(inline("two\nlines"))
    "two\nlines"
    """
    plain = text and text == text.strip() and not set('"`\n\t') & set(text) and not has_unseen(text)
    return text if plain else json_safe(json.dumps(text, ensure_ascii=False))


HEADLINE = 72
"""The most characters of a message that are quoted where it only has to be recognised."""


def as_markdown(messages: Sequence[Message]) -> str:
    """The messages, one section for each; without a line break at the end."""
    names = tool_names(messages)
    return "\n\n".join(headed(title_of(message, names), message) for message in messages) or "(no messages)"


def headed(title: str, message: Message) -> str:
    """One message under this title."""
    return "\n\n".join([f"## {title}", *body_of(message)])


def tool_names(messages: Iterable[Message]) -> Mapping[str, str]:
    """The id of each call and the tool that it calls: a result does not say it itself."""
    return {call.id: call.name for message in messages for call in message.tool_calls}


def title_of(message: Message, tools: Mapping[str, str]) -> str:
    """`User`, `User ada`, `Tool read_file (call_1)`."""
    words = [message.role.capitalize()]
    if message.tool_call_id is not None:
        words += [inline(tools[message.tool_call_id])] if message.tool_call_id in tools else []
        words.append(f"({inline(message.tool_call_id)})")
    if message.name is not None:
        words.append(inline(message.name))
    return " ".join(words)


def body_of(message: Message) -> list[str]:
    """What stands below the title: a block for each part and each tool call."""
    return [*map(_part, message.content), *map(_call, message.tool_calls)] or ["(empty)"]


def headline(message: Message) -> str:
    """The beginning of a message in one line, to recognise it by."""
    words = " ".join(message.text.split())
    if not words:
        others = [part for part in message.content if not isinstance(part, str | CacheBreakpointPart)]
        words = "; ".join([*map(_part_line, others[:1]), *(f"calls {call.name} {call.arguments}" for call in message.tool_calls)])
        words = " ".join(words.split()) or "(empty)"
    return json_safe(words if len(words) <= HEADLINE else f"{words[: HEADLINE - 1].rstrip()}…")


def fenced(text: str, info: str = "") -> str:
    """A text in a fence that no line of it can end. `info` says what it is; `escaped` is added where characters are escaped."""
    if has_unseen(text):
        text, info = backslashed(text), f"{info} escaped".strip()
    return _fence(text, info)


def _fence(text: str, info: str) -> str:
    fence = "`" * (max([2, *map(len, re.findall("`{3,}", text))]) + 1)
    return f"{fence}{info}\n{text}\n{fence}"


def outside_fences(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines that no fence encloses, and the fences themselves, each with its index: none of them is a prompt's text."""
    fence = ""
    for index, line in enumerate(lines):
        if fence and line != fence:
            continue
        opening = None if fence else re.match("`{3,}", line)
        fence = opening[0] if opening else ""
        yield index, line


def _part(part: Part) -> str:
    match part:
        case str():
            return fenced(part)
        case OpaquePart():
            return f"{_part_line(part)}\n\n{_pretty(part.value)}"
        case _:
            return _part_line(part)


def _part_line(part: Part) -> str:
    match part:
        case ImagePart():
            return _media("Image", _image_source(part), _pixels(part), part.detail and f"detail {inline(part.detail)}")
        case DocumentPart():
            tokens = None if part.tokens is None else f"{part.tokens:,} tokens"
            return _media("Document", inline(part.media_type), sized(part.data), tokens, part.name and inline(part.name))
        case OpaquePart():
            return _media(
                "Opaque part", part.provider and inline(part.provider), None if part.tokens is None else f"{part.tokens:,} tokens"
            )
        case CacheBreakpointPart():
            return f"--- {_media('cache boundary', part.kind and inline(part.kind), part.ttl and inline(part.ttl))} ---"
        case str():
            return part


def _media(what: str, *facts: str | None) -> str:
    said = ", ".join(fact for fact in facts if fact)
    return f"{what}: {said}" if said else what


def _image_source(part: ImagePart) -> str:
    inside = parse_data_url(part.url)
    if inside is None:
        return inline(part.url)
    kind = inside.media_type or part.media_type or "image"
    return f"{inline(kind)}, {sized(inside.data) if inside.is_base64 else _hashed(inside.data.encode(errors='surrogatepass'))}"


def _pixels(part: ImagePart) -> str | None:
    return f"{part.width} by {part.height} pixels" if part.width and part.height else None


def sized(data: str) -> str:
    """The size and a short hash of what is encoded in base64; of the text itself where it is no base64."""
    try:
        return _hashed(b64decode(data, validate=True))
    except ValueError:
        return f"{_hashed(data.encode(errors='surrogatepass'))}, no base64"


def _hashed(data: bytes) -> str:
    return f"{len(data):,} bytes, sha256 {sha256(data).hexdigest()[:12]}"


def _call(call: ToolCall) -> str:
    title = f"### Call {inline(call.name)} ({inline(call.id)})"
    try:
        value: Json = json.loads(call.arguments)
        shown = _pretty(value)
    except (ValueError, RecursionError):
        return f"{title}, arguments as written\n\n{fenced(call.arguments)}"  # what is no JSON, and what Python cannot hold
    return f"{title}\n\n{shown}"


def _pretty(value: Json) -> str:
    return _fence(json_safe(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=dict)), "json")
