"""Settings that a model of Anthropic accepts, read from its name.

The Messages API refuses a setting that the model does not have with 400, and which it has changes
from generation to generation. The facts are those of Anthropic's pages "Thinking", "Effort",
"Preserved thinking" and "What's new" of each model, of October 2026.
"""

from __future__ import annotations

import re
from typing import Literal

import attrs

from promptkit.errors import UnknownModelError
from promptkit.providers.model import Effort
from promptkit.tokens import model_info


@attrs.frozen(kw_only=True)
class Capabilities:
    """The settings that a model accepts."""

    thinking: Literal["budget", "adaptive"] = "adaptive"
    """How thinking is asked for: with a number of tokens, or with an effort, by which the model
    decides itself."""

    off: Literal["disabled", "between_tools"] | None = None
    """The value of `thinking.type` that switches thinking off. None: it always thinks."""

    efforts: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
    """The efforts that it knows, the lowest first."""

    forced_calls: bool = True
    """Whether a request may force a tool call."""

    prefill: bool = False
    """Whether the last message may be the beginning of its reply."""

    bound: bool = False
    """Whether a thinking block is refused once anything before it has changed ("preserved
    thinking")."""


_VERSION = re.compile(
    r"claude-(?:(?P<family>[a-z]+)-)?(?P<major>\d{1,2})(?!\d)(?:[-.](?P<minor>\d{1,2})(?!\d))?"
)
"""The family and the version in names such as `claude-opus-5-5`, `claude-3-7-sonnet-20250219` and
`us.anthropic.claude-haiku-4-5-v1:0`."""

_EFFORT_ORDER: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

_GENERATIONS: tuple[tuple[tuple[int, int], frozenset[str], Capabilities], ...] = (
    ((5, 1), frozenset({"haiku"}), Capabilities(off="disabled", bound=True)),
    (
        (5, 1),
        frozenset({"sonnet"}),
        Capabilities(off="between_tools", forced_calls=False, bound=True),
    ),
    ((5, 1), frozenset(), Capabilities(forced_calls=False, bound=True)),
    ((4, 7), frozenset({"fable", "mythos"}), Capabilities()),
    ((4, 7), frozenset(), Capabilities(off="disabled")),
    ((4, 6), frozenset(), Capabilities(off="disabled", efforts=("low", "medium", "high", "max"))),
    (
        (0, 0),
        frozenset(),
        Capabilities(thinking="budget", off="disabled", efforts=(), prefill=True),
    ),
)
"""The first version, the families (empty: all others), and what they accept, the newest first."""

_OUTPUT_TOKENS, _UNKNOWN_OUTPUT_TOKENS = 32_000, 8_192
"""The output limits of a request that sets none: of models that are known, and of others, which may
not accept more."""


def capabilities_of(name: str) -> Capabilities:
    """Return the settings that a model accepts.

    A name without a version, such as that of another maker's model, gets what most accept.
    """
    match = _VERSION.search(name)
    if match is None:
        return Capabilities(off="disabled")
    family, version = match["family"], (int(match["major"]), int(match["minor"] or 0))
    return next(
        known
        for first, families, known in _GENERATIONS
        if version >= first and (not families or family in families)
    )


def nearest_effort(effort: Effort, known: Capabilities) -> Effort:
    """Return the effort itself if the model knows it, otherwise the next lower one, or else its lowest."""
    order = _EFFORT_ORDER.index
    lower: list[Effort] = [each for each in known.efforts if order(each) <= order(effort)]
    return lower[-1] if lower else known.efforts[0]


def default_output_tokens(name: str) -> int:
    """Return the output limit of a request that sets none, in tokens: 32,000, or the most that the model can write; 8,192 for other models."""
    try:
        known = model_info(name).max_output_tokens
    except UnknownModelError:
        known = None
    return _UNKNOWN_OUTPUT_TOKENS if known is None else min(known, _OUTPUT_TOKENS)
