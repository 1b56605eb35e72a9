"""Tool calls and their results: who answers whom, so that they leave together (D6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.errors import OrphanResultError, UnansweredCallError
from promptkit.rendering.tree import path_of

if TYPE_CHECKING:
    from promptkit.rendering.materialize import Tree
    from promptkit.rendering.tree import Node

__all__ = ["Pairs", "pair"]


class Pairs:
    """Calls by result, results by call."""

    __slots__ = ("answers", "asked")

    def __init__(self) -> None:
        self.asked: dict[Node, tuple[Node, int]] = {}
        """Tool message → the message that asked, and the index of its call."""
        self.answers: dict[Node, dict[int, list[Node]]] = {}
        """Message with calls → index of a call → tool messages that answer it; fallbacks stand by among them."""


def pair(tree: Tree, *, strict: bool) -> Pairs:
    """Pair the calls and results of a tree: a result answers the nearest call of its id before it that is still open.

    Raises UnansweredCallError and OrphanResultError; with `strict` off, such calls and results are left alone.
    """
    pairs = Pairs()
    open_calls: dict[str, tuple[Node, int]] = {}
    answered: dict[str, tuple[Node, int]] = {}
    for node in tree.messages:
        if node.standby:
            if node.call_id is not None and node.call_id in answered:
                _join(pairs, node, answered[node.call_id])
            continue
        for index, call in enumerate(node.calls):
            if strict and call.id in open_calls:
                raise _unanswered(*open_calls[call.id])
            open_calls[call.id] = (node, index)
        if node.call_id is None:
            continue
        asked = open_calls.pop(node.call_id, None)
        if asked is not None:
            answered[node.call_id] = asked
            _join(pairs, node, asked)
        elif strict:
            again = " a second time" if node.call_id in answered else ""
            message = f"the tool message answers call {node.call_id!r}{again}, and no open call before it has that id."
            raise OrphanResultError(message, path=path_of(node))
    if strict and open_calls:
        raise _unanswered(*next(iter(open_calls.values())))
    return pairs


def _join(pairs: Pairs, result: Node, asked: tuple[Node, int]) -> None:
    message, index = asked
    pairs.asked[result] = asked
    pairs.answers.setdefault(message, {}).setdefault(index, []).append(result)


def _unanswered(node: Node, index: int) -> UnansweredCallError:
    call = node.calls[index]
    message = (
        f"no tool message answers call {call.id!r} ({call.name}): add a ToolMessage(tool_call_id={call.id!r}) behind it, or leave the call out. "
        "For recorded conversations use History, which mends them."
    )
    return UnansweredCallError(message, path=path_of(node))
