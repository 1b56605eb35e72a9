"""How many tokens a prompt may have: what was asked for, or what a model's window leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.errors import InvalidArgumentError, UnknownModelError
from promptkit.tokens.models import model_info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import ToolDefinition
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["DEFAULT_BUDGET", "REPLY_SHARE", "ContextBudget", "context_budget"]

DEFAULT_BUDGET = 128_000
"""Tokens, where neither a budget nor a model is given: the window of gpt-4o, by whose encoding is counted then."""

REPLY_SHARE = 4
"""A quarter of the window is the most that is kept for the reply unless `reply_tokens` says otherwise."""


@attrs.frozen(kw_only=True)
class ContextBudget:
    """How a budget came about. All figures are tokens.

    `tokens` is the limit for a rendered prompt, with its framing and its tool definitions. `tools` is what the definitions and the
    priming of the reply take of it.
    """

    tokens: int
    model: str | None = None
    window: int | None = None
    max_input: int | None = None
    max_output: int | None = None
    reply_tokens: int | None = None
    tools: int = 0
    given: bool = False

    def explain(self) -> str:
        """How it came about, as one line of text.

        >>> print(ContextBudget(tokens=8_000, given=True).explain())
        8,000 tokens, as given
        """
        inside = f"; {self.tools:,} of them for the request and its tools" if self.tools else ""
        if self.given:
            return f"{self.tokens:,} tokens, as given{inside}"
        if self.window is None:
            return f"{self.tokens:,} tokens, the default without a budget or a model{inside}"
        steps = f"{self.model} has a window of {self.window:,} tokens, less {self.reply_tokens or 0:,} for the reply"
        if self.max_input is not None:
            steps += f", and takes at most {self.max_input:,} of input"
        return f"{self.tokens:,} tokens: {steps}{inside}"

    def __str__(self) -> str:
        return self.explain()


def context_budget(
    *,
    model: str | None = None,
    budget: int | None = None,
    reply_tokens: int | None = None,
    tools: Sequence[ToolDefinition] = (),
    tokenizer: Tokenizer,
) -> ContextBudget:
    """The budget of a prompt: `budget` itself if it is given; otherwise what the model's window leaves beside the reply.

    `reply_tokens` is what is kept for the reply: by default what the model can write, at most a quarter of the window. Without
    a budget and a model it is DEFAULT_BUDGET. Raises InvalidArgumentError for figures that cannot be, UnknownModelError if no window is
    known for the model and no budget is given.
    """
    for name, value in (("budget", budget), ("reply_tokens", reply_tokens)):
        if value is not None and not value >= 0:  # NaN is not at least 0 either
            message = f"{name} must be at least 0 tokens, not {value}."
            raise InvalidArgumentError(message)
    overhead = tokenizer.request(tools).tokens
    if budget is not None:
        return ContextBudget(tokens=budget, model=model, reply_tokens=reply_tokens, tools=overhead, given=True)
    if model is None:
        return ContextBudget(tokens=max(0, DEFAULT_BUDGET - (reply_tokens or 0)), reply_tokens=reply_tokens, tools=overhead)
    info = model_info(model)
    if info.window is None:
        message = f"No window is known for {model!r}: give the render a `budget`, or register_model({model!r}, window=…)."
        raise UnknownModelError(message)
    share = info.window // REPLY_SHARE
    reply = reply_tokens if reply_tokens is not None else min(share if info.max_output is None else info.max_output, share)
    room = info.window - reply
    if room <= 0:
        message = f"reply_tokens of {reply:,} leave nothing of the window of {model}, which has {info.window:,} tokens."
        raise InvalidArgumentError(message)
    return ContextBudget(
        tokens=room if info.max_input is None else min(room, info.max_input),
        model=model,
        window=info.window,
        max_input=info.max_input,
        max_output=info.max_output,
        reply_tokens=reply,
        tools=overhead,
    )
