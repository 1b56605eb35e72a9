"""`python -m tests.fuzz --seconds N`: tries inputs that a stranger could make, and what must hold for each of them.

Prints for each target how many inputs were tried and in how many ways they failed. An input that
fails is written into `tests/fuzz/corpus`, where it becomes an ordinary test. Exits with 1 if there
was one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.engine import Engine

ROOMS = (
    "compaction",
    "elements",
    "emitters",
    "providers",
    "recordings",
    "rendering",
    "tokens",
    "tracing",
    "transcript",
)
"""Packages whose code guides the inputs."""


def load(asked: str) -> Engine:
    """Import what is tried, so that atheris can follow it where it is installed."""
    try:
        import atheris
    except ImportError:
        if asked == "atheris":
            raise
        return "hypothesis"
    if asked == "hypothesis":
        return "hypothesis"
    with redirect_stderr(StringIO()), atheris.instrument_imports(include=["promptkit"]):
        for room in ROOMS:
            for file in sorted(Path("promptkit", room).rglob("*.py")):
                if "integrations" not in file.parts:
                    importlib.import_module(
                        ".".join(file.with_suffix("").parts).removesuffix(".__init__")
                    )
    return "atheris"


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Try inputs that a stranger could make."
    )
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help="names of targets (default: all)"
    )
    parser.add_argument(
        "--seconds", type=float, default=60, help="divided among the targets (default: 60)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="of the random inputs (default: another in every run)",
    )
    parser.add_argument(
        "--engine",
        choices=["auto", "atheris", "hypothesis"],
        default="auto",
        help="what chooses inputs (default: auto)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    given = parser.parse_args()
    engine = load(given.engine)

    from tests.fuzz.engine import CORPUS, fuzz, keep
    from tests.fuzz.targets import TARGETS

    if unknown := sorted(set(given.targets) - set(TARGETS)):
        parser.error(f"there is no target {unknown[0]!r}: use {', '.join(TARGETS)}")
    names = given.targets or list(TARGETS)
    seed = int.from_bytes(os.urandom(3)) if given.seed is None else given.seed
    found: dict[str, dict[str, int]] = {}
    for name in names:
        outcome = fuzz(
            TARGETS[name],
            seconds=given.seconds / len(names),
            seed=seed,
            engine=engine,
            corpus=CORPUS / name,
        )
        found[name] = {"inputs": outcome.inputs, "failures": len(outcome.failures)}
        for failure in outcome.failures:
            print(f"{name}: {keep(failure, CORPUS / name)}\n{failure.error}", file=sys.stderr)
        if not given.json:
            print(
                f"{name}: {outcome.inputs:,} inputs, {len(outcome.failures)} failures", flush=True
            )
    if given.json:
        print(json.dumps({"engine": engine, "seed": seed, "targets": found}, indent=2))
    return 1 if any(figures["failures"] for figures in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
