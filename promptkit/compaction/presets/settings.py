"""The settings of a preset as one typed value, read from a TOML or JSON file and from environment variables.

A settings class is a frozen attrs class whose fields have types and defaults. A missing setting
keeps its default; environment variables override the file. An ambiguous, unknown or wrongly typed
setting is an error that names the file or the variable: a setting that is silently ignored is
noticed too late.

A setting of a known system also has the names that the system itself gives it, so that what a user
has set there holds here: variables, and keys of the system's own settings, with the dots of their
groups (`OriginalName`). The system's own file may be read as it is: what promptkit does not know in
it is named in a warning, and left aside. A class names the groups of the system's settings that have
no counterpart here in `LEFT_ASIDE`.
"""

from __future__ import annotations

import difflib
import functools
import json
import logging
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

import attrs

from promptkit.errors import InvalidArgumentError, PromptKitError, SettingsError
from promptkit.messages import as_mapping, as_sequence, is_instance
from promptkit.sizes import parse_tokens
from promptkit.tokens.budget import resolve_threshold

if TYPE_CHECKING:
    import os

    from cattrs import Converter

T = TypeVar("T")

SIZES = ("tokens", "threshold", "context_size", "reserved")
"""Ends of the names of settings that are numbers of tokens, which may be text such as `"8k"`."""

MAX_NAMED = 10
"""Settings of a system's file that a warning names."""

MAX_SHOWN = 60
"""Characters of a wrong value that an error shows."""

NONE = "none"
"""The value of a variable that means None. In TOML, which has no such value, the setting is left
out."""

YES, NO = ("1", "on", "true", "yes"), ("0", "false", "no", "off")
TYPE_NAMES: Mapping[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}
_LOGGER = logging.getLogger("promptkit")

_STRING = r'"(?:[^"\\\n]|\\.)*+"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[\]}}])")


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


def setting(
    default: T,
    *,
    names: Sequence[str | OriginalName] = (),
    threshold: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
) -> T:
    """Declare a field of a settings class, with its limits.

    Args:
        default: The default value.
        names: The names of the setting in the system that the settings belong to.
        threshold: Whether the number is a share up to 1 and tokens from 100 on. A number between is
            an error.
        minimum: The lowest allowed number.
        maximum: The highest allowed number.

    Returns:
        The field, typed as its value.
    """
    field: T = attrs.field(
        default=default,
        metadata={
            "names": tuple(
                name if isinstance(name, OriginalName) else OriginalName(name) for name in names
            ),
            "threshold": threshold,
            "minimum": 0 if threshold and minimum is None else minimum,
            "maximum": maximum,
        },
        converter=attrs.Converter(_read_size, takes_field=True),
    )
    return field


# Any stands for attrs knows no closer type
def _read_size(value: object, field: attrs.Attribute[Any]) -> object:
    """Return a setting as it is, and a number of tokens that is text, such as `"8k"`, as a number.

    Raises InvalidArgumentError for any other text.
    """
    return parse_tokens(value) if isinstance(value, str) and field.name.endswith(SIZES) else value


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
    file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> T:
    """Read the settings of a class.

    >>> settings = load_settings(Pi, prefix="PI_", file="pi.toml", environ=os.environ)

    The system's own names are read as well, in the file and among the variables, whatever the
    prefix is.

    Args:
        cls: The settings class.
        prefix: Start of the names of the variables that are read: with `PI_`, `PI_KEEP_TOKENS` is
            `keep_tokens`.
        file: The file; it must exist. It is TOML, or JSON, with or without comments, if its name
            ends with `.json` or `.jsonc`. A file with names of the system, and none of promptkit's
            own, is one of the system: unknown settings in it are no error. None: no file.
        environ: The variables, such as `os.environ`. None: no variables. Booleans are true/false,
            1/0, yes/no or on/off; lists are separated by commas.

    Returns:
        The settings.

    Raises:
        SettingsError: A setting is unknown, out of its limits or of another type, it is given
            under two names with different values, or the file cannot be read.
    """
    if not prefix:
        raise SettingsError(
            source="the environment",
            setting="",
            why="the prefix of the variables must not be empty",
        )
    fields = _find_fields(cls)
    names = {
        original.name: (field, original)
        for field in fields.values()
        for original in field.metadata.get("names", ())
    }
    environ = environ or {}
    in_file: _Paths = {} if file is None else _read_file(Path(file))
    renamed = {
        path: attrs.evolve(value, source=f"{value.source}: {name}")
        for path, value in in_file.items()
        if (name := ".".join(path)) in names and not name.isupper()
    }
    own = {path: value for path, value in in_file.items() if path not in renamed}
    is_original = renamed or any(path[0] in getattr(cls, "LEFT_ASIDE", ()) for path in own)
    if is_original and not any(path[0] in fields for path in own):
        _report_unknown(own, names)
        own = {}
    values = _rename(
        {
            path[0]: value if len(path) == 1 else attrs.evolve(value, value={})
            for path, value in own.items()
        },
        renamed,
        names,
    )
    originals: _Paths = {
        (name,): _Value(text, name, text=True)
        for name, text in sorted(environ.items())
        if name.isupper() and name in names
    }
    variables = _rename(
        {
            name.removeprefix(prefix).lower(): _Value(text, name, text=True)
            for name, text in sorted(environ.items())
            if name.startswith(prefix) and (name,) not in originals
        },
        originals,
        names,
    )
    return _build(cls, {**values, **variables})


