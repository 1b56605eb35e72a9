"""`python -m tests.conformance FILE.jsonl`: recorded outcomes of the reference against promptkit's.

Prints what differs and last `N passed, M failed`; exits with 1 if a case failed. Cases that
`deviations.toml` names are held to what is promised there instead.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conformance.cases import check, deviations, read


def main(arguments: list[str]) -> int:
    """The exit code: 0 if all passed, 1 if not, 2 for a call without a file."""
    if len(arguments) != 1:
        print("usage: python -m tests.conformance FILE.jsonl", file=sys.stderr)
        return 2
    passed = failed = 0
    for case in read(Path(arguments[0])):
        lines = check(case)
        if not lines:
            passed += 1
            continue
        failed += 1
        listed = deviations().get(case["name"])
        print(f"FAILED {case['name']}" + (f" (deviation {listed['deviation']})" if listed else ""))
        print("\n".join(f"    {line}" for line in "\n".join(lines).splitlines()))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
