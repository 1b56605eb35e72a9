"""The result of a render: messages, their tokens, what was removed, and notes about what its author may not have meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain, pairwise, takewhile
from math import isfinite
from textwrap import wrap
from typing import Any

import attrs

from promptkit.elements import Reference
from promptkit.messages import Message, Repair, ToolDefinition
from promptkit.rendering.expand.materialize import RenderTree, is_content
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.paths import Paths
from promptkit.rendering.prune.removals import PrunedTree, Removal, iter_removed, list_removals
from promptkit.rendering.subtree import SourceSpan, map_sources
from promptkit.rendering.tree import Node, format_priority, is_item_alive, is_literal, is_node_alive
from promptkit.reprs import describe
from promptkit.tokens import Count, RenderBudget
from promptkit.tokens.budget import read_budget
from promptkit.tokens.tokenizer import Tokenizer, count_frame, count_part, is_exact
from promptkit.tracing import Trace
from promptkit.wire import AnthropicRequest, to_anthropic, to_chat, to_responses
from promptkit.wire.parts import WireFormat, is_foreign, merge_system_messages, move_media


@attrs.frozen(kw_only=True)
class Rendered:
    """A rendered prompt: its messages, their tokens, and what was removed.

    >>> render(prompt, budget=8_000).to_chat()
    """

    messages: tuple[Message, ...]
    """The messages that were kept, in written order."""

    tokens: int
    """The tokens of the request: messages, framing and tool definitions, without the tokens that
    Reserve keeps free.

    All of the messages counts, so `tokens` is too high for a format that does not send all of it.
    Only Chat Completions is sent names, and only its provider is sent an opaque part that has one.
    `count_tokens` counts what one format sends.
    """

    budget: int
    """The budget in tokens. `tokens` and `reserved` together do not exceed it."""

    reserved: int = 0
    """The tokens that Reserve elements keep free."""

    metadata: tuple[object, ...] = ()
    """The values of the Metadata elements that were kept, and of all that are not local."""

    references: tuple[Reference, ...] = ()
    """The References of the elements that were kept, each source once."""

    omitted_references: tuple[Reference, ...] = ()
    """The References of which every element was removed."""

    context: RenderBudget | None = attrs.field(default=None, eq=False)
    """How the budget came about. None for a render at another budget."""

    trace: Trace | None = attrs.field(default=None, repr=False, eq=False)
    """The record of the render, if it was rendered with `trace=True`."""

    _sizer: Sizer = attrs.field(alias="sizer", repr=False, eq=False)
    _read_pruned: Callable[[], PrunedTree] = attrs.field(alias="read_pruned", repr=False, eq=False)
    _prune_again: Callable[[int], Rendered] = attrs.field(alias="prune_again", repr=False, eq=False)
    _tools: tuple[ToolDefinition, ...] = attrs.field(
        alias="tools", default=(), repr=False, eq=False
    )
    _earlier: tuple[Message, ...] = attrs.field(alias="earlier", default=(), repr=False, eq=False)

    def __repr__(self) -> str:
        return describe(
            self,
            messages=self.messages,
            tokens=self.tokens,
            budget=self.budget,
            reserved=self.reserved or None,
            removed=len(self.removals),
        )

    @cached_property
    def _pruned(self) -> PrunedTree:
        """The tree behind the messages. That of a static prompt is made when something reads it."""
        return self._read_pruned()

    @cached_property
    def exact(self) -> bool:
        """Whether `tokens` is the number that the provider bills.

        It is for text, and for other content if a published formula was checked against bills.
        Without a model, `tokens` is the number for gpt-4o.
        """
        return self._count_overhead(self.messages).exact and all(
            is_exact(message, self._sizer.tokenizer) for message in self.messages
        )

    def count_tokens(self, target: WireFormat, *, merge_system: bool = False) -> int:
        """Count the tokens of the request in one format: `tokens`, without names and opaque parts that this format does not send, and with the message that Chat Completions is sent the images of tool results in.

        With `merge_system`, neighbouring system messages count as the one that `to_chat` and
        `to_responses` make of them.
        """
        tokenizer = self._sizer.tokenizer
        tokens = self.tokens
        messages: Sequence[Message] = (
            tuple(move_media(self.messages, {"tool"})) if target == "chat" else self.messages
        )
        if merge_system and target != "anthropic":
            messages = merge_system_messages(messages)
        if messages != self.messages:
            tokens += self._count_request(messages) - self._count_request(self.messages)
        return tokens - sum(_count_omitted(message, target, tokenizer) for message in messages)

    def _count_overhead(self, messages: Sequence[Message]) -> Count:
        system = next((message.text for message in messages if message.role == "system"), False)
        return self._sizer.tokenizer.count_overhead(self._tools, system=system)

    def _count_request(self, messages: Sequence[Message]) -> int:
        return self._count_overhead(messages).tokens + sum(map(self._sizer.count_message, messages))

    @cached_property
    def removals(self) -> tuple[Removal, ...]:
        """What was removed, in the order of removal."""
        return list_removals(self._pruned)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What the render did that its author may not have meant: where only literal text is left, such as a heading without its list, and where a share of the budget is small only because `flex_grow` is missing."""
        return list_notes(self._pruned)

    @cached_property
    def source_map(self) -> tuple[SourceSpan, ...]:
        """The elements that wrote the text of the messages, span by span."""
        return map_sources(self._pruned.tree.root, self._pruned.state)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The repairs that components made in what they were given, such as recorded messages."""
        return tuple(value for value in self.metadata if isinstance(value, Repair))

    @cached_property
    def stable_prefix(self) -> int:
        """The tokens of the leading messages that equal those of the Renderer's previous render; 0 for its first render."""
        return count_equal_prefix(self.messages, self._earlier, self._sizer)

    def explain(self) -> str:
        """Describe the render as text for a terminal: tokens, budget, removals, notes and repairs."""
        share = f" ({self.tokens / self.budget:.0%})" if self.budget else ""
        notes = [wrap(f"note: {note}", _WIDTH, subsequent_indent="  ") for note in self.notes]
        return "\n".join(
            [
                f"{self.tokens:,} of {self.budget:,} tokens{share}{'' if self.exact else ', estimated'} in {len(self.messages)} message{'' if len(self.messages) == 1 else 's'}",
                *([f"{self.reserved:,} tokens reserved"] if self.reserved else []),
                *([] if self.context is None else [self.context.explain()]),
                *(_format_removals(self.removals) or ["nothing was removed"]),
                *chain.from_iterable(notes),
                *(f"repaired: {repair.kind}: {repair.detail}" for repair in self.repairs),
            ]
        )

    def at_budget(self, budget: int | str) -> Rendered:
        """Prune the same prompt to another budget: a number of tokens, or text such as `"8k"`.

        Components are not run again, so components that read their budget keep what they rendered.
        Raises BudgetExceededError as a render at that budget does.
        """
        return self._prune_again(read_budget(budget))

    # Any: the SDK's unions of TypedDicts take no dict[str, ...]
    def to_chat(self, *, cache: bool = True, merge_system: bool = False) -> list[Any]:
        """Return the messages for OpenAI's Chat Completions (`messages=`).

        `cache=False` leaves cache breakpoints out, for models that reject them. `merge_system=True`
        joins neighbouring system messages, which saves tokens: `tokens` counts each by itself, and
        `count_tokens("chat", merge_system=True)` what is sent.
        """
        return to_chat(self.messages, cache=cache, merge_system=merge_system)

    # Any: as above
    def to_responses(self, *, cache: bool = True, merge_system: bool = False) -> list[Any]:
        """Return the messages for OpenAI's Responses API (`input=`).

        `cache` and `merge_system` are those of `to_chat`.
        """
        return to_responses(self.messages, cache=cache, merge_system=merge_system)

    def to_anthropic(self, *, cache: bool = True) -> AnthropicRequest:
        """Return the messages for Anthropic's Messages API: `{"system": …, "messages": …}`.

        `cache=False` leaves cache breakpoints out. System messages need no merging: those at the
        start are blocks of one `system`, and a later one is a block of the turn around it.
        """
        return to_anthropic(self.messages, cache=cache)