# Any stands for attrs knows no closer type
def _find_fields(cls: type[Any]) -> Mapping[str, attrs.Attribute[Any]]:
    return {field.name: field for field in attrs.fields(attrs.resolve_types(cls))}


@attrs.frozen
class _Value:
    """A value and its source."""

    value: object
    """The value; an empty dict for a table of values."""
    source: str
    """The file or the variable."""
    text: bool = False
    """Whether it is the text of a variable, to be converted to the type of the setting."""


_Paths = Mapping[tuple[str, ...], _Value]
"""Values by name, with the names of their tables before it."""


def _read_file(path: Path) -> _Paths:
    import tomllib  # takes 4 ms, and few programs have a file

    is_json = path.suffix.lower() in {".json", ".jsonc"}
    try:
        text = path.read_text(encoding="utf-8-sig" if is_json else "utf-8")
        table: object = json.loads(_strip_comments(text)) if is_json else tomllib.loads(text)
    except OSError as error:
        raise SettingsError(
            source=str(path), setting="", why=f"it cannot be read ({error.strerror or error})"
        ) from error
    except (ValueError, RecursionError) as error:
        kind = "JSON" if is_json else "TOML"
        raise SettingsError(
            source=str(path), setting="", why=f"it is not valid {kind} ({error})"
        ) from error
    if not is_instance(table, dict):
        raise SettingsError(source=str(path), setting="", why="it is not a JSON object")
    return dict(_flatten(as_mapping(table), (), str(path)))


def _strip_comments(text: str) -> str:
    """Remove the comments of JSON as editors write it, and commas before a closing bracket."""
    for pattern in (_COMMENT, _LAST_COMMA):
        text = pattern.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)
    return text


def _report_unknown(unknown: _Paths, names: _Names) -> None:
    """Name the settings of a system's file that have no counterpart here, those of its known groups first."""
    if not unknown:
        return
    groups = {name.rpartition(".")[0] for name in names if "." in name}
    paths = sorted(map(".".join, unknown), key=lambda name: name.rpartition(".")[0] not in groups)
    _LOGGER.warning(
        "%s: not known here, and left aside: %s%s",
        next(iter(unknown.values())).source,
        ", ".join(paths[:MAX_NAMED]),
        f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else "",
    )


def _flatten(
    table: Mapping[str, object], groups: tuple[str, ...], source: str
) -> Iterator[tuple[tuple[str, ...], _Value]]:
    """Yield the values of a table and of the tables in it, with their source. An empty table is a value."""
    for name, value in table.items():
        if inner := as_mapping(value):
            yield from _flatten(inner, (*groups, name), source)
        elif value is not None:  # in JSON: not set
            yield (*groups, name), _Value(value, source)


_Names = Mapping[str, tuple["attrs.Attribute[Any]", OriginalName]]  # Any: of whatever type
"""The settings by the names that they have in their system."""


def _rename(values: Mapping[str, _Value], originals: _Paths, names: _Names) -> Mapping[str, _Value]:
    """Add the values that are given under a system's own names.

    Raises SettingsError if a setting has another value under another name.
    """
    renamed = dict(values)
    for path, given in originals.items():
        field, original = names[".".join(path)]
        try:
            read = given.value if original.read is None else original.read(given.value)
        except ValueError as error:
            raise SettingsError(
                source=given.source,
                setting=field.name,
                why=f"it cannot be read as a value of {original.name}: {given.value!r:.60}",
            ) from error
        if read is None:
            continue
        value = _Value(read, given.source, text=isinstance(read, str))
        other = renamed.setdefault(field.name, value)
        if _convert_setting(field, other) != _convert_setting(field, value):
            raise SettingsError(
                source=f"{other.source} and {given.source}",
                setting=field.name,
                why="it has a different value under each of these names",
            )
    return renamed


def _convert_to(kind: type[T], value: object) -> T:
    """Convert the value of a variable or a file. Raises ValueError."""
    return _make_converter(text=isinstance(value, str)).structure(value, kind)


