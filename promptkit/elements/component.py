"""`@component`: elements from classes with a `render` method, and from functions.

A class is for a component with methods or subclasses of its own; a function says the same in fewer
lines.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import inspect
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from functools import partial, update_wrapper
from importlib import import_module
from inspect import Parameter, Signature, get_annotations, iscoroutinefunction
from itertools import pairwise
from operator import attrgetter
from types import FunctionType
from typing import (
    Concatenate,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    dataclass_transform,
    overload,
)

import attrs

from promptkit.elements.element import (
    Child,
    Children,
    PromptElement,
    Sizing,
    describe_props,
    make_element,
    parse_source,
)
from promptkit.errors import BadPropError, InvalidArgumentError, TreeError

P = ParamSpec("P")
T = TypeVar("T", bound=PromptElement)


# A class is callable, too, so that the first overload overlaps the others, which it precedes.
@overload
def component(cls: type[T], /) -> type[T]: ...  # pyright: ignore[reportOverlappingOverload]  # see above


@overload
def component(
    function: Callable[Concatenate[Sizing, Children, P], Child | Awaitable[Child]], /
) -> Callable[P, PromptElement]: ...


@overload
def component(
    function: Callable[Concatenate[Sizing, P], Child | Awaitable[Child]], /
) -> Callable[P, PromptElement]: ...


@overload
def component(
    function: Callable[Concatenate[Children, P], Child | Awaitable[Child]], /
) -> Callable[P, PromptElement]: ...


@overload
def component(function: Callable[P, Child | Awaitable[Child]], /) -> Callable[P, PromptElement]: ...


@overload
def component(*, pure: bool = False) -> _Decorator: ...


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(attrs.field,))
def component(given: object = None, /, *, pure: bool = False) -> object:
    """Make a component from a class with annotated props and a `render` method, or from a function.

    A component runs in every render, so it may read a clock, a file or a service.

    A class becomes an element: frozen, keyword-only, with the layout props of PromptElement.

    The parameters of a function become props, and a call takes them as the function does. It may
    begin with `sizing`, the Sizing of the render, and then `children`, the children in brackets;
    neither is part of a call. `element.layout(…)` sets the layout props.

    Args:
        given: The class or the function. A function may be `async`, and may yield its children.
        pure: Declare that `render`, or the function, depends on nothing but the props, the children
            and `sizing`, and that lists, mappings and objects with state among the props do not
            change. A `Renderer` that you keep then re-uses the children that an element has
            rendered, as long as the prompt contains this very element object. An element that is
            created anew runs, even if it is equal. A subclass is pure only if it is declared so
            itself.

    Raises:
        InvalidArgumentError: An `async` component is declared pure, a default can be changed and
            so would be shared by all elements, `render` returns nothing, or a parameter of a
            function cannot be a prop.

    >>> @component
    ... class Greeting(PromptElement):
    ...     user: str
    ...
    ...     def render(self, sizing: Sizing) -> Child:
    ...         return f"Hello {self.user}!"
    >>> Greeting(user="Ada", priority=5)
    Greeting(user='Ada', priority=5)

    >>> @component
    ... def selection(path: str, code: str) -> Child:
    ...     return f"{path}: {code}"
    >>> selection("a.py", "print()").layout(priority=5)
    selection(path='a.py', code='print()', priority=5)
    """
    match given:
        case None:
            return partial(component, pure=pure)
        case type() if issubclass(given, PromptElement):
            return _make_class(given, pure=pure)
        case type():
            raise InvalidArgumentError(
                f"{given.__name__} must extend PromptElement: write `class {given.__name__}(PromptElement):`."
            )
        case FunctionType():
            return _make_function(given, pure=pure)
        case _:
            raise InvalidArgumentError(f"@component takes a class or a function, not {given!r}.")


class _Decorator(Protocol):
    """What `component(pure=…)` returns."""

    @overload
    def __call__(self, cls: type[T], /) -> type[T]: ...  # pyright: ignore[reportOverlappingOverload]  # as above
    @overload
    def __call__(
        self, function: Callable[Concatenate[Sizing, Children, P], Child | Awaitable[Child]], /
    ) -> Callable[P, PromptElement]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Sizing, P], Child | Awaitable[Child]], /
    ) -> Callable[P, PromptElement]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Children, P], Child | Awaitable[Child]], /
    ) -> Callable[P, PromptElement]: ...
    @overload
    def __call__(
        self, function: Callable[P, Child | Awaitable[Child]], /
    ) -> Callable[P, PromptElement]: ...


def _make_class(cls: type[PromptElement], *, pure: bool) -> type[PromptElement]:
    refuse_async(cls.__name__, cls.render, pure=pure)
    if cls.render is PromptElement.render:
        refuse_misspelt_render(cls)
    elif "render" in cls.__dict__:
        refuse_forgotten_return(f"{cls.__name__}.render", cls.render)
    element = make_element(cls, pure=pure)
    for field in element.__attrs_attrs__:
        if field.name in get_annotations(cls):
            check_default(f"{cls.__name__}.{field.name}", field.default)
    return element


def _make_function(function: FunctionType, *, pure: bool) -> Callable[..., PromptElement]:
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
            raise BadPropError(
                f"{name} takes at most {len(positional)} values by position, not {len(args)}: "
                f"write {name}{self.signature.replace(return_annotation=Signature.empty)}."
            )
        values = dict(zip(positional, args, strict=False))
        if twice := values.keys() & given.keys():
            raise BadPropError(
                f"{name} is given {', '.join(sorted(twice))} by position and by name."
            )
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
        raise InvalidArgumentError(
            f"{name} must take `sizing` first and `children` next, before its props."
        )
    parameters = list(signature.parameters.values())[len(injected) :]
    for parameter in parameters:
        check_parameter(name, parameter)
    # a type checker takes such a prop for the children, since both are recognized by position there
    if (
        parameters
        and "children" not in injected
        and parameters[0].kind is not Parameter.KEYWORD_ONLY
        and parameters[0].annotation in _CHILDREN
    ):
        raise InvalidArgumentError(
            f"the first prop of {name}, {parameters[0].name}, has a type that children have: call it `children`, so that it stands in brackets, or put it behind `*`."
        )
    return _Declared(
        function,
        injected,
        signature.replace(parameters=parameters, return_annotation=PromptElement),
    )


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
    raise TreeError(
        f"{type(self).__name__} takes no children: give the function a parameter `children: Children` before its props."
    )


def _reduce(self: PromptElement) -> tuple[Callable[..., object], tuple[object, ...]]:
    """Pickle by the name of the function, which stands where pickle would look for the class."""
    cls = type(self)
    return _restore, (
        cls.__module__,
        cls.__qualname__,
        {field.name: getattr(self, field.name) for field in cls.__attrs_attrs__},
    )


def _restore(module: str, name: str, values: Mapping[str, object]) -> PromptElement:
    element: type[PromptElement] = attrgetter(f"{name}.__element__")(import_module(module))
    return object.__new__(element).replace(**values)


def refuse_async(name: str, render: object, *, pure: bool) -> None:
    """Refuse an `async` component that is declared pure, and one that yields."""
    if inspect.isasyncgenfunction(render):
        raise InvalidArgumentError(
            f"{name} is async and yields, which cannot be awaited: collect its children in a list, and return that."
        )
    if pure and iscoroutinefunction(render):
        raise InvalidArgumentError(
            f"{name} cannot be pure, since it is async and so loads something: write @component without pure=True."
        )


def check_parameter(name: str, parameter: Parameter) -> None:
    """Refuse a parameter that cannot be a prop."""
    match parameter:
        case Parameter(name="self"):
            problem = "takes self, but a method is no component: write a function outside of the class, which takes the object as a prop"
        case Parameter(kind=Parameter.VAR_POSITIONAL | Parameter.VAR_KEYWORD):
            problem = f"takes {parameter}, but each prop has a name: take a sequence or a mapping"
        case Parameter(name=prop, kind=Parameter.POSITIONAL_ONLY):
            problem = f"takes {prop} by position alone, but each prop has a name: remove the `/`"
        case Parameter(name=prop) if prop.startswith("_") or hasattr(PromptElement, prop):
            problem = f"cannot have a prop {prop}, since each element has an attribute of this name: take another name"
        case _:
            check_default(f"{name}({parameter.name}=…)", parameter.default)
            return
    raise InvalidArgumentError(f"{name} {problem}.")


_CHILDREN = (Child, Children, "Child", "Children", "promptkit.Child")


def check_default(where: str, default: object) -> None:
    """Refuse a default that all elements would share, and one of `dataclasses.field`, which is no default here."""
    if type(default) in _MUTABLE:
        kind = type(default).__name__
        raise InvalidArgumentError(
            f"the default of {where} is a {kind}, which all elements would share: write `attrs.field(factory={kind})` in a class, or an empty tuple or None."
        )
    if isinstance(default, dataclasses.Field):
        raise InvalidArgumentError(
            f"the default of {where} is a dataclasses.field, which means nothing here: write `attrs.field(factory=…)`."
        )


_MUTABLE = (list, dict, set, bytearray)


def refuse_misspelt_render(cls: type[PromptElement]) -> None:
    """Refuse a class without `render` that has a method of nearly this name."""
    methods = [name for name, value in cls.__dict__.items() if isinstance(value, FunctionType)]
    if near := get_close_matches("render", methods, 1, cutoff=0.75):
        raise InvalidArgumentError(
            f"{cls.__name__} has no `render`, but {near[0]}: is it misspelt?"
        )


def refuse_forgotten_return(name: str, render: object) -> None:
    """Refuse a function that ends without a `return` statement; `return None` is one."""
    if (
        not isinstance(render, FunctionType)
        or _returns_something(render)
        or (source := parse_source(render)) is None
    ):
        return
    nodes: list[ast.AST] = list(ast.iter_child_nodes(source))
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Return | ast.Raise | ast.Yield | ast.YieldFrom):
            return
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            nodes += ast.iter_child_nodes(node)
    raise InvalidArgumentError(
        f"{name} returns nothing: return its children, or write `return None` where there are none."
    )


def _returns_something(render: FunctionType) -> bool:
    """Return whether the code has a `return` of anything but None, or yields. The source is read only if it has not."""
    yields = render.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR)
    return bool(yields) or any(
        step.argval is not None
        if step.opname == "RETURN_CONST"
        else step.opname == "RETURN_VALUE"
        and not (before.opname == "LOAD_CONST" and before.argval is None)
        for before, step in pairwise(dis.get_instructions(render))
    )
