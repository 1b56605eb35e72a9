"""The environments of the peers: one for each, created once and kept outside the repository."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

import attrs

from benchmarks.maintenance.build_vocabularies import format_official
from benchmarks.peers.peer import OWN, Peer
from promptkit.tokens.encodings import load_vocabulary

__all__ = [
    "ROOT",
    "SERVE",
    "Environments",
    "InstallError",
    "Installable",
    "default_folder",
    "digest",
    "python_of",
]

ROOT: Final = Path(__file__).resolve().parents[2]
SERVE: Final = Path(__file__).with_name("serve.py")

# tiktoken looks for a file named after the sha1 of its address in its cache folder.
CACHED: Final = {
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}


class Installable(Protocol):
    """A library that gets an environment of its own: a peer, or a framework."""

    @property
    def name(self) -> str:
        """The name of its folder."""
        ...

    @property
    def runtime(self) -> Literal["python", "node"]:
        """The runtime of its packages. pip installs those of Python, npm those of Node."""
        ...

    @property
    def packages(self) -> Sequence[str]:
        """The packages to install, as the installer's command line takes them."""
        ...


class InstallError(Exception):
    """A peer's environment could not be created.

    The message is the first relevant line of the installer.
    """


def default_folder() -> Path:
    """Return the default folder of the environments, in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "promptkit", "peers")


@attrs.frozen
class Environments:
    """A folder with one folder for each peer, and the vocabularies that tiktoken would otherwise download."""

    folder: Path

    def of(self, peer: Installable) -> Path:
        """Return the folder of a peer: a Python virtual environment, or a folder with `node_modules`."""
        return self.folder / peer.name

    def has(self, peer: Installable) -> bool:
        """Return True if a peer is installed in its pinned version, and promptkit in the state of this checkout."""
        note = self._note(peer)
        return note.is_file() and note.read_text(encoding="utf-8") == _contents(peer)

    def install(self, peer: Installable) -> None:
        """Create a peer's environment if it is missing.

        Needs the package index. Raises InstallError.
        """
        if self.has(peer):
            return
        folder = self.of(peer)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if peer.runtime == "python":
            venv.create(folder, with_pip=True)
            checkout = [str(ROOT)] if peer.name == OWN else []
            _run(
                [
                    str(python_of(folder)),
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    *checkout,
                    *peer.packages,
                ],
                folder,
            )
        else:
            (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
            _run(
                ["npm", "install", "--no-audit", "--no-fund", "--save-exact", *peer.packages],
                folder,
            )
        self._note(peer).write_text(_contents(peer), encoding="utf-8")

    def command(self, peer: Peer) -> list[str]:
        """Return the command that runs the adapter of an installed peer."""
        folder = self.of(peer)
        if peer.runtime == "python":
            # -P: an adapter has the name of its peer, and must not be imported for it.
            return [str(python_of(folder)), "-P", str(SERVE), str(peer.adapter)]
        return ["node", "--expose-gc", str(peer.adapter), str(folder)]

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables of a peer's process: vocabularies are local, and nothing is downloaded."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {
            **kept,
            "TIKTOKEN_CACHE_DIR": str(self._vocabulary),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "CENDOR_TELEMETRY": "off",
        }

    def write_vocabulary(self) -> None:
        """Write the official vocabulary files from promptkit's data, named as in tiktoken's cache; tiktoken checks their hashes."""
        self._vocabulary.mkdir(parents=True, exist_ok=True)
        for encoding, name in CACHED.items():
            file = self._vocabulary / name
            if not file.is_file():
                beside = file.with_suffix(".part")
                beside.write_bytes(format_official(load_vocabulary(encoding)))
                beside.replace(file)

    @property
    def _vocabulary(self) -> Path:
        return self.folder / "vocabulary"

    def _note(self, peer: Installable) -> Path:
        """Return the file that is written last, so that an incomplete environment is created again."""
        return self.of(peer) / "installed.json"


def python_of(folder: Path) -> Path:
    """Return the Python of an environment."""
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def _contents(peer: Installable) -> str:
    return json.dumps(
        {
            "packages": peer.packages,
            "python": sys.version,
            "source": digest(ROOT) if peer.name == OWN else None,
        }
    )


def digest(checkout: Path) -> str:
    """Return a hash of the source of promptkit and its components, which tells checkouts apart."""
    summed = hashlib.sha256()
    sources = (
        file
        for folder in ("promptkit", "components")
        for file in sorted((checkout / folder).rglob("*"))
    )
    for file in (checkout / "pyproject.toml", *sources):
        if file.is_file() and "__pycache__" not in file.parts:
            summed.update(
                str(file.relative_to(checkout)).encode() + b"\0" + file.read_bytes() + b"\0"
            )
    return summed.hexdigest()


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # our own arguments
    except FileNotFoundError as error:
        raise InstallError(f"there is no {command[0]} to install with") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        told = [line for line in lines if "error" in line.lower()]
        raise InstallError((told or lines or [f"{command[0]} exited with {done.returncode}"])[0])
