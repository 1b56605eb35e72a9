"""Who may fill how much: shares and sizes, worked out only when somebody asks.

The rules are prompt-tsx's: a container's own text is taken first, then its flex groups one after the other; the members of a
group share what is left without seeing each other, and what a member used is reported upward, never more than its share.

Upper bounds of sizes: what surely fits needs no search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.messages import CacheBreakpointPart
from promptkit.rendering.flex import reserved, shares
from promptkit.rendering.tree import Atom, Leaf, Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message, Part, Role
    from promptkit.rendering.materialize import RenderTree
    from promptkit.tokens.tokenizer import Count, Tokenizer

__all__ = ["FlexGroup", "Layout", "Sizer", "frame_of", "set_ceilings", "surely_fits"]


BUDGET = 0
USED = 1


class FlexGroup:
    """The members of one container with one `flex_grow`, infinite where they have none.

    `plain` counts the members that are no nodes: they weigh 1 each.
    """

    __slots__ = ("grow", "nodes", "plain", "plain_share", "shared", "waiting")

    def __init__(self, nodes: list[Node], plain: int, grow: float) -> None:
        self.grow = grow
        self.nodes = nodes
        self.plain = plain
        self.plain_share = 0
        self.shared = False
        self.waiting = len(nodes)


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

    def frame(self, role: Role, name: str | None) -> int:
        """The tokens around the content of a message without calls."""
        key = (role, name)
        tokens = self._frames.get(key)
        if tokens is None:
            tokens = self._frames[key] = self.tokenizer.frame(role, name=name).tokens
        return tokens

    def node_frame(self, node: Node, k: int, *, text: bool) -> int:
        """The tokens around the content of any message, with the calls that are alive at state k. `text`: it has any."""
        role = node.role
        if role is None:
            return 0
        if not node.calls and node.call_id is None:
            return self.frame(role, node.name)
        calls = [call for call, gone in zip(node.calls, node.calls_gone, strict=True) if gone >= k] if node.calls_gone else node.calls
        return self.tokenizer.frame(role, name=node.name, tool_calls=calls, tool_call_id=node.call_id, text=text).tokens

    def atom(self, atom: Atom) -> int:
        """The tokens of a message that is one text; counted once in the atom's life."""
        tokens = atom.tokens
        if tokens < 0:
            tokens = atom.tokens = self.frame(atom.role, atom.name) + self.tokenizer.count(atom.text)
        return tokens

    def message(self, message: Message) -> int:
        """The tokens of an assembled message."""
        tokenizer = self.tokenizer
        frame = frame_of(message, tokenizer)
        return frame.tokens + sum(map(self.part, message.content))

    def part(self, part: Part) -> int:
        """The tokens of one content part."""
        if isinstance(part, str):
            return self.tokenizer.count(part)
        return 0 if isinstance(part, CacheBreakpointPart) else self.tokenizer.part(part).tokens

    def leaf(self, leaf: Leaf) -> int:
        """The tokens of a leaf, apart from its joints."""
        if leaf.part is not None:
            return self.part(leaf.part)
        return self.tokenizer.count(leaf.text) if leaf.text else 0

    def budget(self, node: Node) -> int:
        """The tokens that a node may fill."""
        if node.budget is None:
            self._settle(BUDGET, node)
        return node.budget or 0

    def used(self, node: Node) -> int:
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
        if node.delegate:
            if node.delegate.budget is None:
                return ((BUDGET, node.delegate),)
            node.budget = node.delegate.budget
            return ()
        parent = node.parent
        if parent is None:
            node.budget = 0
            return ()
        if parent.budget is None:
            return ((BUDGET, parent),)
        return self._share(parent, node.flex)

    def _share(self, parent: Node, index: int) -> Sequence[tuple[int, Node]]:
        """Give every member of a container's flex group its share; or say which sizes that needs first."""
        layout = parent.layout
        if layout is None:
            return ()
        if layout.remaining is None:
            layout.remaining = max(0, (parent.budget or 0) - self.own_size(parent))
        while layout.settled < index:
            group = layout.groups[layout.settled]
            if not group.shared:
                _divide(layout, layout.settled)
            missing = [(USED, member) for member in group.nodes if member.used is None and member.delegate is None]
            if missing:
                return missing
            layout.remaining = max(0, layout.remaining - self.group_size(parent, group))
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
        size = self.own_size(node)
        if node.layout:
            members = (member for group in node.layout.groups for member in group.nodes)
            missing = [(USED, member) for member in members if member.used is None and member.delegate is None]
            if missing:
                return missing
            size += sum(self.group_size(node, group) for group in node.layout.groups)
        else:
            plain = sum(type(item) is Atom or (type(item) is Leaf and _takes_a_share(item)) for item in node.items)
            share = max(0, node.budget - size) // plain if plain else 0
            size += self.plain_size(node, share) if plain else 0
        node.used = min(node.budget, size)
        return ()

    def group_size(self, parent: Node, group: FlexGroup) -> int:
        """What the members of a settled group used."""
        size = sum(member.used or 0 for member in group.nodes if member.delegate is None)
        return size + self.plain_size(parent, group.plain_share) if group.plain else size

    def plain_size(self, node: Node, share: int) -> int:
        """What the members that are no nodes used, each at most its share."""
        size = 0
        for item in node.items:
            if type(item) is Atom:
                size += min(share, self.atom(item))
            elif type(item) is Leaf and _takes_a_share(item):
                size += min(share, self.leaf(item))
        return size

    def own_size(self, node: Node) -> int:
        """A container's own text, and its framing if it is a message."""
        size = node.own_size
        if size is None:
            size = self.node_frame(node, 0, text=bool(node.items)) if node.role else 0
            size += node.reserve
            for item in node.items:
                if type(item) is Leaf and not _takes_a_share(item):
                    size += self.leaf(item)
            node.own_size = size
        return size


