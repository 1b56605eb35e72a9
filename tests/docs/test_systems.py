"""docs/systems.md: a row for each feature and each claim about a system, names that exist, and figures as the code has them.

`PROMPTKIT_DOCS=write` writes the tables of settings anew.
"""

from __future__ import annotations

import importlib
import operator
import os
import re
from typing import TYPE_CHECKING, TypeGuard

import attrs
import pytest

from promptkit.compaction.presets import PRESETS
from promptkit.compaction.presets.break_even import BreakEven
from promptkit.compaction.presets.coding_agents import (
    GSV,
    ClaudeCode,
    Codex,
    CopilotCLI,
    GSVProcess,
    OhMyPi,
    OpenCode,
    Pi,
    VSCode,
)
from promptkit.compaction.presets.settings import original_names
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PAGE = ROOT / "docs" / "systems.md"
FEATURES = range(1, 93)
CASES = range(1, 113)
SETTINGS: Mapping[type[attrs.AttrsInstance], str] = {
    VSCode: "vscode",
    BreakEven: "break_even",
    CopilotCLI: "copilot_cli",
    Pi: "pi",
    OhMyPi: "oh_my_pi",
    ClaudeCode: "claude_code",
    Codex: "codex",
    OpenCode: "opencode",
    GSV: "gsv",
    GSVProcess: "gsv_process",
}
"""The classes of settings, in the order of the page, and their presets."""

SYSTEMS: Mapping[str, tuple[type[attrs.AttrsInstance] | None, str]] = {
    "rule": (None, "vscode"),
    "VS Code": (VSCode, "vscode"),
    "Copilot CLI": (CopilotCLI, "copilot_cli"),
    "pi": (Pi, "pi"),
    "oh-my-pi": (OhMyPi, "oh_my_pi"),
    "Claude Code": (ClaudeCode, "claude_code"),
    "Codex": (Codex, "codex"),
    "OpenCode": (OpenCode, "opencode"),
    "Amp": (None, "amp"),
    "GSV, first design": (GSV, "gsv"),
    "GSV as of August 2026": (GSVProcess, "gsv_process"),
}
"""The first cell of each table of claims, with the settings and the preset that its rows name."""


@attrs.frozen
class Row:
    """A row about a claim: what the system does, and what its preset does."""

    system: str
    claim: str
    here: str
    by: str
    why: str

    @property
    def names(self) -> dict[str, str | None]:
        """The names in code that the row gives as its place, each with the value that it says."""
        found = re.findall(r"`([\w.]+)`(?: = (\S.*?)(?=, |$))?", self.without_separators)
        return {name: value or None for name, value in found}

    @property
    def without_separators(self) -> str:
        """The place, with `1000` in place of `1,000`."""
        return re.sub(r"(?<=\d),(?=\d{3}\b)", "", self.by)

    @property
    def numbers(self) -> list[str]:
        """The rows of the other tables that the row names: `28` of the features, `E17` of the edge cases."""
        return [each for each in self.by.split(", ") if re.fullmatch(r"E?\d+", each)]


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def claims() -> list[Row]:
    """The rows of all tables of claims, in the order of the page."""
    rows: list[Row] = []
    system = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = cells_of(line)
        if not line.startswith("|"):
            system = ""
        elif cells[0] in SYSTEMS and cells[1:3] == ["here", "by"]:
            system = cells[0]
        elif system and not cells[0].startswith(("**", "---")):
            rows.append(Row(system, *cells))
    return rows


