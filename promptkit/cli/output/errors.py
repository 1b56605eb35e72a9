"""A failure in one line: where it happened in the user's code, what it was, what its notes add."""

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

OURS = Path(__file__).resolve().parents[2]
STANDARD = sysconfig.get_path("stdlib")


def usage_error(why: str) -> NoReturn:
    """End the command with a mistake of its user, said in one line."""
    raise click.UsageError(why)


def explain_failure(error: BaseException) -> str:
    """One line for an error: `prompt.py:12: ValueError: no such file`.

    The place is the last line of the user's own code that took part, so that an error raised inside a library still points
    at the call. An error that promptkit raises on purpose is said without its class.
    """
    error = _first(error)
    said = str(error) if isinstance(error, PromptKitError) else "".join(traceback.format_exception_only(error)[-1:])
    notes: Iterable[str] = getattr(error, "__notes__", ())
    if not isinstance(error, PromptKitError) and notes:
        said = f"{type(error).__name__}: {error}"
    parts = [_place(error), said, *(f"({note})" for note in notes)]
    return " ".join(" ".join(part.split()) for part in parts if part)


def _first(error: BaseException) -> BaseException:
    """The error itself, or the first of a group: components render concurrently, and the first to fail is the one to mend."""
    while _is_group(error):
        error = error.exceptions[0]
    return error


def _is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_shown(error.filename)}:{error.lineno}:"
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if _is_users(frame.filename)]
    if users:
        return f"{_shown(users[-1].filename)}:{users[-1].lineno}:"
    if isinstance(error, PromptKitError | OSError) or not frames:
        return ""
    return f"{_shown(frames[-1].filename)}:{frames[-1].lineno}:"


def _is_users(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    installed = {"site-packages", "dist-packages"} & set(path.parts) or path.is_relative_to(STANDARD)
    # The console script lies outside of the library folders but is no user code either.
    return not (installed or path.is_relative_to(OURS) or path.name == "promptkit")


def _shown(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
