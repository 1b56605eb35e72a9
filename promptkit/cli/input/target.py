"""Load the component or the template that a command line names, and read its props from JSON.

Props are converted to the types of the component's annotations. The conversion is lenient: plain
values are passed on as they are, because the component validates them, and annotations that exist
only for type checkers are skipped. Errors name the place in the JSON, such as `history[1].content`.
"""

from __future__ import annotations

import builtins
import difflib
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import GenericAlias, ModuleType, SimpleNamespace, UnionType
from typing import TypeAlias, Union, get_args, get_origin, get_type_hints

import attrs
import cattrs
from cattrs.cols import list_structure_factory
from cattrs.errors import ForbiddenExtraKeysError

from promptkit import (
    AssistantMessage,
    Child,
    Message,
    Part,
    PromptElement,
    Sizing,
    SystemMessage,
    Template,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    ToolRound,
    UserMessage,
    component,
)
from promptkit.cli.output.terminal import usage_error
from promptkit.elements.element import flatten
from promptkit.errors import TreeError
from promptkit.messages import as_mapping

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


def read_props(path: Path | None) -> Mapping[str, object]:
    """Read props from a JSON file; `-` reads stdin, None is no props.

    Fails for anything but a JSON object.
    """
    if path is None:
        return {}
    try:
        text = (sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()).decode("utf-8")
    except OSError as error:
        usage_error(f"cannot read {path}: {error.strerror}.")
    except UnicodeDecodeError:
        usage_error(f"{path} is not UTF-8 text.")
    try:
        props: object = json.loads(text)
    except json.JSONDecodeError as error:
        usage_error(f"{path}:{error.lineno}:{error.colno}: invalid JSON: {error.msg}.")
    except RecursionError:
        usage_error(f"{path}: the JSON is nested too deeply.")
    fields = as_mapping(props)
    if not isinstance(props, dict):
        usage_error(
            f'{path} contains a JSON {type(props).__name__}: use an object, such as {{"query": "…"}}.'
        )
    return fields


def convert_prop(value: object, hint: object, where: str) -> object:
    """Convert a JSON value to the type of its annotation.

    An object becomes a Message, ToolCall, ToolDefinition or attrs instance; a list becomes a tuple,
    or a list if the annotation says so. Values without a matching annotation are returned
    unchanged.

    Args:
        value: The JSON value.
        hint: The annotation, resolved by `resolve_hints`.
        where: The place in the JSON, for error messages.

    Returns:
        The converted value.

    Raises:
        click.UsageError: An object does not match its type.
    """
    try:
        return _converter.get_structure_hook(hint)(value, hint)
    except cattrs.BaseValidationError as error:
        # A field that is missing is often the one that is misspelt.
        problem, _, place = min(
            cattrs.transform_error(error, path=where, format_exception=_explain),
            key=lambda each: not each.startswith("unknown field"),
        ).rpartition(" @ ")
        usage_error(f"{place}: {problem.removesuffix('.')}.")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the known name that a misspelt one is most like; empty if none is."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _explain(error: BaseException, _: type | None) -> str:
    if isinstance(error, ForbiddenExtraKeysError):
        name = min(error.extra_fields)
        known = [field.alias for field in attrs.fields(error.cl) if field.init]
        return f"unknown field {name!r}.{suggest(name, known)} Use {', '.join(known)}."
    return "the field is missing" if isinstance(error, KeyError) else str(error)


class _Unresolved:
    """Placeholder for a name in an annotation that exists only for type checkers."""

    def __class_getitem__(cls, item: object) -> GenericAlias:
        """Return a placeholder for a subscription such as `Name[int]`, too."""
        return GenericAlias(cls, item)


# A module may import these for type checkers only. The names still identify them.
KNOWN_NAMES: Mapping[str, object] = {
    "Mapping": Mapping,
    "Message": Message,
    "Sequence": Sequence,
    "ToolCall": ToolCall,
    "ToolDefinition": ToolDefinition,
}


