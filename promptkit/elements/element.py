"""The prompt language: elements, components and the information that a component gets while it renders.

An element is a frozen value with props in `()` and children in `[]`. A component is an element with
a `render` method.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import unicodedata
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
    Set as AbstractSet,
    Sized,
)
from difflib import get_close_matches
from functools import partial, wraps
from inspect import Parameter, Signature
from itertools import pairwise, zip_longest
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
)

import attrs

from promptkit.errors import BadChildError, BadPropError, NotProvidedError, TreeError
from promptkit.messages import Message, as_mapping, is_instance
from promptkit.reprs import clip
from promptkit.tokens.tokenizer import Tokenizer, count_message

Child: TypeAlias = "str | PromptElement | Sequence[Child] | Iterator[Child] | bool | None"
"""A valid item of `element[...]` and a valid result of `render`: text, an element, a sequence of
children, or nothing (None, a boolean)."""

Children: TypeAlias = "tuple[str | PromptElement | None, ...]"
"""Children as one flat tuple. None and booleans become None and keep their position."""

T = TypeVar("T", bound="PromptElement")
V = TypeVar("V")


def _bind_count_message(sizing: Sizing) -> Callable[[Message], int]:
    return partial(count_message, tokenizer=sizing.tokenizer)


@attrs.define(eq=False, repr=False)
class Sizing:
    """The budget, tokenizer, model and `prune_step` of the current render, for a component's `render` method.

    Earlier flex groups are counted only when `token_budget` is read, and reading it is recorded:
    where the children of a component are re-used (`pure=True`, and retries of a session's request),
    a component that has read its budget runs again for another budget.
    """

    _budget: Callable[[], int]
    tokenizer: Tokenizer
    """The tokenizer of this render."""
    model: str | None = None
    """The name of the model, None if the render was called without one."""
    prune_step: int = attrs.field(default=0, kw_only=True)
    """The `prune_step` of the render, in tokens. Unless it is 0, a component shows the same at
    every budget: the prefix is held."""
    count_message: Callable[[Message], int] = attrs.field(
        default=attrs.Factory(_bind_count_message, takes_self=True), kw_only=True
    )
    """Counts the tokens of a message, framing included. The render and the next one count each
    message object once."""
    memory: MutableMapping[object, object] = attrs.field(factory=dict[object, object], kw_only=True)
    """Values that components keep from one render of a Renderer for its next one. An entry that the
    next render does not write again is dropped at its end."""
    _find: Callable[[type], object] | None = attrs.field(alias="find", default=None, kw_only=True)
    budget_reads: set[int] = attrs.field(factory=set[int], init=False)
    """The values of `token_budget` that were read; empty until it is read."""
    provided_reads: dict[type, object] = attrs.field(factory=dict[type, object], init=False)
    """The values that `get` returned."""

    @property
    def token_budget(self) -> int:
        """The tokens available to this element: its share of what earlier flex groups left over."""
        budget = self._budget()
        self.budget_reads.add(budget)
        return budget

    def get(self, kind: type[V]) -> V:
        """Return the value of a class that the nearest `Provide(value)[…]` around this element provides.

        Raises:
            NotProvidedError: None around it provides such a value.
        """
        value = None if self._find is None else self._find(kind)
        if not isinstance(value, kind):
            raise NotProvidedError(
                f"nothing provides a {kind.__name__} here: put the element into `Provide(…)[…]` with one."
            )
        self.provided_reads[kind] = value
        return value

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text with this render's tokenizer."""
        return self.tokenizer.count(text)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(attrs.field,))
def make_element(cls: type[T], *, pure: bool = False) -> type[T]:
    """Make a class with annotated props an element: frozen, keyword-only, own props first in its signature."""
    # init=True: otherwise attrs keeps the __init__ that __init_subclass__ sets to report a missing
    # decorator. Equality and repr are defined below: the ones of attrs recurse and fail on deep
    # trees.
    element = attrs.frozen(cls, kw_only=True, init=True, eq=False, repr=False)
    signature = _order_props(element)
    for name, value in {
        "__init__": _check_arguments(element.__init__, signature),
        "__signature__": signature,
        "__doc__": ElementDocs(element.__doc__),
        "__pure__": pure,  # also if it is False: it is not inherited
    }.items():
        setattr(element, name, value)
    return element


