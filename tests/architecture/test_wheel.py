"""What is built for users holds all that the library needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.static


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The names in the wheel, built by the build backend itself: a build front end would ask the package index for it."""
    place = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(place),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = place.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return frozenset(archive.namelist())


@pytest.mark.parametrize("package", ["promptkit", "components/promptkit_components"])
def test_holds_every_file_of_the_packages(wheel: frozenset[str], package: str) -> None:
    top = ROOT / package
    files = {
        path.relative_to(top.parent).as_posix()
        for path in top.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - wheel == set()


@pytest.mark.parametrize(
    "name", ["promptkit/py.typed", "promptkit_components/py.typed", "promptkit/tokens/models.json"]
)
def test_holds_what_is_no_python(wheel: frozenset[str], name: str) -> None:
    assert name in wheel


def test_holds_the_vocabularies_so_that_counting_needs_no_network(wheel: frozenset[str]) -> None:
    assert [
        name
        for name in wheel
        if name.startswith("promptkit/tokens/vocab/") and not name.endswith(".py")
    ]


def test_holds_nothing_but_the_packages_and_their_metadata(wheel: frozenset[str]) -> None:
    assert {name.split("/")[0] for name in wheel} - {"promptkit", "promptkit_components"} == {
        top for name in wheel if (top := name.split("/")[0]).endswith(".dist-info")
    }
    assert [name for name in wheel if "__pycache__" in name] == []
