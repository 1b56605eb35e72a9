"""Where the peers' environments are, and what they run with. Nothing is installed here."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from benchmarks.maintenance.build_vocabularies import SHA256
from benchmarks.peers.environments import Environments, InstallError, default_folder, digest
from benchmarks.peers.peer import peers
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_vocabularies_are_the_official_files_so_that_nothing_is_downloaded(
    tmp_path: Path,
) -> None:
    place = Environments(tmp_path)
    place.write_vocabulary()
    folder = Path(place.environment()["TIKTOKEN_CACHE_DIR"])
    assert {hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()} == set(
        SHA256.values()
    )
    assert folder.is_relative_to(tmp_path)


def test_a_peer_runs_with_nothing_of_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert not [name for name in Environments(tmp_path).environment() if name.startswith("PYTHON")]


def test_the_default_place_is_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "promptkit" / "peers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_folder() == Path.home() / ".cache" / "promptkit" / "peers"


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says what `npm` does from here on, in the words of a shell."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def report_progress(script: str) -> None:
        (folder / "npm").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (folder / "npm").chmod(0o755)

    return report_progress


NODE = peers()["prompt-tsx"]


def test_a_peer_without_its_installer_is_told(tmp_path: Path, npm: object) -> None:
    with pytest.raises(InstallError, match=r"^there is no npm to install with$"):
        Environments(tmp_path / "place").install(NODE)


def test_a_peer_that_cannot_be_installed_is_told_in_one_line_and_tried_again(
    tmp_path: Path, npm: Callable[[str], None]
) -> None:
    place = Environments(tmp_path / "place")
    npm("echo looking; echo 'npm error 404 no such version' >&2; echo 'npm error more' >&2; exit 1")
    with pytest.raises(InstallError, match=r"^npm error 404 no such version$"):
        place.install(NODE)
    assert not place.has(NODE)
    npm("echo done > found")
    place.install(NODE)
    assert place.has(NODE)
    assert (place.of(NODE) / "found").is_file()


def test_what_is_installed_is_kept_until_another_version_is_pinned(
    tmp_path: Path, npm: Callable[[str], None]
) -> None:
    place = Environments(tmp_path / "place")
    npm('echo "$@" >> asked')
    place.install(NODE)
    place.install(NODE)
    asked = (place.of(NODE) / "asked").read_text(encoding="utf-8")
    assert asked.splitlines() == [
        f"install --no-audit --no-fund --save-exact {' '.join(NODE.packages)}"
    ]
    newer = attrs.evolve(NODE, packages=("@vscode/prompt-tsx@99.0.0",))
    assert not place.has(newer)
    place.install(newer)
    assert "99.0.0" in (place.of(newer) / "asked").read_text(encoding="utf-8")
    assert not place.has(NODE)


@pytest.mark.parametrize("folder", ["promptkit", "components"])
def test_a_checkout_that_changed_is_another_one(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    source = tmp_path / folder / "element.py"
    source.write_text("first", encoding="utf-8")
    before = digest(tmp_path)
    assert digest(tmp_path) == before
    source.write_text("second", encoding="utf-8")
    assert digest(tmp_path) != before


@pytest.mark.parametrize(
    "option",
    [["--shapes", "messages,trees"], ["--sizes", "10,many"], ["--sizes", "0"], ["--sizes", "10"]],
    ids=" ".join,
)
def test_what_cannot_be_measured_is_refused_on_the_command_line(
    option: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "benchmarks.peers", *option, "--place", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert option[0] in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["benchmarks.peers", "benchmarks.peers.setup"])
def test_an_unknown_peer_is_refused_on_the_command_line(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", module, "--peers", "langchian", "--place", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "No peer is called langchian" in ran.stderr
    assert list(tmp_path.iterdir()) == []
