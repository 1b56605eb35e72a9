"""The console script `promptkit`, and `python -m promptkit`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run `promptkit` with the arguments of the process.

    Ctrl-C ends it with one line, also while its modules are loaded.
    """
    try:
        from promptkit.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("promptkit: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
