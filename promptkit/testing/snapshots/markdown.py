"""Format messages as Markdown for a review, and compare two such documents line by line.

Each message has a heading, and below it its text in a fence that is longer than any fence in the
text. So headings and other lines outside a fence are never part of a prompt. A text with invisible
characters is escaped, and its fence is marked `escaped`.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from hashlib import sha256
from itertools import islice, pairwise, takewhile

from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    ToolCall,
)
from promptkit.wire.parts import parse_data_url

MAX_HEADLINE = 72
"""Characters of a message that its headline quotes."""


def format_markdown(messages: Sequence[Message]) -> str:
    """Format messages as one section each, without a line break at the end."""
    names = map_tool_names(messages)
    return (
        "\n\n".join(format_section(format_title(message, names), message) for message in messages)
        or "(no messages)"
    )


MAX_LINES, MAX_CHARACTERS = 4, 200
"""Lines of a message, and characters of a line, that a listing shows in full."""


def format_listing(messages: Sequence[Message]) -> str:
    """Format messages as a list in one fence: titles, and below them lines that begin with two spaces for text, and with a star for anything else.

    Of long messages and lines it has the ends, and a hash of all that is left out.
    """
    names = map_tool_names(messages)
    return fence_text(
        "\n".join(
            [
                line
                for message in messages
                for line in (format_title(message, names), *fold_lines(list_content(message)))
            ]
            or ["(no messages)"]
        )
    )


def list_content(message: Message) -> list[str]:
    """List the lines of a message, without its title."""
    lines: list[str] = []
    for before, part in pairwise((None, *message.content)):
        if isinstance(part, str):
            lines += [
                *(["*"] if isinstance(before, str) else []),
                *(f"  {line}" if line else line for line in part.split("\n")),
            ]
        elif part is not None:
            value = f" {_dump_json(part.value)}" if isinstance(part, OpaquePart) else ""
            lines.append(f"* {_describe_part(part)}{value}")
    lines += [
        f"* calls {quote_inline(call.name)} ({quote_inline(call.id)}) "
        f"{quote_inline(call.arguments) if chr(10) in call.arguments else call.arguments}"
        for call in message.tool_calls
    ]
    return [_shorten_line(line) for line in lines or ["* (empty)"]]


def fold_lines(lines: Sequence[str]) -> list[str]:
    """Return lines as they are, or of many the first and the last one, and a hash of the others."""
    return (
        list(lines)
        if len(lines) <= MAX_LINES
        else [
            lines[0],
            f"* … {len(lines) - 2:,} lines, sha256 {_hash(chr(10).join(lines[1:-1]))}",
            lines[-1],
        ]
    )


def _shorten_line(line: str) -> str:
    left = line[MAX_CHARACTERS:]
    return (
        f"{line[:MAX_CHARACTERS]}… {len(left):,} more characters, sha256 {_hash(left)}"
        if left
        else line
    )


def _hash(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]


def format_section(title: str, message: Message) -> str:
    """Format one message under a title."""
    blocks = [*map(_format_part, message.content), *map(_format_call, message.tool_calls)]
    return "\n\n".join([f"## {title}", *(blocks or ["(empty)"])])


def map_tool_names(messages: Iterable[Message]) -> Mapping[str, str]:
    """Map the id of each call to the name of its tool, which a tool result does not have."""
    return {call.id: call.name for message in messages for call in message.tool_calls}


def format_title(message: Message, tools: Mapping[str, str]) -> str:
    """Format the title of a message: `User`, `User ada`, `Tool read_file (call_1)`."""
    call_id = message.tool_call_id
    called = (
        []
        if call_id is None
        else [
            *([quote_inline(tools[call_id])] if call_id in tools else []),
            f"({quote_inline(call_id)})",
        ]
    )
    return " ".join(
        [
            message.role.capitalize(),
            *called,
            *([] if message.name is None else [quote_inline(message.name)]),
        ]
    )


def format_headline(message: Message) -> str:
    """Format the beginning of a message as one line by which a reader recognizes it."""
    words = " ".join(message.text.split())
    if not words:
        others = [
            part for part in message.content if not isinstance(part, str | CacheBreakpointPart)
        ]
        calls = (f"calls {call.name} {call.arguments}" for call in message.tool_calls)
        named = "; ".join([*map(_describe_part, others[:1]), *calls])
        words = " ".join(named.split()) or "(empty)"
    return escape_json(
        words if len(words) <= MAX_HEADLINE else f"{words[: MAX_HEADLINE - 1].rstrip()}…"
    )


def fence_text(text: str, info: str = "") -> str:
    """Put a text in a fence that no line of it can end.

    `info` follows the opening fence, and `escaped` if characters are escaped.
    """
    if has_invisible(text):
        text, info = escape_text(text), f"{info} escaped".strip()
    return _fence(text, info)


def _fence(text: str, info: str) -> str:
    fence = "`" * (max([2, *map(len, re.findall("`{3,}", text))]) + 1)
    return f"{fence}{info}\n{text}\n{fence}"


def iter_outside_fences(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines outside fences, and the fences, with their indices.

    None of them is part of a prompt's text.
    """
    fence = ""
    for index, line in enumerate(lines):
        if fence and line != fence:
            continue
        opening = None if fence else re.match("`{3,}", line)
        fence = opening[0] if opening else ""
        yield index, line