def features() -> dict[int, tuple[str, str, str, str]]:
    """Of each feature: what it is, which systems have it, whether it is there, how."""
    cells = re.findall(
        r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return {int(number): (feature, who, here, how) for number, feature, who, here, how in cells}


def names() -> list[str]:
    """The names with dots that the page says are below promptkit."""
    # other systems' names
    text = re.sub(
        r"^<!-- settings.*?\n\n",
        "",
        PAGE.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    rooms = "agent|compaction|fitting|lab|providers|tokens|transcript|wire"
    return sorted(set(re.findall(rf"`((?:{rooms})(?:\.\w+)+)`", text)))


def find(name: str) -> object:
    """Return what has a name with dots below promptkit; of a field of a class its default."""
    parts = ["promptkit", *name.split(".")]
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            fields = attrs.fields_dict(found) if is_class(found) else {}
            found = fields[part].default if part in fields else getattr(found, part)
        return found
    pytest.fail(name)


def is_class(value: object) -> TypeGuard[type[attrs.AttrsInstance]]:
    return isinstance(value, type) and attrs.has(value)


def value_in(row: Row, name: str) -> object:
    """Return the value of a name that a row gives as its place."""
    cls, preset = SYSTEMS[row.system]
    if name.startswith("Preset."):
        return operator.attrgetter(name.removeprefix("Preset."))(PRESETS[preset]())
    if "." in name:
        return find(name)
    assert cls is not None, f"{row.system} has no settings, and so no {name}"
    return attrs.fields_dict(cls)[name].default


def settings_table(cls: type[attrs.AttrsInstance]) -> str:
    """The table of a class in the page: its settings, their defaults, and the names that the system itself gives them."""
    named = original_names(cls)
    rows = [
        f"| `{field.name}` | {field.default} | "
        + " or ".join(
            f"`{original.name}`{f' ({original.unit})' if original.unit else ''}"
            for original in named.get(field.name, ())
        )
        + " |"
        for field in attrs.fields(cls)
    ]
    mark = f"<!-- settings {cls.__name__} -->"
    head = f"| `{cls.__name__}` | default | in the system |\n|---|---|---|"
    return "\n".join([mark, head, *(row.replace("|  |", "| |") for row in rows)])


def followed(name: str) -> str:
    """The line of a preset in the page that says which version it follows."""
    return f"`{name}` follows {PRESETS[name]().follows or 'no system'}. <!-- follows {name} -->"


def test_every_feature_of_the_table_has_its_row() -> None:
    assert list(features()) == list(FEATURES)
    assert {here for _, _, here, _ in features().values()} <= {"yes", "in part", "no"}
    assert "Rows 93 to 95" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", names())
def test_what_the_page_names_is_there(name: str) -> None:
    find(name)


def test_every_system_has_its_rows() -> None:
    assert list(dict.fromkeys(row.system for row in claims())) == list(SYSTEMS)


@pytest.mark.parametrize("row", claims(), ids=lambda row: f"{row.system}: {row.claim[:60]}")
def test_a_row_says_whether_the_preset_does_it_by_what_and_otherwise_why(row: Row) -> None:
    assert row.here in {"same", "differs", "no"}
    assert row.why or row.here == "same"
    assert row.by or row.here == "no" or "](" in row.why
    for number in row.numbers:
        known = CASES if number.startswith("E") else FEATURES
        assert int(number.removeprefix("E")) in known, number
    for name, value in row.names.items():
        found = value_in(row, name)
        if value is not None:
            assert same_figure(str(found), value), f"{name} is {found}, and not {value}"
    # a list of these and of nothing else
    left = re.sub(r"`[\w.]+`(?: = [^,]+)?", "", row.without_separators).split(", ")
    assert [each for each in left if each and each not in row.numbers] == []


def same_figure(found: str, said: str) -> bool:
    """Compare a value with its text in the page, where 60 is 60.0."""
    try:
        return float(found) == float(said)
    except ValueError:
        return found == said


def test_every_setting_of_a_system_has_a_row_with_its_default() -> None:
    said = {(row.system, name) for row in claims() for name, value in row.names.items() if value}
    missing = [
        f"{cls.__name__}.{field.name}"
        for system, (cls, _) in SYSTEMS.items()
        if cls is not None
        for field in attrs.fields(cls)
        if (system, field.name) not in said
    ]
    assert missing == []


def check_blocks(blocks: Iterable[str], pattern: str) -> None:
    """Check that the page has these blocks, each with a mark; `PROMPTKIT_DOCS=write` writes those that are stale.

    Args:
        blocks: The blocks.
        pattern: A regular expression of a block in the page, with `MARK` for its mark.
    """
    text = PAGE.read_text(encoding="utf-8")
    stale = [block for block in blocks if f"{block}\n" not in text]
    if stale and os.environ.get("PROMPTKIT_DOCS") == "write":
        for block in stale:
            mark = block[block.index("<!--") : block.index("-->") + 3]
            found = re.compile(pattern.replace("MARK", mark), re.MULTILINE)
            text = found.sub(block.replace("\\", r"\\"), text)
        PAGE.write_text(text, encoding="utf-8")
    assert not stale, (
        f"PROMPTKIT_DOCS=write pytest tests/docs/test_systems.py writes these anew: {stale}"
    )


def test_the_settings_and_their_names_are_those_of_the_code() -> None:
    check_blocks(map(settings_table, SETTINGS), r"^MARK(?:\n\|.*)*$")


def test_every_preset_says_which_version_it_follows() -> None:
    check_blocks(map(followed, PRESETS), r"^.*MARK$")
    assert [name for name in PRESETS if PRESETS[name]().follows is None] == [
        "break_even",
        "truncate_only",
        "off",
    ]


def test_every_preset_is_told_of() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in PRESETS if f"`{name}`" not in text] == []
