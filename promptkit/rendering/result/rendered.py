"""The result of a render: messages, their tokens, and what was removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import takewhile
from textwrap import wrap
from typing import Any

import attrs

from promptkit.elements import Reference
from promptkit.messages import Message, Repair, ToolDefinition
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.prune.removals import PrunedTree, Removal, list_removals
from promptkit.rendering.result.notes import list_notes
from promptkit.rendering.subtree import SourceSpan, map_sources
from promptkit.rendering.tree import format_priority
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
        messages: Sequence[Message] = self.messages
        if target == "chat":
            messages = tuple(move_media(messages, {"tool"}))
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
        pairs = zip(self.messages, self._earlier, strict=False)
        equal = takewhile(lambda pair: pair[0] is pair[1] or pair[0] == pair[1], pairs)
        return sum(self._sizer.count_message(message) for message, _ in equal)

    def explain(self) -> str:
        """Describe the render as text for a terminal: tokens, budget, removals, notes and repairs."""
        share = f" ({self.tokens / self.budget:.0%})" if self.budget else ""
        lines = [
            f"{self.tokens:,} of {self.budget:,} tokens{share}{'' if self.exact else ', estimated'} in {len(self.messages)} message{'' if len(self.messages) == 1 else 's'}"
        ]
        if self.reserved:
            lines.append(f"{self.reserved:,} tokens reserved")
        if self.context is not None:
            lines.append(self.context.explain())
        if self.removals:
            lines.append(f"removed {len(self.removals)}, lowest first:")
            lines += _format_removals(self.removals)
        else:
            lines.append("nothing was removed")
        for note in self.notes:
            lines += wrap(f"note: {note}", _WIDTH, subsequent_indent="  ")
        lines.extend(f"repaired: {repair.kind}: {repair.detail}" for repair in self.repairs)
        return "\n".join(lines)

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
    """Format removals as the lines of a table."""
    rows = [("", "tokens", "priority", "element", "reason")]
    for removal in removals:
        reason = f"{removal.reason}: {removal.partner_label}" if removal.partner else removal.reason
        rows.append(
            (
                f"{removal.order}.",
                f"{removal.tokens:,}",
                format_priority(removal.priority),
                removal.label,
                reason,
            )
        )
    *numbers, labels, reasons = [max(len(row[column]) for row in rows) for column in range(5)]
    room = _WIDTH - sum(numbers) - len("  ") * len(rows[0])
    reasons = min(reasons, max(room // 2, room - labels))
    widths = [*numbers, min(labels, room - reasons), reasons]
    lines: list[str] = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in _NUMBER_COLUMNS else _shorten(cell, width).ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


_WIDTH = 100  # characters of a line of `explain`

_NUMBER_COLUMNS = range(3)  # aligned to the right


def _shorten(text: str, width: int) -> str:
    """Shorten a text to a number of characters. Its end, which tells most of a path, stays longer."""
    head = (width - 1) // 3
    return text if len(text) <= width else f"{text[:head]}…{text[len(text) - width + head + 1 :]}"
