"""The settings of a compaction as one typed value, read from a TOML file and from environment variables.

A settings class is a frozen attrs class whose fields have types and defaults. What is not given keeps its default; the environment
wins over the file. What could be meant in two ways, is not known, or is of another type is an error that names the file or the
variable: a setting that is silently ignored is found when it is too late.
"""

from __future__ import annotations

import difflib
import math
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import attrs

from promptkit.compaction.budget import resolve_threshold
from promptkit.errors import InvalidArgumentError, PromptKitError, SettingsError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["load_settings", "setting"]

T = TypeVar("T")

NESTED = "__"
"""Between the name of a group and that of a setting in it, in a variable."""

NONE = "none"
"""What a variable says for a setting that may be None; TOML has no such value, and leaves it out."""

YES, NO = ("1", "on", "true", "yes"), ("0", "false", "no", "off")
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}


def setting(
    default: T,
    *,
    threshold: bool = False,
    excludes: Sequence[str] = (),
    least: float | None = None,
    most: float | None = None,
) -> T:
    """A field of a settings class, with limits.

    `threshold`: up to 1 it is a share, from 100 on tokens, and nothing in between is taken. `excludes` names settings that cannot be
    given beside it. `least` and `most` are themselves allowed.
    """
    metadata = {"threshold": threshold, "excludes": tuple(excludes), "least": least, "most": most}
    made: T = attrs.field(default=default, metadata=metadata)
    return made


