"""Measure redactors on a list of shapes of secrets, and of texts that only look like one.

    python -m benchmarks.redaction            # the table
    python -m benchmarks.redaction --json

Found: the secret is gone. False positives: texts without a secret that were changed. A scanner that
is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

import attrs

from promptkit.transcript.log.redaction import load_scanner, redact_secrets
from tests.unit.transcript.log.secret_shapes import DECOYS, RARE, SHAPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit.transcript.log.redaction import Redactor

__all__ = ["Figures", "main", "measure"]

CODE = "def area(radius):\n    return math.pi * radius ** 2  # lorem ipsum dolor sit amet\n"


@attrs.frozen(kw_only=True)
class Figures:
    """The figures of a redactor."""

    found: int
    """Of the common shapes."""
    shapes: int
    found_rare: int
    """Of the shapes of services that few use."""
    rare: int
    false_positives: int
    decoys: int
    ms_per_100_kb: float
    """Of code without secrets."""


def measure(redactor: Redactor) -> Figures:
    """Measure a redactor."""
    code = CODE * (100_000 // len(CODE))
    start = time.perf_counter()
    redactor(code)
    seconds = time.perf_counter() - start
    return Figures(
        found=_count_found(redactor, SHAPES),
        shapes=len(SHAPES),
        found_rare=_count_found(redactor, RARE),
        rare=len(RARE),
        false_positives=sum(redactor(text) != text for text in DECOYS),
        decoys=len(DECOYS),
        ms_per_100_kb=round(1000 * seconds, 1),
    )


def _count_found(redactor: Redactor, shapes: Mapping[str, tuple[str, str]]) -> int:
    texts = [
        (redactor(f"Before: x. {template.format(secret)} And behind."), secret)
        for template, secret in shapes.values()
    ]
    return sum(secret not in shown and secret[-12:] not in shown for shown, secret in texts)


def main() -> int:
    """Run the command line. Returns the exit status 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.redaction", description="Measure redactors."
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args()
    redactors: dict[str, Redactor] = {"redact_secrets": redact_secrets}
    if find_spec("kingfisher_sdk") is None:
        print("The scanner Kingfisher is not installed: pip install '.[scanner]'.", file=sys.stderr)
    else:
        redactors["load_scanner()"] = load_scanner()
    found = {name: attrs.asdict(measure(redactor)) for name, redactor in redactors.items()}
    if asked.json:
        print(json.dumps(found, indent=2))
        return 0
    for name, figures in found.items():
        print(
            f"{name:16}{figures['found']} of {figures['shapes']} found, {figures['found_rare']} of {figures['rare']} rare ones, "
            f"{figures['false_positives']} of {figures['decoys']} false, {figures['ms_per_100_kb']} ms per 100 KB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