def frame_of(message: Message, tokenizer: Tokenizer) -> Count:
    """The tokens around the content of an assembled message."""
    has_text = any(isinstance(part, str) for part in message.content)
    return tokenizer.frame(message.role, name=message.name, tool_calls=message.tool_calls, tool_call_id=message.tool_call_id, text=has_text)


def _divide(layout: Layout, index: int) -> None:
    """Share what is left among the members of the next group."""
    group = layout.groups[index]
    remaining = layout.remaining or 0
    remaining = max(0, remaining - sum(reserved(remaining, reserve) for at, reserve in layout.reserves if at > index))
    members = [member for member in group.nodes if member.delegate is None]
    bases: list[float] = [member.element.flex_basis if member.element else 1 for member in members]
    parts = shares(remaining, [*bases, group.plain], [*(member.limit for member in members), None])
    for member, part in zip(members, parts, strict=False):
        if member.budget is None:
            member.budget = part
    group.plain_share = parts[-1] // group.plain if group.plain else 0
    group.shared = True


def _takes_a_share(leaf: Leaf) -> bool:
    """Whether a leaf is a member of a flex group (an element of its own) rather than its container's own text."""
    return leaf.own or (leaf.part is not None and leaf.sized)


_NO_CEILING = 1 << 60


def surely_fits(tree: RenderTree, sizer: Sizer, room: int) -> bool:
    """Whether a whole tree fits, by its bytes. Gives up as soon as it may not."""
    total = 0
    for node in tree.nodes:
        total += _own(node, sizer, room)
        if total > room:
            return False
    return True


def set_ceilings(tree: RenderTree, sizer: Sizer) -> None:
    """Give every node a number of tokens that it surely does not exceed, without counting its text."""
    for node in reversed(tree.nodes):
        total = _own(node, sizer, _NO_CEILING) + sum(child.ceiling or 0 for child in node.nodes)
        node.ceiling = min(total, _NO_CEILING)


def _own(node: Node, sizer: Sizer, enough: int) -> int:
    """A ceiling for what stands in a node itself; where it is more than `enough`, any number that is."""
    ceiling = sizer.tokenizer.ceiling
    total = sizer.node_frame(node, 0, text=True) if node.role else 0
    for item in node.items:
        if total > enough:
            break
        if type(item) is Atom:
            bound = item.tokens if item.tokens >= 0 else ceiling(item.text)
            total += _NO_CEILING if bound is None else bound + sizer.frame(item.role, item.name)
        elif type(item) is Leaf:
            bound = sizer.leaf(item) if item.part else ceiling(item.text)
            total += _NO_CEILING if bound is None else bound + 1  # a line break
    return total
