"""The schemas of forty functions are those that pydantic-ai and OpenAI's Agents SDK make of them; the differences are explained here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import tool
from promptkit.errors import InvalidArgumentError
from tests.unit.tools.functions import FUNCTIONS

if TYPE_CHECKING:
    from promptkit.messages import Json

HERE = Path(__file__).parent
RECORDED: Mapping[str, Mapping[str, Any]] = {  # Any: JSON
    each["framework"]: each["tools"]
    for each in json.loads((HERE / "frameworks.json").read_text(encoding="utf-8"))
}

FROM_PYDANTIC_AI = {
    "named_tuple": "pydantic-ai names the items of a named tuple in titles",
    "data_class": "fields that a nested dataclass does not have are refused, and not dropped",
    "data_class_with_default": "the same",
    "typed_dict": "the same",
    "many": "`*names` may be empty",
    "numpy_style": "pydantic-ai wraps the description in tags if the docstring has a section on what is returned",
}
FROM_AGENTS = {
    "annotated_and_documented": "the description in `Annotated` is nearer to the argument than the docstring",
    "mapping": "a dict has no strict schema: both refuse it",
    "open_mapping": "the same",
}


def without_titles(schema: Json) -> Json:
    """A schema without titles, which the Agents SDK makes of the names."""
    if isinstance(schema, Mapping):
        named = ("properties", "$defs")
        return {
            key: {name: without_titles(each) for name, each in value.items()}
            if key in named and isinstance(value, Mapping)
            else without_titles(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    return (
        [without_titles(each) for each in schema]
        if isinstance(schema, Sequence) and not isinstance(schema, str)
        else schema
    )


def test_there_are_forty_functions() -> None:
    assert len(FUNCTIONS) == 40


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_schema_is_that_of_pydantic_ai(name: str) -> None:
    theirs = RECORDED["pydantic-ai"][name]
    ours = tool(FUNCTIONS[name]).definition
    same = (ours.parameters, ours.description) == (theirs["parameters"], theirs["description"])
    assert same is (name not in FROM_PYDANTIC_AI)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_strict_schema_is_that_of_the_agents_sdk(name: str) -> None:
    theirs = RECORDED["openai-agents"][name]
    if "error" in theirs:
        with pytest.raises(
            InvalidArgumentError,
            match=r"functions.py:\d+: strict=True needs every object to list its fields",
        ):
            tool(strict=True)(FUNCTIONS[name])
        return
    ours = tool(strict=True)(FUNCTIONS[name]).definition
    assert ours.strict
    assert (without_titles(ours.parameters) == without_titles(theirs["parameters"])) is (
        name not in FROM_AGENTS
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "module"), [("pydantic-ai", "pydantic_ai"), ("openai-agents", "agents")]
)
def test_what_is_recorded_is_what_the_framework_does(framework: str, module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{framework} is not installed")
    script = [sys.executable, str(HERE / "record_frameworks.py"), framework]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout)["tools"] == RECORDED[framework]
