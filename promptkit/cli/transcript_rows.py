"""Entries of a transcript as people read them: one line each, or in full."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from promptkit.cli.harmless import harmless
from promptkit.messages import DocumentPart, ImagePart, OpaquePart
from promptkit.transcript.entries import (
    BranchSummary,
    Checkpoint,
    Custom,
    CustomMessage,
    Edit,
    Label,
    Observation,
    Reset,
    Said,
    Setting,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json, Message, Part
    from promptkit.transcript.entries import Entry

__all__ = ["STYLES", "first_line", "short", "texts", "who"]

STYLES = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow", "checkpoint": "red", "branch_summary": "red"}

SHORT = 8
"""Characters of an id that tell it from the others of a file."""

LONGEST = 2_000
"""Characters of a piece of text that can be of use in one line."""


def short(entry_id: str | None) -> str:
    """An id as it is shown."""
    return harmless(entry_id or "-")[:SHORT]


def who(entry: Entry) -> str:
    """Who says it, or what it is."""
    payload = entry.payload
    if isinstance(payload, Said):
        return payload.message.role
    return harmless(payload.kind) if isinstance(payload, Unknown) else entry.kind


def first_line(entry: Entry) -> str:
    """What an entry says, in one line."""
    parts = (" ".join(text[:LONGEST].split()) for text in texts(entry))
    return harmless(" ".join(part for part in parts if part)) or "(empty)"


def texts(entry: Entry) -> Iterator[str]:
    """All the text of an entry, piece by piece."""
    match entry.payload:
        case Said(message=message, finish=finish):
            yield from _message(message)
            if finish in {"error", "aborted", "length", "content_filter"}:
                yield f"({finish})"
        case CustomMessage(name=name, message=message):
            yield f"{name}:"
            yield from _message(message)
        case Checkpoint() as checkpoint:
            yield _heading(checkpoint)
            yield checkpoint.summary
            for message in checkpoint.replacement or ():
                yield from _message(message)
        case _:
            yield from _noted(entry)


def _noted(entry: Entry) -> Iterator[str]:
    match entry.payload:
        case BranchSummary(summary=summary, leaf=leaf):
            yield f"of the branch to {short(leaf)}:"
            yield summary
        case Edit(target=target, content=content, reason=reason):
            yield f"{reason}: {short(target)} {'is not shown' if content is None else 'is shown as'}"
            yield from map(_part, content or ())
        case Reset(reason=reason):
            yield reason
        case Label(target=target, label=label):
            yield f"{label} = {short(target)}"
        case Setting(name=name, value=value) | Custom(name=name, data=value) | Observation(name=name, data=value):
            yield name if value is None else f"{name} = {_json(value)}"
        case Unknown(data=data):
            yield _json(data)
        case _:
            return


def _heading(checkpoint: Checkpoint) -> str:
    before, after = checkpoint.tokens_before, checkpoint.tokens_after
    sizes = f", {before:,} → {after:,} tokens" if before is not None and after is not None else ""
    kept = f", keeps from {short(checkpoint.first_kept)}" if checkpoint.first_kept else ""
    return f"({checkpoint.trigger}{sizes}{kept})"


def _message(message: Message) -> Iterator[str]:
    yield from map(_part, message.content)
    for call in message.tool_calls:
        yield f"→ {call.name} {call.arguments}"


def _part(part: Part) -> str:
    match part:
        case str(text):
            return text
        case ImagePart(url=url):
            return f"[image {url[:60]}]"
        case DocumentPart(name=name, media_type=kind):
            return f"[document {name or kind}]"
        case OpaquePart(value=value):
            return _json(value)
        case _:
            return ""


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