def count_equal_prefix(messages: Sequence[Message], others: Sequence[Message], sizer: Sizer) -> int:
    """Count the tokens of the leading messages that equal those of another request."""
    pairs = zip(messages, others, strict=False)
    equal = takewhile(lambda pair: pair[0] is pair[1] or pair[0] == pair[1], pairs)
    return sum(sizer.count_message(message) for message, _ in equal)


def _count_omitted(message: Message, target: WireFormat, tokenizer: Tokenizer) -> int:
    """Count the tokens of a message that a format does not send."""
    tokens = sum(
        count_part(part, tokenizer) for part in message.content if is_foreign(part, target)
    )
    if message.name is not None and (target != "chat" or message.role == "tool"):
        tokens += (
            count_frame(message, tokenizer).tokens
            - count_frame(attrs.evolve(message, name=None), tokenizer).tokens
        )
    return tokens


def _format_removals(removals: tuple[Removal, ...]) -> list[str]:
    """Format removals as the lines of a table, under a title. None: no lines."""
    rows = [
        ("", "tokens", "priority", "element", "reason"),
        *(
            (
                f"{removal.order}.",
                f"{removal.tokens:,}",
                format_priority(removal.priority),
                removal.label,
                removal.reason + (f": {removal.partner_label}" if removal.partner else ""),
            )
            for removal in removals
        ),
    ]
    *numbers, labels, reasons = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = _WIDTH - sum(numbers) - len("  ") * len(rows[0])
    reasons = min(reasons, max(room // 2, room - labels))
    widths = [*numbers, min(labels, room - reasons), reasons]
    cells = [
        [  # figures are aligned to the right
            cell.rjust(width) if column < len(numbers) else _shorten(cell, width).ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]
    title = f"removed {len(removals)}, lowest first:"
    return [title, *("  " + "  ".join(row).rstrip() for row in cells)] if removals else []


_WIDTH = 100  # characters of a line of `explain`


def _shorten(text: str, width: int) -> str:
    """Shorten a text to a number of characters. Its end, which tells most of a path, stays longer."""
    head = (width - 1) // 3
    return text if len(text) <= width else f"{text[:head]}…{text[len(text) - width + head + 1 :]}"


def list_notes(pruned: PrunedTree) -> tuple[str, ...]:
    """List the notes about a tree in a state: where only literal text is left, and which shares are not meant to be so."""
    paths = Paths(described=True)
    bare = dict.fromkeys(removed.node for removed in iter_removed(pruned) if removed.position >= 0)
    # what its share leaves nothing of was never there to be removed
    bare |= dict.fromkeys(node for node in pruned.tree.nodes if node.is_cut_away)
    return (
        *(note for node in bare for note in _list_bare(node, pruned.state, paths)),
        *list_share_notes(pruned.tree, pruned.sizer),
    )


def _list_bare(node: Node, state: int, paths: Paths) -> Iterator[str]:
    """Yield a note if literal text is all that is left of a node, or on both sides of what has left."""
    if node.message is None or not is_node_alive(node, state):
        return
    left = [at for at in range(len(node.items)) if _is_left(node, at, state)]
    texts = {at for at in left if is_literal(node.items[at])}
    if not node.calls and left and len(left) == len(texts):
        yield f"of {paths.shorten(node)} only its literal text is left."
    elif any(
        before in texts and after in texts and _has_left(node, range(before + 1, after), state)
        for before, after in pairwise(left)
    ):
        yield f"in {paths.shorten(node)} nothing is left between literal texts."


def _has_left(node: Node, positions: range, state: int) -> bool:
    """Return whether a child at one of these positions was removed, or has a share that holds none of its content."""
    return any(
        not is_literal(item) and (removed_at < state or (type(item) is Node and item.is_cut_away))
        for item, removed_at in zip(
            node.items[positions.start : positions.stop],
            node.removed_at[positions.start : positions.stop],
            strict=True,
        )
    )


def _is_left(node: Node, position: int, state: int) -> bool:
    """Return whether an item with content is left of a node."""
    item = node.items[position]
    return is_item_alive(item, node.removed_at[position], state) and bool(
        item.items if type(item) is Node else is_content(item)
    )


def list_share_notes(tree: RenderTree, sizer: Sizer) -> Iterator[str]:
    """Yield a note for each node that fills an equal share of the budget because it has no `flex_grow`, though what is in it would take more.

    That is a node with a child that has `flex_grow`, or a message with a text that was cut to its share.
    """
    paths = Paths(described=True)
    cut = {node.message for node in tree.nodes if node.is_cut}
    for node in tree.nodes:
        around, element = node.parent, node.element
        if (
            around is None
            or around.layout is None
            or element is None
            or element.flex_grow is not None
            or node.budget is None
            or node.in_fallback
            or not (
                node in cut
                # its children are sized one after the other
                or (node.layout and any(isfinite(group.grow) for group in node.layout.groups))
            )
        ):
            continue
        group = around.layout.groups[node.group_index]
        others = sum(member.replaces is None for member in group.nodes) + group.plain_members - 1
        if others and sizer.tokens_used(node) >= _NEARLY * node.budget:
            yield (
                f"{paths.shorten(node)} has no flex_grow, so it shares the budget with {others} sibling{'s' * (others > 1)} "
                f"and got {node.budget:,} tokens for its flexible children: write flex_grow=1 to give it what they leave."
            )


_NEARLY = 0.8  # of its share: a truncated text may end at a line before
