"""The content of a message, as a person or a tool may give it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, get_args

from promptkit.messages import Part

__all__ = ["content_of"]


def content_of(given: object) -> tuple[Part, ...] | None:
    """Text, or a list of texts and other parts, as the content of a message; None for anything else, which could not be written down."""
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list | tuple):
        return None
    parts = tuple(cast("Sequence[Part]", given))  # looked at in the next line
    return parts if all(isinstance(part, get_args(Part)) for part in parts) else None
