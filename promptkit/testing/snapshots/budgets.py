"""Render a prompt at the budgets that a snapshot shows, largest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import attrs

from promptkit.elements.element import PromptElement
from promptkit.errors import BudgetExceededError
from promptkit.rendering.renderer import render
from promptkit.rendering.result.rendered import Rendered
from promptkit.testing.snapshots.stabilize import stabilize_tokenizer
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.elements.element import Child
    from promptkit.messages import Message, ToolDefinition
    from promptkit.rendering.renderer import Defaults
    from promptkit.testing.snapshots.stabilize import Stabilizer
    from promptkit.tokens.tokenizer import Tokenizer


@attrs.frozen(kw_only=True)
class SnapshotOptions:
    """How to render a prompt for a snapshot."""

    budgets: tuple[int | str, ...] | None = None
    """Tokens, or the names of models whose windows are the budgets; None renders once, with the
    default budget."""

    tokenizer: Tokenizer | None = None
    """Counts tokens; None takes the model's tokenizer, or the default."""

    tools: tuple[ToolDefinition, ...] = ()
    """Definitions that take room beside the messages."""

    defaults: Defaults = "promptkit"
    """What is removed where nothing has a priority, as in `render`."""

    @property
    def any_set(self) -> bool:
        """Whether any option differs from its default."""
        return self != SnapshotOptions()


@attrs.frozen(kw_only=True)
class BudgetLevel:
    """A prompt at one budget."""

    label: str
    """`8,000 tokens` or a model's name; empty if no budget was set."""

    budget: int
    """Tokens."""

    rendered: Rendered | None = None
    """None if the required parts do not fit."""

    messages: tuple[Message, ...] = ()
    """The rendered messages, with placeholders for what varies."""

    error: str = ""
    """Why the prompt does not fit, in a sentence."""


def render_levels(
    prompt: object, options: SnapshotOptions, stabilizer: Stabilizer
) -> list[BudgetLevel]:
    """Render a prompt at each budget, largest first, each budget once.

    A budget that is too small becomes a level with an error.

    Args:
        prompt: An element, a tuple or list of elements, or a Rendered, which is not rendered again.
        options: Budgets, tokenizer and tools.
        stabilizer: Replaces what varies from run to run.

    Raises:
        TypeError: The value is no prompt, or a Rendered was combined with options.
    """
    if isinstance(prompt, Rendered):
        if options.any_set:
            message = "a Rendered has its budget already: compare the element itself with a snapshot at other budgets."
            raise TypeError(message)
        return [_make_level("", prompt, stabilizer)]
    if not _is_prompt(prompt):
        message = f"a snapshot compares with a prompt: an element, a tuple of elements or a Rendered, not a {type(prompt).__name__}."
        raise TypeError(message)
    if options.budgets is None:
        return [_make_level("", _render_at(prompt, None, options, stabilizer), stabilizer)]
    results: list[tuple[str, Rendered | BudgetExceededError]] = []
    for budget in dict.fromkeys(options.budgets):
        label = budget if isinstance(budget, str) else f"{budget:,} tokens"
        try:
            results.append((label, _render_at(prompt, budget, options, stabilizer)))
        except BudgetExceededError as error:
            results.append((label, error))
    results.sort(key=lambda item: -item[1].budget)
    return [_make_level(label, result, stabilizer) for label, result in results]


def _is_prompt(value: object) -> TypeGuard[PromptElement | Sequence[Child]]:
    return isinstance(value, PromptElement | tuple | list)


def _render_at(
    prompt: Child, budget: int | str | None, options: SnapshotOptions, stabilizer: Stabilizer
) -> Rendered:
    tokens, model = (None, budget) if isinstance(budget, str) else (budget, None)
    tokenizer = stabilize_tokenizer(options.tokenizer or tokenizer_for(model), stabilizer.options)
    return render(
        prompt,
        budget=tokens,
        model=model,
        tokenizer=tokenizer,
        tools=options.tools,
        defaults=options.defaults,
    )


def _make_level(
    label: str, result: Rendered | BudgetExceededError, stabilizer: Stabilizer
) -> BudgetLevel:
    if isinstance(result, BudgetExceededError):
        return BudgetLevel(
            label=label, budget=result.budget, error=stabilizer.stabilize_text(str(result))
        )
    messages = stabilizer.stabilize_messages(result.messages)
    return BudgetLevel(label=label, budget=result.budget, rendered=result, messages=messages)
