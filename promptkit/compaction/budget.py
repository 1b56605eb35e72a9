"""How much of a model's window a conversation may take, and from where on it is compacted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from promptkit.errors import InvalidArgumentError, ToolsFillBudgetError, UnknownModelError
from promptkit.tokens.budget import REPLY_SHARE
from promptkit.tokens.models import model_info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import ToolDefinition
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["RESERVE", "SAFETY", "THRESHOLD", "Budget", "budget_for", "default_reserve", "resolve_threshold"]

SAFETY = 0.9
"""The share of what tools leave that messages may have: the definitions are counted less surely than text."""

THRESHOLD = "threshold"
"""The name of the setting, as errors say it."""

LEAST_TOKENS = 100
"""The least threshold that is taken for a number of tokens."""

RESERVE = 16_384
"""Tokens of the window that are kept free by default where a threshold is `window - reserve` (pi, oh-my-pi)."""

RESERVE_SHARE = 0.15
"""The share of the window that is kept free instead, where the window has no room for RESERVE."""

SUMMARY_TOKENS = 16_384
SUMMARY_SHARE = 5
KEEP_TOKENS = 20_000
KEEP_SHARE = 4
RESULT_SHARE = 2


@attrs.frozen(kw_only=True)
class Budget:
    """What requests to a model may take. All figures are tokens; None is unknown, and never 0.

    `limit` is what the input of a request may have; `base` is what compaction aims at, the limit or a threshold below it. Of the base,
    tool definitions take `tools`, and messages may have `message_budget`.

    Raises InvalidArgumentError for figures that cannot be, InvalidArgumentError for a threshold between 1 and 100, ToolsFillBudgetError if the tools
    leave nothing.

    >>> Budget(window=200_000, reply_tokens=0, threshold=0.5, tools=20_000).message_budget
    72000
    """

    window: int | None = None
    """Input and output together."""
    max_input: int | None = None
    """What the input alone may have, where that is less."""
    max_output: int | None = None
    reply_tokens: int | None = None
    """Kept for the reply; None: what the model can write, at most a quarter of the window."""
    picked: float | None = None
    """The context size that a person chose. It counts where it is a finite number above 0 and below what the model takes."""
    threshold: float | None = None
    """Up to 1: a share of the limit. From 100 on: tokens. None or not above 0: the limit itself."""
    reserve: int | None = None
    """Tokens of the window to keep free: a threshold of `window - reserve`. With both, the lower holds."""
    tools: int = 0
    """What the tool definitions take, with the framing of the request."""
    safety: float = SAFETY
    model: str | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("window", "max_input", "max_output"):
            value: int | None = getattr(self, name)
            if value is not None and not value > 0:
                _refuse(f"{name} must be positive, or None where it is unknown, not {value}")
        for name in ("reply_tokens", "reserve", "tools"):
            least: int | None = getattr(self, name)
            if least is not None and not least >= 0:
                _refuse(f"{name} must be at least 0 tokens, not {least}")
            if least is not None and self.window is not None and name != "tools" and least >= self.window:
                _refuse(f"{name} of {least:,} leave nothing of a window of {self.window:,} tokens")
        if not 0 < self.safety <= 1:
            _refuse(f"safety must be above 0 and at most 1, not {self.safety}")
        base = self.base  # raises InvalidArgumentError
        if base is not None and self.tools >= base:
            raise ToolsFillBudgetError(tools=self.tools, budget=base)

    @property
    def reply(self) -> int | None:
        """The tokens of the window that are kept for the reply."""
        if self.reply_tokens is not None or self.window is None:
            return self.reply_tokens
        share = self.window // REPLY_SHARE
        return share if self.max_output is None else min(self.max_output, share)

    @property
    def limit(self) -> int | None:
        """The most that the input of a request may have."""
        sizes = [] if self.window is None else [self.window - (self.reply or 0)]
        if self.max_input is not None:
            sizes.append(self.max_input)
        if (picked := self._picked) is not None:
            sizes.append(picked)
        return min(sizes, default=None)

    @property
    def base(self) -> int | None:
        """What the input of a request is measured by: the limit, or a threshold below it. The tools are part of it."""
        limit = self.limit
        sizes = [] if limit is None else [limit]
        resolved = resolve_threshold(self.threshold, limit)
        if resolved is not None:
            sizes.append(resolved)
        if self.reserve is not None and self.window is not None:
            sizes.append(self.window - self.reserve)
        return min(sizes, default=None)

    @property
    def message_budget(self) -> int | None:
        """What messages may have: the base; where there are tools, `safety` of what they leave."""
        base = self.base
        if base is None or not self.tools:
            return base
        return max(1, math.floor((base - self.tools) * self.safety))

    @property
    def render_budget(self) -> int | None:
        """The budget of a render, which counts the tools in: a request above it overflows."""
        messages = self.message_budget
        return None if messages is None else messages + self.tools

    @property
    def overflow_ratio(self) -> float | None:
        """The ratio above which a render overflows: `safety` of the base and a little more, the more the larger the tools are."""
        return None if self.render_budget is None else self.ratio(self.render_budget)

    def ratio(self, tokens: int | None) -> float | None:
        """The share of the base that a request of so many tokens takes, its tools included; None where either is unknown."""
        base = self.base
        return None if base is None or tokens is None else tokens / base

    @property
    def summary_tokens(self) -> int:
        """The most that a summary may have: a fifth of the messages, and never so much that a model rather copies than summarizes."""
        messages = self.message_budget
        sizes = [size for size in (self.max_output, None if messages is None else messages // SUMMARY_SHARE) if size is not None]
        return max(1, min([SUMMARY_TOKENS, *sizes]))

    @property
    def keep_tokens(self) -> int:
        """What may be kept as it is beside a summary: a quarter of the messages, at most 20,000."""
        messages = self.message_budget
        return KEEP_TOKENS if messages is None else max(1, min(KEEP_TOKENS, messages // KEEP_SHARE))

    @property
    def result_tokens(self) -> int | None:
        """The most that one tool result may have: half of the messages."""
        messages = self.message_budget
        return None if messages is None else max(1, messages // RESULT_SHARE)

    def explain(self) -> str:
        """How the figures came about, as one line of text.

        >>> print(Budget(window=16_000, reply_tokens=4_000, tools=1_000).explain())
        12,000 tokens: a window of 16,000, less 4,000 for the reply; 1,000 for tools and 0.9 of the rest, 9,900, for messages; \