def load_settings(cls: type[T], *, prefix: str, toml: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> T:
    """The settings of a class.

    `toml` is a file that must be there, `environ` the variables: `os.environ`, or none. Of them those are read whose names begin with
    `prefix`: `PI_KEEP_TOKENS` is `keep_tokens`, `PI_SUMMARY__MODEL` is `model` in the group `summary`. A variable says true or false as
    1/0, yes/no, on/off; several values with commas between them.

    Raises SettingsError for what cannot be taken.
    """
    if not prefix:
        raise SettingsError(source="the environment", setting="", why="a prefix for the names of the variables is needed")
    given: Tree = {} if toml is None else _from_file(Path(toml))
    given = _merged(given, _from_variables(environ or {}, prefix))
    return _made(cls, given, ())


@attrs.frozen
class _Given:
    """A value as it was given, and where."""

    value: object
    source: str
    text: bool = False
    """It is the text of a variable, to be read as whatever is wanted."""


Tree = Mapping[str, "_Given | Tree"]


def _from_file(path: Path) -> Tree:
    try:
        with path.open("rb") as file:
            read = tomllib.load(file)
    except OSError as error:
        raise SettingsError(source=str(path), setting="", why=f"it cannot be read ({error.strerror or error})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(source=str(path), setting="", why=f"it is no TOML ({error})") from error
    return _tree(read, str(path))


def _tree(table: Mapping[str, object], source: str) -> Tree:
    """As deep as the settings class is looked into: a table that stands where a value is wanted is refused there."""
    return {name: _tree(value, source) if isinstance(value, dict) else _Given(value, source) for name, value in table.items()}  # pyright: ignore[reportUnknownArgumentType]  # TOML has no other keys


def _from_variables(environ: Mapping[str, str], prefix: str) -> Tree:
    tree: dict[str, Any] = {}  # Any: a tree while it grows
    for variable in sorted(environ):
        if not variable.startswith(prefix):
            continue
        *groups, name = variable.removeprefix(prefix).lower().split(NESTED)
        at = tree
        for group in groups:
            inner = at.setdefault(group, {})
            if isinstance(inner, _Given):
                raise SettingsError(source=variable, setting=group, why="it is given as a value and as a group")
            at = cast("dict[str, Any]", inner)  # a tree while it grows
        if isinstance(at.get(name), dict):
            raise SettingsError(source=variable, setting=name, why="it is given as a value and as a group")
        at[name] = _Given(environ[variable], variable, text=True)
    return tree


def _merged(below: Tree, above: Tree) -> Tree:
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _sources(tree: Tree) -> Iterator[str]:
    for value in tree.values():
        if isinstance(value, _Given):
            yield value.source
        else:
            yield from _sources(value)


def _made(cls: type[T], given: Tree, groups: tuple[str, ...]) -> T:
    fields = {field.name: field for field in attrs.fields(attrs.resolve_types(cast("type[Any]", cls)))}  # Any: attrs knows no closer type
    for name, value in given.items():
        if name not in fields:
            source = next(_sources({name: value}), "the settings")
            raise SettingsError(source=source, setting=_dotted(groups, name), why=f"there is no such setting{_meant(name, fields)}")
    values: dict[str, object] = {}
    for name, value in given.items():
        field = fields[name]
        values[name] = _value(field.type, value, (*groups, name))
        _limited(field, values[name], value, _dotted(groups, name))
    for name in given:
        for other in fields[name].metadata.get("excludes", ()):
            if other in given and values[name] is not None and values[other] is not None:
                both = " and ".join(dict.fromkeys((*_sources({name: given[name]}), *_sources({other: given[other]}))))
                raise SettingsError(source=both, setting=_dotted(groups, name), why=f"it cannot be given beside {_dotted(groups, other)}")
    try:
        return cls(**values)
    except (PromptKitError, ValueError, TypeError) as error:
        source = ", ".join(dict.fromkeys(_sources(given))) or "the defaults"
        raise SettingsError(source=source, setting=".".join(groups), why=str(error).rstrip(".")) from error


def _value(kind: object, given: _Given | Tree, names: tuple[str, ...]) -> object:
    """A value of the wanted type, or an error that says what is wanted."""
    choices = [choice for choice in get_args(kind) if choice is not type(None)] if _is_union(kind) else [kind]
    if isinstance(given, Mapping):
        group = next((choice for choice in choices if isinstance(choice, type) and attrs.has(choice)), None)
        if group is not None:
            return _made(group, given, names)
        source = next(_sources(given), "the settings")
        raise SettingsError(source=source, setting=".".join(names), why=f"{_wanted(choices)} is wanted, not a group of settings")
    if given.text and isinstance(given.value, str) and given.value.strip().lower() == NONE and len(choices) < len(get_args(kind)):
        return None
    for choice in choices:
        try:
            return _one(choice, given.value, text=given.text)
        except ValueError:
            continue
    shown = repr(given.value)
    why = f"{_wanted(choices)} is wanted, not {shown if len(shown) <= 60 else shown[:60] + '…'}"  # noqa: PLR2004  # characters, for one line
    raise SettingsError(source=given.source, setting=".".join(names), why=why)


def _one(kind: object, value: object, *, text: bool) -> object:
    """A value of one type. Raises ValueError for any other."""
    origin = get_origin(kind)
    if origin is Literal:
        if value in get_args(kind):
            return value
    elif origin is tuple:
        values = value.split(",") if text and isinstance(value, str) else value
        if isinstance(values, list):
            return tuple(_one(get_args(kind)[0], _stripped(each), text=text) for each in cast("list[object]", values))  # of TOML
    elif kind is Path and isinstance(value, str) and value:
        return Path(value)
    elif text and isinstance(value, str):
        return _read(kind, value.strip())
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is kind and not (isinstance(value, float) and not math.isfinite(value)):
        return value
    raise ValueError(value)


def _read(kind: object, value: str) -> object:
    """The text of a variable as a value. Raises ValueError."""
    if kind is str and value:
        return value
    if kind is bool and value.lower() in (*YES, *NO):
        return value.lower() in YES
    if kind is int:
        return int(value)
    if kind is float and math.isfinite(number := float(value)):
        return number
    raise ValueError(value)


def _stripped(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _limited(field: attrs.Attribute[Any], value: object, given: _Given | Tree, name: str) -> None:  # Any: of whatever type
    """Raises SettingsError for a number outside its limits, or one that may be a share as well as tokens."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not isinstance(given, _Given):
        return
    limits = field.metadata
    least, most = limits.get("least"), limits.get("most")
    if limits.get("threshold"):
        try:
            resolve_threshold(value, None, setting=name)
        except InvalidArgumentError as error:
            raise SettingsError(source=given.source, setting=name, why=str(error).rstrip(".")) from error
        least = 0 if least is None else least
    if (least is not None and value < least) or (most is not None and value > most):
        asked = " and ".join([*([] if least is None else [f"at least {least:g}"]), *([] if most is None else [f"at most {most:g}"])])
        raise SettingsError(source=given.source, setting=name, why=f"it must be {asked}, not {value:g}")


def _is_union(kind: object) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _wanted(kinds: Iterable[object]) -> str:
    return " or ".join(map(_word, kinds))


def _word(kind: object) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"a list, each {_word(get_args(kind)[0])}"
    return WORDS.get(cast("type[Any]", kind), "a group of settings")  # Any: whatever stands in an annotation


def _dotted(groups: tuple[str, ...], name: str) -> str:
    return ".".join((*groups, name))


def _meant(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f": is {near[0]} meant?" if near else f" (there are {', '.join(known)})"
