"""Whether a provider would take a request: calls answered, results asked for, a proper beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.bench.replay.pieces import Piece

__all__ = ["fault"]


def fault(pieces: Sequence[Piece], *, opening: int | None = None) -> str | None:
    """What is wrong with a request; None where nothing is. `opening` is the piece that the recording itself begins with.

    A request has a message, begins with the user's (or as the recording does), has every call answered right behind it, in any order
    and once, and no other results.
    """
    at = next((at for at, piece in enumerate(pieces) if piece.role != "system"), len(pieces))
    if at == len(pieces):
        return "it has no message but the system's"
    if pieces[at].role != "user" and pieces[at].number != opening:
        return f"it begins with a message of the role {pieces[at].role!r}"
    waiting: set[str] = set()
    for piece in pieces[at:]:
        if piece.role == "tool":
            call = piece.message.tool_call_id or ""
            if call not in waiting:
                return f"the result of {call!r} answers no call before it"
            waiting.remove(call)
        elif waiting:
            return f"the call {min(waiting)!r} is not answered"
        elif piece.calls:
            waiting = set(piece.calls)
    return f"the call {min(waiting)!r} is not answered" if waiting else None
