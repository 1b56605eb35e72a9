"""Components made from functions: a function that creates elements, whose props are its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from importlib import import_module
from inspect import Parameter, Signature
from operator import attrgetter
from types import FunctionType
from typing import NoReturn

import attrs

from promptkit.elements.component_checks import (
    check_parameter,
    refuse_async,
    refuse_children,
    refuse_forgotten_return,
)
from promptkit.elements.element import Child, PromptElement, Sizing, describe_props, make_element
from promptkit.errors import BadPropError, InvalidArgumentError, TreeError


def make_function(function: FunctionType, *, pure: bool) -> Callable[..., PromptElement]:
    """Return a function that creates the elements of a class with one prop for each parameter."""
    refuse_async(function.__name__, function, pure=pure)
    refuse_forgotten_return(function.__name__, function)
    declared = _read_parameters(function)
    element = make_element(_declare_class(declared), pure=pure)

    def create(*args: object, **given: object) -> PromptElement:
        return _construct(element, declared.bind(element, args, given))

    update_wrapper(create, function)
    create.__dict__["__signature__"] = declared.signature
    create.__dict__["__element__"] = element
    return create


def _construct(element: Callable[..., PromptElement], props: Mapping[str, object]) -> PromptElement:
    """Create an element of a class whose props no type checker knows."""
    return element(**props)


@attrs.frozen
class _Declared:
    """What a function declares by its parameters."""

    function: FunctionType
    injected: tuple[str, ...]
    """Which of `sizing` and `children` it takes."""
    signature: Signature
    """The parameters that are props."""

    def bind(
        self, element: type[PromptElement], args: tuple[object, ...], given: Mapping[str, object]
    ) -> dict[str, object]:
        """Return the props of a call by name.

        Raises:
            BadPropError: A prop is unknown, missing or given twice, or there are too many.
        """
        name, parameters = self.function.__name__, self.signature.parameters
        positional = [
            each.name for each in parameters.values() if each.kind is not Parameter.KEYWORD_ONLY
        ]
        if len(args) > len(positional):
            shown = self.signature.replace(return_annotation=Signature.empty)
            problem = f"{name} takes at most {len(positional)} values by position, not {len(args)}: write {name}{shown}."
            raise BadPropError(problem)
        values = dict(zip(positional, args, strict=False))
        if twice := values.keys() & given.keys():
            problem = f"{name} is given {', '.join(sorted(twice))} by position and by name."
            raise BadPropError(problem)
        values |= given
        if problem := describe_props(name, element, values, own=True):
            raise BadPropError(problem)
        return values

    def call(self, element: PromptElement, sizing: Sizing) -> object:
        """Call the function for an element."""
        values = {prop: getattr(element, prop) for prop in self.signature.parameters}
        if "sizing" in self.injected:
            values["sizing"] = sizing
        if "children" in self.injected:
            values["children"] = element.children
        return self.function(**values)


def _read_parameters(function: FunctionType) -> _Declared:
    name, signature = function.__name__, inspect.signature(function)
    injected = tuple(prop for prop in signature.parameters if prop in _INJECTED)
    if tuple(signature.parameters)[: len(injected)] != injected or injected == _INJECTED[::-1]:
        problem = f"{name} must take `sizing` first and `children` next, before its props."
        raise InvalidArgumentError(problem)
    parameters = list(signature.parameters.values())[len(injected) :]
    for parameter in parameters:
        check_parameter(name, parameter)
    if parameters and "children" not in injected:
        refuse_children(name, parameters[0])
    shown = signature.replace(parameters=parameters, return_annotation=PromptElement)
    return _Declared(function, injected, shown)


_INJECTED = ("sizing", "children")
"""The parameters of a function that are no props, in their order."""


def _declare_class(declared: _Declared) -> type[PromptElement]:
    function, parameters = declared.function, declared.signature.parameters.values()

    def render(self: PromptElement, sizing: Sizing) -> object:
        return declared.call(self, sizing)

    body: dict[str, object] = {
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
        "__annotations__": {each.name: each.annotation for each in parameters},
        "__reduce__": _reduce,
        "render": render,
        **{each.name: each.default for each in parameters if each.default is not Parameter.empty},
    }
    if "children" not in declared.injected:
        body["__getitem__"] = _refuse_brackets
    return type(function.__name__, (PromptElement,), body)


def _refuse_brackets(self: PromptElement, _: Child) -> NoReturn:
    problem = f"{type(self).__name__} takes no children: give the function a parameter `children: Children` before its props."
    raise TreeError(problem)


def _reduce(self: PromptElement) -> tuple[Callable[..., object], tuple[object, ...]]:
    """Pickle by the name of the function, which stands where pickle would look for the class."""
    cls = type(self)
    values = {field.name: getattr(self, field.name) for field in cls.__attrs_attrs__}
    return _restore, (cls.__module__, cls.__qualname__, values)


def _restore(module: str, name: str, values: Mapping[str, object]) -> PromptElement:
    element: type[PromptElement] = attrgetter(f"{name}.__element__")(import_module(module))
    return object.__new__(element).replace(**values)
