"""What is refused when a component is made, with what to write instead."""

from __future__ import annotations

import ast
import dataclasses
import dis
import inspect
import textwrap
from difflib import get_close_matches
from inspect import Parameter, iscoroutinefunction
from types import FunctionType

from promptkit.elements.element import Child, Children, PromptElement
from promptkit.errors import InvalidArgumentError


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
    prop = parameter.name
    if prop == "self":
        raise InvalidArgumentError(
            f"{name} takes self, but a method is no component: write a function outside of the class, which takes the object as a prop."
        )
    if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
        raise InvalidArgumentError(
            f"{name} takes {parameter}, but each prop has a name: take a sequence or a mapping."
        )
    if parameter.kind is Parameter.POSITIONAL_ONLY:
        raise InvalidArgumentError(
            f"{name} takes {prop} by position alone, but each prop has a name: remove the `/`."
        )
    if prop.startswith("_") or hasattr(PromptElement, prop):
        raise InvalidArgumentError(
            f"{name} cannot have a prop {prop}, since each element has an attribute of this name: take another name."
        )
    check_default(f"{name}({prop}=…)", parameter.default)


def refuse_children(name: str, first: Parameter) -> None:
    """Refuse a first prop that a type checker takes for the children, since both are recognized by position there."""
    if first.kind is not Parameter.KEYWORD_ONLY and first.annotation in _CHILDREN:
        raise InvalidArgumentError(
            f"the first prop of {name}, {first.name}, has a type that children have: call it `children`, so that it stands in brackets, or put it behind `*`."
        )


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
    if not isinstance(render, FunctionType) or _returns_something(render):
        return
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(render)))
    except (OSError, TypeError, SyntaxError):  # typed into an interpreter, or a part of a line
        return
    nodes: list[ast.AST] = list(ast.iter_child_nodes(tree.body[0]))
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
    if render.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        return True
    before: dis.Instruction | None = None
    for step in dis.get_instructions(render):
        if step.opname == "RETURN_VALUE" and not (
            before is not None and before.opname == "LOAD_CONST" and before.argval is None
        ):
            return True
        if step.opname == "RETURN_CONST" and step.argval is not None:
            return True
        before = step
    return False
