"""`python -m tests.crash --rounds N`: kills writers of a transcript at random moments, and looks at what is left.

Prints `N rounds, L lost, C corrupt`: acknowledged entries that are gone, and rounds after which the
file did not load or validate. Exits with 1 if there were any.
"""

from __future__ import annotations

import argparse
import sys

from tests.crash.rounds import run


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash",
        description="Kill writers of a transcript, and look at what is left.",
    )
    parser.add_argument("--rounds", type=int, default=500, help="how often (default: 500)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the moments and the sizes (default: 0)"
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="say on stderr what was found, and how much was written",
    )
    given = parser.parse_args()
    outcome = run(given.rounds, seed=given.seed)
    if given.verbose:
        print(
            f"{outcome.acknowledged:,} entries were acknowledged; {outcome.torn} files ended in the middle of a batch",
            file=sys.stderr,
        )
    for note in outcome.notes:
        print(note, file=sys.stderr)
    print(f"{given.rounds} rounds, {outcome.lost} lost, {outcome.corrupt} corrupt")
    return 1 if outcome.lost or outcome.corrupt else 0


if __name__ == "__main__":
    sys.exit(main())
