"""Create the environments of frameworks that are not in the development environment: `python -m benchmarks.frameworks [FRAMEWORK ...]`.

Each has the framework and what promptkit and its tests need; promptkit itself is this checkout.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

import attrs

from benchmarks.peers.environments import (
    ROOT,
    Environments,
    InstallError,
    default_folder,
    python_of,
)

__all__ = ["PACKAGES", "Framework", "find_framework", "main", "missing_reason", "run_python"]

PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "litellm": ("litellm==1.106.2",),
    "litellm-proxy": ("litellm[proxy]==1.106.2",),
    "llama-index": ("llama-index-core==0.14.25", "llama-index-llms-openai==0.8.3"),
}
"""Environment → its own packages, pinned. What the extra of the same name brings, if there is one, comes
on top: the program of a framework's page runs with no more than that."""
LIMIT: Final = 300.0
"""Seconds until a program that does not end is killed."""


@attrs.frozen(kw_only=True)
class Framework:
    """A framework with an environment of its own."""

    name: str
    packages: tuple[str, ...]
    runtime: Literal["python", "node"] = "python"

    @property
    def python(self) -> Path | None:
        """The Python of the environment; None if it is not installed."""
        place = _place()
        return python_of(place.of(self)) if place.has(self) else None


@cache
def find_framework(name: str) -> Framework:
    """Return a framework of `PACKAGES`, with what promptkit and its tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return Framework(
        name=name,
        packages=(
            *PACKAGES[name],
            *extras.get(name, ()),
            *project["dependencies"],
            *extras["testing"],
        ),
    )


def missing_reason(name: str) -> str:
    """Return the sentence that says that an environment is missing, and how it is created."""
    return (
        f"the environment of {name} is not installed: run `python -m benchmarks.frameworks {name}`"
    )


def run_python(
    name: str, arguments: Sequence[str], *, folder: Path, path: Sequence[Path] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the Python of an installed framework to its end.

    Nothing of this Python's environment is passed on.

    Args:
        name: The framework.
        arguments: Those of Python.
        folder: The working directory.
        path: Folders to import from, besides the checkout.
    """
    python = find_framework(name).python
    if python is None:
        raise LookupError(missing_reason(name))
    kept = {
        each: value
        for each, value in os.environ.items()
        if not each.startswith(("PYTHON", "PYTEST_"))
    }
    paths = os.pathsep.join(map(str, (*path, ROOT, ROOT / "components")))
    # litellm otherwise downloads its table of prices when it is imported.
    environment = {
        **kept,
        "PYTHONPATH": paths,
        "PYTHONUTF8": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return subprocess.run(  # noqa: S603  # our own programs
        [str(python), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=LIMIT,
    )


def _place() -> Environments:
    return Environments(default_folder().with_name("frameworks"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit status: 0, or 1 if an environment could not be created.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="FRAMEWORK",
        help=f"some of {', '.join(PACKAGES)} (default: all)",
    )
    asked: list[str] = parser.parse_args(arguments).names or [*PACKAGES]
    unknown = sorted({*asked} - {*PACKAGES})
    if unknown:
        parser.error(f"there is no framework {unknown[0]!r}: use {', '.join(PACKAGES)}")
    failed = 0
    for name in asked:
        framework = find_framework(name)
        try:
            _place().install(framework)
            print(f"{name}: {_place().of(framework)}")
        except InstallError as error:
            failed += 1
            print(f"{name}: failed: {error}", file=sys.stderr)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
