"""`python -m promptkit`: the same as the console script `promptkit`."""

from __future__ import annotations

import sys

from promptkit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
