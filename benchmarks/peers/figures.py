"""The figures of a comparison, and their JSON."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from benchmarks.peers.peer import OWN, Peer, select_peers
from benchmarks.peers.work import HALF

if TYPE_CHECKING:
    from benchmarks.peers.work import ShapeName

__all__ = ["BARRED", "LEAST_BAR", "Case", "Comparison", "Outcome", "Probe", "Verdict"]

BARRED: Final = "history"
"""The shape in which promptkit has to take the least time of all peers, at every size and
budget."""

LEAST_BAR: Final = 1.0
"""The upper limit of promptkit's time over that of the fastest peer."""


@attrs.frozen(kw_only=True)
class Outcome:
    """The result of one peer on one workload."""

    status: Literal["ran", "over", "failed", "lacks"]
    """`over`: it exceeded the time limit; `lacks`: the peer has no feature for the shape."""
    note: str = ""
    """Why it did not run."""
    seconds: float | None = None
    """Median processor time of a run, in seconds."""
    clock: float | None = None
    """Median wall-clock time of a run, in seconds."""
    floor: float | None = None
    """Median processor time to tokenise every text once, with the peer's own tokenizer in its own
    process."""
    runs: int = 0
    kept: int = 0
    tokens: int = 0
    """Tokens of the result, counted exactly."""
    claim: int | None = None
    """Tokens of the result as the peer counts them."""
    faults: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Probe:
    """How often the results were right, over several budgets of a small workload: a single budget may hide a fault."""

    budgets: int
    fits: int
    sound: int
    faults: Mapping[str, int]
    """Fault → number of budgets."""


@attrs.frozen(kw_only=True)
class Case:
    """One workload, and the result of every peer."""

    shape: ShapeName
    size: int
    tokens: int
    budget: int
    most: int
    """The number of newest items that fit. A peer that keeps more exceeds the budget."""
    outcomes: Mapping[str, Outcome]
    at: str = HALF
    """The name of the budget."""

    @property
    def name(self) -> str:
        """The size, and the budget where a size has several."""
        return f"{self.size:,} at {self.at}" if self.shape == BARRED else f"{self.size:,}"

    def fastest(self) -> str | None:
        """Return the fastest peer besides promptkit. None: no other peer has a time."""
        times = {
            name: outcome.seconds
            for name, outcome in self.outcomes.items()
            if name != OWN and outcome.seconds
        }
        return min(times, key=times.__getitem__, default=None)

    def over_own(self, name: str) -> float | None:
        """Return the time of a peer divided by that of promptkit in the same run.

        None: one of them has no time.
        """
        own, its = self.outcomes.get(OWN), self.outcomes[name].seconds
        return its / own.seconds if own and own.seconds and its else None

    def over_floor(self, name: str) -> float | None:
        """Return the time of a peer divided by that of tokenising every text once.

        None: it has no time.
        """
        outcome = self.outcomes[name]
        return outcome.seconds / outcome.floor if outcome.seconds and outcome.floor else None


@attrs.frozen(kw_only=True)
class Verdict:
    """A figure that has a bar: promptkit's time over that of the fastest peer."""

    case: str
    peer: str
    figure: float
    bar: float = LEAST_BAR

    @property
    def missed(self) -> bool:
        """True if promptkit took longer."""
        return self.figure > self.bar


@attrs.frozen(kw_only=True)
class Comparison:
    """All figures of a run."""

    peers: Sequence[Peer]
    cases: Sequence[Case]
    probes: Mapping[str, Mapping[str, Probe]]
    """Shape → peer → how often its results were right."""
    probe_size: int
    rounds: int
    limit: float
    node: str
    python: str = attrs.field(factory=platform.python_version)
    machine: str = attrs.field(factory=lambda: f"{platform.system()} {platform.machine()}")

    def verdicts(self) -> list[Verdict]:
        """Return promptkit's time over that of the fastest peer, for each case that has a bar and both times."""
        return [
            Verdict(case=f"{case.shape}, {case.name}", peer=peer, figure=1 / over)
            for case in self.cases
            if case.shape == BARRED and (peer := case.fastest()) and (over := case.over_own(peer))
        ]

    def to_json(self) -> dict[str, Any]:  # Any: JSON
        """Return all figures, the ratios and the bars as a JSON object."""
        told = attrs.asdict(self, filter=lambda attribute, _: attribute.name != "peers")
        for case, shown in zip(self.cases, told["cases"], strict=True):
            for name, outcome in shown["outcomes"].items():
                outcome |= {
                    "over_promptkit": case.over_own(name),
                    "over_floor": case.over_floor(name),
                }
        told["peers"] = {
            peer.name: {
                "title": peer.title,
                "packages": list(peer.packages),
                "tokenizer": peer.tokenizer,
                "use": peer.use,
            }
            for peer in self.peers
        }
        told["bars"] = [
            {**attrs.asdict(verdict), "missed": verdict.missed} for verdict in self.verdicts()
        ]
        return told

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Comparison:  # Any: JSON
        """Create a comparison from what `to_json` returned.

        Raises UnknownPeerError for a peer that no longer exists.
        """
        cases: list[Case] = []
        for case in told["cases"]:
            # Any stands for JSON
            fields: dict[str, Any] = {
                **case,
                "outcomes": {name: _outcome(**each) for name, each in case["outcomes"].items()},
            }
            cases.append(Case(**fields))
        probes = {
            shape: {name: Probe(**each) for name, each in found.items()}
            for shape, found in told["probes"].items()
        }
        # Any stands for JSON
        everything: dict[str, Any] = {
            **told,
            "peers": select_peers(told["peers"]),
            "cases": cases,
            "probes": probes,
        }
        everything.pop("bars", None)  # they follow from the times
        return cls(**everything)


def _outcome(*, over_promptkit: float | None, over_floor: float | None, **given: Any) -> Outcome:  # noqa: ANN401  # Any: JSON
    _ = over_promptkit, over_floor  # they follow from the times
    fields: dict[str, Any] = {**given, "faults": tuple(given["faults"])}  # Any: JSON
    return Outcome(**fields)
