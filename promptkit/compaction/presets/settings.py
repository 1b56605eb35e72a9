"""The settings of a preset as one typed value, read from a TOML file and from environment variables.

A settings class is a frozen attrs class whose fields have types and defaults. A missing setting
keeps its default; environment variables override the file. An ambiguous, unknown or wrongly typed
setting is an error that names the file or the variable: a setting that is silently ignored is
noticed too late.

A setting of a known system also has the names that the system itself gives it, so that what a user
has set there holds here: variables, and keys of the system's own settings, with the dots of their
groups (`OriginalName`).
"""

from __future__ import annotations

import difflib
import math
import tomllib
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import attrs

from promptkit.errors import InvalidArgumentError, PromptKitError, SettingsError
from promptkit.tokens.budget import resolve_threshold

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

T = TypeVar("T")

NESTED = "__"
"""Separates the name of a group from that of its setting, in a variable."""

NONE = "none"
"""The value of a variable that means None. In TOML, which has no such value, the setting is left
out."""

YES, NO = ("1", "on", "true", "yes"), ("0", "false", "no", "off")
TYPE_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}
TYPE_PLURALS = {int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}


@attrs.frozen
class OriginalName:
    """A name that a system gives a setting of its own: in capitals an environment variable, else a key of its settings."""

    name: str
    """The variable, or the key with its groups: `compaction.reserveTokens` is `reserveTokens` in
    the table `compaction`."""
    unit: str | None = None
    """The unit or meaning of the value there, for the documentation. None: the same as here."""
    read: Callable[[object], object] | None = None
    """Converts the value to one of the setting. Returns None if the value means the default; raises
    ValueError. None: it is the same."""


def percent(name: str) -> OriginalName:
    """Declare a name whose value is a percentage of what is a share here.

    A percentage of 0 or less means the default.
    """
    return OriginalName(
        name,
        unit="percent",
        read=lambda value: share / 100 if (share := _convert_to(float, value)) > 0 else None,
    )


def disables(name: str) -> OriginalName:
    """Declare a name whose value "true" switches the setting off.

    Any other value means the default.
    """
    return OriginalName(
        name, unit="true: off", read=lambda value: False if _convert_to(bool, value) else None
    )


def optional(name: str) -> OriginalName:
    """Declare a name where an empty text, and a number of 0 or less, mean the default."""
    return OriginalName(
        name, read=lambda value: None if value == "" or _is_not_positive(value) else value
    )


def setting(  # noqa: PLR0913  # keywords
    default: T,
    *,
    names: Sequence[str | OriginalName] = (),
    threshold: bool = False,
    excludes: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
) -> T:
    """Declare a field of a settings class, with its limits.

    Args:
        default: The default value.
        names: The names of the setting in the system that the settings belong to.
        threshold: Whether the number is a share up to 1 and tokens from 100 on. A number between is
            an error.
        excludes: Names of settings that must not be set together with this one.
        minimum: The lowest allowed number.
        maximum: The highest allowed number.

    Returns:
        The field, typed as its value.
    """
    originals = tuple(
        name if isinstance(name, OriginalName) else OriginalName(name) for name in names
    )
    metadata = {
        "names": originals,
        "threshold": threshold,
        "excludes": tuple(excludes),
        "minimum": minimum,
        "maximum": maximum,
    }
    field: T = attrs.field(default=default, metadata=metadata)
    return field


def original_names(cls: type[attrs.AttrsInstance]) -> Mapping[str, Sequence[OriginalName]]:
    """Return the names that the settings of a class have in their system, by setting.

    A setting without one is left out.
    """
    return {
        field.name: names for field in attrs.fields(cls) if (names := field.metadata.get("names"))
    }


