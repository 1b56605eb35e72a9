"""Stage two: one walk over the finished tree that finds out what pruning has to know.

Tool calls and their results: who answers whom, so that they leave together (D6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.elements.chat import AssistantMessage
from promptkit.errors import OrphanToolResultError, UnansweredToolCallError
from promptkit.messages import CacheBreakpointPart
from promptkit.rendering.tree import NEVER, STAYS, Item, Leaf, Node, path_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from promptkit.elements.media import Reference

__all__ = ["RenderTree", "counts", "holds", "linked_items", "materialize", "pair", "shows"]


class RenderTree:
    """The tree and what stands where in it."""

    __slots__ = (
        "boundaries",
        "groups",
        "has_attachments",
        "limits",
        "limits_standing_by",
        "members",
        "messages",
        "nodes",
        "reserved",
        "root",
    )

    def __init__(self, root: Node) -> None:
        self.root = root
        self.nodes: list[Node] = []  # in written order
        self.messages: list[Node] = []  # that are no atoms
        self.limits: list[Node] = []
        self.limits_standing_by: list[Node] = []  # in fallbacks
        self.groups: dict[Hashable, list[Node]] = {}  # KeepWith members
        self.members: dict[Hashable, list[tuple[Node, int]]] = {}  # tool calls that leave with a group: message and index
        self.boundaries: list[Leaf] = []  # in written order
        self.reserved = 0
        self.has_attachments = False

    def attachments(self, k: int) -> tuple[list[object], list[Reference], list[Reference]]:
        """(metadata, references, omitted references) at state k: local ones die with their element."""
        if not self.has_attachments:
            return [], [], []
        metadata: list[object] = []
        kept: list[Reference] = []
        omitted: list[Reference] = []
        dead: set[Node] = set()
        for node in self.nodes:
            parent = node.parent
            if parent is not None and (parent in dead or parent.gone[node.position] < k or node.born >= k):
                dead.add(node)
            if node.metadata:
                metadata += [value for value, local in node.metadata if not (local and node in dead)]
            if node.references:
                (omitted if node in dead else kept).extend(node.references)
        return metadata, kept, omitted


def materialize(root: Node) -> RenderTree:
    """Walk the tree once: what is empty, limited, required, grouped, and the leaves of each message in order."""
    tree = RenderTree(root)
    stack = [root]
    while stack:
        node = stack.pop()
        parent = node.parent
        node.rank = len(tree.nodes)
        tree.nodes.append(node)
        stack.extend(reversed(node.nodes))
        node.up = parent is None or (parent.gone[node.position] == STAYS and (parent.up or parent.standby) and not node.standby)
        if node.metadata or node.references:
            tree.has_attachments = True
        if not (node.up or node.standby):
            continue
        if parent is not None and parent.required:
            node.required = True  # what stays, stays whole
        if node.limit is not None:
            (tree.limits_standing_by if node.standby else tree.limits).append(node)
        for group in node.keep:
            tree.groups.setdefault(group, []).append(node)
        if node.role is not None:
            _message(tree, node)
        if not node.standby:
            tree.reserved += node.reserve
    for node in reversed(tree.nodes):
        _settle(node)
    return tree


def _settle(node: Node) -> None:
    """Count what is alive and not empty in a node whose children have been settled."""
    node.last = node.nodes[-1].last if node.nodes else node.rank
    live = 0
    for item, gone in zip(node.items, node.gone, strict=True):
        if gone == STAYS and type(item) is not Node:
            live += counts(item)
    for child in node.nodes:
        if child.born < 0 and node.gone[child.position] == STAYS:
            child.counted = shows(child)
            live += child.counted
            if child.pinned:
                node.pinned = True
    node.live = live
    node.barren = node.role is not None and not shows(node)
    if node.required and shows(node):
        node.pinned = True


def shows(node: Node) -> bool:
    """Whether a node counts as content for its container, to begin with."""
    return node.live > 0 or node.role == "tool" or bool(node.calls) or node.reserve > 0


def _message(tree: RenderTree, node: Node) -> None:
    """Chain the leaves of a message; find its calls that leave with a KeepWith group, and its cache boundary."""
    tree.messages.append(node)
    node.first = None
    before: Leaf | None = None
    seq = 0
    stack = [(node, zip(node.items, node.gone, strict=True), False)]
    while stack:
        at, rest, waiting = stack[-1]  # waiting: below a fallback, whose leaves are linked in when its turn comes
        for item, gone in rest:
            if gone != STAYS:
                continue
            if type(item) is Leaf:
                item.seq = seq
                seq += 1
                before = before if waiting else _chain(tree, node, item, before)
            elif type(item) is Node:
                item.place = seq
                if not item.items:
                    item.ghost = ghost = Leaf(item, "", 0, NEVER)
                    ghost.own, ghost.seq = True, seq
                    seq += 1
                    before = before if waiting or item.born == STAYS else _chain(tree, node, ghost, before)
                stack.append((item, zip(item.items, item.gone, strict=True), waiting or item.born == STAYS))
                break
        else:
            at.leaves = seq - at.place
            stack.pop()
    if isinstance(node.element, AssistantMessage):
        for index, call in enumerate(node.calls):
            if call.id in node.element.keep_with:
                tree.members.setdefault(node.element.keep_with[call.id], []).append((node, index))


def _chain(tree: RenderTree, message: Node, leaf: Leaf, before: Leaf | None) -> Leaf:
    """Link a leaf behind the one before it."""
    leaf.previous, leaf.following = before, None
    if before is None:
        message.first = leaf
    else:
        before.following = leaf
    if isinstance(leaf.part, CacheBreakpointPart) and not message.standby:
        tree.boundaries.append(leaf)
    return leaf


def counts(item: Item) -> bool:
    """Whether an item is one of its parent's living items that are not empty."""
    if type(item) is Node:
        return item.counted
    if type(item) is Leaf:
        return not item.frame and (item.part is not None or bool(item.text and not item.text.isspace()))
    return True


def linked_items(node: Node) -> list[Leaf]:
    """The living leaves of a node that have a place in their message's chain."""
    if node.ghost:
        return [node.ghost]
    return [item for item, gone in zip(node.items, node.gone, strict=True) if gone == STAYS and type(item) is Leaf]


def holds(node: Node) -> bool:
    """Whether a node still has an item that is alive and could not be removed."""
    return any(
        gone == STAYS and not (type(item) is Node and item.born == STAYS) and not (type(item) is Leaf and item.frame)
        for item, gone in zip(node.items, node.gone, strict=True)
    )


def pair(tree: RenderTree, *, strict: bool) -> None:
    """Pair the calls and results of a tree: a result answers the nearest call of its id before it that is still open.

    Sets `asked` of the results and `answers` of the messages with calls; fallbacks stand by among the answers.

    Raises UnansweredToolCallError and OrphanToolResultError; with `strict` off, such calls and results are left alone.
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


def _orphan(node: Node, *, again: bool) -> OrphanToolResultError:
    twice = " a second time" if again else ""
    message = f"the tool message answers call {node.call_id!r}{twice}, and no open call before it has that id."
    return OrphanToolResultError(message, path=path_of(node))


def _unanswered(node: Node, index: int) -> UnansweredToolCallError:
    call = node.calls[index]
    message = (
        f"no tool message answers call {call.id!r} ({call.name}): add a ToolMessage(tool_call_id={call.id!r}) behind it, or leave the call out. "
        "For recorded conversations use History, which mends them."
    )
    return UnansweredToolCallError(message, path=path_of(node))
