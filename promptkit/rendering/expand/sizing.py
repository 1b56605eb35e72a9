"""Shares and sizes: the tokens that each node may fill, and the tokens that it used.

The rules are those of prompt-tsx. A container's own text is counted first. Then its flex groups
follow one after the other. The members of a group share the tokens that are left, without knowing
what the others use. A member reports to its container what it used, but never more than its share,
unless it stays whatever its size is: required elements, and in promptkit's own rules system
messages and user messages without a priority. What they need is not there for others.

Nothing is counted until a component reads its budget, or a later stage asks for a size.

The arithmetic of flex groups (`split_shares`, `resolve_reserve`) is exact and rounds down.

The module also computes upper bounds of sizes from the lengths of texts, so that a tree that surely
fits needs no pruning.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction

from promptkit.messages import Message, Part, Role, ToolCall
from promptkit.rendering.expand.materialize import RenderTree
from promptkit.rendering.tree import HIGHEST_PRIORITY, FlexGroup, Layout, Leaf, MessageItem, Node
from promptkit.tokens.tokenizer import (
    Tokenizer,
    count_frame,
    count_message,
    count_part,
)
from promptkit.tokens.truncation import truncate_text

# What `Sizer._settle` computes of a node.
BUDGET = 0
USED = 1

UNBOUNDED = 1 << 60
"""The upper bound of tokens where none is known."""

TOGETHER = 64
"""The most messages whose texts are counted together."""

MAX_FRAMES = 10_000
"""The most counts of the framing of messages that a Sizer keeps."""


class Sizer:
    """Computes the budgets and sizes of the nodes of a render, and counts messages and parts.

    Trees can be deeper than Python's recursion limit, so it works on a stack of goals instead of
    recursing.
    """

    def __init__(self, tokenizer: Tokenizer, *, prompt_tsx: bool = False) -> None:
        self.tokenizer = tokenizer
        self.prompt_tsx = prompt_tsx
        # By identity. The messages are held, so that no other gets their ids. A pair for each would
        # be one more object that the garbage collector looks through.
        self._counts: dict[int, int] = {}
        self._counted: list[Message] = []
        self._earlier: tuple[dict[int, int], list[Message]] = {}, []
        self.memory = ChainMap[object, object]({}, {})
        """What components keep: first what this render has written, then what the last one has."""
        self._frames: dict[
            tuple[Role, str | None, tuple[ToolCall, ...], str | None, bool | None], int
        ] = {}

    def count_node_frame(self, node: Node, state: int, *, text: bool) -> int:
        """Count the tokens around the content of a message, including the tool calls that are alive in a state.

        `text` says whether the message has text.
        """
        role = node.role
        if role is None:
            return 0
        if not node.calls and node.call_id is None:
            return self.count_frame(role, node.name)
        calls = tuple(
            [
                call
                for call, removed_at in zip(node.calls, node.calls_removed_at, strict=True)
                if removed_at >= state
            ]
        )
        return self.count_frame(role, node.name, calls, node.call_id, text=text)

    def count_frame(
        self,
        role: Role,
        name: str | None,
        calls: tuple[ToolCall, ...] = (),
        call_id: str | None = None,
        *,
        text: bool | None = None,
    ) -> int:
        """Count the tokens around the content of a message, each once."""
        key = role, name, calls, call_id, text
        tokens = self._frames.get(key)
        if tokens is None:
            if len(self._frames) >= MAX_FRAMES:
                self._frames.clear()
            tokens = self._frames[key] = self.tokenizer.count_framing(
                role, name=name, tool_calls=calls, tool_call_id=call_id, text=text
            ).tokens
        return tokens

    def count_item(self, item: MessageItem) -> int:
        """Count the tokens of a message item. The count is kept on the item."""
        tokens = item.tokens
        if tokens < 0:
            tokens = item.tokens = (
                sum(map(self.count_message, item.messages or ()))
                if item.sources
                else self.count_frame(item.role, item.name) + self.tokenizer.count(item.text)
            )
        return tokens

    def count_message(self, message: Message) -> int:
        """Count the tokens of a message, framing included.

        The count is kept by the identity of the message for this render and the next.
        """
        key = id(message)
        tokens = self._counts.get(key)
        if tokens is None:
            tokens = self._earlier[0].get(key)
            if tokens is None:
                tokens = count_message(message, self.tokenizer)
            self._counts[key] = tokens
            self._counted.append(message)
        return tokens

    def count_messages(self, messages: Sequence[Message]) -> list[int]:
        """Count the tokens of each message.

        The texts of some messages are counted first, and then what is around them: that takes less
        time than message by message, since what has just been used is used again.
        """
        known, keys = self._counts, list(map(id, messages))
        with suppress(KeyError):
            return list(map(known.__getitem__, keys))
        if self._earlier[0]:
            return list(map(self.count_message, messages))
        new = (
            messages
            if known.keys().isdisjoint(keys)  # as in a first request
            else [message for key, message in zip(keys, messages, strict=True) if key not in known]
        )
        for at in range(0, len(new), TOGETHER):
            some = [*new[at : at + TOGETHER]]
            self.tokenizer.base.count_ahead(some)
            known.update({id(each): count_message(each, self.tokenizer) for each in some})
            self._counted += some
        return list(map(known.__getitem__, keys))

    def find_tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of messages that were counted in this render, or -1 if one of them was not."""
        counts, tokens = self._counts, 0
        for message in messages:
            known = counts.get(id(message))
            if known is None:
                return -1
            tokens += known
        return tokens

    def truncate(self, text: str, tokens: int, *, head: float, marker: str) -> str:
        """Truncate a text as `truncate_text` does.

        The result is kept for this render and the next: a long log is tokenised once.
        """
        key = text, tokens, head, marker
        known = self.memory.get(key)
        if not isinstance(known, str):
            known = truncate_text(text, tokens, head=head, marker=marker, tokenizer=self.tokenizer)
        self.memory[key] = known
        return known

    def share_counts(self, other: Sizer) -> None:
        """Start a render with what another Sizer with the same tokenizer has counted."""
        self._counts, self._counted = {**other._counts}, [*other._counted]

    def start_next_render(self) -> None:
        """Drop the counts of messages, and what components keep, that neither this render nor the previous one used."""
        self._earlier = self._counts, self._counted
        self._counts, self._counted = {}, []
        self.memory = ChainMap({}, self.memory.maps[0])

    def bound_item(self, item: MessageItem) -> int:
        """Return an upper bound of the tokens of a message item, without counting its text."""
        if item.tokens >= 0:
            return item.tokens
        if item.sources:
            return sum(map(self._bound_message, item.messages or ()))
        bound = self.tokenizer.upper_bound(item.text)
        return UNBOUNDED if bound is None else bound + self.count_frame(item.role, item.name)

    def _bound_message(self, message: Message) -> int:
        total = count_frame(message, self.tokenizer).tokens
        for part in message.content:
            bound = (
                self.tokenizer.upper_bound(part) if isinstance(part, str) else self.count_part(part)
            )
            total += UNBOUNDED if bound is None else bound
        return total

    def count_part(self, part: Part) -> int:
        """Count the tokens of a content part."""
        return count_part(part, self.tokenizer)

    def count_leaf(self, leaf: Leaf) -> int:
        """Count the tokens of a leaf, without the line breaks between it and its neighbours."""
        if leaf.part is not None:
            return self.count_part(leaf.part)
        return self.tokenizer.count(leaf.text) if leaf.text else 0

    def budget_of(self, node: Node) -> int:
        """Return the tokens that a node may fill."""
        if node.budget is None:
            self._settle(BUDGET, node)
        return node.budget or 0

    def tokens_used(self, node: Node) -> int:
        """Return the tokens that a node reports to its container: those it used, capped at its budget if it may be pruned."""
        if node.used is None:
            self._settle(USED, node)
        return node.used or 0

    def _settle(self, kind: int, node: Node) -> None:
        """Compute a budget or a size, with everything that it depends on."""
        stack = [(kind, node)]
        while stack:
            kind, node = stack[-1]
            missing = self._settle_budget(node) if kind == BUDGET else self._settle_used(node)
            if missing:
                stack.extend(missing)
            else:
                stack.pop()

    def _settle_budget(self, node: Node) -> Sequence[tuple[int, Node]]:
        if node.budget is not None:
            return ()
        source = node.replaces or node.parent
        if source is not None and source.budget is None:
            return ((BUDGET, source),)
        if source is not None and node.replaces is None:
            return self._settle_share(source, node.group_index)
        node.budget = 0 if source is None else source.budget
        return ()

    def _settle_share(self, parent: Node, index: int) -> Sequence[tuple[int, Node]]:
        """Set the shares of a container's flex group, or return the goals that must be settled first."""
        layout = parent.layout
        if layout is None:
            return ()
        if layout.remaining is None:
            layout.remaining = max(0, (parent.budget or 0) - self.count_own(parent))
        while layout.settled < index:
            group = layout.groups[layout.settled]
            if not group.shared:
                _divide(layout, layout.settled)
            missing = [
                (USED, member)
                for member in group.nodes
                if member.used is None and member.replaces is None
            ]
            if missing:
                return missing
            layout.remaining = max(0, layout.remaining - self.sum_group(parent, group))
            layout.settled += 1
        if not layout.groups[index].shared:
            _divide(layout, index)
        return ()

    def _settle_used(self, node: Node) -> Sequence[tuple[int, Node]]:
        if node.used is not None:
            return ()
        if node.budget is None:
            return ((BUDGET, node),)
        if node.layout:
            for index, group in enumerate(node.layout.groups):
                if not group.shared:
                    missing = self._settle_share(node, index)
                    if missing:
                        return missing
        size = self.count_own(node)
        if node.layout:
            missing = [
                (USED, member) for member in _list_members(node.layout) if member.used is None
            ]
            if missing:
                return missing
            size += sum(self.sum_group(node, group) for group in node.layout.groups)
        else:
            plain = sum(
                type(item) is MessageItem or (type(item) is Leaf and _takes_share(item))
                for item in node.items
            )
            if plain:
                size += self.sum_plain_members(node, max(0, node.budget - size) // plain)
        self._settle_needed(node)
        node.used = max(min(node.budget, size), node.needed)
        return ()

    def _settle_needed(self, node: Node) -> None:
        """Set the tokens that a node takes regardless of its share: its own, and those of children that are never pruned."""
        members = _list_members(node.layout) if node.layout else ()
        node.whole = (
            self.count_own(node)
            + self.sum_plain_members(node, UNBOUNDED)
            + sum(member.whole for member in members)
        )
        node.needed = (
            node.whole
            if self._stays(node, node)
            else sum(member.needed for member in members)
            + sum(
                self.count_item(item)
                for item in node.items
                if type(item) is MessageItem and self._stays(item, node)
            )
        )

    def _stays(self, item: Node | MessageItem, inner: Node) -> bool:
        """Return whether an item may exceed its share because pruning cannot make it smaller.

        `inner` is the item, or the container of an item that is no node. A user message in a
        container with a priority is pruned with it; the only system message stays there, too (D11).
        """
        return (type(item) is Node and item.required) or (
            (item.role == "system" or (item.role == "user" and not inner.in_prioritized))
            and item.priority >= HIGHEST_PRIORITY
            and not self.prompt_tsx
        )

    def sum_group(self, parent: Node, group: FlexGroup) -> int:
        """Sum the tokens that the members of a settled group used."""
        size = sum(member.used or 0 for member in group.nodes if member.replaces is None)
        return (
            size + self.sum_plain_members(parent, group.plain_share)
            if group.plain_members
            else size
        )

    def sum_plain_members(self, node: Node, share: int) -> int:
        """Sum the tokens of the members that are not nodes, each counted up to its share."""
        size = 0
        for item in node.items:
            if type(item) is MessageItem:
                size += (
                    self.count_item(item)
                    if self._stays(item, node)
                    else min(share, self.count_item(item))
                )
            elif type(item) is Leaf and _takes_share(item):
                size += min(share, self.count_leaf(item))
        return size

    def count_own(self, node: Node) -> int:
        """Count a container's own text, its reserve, and its framing if it is a message."""
        size = node.own_size
        if size is None:
            size = self.count_node_frame(node, 0, text=bool(node.items)) if node.role else 0
            size += node.reserve
            for item in node.items:
                if type(item) is Leaf and not _takes_share(item):
                    size += self.count_leaf(item)
            node.own_size = size
        return size


def _list_members(layout: Layout) -> list[Node]:
    """List the nodes in the flex groups of a container, without fallbacks: a fallback uses the share of the node that it replaces."""
    return [member for group in layout.groups for member in group.nodes if member.replaces is None]


def _divide(layout: Layout, index: int) -> None:
    """Divide the tokens that are left among the members of the next group."""
    group = layout.groups[index]
    remaining = layout.remaining or 0
    held_back = sum(
        resolve_reserve(remaining, reserve) for at, reserve in layout.reserves if at > index
    )
    members = [member for member in group.nodes if member.replaces is None]
    parts = split_shares(
        max(0, remaining - held_back),
        [
            *(member.element.flex_basis if member.element else 1 for member in members),
            group.plain_members,
        ],
        [*(member.limit for member in members), None],
    )
    for member, part in zip(members, parts, strict=False):
        if member.budget is None:
            member.budget = part
    group.plain_share = parts[-1] // group.plain_members if group.plain_members else 0
    group.shared = True


def _takes_share(leaf: Leaf) -> bool:
    """Return whether a leaf is a member of a flex group (an own element), and not its container's own text."""
    return leaf.is_element or (leaf.part is not None and leaf.takes_share)


def surely_fits(tree: RenderTree, sizer: Sizer, room: int) -> bool:
    """Return whether a whole tree fits `room` tokens by its upper bounds.

    False means that it may or may not fit.
    """
    total = 0
    for node in tree.nodes:
        if node.in_fallback and not node.is_active:
            continue
        total += _bound_own_items(node, sizer, room)
        if total > room:
            break
    return total <= room


def surely_fits_by_itself(node: Node, sizer: Sizer) -> bool:
    """Return whether an expanded subtree fits its budget by its upper bound.

    False means that it may or may not fit.

    The bounds are kept on the nodes, so that elements that ask at every level of a deep tree do not
    walk it again from each level.
    """
    nodes = [node]
    for each in nodes:  # grows while it is walked
        nodes.extend(child for child in each.nodes if child.token_bound is None)
    set_token_bounds(nodes, sizer)
    return node.token_bound is not None and node.token_bound <= sizer.budget_of(node)


def set_token_bounds(nodes: Sequence[Node], sizer: Sizer, *, limited: bool = False) -> None:
    """Set `token_bound` of nodes that are listed parents first, without counting any text.

    With `limited`, their limits are pruned, and do not exceed themselves.
    """
    for node in reversed(nodes):
        total = _bound_own_items(node, sizer, UNBOUNDED)
        for child in node.nodes:
            bound = child.token_bound or 0
            total += (
                min(bound, child.limit)
                if limited and child.limit is not None and not child.in_fallback
                else bound
            )
        node.token_bound = min(total, UNBOUNDED)


def _bound_own_items(node: Node, sizer: Sizer, enough: int) -> int:
    """Compute an upper bound for a node's own items.

    Stops early once the bound exceeds `enough`.
    """
    upper_bound = sizer.tokenizer.upper_bound
    total = sizer.count_node_frame(node, 0, text=True) if node.role else 0
    if node.run is not None:
        total += node.run.unspent
    # the newest of a conversation were counted in the render before, and need no bound
    for item in reversed(node.items):
        if total > enough:
            break
        if type(item) is MessageItem:
            total += item.tokens if item.tokens >= 0 else sizer.bound_item(item)
        elif type(item) is Leaf:
            bound = sizer.count_leaf(item) if item.part else upper_bound(item.text)
            total += UNBOUNDED if bound is None else bound + 1  # for a line break before it
    return total


def split_shares(total: int, bases: Sequence[float], limits: Sequence[int | None]) -> list[int]:
    """Split `total` tokens in proportion to `bases`. The parts never sum to more than `total`.

    A member with a limit below its proportional share gets the limit, and the rest of its share
    goes to the other members. As in prompt-tsx there are two passes: the first looks at the members
    in order, each against the bases that are left.

    >>> split_shares(100, [1, 1, 2], [None, 10, None])
    [30, 10, 60]
    """
    weights = [basis if isinstance(basis, int) else Fraction(basis) for basis in bases]
    left = sum(weights)
    if not left:
        return [0] * len(bases)
    parts = [-1] * len(bases)
    granted = 0
    for index, limit in enumerate(limits):
        if limit is not None and left > 0 and total * weights[index] // left >= limit:
            parts[index] = limit
            left -= weights[index]
            granted += limit
    rest = max(0, total - granted)
    return [
        part if part >= 0 else int(rest * weight // left) if left > 0 else 0
        for part, weight in zip(parts, weights, strict=True)
    ]


def resolve_reserve(remaining: int, reserve: int | str) -> int:
    """Return the tokens that a `flex_reserve` holds back: a number of tokens, or one Nth of `remaining` for `"/N"`.

    >>> resolve_reserve(100, "/4"), resolve_reserve(100, 30)
    (25, 30)
    """
    return remaining // int(reserve[1:]) if isinstance(reserve, str) else reserve
