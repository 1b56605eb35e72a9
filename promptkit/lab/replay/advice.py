"""Recommend a preset for a user's own recordings: the cheapest that shows the model nearly as much as the default does.

The candidates are played on every conversation. Of those without an overflow, an invalid request,
more waits than the default or noticeably fewer of the lines that answers quote, the cheapest is
recommended. The saving is stated with the interval in which it lies when the conversations are
drawn again at random (a bootstrap), since a few conversations can make any preset look cheap.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import attrs

from promptkit.lab.replay.runner import ReplayOptions, sum_results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.lab.replay.results import FileResult, PolicyResult

DEFAULT = "vscode"
"""The default preset of sessions."""

CANDIDATES = (
    DEFAULT,
    "copilot_cli",
    "pi",
    "oh_my_pi",
    "claude_code",
    "codex",
    "opencode",
    "break_even",
    "break_even:beta=1",
    "break_even:beta=3",
    "break_even:tail_tokens=0",
)
"""The presets and settings that are compared."""

MOST_LINES_LOST = 0.03
"""How much lower the share of quoted lines that requests show may be than with the default."""

LEAST_SAVING = 0.03
"""Share of the price that another preset must save, or the default stays."""

MIN_COMPACTED = 8
"""Conversations that the default or the candidate compacts, below which nothing is recommended."""

SAMPLES, INTERVAL = 1_000, 0.90
"""Samples of the bootstrap, and the share of them that the interval contains."""


@attrs.frozen(kw_only=True)
class Advice:
    """What is recommended for one context window."""

    window: int
    """The context window in tokens."""
    policy: str
    """The recommended preset, with its settings."""
    saving: float
    """Share of the default's price that it saves."""
    interval: tuple[float, float]
    """The interval of that share."""
    price: float
    """US dollars with the recommended preset, look-ups included."""
    default_price: float
    """US dollars with the default, look-ups included."""
    quoted: float
    """Share of the earlier lines that answers quote which requests show."""
    default_quoted: float
    """The same share with the default."""
    compacted: int
    """Conversations that either of the two compacts; those that any candidate compacts, where the
    default is recommended."""
    lookups: int = 0
    """Look-ups in the prices for each answer that lacks a line."""

    @property
    def is_certain(self) -> bool:
        """Whether the recordings suffice to tell that the recommended preset is cheaper."""
        return self.policy != DEFAULT and self.compacted >= MIN_COMPACTED and self.interval[0] > 0

    def describe(self) -> str:
        """Return the recommendation as sentences, with the line of code."""
        head = f"{self.window:,} tokens: "
        figures = f"${self.price:,.3f} instead of ${self.default_price:,.3f}"
        if self.lookups:
            figures += f" with {self.lookups:,} look-up{'s' * (self.lookups != 1)} for each answer that lacks a line"
        shown = f"requests show {self.quoted:.1%} of the earlier lines that answers quote, and {self.default_quoted:.1%} with {DEFAULT}"
        if self.policy == DEFAULT and self.compacted < MIN_COMPACTED:
            return (
                f"{head}the recordings are too few to tell. Only {self.compacted:,} of the conversations are long enough to be compacted: "
                f"stay with {DEFAULT}."
            )
        if self.policy == DEFAULT:
            return f"{head}stay with {DEFAULT}. No other preset saves {LEAST_SAVING:.0%} and shows nearly as much."
        if not self.is_certain:
            return (
                f"{head}the recordings are too few to tell. {self.policy} costs {figures} here, but only {self.compacted:,} of the "
                f"conversations are long enough to be compacted, and the saving lies between {self.interval[0]:.0%} and "
                f"{self.interval[1]:.0%}."
            )
        return (
            f"{head}use {self.policy}. It costs {figures}: {self.saving:.0%} less, between {self.interval[0]:.0%} and {self.interval[1]:.0%} "
            f"for other conversations like these; {shown}.\n\n    {format_code(self.policy)}"
        )


def format_code(policy: str) -> str:
    """Return the argument of a session that chooses a policy, which is a preset with settings."""
    name, *pairs = policy.split(":")
    if not pairs:
        return f'AgentSession(…, preset="{name}")'
    return f"AgentSession(…, preset=break_even(BreakEven({', '.join(pairs)})))  # from promptkit.compaction.presets.{name}"


def advise(conversations: Sequence[FileResult], options: ReplayOptions) -> Advice:
    """Recommend one of the candidates for the window of the options.

    Args:
        conversations: The result of each conversation under each of `CANDIDATES`, in their order.
        options: The options of the replay.
    """
    chosen = attrs.evolve(options, policies=CANDIDATES)
    totals = {each.policy: each for each in sum_results(conversations, chosen, file="").policies}
    default = totals[DEFAULT]
    allowed = [result for result in totals.values() if _is_allowed(result, default)]
    best = min(allowed, key=lambda result: result.price_with_lookups)
    saving = _saving(default.price_with_lookups, best.price_with_lookups)
    if saving < LEAST_SAVING:
        best, saving = default, 0.0
    place = CANDIDATES.index(best.policy)
    pairs = [
        (each.policies[0].price_with_lookups, each.policies[place].price_with_lookups)
        for each in conversations
    ]
    places = (0, place) if place else range(len(CANDIDATES))
    compacted = sum(
        any(each.policies[at].totals.checkpoints for at in places) for each in conversations
    )
    return Advice(
        window=options.rules.window,
        policy=best.policy,
        saving=saving,
        interval=_find_interval(pairs),
        price=best.price_with_lookups,
        default_price=default.price_with_lookups,
        quoted=best.shown["quoted"],
        default_quoted=default.shown["quoted"],
        compacted=compacted,
        lookups=options.lookups,
    )


def _is_allowed(result: PolicyResult, default: PolicyResult) -> bool:
    totals, limits = result.totals, default.totals
    return (
        totals.overflows <= limits.overflows
        and totals.invalid_requests <= limits.invalid_requests
        and totals.foreground_waits <= limits.foreground_waits
        and result.shown["quoted"] >= default.shown["quoted"] - MOST_LINES_LOST
    )


def _saving(default: float, price: float) -> float:
    return 1 - price / default if default else 0.0


def _find_interval(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the interval of the saving over conversations that are drawn again from these.

    The same pairs give the same interval.
    """
    draw = random.Random(0)  # noqa: S311  # samples that must be the same in every run, not a secret
    savings: list[float] = []
    for _ in range(SAMPLES):
        sample = draw.choices(pairs, k=len(pairs))
        savings.append(
            _saving(sum(default for default, _ in sample), sum(price for _, price in sample))
        )
    savings.sort()
    outside = round((1 - INTERVAL) / 2 * SAMPLES)
    return savings[outside], savings[-1 - outside]
