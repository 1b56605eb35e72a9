"""Load the component or the template that a command line names."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from promptkit import (
    AssistantMessage,
    Child,
    PromptElement,
    Sizing,
    SystemMessage,
    Template,
    ToolMessage,
    ToolRound,
    UserMessage,
    component,
)
from promptkit.cli.input.props import convert_prop, resolve_hints, suggest
from promptkit.cli.output.terminal import usage_error
from promptkit.elements.element import flatten
from promptkit.errors import TreeError

Props: TypeAlias = "Mapping[str, object]"


def load_target(source: str, props: Props) -> Child:
    """Create the element, or the elements, that a source and its props describe.

    `FILE.py:Name` and `package.module:Name` name a component, an element, elements in a tuple or a
    list, or a function that returns one of these. `:Name` may be left out if the module has only
    one component, or has none and only one function. `FILE.j2` is a template.

    Raises click.UsageError for anything that cannot be found, and whatever the user's code raises.
    """
    if source.endswith((".j2", ".jinja", ".jinja2")):
        return TemplatePrompt(template=Template(file=_find_file(source), values=props))
    place, _, name = source.rpartition(":")
    if not (place and name.isidentifier()):
        place, name = source, ""
    module = _module(place)
    value = _lookup(module, name, place) if name else _find_only(module, place)
    if (elements := _find_elements(value)) is not None:
        if props:
            usage_error(f"{source} is an element, not a component: it takes no props.")
        return elements
    if not callable(value):
        usage_error(
            f"{source} is a {type(value).__name__}: name a component, a function or an element."
        )
    made = _call(value, props, source)
    if (elements := _find_elements(made)) is None:
        usage_error(
            f"{source} returned a {type(made).__name__}, not an element or a sequence of elements."
        )
    return elements


def _find_elements(value: object) -> Child:
    """Return a value if it is an element, or the elements of a sequence, which may be rendered repeatedly. None: it has none."""
    try:
        elements = flatten(value, "the prompt")
    except TreeError:
        return None
    if not any(isinstance(each, PromptElement) for each in elements):
        return None
    return next(iter(elements)) if len(elements) == 1 else elements


def _find_file(source: str) -> Path:
    path = Path(source)
    if not path.is_file():
        usage_error(f"there is no file {source}.")
    return path.resolve()


def _module(place: str) -> ModuleType:
    if place.endswith(".py"):
        return _module_of_file(place)
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and f"{place}.".startswith(f"{error.name}."):
            usage_error(f"there is no module {place}: for a file, use FILE.py:COMPONENT.")
        raise


def _module_of_file(place: str) -> ModuleType:
    path = _find_file(place)
    name = f"promptkit_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        usage_error(f"cannot load {place} as a Python file.")
    module = importlib.util.module_from_spec(spec)
    # the file can import modules beside it, as when it is run as a script
    sys.path.insert(0, str(path.parent))
    sys.modules[name] = module  # annotations are resolved in it
    try:
        spec.loader.exec_module(module)
    except SystemExit:
        usage_error(
            f"{place} called sys.exit() while it was imported: put that code under `if __name__ == '__main__':`."
        )
    return module


def _lookup(module: ModuleType, name: str, place: str) -> object:
    if not hasattr(module, name):
        kind, known = _find_named(module)
        usage_error(
            f"{place} has no {name}.{suggest(name, list(known))}{_listed(f'Its {kind}', known)}"
        )
    value: object = getattr(module, name)
    return value


def _find_only(module: ModuleType, place: str) -> Callable[..., object]:
    kind, known = _find_named(module)
    if len(known) != 1:
        usage_error(
            f"{place} {f'has {len(known)} {kind}' if known else 'has no component and no function'}: use {place}:NAME.{_listed(f'Its {kind}', known)}"
        )
    return next(iter(known.values()))


def _find_named(module: ModuleType) -> tuple[str, Mapping[str, Callable[..., object]]]:
    """Return the components that a module defines, or, if it has none, its public functions, after the noun for them."""
    components = {
        name: value
        for name, value in vars(module).items()
        if callable(value)
        and inspect.isclass(cls := getattr(value, "__element__", value))
        and issubclass(cls, PromptElement)
        and cls.__module__ == module.__name__
    }
    functions = {
        name: value
        for name, value in inspect.getmembers(module, inspect.isfunction)
        if value.__module__ == module.__name__ and not name.startswith("_")
    }
    return ("components", components) if components else ("functions", functions)


def _call(function: Callable[..., object], props: Props, source: str) -> object:
    parameters = inspect.signature(function).parameters.values()
    names = [
        each.name
        for each in parameters
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    if unknown := [name for name in props if name not in names and not takes_any]:
        layout = {field.name for field in PromptElement.__attrs_attrs__}
        own = [each for each in names if not (inspect.isclass(function) and each in layout)]
        usage_error(
            f"{source} has no prop {unknown[0]!r}.{suggest(unknown[0], names)}{_listed('Its props', own or names)}"
        )
    for each in parameters:
        if each.name in names and each.name not in props and each.default is each.empty:
            usage_error(f"{source} needs the prop {each.name!r}: add it to --props FILE.json.")
    hints = resolve_hints(function)
    return function(
        **{name: convert_prop(value, hints.get(name), name) for name, value in props.items()}
    )


def _listed(title: str, names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f" {title}: {listed}." if listed else ""


MESSAGES = (AssistantMessage, SystemMessage, ToolMessage, ToolRound, UserMessage)


@component
class TemplatePrompt(PromptElement):
    """The messages of a template.

    A template without messages becomes one user message, because text cannot stand alone.
    """

    template: Template
    """Rendered with the whole budget."""

    def render(self, sizing: Sizing) -> Child:
        """Return the template's messages."""
        content = flatten(self.template.render(sizing), "TemplatePrompt")
        waiting = list(content)
        while waiting:
            item = waiting.pop()
            if isinstance(item, MESSAGES):
                return content
            if isinstance(item, PromptElement):
                waiting += item.children
        return UserMessage()[content]
