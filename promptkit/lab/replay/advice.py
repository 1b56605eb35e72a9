"""Recommend a preset for a user's own recordings: the cheapest that shows the model nearly as much as the default does.

The candidates are played on every conversation. Of those without an overflow, an invalid request,
more waits than the default or noticeably fewer of the lines that answers quote, the cheapest is
recommended. The saving is stated with the interval in which it lies for other sessions like these (a
bootstrap): sessions are drawn again at random, the choice is made anew on each draw, and its saving
is measured on another draw. A session is a file, since its conversations are alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import attrs

from promptkit.lab.replay.results import FileResult, PolicyResult
from promptkit.lab.replay.runner import ReplayOptions

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
"""The largest decrease, against the default, of the share of quoted lines that requests show."""

LEAST_SAVING = 0.03
"""Share of the price that another preset must save, or the default stays."""

MIN_COMPACTED = 8
"""Sessions that the default or the candidate compacts, below which nothing is recommended."""

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
    sessions: int
    """The number of sessions."""
    compacted: int
    """Sessions that either of the two compacts; those that any candidate compacts, where the default
    is recommended."""
    lookups: int = 0
    """Look-ups in the prices for each answer that lacks a line."""

    @property
    def is_certain(self) -> bool:
        """Whether the recordings suffice to tell that the recommended preset is cheaper."""
        return self.policy != DEFAULT and self.compacted >= MIN_COMPACTED and self.interval[0] > 0

    @property
    def needed(self) -> int | None:
        """About how many sessions like these it would take to tell; None if these suffice, or if nothing is saved."""
        if self.is_certain or (self.policy == DEFAULT and self.compacted >= MIN_COMPACTED):
            return None
        share = self.compacted / max(1, self.sessions)
        least = math.ceil(MIN_COMPACTED / share) if share else None
        if self.policy == DEFAULT or least is None:
            return least
        # The width of the interval falls with the root of the number of sessions.
        below = max(0.0, self.saving - self.interval[0])
        return max(least, math.ceil(self.sessions * (below / self.saving) ** 2))

    def to_json(self) -> dict[str, object]:
        """Return the recommendation as JSON values."""
        return {
            **attrs.asdict(self),
            "certain": self.is_certain,
            "needed": self.needed,
            "code": format_code(self.policy),
        }

    def describe(self) -> str:
        """Return the recommendation as sentences, with the line of code."""
        needed = f" It takes some {self.needed:,} sessions like these." if self.needed else ""
        head = f"{self.window:,} tokens: "
        lookups = (
            f" with {self.lookups:,} look-up{'s' * (self.lookups != 1)} for each answer that lacks a line"
            if self.lookups
            else ""
        )
        figures = f"${self.price:,.3f} instead of ${self.default_price:,.3f}{lookups}"
        if self.policy == DEFAULT and self.compacted < MIN_COMPACTED:
            return (
                f"{head}the recordings are too few to tell. Only {self.compacted:,} of the {self.sessions:,} sessions are long enough to be compacted: "
                f"stay with {DEFAULT}.{needed}"
            )
        if self.policy == DEFAULT:
            return f"{head}stay with {DEFAULT}. No other preset saves {LEAST_SAVING:.0%} and shows nearly as much."
        if not self.is_certain:
            return (
                f"{head}the recordings are too few to tell. {self.policy} costs {figures} here, but only {self.compacted:,} of the "
                f"{self.sessions:,} sessions are long enough to be compacted, and the saving lies between {self.interval[0]:.0%} and "
                f"{self.interval[1]:.0%}.{needed}"
            )
        return (
            f"{head}use {self.policy}. It costs {figures}: {self.saving:.0%} less, between {self.interval[0]:.0%} and {self.interval[1]:.0%} "
            f"for other sessions like these, by {self.compacted:,} that are compacted; requests show {self.quoted:.1%} of the earlier lines that "
            f"answers quote, and {self.default_quoted:.1%} with {DEFAULT}.\n\n    {format_code(self.policy)}"
        )


def format_code(policy: str) -> str:
    """Return the argument of a session that chooses a policy, which is a preset with settings."""
    name, *pairs = policy.split(":")
    return (
        f'AgentSession(…, preset="{name}")'
        if not pairs
        else f"AgentSession(…, preset=break_even(BreakEven({', '.join(pairs)})))  # from promptkit.compaction.presets.{name}"
    )


def advise(files: Sequence[FileResult], options: ReplayOptions) -> Advice:
    """Recommend one of the candidates for the window of the options.

    Args:
        files: The result of each file, which is a session, under each of `CANDIDATES`, in their order.
        options: The options of the replay.
    """
    sessions = [each.policies for each in files]
    figures = [tuple(map(_Figures.of, each)) for each in sessions]
    total = _add_up(figures)
    place = _choose(total)
    places = (0, place) if place else range(len(CANDIDATES))
    return Advice(
        window=options.rules.window,
        policy=CANDIDATES[place],
        saving=_saving(total, place),
        interval=_find_interval(figures),
        price=total[place].price,
        default_price=total[0].price,
        quoted=total[place].quoted,
        default_quoted=total[0].quoted,
        sessions=len(sessions),
        compacted=sum(any(each[at].totals.checkpoints for at in places) for each in sessions),
        lookups=options.lookups,
    )


class _Figures(NamedTuple):
    """The figures of one candidate by which a choice is made. Only these are added up for each sample."""

    price: float
    overflows: int
    invalid: int
    waits: int
    lines_used: int
    lines_shown: int

    @classmethod
    def of(cls, result: PolicyResult) -> _Figures:
        totals = result.totals
        return cls(
            result.price_with_lookups,
            totals.overflows,
            totals.invalid_requests,
            totals.foreground_waits,
            totals.retention.lines_used,
            totals.retention.lines_shown,
        )

    @property
    def quoted(self) -> float:
        return self.lines_shown / self.lines_used if self.lines_used else 1.0


def _add_up(sessions: Sequence[Sequence[_Figures]]) -> list[_Figures]:
    """Return the sums of each candidate over sessions."""
    return [
        _Figures(*map(sum, zip(*column, strict=True))) for column in zip(*sessions, strict=True)
    ] or [_Figures(0.0, 0, 0, 0, 0, 0)] * len(CANDIDATES)


def _choose(totals: Sequence[_Figures]) -> int:
    """Return the place of the cheapest candidate that may be recommended; 0, the default, if none saves enough."""
    default = totals[0]
    best = min(
        [
            at
            for at, each in enumerate(totals)
            if each.overflows <= default.overflows
            and each.invalid <= default.invalid
            and each.waits <= default.waits
            and each.quoted >= default.quoted - MOST_LINES_LOST
        ],
        key=lambda at: totals[at].price,
    )
    return best if _saving(totals, best) >= LEAST_SAVING else 0


def _saving(totals: Sequence[_Figures], place: int) -> float:
    return 1 - totals[place].price / totals[0].price if totals[0].price else 0.0


def _find_interval(sessions: Sequence[Sequence[_Figures]]) -> tuple[float, float]:
    """Return the interval of the saving on as many other sessions like these: the choice is made on one draw, and its saving measured on another.

    The same sessions give the same interval.
    """
    if not sessions:
        return 0.0, 0.0
    draw = random.Random(0)  # noqa: S311  # samples that must be the same in every run, not a secret
    savings: list[float] = []
    for _ in range(SAMPLES):
        # What all sessions may be like, of which these are a draw, as the others are another.
        population = draw.choices(sessions, k=len(sessions))
        place = _choose(_add_up(draw.choices(population, k=len(sessions))))
        savings.append(_saving(_add_up(draw.choices(population, k=len(sessions))), place))
    savings.sort()
    outside = round((1 - INTERVAL) / 2 * SAMPLES)
    low, middle, high = savings[outside], savings[SAMPLES // 2], savings[-1 - outside]
    stretch = _stretch_interval([each[0].price for each in sessions])
    return middle - stretch * (middle - low), middle + stretch * (high - middle)


def _stretch_interval(prices: Sequence[float]) -> float:
    """Return the factor by which the interval of few draws must be wider: Student's t over the normal quantile, and the bias of a small sample.

    A few expensive sessions count as few, however many cheap ones are beside them.
    """
    squares = sum(price * price for price in prices)
    freedom = max(1.0, (sum(prices) ** 2 / squares if squares else 0.0) - 1)
    return (1 + (NormalDist().inv_cdf((1 + INTERVAL) / 2) ** 2 + 1) / (4 * freedom)) * math.sqrt(
        (freedom + 1) / freedom
    )
