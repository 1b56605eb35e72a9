"""Changes of JSON values and of bytes that a stranger could make."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HOSTILE_VALUES", "damaged", "mutated"]

HOSTILE_VALUES: tuple[Any, ...] = (  # Any: JSON
    None,
    True,
    -1,
    1e308,
    10**40,
    "",
    "\ud800",
    "\u2028",
    "u1",
    "a" * 300,
    [],
    {},
    [[]],
    [None],
    {"type": "text"},
    {"": None},
    "2026",
    1e15,
)
_JUNK = (b"\n", b"\xff", b"{", b"]", b"\\", b'"', b"NaN", b"\xe2\x80\xa8")


def _inside(value: Any) -> list[tuple[Any, Any]]:
    """Keys or places, and what is there."""
    if hasattr(value, "items"):
        return list(value.items())
    return [(at, value[at]) for at in range(len(value))] if hasattr(value, "append") else []


@st.composite
def mutated(draw: st.DrawFn, value: Any, hostile: Sequence[Any] = HOSTILE_VALUES) -> Any:
    """A copy of a JSON array or object in which values were exchanged, left out or repeated."""
    root: Any = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 4))):
        at: Any = root
        for _ in range(draw(st.integers(0, 6))):
            deeper = [item for _, item in _inside(at) if _inside(item)]
            if not deeper:
                break
            at = draw(st.sampled_from(deeper))
        if not _inside(at):
            continue
        key, chosen = draw(st.sampled_from(_inside(at)))
        match draw(st.sampled_from(["exchange", "leave out", "repeat"])):
            case "exchange":
                at[key] = copy.deepcopy(draw(st.sampled_from(hostile)))
            case "leave out":
                del at[key]
            case _ if hasattr(at, "insert"):
                at.insert(key, copy.deepcopy(chosen))
            case _:
                at[f"{key}2"] = copy.deepcopy(chosen)
    return root


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes of which some were cut out, put in or exchanged."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(start + draw(st.integers(0, 40)), len(data))
        data[start:end] = draw(st.binary(max_size=8) | st.sampled_from(_JUNK))
    return bytes(data)
