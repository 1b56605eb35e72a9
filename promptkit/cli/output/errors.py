"""Errors in one line: the place in the user's code, the message, and the error's notes."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeGuard

import click

from promptkit.errors import PromptKitError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["explain_failure", "usage_error"]

PACKAGE = Path(__file__).resolve().parents[2]
STANDARD_LIBRARY = sysconfig.get_path("stdlib")


def usage_error(message: str) -> NoReturn:
    """End the command with exit status 2 and a one-line message on stderr."""
    raise click.UsageError(message)


def explain_failure(error: BaseException) -> str:
    """Return one line for an error: `prompt.py:12: ValueError: no such file`.

    The place is the last line of the user's own code in the traceback, so an error raised inside a library still points at the call.
    The class name is left out for errors that promptkit raises on purpose. Of an exception group, the first error is explained.
    """
    error = _first_of_group(error)
    message = str(error) if isinstance(error, PromptKitError) else "".join(traceback.format_exception_only(error)[-1:])
    notes: Iterable[str] = getattr(error, "__notes__", ())
    if not isinstance(error, PromptKitError) and notes:
        message = f"{type(error).__name__}: {error}"
    parts = [_place(error), message, *(f"({note})" for note in notes)]
    return " ".join(" ".join(part.split()) for part in parts if part)


def _first_of_group(error: BaseException) -> BaseException:
    # Components render concurrently; the first that fails is the one to fix.
    while _is_group(error):
        error = error.exceptions[0]
    return error


def _is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short_path(error.filename)}:{error.lineno}:"
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if _is_user_code(frame.filename)]
    if users:
        return f"{_short_path(users[-1].filename)}:{users[-1].lineno}:"
    if isinstance(error, PromptKitError | OSError) or not frames:
        return ""
    return f"{_short_path(frames[-1].filename)}:{frames[-1].lineno}:"


def _is_user_code(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    installed = {"site-packages", "dist-packages"} & set(path.parts) or path.is_relative_to(STANDARD_LIBRARY)
    # The console script is outside the library folders, but it is not user code either.
    return not (installed or path.is_relative_to(PACKAGE) or path.name == "promptkit")


def _short_path(filename: str) -> str:
    """Return the path relative to the current folder, if the file is in it."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
