"""Who may fill how much: shares and sizes, worked out only when somebody asks.

The rules are prompt-tsx's: a container's own text is taken first, then its flex groups one after the other; the members of a
group share what is left without seeing each other, and what a member used is reported upward, never more than its share.

Upper bounds of sizes: what surely fits needs no search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.messages import CacheBreakpointPart
from promptkit.rendering.flex import resolve_reserve, split_shares
from promptkit.rendering.tree import TextMessage, Leaf, Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message, Part, Role
    from promptkit.rendering.materialize import RenderTree
    from promptkit.tokens.tokenizer import Count, Tokenizer

__all__ = ["FlexGroup", "Layout", "Sizer", "count_frame", "set_token_bounds", "surely_fits"]


BUDGET = 0
USED = 1


class FlexGroup:
    """The members of one container with one `flex_grow`, infinite where they have none.

    `plain` counts the members that are no nodes: they weigh 1 each.
    """

    __slots__ = ("grow", "nodes", "plain_members", "plain_share", "shared", "unfinished")

    def __init__(self, nodes: list[Node], plain: int, grow: float) -> None:
        self.grow = grow
        self.nodes = nodes
        self.plain_members = plain
        self.plain_share = 0
        self.shared = False
        self.unfinished = len(nodes)


class Layout:
    """The flex groups of one container, in the order in which they are rendered.

    `settled` of them have known sizes, and `remaining` tokens are left for those behind. `reserves` are (group, flex_reserve).
    """

    __slots__ = ("groups", "remaining", "reserves", "settled")

    def __init__(self, groups: list[FlexGroup]) -> None:
        self.groups = groups
        self.settled = 0
        self.remaining: int | None = None
        self.reserves: list[tuple[int, int | str]] = [
            (index, member.element.flex_reserve)
            for index, group in enumerate(groups)
            for member in group.nodes
            if member.element and member.element.flex_reserve is not None
        ]


class Sizer:
    """Budgets and sizes of the nodes of one render. Depth is the user's, so it works on a stack of goals."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._frames: dict[tuple[Role, str | None], int] = {}

    def count_text_frame(self, role: Role, name: str | None) -> int:
        """The tokens around the content of a message without calls."""
        key = (role, name)
        tokens = self._frames.get(key)
        if tokens is None:
            tokens = self._frames[key] = self.tokenizer.frame(role, name=name).tokens
        return tokens

    def count_node_frame(self, node: Node, k: int, *, text: bool) -> int:
        """The tokens around the content of any message, with the calls that are alive at state k. `text`: it has any."""
        role = node.role
        if role is None:
            return 0
        if not node.calls and node.call_id is None:
            return self.count_text_frame(role, node.name)
        calls = [call for call, gone in zip(node.calls, node.calls_removed_at, strict=True) if gone >= k] if node.calls_removed_at else node.calls
        return self.tokenizer.frame(role, name=node.name, tool_calls=calls, tool_call_id=node.call_id, text=text).tokens

    def count_text_message(self, atom: TextMessage) -> int:
        """The tokens of a message that is one text; counted once in the atom's life."""
        tokens = atom.tokens
        if tokens < 0:
            tokens = atom.tokens = self.count_text_frame(atom.role, atom.name) + self.tokenizer.count(atom.text)
        return tokens

    def count_message(self, message: Message) -> int:
        """The tokens of an assembled message."""
        tokenizer = self.tokenizer
        frame = count_frame(message, tokenizer)
        return frame.tokens + sum(map(self.count_part, message.content))

    def count_part(self, part: Part) -> int:
        """The tokens of one content part."""
        if isinstance(part, str):
            return self.tokenizer.count(part)
        return 0 if isinstance(part, CacheBreakpointPart) else self.tokenizer.part(part).tokens

    def count_leaf(self, leaf: Leaf) -> int:
        """The tokens of a leaf, apart from its joints."""
        if leaf.part is not None:
            return self.count_part(leaf.part)
        return self.tokenizer.count(leaf.text) if leaf.text else 0

    def budget_of(self, node: Node) -> int:
        """The tokens that a node may fill."""
        if node.budget is None:
            self._settle(BUDGET, node)
        return node.budget or 0

    def tokens_used(self, node: Node) -> int:
        """The tokens that a node reports to its container: what it filled, never more than its budget."""
        if node.used is None:
            self._settle(USED, node)
        return node.used or 0

    def _settle(self, kind: int, node: Node) -> None:
        stack = [(kind, node)]
        while stack:
            kind, node = stack[-1]
            missing = self._budget(node) if kind == BUDGET else self._used(node)
            if missing:
                stack.extend(missing)
            else:
                stack.pop()

    def _budget(self, node: Node) -> Sequence[tuple[int, Node]]:
        if node.budget is not None:
            return ()
        if node.replaces:
            if node.replaces.budget is None:
                return ((BUDGET, node.replaces),)
            node.budget = node.replaces.budget
            return ()
        parent = node.parent
        if parent is None:
            node.budget = 0
            return ()
        if parent.budget is None:
            return ((BUDGET, parent),)
        return self._share(parent, node.group_index)

    def _share(self, parent: Node, index: int) -> Sequence[tuple[int, Node]]:
        """Give every member of a container's flex group its share; or say which sizes that needs first."""
        layout = parent.layout
        if layout is None:
            return ()
        if layout.remaining is None:
            layout.remaining = max(0, (parent.budget or 0) - self.count_own(parent))
        while layout.settled < index:
            group = layout.groups[layout.settled]
            if not group.shared:
                _divide(layout, layout.settled)
            missing = [(USED, member) for member in group.nodes if member.used is None and member.replaces is None]
            if missing:
                return missing
            layout.remaining = max(0, layout.remaining - self.sum_group(parent, group))
            layout.settled += 1
        if not layout.groups[index].shared:
            _divide(layout, index)
        return ()

    def _used(self, node: Node) -> Sequence[tuple[int, Node]]:
        if node.used is not None:
            return ()
        if node.budget is None:
            return ((BUDGET, node),)
        if node.layout:
            for index, group in enumerate(node.layout.groups):
                if not group.shared:
                    missing = self._share(node, index)
                    if missing:
                        return missing
        size = self.count_own(node)
        if node.layout:
            members = (member for group in node.layout.groups for member in group.nodes)
            missing = [(USED, member) for member in members if member.used is None and member.replaces is None]
            if missing:
                return missing
            size += sum(self.sum_group(node, group) for group in node.layout.groups)
        else:
            plain = sum(type(item) is TextMessage or (type(item) is Leaf and _takes_a_share(item)) for item in node.items)
            share = max(0, node.budget - size) // plain if plain else 0
            size += self.sum_plain_members(node, share) if plain else 0
        node.used = min(node.budget, size)
        return ()

    def sum_group(self, parent: Node, group: FlexGroup) -> int:
        """What the members of a settled group used."""
        size = sum(member.used or 0 for member in group.nodes if member.replaces is None)
        return size + self.sum_plain_members(parent, group.plain_share) if group.plain_members else size

    def sum_plain_members(self, node: Node, share: int) -> int:
        """What the members that are no nodes used, each at most its share."""
        size = 0
        for item in node.items:
            if type(item) is TextMessage:
                size += min(share, self.count_text_message(item))
            elif type(item) is Leaf and _takes_a_share(item):
                size += min(share, self.count_leaf(item))
        return size

    def count_own(self, node: Node) -> int:
        """A container's own text, and its framing if it is a message."""
        size = node.own_size
        if size is None:
            size = self.count_node_frame(node, 0, text=bool(node.items)) if node.role else 0
            size += node.reserve
            for item in node.items:
                if type(item) is Leaf and not _takes_a_share(item):
                    size += self.count_leaf(item)
            node.own_size = size
        return size


