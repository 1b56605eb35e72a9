"""Large tool results in files, from which the model can read what it needs."""

from __future__ import annotations

import hashlib
import logging
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.pruning.messages import find_tool_names, replace_messages
from promptkit.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from promptkit.compaction.pruning.messages import Reduction
    from promptkit.messages import Message, Part
    from promptkit.tokens.tokenizer import Tokenizer

MAX_INLINE_BYTES = 8_192
"""Size in bytes (UTF-8) above which a result is moved to a file."""

NAME_LENGTH = 40

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"-[0-9a-f]{16}\.txt\b")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def offload_results(
    messages: Sequence[Message],
    folder: Path,
    *,
    tokenizer: Tokenizer,
    max_inline_bytes: int = MAX_INLINE_BYTES,
    exempt: Collection[str] = (),
) -> Reduction:
    """Move the text of large tool results to files, and put a pointer to the file in its place.

    Images stay.

    The name of a file consists of the tool's name and a hash of the content, so that the same
    result always has the same file and the same pointer. Files are written atomically and synced to
    disk. Results of calls that read from the folder do not change. A file that cannot be written is
    logged, and its result does not change.

    Args:
        messages: The messages.
        folder: The folder of the files. It is created if it does not exist.
        tokenizer: Counts messages.
        max_inline_bytes: Size in bytes (UTF-8) up to which a result does not change. Default:
            8,192.
        exempt: Names of tools whose results do not change.

    Returns:
        The reduction.
    """
    names = find_tool_names(messages)
    readers = _find_readers(messages, folder)

    def offload(message: Message, index: int) -> Message | None:
        text = message.text
        # A character is at least one byte and at most four.
        if (
            message.role != "tool"
            or len(text) * 4 <= max_inline_bytes
            or names.get(index) in exempt
            or index in readers
        ):
            return None
        content = text.encode("utf-8", "backslashreplace")
        if len(content) <= max_inline_bytes:
            return None
        path = (
            folder
            / f"{_make_safe(names.get(index, 'result'))}-{hashlib.sha256(content).hexdigest()[:16]}.txt"
        )
        pointer = f"[This output has {len(text):,} characters in {text.count(chr(10)) + 1:,} lines. It is in the file {path}: read there what you need.]"
        if tokenizer.count(pointer) >= tokenizer.count(text):
            return None
        try:
            _write(path, content)
        except OSError as error:
            _LOG.warning(
                "cannot write a tool result to %s, it stays in the conversation: %s",
                path,
                error.strerror or error,
            )
            return None
        first = next(at for at, part in enumerate(message.content) if isinstance(part, str))
        parts: list[Part] = [
            pointer if at == first else part
            for at, part in enumerate(message.content)
            if at == first or not isinstance(part, str)
        ]
        return attrs.evolve(message, content=tuple(parts))

    return replace_messages(messages, offload, "offloaded", tokenizer=tokenizer)


def _find_readers(messages: Sequence[Message], folder: Path) -> set[int]:
    """Return the results of calls that name the folder or one of its files: what was read from there is not moved there again."""
    place = str(folder)
    fetching: set[str] = set()
    found: set[int] = set()
    for index, message in enumerate(messages):
        for call in message.tool_calls:
            if place in call.arguments or _NAME.search(call.arguments):
                fetching.add(call.id)
            else:
                fetching.discard(call.id)  # a repeated id belongs to the newest call
        if message.role == "tool" and message.tool_call_id in fetching:
            found.add(index)
    return found


def _make_safe(name: str) -> str:
    """Make a tool's name safe as part of a file name: without path separators and characters that a shell interprets."""
    return _UNSAFE.sub("_", name)[:NAME_LENGTH].strip("-") or "result"


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically, replacing a symbolic link. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        found = path.lstat()
    except FileNotFoundError:
        pass
    else:
        if (
            stat.S_ISREG(found.st_mode)
            and found.st_size == len(content)
            and path.read_bytes() == content
        ):
            return
    replace_file(path, lambda file: file.write(content))
