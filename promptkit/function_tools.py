"""Tools from functions: the schema from the signature and the docstring, and calls with checked arguments.

pydantic makes the schema and checks the arguments, and docstring-parser reads the docstring in Google's, NumPy's or Sphinx's style. Both
are imported with the first function. The schemas are those of pydantic-ai for the same functions; docs/tools.md names the differences.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast, get_args, get_origin, get_type_hints, overload

import attrs

from promptkit.errors import InvalidArgumentError, ToolArgumentsError
from promptkit.messages import Part, ToolDefinition
from promptkit.tools import Tool, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pydantic import BaseModel

    from promptkit.messages import Json

__all__ = ["as_tool", "tool"]

Function: TypeAlias = Callable[..., Any]  # Any: a tool may have any arguments and return anything

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that providers accept."""

MAX_ERRORS = 5
"""Wrong arguments that the model is told of at once."""

MAX_SHOWN = 80
"""Characters of a wrong argument that are repeated to the model."""


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, strict: bool = False, seconds: float | None = None, max_tokens: int | None = None
) -> Callable[[Function], Tool]: ...
def tool(  # noqa: PLR0913  # keywords
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = False,
    seconds: float | None = None,
    max_tokens: int | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Make a tool from a function, which may be `async`. The model is told its name, what its docstring says, and its arguments.

    Arguments of any type that pydantic knows are checked before the function is called: numbers, enums, literals, lists, dataclasses,
    attrs classes, pydantic models. Of wrong ones the model is told what is wrong. The result may be text, parts such as images, or any
    other value, which is written as JSON.

    >>> @tool
    ... def read_file(path: str, lines: int = 200) -> str:
    ...     '''Read the start of a file.
    ...
    ...     Args:
    ...         path: The path of the file.
    ...         lines: The most lines.
    ...     '''

    Args:
        function: The function.
        name: The tool's name; by default the function's.
        description: What the tool does, for the model; by default the docstring without its sections.
        strict: Have the provider make the arguments match the schema. Every argument is then required, those with a default as well.
        seconds: The longest time that a call may take; None: no limit. The model is told of a call that took longer.
        max_tokens: The most tokens of a result. The middle of a longer one is left out. None: what the window allows.

    Raises:
        InvalidArgumentError: No schema can be made, for example because an argument is a function.
    """

    def make(given: Function) -> Tool:
        schema = _read_signature(given, name=name, description=description, strict=strict)
        return Tool(definition=schema.definition, run=_make_run(given, schema), seconds=seconds, max_tokens=max_tokens)

    return make if function is None else make(function)


def as_tool(given: object) -> object:
    """Return the tool of a plain function, and anything else as it is."""
    if callable(given) and not isinstance(given, Tool | type):
        return tool(given)
    return given


@attrs.frozen
class _Signature:
    """The arguments of a function: their schema, and what they are passed as."""

    definition: ToolDefinition
    model: type[BaseModel]
    fields: Mapping[str, inspect.Parameter]
    """The field of the model for each argument."""

    def bind(self, arguments: Mapping[str, object]) -> tuple[list[object], dict[str, object]]:
        """Check the arguments of a call, and return the positional ones and the others. Raises ToolArgumentsError."""
        from pydantic import ValidationError

        try:
            checked = self.model.model_validate(dict(arguments))
        except ValidationError as error:
            raise ToolArgumentsError(self.definition.name, _describe_errors(error)) from None
        positional: list[object] = []
        keywords: dict[str, object] = {}
        spread = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in self.fields.values())
        for field, parameter in self.fields.items():
            value: object = getattr(checked, field)
            match parameter.kind:
                case parameter.VAR_POSITIONAL:
                    positional.extend(cast("Sequence[object]", value))  # a list, as the model says
                case parameter.POSITIONAL_ONLY:
                    positional.append(value)
                case parameter.POSITIONAL_OR_KEYWORD if spread:
                    positional.append(value)
                case _:
                    keywords[parameter.name] = value
        return positional, {**keywords, **(checked.model_extra or {})}


def _make_run(function: Function, signature: _Signature) -> Callable[[Mapping[str, object]], ToolOutput | Awaitable[ToolOutput]]:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004  # its kind

        async def run_async(arguments: Mapping[str, object]) -> ToolOutput:
            positional, keywords = signature.bind(arguments)
            return _to_output(await function(*positional, **keywords))

        return run_async

    def run(arguments: Mapping[str, object]) -> ToolOutput | Awaitable[ToolOutput]:
        positional, keywords = signature.bind(arguments)
        result = function(*positional, **keywords)
        return _await_output(result) if inspect.isawaitable(result) else _to_output(result)

    return run


async def _await_output(result: Awaitable[object]) -> ToolOutput:
    return _to_output(await result)


def _to_output(result: object) -> ToolOutput:
    """Return text and parts as they are, and any other value as JSON. Raises TypeError for a value that JSON cannot hold."""
    if result is None or isinstance(result, str | ToolFailure):
        return result
    if isinstance(result, get_args(Part)):
        return (cast("Part", result),)  # as the line before says
    if isinstance(result, list | tuple) and result and all(isinstance(each, get_args(Part)) for each in cast("Sequence[object]", result)):
        if any(not isinstance(each, str) for each in cast("Sequence[object]", result)):  # a list of texts alone is a value
            return cast("Sequence[Part]", result)  # all are parts
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(result, fallback=_unstructure).decode()
    except PydanticSerializationError as error:
        problem = f"the tool returned {type(result).__name__}, which cannot be written as JSON: return text. {error}"
        raise TypeError(problem) from None


def _unstructure(value: object) -> object:
    if attrs.has(type(value)):
        return {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
    problem = f"a {type(value).__name__} is no JSON"
    raise TypeError(problem)


def _describe_errors(error: Exception) -> str:
    """Say in a line for each wrong argument where it is, what is wrong and what was given."""
    problems: list[dict[str, Any]] = cast("Any", error).errors(include_url=False, include_context=False)  # pydantic's TypedDicts
    lines: list[str] = []
    for problem in problems[:MAX_ERRORS]:
        place = ".".join(str(part) for part in problem["loc"]) or "the arguments"
        given = "" if problem["type"] in {"missing", "extra_forbidden"} else f", not {problem['input']!r:.{MAX_SHOWN}}"
        lines.append(f"{place}: {problem['msg']}{given}.")
    if len(problems) > MAX_ERRORS:
        lines.append(f"{len(problems) - MAX_ERRORS} more arguments are wrong.")
    return "\n".join(lines)


def _read_signature(function: Function, *, name: str | None, description: str | None, strict: bool) -> _Signature:
    """Return the schema of a function. Raises InvalidArgumentError."""
    from pydantic import PydanticSchemaGenerationError, PydanticUserError

    called = name or _find_name(function)
    if not NAME.fullmatch(called):
        raise InvalidArgumentError(f"{_locate(function)}: {called!r} is no name for a tool. Write tool(name=…) with letters, digits, _ and -.")
    text, documented = _read_docstring(function)
    try:
        model, fields = _build_model(function, called, documented)
        schema = _strict_schema(model) if strict else model.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, NameError, TypeError) as error:
        reason = str(error).split("\n", 1)[0].rstrip(".")
        problem = f"{_locate(function)}: no schema can be made of the arguments of {called}: {reason}. Annotate them with types that JSON has."
        raise InvalidArgumentError(problem) from error
    if strict and (open_place := _find_open_object(schema)):
        problem = (
            f"{_locate(function)}: strict=True needs every object to list its fields, and {open_place} of {called} does not. "
            "Write a class for it, or leave strict=True out."
        )
        raise InvalidArgumentError(problem)
    schema.pop("title", None)
    schema.pop("description", None)
    definition = ToolDefinition(name=called, description=description or text, parameters=schema, strict=True if strict else None)
    return _Signature(definition, model, fields)


def _find_name(function: Function) -> str:
    found: object = getattr(function, "__name__", None) or getattr(getattr(function, "func", None), "__name__", type(function).__name__)
    return str(found)


def _locate(function: Function) -> str:
    """Return the file and line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else f"{function!r:.80}"


def _read_docstring(function: Function) -> tuple[str | None, Mapping[str, str]]:
    """Return what a docstring says of a function, and of its arguments by name."""
    source = getattr(function, "func", function)  # a partial's own docstring is that of partial
    text = inspect.getdoc(source if inspect.isroutine(source) or isinstance(source, type) else getattr(source, "__call__", source))  # noqa: B004  # its docstring
    if not text:
        return None, {}
    import docstring_parser

    read = docstring_parser.parse(text)
    parts = [part for part in (read.short_description, read.long_description) if part]
    about = {each.arg_name.lstrip("*"): each.description for each in read.params if each.description}
    return "\n\n".join(parts) if read.blank_after_short_description else "\n".join(parts) or None, about


def _build_model(function: Function, name: str, documented: Mapping[str, str]) -> tuple[type[BaseModel], dict[str, inspect.Parameter]]:
    """Return the pydantic model of a function's arguments. Its fields have names of their own: an argument may be called `schema`."""
    from pydantic import ConfigDict, Field, create_model
    from pydantic.fields import FieldInfo

    hints = get_type_hints(getattr(function, "func", function), include_extras=True) if not _is_object(function) else get_type_hints(
        type(function).__call__, include_extras=True
    )
    fields: dict[str, inspect.Parameter] = {}
    definitions: dict[str, Any] = {}  # Any: create_model's own keywords
    extra: Any = "forbid"
    known: dict[type, Any] = {}
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        annotation = _replace_attrs(hints.get(parameter.name, Any), known)
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = annotation
            continue
        default: object = ... if parameter.default is parameter.empty else parameter.default
        if parameter.kind is parameter.VAR_POSITIONAL:
            annotation, default = list[annotation], ...
        metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        own = next((each for each in metadata if isinstance(each, str)), None)
        if not any(isinstance(each, FieldInfo) and each.description for each in metadata):
            own = documented.get(parameter.name) or own
        else:
            own = None
        field = f"argument_{number}"
        fields[field] = parameter
        given = {} if own is None else {"description": own}
        definitions[field] = annotation, Field(default, alias=parameter.name, **given)
    base = _base_model()
    if extra == "forbid":
        return create_model(name, __base__=base, **definitions), fields
    open_base = type("Open", (base,), {"model_config": ConfigDict(extra="allow"), "__annotations__": {"__pydantic_extra__": dict[str, extra]}})
    return create_model(name, __base__=open_base, **definitions), fields
