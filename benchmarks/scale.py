"""Measure what sessions, windows and pages cost at every size: `python -m benchmarks.scale --json`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from benchmarks import scale_sessions, scale_shapes
from benchmarks.tokenizing import encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["MEASURES", "main"]

MEASURES: Final[Mapping[str, Callable[[], object]]] = {
    **scale_sessions.MEASURES,
    **scale_shapes.MEASURES,
}
"""Name of a figure → what measures it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parser.add_argument(
        "--only", action="append", choices=sorted(MEASURES), help="measure this one; repeatable"
    )
    asked = parser.parse_args(arguments)
    names = asked.only or list(MEASURES)
    found = _measure(names[0]) if len(names) == 1 else dict(map(_measure_apart, names))
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:18}{json.dumps(value)}")
    return 0


def _measure(name: str) -> dict[str, object]:
    encoding()  # is loaded once, and no part of any figure
    return {name: MEASURES[name]()}


def _measure_apart(name: str) -> tuple[str, object]:
    """Measure a figure in a process of its own: what another figure leaves in memory is no part of it."""
    command = [sys.executable, "-m", "benchmarks.scale", "--only", name, "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603  # our own arguments
    return name, json.loads(done.stdout)[name]


if __name__ == "__main__":
    sys.exit(main())
