"""The runs: every peer on every workload, in turns, so that a slow moment of the machine hits all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import attrs

from benchmarks.peers.figures import Case, Outcome, Probe
from benchmarks.peers.speaker import Answer, Speaker, SpeakerError, TooLongError
from benchmarks.peers.verdict import OVER, judge
from benchmarks.peers.work import ShapeName, Work, make

if TYPE_CHECKING:
    from benchmarks.peers.peer import Peer

__all__ = ["SHARES", "Entrant", "probe", "race"]

SHARES: Final = tuple(0.4 + 0.2 * step / 99 for step in range(100))
"""The budgets of a probe, as shares of all tokens: many, as a fault may show at a few of them only."""
LONG: Final = 10
"""A run that takes more than the limit through this is not only a warm-up: it counts."""


@attrs.define(eq=False)
class Entrant:
    """A peer in the race."""

    peer: Peer
    speaker: Speaker | None
    note: str = ""
    """Why there is no speaker: the peer could not be installed."""
    stopped: dict[str, Outcome] = attrs.field(factory=dict[str, Outcome])
    """Shape → what it came to, where nothing more of it is tried."""

    def ended(self, shape: ShapeName) -> Outcome | None:
        """What is known of a shape without a run."""
        if self.speaker is None:
            return Outcome(status="failed", note=self.note)
        if shape in self.peer.lacks:
            return Outcome(status="lacks", note=self.peer.lacks[shape])
        return self.stopped.get(shape)

    def ask(self, work: Work, file: Path, limit: float) -> Answer | None:
        """One run; None if it failed or took too long, after which no more of its shape is tried."""
        if self.speaker is None:
            return None
        try:
            return self.speaker.ask(file, limit)
        except TooLongError as error:
            self.stopped[work.shape] = Outcome(status="over", note=f"{error} at {work.size:,}")
        except SpeakerError as error:
            self.stopped[work.shape] = Outcome(status="failed", note=str(error))
        return None


@attrs.define
class Lane:
    """What an entrant did with one workload so far."""

    answers: list[Answer] = attrs.field(factory=list[Answer])
    spent: float = 0.0
    """Seconds of processor time."""


def probe(entrants: Sequence[Entrant], shape: ShapeName, size: int, folder: Path, limit: float) -> dict[str, Probe]:
    """How often each is right over the budgets of SHARES. It warms the processes up as well."""
    faults: dict[str, list[tuple[str, ...]]] = {entrant.peer.name: [] for entrant in entrants if not entrant.ended(shape)}
    whole = make(shape, size)
    for share in SHARES:
        work = attrs.evolve(whole, budget=int(whole.tokens * share))
        file = _written(work, folder)
        for entrant in entrants:
            answer = None if entrant.ended(shape) else entrant.ask(work, file, limit)
            if answer is not None:
                faults[entrant.peer.name].append(judge(work, answer.messages).faults)
    return {name: _probed(found) for name, found in faults.items() if found}


def _probed(found: Sequence[tuple[str, ...]]) -> Probe:
    return Probe(
        budgets=len(found),
        fits=sum(OVER not in faults for faults in found),
        sound=sum(not {*faults} - {OVER} for faults in found),
        faults=dict(Counter(fault for faults in found for fault in faults)),
    )


def race(  # noqa: PLR0913  # what a case is made of
    entrants: Sequence[Entrant], work: Work, *, rounds: int, folder: Path, limit: float, say: Callable[[str], object]
) -> Case:
    """One workload. Each round takes every entrant once, every other round backwards; `limit` is seconds of processor time.

    One round before the first is not counted, but for runs that take more than a tenth of the limit: these count from the first,
    and there are only as many of them as begin within the limit.
    """
    file = _written(work, folder)
    lanes = {entrant.peer.name: Lane() for entrant in entrants if not entrant.ended(work.shape)}
    for number in range(rounds + 1):
        for entrant in reversed(entrants) if number % 2 else entrants:
            lane = lanes.get(entrant.peer.name)
            if lane is None or entrant.ended(work.shape) or lane.spent > limit:
                continue
            answer = entrant.ask(work, file, limit)
            if answer is not None:
                lane.spent += answer.seconds
                if number or answer.seconds > limit / LONG:
                    lane.answers.append(answer)
        say(f"{work.shape} {work.size:,}: round {number} of {rounds}")
    outcomes = {entrant.peer.name: _outcome(entrant, lanes.get(entrant.peer.name), work) for entrant in entrants}
    return Case(shape=work.shape, size=work.size, tokens=work.tokens, budget=work.budget, most=work.most(), outcomes=outcomes)


def _outcome(entrant: Entrant, lane: Lane | None, work: Work) -> Outcome:
    """The median, and what came back last: every run of a workload is the same one."""
    if lane is None or not lane.answers:
        return entrant.ended(work.shape) or Outcome(status="failed", note="no run was counted")
    verdict = judge(work, lane.answers[-1].messages)
    return Outcome(
        status="ran",
        seconds=median(answer.seconds for answer in lane.answers),
        clock=median(answer.clock for answer in lane.answers),
        floor=median(answer.floor for answer in lane.answers),
        runs=len(lane.answers),
        kept=len(verdict.kept),
        tokens=verdict.tokens,
        claim=lane.answers[-1].claim,
        faults=verdict.faults,
    )


def _written(work: Work, folder: Path) -> Path:
    file = folder / f"{work.shape}-{work.size}-{work.budget}.json"
    file.write_text(work.to_json(), encoding="utf-8")
    return file
