"""Settings from files and variables: what is given arrives, and nothing is silently ignored, guessed or overruled."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs
import pytest

from promptkit.compaction.presets.settings import load_settings, setting
from promptkit.errors import SettingsError


@attrs.frozen(kw_only=True)
class SummarizerContext:
    """A group."""

    model: str | None = None
    retries: int = setting(2, minimum=0, maximum=5)


@attrs.frozen(kw_only=True)
class Sample:
    """One of each type."""

    threshold: float | None = setting(None, threshold=True, excludes=("reserve",))
    reserve: int | None = None
    keep_tokens: int = setting(20_000, minimum=1)
    enabled: bool = True
    place: Literal["first", "last"] = "first"
    tools: tuple[str, ...] = ()
    folder: Path | None = None
    writing: SummarizerContext = attrs.field(factory=SummarizerContext)

    def __attrs_post_init__(self) -> None:
        if self.keep_tokens == 13:
            problem = "thirteen is no number of tokens."
            raise ValueError(problem)


def read(toml: str | None = None, folder: Path | None = None, **environ: str) -> Sample:
    file = None
    if toml is not None and folder is not None:
        file = folder / "c.toml"
        file.write_text(toml, encoding="utf-8")
    return load_settings(Sample, prefix="PI_", toml=file, environ=environ)


def refused(toml: str | None = None, folder: Path | None = None, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read(toml, folder, **environ)
    return str(caught.value)


def test_what_is_not_given_keeps_its_default() -> None:
    assert read(HOME="/x", PIPE="1") == Sample()


def test_values_of_every_type_arrive_from_a_file(tmp_path: Path) -> None:
    toml = 'threshold = 1\nkeep_tokens = 5\nenabled = false\nplace = "last"\ntools = ["a", "b"]\nfolder = "m"\n[writing]\nmodel = "gpt-5"\n'
    expected = Sample(
        threshold=1.0,
        keep_tokens=5,
        enabled=False,
        place="last",
        tools=("a", "b"),
        folder=Path("m"),
        writing=SummarizerContext(model="gpt-5"),
    )
    assert read(toml, tmp_path) == expected


def test_values_of_every_type_arrive_from_variables_which_win_over_the_file(tmp_path: Path) -> None:
    environ = {
        "PI_THRESHOLD": "0.8",
        "PI_ENABLED": "No",
        "PI_PLACE": "last",
        "PI_TOOLS": "a, b",
        "PI_FOLDER": "m",
        "PI_WRITING__RETRIES": "3",
    }
    made = read("keep_tokens = 7\nthreshold = 0.5\n[writing]\nmodel = 'x'", tmp_path, **environ)
    expected = Sample(
        threshold=0.8,
        keep_tokens=7,
        enabled=False,
        place="last",
        tools=("a", "b"),
        folder=Path("m"),
        writing=SummarizerContext(model="x", retries=3),
    )
    assert made == expected
    assert read("threshold = 0.5", tmp_path, PI_THRESHOLD="none").threshold is None


@pytest.mark.spec("E52")
def test_a_threshold_between_a_share_and_tokens_is_refused_with_its_place(tmp_path: Path) -> None:
    from_file = refused("threshold = 80", tmp_path)
    assert str(tmp_path / "c.toml") in from_file
    assert "threshold=80 is neither a share nor a number of tokens" in from_file
    assert refused(PI_THRESHOLD="99.5").startswith("PI_THRESHOLD: threshold: ")
    assert read(PI_THRESHOLD="100").threshold == 100
    assert "at least 0" in refused(PI_THRESHOLD="-1")


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("keep_token = 1", "keep_token: unknown setting; did you mean keep_tokens?"),
        ("zzz = 1", "unknown setting; known are threshold,"),
        ('keep_tokens = "5"', "it must be a whole number, not '5'"),
        ("keep_tokens = 5.0", "it must be a whole number, not 5.0"),
        ("keep_tokens = true", "it must be a whole number, not True"),
        ("threshold = nan", "it must be a number, not nan"),
        ("enabled = 1", "it must be true or false, not 1"),
        ('place = "middle"', "it must be 'first' or 'last', not 'middle'"),
        ('tools = "a"', "it must be a list of texts, not 'a'"),
        ("tools = [1]", "it must be a list of texts"),
        ("keep_tokens = 0", "it must be at least 1, not 0"),
        ("[writing]\nretries = 6", "writing.retries: it must be at least 0 and at most 5, not 6"),
        ("[writing]\nmodul = 'x'", "writing.modul: unknown setting; did you mean model?"),
        ("writing = 3", "it must be a group of settings, not 3"),
        ("[keep_tokens]\nx = 1", "it must be a whole number, not a group of settings"),
        ("threshold = 0.5\nreserve = 9", "threshold: it cannot be set together with reserve"),
        ("keep_tokens = 13", "thirteen is no number of tokens"),
        ("keep_tokens = ", "it is not valid TOML"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_file_name_and_reason(toml: str, why: str, tmp_path: Path) -> None:
    said = refused(toml, tmp_path)
    assert said.startswith(str(tmp_path / "c.toml"))
    assert why in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PI_KEEP_TOKENS", "many"), ("PI_ENABLED", "maybe"), ("PI_WRITING__MODEL", ""), ("PI_NONSENSE", "1"), ("PI_THRESHOLD", "inf")],
)
def test_a_variable_that_cannot_be_taken_is_named(variable: str, value: str) -> None:
    assert refused(None, None, **{variable: value}).startswith(f"{variable}: ")


def test_exclusive_settings_are_refused_wherever_they_come_from(tmp_path: Path) -> None:
    said = refused("threshold = 0.5", tmp_path, PI_RESERVE="9")
    assert "c.toml and PI_RESERVE: threshold: it cannot be set together with reserve" in said
    assert read("threshold = 0.5", tmp_path, PI_RESERVE="none").threshold == 0.5


def test_a_variable_as_value_and_as_group_is_refused() -> None:
    assert "as a value and as a group" in refused(PI_WRITING="x", PI_WRITING__MODEL="y")


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(Sample, prefix="PI_", toml=tmp_path / "none.toml")


def test_nothing_is_read_without_a_prefix() -> None:
    with pytest.raises(SettingsError, match="prefix"):
        load_settings(Sample, prefix="", environ={"KEEP_TOKENS": "5"})
