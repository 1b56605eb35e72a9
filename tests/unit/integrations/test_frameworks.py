"""The integrations of frameworks that have an environment of their own: their tests run there, with the framework itself."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from benchmarks.frameworks import PACKAGES, find_framework, main, missing_reason, run_python
from tests.paths import ROOT

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PACKAGES])
def test_the_tests_of_an_integration_pass_in_the_environment_of_its_framework(name: str) -> None:
    if find_framework(name).python is None:
        pytest.skip(missing_reason(name))
    # The framework's own warnings are none of ours, and the plugins that run tests side by side are
    # not installed there.
    options = [
        "-q",
        "-o",
        "addopts=--import-mode=importlib",
        "-o",
        "filterwarnings=ignore",
        "-p",
        "no:cacheprovider",
        "--tb=short",
    ]
    file = HERE / f"in_{name.replace('-', '_')}.py"
    done = run_python(
        name,
        ["-m", "pytest", *options, "-p", "promptkit.testing.snapshots.plugin", str(file)],
        folder=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["litellm", "llama-index"])
def test_without_the_framework_the_error_names_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = name.replace("-", "_")
    monkeypatch.delitem(sys.modules, f"promptkit.integrations.{module}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=re.escape(f".[{name}]")):
        importlib.import_module(f"promptkit.integrations.{module}")


def test_a_missing_environment_is_named_with_the_command_that_creates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_framework("litellm").python is None
    with pytest.raises(LookupError, match=r"python -m benchmarks.frameworks litellm"):
        run_python("litellm", ["-c", ""], folder=tmp_path)


def test_an_unknown_framework_is_refused_with_the_names_of_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["django"])
    told = capsys.readouterr().err
    assert all(name in told for name in ("django", *PACKAGES))


def test_an_environment_has_what_the_extra_brings_and_promptkit_and_its_tests_need() -> None:
    needed = " ".join(find_framework("litellm").packages)
    assert all(name in needed for name in ("litellm[mcp]", "attrs", "openai", "pytest"))
    assert "proxy" not in needed