def load_settings(
    cls: type[T],
    *,
    prefix: str,
    toml: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> T:
    """Read the settings of a class.

    >>> settings = load_settings(Pi, prefix="PI_", toml="pi.toml", environ=os.environ)

    The system's own names are read as well, in the file and among the variables, whatever the
    prefix is.

    Args:
        cls: The settings class.
        prefix: Start of the names of the variables that are read: with `PI_`, `PI_KEEP_TOKENS` is
            `keep_tokens`, and `PI_SUMMARY__MODEL` is `model` in the group `summary`.
        toml: The file; it must exist. None: no file.
        environ: The variables, such as `os.environ`. None: no variables. Booleans are true/false,
            1/0, yes/no or on/off; lists are separated by commas.

    Returns:
        The settings.

    Raises:
        SettingsError: A setting is unknown, ambiguous, out of its limits or of another type, it is
            given under two names with different values, or the file cannot be read.
    """
    if not prefix:
        raise SettingsError(
            source="the environment",
            setting="",
            why="the prefix of the variables must not be empty",
        )
    # Any stands for attrs knows no closer type
    fields = {
        field.name: field for field in attrs.fields(attrs.resolve_types(cast("type[Any]", cls)))
    }
    names = {
        original.name: (field, original)
        for field in fields.values()
        for original in field.metadata.get("names", ())
    }
    values: _Values = {} if toml is None else _rename_keys(_read_file(Path(toml)), names)
    originals = {
        name: text for name, text in (environ or {}).items() if name.isupper() and name in names
    }
    own = {name: text for name, text in (environ or {}).items() if name not in originals}
    variables = _rename(
        _read_variables(own, prefix),
        [(*names[name], _Value(text, name, text=True)) for name, text in sorted(originals.items())],
    )
    return _build(cls, _merge(values, variables), ())


@attrs.frozen
class _Value:
    """A value and its source."""

    value: object
    source: str
    """The file or the variable."""
    text: bool = False
    """Whether it is the text of a variable, to be converted to the type of the setting."""


_Values = Mapping[str, "_Value | _Values"]
"""Values by name; a mapping is a group."""


def _read_file(path: Path) -> _Values:
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise SettingsError(
            source=str(path), setting="", why=f"it cannot be read ({error.strerror or error})"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            source=str(path), setting="", why=f"it is not valid TOML ({error})"
        ) from error
    return _with_source(table, str(path))


def _with_source(table: Mapping[str, object], source: str) -> _Values:
    """Add the source to each value of a table. A table in the place of a value is refused later."""
    return {
        name: _with_source(value, source) if isinstance(value, dict) else _Value(value, source)  # pyright: ignore[reportUnknownArgumentType]  # TOML has no other keys
        for name, value in table.items()
    }


def _read_variables(environ: Mapping[str, str], prefix: str) -> _Values:
    values: dict[str, Any] = {}  # Any: nested values while they are collected
    for variable in sorted(environ):
        if not variable.startswith(prefix):
            continue
        *groups, name = variable.removeprefix(prefix).lower().split(NESTED)
        at = values
        for group in groups:
            inner = at.setdefault(group, {})
            if isinstance(inner, _Value):
                raise SettingsError(
                    source=variable, setting=group, why="it is set both as a value and as a group"
                )
            at = cast("dict[str, Any]", inner)  # a group while it is collected
        if isinstance(at.get(name), dict):
            raise SettingsError(
                source=variable, setting=name, why="it is set both as a value and as a group"
            )
        at[name] = _Value(environ[variable], variable, text=True)
    return values


_Names = Mapping[str, tuple["attrs.Attribute[Any]", OriginalName]]  # Any: of whatever type
"""The settings by the names that they have in their system."""


def _rename_keys(values: _Values, names: _Names) -> _Values:
    """Replace the keys of a file that are a system's own names.

    A key is found in its groups, and as one quoted key with dots.
    """
    leaves: list[tuple[tuple[str, ...], _Value]] = []
    left: list[tuple[tuple[str, ...], _Value | _Values]] = [
        ((name,), value) for name, value in values.items()
    ]
    while left:
        path, value = left.pop()
        if isinstance(value, _Value):
            leaves.append((path, value))
        else:
            left.extend(((*path, name), inner) for name, inner in value.items())
    found = {
        path: value
        for path, value in leaves
        if (name := ".".join(path)) in names and not name.isupper()
    }
    if not found:
        return values
    own: dict[str, Any] = {}  # Any: nested values while they are collected
    for (*groups, name), value in (leaf for leaf in leaves if leaf[0] not in found):
        at = own
        for group in groups:
            at = at.setdefault(group, {})
        at[name] = value
    originals = ((".".join(path), value) for path, value in found.items())
    return _rename(
        own,
        [
            (*names[name], attrs.evolve(value, source=f"{value.source}: {name}"))
            for name, value in originals
        ],
    )


# Any stands for of whatever type
def _rename(
    values: _Values, originals: Iterable[tuple[attrs.Attribute[Any], OriginalName, _Value]]
) -> _Values:
    """Add the values that are given under a system's own names.

    Raises SettingsError if a setting has another value under another name.
    """
    renamed = dict(values)
    for field, original, given in originals:
        try:
            read = given.value if original.read is None else original.read(given.value)
        except ValueError as error:
            why = f"it cannot be read as a value of {original.name}: {given.value!r:.60}"
            raise SettingsError(source=given.source, setting=field.name, why=why) from error
        if read is None:
            continue
        value = _Value(read, given.source, text=isinstance(read, str))
        other = renamed.setdefault(field.name, value)
        if _convert_setting(field.type, other, (field.name,)) != _convert_setting(
            field.type, value, (field.name,)
        ):
            sources = " and ".join((next(_sources({field.name: other})), given.source))
            raise SettingsError(
                source=sources,
                setting=field.name,
                why="it has a different value under each of these names",
            )
    return renamed


def _convert_to(kind: type[T], value: object) -> T:
    """Convert the value of a variable or a file. Raises ValueError."""
    converted = _convert(kind, value, text=isinstance(value, str))
    return cast("T", converted)  # _convert returns a value of this type


def _is_not_positive(value: object) -> bool:
    try:
        return _convert_to(float, value) <= 0
    except ValueError:
        return False


def _merge(base: _Values, overrides: _Values) -> _Values:
    merged = dict(base)
    for name, value in overrides.items():
        old = merged.get(name)
        merged[name] = (
            _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        )
    return merged


def _sources(values: _Values) -> Iterator[str]:
    for value in values.values():
        if isinstance(value, _Value):
            yield value.source
        else:
            yield from _sources(value)


def _build(cls: type[T], given: _Values, groups: tuple[str, ...]) -> T:
    # Any stands for attrs knows no closer type
    fields = {
        field.name: field for field in attrs.fields(attrs.resolve_types(cast("type[Any]", cls)))
    }
    for name, value in given.items():
        if name not in fields:
            source = next(_sources({name: value}), "the settings")
            raise SettingsError(
                source=source,
                setting=_dotted(groups, name),
                why=f"unknown setting{_suggest(name, fields)}",
            )
    values: dict[str, object] = {}
    for name, value in given.items():
        field = fields[name]
        values[name] = _convert_setting(field.type, value, (*groups, name))
        _check_limits(field, values[name], value, _dotted(groups, name))
    for name in given:
        for other in fields[name].metadata.get("excludes", ()):
            if other in given and values[name] is not None and values[other] is not None:
                both = " and ".join(
                    dict.fromkeys(
                        (*_sources({name: given[name]}), *_sources({other: given[other]}))
                    )
                )
                raise SettingsError(
                    source=both,
                    setting=_dotted(groups, name),
                    why=f"it cannot be set together with {_dotted(groups, other)}",
                )
    try:
        return cls(**values)
    except (PromptKitError, ValueError, TypeError) as error:
        source = ", ".join(dict.fromkeys(_sources(given))) or "the defaults"
        raise SettingsError(
            source=source, setting=".".join(groups), why=str(error).rstrip(".")
        ) from error


def _convert_setting(kind: object, given: _Value | _Values, names: tuple[str, ...]) -> object:
    """Convert a setting to its type, or raise SettingsError."""
    choices = (
        [choice for choice in get_args(kind) if choice is not type(None)]
        if _is_union(kind)
        else [kind]
    )
    if isinstance(given, Mapping):
        group = next(
            (choice for choice in choices if isinstance(choice, type) and attrs.has(choice)), None
        )
        if group is not None:
            return _build(group, given, names)
        source = next(_sources(given), "the settings")
        raise SettingsError(
            source=source,
            setting=".".join(names),
            why=f"it must be {_describe_types(choices)}, not a group of settings",
        )
    if (
        given.text
        and isinstance(given.value, str)
        and given.value.strip().lower() == NONE
        and len(choices) < len(get_args(kind))
    ):
        return None
    for choice in choices:
        try:
            return _convert(choice, given.value, text=given.text)
        except ValueError:
            continue
    quoted = repr(given.value)
    why = f"it must be {_describe_types(choices)}, not {quoted if len(quoted) <= 60 else quoted[:60] + '…'}"  # noqa: PLR2004  # characters, for one line
    raise SettingsError(source=given.source, setting=".".join(names), why=why)


def _convert(kind: object, value: object, *, text: bool) -> object:
    """Convert a value to one type. Raises ValueError if it is of another type."""
    origin = get_origin(kind)
    if origin is Literal:
        if value in get_args(kind):
            return value
    elif origin is tuple:
        values = value.split(",") if text and isinstance(value, str) else value
        if isinstance(values, list):
            # of TOML
            return tuple(
                _convert(get_args(kind)[0], _strip(each), text=text)
                for each in cast("list[object]", values)
            )
    elif kind is Path and isinstance(value, str) and value:
        return Path(value)
    elif text and isinstance(value, str):
        return _parse(kind, value.strip())
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is kind and not (isinstance(value, float) and not math.isfinite(value)):
        return value
    raise ValueError(value)


def _parse(kind: object, value: str) -> object:
    """Parse the text of a variable. Raises ValueError."""
    if kind is str and value:
        return value
    if kind is bool and value.lower() in (*YES, *NO):
        return value.lower() in YES
    if kind is int:
        return int(value)
    if kind is float and math.isfinite(number := float(value)):
        return number
    raise ValueError(value)


def _strip(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


# Any stands for of whatever type
def _check_limits(
    field: attrs.Attribute[Any], value: object, given: _Value | _Values, name: str
) -> None:
    """Raise SettingsError for a number outside its limits, or for a threshold between a share and a number of tokens."""
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not isinstance(given, _Value)
    ):
        return
    limits = field.metadata
    minimum, maximum = limits.get("minimum"), limits.get("maximum")
    if limits.get("threshold"):
        try:
            resolve_threshold(value, None, setting=name)
        except InvalidArgumentError as error:
            raise SettingsError(
                source=given.source, setting=name, why=str(error).rstrip(".")
            ) from error
        minimum = 0 if minimum is None else minimum
    if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
        allowed = " and ".join(
            [
                *([] if minimum is None else [f"at least {minimum:g}"]),
                *([] if maximum is None else [f"at most {maximum:g}"]),
            ]
        )
        raise SettingsError(
            source=given.source, setting=name, why=f"it must be {allowed}, not {value:g}"
        )


def _is_union(kind: object) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _describe_types(kinds: Iterable[object]) -> str:
    return " or ".join(map(_describe_type, kinds))


def _describe_type(kind: object) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"a list of {TYPE_PLURALS.get(get_args(kind)[0], 'values')}"
    return TYPE_NAMES.get(cast("type[Any]", kind), "a group of settings")  # Any: any annotation


def _dotted(groups: tuple[str, ...], name: str) -> str:
    return ".".join((*groups, name))


def _suggest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
