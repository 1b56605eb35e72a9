"""Tool calls and their results: who answers whom, so that they leave together (D6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.errors import OrphanResultError, UnansweredCallError
from promptkit.rendering.tree import path_of

if TYPE_CHECKING:
    from promptkit.rendering.materialize import Tree
    from promptkit.rendering.tree import Node

__all__ = ["pair"]


def pair(tree: Tree, *, strict: bool) -> None:
    """Pair the calls and results of a tree: a result answers the nearest call of its id before it that is still open.

    Sets `asked` of the results and `answers` of the messages with calls; fallbacks stand by among the answers.

    Raises UnansweredCallError and OrphanResultError; with `strict` off, such calls and results are left alone.
    """
    open_calls: dict[str, tuple[Node, int]] = {}
    answered: dict[str, tuple[Node, int]] = {}
    for node in tree.messages:
        if node.call_id is not None:
            asked = answered.get(node.call_id) if node.standby else open_calls.pop(node.call_id, None)
            if asked is not None:
                answered[node.call_id] = asked
                _join(node, asked)
            elif strict and not node.standby:
                raise _orphan(node, again=node.call_id in answered)
        elif node.calls and not node.standby:
            _open(node, open_calls, strict=strict)
    if strict and open_calls:
        raise _unanswered(*next(iter(open_calls.values())))


def _open(node: Node, open_calls: dict[str, tuple[Node, int]], *, strict: bool) -> None:
    node.answers = []
    for index, call in enumerate(node.calls):
        before = open_calls.get(call.id)
        if before and strict:
            raise _unanswered(*before)
        open_calls[call.id] = (node, index)


def _join(result: Node, asked: tuple[Node, int]) -> None:
    message, index = asked
    result.asked = asked
    message.answers.append((index, result))


def _orphan(node: Node, *, again: bool) -> OrphanResultError:
    twice = " a second time" if again else ""
    message = f"the tool message answers call {node.call_id!r}{twice}, and no open call before it has that id."
    return OrphanResultError(message, path=path_of(node))


def _unanswered(node: Node, index: int) -> UnansweredCallError:
    call = node.calls[index]
    message = (
        f"no tool message answers call {call.id!r} ({call.name}): add a ToolMessage(tool_call_id={call.id!r}) behind it, or leave the call out. "
        "For recorded conversations use History, which mends them."
    )
    return UnansweredCallError(message, path=path_of(node))
