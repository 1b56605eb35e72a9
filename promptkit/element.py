"""The language: an element is a frozen value with props in `()` and children in `[]`; a component is an element with a `render`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, TypeAlias, TypeVar, cast, dataclass_transform

import attrs

from promptkit.errors import BadChildError, TreeError

if TYPE_CHECKING:
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["Child", "Children", "PromptElement", "Sizing", "component", "flatten"]

Child: TypeAlias = "str | PromptElement | Sequence[Child] | Iterator[Child] | bool | None"
"""What may stand in `element[...]` and what `render` returns: text, an element, a fragment of children, or nothing."""

Children: TypeAlias = "tuple[str | PromptElement | None, ...]"
"""Children after flattening: fragments are gone, what says nothing is None."""

T = TypeVar("T", bound="PromptElement")


class _Printer(Protocol):
    def text(self, text: str, /) -> None: ...


class Sizing:
    """What a component may ask about the room that it has.

    Reading `token_budget` is noticed: what did not read it renders the same at every budget, and is remembered for all.
    Earlier flex groups are only counted when the budget is read.
    """

    __slots__ = ("_budget", "budget_read", "model", "tokenizer")

    def __init__(self, budget: Callable[[], int], tokenizer: Tokenizer, model: str | None = None) -> None:
        self._budget = budget
        self.tokenizer = tokenizer
        """The tokenizer that this render counts with."""
        self.model = model
        """The model's name, where the render was given one."""
        self.budget_read: int | None = None
        """What `token_budget` said; None as long as nobody asked."""

    @property
    def token_budget(self) -> int:
        """The tokens that this element may fill: its share of what earlier flex groups left."""
        budget = self.budget_read = self._budget()
        return budget

    def count_tokens(self, text: str) -> int:
        """The tokens of a text, as this render counts them."""
        return self.tokenizer.count(text)


def _refuse(self: PromptElement, *args: object, **kwargs: object) -> None:
    _ = args, kwargs
    name = type(self).__name__
    message = f"{name} is a subclass of PromptElement without @component: write @component above `class {name}`."
    raise TreeError(message)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(attrs.field,))
def component(cls: type[T]) -> type[T]:
    """Make a class of annotated props an element: frozen, keyword-only, with the layout props of PromptElement.

    >>> @component
    ... class Greeting(PromptElement):
    ...     person: str
    ...
    ...     def render(self, sizing: Sizing) -> Child:
    ...         return f"Hello {self.person}!"
    >>> Greeting(person="Ada", priority=5)
    Greeting(priority=5, person='Ada')
    """
    # init=True: attrs would otherwise keep the refusing __init__ that an undecorated class is given.
    # Equality and repr are our own: attrs would recurse over trees of any depth.
    return attrs.frozen(cls, kw_only=True, init=True, eq=False, repr=False)


