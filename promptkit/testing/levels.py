"""A prompt at the budgets that a snapshot shows, largest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import attrs

from promptkit.element import PromptElement
from promptkit.errors import BudgetExceededError
from promptkit.rendering.renderer import render
from promptkit.rendering.result import Rendered
from promptkit.testing.steady import steady
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.element import Child
    from promptkit.messages import Message, ToolDefinition
    from promptkit.testing.stabilize import Stable
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["Asked", "Level", "levels_of"]


@attrs.frozen(kw_only=True)
class Asked:
    """How a prompt is to be rendered for a snapshot."""

    budgets: tuple[int | str, ...] | None = None
    """Tokens, or the names of models whose windows are the budgets; None renders once, with the default budget."""

    tokenizer: Tokenizer | None = None
    """What counts; None: the model's, or the default."""

    tools: tuple[ToolDefinition, ...] = ()
    """The definitions that take room beside the messages."""

    @property
    def given(self) -> bool:
        """Whether anything was asked for."""
        return self.budgets is not None or self.tokenizer is not None or bool(self.tools)


@attrs.frozen(kw_only=True)
class Level:
    """A prompt at one budget. `messages` are the rendered ones with what varies replaced."""

    label: str
    """`8,000 tokens` or a model's name; empty where no budget was asked for."""

    budget: int
    """Tokens."""

    rendered: Rendered | None = None
    """None where what is required does not fit."""

    messages: tuple[Message, ...] = ()

    error: str = ""
    """Why it does not fit, in a sentence."""


def levels_of(prompt: object, asked: Asked, stable: Stable) -> list[Level]:
    """The prompt at each budget, largest first, each budget once.

    Raises TypeError for what is no prompt, and whatever a render raises; but a budget that is too small is a level of its own.
    """
    if isinstance(prompt, Rendered):
        if asked.given:
            message = "A Rendered has its budget already: compare the element itself with a snapshot at other budgets."
            raise TypeError(message)
        return [_level("", prompt, stable)]
    if not _is_prompt(prompt):
        message = f"A prompt is compared: an element, a tuple of elements or a Rendered, not a {type(prompt).__name__}."
        raise TypeError(message)
    if asked.budgets is None:
        return [_level("", _rendered(prompt, None, asked, stable), stable)]
    found: list[tuple[str, Rendered | BudgetExceededError]] = []
    for budget in dict.fromkeys(asked.budgets):
        label = budget if isinstance(budget, str) else f"{budget:,} tokens"
        try:
            found.append((label, _rendered(prompt, budget, asked, stable)))
        except BudgetExceededError as error:
            found.append((label, error))
    found.sort(key=lambda item: -item[1].budget)
    return [_level(label, result, stable) for label, result in found]


def _is_prompt(value: object) -> TypeGuard[PromptElement | Sequence[Child]]:
    return isinstance(value, PromptElement | tuple | list)


def _rendered(prompt: Child, budget: int | str | None, asked: Asked, stable: Stable) -> Rendered:
    tokens, model = (None, budget) if isinstance(budget, str) else (budget, None)
    tokenizer = steady(asked.tokenizer or tokenizer_for(model), stable.stabilizer)
    return render(prompt, budget=tokens, model=model, tokenizer=tokenizer, tools=asked.tools)


def _level(label: str, result: Rendered | BudgetExceededError, stable: Stable) -> Level:
    if isinstance(result, BudgetExceededError):
        return Level(label=label, budget=result.budget, error=stable.text(str(result)))
    return Level(label=label, budget=result.budget, rendered=result, messages=stable.messages(result.messages))
