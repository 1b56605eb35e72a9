"""Messages as a few short lines: what the messages of failed tests show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.messages import BoundaryPart, DocumentPart, ImagePart, OpaquePart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message, Part

__all__ = ["line_of", "outline", "shorten"]

WIDTH = 160
"""Characters."""

MOST = 12
"""Messages that are shown before the middle is left out."""


def outline(messages: Sequence[Message]) -> list[str]:
    """One line for each message, numbered from 0; of very many, the first and the last few."""
    lines = [f"{index}  {line_of(message)}" for index, message in enumerate(messages[: MOST // 2])]
    rest = messages[MOST // 2 :]
    hidden = max(0, len(rest) - MOST // 2)
    if hidden:
        lines.append(f"…  {hidden:,} more")
    start = len(messages) - len(rest) + hidden
    return lines + [f"{start + index}  {line_of(message)}" for index, message in enumerate(rest[hidden:])]


def line_of(message: Message) -> str:
    """A message as one line: its role, its text, its calls."""
    name = message.name or message.tool_call_id
    said = [_part(part) for part in message.content] + [f"→ {call.name} {call.arguments}" for call in message.tool_calls]
    return f"{message.role}{f' ({name})' if name else ''}: {shorten(' '.join(filter(None, said)) or '(empty)')}"


def shorten(text: str) -> str:
    """A text on one line, cut where it is long."""
    line = " ".join(text[: 2 * WIDTH].split())
    return line if len(line) <= WIDTH and len(text) <= 2 * WIDTH else line[: WIDTH - 1] + "…"


def _part(part: Part) -> str:
    match part:
        case str(text):
            return shorten(text)
        case ImagePart(url=url):
            return f"[image {url[:60]}]"
        case DocumentPart(name=name, media_type=kind):
            return f"[document {name or kind}]"
        case OpaquePart(value=value):
            return f"[{shorten(repr(value))}]"
        case BoundaryPart():
            return "[cache boundary]"
