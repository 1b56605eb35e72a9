"""Exact token counts of the states of a tree, from the last state to the first.

A scan starts in the state in which every step of the removal order has been taken, and undoes one
step after the other. So only content that may be kept is ever counted. The leaves of a message are
counted once, and the joins between them in small windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import attrs

from promptkit.rendering.expand.sizing import UNBOUNDED
from promptkit.rendering.prune.removal_order import (
    CallRemoved,
    Change,
    FallbackActivated,
    ItemRemoved,
    LeafLinked,
    LeafUnlinked,
    SubtreeRemoved,
    apply,
)
from promptkit.rendering.prune.text_joins import LeafRange, TextJoins
from promptkit.rendering.subtree import iter_leaves, iter_messages
from promptkit.rendering.tree import (
    MARKER,
    Item,
    Leaf,
    MessageItem,
    Node,
    Run,
    is_below,
    is_node_alive,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from promptkit.rendering.expand.sizing import Sizer
    from promptkit.rendering.prune.removal_order import Step


class Overhead(NamedTuple):
    """The tokens of a request apart from its messages, by whether it has messages and a system message."""

    without_messages: int = 0
    without_system: int = 0
    with_system: int = 0


LONG = 4_096
"""Length in characters above which the lower bound of a text is checked before it is counted."""


class BackwardScan:
    """Counts the states of a tree, or of the subtree of a limit, from the last to the first.

    `state` is the state that the scan has reached. `tokens` is the count of that state.
    """

    def __init__(
        self,
        root: Node,
        steps: list[Step],
        sizer: Sizer,
        overhead: Overhead,
        recorded: Sequence[Run] = (),
    ) -> None:
        """Count the last state.

        Args:
            root: The root of the tree, or the node of a limit.
            steps: The steps of the removal order below it, all of which have been taken.
            sizer: Counts the tokens.
            overhead: The tokens of the request apart from its messages.
            recorded: The runs of recorded conversations, which may have markers.
        """
        self.root = root
        self.steps = steps
        self.sizer = sizer
        self.overhead = overhead
        self.state = len(steps)
        self._base = sizer.tokenizer.base
        self._scale = sizer.tokenizer.scale
        self._joins = TextJoins(self._base)
        self._content = 0
        self._slack = 0  # the tokens of `_content` that may still be dropped when more comes back
        self._messages = 0
        self._systems = 0
        self._entries: dict[Node, _MessageTokens] = {}
        self._recorded = [run for run in recorded if is_below(run.node, root)]
        if root.is_active:
            self._add_root(self.state)
        # without markers, from the last state on, for the states that the scan has reached
        self._counts = [self._count_state()]

    def _count_state(self) -> int:
        """Return the tokens of the current state, without markers."""
        overhead = self.overhead
        if not self._messages:
            return self._content + overhead.without_messages
        return self._content + (overhead.with_system if self._systems else overhead.without_system)

    @property
    def tokens(self) -> int:
        """The exact tokens of the current state."""
        return self.tokens_at(self.state)

    def tokens_at(self, state: int) -> int:
        """Return the tokens of a state that the scan has reached."""
        tokens = self._counts[len(self.steps) - state]
        markers = self._count_markers(state) if self._recorded else 0
        if markers and tokens == self.overhead.without_messages:
            tokens = self.overhead.without_system  # a marker is the only message
        return tokens + markers

    def _count_markers(self, state: int) -> int:
        """Count the markers in a state. Counting per state avoids the markers of states that are never kept."""
        return sum(
            self.sizer.count_item(marker[1])
            for run in self._recorded
            if (marker := run.find_marker(state)) is not None and is_node_alive(run.node, state)
        )

    def unspent_at(self, state: int) -> int:
        """Return the tokens that recorded conversations leave unused in a state."""
        return sum(
            run.find_unspent(state) for run in self._recorded if is_node_alive(run.node, state)
        )

    def find_first_fit(self, budget: int) -> int | None:
        """Return the first state that fits the budget, unused tokens included; None if no state fits."""
        room = budget - min(self.overhead)
        steps = self.steps
        # Counts at joins are not quite monotone: an earlier state may be without the slack.
        while self.state and self._content - self._slack <= room:
            # A restored text that is too long for the budget need not be counted: it is in every
            # earlier state, so none of them fits.
            step, state = steps[self.state - 1], self.state
            if isinstance(step, tuple):
                self._restore_entries(0, budget)
            elif not self._restores_too_long(step, budget):
                self.step_back()
            if self.state == state:
                break
        return next(
            (
                state
                for state in range(self.state, len(steps) + 1)
                if self.tokens_at(state) + self.unspent_at(state) <= budget
            ),
            None,
        )

    def _restores_too_long(self, step: list[Change], budget: int) -> bool:
        """Return whether undoing a step restores a text that is too long for the budget."""
        return any(
            self._is_too_long(item, budget)
            for change in step
            for item in _list_restored(change, self.state - 1)
        )

    def _is_too_long(self, item: Item, budget: int) -> bool:
        """Return whether a text exceeds the budget by its length.

        False for texts that another state may be without.
        """
        if type(item) is MessageItem:
            shortest, lower_bound = max(LONG, budget), self.sizer.tokenizer.lower_bound
            return any(
                len(text) > shortest and lower_bound(text) > budget for text in item.list_texts()
            )
        if type(item) is not Leaf or len(item.text) <= LONG or len(item.text) <= budget:
            return False
        parent = item.parent
        message = parent.message
        if (
            message is None
            or message.is_blank
            or parent.in_fallback
            or not is_below(parent, self.root)
        ):
            return False
        return self.sizer.tokenizer.lower_bound(item.text) > budget

    def step_back(self) -> None:
        """Undo one step and count the state before it."""
        step = self.steps[self.state - 1]
        if isinstance(step, tuple):
            self._restore_entries(self.state - 1, UNBOUNDED)
            return
        self.state -= 1
        for change in reversed(step):
            self._undo(change)
        self._counts.append(self._count_state())

    def _restore_entries(self, first: int, budget: int) -> None:
        """Undo steps that take entries of runs, and count the states before them.

        Ends at the state `first`, before another step, and where no earlier state fits the budget.
        """
        without_messages, without_system, with_system = self.overhead
        room = budget - min(self.overhead)
        content, slack = self._content, self._slack
        messages, systems = self._messages, self._systems
        counts = self._counts
        for step in reversed(self.steps[first : self.state]):
            if type(step) is not tuple or content - slack > room:
                break
            run, entry = step
            node, position = run.node, run.order[entry]
            item = node.items[position]
            if type(item) is MessageItem and position != MARKER and item.messages != ():  # blank
                tokens = item.tokens
                if tokens < 0:
                    if self._is_too_long(item, budget):
                        break
                    tokens = self.sizer.count_item(item)
                node.live_items += 1
                content += tokens
                if item.is_loose:
                    slack += tokens
                messages += 1
                systems += item.role == "system"
            overhead = with_system if systems else without_system
            counts.append(content + (overhead if messages else without_messages))
        self.state = len(self.steps) + 1 - len(counts)
        self._content, self._slack = content, slack
        self._messages, self._systems = messages, systems

    def _add_root(self, state: int) -> None:
        """Count the whole subtree: messages, or a part of a message."""
        root = self.root
        if root.message is not None and root.role is None:
            entry = self._entries[root.message] = _MessageTokens(
                root, LeafRange(root.first_leaf_index, root.first_leaf_index + root.leaf_count)
            )
            self._count_leaves(entry)
        else:
            self._add_items(iter_messages(root, state, markers=False))

    def _undo(self, change: Change) -> None:
        if isinstance(change, LeafLinked):
            self._count_linked(change.leaf, -1)
        apply(change, taken=False)
        if isinstance(change, LeafUnlinked):
            self._count_linked(change.leaf, 1)
        elif isinstance(change, SubtreeRemoved):
            if self.root in change.nodes:
                # a limit that was removed with something around it is back
                self._add_root(self.state + 1)
        elif isinstance(change, ItemRemoved):
            self._restore(change.parent, change.parent.items[change.position])
        elif isinstance(change, CallRemoved):
            entry = self._entries.get(change.message)
            if entry and entry.is_present and entry.root is change.message:
                self._count_frame(entry)
        elif isinstance(change, FallbackActivated):
            self._deactivate(change.fallback)

    def _deactivate(self, fallback: Node) -> None:
        """Remove the messages that exist only because of a fallback: those inside it, or its message if that has no other content."""
        if fallback.message is None or fallback.role is not None:
            for message in iter_messages(fallback, self.state, markers=False):
                self._remove(message)
        elif not fallback.message.is_counted:
            self._remove(fallback.message)

    def _restore(self, parent: Node, item: Item) -> None:
        """Count a restored item.

        Other items that the same step removed come back with changes of their own.
        """
        if parent.message is not None or not is_below(parent, self.root):
            return  # inside a message, the leaves come back one by one
        if type(item) is Node:
            self._add_items(iter_messages(item, self.state + 1, markers=False))
        elif type(item) is MessageItem:
            self._add_items([item])

    def _add_items(self, added: Iterable[Node | MessageItem]) -> None:
        content = messages = 0
        for item in added:
            if type(item) is not MessageItem:
                if type(item) is Node and item.is_counted:
                    self._add_message(item)
            elif item.messages != ():  # blank
                tokens = item.tokens
                if tokens < 0:
                    tokens = self.sizer.count_item(item)
                content += tokens
                if item.is_loose:
                    self._slack += tokens
                messages += 1
                if item.role == "system":
                    self._systems += 1
        self._content += content
        self._messages += messages

    def _add_message(self, node: Node) -> None:
        entry = self._entries.get(node)
        if entry is None:
            entry = self._entries[node] = _MessageTokens(node, LeafRange(0, node.leaf_count))
        if not entry.is_present:
            self._messages += 1
            self._systems += node.role == "system"
            self._count_leaves(entry)
            self._count_frame(entry)

    def _remove(self, item: Node | MessageItem) -> None:
        """Remove the message of a fallback that has been deactivated."""
        if type(item) is MessageItem:
            tokens = self.sizer.count_item(item)
            self._content -= tokens
            self._slack -= tokens
            if item.messages == ():
                return
        elif type(item) is Node:
            entry = self._entries.get(item)
            if entry is None or not entry.is_present:
                return
            self._slack -= self._count_shrinkable(entry)
            self._content -= entry.frame + entry.content
            entry.is_present = False
            entry.frame = 0
        self._messages -= 1
        self._systems -= item.role == "system"

    def _count_leaves(self, entry: _MessageTokens) -> None:
        """Count the living leaves of a restored message, as if each were appended at the end."""
        entry.is_present = True
        entry.content = entry.base_tokens = entry.part_tokens = entry.shrinkable = entry.texts = 0
        entry.missing_leaves = entry.root.leaf_count
        span = entry.span
        for leaf in self._iter_linked(entry):
            entry.span = LeafRange(span.low, leaf.index)
            self._add_leaf(entry, leaf, 1)
        entry.span = span
        self._content += entry.content
        self._slack += self._count_shrinkable(entry)

    def _iter_linked(self, entry: _MessageTokens) -> Iterator[Leaf]:
        """Yield the leaves in the chain of a message, or of the part of it that is counted."""
        message = entry.root.message
        low, high = entry.span.low, entry.span.high
        leaf = message.first_leaf if message else None
        if entry.root.role is None and self.state == len(self.steps):
            # The chain before the part may be long, so start inside the part. In other states a
            # living leaf may not be linked yet.
            leaf = next(
                (leaf for leaf in iter_leaves(entry.root, self.state) if leaf.parent.message), None
            )
        while leaf is not None and leaf.index < high:
            if leaf.index >= low:
                yield leaf
            leaf = leaf.following

    def _count_linked(self, leaf: Leaf, sign: int) -> None:
        """Add a restored leaf between its neighbours, or with `sign` -1 subtract one that is about to be unlinked."""
        message = leaf.parent.message
        entry = self._entries.get(message) if message else None
        if (
            entry is None
            or not entry.is_present
            or not entry.span.low <= leaf.index < entry.span.high
        ):
            return
        self._slack -= self._count_shrinkable(entry)
        self._content -= entry.content
        self._add_leaf(entry, leaf, sign)
        self._content += entry.content
        self._slack += self._count_shrinkable(entry)
        if entry.root.calls and entry.texts <= 1:
            self._count_frame(entry)  # whether the message has text may have changed

    def _count_frame(self, entry: _MessageTokens) -> None:
        """Count the frame of a message again."""
        frame = self.sizer.count_node_frame(entry.root, self.state, text=entry.texts > 0)
        self._content += frame - entry.frame
        self._slack -= self._count_shrinkable(entry)
        entry.frame = frame
        self._slack += self._count_shrinkable(entry)

    def _add_leaf(self, entry: _MessageTokens, leaf: Leaf, sign: int) -> None:
        """Add the tokens of a leaf to its message, with its joins."""
        part_tokens = 0 if leaf.part is None else self.sizer.count_leaf(leaf)
        joins = self._joins
        if entry.root.leaf_count == 1:
            # the only leaf of its message has no joins
            tokens, shrinkable = self._base.count(leaf.text) if leaf.text else 0, 0
        elif leaf.part is None and not leaf.is_empty:
            tokens, shrinkable = joins.count_text(leaf, entry.span)
        else:
            tokens, shrinkable = joins.count_around(leaf, entry.span)
        entry.base_tokens += sign * tokens
        entry.part_tokens += sign * part_tokens
        entry.content = self._scale(entry.base_tokens) + entry.part_tokens
        # A fallback is dropped as a whole when what it replaces comes back.
        entry.shrinkable += sign * (tokens + part_tokens if leaf.parent.in_fallback else shrinkable)
        entry.missing_leaves -= sign
        entry.texts += sign * (leaf.part is None and not leaf.is_empty)

    def _count_shrinkable(self, entry: _MessageTokens) -> int:
        """Return the tokens of a message that may disappear again when more content is restored."""
        if entry.root.in_fallback or entry.root.is_blank:
            return entry.frame + entry.content
        return self._scale(entry.shrinkable) if entry.missing_leaves else 0


def _list_restored(change: Change, state: int) -> Sequence[Item]:
    """List the items that undoing a change brings back in a state, but for containers with items."""
    match change:
        case LeafUnlinked(leaf=leaf):
            return (leaf,)
        case ItemRemoved(parent=parent, position=position):
            return (parent.items[position],)
        case SubtreeRemoved(nodes=nodes):
            return [
                item
                for node in nodes
                for item, removed_at in zip(node.items, node.removed_at, strict=True)
                if type(item) is not Node and removed_at >= state
            ]
        case _:
            return ()


@attrs.define(eq=False)
class _MessageTokens:
    """The token count of one message, or of the part of a message below a limit."""

    root: Node
    span: LeafRange
    is_present: bool = False
    frame: int = 0
    base_tokens: int = 0
    """The tokens of its texts together, before they are scaled."""
    part_tokens: int = 0
    """The tokens of its parts that are not text."""
    content: int = 0
    """Both, as the tokenizer counts them."""
    shrinkable: int = 0
    """The part of `content` that may shrink when leaves come back: windows around joins, and
    fallbacks."""
    missing_leaves: int = 0
    texts: int = 0
    """The number of its living texts."""
