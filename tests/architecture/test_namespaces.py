"""The public names: the facade and the documented namespaces, each complete, sorted, documented and short enough to be learnt."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

import pytest

import promptkit
from tests.architecture.source import modules, names_in_stub, namespaces, syntax_of, text_of

PUBLIC = ("promptkit", *namespaces())
PROMISED = {
    "errors",
    "elements",
    "compaction",
    "transcript",
    "lab.recordings",
    "lab.replay",
    "bench",
    "tokens",
    "testing",
}
MOST_NAMES = 70
"""Names that the facade may have."""


def public_names(namespace: str) -> list[str]:
    module = importlib.import_module(namespace)
    assert hasattr(module, "__all__"), f"{namespace} is a documented namespace and has no __all__"
    names: list[str] = module.__all__
    return names


def test_the_promised_namespaces_are_there() -> None:
    assert {f"promptkit.{name}" for name in PROMISED} <= set(namespaces())


def test_the_facade_is_short_enough_to_be_learnt() -> None:
    assert len(promptkit.__all__) <= MOST_NAMES


def test_the_facade_names_each_name_once() -> None:
    path = modules()["promptkit"]
    stub = path.with_suffix(".pyi")
    lines = [line for file in (path, stub) if file.exists() for line in text_of(file).splitlines()]
    times = {
        name: sum(bool(re.search(rf"\b{name}\b", line)) for line in lines)
        for name in promptkit.__all__
    }
    assert {name: count for name, count in times.items() if count != 1} == {}


@pytest.mark.parametrize("namespace", PUBLIC)
def test_a_namespace_is_sorted_and_names_nothing_twice(namespace: str) -> None:
    names = public_names(namespace)
    assert names, f"{namespace} exports nothing"
    # As `sorted` has it, which the lazy loader does, or as the linter has it: constants, classes,
    # functions.
    assert names in (
        sorted(set(names)),
        sorted(set(names), key=lambda name: (not name.isupper(), not name[0].isupper(), name)),
    )


@pytest.mark.parametrize("namespace", PUBLIC)
def test_every_name_of_a_namespace_is_there(namespace: str) -> None:
    module = importlib.import_module(namespace)
    assert [name for name in public_names(namespace) if not hasattr(module, name)] == []
    assert set(public_names(namespace)) <= set(dir(module))


@pytest.mark.parametrize("namespace", PUBLIC)
def test_a_namespace_lists_all_that_it_offers(namespace: str) -> None:
    names = set(public_names(namespace))
    if stub := names_in_stub(namespace):
        assert names == set(stub)
        module = importlib.import_module(namespace)
        elsewhere = {
            name: source
            for name, source in stub.items()
            if getattr(module, name) is not getattr(importlib.import_module(source), name)
        }
        assert elsewhere == {}
    else:
        body = syntax_of(modules()[namespace]).body
        own = {
            node.name
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert {name for name in own if not name.startswith("_")} - names == set()


@pytest.mark.parametrize("namespace", PUBLIC)
def test_every_class_and_function_of_a_namespace_has_a_docstring(namespace: str) -> None:
    module = importlib.import_module(namespace)
    values = {name: getattr(module, name) for name in public_names(namespace)}
    bare = [
        name
        for name, value in values.items()
        if (inspect.isclass(value) or inspect.isroutine(value)) and not value.__doc__
    ]
    assert bare == []
    assert module.__doc__


@pytest.mark.parametrize("namespace", PUBLIC)
def test_a_namespace_knows_no_other_names(namespace: str) -> None:
    with pytest.raises(AttributeError, match="rendr"):
        getattr(importlib.import_module(namespace), "rendr")  # noqa: B009  # a checker would refuse the attribute
