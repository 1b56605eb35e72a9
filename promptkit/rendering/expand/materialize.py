"""Stage two, materialize: collect what pruning needs to know in one walk over the expanded tree.

This includes the pairs of tool calls and tool results, which are removed together (D6).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping
from itertools import chain, groupby, takewhile
from operator import attrgetter

import attrs

from promptkit.elements import Reference
from promptkit.errors import BadPropError, OrphanToolResultError, UnansweredToolCallError
from promptkit.messages import CacheBreakpointPart
from promptkit.rendering.paths import format_path
from promptkit.rendering.tree import (
    MARKER,
    NEVER_REMOVED,
    STARTS_LINE_NEVER,
    Enclosure,
    Item,
    Leaf,
    MessageItem,
    Node,
    Run,
    is_below,
    is_literal,
    iter_upwards,
)


@attrs.define(eq=False, kw_only=True)
class RenderTree:
    """A tree with its nodes, messages, limits, groups and cache breakpoints in written order."""

    root: Node
    prompt_tsx: bool
    """Whether what may be removed, and when, is as in prompt-tsx."""
    keeps_request: bool
    """Whether the last user message without a priority is never removed, nor the last of all."""
    nodes: list[Node] = attrs.field(factory=list["Node"])
    messages: list[Node] = attrs.field(factory=list["Node"])
    """The messages that are nodes."""
    recorded: list[Run] = attrs.field(factory=list["Run"])
    """The runs of recorded conversations."""
    limits: list[Node] = attrs.field(factory=list["Node"])
    fallback_limits: list[Node] = attrs.field(factory=list["Node"])
    """The limits inside fallbacks."""
    keep_groups: dict[Hashable, list[Node]] = attrs.field(factory=dict["Hashable", "list[Node]"])
    """The members of each KeepWith group."""
    keep_group_calls: dict[Hashable, list[tuple[Node, int]]] = attrs.field(
        factory=dict["Hashable", "list[tuple[Node, int]]"]
    )
    """The tool calls of each group: (message, index)."""
    cache_breakpoints: list[Leaf] = attrs.field(factory=list["Leaf"])
    reserved: int = 0
    has_attachments: bool = False

    def find_last_breakpoint(self, root: Node) -> Leaf | None:
        """Return the last cache breakpoint at or below a node. Content before it is protected from pruning."""
        return next(
            (leaf for leaf in reversed(self.cache_breakpoints) if is_below(leaf.parent, root)),
            None,
        )

    def collect_attachments(
        self, state: int
    ) -> tuple[list[object], list[Reference], list[Reference]]:
        """Return (metadata, references, omitted references) in a state.

        Local metadata is dropped with its element. A reference whose element was removed is
        omitted.
        """
        if not self.has_attachments:
            return [], [], []
        metadata: list[object] = []
        kept: list[Reference] = []
        omitted: list[Reference] = []
        removed: set[Node] = set()
        for node in self.nodes:
            parent = node.parent
            if parent is not None and (
                parent in removed
                or parent.removed_at[node.position] < state
                or node.activated_at >= state
            ):
                removed.add(node)
            if node.metadata:
                metadata += [
                    value for value, local in node.metadata if not (local and node in removed)
                ]
            if node.references:
                (omitted if node in removed else kept).extend(node.references)
        return metadata, kept, omitted


def materialize(root: Node, *, prompt_tsx: bool = False, keeps_request: bool = True) -> RenderTree:  # noqa: C901  # one pass over nodes, of which a prompt can have very many
    """Build the RenderTree of an expanded tree: index the nodes, chain the leaves of each message, and count living items.

    With `prompt_tsx`, the defaults of removal are those of prompt-tsx. With `keeps_request`, the
    request stays all the same.
    """
    tree = RenderTree(root=root, prompt_tsx=prompt_tsx, keeps_request=keeps_request)
    stack = [root]
    while stack:
        node = stack.pop()
        parent = node.parent
        node.index = len(tree.nodes)
        tree.nodes.append(node)
        stack.extend(reversed(node.nodes))
        node.is_active = parent is None or (
            parent.removed_at[node.position] == NEVER_REMOVED
            and (parent.is_active or parent.in_fallback)
            and not node.in_fallback
        )
        if node.metadata or node.references:
            tree.has_attachments = True
        tree.reserved += node.reserve  # also of one that a limit removed with the message around it
        if not (node.is_active or node.in_fallback):
            continue
        if parent is not None and parent.required:
            node.required = True  # everything below a required node stays
        if not node.in_prioritized and (
            node.role == "system" or (parent is not None and parent.keeps_unprioritized)
        ):
            node.keeps_unprioritized = not prompt_tsx
        if node.limit is not None:
            (tree.fallback_limits if node.in_fallback else tree.limits).append(node)
        if node.run is not None and node.run.is_recorded:
            tree.recorded.append(node.run)
        for group in node.keep_groups:
            tree.keep_groups.setdefault(group, []).append(node)
        if node.role is not None:
            _index_message(tree, node)
    for node in reversed(tree.nodes):
        _settle(node)
    _keep_by_default(tree)
    return tree


def _keep_by_default(tree: RenderTree) -> None:
    """Set what stays without a priority."""
    if not tree.prompt_tsx:
        for node in tree.nodes:
            node.enclosures = _find_enclosures(node)
        _keep_system_message(tree)
    if tree.keeps_request:
        _keep_last_user_message(tree)


def _settle(node: Node) -> None:
    """Count the living items with content of a node whose children have been settled."""
    node.last_index = node.nodes[-1].last_index if node.nodes else node.index
    live = sum(
        [
            item.messages != () if type(item) is MessageItem else is_content(item)
            for item, removed_at in zip(node.items, node.removed_at, strict=True)
            if removed_at == NEVER_REMOVED and type(item) is not Node
        ]
    )
    for child in node.nodes:
        if child.activated_at < 0 and node.removed_at[child.position] == NEVER_REMOVED:
            child.is_counted = has_content(child)
            live += child.is_counted
            if child.pinned:
                node.pinned = True
    if (
        node.run is not None
        and node.run.is_recorded
        and any(map(is_content, _iter_required_rounds(node, node.run)))
    ):
        node.pinned = True
    node.live_items = live
    node.is_blank = node.role is not None and not has_content(node)
    if (node.required or node.keeps_unprioritized) and _has_lasting_content(node):
        node.pinned = True


def _find_enclosures(node: Node) -> list[Enclosure]:
    """Find the literal texts of a node that have children between them which can all leave.

    Of several texts between two children, the first one ends an enclosure and the next one starts
    another. A single one belongs to the children on both sides, so that these are in one enclosure,
    which needs a text before the first and behind the last of them. The texts at either end of the
    node belong to the children beside them.
    """
    items = node.items
    if (
        node.message is None
        or node.required
        or node.legacy
        or node.in_legacy
        or sum(map(is_literal, items)) <= 1
    ):
        return []
    runs = [
        list(run)
        for _, run in groupby(
            (at for at in range(len(items)) if _is_text_or_child(node, at)),
            key=lambda at: is_literal(items[at]),
        )
    ]
    found: list[Enclosure] = []
    start: int | None = None  # None: no text stands before the children
    stays = False
    for at, children in enumerate(runs):
        if is_literal(items[children[0]]):
            continue
        before, after = runs[at - 1] if at else [], runs[at + 1] if at + 1 < len(runs) else []
        if start is None or len(before) > 1:
            is_inner = at > 1 and len(before) > 1
            start, stays = (before[is_inner] if before else None), False
        stays = stays or any(
            type(item) is Node and (item.pinned or item.required)
            for item in map(items.__getitem__, children)
        )
        is_last = at + 2 >= len(runs)
        if after and (is_last or len(after) > 1) and start is not None and not stays:
            found.append(Enclosure(start, after[-1] if is_last else after[0], living=start))
    return found


def _is_text_or_child(node: Node, position: int) -> bool:
    """Return whether an item is literal text, or a child that has content or would have some with a larger share."""
    item = node.items[position]
    return node.removed_at[position] == NEVER_REMOVED and (
        (is_content(item) and not _is_breakpoint(item)) or (type(item) is Node and item.is_cut_away)
    )


def _is_breakpoint(item: Item) -> bool:
    return type(item) is Leaf and isinstance(item.part, CacheBreakpointPart)


def has_living_child(node: Node, enclosure: Enclosure) -> bool:
    """Return whether a child is left between the texts of an enclosure.

    The search starts where one was found before, so that all searches together pass each child
    once.
    """
    start = enclosure.living
    for at in chain(range(start, enclosure.end), range(enclosure.start, start)):
        item = node.items[at]
        if (
            node.removed_at[at] == NEVER_REMOVED
            and is_content(item)
            and not (is_literal(item) or _is_breakpoint(item))
        ):
            enclosure.living = at
            return True
    return False


def find_enclosure(node: Node, position: int) -> Enclosure | None:
    """Return the enclosure of a node that an item is in, or None."""
    at = (
        bisect_right(node.enclosures, position, key=attrgetter("start")) - 1
        if len(node.enclosures) > 1
        else 0
    )
    found = node.enclosures[at]
    return found if at >= 0 and found.start <= position <= found.end else None


def _iter_required_rounds(node: Node, run: Run) -> Iterator[MessageItem]:
    """Yield the rounds of a conversation that are never removed."""
    if len(run.order) - run.order.count(MARKER) < len(node.items):
        removable = set(run.order)
        for at, item in enumerate(node.items):
            if at not in removable and type(item) is MessageItem:
                yield item


def _has_lasting_content(node: Node) -> bool:
    """Return whether a node that is required, or keeps what has no priority, has content that is never removed."""
    return has_content(node) and (
        node.required
        or node.role is not None
        or node.atomic
        or any(
            removed_at == NEVER_REMOVED
            and type(item) is Leaf
            and is_content(item)
            and not has_own_priority(item)
            for item, removed_at in zip(node.items, node.removed_at, strict=True)
        )
    )


def _keep_last_user_message(tree: RenderTree) -> None:
    """Mark the last user message without a priority, and its content without a priority, as never pruned (D13)."""
    place = _find_last_user_message(tree.root)
    if place is None:
        return
    parent, position = place
    message = parent.items[position]
    if type(message) is not Node:
        if parent.run is not None and parent.kept_position != position:
            parent.run.keep(position)
            parent.kept_position = position
        _pin(parent)
    else:
        _keep_message(tree, message)


def _keep_system_message(tree: RenderTree) -> None:
    """Keep the system message without a priority that would be removed last, if no other one stays (D11).

    Those that stay anyway have no priority around them, either, or are required.
    """
    messages = [
        node
        for node in tree.messages
        if node.role == "system" and node.is_active and not node.is_blank
    ]
    if any(node.keeps_unprioritized or node.required for node in messages):
        return
    own = [node for node in messages if not has_own_priority(node)]
    if own:
        # of two messages the lower one is removed first, from the root on
        paths = {
            node: [(above.priority, above.position) for above in iter_upwards(node)][::-1]
            for node in own
        }
        _keep_message(tree, max(own, key=paths.__getitem__))


def _keep_message(tree: RenderTree, message: Node) -> None:
    """Keep a message, with everything in it that has no priority of its own."""
    for node in tree.nodes[message.index : message.last_index + 1]:
        around = node.parent
        if node is message or (
            around is not None
            and around.keeps_unprioritized
            and node.is_active
            and not has_own_priority(node)
        ):
            node.keeps_unprioritized = True
            if _has_lasting_content(node):
                _pin(node)


def _find_last_user_message(root: Node) -> tuple[Node, int] | None:
    """Find the place of the last user message without a priority.

    None: there is none, or it is in a round that is required.
    """
    stack = [(root, len(root.items))]
    while stack:
        parent, end = stack.pop()
        if parent.run is not None and parent.run.is_recorded:
            if any(
                message.role == "user"
                for item in _iter_required_rounds(parent, parent.run)
                for message in item.messages or ()
            ):
                return None
            continue  # the other rounds have priorities
        for position in range(end - 1, -1, -1):
            item = parent.items[position]
            if parent.removed_at[position] != NEVER_REMOVED:
                continue
            if _is_unprioritized_user_message(item):
                return parent, position
            if type(item) is Node and item.role is None and not item.in_prioritized:
                stack += [(parent, position), (item, len(item.items))]
                break
    return None


def _is_unprioritized_user_message(item: Item) -> bool:
    """Return whether an item is a user message without a priority that is not blank."""
    if type(item) is MessageItem:
        return item.role == "user" and item.element is not None and item.element.priority is None
    return (
        type(item) is Node and item.role == "user" and not item.in_prioritized and not item.is_blank
    )


def _pin(node: Node) -> None:
    """Mark a node and its ancestors as never pruned."""
    for above in takewhile(lambda above: not above.pinned, iter_upwards(node)):
        above.pinned = True


def has_own_priority(item: Leaf | Node) -> bool:
    """Return whether an item is an element with a priority that it does not pass on. Literal text has none."""
    element = item.element
    return element is not None and element.priority is not None and not element.pass_priority


def has_content(node: Node) -> bool:
    """Return whether a node counts as content of its container before anything is removed.

    In a message a Reserve does not: it is not sent.
    """
    return (
        node.live_items > 0
        or node.role == "tool"
        or bool(node.calls)
        or (node.reserve > 0 and node.message is None)
    )


def _index_message(tree: RenderTree, node: Node) -> None:
    """Link the leaves of a message, and collect its cache breakpoints and the tool calls in KeepWith groups."""
    tree.messages.append(node)
    node.first_leaf = None
    before: Leaf | None = None
    index = 0
    stack = [(node, zip(node.items, node.removed_at, strict=True), False)]
    while stack:
        # inactive: in a fallback, whose leaves are linked when it is activated
        container, rest, inactive = stack[-1]
        for item, removed_at in rest:
            if removed_at != NEVER_REMOVED:
                continue
            if type(item) is Leaf:
                item.index = index
                index += 1
                before = before if inactive else _chain(tree, node, item, before)
            elif type(item) is Node:
                item.first_leaf_index = index
                if not item.items:
                    item.placeholder = placeholder = Leaf(item, "", 0, STARTS_LINE_NEVER)
                    placeholder.index = index
                    index += 1
                    before = (
                        before
                        if inactive or item.activated_at == NEVER_REMOVED
                        else _chain(tree, node, placeholder, before)
                    )
                stack.append(
                    (
                        item,
                        zip(item.items, item.removed_at, strict=True),
                        inactive or item.activated_at == NEVER_REMOVED,
                    )
                )
                break
        else:
            container.leaf_count = index - container.first_leaf_index
            stack.pop()
    for call_index, call in enumerate(node.calls if node.call_groups else ()):
        if call.id in node.call_groups:
            tree.keep_group_calls.setdefault(node.call_groups[call.id], []).append(
                (node, call_index)
            )


def _chain(tree: RenderTree, message: Node, leaf: Leaf, before: Leaf | None) -> Leaf:
    """Append a leaf to the chain of its message."""
    leaf.previous, leaf.following = before, None
    if before is None:
        message.first_leaf = leaf
    else:
        before.following = leaf
    if isinstance(leaf.part, CacheBreakpointPart) and not message.in_fallback:
        tree.cache_breakpoints.append(leaf)
    return leaf


def is_content(item: Item) -> bool:
    """Return whether a living item counts as content of its parent."""
    if isinstance(item, MessageItem):
        return item.messages != ()
    if isinstance(item, Node):
        return item.is_counted
    return not item.is_frame and (
        item.part is not None or bool(item.text and not item.text.isspace())
    )


def list_linked_leaves(node: Node) -> list[Leaf]:
    """Return the living leaves of a node that are in their message's chain."""
    items = zip(node.items, node.removed_at, strict=True)
    return (
        [node.placeholder]
        if node.placeholder
        else [item for item, at in items if at == NEVER_REMOVED and type(item) is Leaf]
    )


