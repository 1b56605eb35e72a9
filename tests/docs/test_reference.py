"""The reference of the site has every public name, argument, setting, event, extra and command."""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from functools import cache
from typing import get_args

import attrs
import pytest
from generate_reference import (
    ARGUMENT_GROUPS,
    COMPONENTS,
    NAMESPACES,
    convert_docstring,
    find_definition,
    list_homes,
    list_names,
    make_grouped_arguments,
    make_pages,
)

import promptkit
from promptkit import AgentSession, ContextWindow, compaction
from promptkit.cli.main import program
from promptkit.compaction import PRESETS, Event
from tests.paths import ROOT


@cache
def pages() -> dict[str, str]:
    return dict(make_pages())


@pytest.mark.parametrize("namespace", [*NAMESPACES, COMPONENTS])
def test_every_public_name_is_in_the_reference(namespace: str) -> None:
    homes = list_homes()
    for name in list_names(namespace):
        home = homes[name]
        entry = rf"^\.\. (?:autoclass|autofunction):: {re.escape(home)}\.{name}$|^\.\. py:data:: {name}$"
        assert re.search(entry, pages()[home], re.MULTILINE), f"{namespace}.{name}"
        assert f"`~{home}.{name}`" in pages()[namespace]


def test_every_page_of_the_reference_is_in_its_contents() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^reference/(\S+)$", text, re.MULTILINE)) == sorted(pages())


def test_every_package_with_public_names_is_in_the_reference() -> None:
    stubs = (ROOT / "promptkit").rglob("__init__.pyi")
    packages = {".".join(path.parent.relative_to(ROOT).parts) for path in stubs}
    assert packages - set(NAMESPACES) == set()


# their own tests import these
@pytest.mark.parametrize("namespace", [each for each in NAMESPACES if ".integrations." not in each])
def test_every_public_name_is_there(namespace: str) -> None:
    module = importlib.import_module(namespace)
    named = list_names(namespace)
    assert sorted(named) == sorted(module.__all__)
    for name, source in named.items():
        assert getattr(module, name) is getattr(importlib.import_module(source), name)


def test_a_name_stands_once_in_the_facade() -> None:
    assert len(promptkit.__all__) == len(set(promptkit.__all__)) <= 70


@pytest.mark.parametrize("cls", [AgentSession, ContextWindow])
def test_every_argument_of_a_session_and_a_window_is_in_one_group(cls: type) -> None:
    shown = re.findall(r"^   \* - ``(\w+)``$", make_grouped_arguments(cls), re.MULTILINE)
    assert sorted(shown) == sorted(inspect.signature(cls).parameters)


def test_an_argument_without_a_group_is_an_error() -> None:
    class Window:
        def __init__(self, model: str, colour: str) -> None:
            """Open a window.

            Args:
                model: The model.
                colour: The colour.
            """

    assert "model" in ARGUMENT_GROUPS["The conversation"]
    with pytest.raises(ValueError, match="Window: without a group or a description: colour"):
        make_grouped_arguments(Window)


def test_every_setting_of_every_preset_is_in_the_reference() -> None:
    sections = re.split(r"^(\w+)\n-+$", pages()["settings"], flags=re.MULTILINE)
    by_name = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert list(by_name) == list(PRESETS)
    assert "``reserve_tokens``: ``int`` = ``16384``" in by_name["pi"]
    assert "In that system: ``compaction.reserveTokens``." in by_name["pi"]
    assert "has no settings" in by_name["off"]


def test_every_event_and_its_fields_are_in_the_reference() -> None:
    for cls in get_args(Event):
        section = pages()["events"].split(f"\n{cls.__name__}\n-")[1].split("\n---")[0]
        assert [each.name for each in attrs.fields(cls) if f"``{each.name}``" not in section] == []


def test_every_event_is_imported_from_one_place() -> None:
    classes = get_args(Event)
    assert [cls for cls in classes if getattr(compaction, cls.__name__, None) is not cls] == []
    assert "from promptkit.compaction import" in pages()["events"]


def test_every_extra_is_in_the_reference() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert [each for each in extras if f"* - ``{each}``" not in pages()["extras"]] == []


def test_every_command_is_in_the_reference_with_its_options() -> None:
    text = pages()["command-line"]
    assert [name for name in program.commands if f"\npromptkit {name}\n---" not in text] == []
    assert "\npromptkit transcript show\n---" in text
    section = text.split("\npromptkit fit\n---")[1].split("\n---")[0]
    assert "Usage: promptkit fit [OPTIONS]" in section
    assert "--budget" in section
    assert "-h, --help" in section


def test_a_summary_is_the_first_sentence_of_a_docstring() -> None:
    definition = find_definition("promptkit.messages", "Usage")
    assert definition.summary == "The tokens that a provider reports for one request."


def test_a_name_without_a_docstring_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"promptkit\.messages\.nothing is not defined there"):
        find_definition("promptkit.messages", "nothing")


def test_a_table_of_a_docstring_stays_a_table() -> None:
    text = "Parts.\n\n| part | sized |\n|---|---|\n| history | last |\n\nThe end."
    assert "* - history\n     - last" in convert_docstring(text)