def _is_not_positive(value: object) -> bool:
    try:
        return _convert_to(float, value) <= 0
    except ValueError:
        return False


def _build(cls: type[T], given: Mapping[str, _Value]) -> T:
    fields = _find_fields(cls)
    values: dict[str, object] = {}
    for name, value in given.items():
        if name not in fields:
            raise SettingsError(
                source=value.source, setting=name, why=f"unknown setting{_suggest(name, fields)}"
            )
        values[name] = _convert_setting(fields[name], value)
        _check_limits(fields[name], values[name], value.source)
    try:
        return cls(**values)
    except (PromptKitError, ValueError, TypeError) as error:
        raise SettingsError(
            source=", ".join(dict.fromkeys(value.source for value in given.values()))
            or "the defaults",
            setting="",
            why=str(error).rstrip("."),
        ) from error


# Any: of whatever type
def _convert_setting(field: attrs.Attribute[Any], given: _Value) -> object:
    """Convert a setting to its type, or raise SettingsError."""
    kind, value = field.type, given.value
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    # Any: a type, or a value of Literal
    choices: list[Any] = [choice for choice in members if choice is not type(None)]
    shown = "a group of settings"
    if value != {}:
        if given.text and str(value).strip().lower() == NONE and choices != list(members):
            return None
        # Digits alone as text are refused in a file, where a number is written without quotes.
        if isinstance(value, str) and value[-1:] in {"k", "m"} and field.name.endswith(SIZES):
            with suppress(InvalidArgumentError):  # the error below names the setting
                tokens = parse_tokens(value)
                value = str(tokens) if given.text else tokens
        for choice in choices:
            with suppress(ValueError, TypeError):
                return _make_converter(text=given.text).structure(value, choice)
        shown = repr(given.value)
        shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"
    raise SettingsError(
        source=given.source,
        setting=field.name,
        why=f"it must be {' or '.join(map(_describe_type, choices))}, not {shown}",
    )


@functools.cache
def _make_converter(*, text: bool) -> Converter:
    """Make the converter of values of a file, or of the texts of variables.

    It raises ValueError for a value of another type, and so for a text in a file that should be a
    number.
    """
    from cattrs import Converter

    converter = Converter(detailed_validation=False)
    for kind in (bool, int, float, str):
        converter.register_structure_hook(kind, _parse if text else _check)

    def read_list(value: object, kind: object) -> object:
        values: object = value.split(",") if text and isinstance(value, str) else value
        items = as_sequence(values)
        if isinstance(values, list):
            return tuple(converter.structure(each, get_args(kind)[0]) for each in items)
        raise ValueError(value)

    def read_choice(value: object, kind: object) -> object:
        if value in get_args(kind):
            return value
        raise ValueError(value)

    converter.register_structure_hook_func(_is_origin(tuple), read_list)
    converter.register_structure_hook_func(_is_origin(Literal), read_choice)
    return converter


def _is_origin(origin: object) -> Callable[[object], bool]:
    return lambda kind: get_origin(kind) is origin


def _check(value: object, kind: object) -> object:
    """Return a value of a file. Raises ValueError if it is of another type."""
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind and not (isinstance(value, float) and not math.isfinite(value)):
        return value
    raise ValueError(value)


def _parse(value: object, kind: object) -> object:
    """Parse the text of a variable. Raises ValueError."""
    text = value.strip() if isinstance(value, str) else ""
    if kind is str and text:
        return text
    if kind is bool and text.lower() in (*YES, *NO):
        return text.lower() in YES
    if kind is int:
        return int(text)
    if kind is float and math.isfinite(number := float(text)):
        return number
    raise ValueError(value)


# Any: of whatever type
def _check_limits(field: attrs.Attribute[Any], value: object, source: str) -> None:
    """Raise SettingsError for a number outside its limits, or for a threshold between a share and a number of tokens."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    minimum, maximum = field.metadata.get("minimum"), field.metadata.get("maximum")
    if field.metadata.get("threshold"):
        try:
            resolve_threshold(value, None, setting=field.name)
        except InvalidArgumentError as error:
            raise SettingsError(
                source=source, setting=field.name, why=str(error).rstrip(".")
            ) from error
    if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
        allowed = " and ".join(
            [
                *([] if minimum is None else [f"at least {minimum:g}"]),
                *([] if maximum is None else [f"at most {maximum:g}"]),
            ]
        )
        raise SettingsError(
            source=source, setting=field.name, why=f"it must be {allowed}, not {value:g}"
        )


def _describe_type(kind: object) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        name = TYPE_NAMES[item].removeprefix("a ") if item in (int, float, str) else "value"
        return f"a list of {name}s"
    return TYPE_NAMES.get(kind, "another value")


def _suggest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