def _format_part(part: Part) -> str:
    match part:
        case str():
            return fence_text(part)
        case OpaquePart():
            return f"{_describe_part(part)}\n\n{fence_json(part.value)}"
        case _:
            return _describe_part(part)


def _describe_part(part: Part) -> str:
    match part:
        case ImagePart():
            return _join_facts(
                "Image",
                _describe_image_source(part),
                f"{part.width} by {part.height} pixels" if part.width and part.height else None,
                part.detail and f"detail {quote_inline(part.detail)}",
            )
        case DocumentPart():
            return _join_facts(
                "Document",
                quote_inline(part.media_type),
                describe_base64(part.data),
                None if part.tokens is None else f"{part.tokens:,} tokens",
                part.name and quote_inline(part.name),
            )
        case OpaquePart():
            return _join_facts(
                "Opaque part",
                part.provider and quote_inline(part.provider),
                None if part.tokens is None else f"{part.tokens:,} tokens",
            )
        case CacheBreakpointPart():
            return f"--- {_join_facts('cache boundary', part.kind and quote_inline(part.kind), part.ttl and quote_inline(part.ttl))} ---"
        case str():
            return part


def _join_facts(what: str, *facts: str | None) -> str:
    joined = ", ".join(fact for fact in facts if fact)
    return f"{what}: {joined}" if joined else what


def _describe_image_source(part: ImagePart) -> str:
    if (inside := parse_data_url(part.url)) is None:
        return quote_inline(part.url)
    kind = quote_inline(inside.media_type or part.media_type or "image")
    return f"{kind}, {describe_base64(inside.data) if inside.is_base64 else _describe_bytes(inside.data.encode(errors='surrogatepass'))}"


def describe_base64(data: str) -> str:
    """Describe base64 data by its size and a short hash; of a text that is no base64, those of the text itself."""
    try:
        return _describe_bytes(b64decode(data, validate=True))
    except ValueError:
        return f"{_describe_bytes(data.encode(errors='surrogatepass'))}, no base64"


def _describe_bytes(data: bytes) -> str:
    return f"{len(data):,} bytes, sha256 {sha256(data).hexdigest()[:12]}"


def _format_call(call: ToolCall) -> str:
    title = f"### Call {quote_inline(call.name)} ({quote_inline(call.id)})"
    try:
        return f"{title}\n\n{fence_json(json.loads(call.arguments))}"
    except (ValueError, RecursionError):
        # no JSON, or nested too deeply for Python
        return f"{title}, arguments as written\n\n{fence_text(call.arguments)}"


def fence_json(value: object) -> str:
    """Put a JSON value in a fence, indented and with invisible characters escaped."""
    return _fence(escape_json(_dump_json(value, indent=2)), "json")


