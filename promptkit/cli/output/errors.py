"""Errors in one line: the place in the user's code, the message, and the error's notes."""

from __future__ import annotations

import errno
import sysconfig
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeGuard

from promptkit import PromptKitError
from promptkit.errors import TemplateError, UnknownModelError

if TYPE_CHECKING:
    from jinja2 import Template as JinjaTemplate

PACKAGE = Path(__file__).resolve().parents[2]
FULL_DISK = (
    errno.ENOSPC,
    errno.EFBIG,
    getattr(errno, "EDQUOT", errno.ENOSPC),
)  # Windows has no quota


def explain_failure(error: BaseException) -> str:
    """Return one line for an error: `prompt.py:12: ValueError: no such file`.

    The place is the last line of the user's own code in the traceback, so an error raised inside a
    library still points at the call. The class name is left out for errors that promptkit raises on
    purpose. Of an exception group, the first error is explained.
    """
    while _is_group(error):
        # Components render concurrently; the first that fails is the one to fix.
        error = error.exceptions[0]
    place = _place(error)
    if isinstance(error, OSError) and error.strerror and error.filename and not place:
        return " ".join(f"{error.filename}: {error.strerror}.".split())
    if is_full_disk(error) and not place:
        return f"the output cannot be written: {error.strerror}. Free some space, or write to another disk."
    if isinstance(error, UnknownModelError) and not place:
        return f"{error.problem} Give --budget, such as --budget 8k, or another --model."
    notes: list[str] = getattr(error, "__notes__", [])
    message = (
        str(error)
        if isinstance(error, PromptKitError)
        else f"{type(error).__name__}: {error}"
        if notes
        else traceback.format_exception_only(error)[-1]
    )
    if isinstance(error, TemplateError):
        message = message.replace(error.file, _short_path(error.file), 1)
    return " ".join(" ".join([place, message, *(f"({note})" for note in notes)]).split())


def is_full_disk(error: BaseException) -> TypeGuard[OSError]:
    """Return whether an error is that of a disk without room, or of a quota that is used up."""
    return isinstance(error, OSError) and error.errno in FULL_DISK


def _is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)


def _place(error: BaseException) -> str:
    if isinstance(error, TemplateError):
        return ""  # its message begins with the place in the template
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short_path(error.filename)}:{error.lineno}:"
    places = [_find_place(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    users = [place for place in places if _is_user_code(place[0])]
    if not users and (isinstance(error, PromptKitError | OSError) or not places):
        return ""
    file, line = (users or places)[-1]
    return f"{_short_path(file)}:{line}:"


def _find_place(frame: FrameType, line: int) -> tuple[str, int]:
    """Return file and line of a frame; of the code that Jinja generates, those of the template."""
    template: JinjaTemplate | None = frame.f_globals.get("__jinja_template__")
    return (
        frame.f_code.co_filename,
        line if template is None else template.get_corresponding_lineno(line),
    )


def _is_user_code(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    # The console script is outside the library folders, but it is not user code either.
    return not (
        {"site-packages", "dist-packages"} & set(path.parts)
        or path.is_relative_to(sysconfig.get_path("stdlib"))
        or path.is_relative_to(PACKAGE)
        or path.name == "promptkit"
    )


def _short_path(filename: str) -> str:
    """Return the path relative to the current folder, if the file is in it."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
