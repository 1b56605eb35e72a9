"""Forty functions of all kinds that become tools.

Needs nothing of promptkit, so that other frameworks can read them as well.
"""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

__all__ = ["FUNCTIONS"]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: float
    y: float


@dataclass
class Address:
    street: str
    zip_code: str = "0000"


@dataclass
class Person:
    name: str
    addresses: list[Address] = field(default_factory=list["Address"])


class Item(BaseModel):
    """One line of an order."""

    name: str = Field(description="What is ordered.")
    count: int = 1


class Order(BaseModel):
    items: list[Item]
    note: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Tree(BaseModel):
    label: str
    children: list[Tree] = []


class Options(TypedDict):
    depth: int
    follow: NotRequired[bool]


def nothing() -> str:
    """Tell the time."""
    return "noon"


def undocumented(a: int, b: str) -> str:
    return f"{a}{b}"


def text(words: str) -> str:
    """Say words.

    Args:
        words: The words.
    """
    return words


def numbers(whole: int, real: float, *, sign: bool) -> float:
    """Add numbers.

    Args:
        whole: A whole number.
        real: A real number.
        sign: Negate the sum.
    """
    return whole + real


def defaults(query: str, limit: int = 10, exact: bool = False, prefix: str = "") -> str:
    """Search.

    Args:
        query: What is searched for.
        limit: The most results.
        exact: Match whole words only.
        prefix: Put before each result.
    """
    return query


def optional(path: str, encoding: str | None = None) -> str:
    """Read a file.

    Args:
        path: The path of the file.
        encoding: Its encoding.
    """
    return path


def union(value: int | str) -> str:
    """Take a number or a text.

    Args:
        value: The value.
    """
    return str(value)


def literal(unit: Literal["celsius", "fahrenheit"], digits: Literal[0, 1, 2] = 0) -> str:
    """Read the temperature.

    Args:
        unit: The unit of the result.
        digits: Digits behind the point.
    """
    return unit


def enumerated(colour: Colour) -> str:
    """Paint.

    Args:
        colour: The colour of the paint.
    """
    return colour.value


def enumerated_with_default(level: Level = Level.LOW) -> str:
    """Set the level.

    Args:
        level: The new level.
    """
    return str(level)


def strings(names: list[str]) -> str:
    """Greet people.

    Args:
        names: Their names.
    """
    return ", ".join(names)


def sequences(first: Sequence[int], second: tuple[str, ...], third: set[str]) -> str:
    """Take sequences.

    Args:
        first: Numbers.
        second: Texts.
        third: Texts, each once.
    """
    return ""


def nested_lists(matrix: list[list[float]]) -> float:
    """Compute the determinant.

    Args:
        matrix: The rows.
    """
    return 0.0


def pair(place: tuple[float, float]) -> str:
    """Go to a place.

    Args:
        place: Latitude and longitude.
    """
    return ""


def named_tuple(point: Point) -> str:
    """Draw a point.

    Args:
        point: Its place.
    """
    return ""


def mapping(headers: dict[str, str]) -> str:
    """Send headers.

    Args:
        headers: Names and values.
    """
    return ""


def open_mapping(values: Mapping[str, Any]) -> str:
    """Take anything under names.

    Args:
        values: The values.
    """
    return ""


def anything(value: Any) -> str:
    """Take anything.

    Args:
        value: Anything.
    """
    return ""


def without_annotations(a, b=2):  # type: ignore[no-untyped-def]  # the point of this function
    """Take two values.

    Args:
        a: The first.
        b: The second.
    """
    return ""


def annotated(
    city: Annotated[str, Field(description="The city, in English.")],
    days: Annotated[int, Field(ge=1, le=14)] = 1,
) -> str:
    """Forecast the weather."""
    return city


def annotated_and_documented(city: Annotated[str, Field(description="Wins.")]) -> str:
    """Forecast the weather.

    Args:
        city: Loses.
    """
    return city


def constrained(
    code: Annotated[str, Field(pattern="^[A-Z]{3}$")], share: Annotated[float, Field(gt=0, lt=1)]
) -> str:
    """Take limits.

    Args:
        code: Three letters.
        share: A share.
    """
    return code


