"""The snapshot fixtures where syrupy is not installed: they fail and say what to install."""

from __future__ import annotations

from typing import NoReturn

import pytest


@pytest.fixture
def prompt_snapshot() -> NoReturn:
    """Fail and say what to install."""
    _fail("prompt_snapshot")


@pytest.fixture
def messages_snapshot() -> NoReturn:
    """Fail and say what to install."""
    _fail("messages_snapshot")


@pytest.fixture
def receipt_snapshot() -> NoReturn:
    """Fail and say what to install."""
    _fail("receipt_snapshot")


def _fail(fixture: str) -> NoReturn:
    message = (
        f"{fixture} needs syrupy, which is not loaded here: run `pip install 'syrupy>=5'`, "
        "or `pip install '.[testing]'` in a checkout of promptkit."
    )
    pytest.fail(message, pytrace=False)
