"""Anthropic's cache breakpoints: what they say, and how many may stand in one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from promptkit.emitters.parts import Payload, WireDict
    from promptkit.messages import BoundaryPart

__all__ = ["cache_control", "limit_breakpoints"]

MOST = 4
"""Breakpoints in one request; the API rejects a fifth."""

LIFE_TIMES = ("5m", "1h")
"""What `cache_control.ttl` may say; without one, the API takes `5m`."""


def cache_control(boundary: BoundaryPart) -> WireDict:
    """What `cache_control` says for a boundary. `ephemeral` is the only type; a life time that is another provider's is left out."""
    return {"type": "ephemeral", **({"ttl": boundary.ttl} if boundary.ttl in LIFE_TIMES else {})}


def limit_breakpoints(blocks: Payload, marked: Payload) -> None:
    """Take `cache_control` off `marked` blocks until the API takes the request; `blocks` is the whole request in wire order.

    Of too many, the first (the instructions, which live longest) and the last ones (the growing end, and places to fall back to)
    stay. Breakpoints inside opaque blocks count, and stay. A life time of an hour after a shorter one is cut: the API rejects it.
    """
    ids = {id(block) for block in marked}
    ours = [block for block in blocks if id(block) in ids]
    foreign = sum(_control(block) is not None for block in blocks if id(block) not in ids)
    room = max(0, MOST - foreign)
    if len(ours) > room:
        for block in ours[min(room, 1) : len(ours) - max(room - 1, 0)]:
            del block["cache_control"]
    shortened = False
    for block in blocks:
        control = _control(block)
        if control is None:
            continue
        if control.get("ttl") != "1h":
            shortened = True
        elif shortened and id(block) in ids:
            del control["ttl"]


def _control(block: object) -> WireDict | None:
    control = cast("WireDict", block).get("cache_control") if isinstance(block, dict) else None  # an opaque block may be anything
    return cast("WireDict", control) if isinstance(control, dict) else None  # of unknown keys, and the caller looks for one
