"""Stage two: one walk over the finished tree that finds out what pruning has to know.

Tool calls and their results: who answers whom, so that they leave together (D6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.elements.chat import AssistantMessage
from promptkit.errors import OrphanToolResultError, UnansweredToolCallError
from promptkit.messages import CacheBreakpointPart
from promptkit.rendering.tree import STARTS_LINE_NEVER, NEVER_REMOVED, Item, Leaf, Node, format_path

if TYPE_CHECKING:
    from collections.abc import Hashable

    from promptkit.elements.media import Reference

__all__ = ["RenderTree", "is_content", "has_removable_items", "linked_items", "materialize", "pair_calls", "has_content"]


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
        self.fallback_limits: list[Node] = []  # in fallbacks
        self.keep_groups: dict[Hashable, list[Node]] = {}  # KeepWith members
        self.keep_group_calls: dict[Hashable, list[tuple[Node, int]]] = {}  # tool calls that leave with a group: message and index
        self.cache_breakpoints: list[Leaf] = []  # in written order
        self.reserved = 0
        self.has_attachments = False

    def collect_attachments(self, k: int) -> tuple[list[object], list[Reference], list[Reference]]:
        """(metadata, references, omitted references) at state k: local ones die with their element."""
        if not self.has_attachments:
            return [], [], []
        metadata: list[object] = []
        kept: list[Reference] = []
        omitted: list[Reference] = []
        dead: set[Node] = set()
        for node in self.nodes:
            parent = node.parent
            if parent is not None and (parent in dead or parent.removed_at[node.position] < k or node.activated_at >= k):
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
        node.index = len(tree.nodes)
        tree.nodes.append(node)
        stack.extend(reversed(node.nodes))
        node.is_active = parent is None or (parent.removed_at[node.position] == NEVER_REMOVED and (parent.is_active or parent.in_fallback) and not node.in_fallback)
        if node.metadata or node.references:
            tree.has_attachments = True
        if not (node.is_active or node.in_fallback):
            continue
        if parent is not None and parent.required:
            node.required = True  # what stays, stays whole
        if node.limit is not None:
            (tree.fallback_limits if node.in_fallback else tree.limits).append(node)
        for group in node.keep_groups:
            tree.keep_groups.setdefault(group, []).append(node)
        if node.role is not None:
            _message(tree, node)
        if not node.in_fallback:
            tree.reserved += node.reserve
    for node in reversed(tree.nodes):
        _settle(node)
    return tree


def _settle(node: Node) -> None:
    """Count what is alive and not empty in a node whose children have been settled."""
    node.last_index = node.nodes[-1].last_index if node.nodes else node.index
    live = 0
    for item, gone in zip(node.items, node.removed_at, strict=True):
        if gone == NEVER_REMOVED and type(item) is not Node:
            live += is_content(item)
    for child in node.nodes:
        if child.activated_at < 0 and node.removed_at[child.position] == NEVER_REMOVED:
            child.is_counted = has_content(child)
            live += child.is_counted
            if child.pinned:
                node.pinned = True
    node.live_items = live
    node.is_blank = node.role is not None and not has_content(node)
    if node.required and has_content(node):
        node.pinned = True


def has_content(node: Node) -> bool:
    """Whether a node counts as content for its container, to begin with."""
    return node.live_items > 0 or node.role == "tool" or bool(node.calls) or node.reserve > 0


def _message(tree: RenderTree, node: Node) -> None:
    """Chain the leaves of a message; find its calls that leave with a KeepWith group, and its cache boundary."""
    tree.messages.append(node)
    node.first_leaf = None
    before: Leaf | None = None
    seq = 0
    stack = [(node, zip(node.items, node.removed_at, strict=True), False)]
    while stack:
        at, rest, waiting = stack[-1]  # waiting: below a fallback, whose leaves are linked in when its turn comes
        for item, gone in rest:
            if gone != NEVER_REMOVED:
                continue
            if type(item) is Leaf:
                item.index = seq
                seq += 1
                before = before if waiting else _chain(tree, node, item, before)
            elif type(item) is Node:
                item.first_leaf_index = seq
                if not item.items:
                    item.placeholder = ghost = Leaf(item, "", 0, STARTS_LINE_NEVER)
                    ghost.is_element, ghost.index = True, seq
                    seq += 1
                    before = before if waiting or item.activated_at == NEVER_REMOVED else _chain(tree, node, ghost, before)
                stack.append((item, zip(item.items, item.removed_at, strict=True), waiting or item.activated_at == NEVER_REMOVED))
                break
        else:
            at.leaf_count = seq - at.first_leaf_index
            stack.pop()
    if isinstance(node.element, AssistantMessage):
        for index, call in enumerate(node.calls):
            if call.id in node.element.keep_with:
                tree.keep_group_calls.setdefault(node.element.keep_with[call.id], []).append((node, index))


def _chain(tree: RenderTree, message: Node, leaf: Leaf, before: Leaf | None) -> Leaf:
    """Link a leaf behind the one before it."""
    leaf.previous, leaf.following = before, None
    if before is None:
        message.first_leaf = leaf
    else:
        before.following = leaf
    if isinstance(leaf.part, CacheBreakpointPart) and not message.in_fallback:
        tree.cache_breakpoints.append(leaf)
    return leaf


def is_content(item: Item) -> bool:
    """Whether an item is one of its parent's living items that are not empty."""
    if type(item) is Node:
        return item.is_counted
    if type(item) is Leaf:
        return not item.is_frame and (item.part is not None or bool(item.text and not item.text.isspace()))
    return True


