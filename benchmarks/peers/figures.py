"""The figures of a comparison, as they are written to JSON and shown in tables."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs

from benchmarks.peers.peer import OWN, Peer, chosen

if TYPE_CHECKING:
    from benchmarks.peers.work import ShapeName

__all__ = ["Case", "Comparison", "Outcome", "Probe"]


@attrs.frozen(kw_only=True)
class Outcome:
    """What one peer did with one workload."""

    status: Literal["ran", "over", "failed", "lacks"]
    """`over`: it took longer than the limit; `lacks`: the peer has nothing for the shape."""
    note: str = ""
    """What happened where it did not run."""
    seconds: float | None = None
    """Median processor time of a run."""
    clock: float | None = None
    """The same on the clock."""
    floor: float | None = None
    """Median processor time of tokenising every text once, with the peer's own tokenizer in the peer's own process."""
    runs: int = 0
    kept: int = 0
    tokens: int = 0
    """What the result costs, counted exactly."""
    claim: int | None = None
    """What the peer says that it costs."""
    faults: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Probe:
    """How often results were right, over several budgets of a small workload: one budget may hide a fault by luck."""

    budgets: int
    fits: int
    sound: int
    faults: Mapping[str, int]
    """Fault → how often."""


@attrs.frozen(kw_only=True)
class Case:
    """One workload and what every peer did with it."""

    shape: ShapeName
    size: int
    tokens: int
    budget: int
    most: int
    """The newest items that fit, so that no peer can keep more without being over."""
    outcomes: Mapping[str, Outcome]

    def over_own(self, name: str) -> float | None:
        """The time of a peer over that of promptkit, in the same run; None where either has no time."""
        own, its = self.outcomes.get(OWN), self.outcomes[name].seconds
        return its / own.seconds if own and own.seconds and its else None

    def over_floor(self, name: str) -> float | None:
        """The time of a peer over that of tokenising every text once; None where it has no time."""
        outcome = self.outcomes[name]
        return outcome.seconds / outcome.floor if outcome.seconds and outcome.floor else None


@attrs.frozen(kw_only=True)
class Comparison:
    """A whole run."""

    peers: Sequence[Peer]
    cases: Sequence[Case]
    probes: Mapping[str, Mapping[str, Probe]]
    """Shape → peer → how often it was right."""
    probe_size: int
    rounds: int
    limit: float
    node: str
    python: str = attrs.field(factory=platform.python_version)
    machine: str = attrs.field(factory=lambda: f"{platform.system()} {platform.machine()}")

    def to_json(self) -> dict[str, Any]:  # Any: JSON
        """Everything, and the ratios."""
        told = attrs.asdict(self, filter=lambda attribute, _: attribute.name != "peers")
        for case, shown in zip(self.cases, told["cases"], strict=True):
            for name, outcome in shown["outcomes"].items():
                outcome |= {"over_promptkit": case.over_own(name), "over_floor": case.over_floor(name)}
        told["peers"] = {
            peer.name: {"title": peer.title, "packages": list(peer.packages), "tokenizer": peer.tokenizer, "use": peer.use}
            for peer in self.peers
        }
        return told

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Comparison:  # Any: JSON
        """A comparison as `to_json` wrote it. Raises UnknownPeerError for a peer that there is no longer."""
        cases: list[Case] = []
        for case in told["cases"]:
            fields: dict[str, Any] = {**case, "outcomes": {name: _outcome(**each) for name, each in case["outcomes"].items()}}  # Any: JSON
            cases.append(Case(**fields))
        probes = {shape: {name: Probe(**each) for name, each in found.items()} for shape, found in told["probes"].items()}
        everything: dict[str, Any] = {**told, "peers": chosen(told["peers"]), "cases": cases, "probes": probes}  # Any: JSON
        return cls(**everything)


def _outcome(*, over_promptkit: float | None, over_floor: float | None, **given: Any) -> Outcome:  # noqa: ANN401  # Any: JSON
    _ = over_promptkit, over_floor  # they follow from the times
    fields: dict[str, Any] = {**given, "faults": tuple(given["faults"])}  # Any: JSON
    return Outcome(**fields)