class _Names(dict[str, object]):
    """The names that the annotations of a class or function use and its module does not have when it runs."""

    def __init__(self, owner: object) -> None:
        super().__init__()
        self.module = vars(sys.modules.get(getattr(owner, "__module__", ""), builtins))

    def __missing__(self, name: str) -> object:
        if name in self.module or hasattr(builtins, name):
            raise KeyError(name)
        return KNOWN_NAMES.get(name, _Unresolved)


def resolve_hints(owner: Callable[..., object]) -> Mapping[str, object]:
    """Return the annotations of a component or a function as types, without those that cannot be resolved."""
    hints: dict[str, object] = {}
    for each in reversed(inspect.getmro(owner)) if inspect.isclass(owner) else [owner]:
        names = _Names(each)
        # Each annotation is resolved on its own, so that one that cannot be resolved does not
        # affect the others.
        for name, annotation in inspect.get_annotations(each).items():
            holder = SimpleNamespace(__annotations__={"hint": annotation})
            with suppress(AttributeError, SyntaxError, TypeError):
                hints[name] = get_type_hints(holder, names.module, names)["hint"]
    return hints


_Hook = Callable[[object, object], object]


def _keep(value: object, _: object) -> object:
    return value


def _only(kind: type, convert: Callable[[object], object]) -> _Hook:
    """Return a hook that converts the values of one type of JSON, and keeps all others."""
    return lambda value, _: convert(value) if isinstance(value, kind) else value


def _has_items(hint: object, kind: type) -> bool:
    """Return whether a hint is for a kind of containers, and says of what."""
    origin = get_origin(hint)
    return inspect.isclass(origin) and issubclass(origin, kind) and bool(get_args(hint))


def _make_list_hook(hint: type, converter: cattrs.Converter) -> _Hook:
    structure = list_structure_factory(hint, converter)

    def convert(value: object) -> object:
        items: list[object] = structure(value, hint)
        return items if get_origin(hint) is list else tuple(items)

    return _only(list, convert)


def _make_mapping_hook(hint: object, converter: cattrs.Converter) -> _Hook:
    structure = converter.gen_structure_mapping(hint)
    return _only(dict, lambda value: structure(as_mapping(value), hint))


def _make_union_hook(hint: object, converter: cattrs.Converter) -> _Hook:
    def convert(value: object, _: object) -> object:
        options = (converter.get_structure_hook(each)(value, each) for each in get_args(hint))
        return next((converted for converted in options if converted is not value), value)

    return convert


def _make_object_hook(kind: type[attrs.AttrsInstance], converter: cattrs.Converter) -> _Hook:
    try:
        attrs.resolve_types(kind, localns=_Names(kind))
    except (AttributeError, NameError, SyntaxError, TypeError):
        return _keep
    structure = converter.gen_structure_attrs_fromdict(kind)
    read = _unwrap if kind in (ToolCall, ToolDefinition) else as_mapping
    return _only(dict, lambda value: structure(read(value), kind))


def _unwrap(written: object) -> Mapping[str, object]:
    """Return a tool or a call in OpenAI's form, which has its fields under `function`, in the plain one."""
    fields = as_mapping(written)
    return {
        **{key: value for key, value in fields.items() if key not in ("type", "function")},
        **as_mapping(fields.get("function")),
    }


def _is_union(hint: object) -> bool:
    # A message reads its content itself, whatever parts of a provider it has.
    return get_origin(hint) in (Union, UnionType) and hint != Part


_converter = cattrs.Converter(forbid_extra_keys=True, use_alias=True)
_converter.register_structure_hook_func(lambda _: True, _keep)
for _kind in (bool, bytes, float, int, str):  # which cattrs would convert
    _converter.register_structure_hook(_kind, _keep)
_converter.register_structure_hook_factory(
    lambda hint: inspect.isclass(hint) and attrs.has(hint) and not issubclass(hint, PromptElement),
    _make_object_hook,
)
_converter.register_structure_hook_factory(lambda hint: _has_items(hint, Sequence), _make_list_hook)
_converter.register_structure_hook_factory(
    lambda hint: _has_items(hint, Mapping), _make_mapping_hook
)
_converter.register_structure_hook_factory(_is_union, _make_union_hook)
