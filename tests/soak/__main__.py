"""`python -m tests.soak --minutes N`: many sessions at once over HTTP, with faults, cancellations at every await, reopenings and kills.

Prints what was done, and what was lost, duplicated or left open. Exits with 1 if there was any of
these.
"""

from __future__ import annotations

import argparse
import json
import sys

import attrs

from tests.soak.soak import soak


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="Hold many sessions at once, with everything that can go wrong.",
    )
    parser.add_argument("--minutes", type=float, default=1, help="how long (default: 1)")
    parser.add_argument("--sessions", type=int, default=200, help="at once (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="of what is done (default: 1)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    given = parser.parse_args()
    figures = soak(seconds=60 * given.minutes, sessions=given.sessions, seed=given.seed)
    shown = attrs.asdict(figures)
    for error in shown.pop("errors"):
        print(error, file=sys.stderr)
    print(
        json.dumps(shown, indent=2)
        if given.json
        else "\n".join(f"{name}: {value:,}" for name, value in shown.items())
    )
    return (
        1
        if figures.lost
        or figures.duplicated
        or figures.invalid_requests
        or figures.open_files
        or figures.errors
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