def _dump_json(value: object, *, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, default=dict)


# Control characters (a file in text mode also loses `\r`), separators and marks that show nothing,
# marks that change the direction of writing, the invisible tag characters, and lone surrogates; not
# tab and line feed. They are written as escapes, because the characters themselves would be as
# invisible here as in a prompt.
_INVISIBLE = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb"
    "\\ud800-\\udfff\\U000e0000-\\U000e007f]"
)


def has_invisible(text: str) -> bool:
    """Return whether a text has a character that a reader would not see, or that a text file would lose."""
    return _INVISIBLE.search(text) is not None


def escape_json(text: str) -> str:
    r"""Write each invisible character of a JSON text as its `\uXXXX` escape, so that its value stays the same."""
    return _INVISIBLE.sub(lambda match: json.dumps(match[0])[1:-1], text)


def escape_text(text: str) -> str:
    r"""Escape each invisible character of a text, and double each backslash, so that nothing else looks like an escape.

    >>> print(escape_text("one\r\ntwo"))
    one\r
    two
    """
    return escape_json(text.replace("\\", "\\\\"))


def quote_inline(text: str) -> str:
    r"""Format a name, id or path for the inside of a line: as it is if it is plain, otherwise in quotes with escapes.

    >>> quote_inline("call_1"), quote_inline("two words")
    ('call_1', 'two words')
    >>> print(quote_inline("two\nlines"))
    "two\nlines"
    """
    plain = (
        text and text == text.strip() and not set('"`\n\t') & set(text) and not has_invisible(text)
    )
    return text if plain else escape_json(json.dumps(text, ensure_ascii=False))


CONTEXT_LINES = 3
"""Lines that a diff shows around a change."""


def diff_lines(snapshot: str, received: str) -> list[str]:
    """Compare two documents: removed (`-`) and new lines (`+`) with their context, each place named by its line and its headings."""
    return list(_iter_diff(*(text.removesuffix("\n").split("\n") for text in (snapshot, received))))


def show_first(lines: Sequence[str], limit: int) -> Sequence[str]:
    """Return the first lines of a difference, and how many more there are."""
    more = len(lines) - limit
    return lines if more <= 0 else [*lines[:limit], f"… and {more:,} more lines"]


def _iter_diff(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    # Equal lines at both ends are cut off first, because difflib's time grows with the square of
    # the number of lines.
    start = count_shared(before, after)
    end = count_shared(before[start:][::-1], after[start:][::-1])
    first = max(start - CONTEXT_LINES, 0)
    last = max(end - CONTEXT_LINES, 0)
    headings = [
        (index, line) for index, line in iter_outside_fences(before) if line.startswith("#")
    ][::-1]
    current: list[str] = []
    differences = unified_diff(
        before[first : len(before) - last],
        after[first : len(after) - last],
        lineterm="",
        n=CONTEXT_LINES,
    )
    for line in islice(differences, 2, None):  # without the names of two files
        if line.startswith("@@ "):
            number = int(line[4:].partition(" ")[0].partition(",")[0]) + first
            while headings and headings[-1][0] < number + CONTEXT_LINES:
                _enter_heading(current, headings.pop()[1])
            yield f"@@ {' '.join([f'line {number}', *current])} @@"
        else:
            yield line


def count_shared(one: Sequence[object], other: Sequence[object]) -> int:
    """Count the leading items that two sequences share, such as lines."""
    return sum(
        1
        for _ in takewhile(
            lambda pair: pair[0] is pair[1] or pair[0] == pair[1], zip(one, other, strict=False)
        )
    )


def _enter_heading(current: list[str], heading: str) -> None:
    """Append a heading to the path of headings, in place of those of its level and below."""
    current[:] = [
        *takewhile(lambda each: _heading_level(each) < _heading_level(heading), current),
        heading,
    ]


def _heading_level(heading: str) -> int:
    return len(heading) - len(heading.lstrip("#"))
