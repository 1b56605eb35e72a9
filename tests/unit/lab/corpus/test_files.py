"""Paths, globs and URLs: which files they name."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from promptkit.errors import InvalidArgumentError, TranscriptError
from promptkit.lab.corpus import find_root, is_pattern, list_inputs
from promptkit.lab.corpus.files import compile_glob

NAMES = (
    "a.jsonl",
    "b.jsonl",
    ".hidden.jsonl",
    "c.json",
    "one/a.jsonl",
    "one/two/b.jsonl",
    "one/.git/c.jsonl",
    "two/x[1].jsonl",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


@pytest.mark.parametrize(
    "pattern",
    [
        "*.jsonl",
        "*",
        "?.json*",
        "one/*",
        "**/*.jsonl",
        "**",
        "one/**/*.jsonl",
        "*/*.jsonl",
        "two/x[[]1[]].jsonl",
        "[!a]*.jsonl",
        ".*",
        "./*.json",
    ],
)
def test_a_glob_names_the_files_that_it_names_to_python(folder: Path, pattern: str) -> None:
    reference = glob.glob(pattern, recursive=True)  # noqa: PTH207  # the reference
    expected = sorted(name for name in reference if (folder / name).is_file())
    found = sorted(list_inputs(pattern))
    assert found == expected
    absolute = sorted(list_inputs(f"{folder}/{pattern}"))
    assert absolute == sorted(f"{folder}/{name}" for name in found)


def test_a_glob_names_no_pipe_whose_reading_would_never_end_and_says_which_link_leads_nowhere(
    folder: Path,
) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "plink").symlink_to("nowhere")
    assert list(list_inputs("p*")) == ["plink"]


@given(
    st.lists(st.sampled_from(["a", "b", "*", "?", "[ab]", "."]), max_size=6).map("".join),
    st.text("ab.", max_size=5),
)
def test_a_name_matches_as_in_fnmatch(pattern: str, name: str) -> None:
    from fnmatch import fnmatchcase

    hidden = name.startswith(".") and not pattern.startswith(".")
    assert bool(compile_glob(pattern).fullmatch(name)) == (
        fnmatchcase(name, pattern) and not hidden
    )


@pytest.mark.usefixtures("folder")
def test_what_exists_is_no_pattern() -> None:
    assert list(list_inputs("two/x[1].jsonl")) == ["two/x[1].jsonl"]
    assert not is_pattern("s3://bucket/talks#a*b")
    assert is_pattern("s3://bucket/*.jsonl")
    assert list(list_inputs("none.jsonl")) == ["none.jsonl"]


def test_a_link_to_a_folder_is_not_followed_in_circles(folder: Path) -> None:
    (folder / "one" / "loop").symlink_to(folder)
    assert sorted(list_inputs("one/**/*.jsonl")) == ["one/a.jsonl", "one/two/b.jsonl"]


@pytest.mark.parametrize(
    ("pattern", "kind", "why"),
    [
        ("none/*.jsonl", TranscriptError, "none/ cannot be listed: No such file"),
        ("*.none", TranscriptError, r"no file matches '\*\.none'"),
        (
            "https://host/*.jsonl",
            InvalidArgumentError,
            "https:// has no lists of files: name each file",
        ),
        ("s3://buck*/x", InvalidArgumentError, "names no bucket"),
        ("[b-a].jsonl", InvalidArgumentError, "is not a glob: bad character range"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_glob_that_names_nothing_is_refused(
    pattern: str, kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why):
        list(list_inputs(pattern))


def test_the_root_is_the_folder_before_the_first_wild_part() -> None:
    assert find_root("logs/**/x*.jsonl") == "logs/"
    assert find_root("logs/a/x.jsonl") == "logs/a/"
    assert find_root("x.jsonl") == find_root("*.jsonl") == ""
    assert find_root("s3://bucket/logs/2026-*/x") == "s3://bucket/logs/"