@attrs.frozen
class ElementDocs:
    """The docstring of an element's class, with those of its own props behind it.

    The source of the class is read when something asks for the docstring, such as `help`.
    """

    text: str | None

    def __get__(self, element: object, cls: type) -> str | None:
        """Return the whole docstring."""
        docs = (inspect.cleandoc(self.text or ""), _read_prop_docs(cls))
        return "\n\n".join(filter(None, docs)) or None


def _read_prop_docs(cls: type) -> str:
    """Return a section with the docstrings under the props of a class; empty without any, or without its source."""
    body = source.body if isinstance(source := parse_source(cls), ast.ClassDef) else []
    names = {field.name: prop_name(field) for field in getattr(cls, "__attrs_attrs__", ())}
    entries = [
        f"    {names.get(prop.target.id, prop.target.id)}: {' '.join(str(below.value.value).split())}"
        for prop, below in pairwise(body)
        if isinstance(prop, ast.AnnAssign)
        and isinstance(prop.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    ]
    return "\n".join(["Props:", *entries]) if entries else ""


def parse_source(definition: type | FunctionType) -> ast.stmt | None:
    """Return the statement that defines a class or a function; None without its source."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(definition))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None  # typed into an interpreter, or a part of a line, or a class made of a function


def _order_props(cls: type[PromptElement]) -> Signature:
    """Return the signature of a class, with its own props before the layout props."""
    signature = inspect.signature(cls.__init__)
    _, *parameters = signature.parameters.values()  # without self
    layout = () if cls.__base__ is object else signature_names(PromptElement)
    return signature.replace(
        parameters=sorted(parameters, key=lambda parameter: parameter.name in layout)
    )


def signature_names(cls: type[PromptElement]) -> tuple[str, ...]:
    """Return the names of the props that a class takes."""
    return tuple(prop_name(field) for field in cls.__attrs_attrs__ if field.init)


def _list_needed(cls: type[PromptElement]) -> list[str]:
    """List the props of a class that have no default."""
    return [
        prop_name(field)
        for field in cls.__attrs_attrs__
        if field.init and field.default is attrs.NOTHING
    ]


def prop_name(field: attrs.Attribute[object]) -> str:
    """Return the name of a prop where an element is written. Its attribute may have another one."""
    return field.alias or field.name


PLAIN_TYPES: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "None": (type(None),),
}
"""The types whose values are checked, as written in a class, and the classes of their values."""


def has_type(value: object, annotation: str) -> bool:
    """Return whether a value has the type of a prop; True if that is not made of PLAIN_TYPES alone."""
    names = annotation.split(" | ")
    return not PLAIN_TYPES.keys() >= set(names) or (
        isinstance(value, tuple(kind for name in names for kind in PLAIN_TYPES[name]))
        and (not isinstance(value, bool) or "bool" in names)
    )


def _check_arguments(init: Callable[..., None], signature: Signature) -> Callable[..., None]:
    """Return an `__init__` that says where children are written and which prop was meant."""

    @wraps(init)
    def check_arguments(self: PromptElement, *args: object, **props: object) -> None:
        cls = type(self)
        if args:
            advice = _advise(cls, args)
            raise TreeError(
                f"{cls.__name__} has no positional arguments: children stand in brackets, and props have names. {advice[0].upper()}{advice[1:]}"
            )
        try:
            init(self, **props)
        except TypeError:
            # attrs names what is wrong, but not what was meant
            if problem := describe_props(cls.__name__, cls, props):
                raise BadPropError(problem) from None
            raise

    check_arguments.__dict__["__signature__"] = signature.replace(
        parameters=[Parameter("self", Parameter.POSITIONAL_ONLY), *signature.parameters.values()]
    )
    check_arguments.__doc__ = "Set the props."
    return check_arguments


def describe_props(
    name: str, cls: type[PromptElement], props: Collection[str], *, own: bool = False
) -> str:
    """Say which props are unknown or missing, and which were meant. Empty if the names are right.

    Args:
        name: What the element is called where it is used.
        cls: The class of the element.
        props: The names that were given.
        own: Take the layout props for unknown.
    """
    layout = signature_names(PromptElement)
    known = [prop for prop in signature_names(cls) if not own or prop not in layout]
    for prop in [prop for prop in props if prop not in known]:
        if prop in layout:
            return f"{name} takes its own props alone: write {name}(…).layout({prop}=…)."
        if prop == "children":
            return f"children of {name} stand in brackets: write {name}(…)[…]."
        if near := get_close_matches(prop, [*known, *layout], 1):
            return f"{name} has no prop {prop}: did you mean {near[0]}?"
        return f"{name} has no prop {prop}: its props are {', '.join([each for each in known if each not in layout] or known)}."
    missing = [prop for prop in _list_needed(cls) if prop not in props]
    return (
        f"{name} needs {' and '.join(missing)}: write {name}({', '.join(f'{each}=…' for each in missing)})."
        if missing
        else ""
    )


def _advise(cls: type[PromptElement], values: Sequence[object], *, brackets: bool = False) -> str:
    """Say how to write an element of this class with these values: as children, or as the props that a component needs."""
    needed, problem = _list_needed(cls), ""
    try:
        # an iterator may have no end
        flatten([value for value in values if not isinstance(value, Iterator)], cls.__name__)
    except TreeError as error:
        problem = str(error)
    if needed and cls.render is not PromptElement.render and (problem or not brackets):
        given = [
            "[…]" if isinstance(value, list) else _shorten(value) for value in values[: len(needed)]
        ]
        return f"write {cls.__name__}({', '.join(f'{name}={shown}' for name, shown in zip_longest(needed, given, fillvalue='…'))})."
    return (
        problem
        or f"write {cls.__name__}({', '.join(f'{name}=…' for name in needed)})[{', '.join(map(_shorten, values))}]."
    )


def _shorten(value: object) -> str:
    return clip(repr(value), MAX_SHOWN)


MAX_SHOWN = 80
"""Characters of a value in an error message."""


def _read_label(label: str | None) -> str | None:
    """Return a label that can be printed on one line."""
    # callers without a type checker pass anything
    if label is None or (isinstance(cast("object", label), str) and label.isprintable()):
        return label
    if not isinstance(cast("object", label), str):  # as above
        raise BadPropError(f"label must be a text or None, not {_shorten(label)}.")
    return "".join(
        repr(letter)[1:-1] if unicodedata.category(letter) in _CONTROLS else letter
        for letter in label
    )


_CONTROLS = ("Cc", "Cs", "Zl", "Zp")
"""The categories of characters that a label shows escaped: controls, line breaks, and lone
surrogates, which cannot be printed."""


@make_element
class PromptElement:
    """The base of all elements: frozen props, children, and the layout props.

    To write a component, subclass it under `@component` and define `render`. A subclass without
    `render` is a container of its children with a priority scope of its own, like `Group`.
    """

    priority: float | None = None
    """A higher priority is kept longer. It is compared only with siblings in the same container.
    None is the highest priority. The strings among the children are kept longer than the other
    children, but strings on both sides of some of these leave with the last of them."""

    pass_priority: bool = False
    """Compare the children directly with the siblings of this element. Its own priority is ignored
    if it has children."""

    flex_grow: float | None = None
    """The order of sizing: None first, then from high to low. Elements with the same value form a
    flex group, which shares what the groups before it left over."""

    flex_basis: float = 1
    """The weight within the flex group: the share is basis / sum of bases."""

    flex_reserve: int | str | None = None
    """The tokens that earlier flex groups must leave for this element: a number, or `"/N"` for one
    Nth of what is left."""

    required: bool = False
    """Never prune this element. If the required elements do not fit the budget, the render raises
    BudgetExceededError."""

    fallback: Child = attrs.field(default=None, repr=False)
    """Replaces this element once it is pruned, for example by a marker or an outline. It is as
    prunable as the element."""

    label: str | None = attrs.field(default=None, converter=_read_label)
    """A name for this element in paths, receipts, traces and plots. It is not sent to the provider.
    Control characters are shown escaped."""

    children: Children = attrs.field(default=(), init=False)
    """The children, set by `element[...]`."""

    if TYPE_CHECKING:
        # attrs sets this attribute. At run time Attribute takes no type parameter, so
        # `typing.get_type_hints` would fail on it.
        __attrs_attrs__: ClassVar[tuple[attrs.Attribute[object], ...]]

    __pure__: ClassVar[bool] = False
    """True if the class was declared with `@component(pure=True)`."""

    # without it, `list(element)` would call __getitem__ with 0, 1, 2, … without end
    __iter__: ClassVar[None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # attrs creates a second class for the slots. Only that class, and only under @component,
        # has its own __attrs_attrs__.
        if "__attrs_attrs__" not in cls.__dict__:
            setattr(cls, "__init__", _raise_undecorated)  # noqa: B010  # mypy rejects a plain assignment to a method

    if not TYPE_CHECKING:  # type checkers report it by themselves

        def __class_getitem__(cls, item: object) -> object:
            """Report children of a class, `UserMessage["Hello"]`.

            A class with type parameters takes them as usual.
            """
            if issubclass(cls, Generic):
                return super().__class_getitem__(item)
            # the types of the items are unknown
            values = cast("tuple[object, ...]", item) if isinstance(item, tuple) else (item,)
            raise TreeError(
                f"{cls.__name__} is a class, and only its elements have children: {_advise(cls, values, brackets=True)}"
            )

    def render(self, sizing: Sizing) -> Child | Awaitable[Child]:
        """Return the children that this element consists of.

        May be `async`. It runs in every render, unless the class is declared pure.
        """
        return self.children

    def __getitem__(self, children: Child) -> Self:
        """Return this element with these children."""
        if self.children:
            raise TreeError(
                f"{type(self).__name__} already has children: put all children into one pair of brackets."
            )
        return self.replace(children=flatten(children, type(self).__name__))

    def replace(self, **changes: object) -> Self:
        """Return a copy with changed props, or with changed `children` (as a flat tuple).

        >>> UserMessage(priority=1)["Hello"].replace(priority=2)
        UserMessage(priority=2)['Hello']
        """
        cls = type(self)
        clone = object.__new__(cls)
        set_field = object.__setattr__  # the class is frozen
        for field in cls.__attrs_attrs__:
            name = field.name
            prop = field.alias or name
            set_field(clone, name, changes.pop(prop) if prop in changes else getattr(self, name))
        if changes:
            raise BadPropError(describe_props(cls.__name__, cls, changes))
        return clone

    def layout(  # noqa: PLR0913  # the layout props
        self,
        *,
        priority: float | None = None,
        pass_priority: bool | None = None,
        flex_grow: float | None = None,
        flex_basis: float | None = None,
        flex_reserve: int | str | None = None,
        required: bool | None = None,
        fallback: Child = None,
        label: str | None = None,
    ) -> Self:
        """Return a copy with these layout props. None leaves a prop as it is.

        It lays out an element at the place where it is used, such as one of a function component.

        >>> selection("a.py", code).layout(priority=5, flex_grow=1)
        """
        given = {
            "priority": priority,
            "pass_priority": pass_priority,
            "flex_grow": flex_grow,
            "flex_basis": flex_basis,
            "flex_reserve": flex_reserve,
            "required": required,
            "fallback": fallback,
            "label": _read_label(label),
        }
        return self.replace(**{prop: value for prop, value in given.items() if value is not None})

    def __eq__(self, other: object) -> bool:
        """Compare two trees by value, without recursion.

        A tree that contains itself equals one that looks the same at every depth.
        """
        if not isinstance(other, PromptElement):
            return NotImplemented
        equal = _EqualValues()
        stack: list[tuple[object, object]] = [(self, other)]
        while stack:
            mine, theirs = stack.pop()
            if mine is theirs:
                continue
            if _is_composite(mine) and _is_composite(theirs):
                inner = _pair_values(mine, theirs)
                if inner is None:
                    return False
                if equal.add(mine, theirs):
                    stack.extend(inner)
            elif mine != theirs:
                return False
        return True

    def __hash__(self) -> int:
        """Hash a few props and the text children only, so that props may be unhashable and trees deep.

        Equal elements hash equal.
        """
        return hash(
            (
                type(self),
                self.priority,
                self.label,
                len(self.children),
                *(c for c in self.children if isinstance(c, str)),
            )
        )

    def __repr__(self) -> str:
        """Return the expression that creates this value, built without recursion.

        A value inside itself is shown as `Name(…)`, and so is one that was shown before once the
        expression is very long.
        """
        out: list[str] = []
        opened: set[int] = set()  # the values around the current one
        shown: set[int] = set()
        stack: list[object] = [self]
        while stack:
            item = stack.pop()
            key = id(item)
            match item:
                case _Verbatim():
                    out.append(item)
                case _End():
                    opened.discard(item.value)
                case _ if not _is_composite(item):
                    out.append(repr(item))
                case _ if key in opened or (key in shown and len(out) > _MAX_REPEATED):
                    out.append(_abbreviate(item))
                case _:
                    opened.add(key)
                    shown.add(key)
                    stack.append(_End(key))
                    stack.extend(reversed(_repr_parts(item)))
        return "".join(out)

    def _repr_pretty_(self, printer: _Printer, *_: object) -> None:
        """Print the same in hypothesis and IPython, which print attrs classes without their children."""
        printer.text(repr(self))


def _raise_undecorated(self: PromptElement, *_: object, **__: object) -> None:
    name = type(self).__name__
    raise TreeError(
        f"{name} is a subclass of PromptElement without @component: write @component above `class {name}`."
    )


class _Printer(Protocol):
    def text(self, text: str, /) -> None: ...


class _Verbatim(str):
    """A text that `repr` writes without quotes."""

    __slots__ = ()


class _End(NamedTuple):
    """Marks the end of the value with this id."""

    value: int


def _is_composite(value: object) -> bool:
    """Return whether a value is compared and shown item by item, since it may be deep, be at many places, or contain itself."""
    return isinstance(value, PromptElement) or type(value) in _CONTAINERS


_CONTAINERS = (tuple, list, dict)

_MAX_REPEATED = 100_000
"""The pieces of a `repr` after which no value is shown a second time. A tree can have exponentially
many places for few elements."""


@attrs.define(eq=False)
class _EqualValues:
    """Pairs of values that are equal unless their items differ, as disjoint sets of ids: `a = b` and `b = c` imply `a = c`.

    So trees whose elements are at many places, or inside themselves, are compared in linear time.
    """

    _links: dict[int, int] = attrs.field(factory=dict[int, int], init=False)
    """Leads from each id towards the one that represents its set."""

    def add(self, one: object, other: object) -> bool:
        """Add a pair. Return whether it is new, so that its items must be compared."""
        left, right = self._find(id(one)), self._find(id(other))
        self._links[left] = right
        return left != right

    def _find(self, value: int) -> int:
        links = self._links
        while (link := links.setdefault(value, value)) != value:
            links[value] = links[link]
            value = link
        return value


def _pair_values(mine: object, theirs: object) -> Iterable[tuple[object, object]] | None:
    """Pair the items of two values in order. None: their types or their lengths differ."""
    if isinstance(mine, PromptElement) and type(mine) is type(theirs):
        return [
            (getattr(mine, field.name), getattr(theirs, field.name))
            for field in type(mine).__attrs_attrs__
        ]
    if isinstance(mine, dict) and isinstance(theirs, dict):
        # the types of the items are unknown
        one, other = cast("dict[object, object]", mine), cast("dict[object, object]", theirs)
        return (
            [(value, other[key]) for key, value in one.items()]
            if one.keys() == other.keys()
            else None
        )
    for kind in (tuple, list):
        if isinstance(mine, kind) and isinstance(theirs, kind):
            # as above
            left, right = cast("Sequence[object]", mine), cast("Sequence[object]", theirs)
            return zip(left, right, strict=True) if len(left) == len(right) else None
    return None


def _repr_parts(value: object) -> list[object]:
    """Return the pieces of the expression that creates an element, a tuple, a list or a mapping."""
    if isinstance(value, PromptElement):
        return _repr_element(value)
    if isinstance(value, dict):
        return [
            _Verbatim("{"),
            *_join(
                [key, _Verbatim(": "), item]
                # the types of the items are unknown
                for key, item in cast("dict[object, object]", value).items()
            ),
            _Verbatim("}"),
        ]
    left, right = ("[", "]") if isinstance(value, list) else ("(", ")")
    each = [[item] for item in cast("Sequence[object]", value)]  # as above
    return [
        _Verbatim(left),
        *_join(each),
        _Verbatim(f",{right}" if len(each) == 1 and right == ")" else right),
    ]


def _repr_element(element: PromptElement) -> list[object]:
    layout = signature_names(PromptElement)
    fields = sorted(
        type(element).__attrs_attrs__,
        key=lambda field: field.name in layout and type(element) is not PromptElement,
    )
    given: list[list[object]] = [
        [_Verbatim(f"{prop_name(field)}="), getattr(element, field.name)]
        for field in fields
        if field.name != "children" and not _is_default(getattr(element, field.name), field)
    ]
    children = _join([[child] for child in element.children])
    return [
        _Verbatim(f"{type(element).__name__}("),
        *_join(given),
        _Verbatim(")"),
        *((_Verbatim("["), *children, _Verbatim("]")) if element.children else ()),
    ]


def _join(groups: Iterable[Sequence[object]]) -> Iterator[object]:
    """Join groups of pieces by commas."""
    for index, group in enumerate(groups):
        yield from [_Verbatim(", "), *group] if index else group


def _abbreviate(value: object) -> str:
    """Show a value without its content."""
    if isinstance(value, PromptElement):
        return f"{type(value).__name__}(…)"
    return "{…}" if isinstance(value, dict) else "[…]" if isinstance(value, list) else "(…)"


def _is_default(value: object, field: attrs.Attribute[object]) -> bool:
    factory: Callable[[], object] | None = getattr(field.default, "factory", None)
    default = factory() if factory else field.default
    # `==` between other types may return anything: arrays return arrays.
    return value is default or (type(value) is type(default) and value == default)


def flatten(child: object, owner: str) -> Children:
    """Flatten a child and its nested sequences into one tuple.

    Args:
        child: Any valid child. Other values are refused.
        owner: The name of the element for the error message.

    Raises:
        BadChildError: An item is not a valid child. It is raised when the element is built, not
            when it is rendered.
        TreeError: A sequence contains itself.
    """
    if isinstance(child, str | PromptElement):
        return (child,)
    if child is None or isinstance(child, bool):
        return (None,)
    flat: list[str | PromptElement | None] = []
    stack: list[Iterator[object]] = [_iterate(child, owner)]
    opened: list[object] = [child]  # the sequences that `stack` iterates over
    while stack:
        for item in stack[-1]:
            # a tuple, as a union would be made anew for each of very many children
            if isinstance(item, (PromptElement, str)):
                flat.append(item)
            elif item is None or isinstance(item, bool):
                flat.append(None)
            else:
                stack.append(_iterate(item, owner))
                opened.append(item)
                # at powers of two, which is linear in the depth
                if len(opened) >= _DEEP and len(opened) & (len(opened) - 1) == 0:
                    _refuse_cycle(opened, owner)
                break
        else:
            stack.pop()
            opened.pop()
    return tuple(flat)


_DEEP = 8
"""Sequences inside each other from which on `flatten` looks for one that contains itself."""


_SHOWN = 20
"""Steps of the place of a sequence in itself that an error shows."""


def _refuse_cycle(opened: Sequence[object], owner: str) -> None:
    """Raise TreeError if a sequence occurs among those that are inside it."""
    first: dict[int, int] = {}
    for depth, value in enumerate(opened):
        # an iterator that yields itself ends
        if first.setdefault(id(value), depth) < depth and not isinstance(value, Iterator):
            places = "".join(
                f"[{_find_place(opened[at], opened[at + 1])}]" for at in range(min(depth, _SHOWN))
            )
            raise TreeError(
                f"a {type(value).__name__} among the children of {owner} contains itself, at {places}: take it out of itself."
            )


def _find_place(outer: object, inner: object) -> int:
    # the types of the items are unknown
    items = cast("Iterable[object]", outer) if isinstance(outer, Sequence) else ()
    return next((place for place, item in enumerate(items) if item is inner), 0)


def _iterate(value: object, owner: str) -> Iterator[object]:
    if not _is_fragment(value):
        raise BadChildError(_describe_bad_child(value, owner))
    # the types of the items are unknown; flatten checks each
    return iter(cast("Iterable[object]", value))


def _is_fragment(value: object) -> bool:
    # The class first: the checks by abstract classes take ten times as long. The objects of SDKs
    # (pydantic models) iterate over their fields, which are no children.
    return type(value) in (tuple, list) or (
        not hasattr(value, "model_dump")
        and isinstance(value, Iterable)
        and not isinstance(value, bytes | bytearray | Mapping | AbstractSet)
    )


def _describe_bad_child(value: object, owner: str) -> str:
    match value:
        case type():
            hint = f"it is a class: write {value.__name__}()"
        case Opening():
            hint = f"its children stand behind it: write {type(value).__name__}(…)[…]"
        case _ if _is_false(value):
            hint = "if it is a condition, write If(…)[…]"
            if isinstance(value, int | float):
                hint += f'; if it is a number, write f"{{{value!r}}}"'
        case int() | float():
            hint = f'numbers are not text: write f"{{{value!r}}}"'
        case Message():
            hint = "a message becomes an element by `element_from_message(message)`, from promptkit.elements"
        case _ if _is_wire_message(value):
            hint = (
                "messages of a provider become elements by `map(element_from_message, messages_from_chat(messages))`, from promptkit.elements and "
                "promptkit.wire, or in the same way by messages_from_responses or messages_from_anthropic"
            )
        case _ if callable(value):
            hint = "it is a function: call it"
        case _:
            hint = "a child is a string, an element, a sequence of these, None or a boolean"
    return f"{owner} cannot have {_shorten(value)} as a child: {hint}."


class Opening:
    """Something that is a child only once it has its own children in brackets, such as `If(files)`."""


def _is_false(value: object) -> bool:
    """Return whether a value is empty or zero, as the left side of `files and Files()` is when there are none."""
    return (
        not value if isinstance(value, int | float) else isinstance(value, Sized) and not len(value)
    )


def _is_wire_message(value: object) -> bool:
    """Return whether a value is a message of a provider: a dict or an SDK object with a role, or an item of the Responses API."""
    read = as_mapping(value).get if is_instance(value, Mapping) else partial(getattr, value)
    return isinstance(read("role", None), str) or read("type", None) in _ITEM_TYPES


_ITEM_TYPES = ("message", "function_call", "function_call_output", "reasoning")
"""The types of items of the Responses API, some of which have no role."""
