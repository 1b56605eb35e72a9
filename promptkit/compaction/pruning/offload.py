"""Large tool results put into files, so that the model can read of them what it needs."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.pruning.messages import replace_messages, tool_names

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from promptkit.compaction.pruning.messages import Reduced
    from promptkit.messages import Message, Part
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["OFFLOAD_OVER", "offload_results"]

OFFLOAD_OVER = 8_192
"""Bytes (UTF-8) of a result from which on it is put into a file."""

NAME_LENGTH = 40

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"-[0-9a-f]{16}\.txt\b")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def offload_results(
    messages: Sequence[Message], folder: Path, *, tokenizer: Tokenizer, over: int = OFFLOAD_OVER, exempt: Collection[str] = ()
) -> Reduced:
    """The messages with the text of large tool results in files of a folder, and in its place a pointer to the file.

    A file's name is made of the tool's and of what it holds, so that the same result is the same file, and the same pointer, at any
    time. It is written beside, made durable and renamed; the folder is made where there is none. Left alone are results of at most
    `over` bytes, those of `exempt` tools, those of calls that read in the folder, and those whose file cannot be written: that is
    logged. Images in results stay.
    """
    names = tool_names(messages)
    readers = _readers(messages, folder)

    def offloaded(message: Message, index: int) -> Message | None:
        text = message.text
        # A character is at least one byte and at most four.
        if message.role != "tool" or len(text) * 4 <= over or names.get(index) in exempt or index in readers:
            return None
        content = text.encode("utf-8", "backslashreplace")
        if len(content) <= over:
            return None
        path = folder / f"{_safe(names.get(index, 'result'))}-{hashlib.sha256(content).hexdigest()[:16]}.txt"
        pointer = f"[This output has {len(text):,} characters in {text.count(chr(10)) + 1:,} lines. It is in the file {path}: read there what you need.]"
        if tokenizer.count(pointer) >= tokenizer.count(text):
            return None
        try:
            _write(path, content)
        except OSError as error:
            _LOG.warning("a tool result stays in the conversation, as it could not be written to %s: %s", path, error.strerror or error)
            return None
        first = next(at for at, part in enumerate(message.content) if isinstance(part, str))
        parts: list[Part] = [
            pointer if at == first else part for at, part in enumerate(message.content) if at == first or not isinstance(part, str)
        ]
        return attrs.evolve(message, content=tuple(parts))

    return replace_messages(messages, offloaded, "offloaded", tokenizer=tokenizer)


def _readers(messages: Sequence[Message], folder: Path) -> set[int]:
    """The results of calls that name the folder, or a file of it: what was fetched from there is not put there again."""
    place = str(folder)
    fetching: set[str] = set()
    found: set[int] = set()
    for index, message in enumerate(messages):
        for call in message.tool_calls:
            if place in call.arguments or _NAME.search(call.arguments):
                fetching.add(call.id)
            else:
                fetching.discard(call.id)  # an id that is used again belongs to the call that has it now
        if message.role == "tool" and message.tool_call_id in fetching:
            found.add(index)
    return found


def _safe(name: str) -> str:
    """A part of a file's name: nothing in it leads to another folder, or means something to a shell."""
    return _UNSAFE.sub("_", name)[:NAME_LENGTH].strip("-") or "result"


def _write(path: Path, content: bytes) -> None:
    """A file that is there whole or not at all, and is no link to elsewhere. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        found = path.lstat()
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISREG(found.st_mode) and found.st_size == len(content) and path.read_bytes() == content:
            return
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).replace(path)
    finally:
        Path(beside).unlink(missing_ok=True)