def linked_items(node: Node) -> list[Leaf]:
    """The living leaves of a node that have a place in their message's chain."""
    if node.placeholder:
        return [node.placeholder]
    return [item for item, gone in zip(node.items, node.removed_at, strict=True) if gone == NEVER_REMOVED and type(item) is Leaf]


def has_removable_items(node: Node) -> bool:
    """Whether a node still has an item that is alive and could not be removed."""
    return any(
        gone == NEVER_REMOVED and not (type(item) is Node and item.activated_at == NEVER_REMOVED) and not (type(item) is Leaf and item.is_frame)
        for item, gone in zip(node.items, node.removed_at, strict=True)
    )


def pair_calls(tree: RenderTree, *, strict: bool) -> None:
    """Pair the calls and results of a tree: a result answers the nearest call of its id before it that is still open.

    Sets `asked` of the results and `answers` of the messages with calls; fallbacks stand by among the answers.

    Raises UnansweredToolCallError and OrphanToolResultError; with `strict` off, such calls and results are left alone.
    """
    open_calls: dict[str, tuple[Node, int]] = {}
    answered: dict[str, tuple[Node, int]] = {}
    for node in tree.messages:
        if node.call_id is not None:
            asked = answered.get(node.call_id) if node.in_fallback else open_calls.pop(node.call_id, None)
            if asked is not None:
                answered[node.call_id] = asked
                _join(node, asked)
            elif strict and not node.in_fallback:
                raise _orphan(node, again=node.call_id in answered)
        elif node.calls and not node.in_fallback:
            _open(node, open_calls, strict=strict)
    if strict and open_calls:
        raise _unanswered(*next(iter(open_calls.values())))


def _open(node: Node, open_calls: dict[str, tuple[Node, int]], *, strict: bool) -> None:
    node.results = []
    for index, call in enumerate(node.calls):
        before = open_calls.get(call.id)
        if before and strict:
            raise _unanswered(*before)
        open_calls[call.id] = (node, index)


def _join(result: Node, asked: tuple[Node, int]) -> None:
    message, index = asked
    result.answered_call = asked
    message.results.append((index, result))


def _orphan(node: Node, *, again: bool) -> OrphanToolResultError:
    twice = " a second time" if again else ""
    message = f"the tool message answers call {node.call_id!r}{twice}, and no open call before it has that id."
    return OrphanToolResultError(message, path=format_path(node))


def _unanswered(node: Node, index: int) -> UnansweredToolCallError:
    call = node.calls[index]
    message = (
        f"no tool message answers call {call.id!r} ({call.name}): add a ToolMessage(tool_call_id={call.id!r}) behind it, or leave the call out. "
        "For recorded conversations use History, which mends them."
    )
    return UnansweredToolCallError(message, path=format_path(node))
