"""Counting backwards: from what is removed last towards the whole, so that only what may be kept is ever tokenised.

A scan starts where every step of the removal order has been taken, and takes them back one by one. It counts exactly at each
state: a message's leaves once, and their joints in small windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from promptkit.rendering.assemble import iter_leaves, iter_messages
from promptkit.rendering.text_joins import Range, TextJoins
from promptkit.rendering.tree import TextMessage, Item, Leaf, Node
from promptkit.rendering.undo_log import SubtreeRemoved, CallRemoved, LeafLinked, Change, ItemRemoved, LeafUnlinked, undo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.rendering.removal_order import Step
    from promptkit.rendering.sizing import Sizer

__all__ = ["Overhead", "BackwardScan"]


class Overhead(NamedTuple):
    """Tokens of a request apart from its messages: of one without any message, without a system message, and with one."""

    without_messages: int = 0
    without_system: int = 0
    with_system: int = 0


class MessageTally:
    """The count of one message, or of the part of one that lies below a limit."""

    __slots__ = ("content", "frame", "left", "open", "present", "span", "texts", "top")

    def __init__(self, top: Node, span: Range) -> None:
        self.top = top
        self.span = span
        self.present = False
        self.frame = 0
        self.content = 0
        self.open = 0  # of `content`, what may still shrink when leaves come back: windows around joints, fallbacks
        self.left = 0  # leaves that are not there
        self.texts = 0  # texts that are there


class BackwardScan:
    """The states of a tree, or of one limit's subtree, from the last to the first; `tokens` and `slack` hold for state `k`."""

    def __init__(self, root: Node, steps: list[Step], sizer: Sizer, overhead: Overhead) -> None:
        self.root = root
        self.steps = steps
        self.sizer = sizer
        self.overhead = overhead
        self.k = len(steps)
        self._joints = TextJoins(sizer.tokenizer)
        self._content = 0
        self._slack = 0
        self._messages = 0
        self._systems = 0
        self._tallies: dict[Node, MessageTally] = {}
        if root.is_active:
            self._add_root(self.k)
        self.counts = [self.tokens]
        """`counts[i]`: the tokens at state `len(steps) - i`, as far as the scan has come."""

    @property
    def tokens(self) -> int:
        """The exact tokens of this state."""
        overhead = self.overhead
        if not self._messages:
            return self._content + overhead.without_messages
        return self._content + (overhead.with_system if self._systems else overhead.without_system)

    def tokens_at(self, k: int) -> int:
        """The tokens of a state that the scan has passed."""
        return self.counts[len(self.steps) - k]

    def find_first_fit(self, budget: int) -> int | None:
        """The smallest k whose tokens fit the budget; None if not even the last state does."""
        while self.k and self._could_fit(budget):
            self.step_back()
        passed = len(self.steps)
        for k in range(self.k, passed + 1):
            if self.tokens_at(k) <= budget:
                return k
        return None

    def _could_fit(self, budget: int) -> bool:
        """Whether a larger state may fit: counts at joints are not quite monotone."""
        gain = self.tokens - self._content - min(self.overhead)
        return self.tokens - self._slack - gain <= budget

    def step_back(self) -> None:
        """Take one step back."""
        self.k -= 1
        step = self.steps[self.k]
        if isinstance(step, tuple):
            parent = step[3]
            parent.live_items += 1
            item = parent.items[step[4]]
            if type(item) is TextMessage:
                self._add_atom(item)
        else:
            for op in reversed(step):
                self._undo(op)
        self.counts.append(self.tokens)

    def _add_root(self, k: int) -> None:
        """Count the subtree as it is: the part of a message, or messages."""
        root = self.root
        if root.message is not None and root.role is None:
            tally = self._tallies[root.message] = MessageTally(root, Range(root.first_leaf_index, root.first_leaf_index + root.leaf_count))
            self._show(tally)
        else:
            for item in iter_messages(root, k):
                self._add(item, k)

    def _undo(self, op: Change) -> None:
        if isinstance(op, LeafLinked):
            self._join(op.leaf, -1)
            undo(op)
            return
        undo(op)
        if isinstance(op, LeafUnlinked):
            self._join(op.leaf, 1)
        elif isinstance(op, SubtreeRemoved):
            if self.root in op.nodes:
                self._add_root(self.k + 1)  # a limit went with something around it, and is back
        elif isinstance(op, ItemRemoved):
            self._restore(op.parent, op.parent.items[op.position])
        elif isinstance(op, CallRemoved):
            tally = self._tallies.get(op.message)
            if tally and tally.present and tally.top is op.message:
                self._reframe(tally, self.k)
        elif op.spare.message is None or op.spare.role is not None:
            for shown in iter_messages(op.spare, self.k):
                self._remove(shown)

    def _restore(self, parent: Node, item: Item) -> None:
        """An item has come back. What else the same step took comes back with changes of its own."""
        if parent.message is not None or not self._inside(parent):
            return  # in a message the leaves come back one by one
        if type(item) is Node and item.role is not None:
            self._add(item, self.k + 1)
        elif type(item) is Node:
            for shown in iter_messages(item, self.k + 1):
                self._add(shown, self.k + 1)
        elif type(item) is TextMessage:
            self._add_atom(item)

    def _inside(self, node: Node) -> bool:
        """Whether a node lies in the subtree that is counted."""
        return self.root.index <= node.index <= self.root.last_index

    def _add(self, item: Node | TextMessage, k: int) -> None:
        if type(item) is TextMessage:
            self._add_atom(item)
        elif type(item) is Node and not item.is_blank:
            tally = self._tallies.get(item)
            if tally is None:
                tally = self._tallies[item] = MessageTally(item, Range(0, item.leaf_count))
            if not tally.present:
                self._messages += 1
                self._systems += item.role == "system"
                self._show(tally)
                self._reframe(tally, k)

    def _add_atom(self, atom: TextMessage) -> None:
        tokens = atom.tokens
        self._content += self.sizer.count_text_message(atom) if tokens < 0 else tokens
        self._messages += 1
        self._systems += atom.role == "system"

    def _remove(self, item: Node | TextMessage) -> None:
        """A fallback's message is gone again."""
        if type(item) is TextMessage:
            self._content -= self.sizer.count_text_message(item)
        elif type(item) is Node:
            tally = self._tallies.get(item)
            if tally is None or not tally.present:
                return
            self._slack -= self._open(tally)
            self._content -= tally.frame + tally.content
            tally.present = False
            tally.frame = 0
        self._messages -= 1
        self._systems -= item.role == "system"

    def _show(self, tally: MessageTally) -> None:
        """Count what is alive of a message that comes back, leaf by leaf as if each were added at the end."""
        tally.present = True
        tally.content = tally.open = tally.texts = 0
        tally.left = tally.top.leaf_count
        whole = tally.span
        for leaf in self._linked(tally):
            tally.span = Range(whole.low, leaf.index + 1)
            self._count(tally, leaf, 1)
        tally.span = whole
        self._content += tally.content
        self._slack += self._open(tally)

    def _linked(self, tally: MessageTally) -> Iterator[Leaf]:
        """The leaves of a message, or of the part that is counted, that are in its chain."""
        message = tally.top.message
        low, high = tally.span.low, tally.span.high
        leaf = message.first_leaf if message else None
        if tally.top.role is None and self.k == len(self.steps):
            # The chain may be long before the part: start inside. (Later, what is alive need not be linked yet.)
            leaf = next((leaf for leaf in iter_leaves(tally.top, self.k) if leaf.parent.message), None)
        while leaf is not None and leaf.index < high:
            if leaf.index >= low:
                yield leaf
            leaf = leaf.following

    def _join(self, leaf: Leaf, sign: int) -> None:
        """A leaf has come back between its neighbours, or (-1) is about to go."""
        message = leaf.parent.message
        tally = self._tallies.get(message) if message else None
        if tally is None or not tally.present or not tally.span.low <= leaf.index < tally.span.high:
            return
        self._slack -= self._open(tally)
        self._content -= tally.content
        self._count(tally, leaf, sign)
        self._content += tally.content
        self._slack += self._open(tally)
        if tally.top.calls and tally.texts <= 1:
            self._reframe(tally, self.k)  # whether there is text beside the calls may have changed

    def _reframe(self, tally: MessageTally, k: int) -> None:
        """Count what stands around the content of a message anew."""
        frame = self.sizer.count_node_frame(tally.top, k, text=tally.texts > 0)
        self._content += frame - tally.frame
        self._slack -= self._open(tally)
        tally.frame = frame
        self._slack += self._open(tally)

    def _count(self, tally: MessageTally, leaf: Leaf, sign: int) -> None:
        """What a leaf adds to its message, with its joints."""
        if tally.top.leaf_count == 1:
            tokens, windows = self.sizer.count_leaf(leaf), 0  # no joints, whatever comes back
        elif leaf.part is None:
            joints = self._joints
            tokens, windows = (joints.count_empty if leaf.is_empty else joints.count_text)(leaf, tally.span)
        else:
            tokens, windows = self._joints.count_part(leaf, tally.span)
            tokens += self.sizer.count_leaf(leaf)
        tally.content += sign * tokens
        # A fallback goes as a whole when what it stands for comes back.
        tally.open += sign * (tokens if leaf.parent.in_fallback else windows)
        tally.left -= sign
        tally.texts += sign * (leaf.part is None and not leaf.is_empty)

    def _open(self, tally: MessageTally) -> int:
        """The tokens of a message that may still go away when more comes back."""
        if tally.top.in_fallback:
            return tally.frame + tally.content
        return tally.open if tally.left else 0
