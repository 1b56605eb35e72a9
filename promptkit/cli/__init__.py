"""The command line: `main` is the console script. click and rich are loaded when it runs, not when promptkit is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `promptkit` with these arguments, or those of the process; the exit status is returned.

    0: done. 1: worse than the baseline, or the reader of the output went away. 2: a mistake, said in one line on stderr. 130: interrupted.
    """
    from promptkit.cli.main import run

    return run(arguments)
