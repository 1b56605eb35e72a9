"""What a render gives back: messages, their tokens, and the receipt for what was dropped.

The receipt as text that reads well in a terminal and in a review.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from promptkit.emitters import AnthropicRequest, to_anthropic, to_chat, to_responses
from promptkit.messages import CacheBreakpointPart, Message, Repair, ToolDefinition
from promptkit.rendering.removals import Removal, SourceSpan, list_removals, map_sources
from promptkit.rendering.sizing import count_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.elements.media import Reference
    from promptkit.rendering.removals import PrunedTree
    from promptkit.tokens.budget import ContextBudget
    from promptkit.tracing.trace import Trace

__all__ = ["Rendered", "explain"]


NUMBERS = range(3)  # the columns that are set to the right


def explain(rendered: Rendered) -> str:
    """What was kept, what was removed and why, what was mended."""
    share = f" ({rendered.tokens / rendered.budget:.0%})" if rendered.budget else ""
    exact = "" if rendered.exact else ", estimated"
    lines = [f"{rendered.tokens:,} of {rendered.budget:,} tokens{share}{exact} in {len(rendered.messages)} messages"]
    if rendered.reserved:
        lines.append(f"{rendered.reserved:,} tokens reserved")
    if rendered.context is not None:
        lines.append(rendered.context.explain())
    removals = rendered.removals
    if removals:
        lines.append(f"removed {len(removals)}, lowest first:")
        rows = [
            (f"{removal.order}.", f"{removal.tokens:,}", _priority(removal.priority), removal.path, _why(removal.reason, removal.partner))
            for removal in removals
        ]
        head = ("", "tokens", "priority", "element", "reason")
        widths = [max(len(row[column]) for row in [head, *rows]) for column in range(5)]
        for row in [head, *rows]:
            cells = [
                cell.rjust(width) if column in NUMBERS else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  " + "  ".join(cells).rstrip())
    else:
        lines.append("nothing was removed")
    lines.extend(f"repaired: {repair.kind}: {repair.detail}" for repair in rendered.repairs)
    return "\n".join(lines)


def _priority(priority: float) -> str:
    if priority >= 2**53 - 1:
        return "highest"
    return "lowest" if priority <= -(2**53) else f"{priority:g}"


def _why(reason: str, partner: str | None) -> str:
    return f"{reason}: {partner}" if partner else reason


@attrs.frozen(kw_only=True)
class Rendered:
    """A rendered prompt: what tests, snapshots and requests look at."""

    messages: tuple[Message, ...]
    """What survived, in written order."""

    tokens: int
    """The tokens of the request: messages, framing and tool definitions; without what Reserve keeps free."""

    budget: int
    """The tokens that `tokens` and `reserved` together do not exceed."""

    reserved: int = 0
    """The tokens that Reserve elements keep free."""

    metadata: tuple[object, ...] = ()
    """The values of surviving Metadata elements, and of all that are not local."""

    references: tuple[Reference, ...] = ()
    """The References of surviving elements, each source once."""

    omitted_references: tuple[Reference, ...] = ()
    """The References whose elements were all pruned."""

    context: ContextBudget | None = attrs.field(default=None, eq=False)
    """How the budget came about."""

    trace: Trace | None = attrs.field(default=None, repr=False, eq=False)
    """What happened, where the render was asked to record it (`trace=True`)."""

    _pruned: PrunedTree = attrs.field(alias="pruned", repr=False, eq=False)
    _again: Callable[[int], Rendered] = attrs.field(alias="again", repr=False, eq=False)
    _tools: tuple[ToolDefinition, ...] = attrs.field(alias="tools", default=(), repr=False, eq=False)
    _earlier: tuple[Message, ...] = attrs.field(alias="earlier", default=(), repr=False, eq=False)

    @cached_property
    def exact(self) -> bool:
        """Whether `tokens` is what the provider bills: always for text, else where a published formula was checked against bills."""
        tokenizer = self._pruned.sizer.tokenizer
        system = next((message.text for message in self.messages if message.role == "system"), False)
        if not tokenizer.request(self._tools, system=system).exact:
            return False
        for message in self.messages:
            if not count_frame(message, tokenizer).exact:
                return False
            for part in message.content:
                if not isinstance(part, str | CacheBreakpointPart) and not tokenizer.part(part).exact:
                    return False
        return True

    @cached_property
    def removals(self) -> tuple[Removal, ...]:
        """What was removed, in the order of removal."""
        return list_removals(self._pruned)

    @cached_property
    def source_map(self) -> tuple[SourceSpan, ...]:
        """Which element wrote which characters."""
        return map_sources(self._pruned)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What components mended in what they were given."""
        return tuple(value for value in self.metadata if isinstance(value, Repair))

    @cached_property
    def stable_prefix(self) -> int:
        """The tokens of the leading messages that are the same, byte for byte, as in the Renderer's render before; 0 without one."""
        tokens = 0
        sizer = self._pruned.sizer
        for message, earlier in zip(self.messages, self._earlier, strict=False):
            if message is not earlier and message != earlier:
                break
            tokens += sizer.count_message(message)
        return tokens

    def explain(self) -> str:
        """The receipt as a table for people."""
        return explain(self)

    def at_budget(self, budget: int) -> Rendered:
        """The same prompt at another budget, without running components again: what looked at its budget stays as it is.

        Raises BudgetExceededError where the required does not fit.
        """
        return self._again(budget)

    def to_openai(self, *, cache: bool = True) -> list[Any]:  # Any: the SDK's unions of TypedDicts take no dict[str, ...]
        """The messages for Chat Completions (`messages=`). `cache=False` leaves cache boundaries out, for models that refuse them."""
        return to_chat(self.messages, cache=cache)

    def to_responses(self, *, cache: bool = True) -> list[Any]:  # Any: as above
        """The messages for the Responses API (`input=`). `cache=False` leaves cache boundaries out."""
        return to_responses(self.messages, cache=cache)

    def to_anthropic(self, *, cache: bool = True) -> AnthropicRequest:
        """The messages for Anthropic's Messages API: `{"system": …, "messages": …}`. `cache=False` leaves cache boundaries out."""
        return to_anthropic(self.messages, cache=cache)
