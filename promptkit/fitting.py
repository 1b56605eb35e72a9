"""`fit`: the messages of a conversation that fit a token budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.elements.history import fit_history
from promptkit.errors import InvalidArgumentError
from promptkit.tokens.budget import resolve_budget
from promptkit.tokens.models import model_name, tokenizer_for
from promptkit.tool_pairing import pair_tool_calls
from promptkit.tools import tool_definitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message, Repair, ToolDefinition
    from promptkit.tokens.budget import ContextBudget
    from promptkit.tokens.models import NamedModel
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.tools import Tool

__all__ = ["Fitted", "fit"]


@attrs.frozen(kw_only=True)
class Fitted:
    """Messages that fit a budget, and what became of the others."""

    messages: tuple[Message, ...]
    """The messages that fit, in order. A message that did not change is the object that was given."""
    tokens: int
    """The size of the request in tokens: messages, framing and tool definitions."""
    budget: int
    """The most tokens that the request may have."""
    kept: tuple[int, ...]
    """The indices of the given messages that stay as they are."""
    changed: tuple[int, ...]
    """The indices of the given messages that are shortened, or repaired (see `repairs`)."""
    removed: tuple[int, ...]
    """The indices of the given messages that are removed."""
    repairs: tuple[Repair, ...] = ()
    """What was repaired so that each tool call has one result, as `pair_tool_calls` describes."""

    def explain(self) -> str:
        """Describe what was done, as text for a terminal."""
        share = f" ({self.tokens / self.budget:.0%})" if self.budget else ""
        lines = [f"{self.tokens:,} of {self.budget:,} tokens{share} in {_count(len(self.messages))}"]
        lines += [
            f"{name} {_count(len(indices))}: {_format_ranges(indices)}"
            for name, indices in (("kept", self.kept), ("changed", self.changed), ("removed", self.removed))
            if indices
        ]
        lines += [f"repaired: {repair.kind}: {repair.detail}" for repair in self.repairs]
        return "\n".join(lines)


def fit(  # noqa: PLR0913  # keywords
    messages: Sequence[Message],
    *,
    budget: int | str | ContextBudget | None = None,
    model: str | NamedModel | None = None,
    tools: Sequence[Tool | ToolDefinition] = (),
    tokenizer: Tokenizer | None = None,
    keep: Literal["newest", "oldest"] = "newest",
    shorten: bool = True,
) -> Fitted:
    """Make messages fit a budget: long tool results and messages are shortened, then the oldest rounds are removed.

    System messages stay as they are. The last user message and the newest round always stay; they are shortened if they must be, the
    user message last. Tool calls and their results stay together. Messages that did not change are the objects that were given.

    Args:
        messages: The messages of a request, oldest first.
        budget: The most tokens that the request may have: a number, a text such as `"8k"`, or a ContextBudget. Default: the model's
            context window less the tokens reserved for the reply.
        model: The model's name, or a model object. It decides the tokenizer and the default budget.
        tools: The tools of the request. Their definitions count against the budget.
        tokenizer: Counts the tokens. Default: the tokenizer of the model.
        keep: Which of the older rounds stay longest.
        shorten: Whether messages may be shortened. Otherwise rounds are kept whole, or removed.

    Returns:
        The messages, with what was kept, changed and removed.

    Raises:
        BudgetExceededError: The messages that always stay do not fit.
        InvalidArgumentError: An argument has a value that it cannot have.

    >>> fitted = fit(messages, budget="8k", model="gpt-5")
    """
    if keep not in ("newest", "oldest"):
        problem = f'keep is {keep!r}: write "newest" or "oldest".'
        raise InvalidArgumentError(problem)
    definitions = tool_definitions(tools)
    counter = tokenizer or tokenizer_for(None if model is None else model_name(model))
    limit = resolve_budget(budget, model=model, tokenizer=counter, tools=definitions, for_render=True).render_budget
    if limit is None:
        problem = "budget has no limit: write ContextBudget(max_tokens=8_000), or give it a window."
        raise InvalidArgumentError(problem)
    paired = pair_tool_calls(messages)
    system = next((message.text for message in paired.messages if message.role == "system"), False)
    overhead = counter.count_overhead(definitions, system=system).tokens if messages or definitions else 0
    fitted = fit_history(paired.messages, limit, tokenizer=counter, overhead=overhead, keep=keep, shorten=shorten)
    sources = [paired.sources[at] for at in fitted.sources]
    kept = {at for at, message in zip(sources, fitted.messages, strict=True) if message is messages[at]}
    shown = set(sources)
    return Fitted(
        messages=fitted.messages,
        tokens=fitted.tokens + overhead,
        budget=limit,
        kept=tuple(sorted(kept)),
        changed=tuple(sorted(shown - kept)),
        removed=tuple(at for at in range(len(messages)) if at not in shown),
        repairs=paired.repairs,
    )


def _count(messages: int) -> str:
    return f"{messages:,} message{'' if messages == 1 else 's'}"


def _format_ranges(indices: Sequence[int]) -> str:
    """Format sorted indices as ranges: `0, 3-7`."""
    ranges: list[list[int]] = []
    for at in indices:
        if ranges and ranges[-1][1] == at - 1:
            ranges[-1][1] = at
        else:
            ranges.append([at, at])
    return ", ".join(str(start) if start == end else f"{start}-{end}" for start, end in ranges)