def dates(day: dt.date, at: dt.datetime, every: dt.timedelta) -> str:
    """Plan a meeting.

    Args:
        day: The day.
        at: The first time.
        every: The distance.
    """
    return ""


def paths(file: Path, token: uuid.UUID) -> str:
    """Open a file.

    Args:
        file: Its path.
        token: What allows it.
    """
    return ""


def data_class(person: Person, urgent: bool) -> str:
    """Write to a person.

    Args:
        person: The person.
        urgent: Send it today.
    """
    return person.name


def data_class_with_default(name: str, address: Address = Address("Main Street")) -> str:  # noqa: B008  # the point of this function
    """Send a parcel.

    Args:
        name: The name.
        address: The address.
    """
    return name


def model(order: Order, customer: str) -> str:
    """Place an order.

    Args:
        order: The order.
        customer: Who orders.
    """
    return customer


def models(items: list[Item], total: float) -> str:
    """Price items.

    Args:
        items: The items.
        total: The limit.
    """
    return ""


def union_of_models(pet: Cat | Dog, name: str) -> str:
    """Feed a pet.

    Args:
        pet: The pet.
        name: Its name.
    """
    return name


def discriminated(pet: Annotated[Cat | Dog, Field(discriminator="kind")], name: str) -> str:
    """Feed a pet.

    Args:
        pet: The pet.
        name: Its name.
    """
    return name


def recursive(tree: Tree, depth: int) -> str:
    """Draw a tree.

    Args:
        tree: The tree.
        depth: The most levels.
    """
    return ""


def typed_dict(options: Options, path: str) -> str:
    """List a folder.

    Args:
        options: How it is listed.
        path: The folder.
    """
    return path


def optional_model(name: str, order: Order | None = None) -> str:
    """Greet a customer.

    Args:
        name: The customer.
        order: The last order.
    """
    return name


def keyword_only(*, source: str, target: str, force: bool = False) -> str:
    """Copy a file.

    Args:
        source: From where.
        target: To where.
        force: Overwrite what is there.
    """
    return source


def many(*names: str) -> str:
    """Delete files.

    Args:
        *names: The files.
    """
    return ""


def numpy_style(height: float, width: float = 1.0) -> float:
    """Compute an area.

    Parameters
    ----------
    height : float
        The height in metres.
    width : float
        The width in metres.

    Returns
    -------
    float
        The area.
    """
    return height * width


def sphinx_style(height: float, width: float = 1.0) -> float:
    """Compute an area.

    :param height: The height in metres.
    :param width: The width in metres.
    """
    return height * width


def long_documentation(pattern: str, folder: str = ".") -> str:
    """Search all files of a folder.

    Binary files are left out. A match is a line
    of a file.

    Args:
        pattern: A regular expression,
            in the syntax of Python.
        folder: The folder: it is searched with all that is below it.

    Raises:
        ValueError: The pattern is no expression.
    """
    return pattern


def names_that_clash(schema: str, copy: bool, model_fields: int, json: str, self_: str) -> str:
    """Take names that classes use themselves.

    Args:
        schema: A schema.
        copy: Make a copy.
        model_fields: A number.
        json: A text.
        self_: Another one.
    """
    return schema


async def asynchronous(url: str, seconds: float = 10.0) -> str:
    """Fetch a page.

    Args:
        url: Its address.
        seconds: The longest time.
    """
    return url


_ALL: list[Callable[..., Any]] = []  # Any: functions of all kinds
_ALL.extend(
    [  # pyright: ignore[reportUnknownArgumentType]  # one has no annotations
        nothing,
        undocumented,
        text,
        numbers,
        defaults,
        optional,
        union,
        literal,
        enumerated,
        enumerated_with_default,
        strings,
        sequences,
        nested_lists,
        pair,
        named_tuple,
        mapping,
        open_mapping,
        anything,
        without_annotations,
        annotated,
        annotated_and_documented,
        constrained,
        dates,
        paths,
        data_class,
        data_class_with_default,
        model,
        models,
        union_of_models,
        discriminated,
        recursive,
        typed_dict,
        optional_model,
        keyword_only,
        many,
        numpy_style,
        sphinx_style,
        long_documentation,
        names_that_clash,
        asynchronous,
    ]
)

FUNCTIONS: Mapping[str, Callable[..., Any]] = {function.__name__: function for function in _ALL}
"""Name → function."""