@component
class PromptElement:
    """A node of a prompt: frozen props, children, and layout props that every element has.

    Subclass it under `@component` and define `render`. Without `render` it is a plain group of its children: a container
    with a priority scope of its own.
    """

    priority: float | None = None
    """Higher is kept longer. Compared with siblings under the same container only. None: as high as can be."""

    pass_priority: bool = False
    """Compare the children as if they stood in the parent; the own priority is ignored while there are children."""

    flex_grow: float | None = None
    """Order of sizing: None first, then from high to low. Each group shares what the groups before it left."""

    flex_basis: float = 1
    """Weight within the flex group: the share is basis / sum of bases."""

    flex_reserve: int | str | None = None
    """Tokens held back from earlier groups for this element: a number, or `"/N"` of what is left."""

    required: bool = False
    """Never pruned. If what is required does not fit, the render raises BudgetExceededError."""

    fallback: Child = attrs.field(default=None, repr=False)
    """Takes this element's place once it has been pruned, as prunable as the element was: a marker, an outline."""

    name: str | None = None
    """A label for paths and receipts. On a message it is the participant's name, and sent."""

    children: Children = attrs.field(default=(), init=False)
    """Set by `element[...]`."""

    if TYPE_CHECKING:
        # attrs sets it; at run time Attribute takes no parameter, and `typing.get_type_hints` would stumble over it.
        __attrs_attrs__: ClassVar[tuple[attrs.Attribute[object], ...]]

    __iter__: ClassVar[None] = None  # or `list(element)` would call __getitem__ with 0, 1, 2, … for ever

    def __init_subclass__(cls) -> None:
        # attrs makes a second class for the slots; only that one, and only under @component, has its own __attrs_attrs__.
        if "__attrs_attrs__" not in cls.__dict__:
            setattr(cls, "__init__", _refuse)  # noqa: B010  # an assignment to a method is no assignment to mypy

    def render(self, sizing: Sizing) -> Child | Awaitable[Child]:
        """What this element is made of. May be `async`. Must be pure but for what it loads."""
        _ = sizing
        return self.children

    def __getitem__(self, children: Child) -> Self:
        """This element with these children."""
        if self.children:
            message = f"{type(self).__name__} already has children: put all of them in one pair of brackets."
            raise TreeError(message)
        return self.replace(children=flatten(children, type(self).__name__))

    def replace(self, **changes: object) -> Self:
        """A copy with other props, or with other `children` (flat, as the attribute holds them).

        >>> UserMessage(priority=1)["Hello"].replace(priority=2)
        UserMessage(priority=2)['Hello']
        """
        cls = type(self)
        clone = object.__new__(cls)
        for field in cls.__attrs_attrs__:
            name = field.name
            object.__setattr__(clone, name, changes.pop(name) if name in changes else getattr(self, name))
        if changes:
            message = f"{cls.__name__} has no prop {', '.join(map(repr, changes))}."
            raise TypeError(message)
        return clone

    def __eq__(self, other: object) -> bool:
        """Whether two trees are equal values, compared without recursion."""
        if not isinstance(other, PromptElement):
            return NotImplemented
        stack: list[tuple[object, object]] = [(self, other)]
        while stack:
            mine, theirs = stack.pop()
            if mine is theirs:
                continue
            if isinstance(mine, PromptElement) and isinstance(theirs, PromptElement):
                if type(mine) is not type(theirs):
                    return False
                stack.extend((getattr(mine, field.name), getattr(theirs, field.name)) for field in type(mine).__attrs_attrs__)
            elif isinstance(mine, tuple) and isinstance(theirs, tuple):
                left, right = cast("tuple[object, ...]", mine), cast("tuple[object, ...]", theirs)  # of unknown items
                if len(left) != len(right):
                    return False
                stack.extend(zip(left, right, strict=True))
            elif mine != theirs:
                return False
        return True

    def __hash__(self) -> int:
        """Shallow, so that props may be unhashable and trees deep; equal elements hash equal."""
        return hash((type(self), self.priority, self.name, len(self.children), *(c for c in self.children if isinstance(c, str))))

    def __repr__(self) -> str:
        """The call that makes this value, written without recursion."""
        out: list[str] = []
        stack: list[object] = [_Verbatim(""), self]
        while stack:
            item = stack.pop()
            if isinstance(item, _Verbatim):
                out.append(item)
            elif isinstance(item, PromptElement):
                stack.extend(reversed(_pieces(item)))
            else:
                out.append(repr(item))
        return "".join(out)

    def _repr_pretty_(self, printer: _Printer, cycle: bool) -> None:  # noqa: FBT001  # called so by hypothesis and IPython
        """The same for those who would print the props alone, as they do with attrs classes."""
        _ = cycle
        printer.text(repr(self))


class _Verbatim(str):
    """Text that `repr` writes without quotes."""

    __slots__ = ()


def _pieces(element: PromptElement) -> list[object]:
    pieces: list[object] = [_Verbatim(f"{type(element).__name__}(")]
    shown = 0
    for field in type(element).__attrs_attrs__:
        value: object = getattr(element, field.name)
        if field.name == "children" or _is_default(value, field):
            continue
        pieces += [_Verbatim(f"{', ' if shown else ''}{field.name}="), value]
        shown += 1
    pieces.append(_Verbatim(")"))
    if element.children:
        pieces.append(_Verbatim("["))
        for index, child in enumerate(element.children):
            pieces += [_Verbatim(", "), child] if index else [child]
        pieces.append(_Verbatim("]"))
    return pieces


def _is_default(value: object, field: attrs.Attribute[object]) -> bool:
    factory: Callable[[], object] | None = getattr(field.default, "factory", None)
    default = factory() if factory else field.default
    # Of other types `==` may be anything: arrays answer with arrays.
    return value is default or (type(value) is type(default) and value == default)


def flatten(child: Child, owner: str) -> Children:
    """Children as one flat tuple. `owner` is named in the error.

    Raises BadChildError for anything that is no child, when the element is built and not when it is rendered.
    """
    if isinstance(child, str | PromptElement):
        return (child,)
    if child is None or isinstance(child, bool):
        return (None,)
    flat: list[str | PromptElement | None] = []
    stack: list[Iterator[object]] = [_iterate(child, owner)]
    while stack:
        for item in stack[-1]:
            if isinstance(item, str | PromptElement):
                flat.append(item)
            elif item is None or isinstance(item, bool):
                flat.append(None)
            else:
                stack.append(_iterate(item, owner))
                break
        else:
            stack.pop()
    return tuple(flat)


def _iterate(value: object, owner: str) -> Iterator[object]:
    if not _is_fragment(value):
        raise BadChildError(_not_a_child(value, owner))
    return iter(cast("Iterable[object]", value))  # of unknown items: each is looked at in turn


def _is_fragment(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | Mapping | AbstractSet)


def _not_a_child(value: object, owner: str) -> str:
    shown = repr(value)
    if isinstance(value, type):
        hint = f"it is a class: write {value.__name__}()"
    elif isinstance(value, int | float):
        hint = f'numbers are not text: write f"{{{value!r}}}"'
    elif callable(value):
        hint = "it is a function: call it"
    else:
        hint = "a child is a string, an element, a sequence of these, None or a boolean"
    return f"{owner} cannot have {shown[:80]}{'…' if len(shown) > 80 else ''} as a child: {hint}."  # noqa: PLR2004  # characters
