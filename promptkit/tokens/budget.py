"""Token budgets: how many tokens a prompt or a conversation may take of a model's context window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn, Self

import attrs

from promptkit.errors import (
    ContextWindowFullError,
    InvalidArgumentError,
    ToolsFillBudgetError,
    UnknownModelError,
)
from promptkit.reprs import describe_fields
from promptkit.sizes import parse_tokens as parse_tokens, read_limit, read_tokens  # noqa: PLC0414  # the stub re-exports it
from promptkit.tokens.models import (
    NamedModel,
    describe_model,
    model_info,
    model_name,
    tokenizer_for,
)
from promptkit.tokens.tokenizer import Tokenizer
from promptkit.tools import AnyTool, tool_definitions

DEFAULT_BUDGET = 128_000
"""Budget in tokens of a render without a budget and a model: the context window of gpt-4o, whose
encoding counts the text then."""

DEFAULT_RESERVE = 16_384
"""Tokens of the context window that pi and oh-my-pi keep free by default."""

BUFFER_STEP = 0.8
"""Share of a refused request that the next one may have, where the provider names no figure."""

LAPSE_SUCCESSES = 10
"""Requests that succeed before a buffer that was learned from a refusal gets smaller by one step."""

SAFETY = 0.9
"""Share of what tool definitions leave that messages may take: tool definitions are counted less
reliably than text."""

# at most a quarter of the window is reserved for the reply, unless `reserved_output_tokens` says
# otherwise
_OUTPUT_FRACTION = 4
_RESERVE_SHARE = 0.15  # share of a window that is smaller than the reserve
_MIN_THRESHOLD_TOKENS = 100  # the smallest threshold that is read as a number of tokens
_SUMMARY_TOKENS = 16_384
_SUMMARY_FRACTION = 5
_RESULT_FRACTION = 2


@attrs.frozen(kw_only=True)
class ContextBudget:
    """How many tokens a request to a model may take.

    `render`, windows and sessions take one as `budget=`.

    All figures are tokens, as a number or as text such as `"8k"`. None means unknown; it never means 0. `limit` is the most that the input
    of a request may have. `base` is the limit or a compaction threshold below it. Tool definitions
    take `tools` of the base, and messages may take `message_budget`.

    Raises:
        InvalidArgumentError: A figure is out of its range, or a threshold lies between 1 and 100.
        ToolsFillBudgetError: The tool definitions leave nothing for messages.

    >>> ContextBudget(window=200_000, reserved_output_tokens=0, threshold=0.5, tools=20_000).message_budget
    72000
    """

    window: int | None = attrs.field(default=None, converter=attrs.converters.optional(read_tokens))
    """The model's context window: input and output together."""
    max_input: int | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """The most that the input alone may have, where that is less than the window."""
    max_output_tokens: int | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """The most that the model can write."""
    reserved_output_tokens: int | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """Tokens of the window kept free for the reply. None: what the model can write, at most a
    quarter of the window."""
    max_tokens: float | None = attrs.field(default=None, converter=read_limit)
    """The limit that the user chose. It counts if it is a finite number of at least 1, and lower
    than what the model takes."""
    threshold: float | None = None
    """Where compaction begins. Up to 1: a share of the limit. From 100 on: tokens. None, or not
    above 0: the limit itself."""
    reserve_tokens: int | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """Tokens of the window to keep free: a threshold of `window - reserve_tokens`. With both, the
    lower one holds."""
    tools: int = attrs.field(default=0, converter=read_tokens)
    """What the tool definitions take, with the framing of the request. Of 0, windows and sessions
    with tools count it."""
    safety: float = SAFETY
    """Share of what tools leave that messages may take, above 0 and at most 1."""
    model: str | None = None
    """The model's name, for `explain()`."""

    __repr__ = describe_fields

    def __attrs_post_init__(self) -> None:
        for name, size in (
            ("window", self.window),
            ("max_input", self.max_input),
            ("max_output_tokens", self.max_output_tokens),
        ):
            if size is not None and not size > 0:
                _refuse(f"{name} must be positive, or None where it is unknown, not {size}")
        for name, kept in (
            ("reserved_output_tokens", self.reserved_output_tokens),
            ("reserve_tokens", self.reserve_tokens),
            ("tools", self.tools),
        ):
            if kept is not None and not kept >= 0:  # NaN is not at least 0 either
                _refuse(f"{name} must be at least 0 tokens, not {kept}")
            if (
                kept is not None
                and self.window is not None
                and name != "tools"
                and kept >= self.window
            ):
                _refuse(f"{name} of {kept:,} leaves nothing of a window of {self.window:,} tokens")
        if not 0 < self.safety <= 1:
            _refuse(f"safety must be above 0 and at most 1, not {self.safety}")
        base = self.base  # raises InvalidArgumentError
        if base is not None and self.tools >= base:
            raise ToolsFillBudgetError(tools=self.tools, budget=base)

    @classmethod
    def for_model(  # noqa: PLR0913  # the figures of a budget that a model's name does not give
        cls,
        model: str | NamedModel,
        *,
        tokenizer: Tokenizer | None = None,
        tools: Sequence[AnyTool] = (),
        window: int | str | None = None,
        reserved_output_tokens: int | str | None = None,
        max_tokens: float | str | None = None,
        threshold: float | None = None,
        reserve_tokens: int | str | None = None,
    ) -> Self:
        """Make the budget of a model from what promptkit knows about it.

        Args:
            model: The model's name, or an object with a `name`.
            tokenizer: Counts the tool definitions. Default: the model's tokenizer.
            tools: The tools that every request offers.
            window: The context window in tokens, if it is not the one that is known. The model's
                input limit is ignored then.
            reserved_output_tokens: Tokens kept free for the reply. Default: what the model can
                write, at most a quarter of the window.
            max_tokens: A limit below that of the model, in tokens.
            threshold: Where compaction begins: a share up to 1, or at least 100 tokens.
            reserve_tokens: Tokens of the window to keep free.

        Returns:
            The budget. Its window is None for an unknown model, unless `window` is given.

        Raises:
            InvalidArgumentError: A figure is out of its range.
            ToolsFillBudgetError: The tool definitions leave nothing for messages.

        >>> ContextBudget.for_model("gpt-4o", threshold=0.9).base
        100454
        """
        name = model_name(model)
        info = describe_model(name)
        return cls(
            window=info.window if window is None else window,
            max_input=info.max_input if window is None else None,
            max_output_tokens=info.max_output_tokens,
            reserved_output_tokens=reserved_output_tokens,
            max_tokens=max_tokens,
            threshold=threshold,
            reserve_tokens=reserve_tokens,
            tools=_count_tools(tools, name, tokenizer),
            model=name,
        )

    @property
    def output_reserve(self) -> int | None:
        """Tokens of the window that are kept free for the reply."""
        if self.reserved_output_tokens is not None or self.window is None:
            return self.reserved_output_tokens
        share = self.window // _OUTPUT_FRACTION
        return share if self.max_output_tokens is None else min(self.max_output_tokens, share)

    @property
    def limit(self) -> int | None:
        """The most tokens that the input of a request may have."""
        room = None if self.window is None else self.window - (self.output_reserve or 0)
        return _find_least(room, self.max_input, self._chosen_tokens)

    @property
    def base(self) -> int | None:
        """The limit, or a threshold below it, in tokens, tool definitions included."""
        limit = self.limit
        room = (
            None
            if self.reserve_tokens is None or self.window is None
            else self.window - self.reserve_tokens
        )
        return _find_least(limit, resolve_threshold(self.threshold, limit), room)

    @property
    def message_budget(self) -> int | None:
        """Tokens that messages may take: the base, or with tools the share `safety` of what they leave."""
        base = self.base
        return (
            base
            if base is None or not self.tools
            else max(1, math.floor((base - self.tools) * self.safety))
        )

    @property
    def render_budget(self) -> int | None:
        """The budget of a render in tokens, tool definitions included.

        A larger request overflows.
        """
        messages = self.message_budget
        return None if messages is None else messages + self.tools

    def ratio(self, tokens: int | None) -> float | None:
        """Return the share of `render_budget` that a request of `tokens` takes, tool definitions included.

        None where either is unknown.

        Compaction thresholds are compared with it. Above 1 a request overflows, with any tools.
        """
        full = self.render_budget
        return None if full is None or tokens is None else tokens / full

    @property
    def summary_tokens(self) -> int:
        """The most tokens that a summary may have: a fifth of the message budget, and 16,384 at most.

        With more room a model copies the messages instead of summarizing them.
        """
        messages = self.message_budget
        share = None if messages is None else messages // _SUMMARY_FRACTION
        return max(1, _find_least(_SUMMARY_TOKENS, self.max_output_tokens, share) or 0)

    @property
    def result_tokens(self) -> int | None:
        """The most tokens that one tool result may have: half of the message budget."""
        messages = self.message_budget
        return None if messages is None else max(1, messages // _RESULT_FRACTION)

    def explain(self) -> str:
        """Describe in one line how the figures came about.

        >>> print(ContextBudget(window=16_000, reserved_output_tokens=4_000, tools=1_000).explain())
        12,000 tokens: a window of 16,000, less 4,000 for the reply; 1,000 for tools and 0.9 of the rest, 9,900, for messages; \
overflows above 10,900
        """
        base = self.base
        if base is None:
            return "unknown: no window is known, and nothing is compacted unless it is asked for"
        text = f"{base:,} tokens: {'; '.join(self._steps())}"
        if self.tools:
            text += f"; {self.tools:,} for tools and {self.safety:g} of the rest, {self.message_budget or 0:,}, for messages"
        return f"{text}; overflows above {self.render_budget or 0:,}"

    __str__ = explain

    def _steps(self) -> list[str]:
        owner = f"{self.model} has a" if self.model else "a"
        chosen, resolved = self._chosen_tokens, resolve_threshold(self.threshold, self.limit)
        share = (
            "" if self.threshold is None or self.threshold > 1 else f"{self.threshold:g} of it, "
        )
        steps = [
            "no window is known"
            if self.window is None
            else f"{owner} window of {self.window:,}, less {self.output_reserve or 0:,} for the reply",
            None if self.max_input is None else f"at most {self.max_input:,} of input",
            None if chosen is None or chosen != self.limit else f"the chosen limit {chosen:,}",
            None if resolved is None else f"the threshold is {share}{resolved:,}",
            None
            if self.reserve_tokens is None or self.window is None
            else f"{self.reserve_tokens:,} kept free",
        ]
        return [step for step in steps if step]

    @property
    def _chosen_tokens(self) -> int | None:
        chosen = self.max_tokens
        return (
            None
            if chosen is None or isinstance(chosen, bool) or not 1 <= chosen < math.inf
            else int(chosen)
        )


@attrs.frozen
class RenderBudget:
    """The limit of a single render."""

    tokens: int
    """The most tokens of the messages and the tool definitions."""
    explanation: str
    """How the limit came about, in one line."""

    def explain(self) -> str:
        """Describe in one line how the limit came about."""
        return self.explanation

    __str__ = explain


def resolve_render_budget(
    budget: int | str | ContextBudget | None,
    *,
    model: str | NamedModel | None,
    tokenizer: Tokenizer,
    tools: Sequence[AnyTool],
    reserved_output_tokens: int | str | None = None,
) -> RenderBudget:
    """Return the limit of a single render that a caller's `budget=` means.

    A number is exactly the limit. The render itself reports tools that do not fit.

    Args:
        budget: A number of tokens, text such as `"8k"`, or a ContextBudget. None: what the model
            takes; without a model DEFAULT_BUDGET.
        model: The model's name, or an object with a `name`.
        tokenizer: Counts the tool definitions.
        tools: The tools that the request offers.
        reserved_output_tokens: Tokens kept free for the reply. Default: what the model can write,
            at most a quarter of the window.

    Raises:
        TypeError: `budget` is none of these.
        InvalidArgumentError: A figure is out of its range, the text is not a number of tokens, or
            the ContextBudget has no limit.
        UnknownModelError: Neither a budget nor the model's window is known.

    >>> resolve_render_budget("8k", model=None, tokenizer=tokenizer_for("gpt-5"), tools=[]).tokens
    8000
    """
    if isinstance(reserved_output_tokens, str):
        reserved_output_tokens = parse_tokens(reserved_output_tokens)
    if isinstance(budget, ContextBudget):
        if reserved_output_tokens is not None:
            _refuse("give reserved_output_tokens to the ContextBudget, and not beside it")
        limit = budget.render_budget
        if limit is None:
            _refuse(
                "budget has no limit: write ContextBudget(max_tokens=8_000), or give it a window"
            )
        return RenderBudget(limit, budget.explain())
    steps = ", the default without a budget or a model"
    tokens = max(0, DEFAULT_BUDGET - (reserved_output_tokens or 0))
    if budget is not None:
        tokens, steps = read_budget(budget), ", as given"
    elif model is not None:
        name = model_name(model)
        model_info(name)  # raises UnknownModelError
        known = ContextBudget.for_model(name, reserved_output_tokens=reserved_output_tokens)
        if known.window is None or known.limit is None:
            raise UnknownModelError(name, f"No window is known for {name!r}.")
        tokens = known.limit
        steps = f": {name} has a window of {known.window:,} tokens, less {known.output_reserve or 0:,} for the reply"
        if known.max_input is not None:
            steps += f", and takes at most {known.max_input:,} of input"
    overhead = tokenizer.count_overhead(tool_definitions(tools)).tokens
    inside = f"; {overhead:,} of them for the request and its tools" if overhead else ""
    return RenderBudget(tokens, f"{tokens:,} tokens{steps}{inside}")


def resolve_budget(
    budget: int | str | ContextBudget | None,
    *,
    model: str | NamedModel | None = None,
    tokenizer: Tokenizer | None = None,
    tools: Sequence[AnyTool] = (),
) -> ContextBudget:
    """Return the budget of a conversation that a caller's `budget=` means.

    Args:
        budget: A number of tokens, text such as `"8k"`, a ContextBudget, in which the tools are
            counted unless it says what they take, or None. A number lowers the limit that the
            model's window sets.
        model: The model's name, or an object with a `name`. It gives the window.
        tokenizer: Counts the tool definitions. Default: the model's tokenizer.
        tools: The tools that every request offers.

    Raises:
        TypeError: `budget` is none of these.
        InvalidArgumentError: A figure is out of its range, or the text is not a number of tokens.
        ToolsFillBudgetError: The tool definitions leave nothing for messages.

    >>> resolve_budget("8k").limit
    8000
    """
    name = None if model is None else model_name(model)
    if isinstance(budget, ContextBudget):
        return (
            budget
            if budget.tools
            else attrs.evolve(budget, tools=_count_tools(tools, name, tokenizer))
        )
    tokens = None if budget is None else read_budget(budget, least=1)
    return (
        ContextBudget(max_tokens=tokens, tools=_count_tools(tools, name, tokenizer))
        if name is None
        else ContextBudget.for_model(name, tokenizer=tokenizer, tools=tools, max_tokens=tokens)
    )


def _count_tools(tools: Sequence[AnyTool], model: str | None, tokenizer: Tokenizer | None) -> int:
    """Count the tokens of tool definitions, with the framing of the request; 0 if there are none."""
    definitions = tool_definitions(tools)
    return (
        (tokenizer or tokenizer_for(model)).count_overhead(definitions).tokens if definitions else 0
    )


def read_budget(budget: object, *, least: int = 0) -> int:
    """Return the tokens of a budget that is a whole number or a text such as `"8k"`.

    Refuse anything else.
    """
    if isinstance(budget, str):
        budget = parse_tokens(budget)
    if isinstance(budget, bool) or not isinstance(budget, int | float):
        raise TypeError(
            f"budget must be a number of tokens, text such as '8k', or a ContextBudget, not {budget!r:.80}."
        )
    if not least <= budget < math.inf:  # refuses NaN too
        _refuse(f"budget must be at least {least} tokens, and finite, not {budget}")
    if budget != int(budget):
        _refuse(f"budget must be a whole number of tokens, such as {int(budget):,}, not {budget}")
    return int(budget)


@attrs.frozen(kw_only=True)
class LearnedBudget:
    """The budget of a model, and what the provider's refusals of requests have taught about it.

    A figure for the window is believed, and stays. Where a refusal names none, the provider counts
    more than was counted here: a buffer is kept free. It grows with each refusal, and lapses with
    requests that succeed.
    """

    given: ContextBudget
    """The budget that was given, with the window that a refusal named."""
    buffered: int | None = None
    """The lower limit while there is a buffer, in tokens. None: there is none."""
    refused: int = 0
    """Tokens of the largest request that was refused since there is a buffer."""
    successes: int = 0
    """Requests that succeeded since the buffer changed."""

    @property
    def budget(self) -> ContextBudget:
        """The budget of the next request."""
        given = self.given
        return given if self.buffered is None else attrs.evolve(given, max_tokens=self.buffered)

    def after_refusal(
        self, refused: int, *, window: int | None = None, least: int = 0
    ) -> LearnedBudget:
        """Return what is known after the provider refused a request as too large.

        The limit is below `refused`, unless that would be below half of a known window, or below
        `least`: then the refusal is about that request, and teaches nothing besides the window.

        Args:
            refused: Tokens of the refused request, as counted here.
            window: The context window in tokens, if the provider's error names it.
            least: Tokens that every smaller request has, too.

        Raises:
            ContextWindowFullError: The window leaves nothing beside the tool definitions.
        """
        learned = self._with_window(refused, window)
        given, limit = learned.given, learned.budget.limit
        if limit is not None and limit < refused:
            return learned
        # what messages may take is a share of the limit beside tools
        beside = math.ceil(max(0, least - given.tools) / given.safety)
        floor = max(given.tools + max(1, beside), 0 if given.window is None else given.window // 2)
        buffered = max(floor, int(refused * BUFFER_STEP))
        return (
            learned
            if buffered >= refused
            else attrs.evolve(
                learned, buffered=buffered, refused=max(refused, learned.refused), successes=0
            )
        )

    def after_success(self) -> LearnedBudget:
        """Return what is known after a request succeeded: now and then the buffer is smaller."""
        if self.buffered is None:
            return self
        if self.successes + 1 < LAPSE_SUCCESSES:
            return attrs.evolve(self, successes=self.successes + 1)
        wider = int(self.buffered / BUFFER_STEP)
        full = self.refused if self.given.limit is None else self.given.limit
        return (
            LearnedBudget(given=self.given)
            if wider >= full
            else attrs.evolve(self, buffered=wider, successes=0)
        )

    def _with_window(self, refused: int, window: int | None) -> LearnedBudget:
        """Return the same with the window that the provider named, if that is a smaller one."""
        given = self.given
        if window is None or window <= 0 or (given.window is not None and window >= given.window):
            return self
        try:
            given = attrs.evolve(
                given,
                window=window,
                reserved_output_tokens=_below(given.reserved_output_tokens, window),
                reserve_tokens=_below(given.reserve_tokens, window),
            )
        except (ToolsFillBudgetError, InvalidArgumentError) as error:
            raise ContextWindowFullError(
                f"the provider refused a request of {refused:,} tokens, and no smaller one is possible: {error}"
            ) from error
        return attrs.evolve(self, given=given)


def _find_least(*sizes: int | None) -> int | None:
    return min((size for size in sizes if size is not None), default=None)


def _below(tokens: int | None, window: int) -> int | None:
    return tokens if tokens is not None and tokens < window else None


def resolve_threshold(
    value: float | None, limit: int | None, *, setting: str = "threshold"
) -> int | None:
    """Return a threshold in tokens, or None where there is none: nothing was set, or a share of an unknown limit.

    Args:
        value: Up to 1 a share of the limit, 1 being all of it; from 100 on tokens, which may exceed
            the limit.
        limit: The limit in tokens; None if it is unknown.
        setting: The name of the setting, for the error.

    Raises:
        InvalidArgumentError: The value lies between 1 and 100.
    """
    if value is None or not value > 0:  # NaN is not above 0 either
        return None
    if value <= 1:
        return None if limit is None else max(1, math.floor(limit * value))
    if value < _MIN_THRESHOLD_TOKENS:
        raise InvalidArgumentError(
            f"{setting}={value:g} is neither a share nor a number of tokens: "
            f"write a ratio above 0 and up to 1 ({value / 100:g} for {value:g} %), or at least 100 tokens."
        )
    return limit if math.isinf(value) else int(value)


def fit_reserve(window: int, reserve_tokens: int = DEFAULT_RESERVE) -> int:
    """Return how many tokens of a window to keep free by default: `reserve_tokens`, or 15 % of a window that is not larger than that."""
    return (
        reserve_tokens if reserve_tokens < window else max(1, math.floor(window * _RESERVE_SHARE))
    )


def _refuse(problem: str) -> NoReturn:
    raise InvalidArgumentError(f"{problem}.")
