"""What a session gives back of one message of the person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    from promptkit.messages import Usage

__all__ = ["Turn"]


@attrs.frozen(kw_only=True)
class Turn:
    """What came of one message of the person."""

    text: str
    """What the model said at the end."""
    rounds: int
    """How many requests that took."""
    usage: tuple[Usage, ...]
    """Of each request, in order."""
    finish: Literal["stop", "tool_calls", "length", "content_filter"] = "stop"
    """Why the model ended: `length` is that its text was cut off, `content_filter` that the rest was withheld."""
