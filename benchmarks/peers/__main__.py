"""Compare promptkit with its peers on one workload: `python -m benchmarks.peers`."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.peers.environments import Environments, InstallError, default_folder
from benchmarks.peers.figures import Case, Comparison, Probe
from benchmarks.peers.peer import OWN, Peer, UnknownPeerError, peers, select_peers
from benchmarks.peers.process import AdapterProcess
from benchmarks.peers.report import markdown, table
from benchmarks.peers.runs import RunningPeer, run_case, run_probe
from benchmarks.peers.work import SHAPES, ShapeName, budget_names, make_workload
from benchmarks.recorded import TURN

__all__ = ["main"]

PROBE_SIZE: Final = 40
SIZES: Final = (100, 1_000, 5_000)
HISTORY_SIZES: Final = (200, 1_000, 4_000)


def report_progress(line: str) -> None:
    """Print a line of progress on stderr, apart from the figures."""
    print(line, file=sys.stderr)


def start_peers(wanted: Sequence[Peer], place: Environments) -> list[RunningPeer]:
    """Start the peers, after installing those that are missing.

    A peer that cannot be installed has no process.
    """
    place.write_vocabulary()
    running: list[RunningPeer] = []
    for peer in wanted:
        try:
            if not place.has(peer):
                report_progress(f"installing {', '.join(peer.packages)} for {peer.name}")
                place.install(peer)
            running.append(
                RunningPeer(
                    peer,
                    AdapterProcess(
                        place.command(peer), place.environment(), place.of(peer) / "said.log"
                    ),
                )
            )
        except InstallError as error:
            running.append(RunningPeer(peer, None, str(error)))
    return running


def compare(
    running: Sequence[RunningPeer],
    sizes: Mapping[ShapeName, Sequence[int]],
    *,
    rounds: int,
    limit: float,
    probe_size: int,
) -> Comparison:
    """Run every shape in every size, at each of its budgets."""
    cases: list[Case] = []
    probes: dict[str, dict[str, Probe]] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for shape in sizes:
                report_progress(f"{shape}: {probe_size} items at several budgets")
                probes[shape] = run_probe(running, shape, probe_size, Path(folder), limit)
                works = (
                    make_workload(shape, size, at)
                    for size in sizes[shape]
                    for at in budget_names(shape)
                )
                cases += [
                    run_case(
                        running,
                        work,
                        rounds=rounds,
                        folder=Path(folder),
                        limit=limit,
                        report_progress=report_progress,
                    )
                    for work in works
                ]
    finally:
        for entry in running:
            if entry.process is not None:
                entry.process.end()
    return Comparison(
        peers=[entry.peer for entry in running],
        cases=cases,
        probes=probes,
        probe_size=probe_size,
        rounds=rounds,
        limit=limit,
        node=node_version(),
    )


def node_version() -> str:
    """Return the version of Node, or "none"."""
    node = shutil.which("node")
    if node is None:
        return "none"
    return (
        subprocess.run([node, "--version"], capture_output=True, text=True, check=True)  # noqa: S603  # our own arguments
        .stdout.strip()
        .removeprefix("v")
    )


def shapes_of(text: str) -> list[ShapeName]:
    """Parse shapes separated by commas. Raises ValueError."""
    names = text.split(",")
    found: list[ShapeName] = [shape for shape in SHAPES if names.count(shape)]
    if len(found) < len(names):
        raise ValueError(text)
    return found


def sizes_of(text: str) -> list[int]:
    """Parse sizes separated by commas, each a whole number of at least 1. Raises ValueError."""
    sizes = sorted({int(size) for size in text.split(",")})
    if sizes[0] < 1:
        raise ValueError(text)
    return sizes


def choose_sizes(
    shapes: Sequence[ShapeName], given: Sequence[int] | None, *, quick: bool
) -> dict[ShapeName, Sequence[int]]:
    """Return the sizes of each shape. Raises ValueError for a history without whole turns."""
    if given and "history" in shapes and any(size % TURN for size in given):
        raise ValueError(
            f"the shape history has whole turns: write multiples of {TURN} for --sizes, or leave it out of --shapes."
        )
    if given:
        return dict.fromkeys(shapes, given)
    return {
        shape: (HISTORY_SIZES if shape == "history" else SIZES)[: 2 if quick else None]
        for shape in shapes
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit status: 0, or 1 if promptkit itself has no figures, or with --check if it
    misses a bar.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--markdown", action="store_true", help="print the tables of benchmarks/README.md"
    )
    parser.add_argument(
        "--from",
        dest="kept",
        type=Path,
        metavar="FILE.json",
        help="show what --json printed before; measure nothing",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="draw a chart as well; needs matplotlib"
    )
    parser.add_argument(
        "--peers",
        default="",
        help=f"some of {', '.join(peers())}, with commas between (default all)",
    )
    parser.add_argument(
        "--shapes", type=shapes_of, default=SHAPES, help=f"some of {','.join(SHAPES)} (default all)"
    )
    parser.add_argument(
        "--sizes",
        type=sizes_of,
        help="items of a workload, with commas between (default 100,1000,5000; history: 200,1000,4000)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        help="counted runs of each peer on each workload (default 7); more, where they are short",
    )
    parser.add_argument(
        "--limit",
        type=float,
        help="seconds of processor time after which a run is ended (default 60)",
    )
    parser.add_argument(
        "--place",
        type=Path,
        default=default_folder(),
        help="the folder of the peers' environments (default %(default)s)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 if promptkit is not the fastest in the shape history",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the two smaller sizes, three rounds, ten seconds, where nothing else is given",
    )
    options = parser.parse_args(arguments)
    try:
        wanted = select_peers(
            [OWN, *filter(None, options.peers.split(","))] if options.peers else []
        )
        sizes = choose_sizes(options.shapes, options.sizes, quick=options.quick)
    except (UnknownPeerError, ValueError) as error:
        parser.error(str(error))
    if options.kept:
        comparison = Comparison.from_json(json.loads(options.kept.read_text(encoding="utf-8")))
    else:
        comparison = compare(
            start_peers(wanted, Environments(options.place)),
            sizes,
            rounds=options.rounds or (3 if options.quick else 7),
            limit=options.limit or (10 if options.quick else 60),
            probe_size=PROBE_SIZE,
        )
    if options.plot:
        from benchmarks.peers.chart import draw

        draw(comparison, options.plot)
    if options.json:
        print(json.dumps(comparison.to_json(), indent=2))
    else:
        print((markdown if options.markdown else table)(comparison))
    missed = options.check and any(verdict.missed for verdict in comparison.verdicts())
    return int(missed or any(case.outcomes[OWN].status != "ran" for case in comparison.cases))


if __name__ == "__main__":
    sys.exit(main())
