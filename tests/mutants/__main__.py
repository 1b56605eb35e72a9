"""`python -m tests.mutants`: changes the core rooms in small ways, one change at a time, and lists the changes that no test notices.

A survivor is a promise without a test, or a change that makes no difference: such ones are in
`accepted.toml`, with a reason each. Exits with 1 if there is another.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import attrs

from tests.mutants.accepted import load_accepted
from tests.mutants.rooms import ROOMS
from tests.mutants.run import BrokenTestsError, Survivor, choose_mutants, run_room

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = Path(__file__).with_name("accepted.toml")


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description="Change the core rooms in small ways and list the changes that no test notices.",
    )
    parser.add_argument(
        "--rooms",
        nargs="+",
        choices=list(ROOMS),
        default=list(ROOMS),
        help="what to change (default: all)",
    )
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="FILE",
        help="change only this file; may be repeated",
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=None,
        metavar="N",
        help="mutants of each room, drawn at random (default: all)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    parser.add_argument(
        "--workers", type=int, choices=[1, 2], default=2, help="processes at once (default: 2)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        metavar="S",
        help="processor time after which a mutant counts as a survivor, for a quick look (default: when all of its tests have run)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    given = parser.parse_args()
    accepted = load_accepted(ACCEPTED)
    shown: dict[str, object] = {}
    survived = False
    for name in given.rooms:
        mutants = choose_mutants(
            ROOT, ROOMS[name], only=given.file, limit=given.limit, seed=given.seed
        )
        if not mutants:
            continue
        try:
            found = run_room(
                ROOT,
                ROOMS[name],
                mutants,
                accepted=accepted,
                workers=given.workers,
                most_seconds=given.seconds,
                report=_ignore if given.json else _show,
            )
        except BrokenTestsError as error:
            print(error, file=sys.stderr)
            parser.error(f"the tests of {name} fail without a mutant: mend them first")
        shown[name] = {file: attrs.asdict(each) for file, each in found.items()}
        for file, each in found.items():
            survived = survived or bool(each.survivors)
            if not given.json:
                figures = f"{each.mutants:,} mutants, {each.killed:,} killed, {each.timeout:,} timeouts, {each.accepted:,} accepted"
                print(f"{file}: {figures}, {len(each.survivors):,} survivors", flush=True)
    if given.json:
        print(json.dumps(shown, indent=2))
    return 1 if survived else 0


def _show(survivor: Survivor) -> None:
    text = f"{survivor.file}:{survivor.line}: {survivor.operator}\n    {survivor.before}\n    {survivor.after}"
    print(text.replace("\n", "\n    "), flush=True)


def _ignore(survivor: Survivor) -> None:
    """Leave a survivor to the JSON."""


if __name__ == "__main__":
    sys.exit(main())
