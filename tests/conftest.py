"""What the host that runs the tests sets in the environment must not change what a command under test prints."""

import os

import pytest

# pytest and rich print longer lines, colours or plain text for these; a continuous integration host sets the first ones.
_CHANGE_OUTPUT = ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")

__all__ = ["pytest_configure"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Take these variables out of this process, and so out of every process and nested session that a test starts."""
    for name in _CHANGE_OUTPUT:
        os.environ.pop(name, None)