def has_removable_items(node: Node) -> bool:
    """Return whether a node has a living item besides the opening and closing lines of a Tag."""
    return any(
        removed_at == NEVER_REMOVED
        and not (type(item) is Node and item.activated_at == NEVER_REMOVED)
        and not (type(item) is Leaf and item.is_frame)
        for item, removed_at in zip(node.items, node.removed_at, strict=True)
    )


def pair_calls(tree: RenderTree, *, strict: bool) -> None:
    """Pair the tool calls and tool results of a tree.

    A result answers the nearest preceding call with its id that is still open. Sets `answered_call`
    of the results, and `results` of the messages with calls. Results inside fallbacks are among
    them.

    Raises UnansweredToolCallError, OrphanToolResultError and BadPropError (two calls of one id) if
    `strict` is on. Otherwise such calls and results stay unpaired.
    """
    open_calls: dict[str, tuple[Node, int]] = {}
    answered: dict[str, tuple[Node, int]] = {}
    for node in tree.messages:
        if node.call_id is not None:
            call = (
                answered.get(node.call_id)
                if node.in_fallback
                else open_calls.pop(node.call_id, None)
            )
            if call is not None:
                answered[node.call_id] = call
                node.answered_call = call
                message, index = call
                message.results.append((index, node))
            elif strict and not node.in_fallback:
                raise OrphanToolResultError(
                    f"the tool message answers call {node.call_id!r}, which {'is answered already' if node.call_id in answered else 'is made by no message before it'}: remove it, or correct its tool_call_id.",
                    path=format_path(node),
                )
        elif node.calls and not node.in_fallback:
            if strict:
                _refuse_repeated_ids(node, open_calls)
            node.results = []
            open_calls |= {
                call.id: (node, index)
                for index, call in enumerate(node.calls)
                # of the others a limit removed the result, too
                if node.calls_removed_at[index] == NEVER_REMOVED
            }
    if strict and open_calls:
        node, index = next(iter(open_calls.values()))
        call_id, name = node.calls[index].id, node.calls[index].name
        raise UnansweredToolCallError(
            f"no tool message answers call {call_id!r} ({name}): add a ToolMessage(tool_call_id={call_id!r}) after it, or remove the call. "
            "For a recorded conversation, use History, which repairs it.",
            path=format_path(node),
        )


def _refuse_repeated_ids(node: Node, open_calls: Mapping[str, tuple[Node, int]]) -> None:
    """Raise BadPropError for a call that repeats the id of a call without a result: a result answers only one call."""
    seen: set[str] = set()
    for call in node.calls:
        if call.id in seen or call.id in open_calls:
            raise BadPropError(
                f"two open tool calls have the id {call.id!r}: give each call an id of its own. For a recorded conversation, use History, which repairs it.",
                path=format_path(node),
            )
        seen.add(call.id)
