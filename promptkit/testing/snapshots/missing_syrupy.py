"""The snapshot fixtures where syrupy is not there: they say what to do."""

from __future__ import annotations

from typing import NoReturn

import pytest

__all__ = ["messages_snapshot", "prompt_snapshot", "receipt_snapshot"]


@pytest.fixture(name="prompt_snapshot")
def prompt_snapshot() -> NoReturn:
    """Fails with what to install."""
    _fail("prompt_snapshot")


@pytest.fixture(name="messages_snapshot")
def messages_snapshot() -> NoReturn:
    """Likewise."""
    _fail("messages_snapshot")


@pytest.fixture(name="receipt_snapshot")
def receipt_snapshot() -> NoReturn:
    """Likewise."""
    _fail("receipt_snapshot")


def _fail(fixture: str) -> NoReturn:
    message = f"{fixture} needs syrupy, which is not loaded here: install promptkit with its `testing` extra."
    pytest.fail(message, pytrace=False)
