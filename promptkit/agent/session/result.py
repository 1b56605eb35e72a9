"""The result of a turn."""

from __future__ import annotations

from typing import Literal

import attrs

from promptkit.messages import Usage
from promptkit.reprs import describe_fields


@attrs.frozen(kw_only=True)
class TurnResult:
    """The result of one turn: a user message, and everything until the model's last reply."""

    text: str
    """The text of the model's last reply. If a reply was cut off and the model continued it, both
    texts. If the model was asked to go on after a compaction, its replies of before and after, with
    a blank line between them."""
    steps: int
    """The number of requests of the turn."""
    usages: tuple[Usage, ...]
    """The cost of each request, in order."""
    finish: Literal["stop", "tool_calls", "length", "content_filter"] = "stop"
    """The reason why the model ended. `length`: its reply was cut off, and so was the next one.
    `content_filter`: the provider withheld the rest."""

    __repr__ = describe_fields