overflows above 10,900 (ratio 0.908)
        """
        base = self.base
        if base is None:
            return "unknown: no window is known, and nothing is compacted unless it is asked for"
        text = f"{base:,} tokens: {'; '.join(self._steps())}"
        if self.tools:
            text += f"; {self.tools:,} for tools and {self.safety:g} of the rest, {self.message_budget or 0:,}, for messages"
        return f"{text}; overflows above {self.render_budget or 0:,} (ratio {self.overflow_ratio or 0:.3f})"

    def __str__(self) -> str:
        return self.explain()

    def _steps(self) -> list[str]:
        whose = f"{self.model} has a" if self.model else "a"
        steps = ["no window is known"]
        if self.window is not None:
            steps = [f"{whose} window of {self.window:,}, less {self.reply or 0:,} for the reply"]
        if self.max_input is not None:
            steps.append(f"at most {self.max_input:,} of input")
        if (picked := self._picked) is not None and picked == self.limit:
            steps.append(f"the picked context size {picked:,}")
        resolved = resolve_threshold(self.threshold, self.limit)
        if resolved is not None:
            share = "" if self.threshold is None or self.threshold > 1 else f"{self.threshold:g} of it, "
            steps.append(f"the threshold is {share}{resolved:,}")
        if self.reserve is not None and self.window is not None:
            steps.append(f"{self.reserve:,} kept free")
        return steps

    @property
    def _picked(self) -> int | None:
        picked = self.picked
        valid = isinstance(picked, int | float) and not isinstance(picked, bool) and math.isfinite(picked) and picked >= 1
        return int(picked) if valid and picked is not None else None


def resolve_threshold(value: float | None, limit: int | None, *, setting: str = THRESHOLD) -> int | None:
    """A threshold in tokens; None where there is none: nothing was set, or a share of an unknown limit.

    A value up to 1 is a share of the limit, 1 being all of it; from 100 on it is tokens, not clamped here. Raises InvalidArgumentError,
    with the name of the setting, for what is between.
    """
    if value is None or not value > 0:  # NaN is not above 0 either
        return None
    if value <= 1:
        return None if limit is None else max(1, math.floor(limit * value))
    if value < LEAST_TOKENS:
        message = (
            f"{setting}={value:g} is neither a share nor a number of tokens: "
            f"write a ratio above 0 and up to 1 ({value / 100:g} for {value:g} %), or at least 100 tokens."
        )
        raise InvalidArgumentError(message)
    return limit if math.isinf(value) else int(value)


def default_reserve(window: int, reserve: int = RESERVE) -> int:
    """The tokens to keep free of a window where nobody said how many: `reserve`, or 15 % of a window that has no room for it."""
    return reserve if reserve < window else max(1, math.floor(window * RESERVE_SHARE))


def budget_for(  # noqa: PLR0913  # what can be said of a budget beside its model
    model: str,
    *,
    tokenizer: Tokenizer,
    tools: Sequence[ToolDefinition] = (),
    window: int | None = None,
    reply_tokens: int | None = None,
    picked: float | None = None,
    threshold: float | None = None,
    reserve: int | None = None,
) -> Budget:
    """The budget of a model, by what is known of it; `window` wins over that. Of a model that is not known, the window is None.

    `tools` are those that every request offers. Raises as Budget does.
    """
    try:
        info = model_info(model)
    except UnknownModelError:
        info = None
    return Budget(
        window=info.window if info and window is None else window,
        max_input=info.max_input if info and window is None else None,
        max_output=info.max_output if info else None,
        reply_tokens=reply_tokens,
        picked=picked,
        threshold=threshold,
        reserve=reserve,
        tools=tokenizer.request(tools).tokens if tools else 0,
        model=model,
    )


def _refuse(problem: str) -> None:
    message = f"{problem}."
    raise InvalidArgumentError(message)
