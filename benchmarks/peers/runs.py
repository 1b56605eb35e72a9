"""Run every peer on every workload, in turns, so that a slow moment of the machine affects all of them alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import attrs

from benchmarks.peers.figures import Case, Outcome, Probe
from benchmarks.peers.process import AdapterError, AdapterProcess, AdapterTimeoutError, Answer
from benchmarks.peers.verdict import OVER, judge
from benchmarks.peers.work import ShapeName, Work, make_workload

if TYPE_CHECKING:
    from benchmarks.peers.peer import Peer

__all__ = ["MOST", "SHARES", "RunningPeer", "run_case", "run_probe"]

SHARES: Final = tuple(0.4 + 0.2 * step / 99 for step in range(100))
"""The budgets of a probe as shares of all tokens. They are many, because a fault may show at few
budgets only."""
LONG: Final = 10
"""A run that takes longer than the limit divided by this counts from the first round, because few
of them fit into the limit."""
SHORT: Final = 0.05
"""Seconds of processor time. Peers whose runs take less are run more often, since the median of few
short runs depends on what else the machine does."""
MOST: Final = 60
"""The rounds of these peers, with the warm-up."""


@attrs.define(eq=False)
class RunningPeer:
    """A peer and its process."""

    peer: Peer
    process: AdapterProcess | None
    note: str = ""
    """Why there is no process: the peer could not be installed."""
    stopped: dict[str, Outcome] = attrs.field(factory=dict[str, Outcome])
    """Shape → the result, if no more runs of it are tried."""

    def ended(self, shape: ShapeName) -> Outcome | None:
        """Return the result of a shape that needs no run, or None."""
        if self.process is None:
            return Outcome(status="failed", note=self.note)
        if shape in self.peer.lacks:
            return Outcome(status="lacks", note=self.peer.lacks[shape])
        return self.stopped.get(shape)

    def ask(self, work: Work, file: Path, limit: float) -> Answer | None:
        """Run once. None: it failed or took too long, and no more runs of its shape are tried."""
        if self.process is None:
            return None
        try:
            return self.process.ask(file, limit)
        except AdapterTimeoutError as error:
            self.stopped[work.shape] = Outcome(status="over", note=f"{error} at {work.size:,}")
        except AdapterError as error:
            self.stopped[work.shape] = Outcome(status="failed", note=str(error))
        return None


@attrs.define
class RunRecord:
    """The runs of a peer on one workload so far."""

    answers: list[Answer] = attrs.field(factory=list[Answer])
    spent: float = 0.0
    """Seconds of processor time."""


def run_probe(
    running: Sequence[RunningPeer], shape: ShapeName, size: int, folder: Path, limit: float
) -> dict[str, Probe]:
    """Return how often each peer is right over the budgets of SHARES.

    Warms up the processes, too.
    """
    faults: dict[str, list[tuple[str, ...]]] = {
        entry.peer.name: [] for entry in running if not entry.ended(shape)
    }
    whole = make_workload(shape, size)
    for share in SHARES:
        work = attrs.evolve(whole, budget=int(whole.tokens * share))
        file = _written(work, folder)
        for entry in running:
            answer = None if entry.ended(shape) else entry.ask(work, file, limit)
            if answer is not None:
                faults[entry.peer.name].append(judge(work, answer.messages).faults)
    return {name: _probed(found) for name, found in faults.items() if found}


def _probed(found: Sequence[tuple[str, ...]]) -> Probe:
    return Probe(
        budgets=len(found),
        fits=sum(OVER not in faults for faults in found),
        sound=sum(not {*faults} - {OVER} for faults in found),
        faults=dict(Counter(fault for faults in found for fault in faults)),
    )


def run_case(  # noqa: PLR0913  # what a case is made of
    running: Sequence[RunningPeer],
    work: Work,
    *,
    rounds: int,
    folder: Path,
    limit: float,
    report_progress: Callable[[str], object],
) -> Case:
    """Run one workload.

    Each round runs every peer once, in the same order: a peer that ran twice in a row would find its
    data in the processor's caches. After `rounds` the peers go on whose runs take less than SHORT on
    average, if they are at least two, for MOST rounds in all. `limit` is in seconds of processor
    time.

    The first round is a warm-up and is not counted, except for runs that take more than a tenth of
    the limit: these count from the first, and only as many of them run as start within the limit.
    """
    file = _written(work, folder)
    lanes = {entry.peer.name: RunRecord() for entry in running if not entry.ended(work.shape)}
    for number in range(max(rounds + 1, MOST)):
        most = limit if number <= rounds else min(limit, SHORT * number)
        due = [
            (entry, lane)
            for entry in running
            if (lane := lanes.get(entry.peer.name))
            and lane.spent <= most
            and not entry.ended(work.shape)
        ]
        if number > rounds and len(due) < 2:
            break
        for entry, lane in due:
            answer = entry.ask(work, file, limit)
            if answer is not None:
                lane.spent += answer.seconds
                if number or answer.seconds > limit / LONG:
                    lane.answers.append(answer)
        if number <= rounds:
            report_progress(f"{work.shape} {work.size:,} at {work.at}: round {number} of {rounds}")
    outcomes = {
        entry.peer.name: _outcome(entry, lanes.get(entry.peer.name), work) for entry in running
    }
    return Case(
        shape=work.shape,
        size=work.size,
        tokens=work.tokens,
        budget=work.budget,
        most=work.most(),
        outcomes=outcomes,
        at=work.at,
    )


def _outcome(entry: RunningPeer, lane: RunRecord | None, work: Work) -> Outcome:
    """Return the medians, and the last result: all runs of a workload give the same one."""
    if lane is None or not lane.answers:
        return entry.ended(work.shape) or Outcome(status="failed", note="no run was counted")
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
