"""docs/systems.md: a row for each feature, names that exist, and settings as the code has them.

`PROMPTKIT_DOCS=write` writes those anew.
"""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction.presets import PRESETS
from promptkit.compaction.presets.break_even import BreakEven
from promptkit.compaction.presets.claude_code import ClaudeCode
from promptkit.compaction.presets.codex import Codex
from promptkit.compaction.presets.copilot_cli import CopilotCLI
from promptkit.compaction.presets.gsv import GSV, GSVProcess
from promptkit.compaction.presets.oh_my_pi import OhMyPi
from promptkit.compaction.presets.opencode import OpenCode
from promptkit.compaction.presets.pi import Pi
from promptkit.compaction.presets.settings import original_names
from promptkit.compaction.presets.vscode import VSCode
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = ROOT / "docs" / "systems.md"
ROWS = range(1, 93)
SETTINGS: tuple[type[attrs.AttrsInstance], ...] = (
    VSCode,
    BreakEven,
    CopilotCLI,
    Pi,
    OhMyPi,
    ClaudeCode,
    Codex,
    OpenCode,
    GSV,
    GSVProcess,
)


def rows() -> dict[int, tuple[str, str, str]]:
    """Of each feature: what it is, whether it is there, how."""
    cells = re.findall(
        r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return {int(number): (feature, here, how) for number, feature, here, how in cells}


def names() -> list[str]:
    """The names with dots that the page says are below promptkit."""
    # other systems' names
    text = re.sub(
        r"^.*<!-- names \w+ -->$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return sorted(set(re.findall(r"`((?:agent|compaction|tokens|transcript)(?:\.\w+)+)`", text)))


def defaults(cls: type[attrs.AttrsInstance]) -> str:
    """The line of a class in the page."""
    said = ", ".join(f"`{field.name}` {field.default}" for field in attrs.fields(cls))
    return f"Settings, `{cls.__name__}`: {said}. <!-- settings {cls.__name__} -->"


def originals(cls: type[attrs.AttrsInstance]) -> str:
    """The line of a class in the page with the names that the system itself gives the settings."""
    named = [
        f"`{setting}` is "
        + " or ".join(
            f"`{original.name}`{f' ({original.unit})' if original.unit else ''}"
            for original in names
        )
        for setting, names in original_names(cls).items()
    ]
    return f"Names in the system: {', '.join(named)}. <!-- names {cls.__name__} -->"


def followed(name: str) -> str:
    """The line of a preset in the page that says which version it follows."""
    return f"`{name}` follows {PRESETS[name]().follows or 'no system'}. <!-- follows {name} -->"


def test_every_feature_of_the_table_has_its_row() -> None:
    assert list(rows()) == list(ROWS)
    assert {here for _, here, _ in rows().values()} <= {"yes", "in part", "no"}
    assert "Rows 93 to 95" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", names())
def test_what_the_page_names_is_there(name: str) -> None:
    parts = ["promptkit", *name.split(".")]
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return
    pytest.fail(name)


def check_lines(lines: Iterable[str]) -> None:
    """Check that the page has these lines, each of which ends with a comment; `PROMPTKIT_DOCS=write` writes those that are stale."""
    text = PAGE.read_text(encoding="utf-8")
    stale = [line for line in lines if line not in text]
    if stale and os.environ.get("PROMPTKIT_DOCS") == "write":
        for line in stale:
            mark = line[line.index("<!--") :]
            text = re.sub(rf"^.*{mark}$", line.replace("\\", r"\\"), text, flags=re.MULTILINE)
        PAGE.write_text(text, encoding="utf-8")
    assert not stale, (
        f"PROMPTKIT_DOCS=write pytest tests/docs/test_systems.py writes these anew: {stale}"
    )


def test_the_settings_are_those_of_the_code() -> None:
    check_lines(map(defaults, SETTINGS))


def test_the_names_of_the_systems_are_those_of_the_code() -> None:
    check_lines(originals(cls) for cls in SETTINGS if cls is not BreakEven)  # it follows no system


def test_every_preset_says_which_version_it_follows() -> None:
    check_lines(map(followed, PRESETS))
    assert [name for name in PRESETS if PRESETS[name]().follows is None] == [
        "break_even",
        "truncate_only",
        "off",
    ]


def test_every_preset_is_told_of() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in PRESETS if f"`{name}`" not in text] == []
