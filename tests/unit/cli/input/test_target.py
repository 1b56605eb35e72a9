"""What can be rendered, and what is said about what cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from promptkit.cli.input.target import load_target
from promptkit.elements.builtin import UserMessage
from promptkit.elements.element import PromptElement
from promptkit.rendering.renderer import render
from promptkit.testing import WordTokenizer

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = """
from __future__ import annotations
from collections.abc import Sequence
from promptkit import Child, Message, PromptElement, Sizing, UserMessage, component

@component
class Review(PromptElement):
    query: str
    history: Sequence[Message] = ()

    def render(self, sizing: Sizing) -> Child:
        return UserMessage()[self.query]

def macro(query: str, **rest: object) -> PromptElement:
    return Review(query=query)

element = Review(query="fixed")
number = 5

def broken() -> str:
    return "text"

several = (UserMessage()["one"], UserMessage()["two"])

def pair(query: str) -> Child:
    return UserMessage()["first"], [UserMessage()[query]]

def numbers() -> list[int]:
    return [1, 2]
"""


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    path = tmp_path / "prompt.py"
    path.write_text(PROMPT, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", [":Review", "", ":macro"])
def test_a_component_or_a_function_takes_props(prompt: Path, name: str) -> None:
    element = load_target(f"{prompt}{name}", {"query": "Why?"})
    assert repr(element) == "Review(query='Why?')"


def test_an_element_is_taken_as_it_is(prompt: Path) -> None:
    assert repr(load_target(f"{prompt}:element", {})) == "Review(query='fixed')"


def test_a_sequence_of_elements_is_taken_as_render_takes_it(prompt: Path) -> None:
    assert load_target(f"{prompt}:several", {}) == (UserMessage()["one"], UserMessage()["two"])
    assert load_target(f"{prompt}:pair", {"query": "x"}) == (
        UserMessage()["first"],
        UserMessage()["x"],
    )


def test_a_component_of_a_module() -> None:
    assert load_target("promptkit.elements.builtin:UserMessage", {"priority": 3}) == UserMessage(
        priority=3
    )


def test_a_file_may_import_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "neighbour_of_prompt.py").write_text(PROMPT, encoding="utf-8")
    (tmp_path / "uses.py").write_text("from neighbour_of_prompt import macro", encoding="utf-8")
    assert isinstance(load_target(f"{tmp_path / 'uses.py'}:macro", {"query": "x"}), PromptElement)


@pytest.mark.parametrize(
    ("name", "props", "said"),
    [
        (":Reveiw", {}, "has no Reveiw. Did you mean 'Review'. Its components: Review"),
        (":Review", {}, "needs the prop 'query': add it to --props"),
        (
            ":Review",
            {"query": "x", "histroy": []},
            "has no prop 'histroy'. Did you mean 'history'. Its props: query, history",
        ),
        (":Review", {"query": "x", "children": []}, "has no prop 'children'"),
        (":element", {"query": "x"}, "is an element, not a component: it takes no props"),
        (":number", {}, "is a int: name a component, a function or an element"),
        (":broken", {}, "returned a str, not an element"),
        (":numbers", {}, "returned a list, not an element or a sequence of elements"),
        (":several", {"query": "x"}, "is an element, not a component: it takes no props"),
    ],
)
def test_a_mistake_says_what_to_do(
    prompt: Path, name: str, props: dict[str, object], said: str
) -> None:
    with pytest.raises(click.UsageError, match=said.replace(".", r"[.?]")):
        load_target(f"{prompt}{name}", props)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("missing.py:Review", "there is no file missing.py"),
        ("missing.j2", "there is no file missing.j2"),
        ("no_such_package.prompts:Review", "there is no module no_such_package.prompts"),
        ("promptkit.elements.builtin", r"has \d+ components: use promptkit.elements.builtin:NAME"),
        ("promptkit.errors", "has no component"),
    ],
)
def test_a_source_that_is_not_there_is_said(source: str, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        load_target(source, {})


def test_a_file_that_exits_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "exits.py"
    path.write_text("import sys\nsys.exit(0)", encoding="utf-8")
    with pytest.raises(click.UsageError, match=r"called sys.exit\(\) while it was imported"):
        load_target(str(path), {})


def test_a_function_under_component_is_the_component_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "greeting.py"
    file.write_text(
        "from promptkit import Child, UserMessage, component\n\n"
        "@component\ndef greeting(person: str = 'Ada') -> Child:\n    return UserMessage()[person]\n",
        encoding="utf-8",
    )
    assert repr(load_target(str(file), {})) == "greeting()"
    assert repr(load_target(f"{file}:greeting", {"person": "Eva"})) == "greeting(person='Eva')"


def test_messages_of_a_template_are_found_at_any_depth(tmp_path: Path) -> None:
    file = tmp_path / "deep.j2"
    file.write_text(
        "{% set ns = namespace(x='x') %}{% for i in range(3000) %}"
        "{% set one_more %}{% group %}{{ ns.x }}{% endgroup %}{% endset %}{% set ns.x = one_more %}"
        "{% endfor %}{{ ns.x }}"
    )
    (message,) = render(load_target(str(file), {}), budget=9, tokenizer=WordTokenizer()).messages
    assert (message.role, message.text) == ("user", "x")