def count_frame(message: Message, tokenizer: Tokenizer) -> Count:
    """The tokens around the content of an assembled message."""
    has_text = any(isinstance(part, str) for part in message.content)
    return tokenizer.frame(message.role, name=message.name, tool_calls=message.tool_calls, tool_call_id=message.tool_call_id, text=has_text)


def _divide(layout: Layout, index: int) -> None:
    """Share what is left among the members of the next group."""
    group = layout.groups[index]
    remaining = layout.remaining or 0
    remaining = max(0, remaining - sum(resolve_reserve(remaining, reserve) for at, reserve in layout.reserves if at > index))
    members = [member for member in group.nodes if member.replaces is None]
    bases: list[float] = [member.element.flex_basis if member.element else 1 for member in members]
    parts = split_shares(remaining, [*bases, group.plain_members], [*(member.limit for member in members), None])
    for member, part in zip(members, parts, strict=False):
        if member.budget is None:
            member.budget = part
    group.plain_share = parts[-1] // group.plain_members if group.plain_members else 0
    group.shared = True


def _takes_a_share(leaf: Leaf) -> bool:
    """Whether a leaf is a member of a flex group (an element of its own) rather than its container's own text."""
    return leaf.is_element or (leaf.part is not None and leaf.takes_share)


_NO_CEILING = 1 << 60


def surely_fits(tree: RenderTree, sizer: Sizer, room: int) -> bool:
    """Whether a whole tree fits, by its bytes. Gives up as soon as it may not."""
    total = 0
    for node in tree.nodes:
        total += _own(node, sizer, room)
        if total > room:
            return False
    return True


def set_token_bounds(tree: RenderTree, sizer: Sizer) -> None:
    """Give every node a number of tokens that it surely does not exceed, without counting its text."""
    for node in reversed(tree.nodes):
        total = _own(node, sizer, _NO_CEILING) + sum(child.token_bound or 0 for child in node.nodes)
        node.token_bound = min(total, _NO_CEILING)


def _own(node: Node, sizer: Sizer, enough: int) -> int:
    """A ceiling for what stands in a node itself; where it is more than `enough`, any number that is."""
    ceiling = sizer.tokenizer.ceiling
    total = sizer.count_node_frame(node, 0, text=True) if node.role else 0
    for item in node.items:
        if total > enough:
            break
        if type(item) is TextMessage:
            bound = item.tokens if item.tokens >= 0 else ceiling(item.text)
            total += _NO_CEILING if bound is None else bound + sizer.count_text_frame(item.role, item.name)
        elif type(item) is Leaf:
            bound = sizer.count_leaf(item) if item.part else ceiling(item.text)
            total += _NO_CEILING if bound is None else bound + 1  # a line break
    return total
