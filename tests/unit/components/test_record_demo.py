"""The recorder of the demo: its tools really run, and only inside the copy of the checkout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.maintenance import record_demo
from benchmarks.maintenance.demo_script import Do
from benchmarks.maintenance.record_demo import scrub_output

if TYPE_CHECKING:
    from promptkit import Message


def result(monkeypatch: pytest.MonkeyPatch, checkout: Path, name: str, **args: str) -> str:
    monkeypatch.setattr(record_demo, "SCRIPT", (Do("", ((name, args),)),))
    monkeypatch.setattr(record_demo, "COPIED", ("code",))
    messages: list[Message] = list(record_demo.record(checkout))
    return messages[-1].text


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "one.py").write_text("a = 1\nb = 2\n", encoding="utf-8")
    return tmp_path


def test_tools_give_what_is_there(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    assert result(monkeypatch, checkout, "list_files", path="code") == "code/one.py"
    assert (
        result(monkeypatch, checkout, "read_file", path="code/one.py", first="2", last="2")
        == "b = 2"
    )
    assert (
        result(monkeypatch, checkout, "search", path="code", pattern="b =")
        == "code/one.py:2: b = 2"
    )
    assert result(monkeypatch, checkout, "run_python", code="print(6 * 7)") == "42"
    assert result(
        monkeypatch, checkout, "edit_file", path="code/one.py", old="c", new="d"
    ).endswith("Nothing was changed.")


def test_edits_touch_only_the_copy(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    assert (
        result(monkeypatch, checkout, "edit_file", path="code/one.py", old="a = 1", new="a = 3")
        == "Replaced 1 occurrence."
    )
    assert (checkout / "code" / "one.py").read_text(encoding="utf-8").startswith("a = 1")


@pytest.mark.parametrize("path", ["../x", "code/../../x"])
def test_nothing_outside_is_touched(
    monkeypatch: pytest.MonkeyPatch, checkout: Path, path: str
) -> None:
    with pytest.raises(ValueError, match="outside the repository"):
        result(monkeypatch, checkout, "write_file", path=path, text="")


def test_output_is_the_same_on_every_machine() -> None:
    assert (
        scrub_output("/a/b/code/x.py at /a/b\n3 passed in 0.12s", Path("/a/b"))
        == "code/x.py at .\n3 passed"
    )
    assert sys.prefix not in scrub_output(f"File {sys.prefix}/lib/x.py", Path("/a/b"))
    assert "[cut after 4,000 characters]" in scrub_output("x" * 7_000, Path("/a/b"))
