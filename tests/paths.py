"""Where the tests find the project, and the recordings that lie beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["ROOT", "SHARED", "needs_shared"]

ROOT = Path(__file__).resolve().parents[1]
"""The top of the checkout."""
SHARED = ROOT.parent / "shared"
"""Recordings that are too large for the checkout. They may be absent."""


def needs_shared(*names: str) -> pytest.MarkDecorator:
    """Skip a test where a file or folder below `SHARED` is absent: `@needs_shared("transcripts")`."""
    path = SHARED.joinpath(*names)
    return pytest.mark.skipif(
        not path.exists(),
        reason=f"there is no {'/'.join(('..', 'shared', *names))} beside the checkout",
    )
