"""`@component`: elements from classes with a `render` method, and from functions.

A class is for a component with methods or subclasses of its own; a function says the same in fewer
lines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import get_annotations
from types import FunctionType
from typing import Concatenate, ParamSpec, Protocol, TypeVar, dataclass_transform, overload

import attrs

from promptkit.elements.component_checks import (
    check_default,
    refuse_async,
    refuse_forgotten_return,
    refuse_misspelt_render,
)
from promptkit.elements.element import Child, Children, PromptElement, Sizing, make_element
from promptkit.elements.function_component import make_function
from promptkit.errors import InvalidArgumentError

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
    if given is None:
        return partial(component, pure=pure)
    if isinstance(given, type):
        if not issubclass(given, PromptElement):
            problem = f"{given.__name__} must extend PromptElement: write `class {given.__name__}(PromptElement):`."
            raise InvalidArgumentError(problem)
        return _make_class(given, pure=pure)
    if isinstance(given, FunctionType):
        return make_function(given, pure=pure)
    problem = f"@component takes a class or a function, not {given!r}."
    raise InvalidArgumentError(problem)


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
    own = get_annotations(cls)
    element = make_element(cls, pure=pure)
    for field in element.__attrs_attrs__:
        if field.name in own:
            check_default(f"{cls.__name__}.{field.name}", field.default)
    return element
