"""Measure what sessions, windows and pages cost at every size: `python -m benchmarks.scale --json`."""

from __future__ import annotations

import argparse
import json
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
    encoding()  # is loaded once, and no part of any figure
    found = {name: MEASURES[name]() for name in asked.only or MEASURES}
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:18}{json.dumps(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
