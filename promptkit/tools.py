"""Tools that a model may call: a definition for the model, and a function for the agent.

`tool` makes a tool of a function: the schema comes from the signature and the docstring, and the
arguments of calls are checked. pydantic makes the schema and checks the arguments, and
docstring-parser reads the docstring in Google's, NumPy's or Sphinx's style. Both are imported with
the first function. The schemas are those of pydantic-ai for the same functions; docs/tools.md names
the differences.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from types import GenericAlias, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import attrs

from promptkit.errors import InvalidArgumentError, ToolError
from promptkit.messages import (
    Json,
    Message,
    OpaquePart,
    Part,
    ToolCall,
    ToolDefinition,
    as_wire_object,
    is_instance,
)
from promptkit.reprs import describe
from promptkit.sizes import read_tokens

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


__all__ = [
    "ERROR_MARK",
    "AnyTool",
    "Tool",
    "ToolOutput",
    "ToolResult",
    "as_tool",
    "is_error_result",
    "parse_content",
    "tool",
    "tool_definitions",
]

ERROR_MARK = OpaquePart(value={"is_error": True}, tokens=0, provider="anthropic.message")
"""Marks a tool result as an error. Anthropic is sent it; OpenAI's formats have no such field, and
the text has to say it."""


MIN_RESULT_TOKENS = 100
"""The lowest limit of a tool's results, in tokens. With less, there is nothing but the marker that
replaces their middle."""


def parse_content(value: object) -> tuple[Part, ...] | None:
    """Convert a text, or a list of texts and parts, to message content.

    Returns None for any other value.
    """
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        return None
    items = cast("Sequence[object]", value)  # of any type
    parts = tuple(item for item in items if isinstance(item, Part))
    return parts if len(parts) == len(items) else None


def _read_content(value: object) -> tuple[Part, ...]:
    content = () if value is None else parse_content(value)
    if content is not None:
        return content
    raise TypeError(
        f"the tool returned {type(value).__name__}, and not text or a list of parts such as images: return JSON as text."
    )


@attrs.frozen
class ToolResult:
    """The result of a tool call.

    A tool returns it instead of its content to say that the result is an error.

    >>> ToolResult(f"exit status 2: {output}", is_error=True)
    """

    content: tuple[Part, ...] = attrs.field(default=(), converter=_read_content)
    """The content: text, or a list of texts and parts such as images."""
    is_error: bool = attrs.field(default=False, kw_only=True)
    """Whether the tool failed. Anthropic's models get a mark for it. Other models have only the
    text, which should say it, too."""

    def to_message(self, call: ToolCall) -> Message:
        """Build the message that answers a tool call."""
        return Message(
            role="tool",
            content=(*self.content, ERROR_MARK) if self.is_error else self.content,
            tool_call_id=call.id,
        )


def is_error_result(message: Message) -> bool:
    """Return whether a message is a tool result that is marked as an error."""
    return message.role == "tool" and any(
        isinstance(part, OpaquePart)
        and part.provider == ERROR_MARK.provider
        and isinstance(part.value, Mapping)
        and part.value.get("is_error") is True
        for part in message.content
    )


ToolOutput: TypeAlias = "str | Sequence[Part] | ToolResult | None"
"""The result of a tool function: text, parts such as images, or a result that may be an error. None
if there is nothing to tell the model."""


Supersedes: TypeAlias = Callable[[Mapping[str, object]], str | None]
"""Returns what a call is about, from its arguments."""


@attrs.frozen(kw_only=True)
class Tool:
    """A tool that the model may call.

    `run` receives the arguments of the call as a JSON object and returns the tool result. It is a
    plain or an `async` function. A plain one runs in a thread of its own, so that the tool calls of
    one reply run concurrently. The model is told of an exception that it raises, and may try
    something else: a `ToolError` in its own words, any other one with the name of its class.

    >>> Tool(definition=ToolDefinition(name="now", description="Tell the time."), run=lambda arguments: time.ctime())
    """

    definition: ToolDefinition
    """What the model is told about the tool."""
    run: Callable[[Mapping[str, object]], ToolOutput | Awaitable[ToolOutput]]
    """Called with the arguments of a tool call."""
    check: Callable[[Mapping[str, object]], Mapping[str, object]] | None = None
    """Called with the arguments of a call before a hook decides about it. Returns those that the hook
    sees and `run` receives. A `ToolError` that it raises answers the call. None: every JSON object
    is right."""
    timeout: float | None = None
    """The longest time that a call may take. None: no limit. A plain function goes on running in
    its thread, but is not waited for, not even by the end of the program."""
    max_tokens: int | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_tokens)
    )
    """The most tokens of a result's text that the model is shown. Of a longer one it sees the head,
    the tail, and how to read the rest. None: half of what messages may take. The transcript keeps
    all of it. At least 100."""
    supersedes: Supersedes | None = None
    """Returns what a call is about, such as the path of a file, from its arguments. Once the call has
    succeeded, earlier results about the same are useless: those of tools with `supersedes`, and reads
    of that file. They give way to a placeholder where that does not break the prompt cache. None, or a
    call for which it returns None: it supersedes nothing.

    >>> Tool(definition=…, run=…, supersedes=lambda arguments: str(arguments["path"]))
    """

    def __attrs_post_init__(self) -> None:
        timeout, max_tokens = self.timeout, self.max_tokens
        if timeout is not None and (
            is_instance(timeout, bool) or not is_instance(timeout, (int, float)) or not timeout > 0
        ):
            raise InvalidArgumentError(
                f"timeout of the tool {self.definition.name!r} must be a number of seconds above 0, or None, not {timeout!r:.80}."
            )
        if max_tokens is not None and (
            is_instance(max_tokens, bool)
            or not is_instance(max_tokens, int)
            or max_tokens < MIN_RESULT_TOKENS
        ):
            raise InvalidArgumentError(
                f"max_tokens of the tool {self.definition.name!r} must be at least {MIN_RESULT_TOKENS}, and a whole number, or None, "
                f"not {max_tokens!r:.80}."
            )

    def __repr__(self) -> str:
        return describe(
            self, name=self.definition.name, timeout=self.timeout, max_tokens=self.max_tokens
        )


Function: TypeAlias = Callable[..., Any]  # Any: a tool may have any arguments and return anything

AnyTool: TypeAlias = Tool | ToolDefinition | Function | Mapping[str, object]
"""Anything accepted as a tool: a tool, a function that becomes one, or a definition that others
carry out, also as a dict that OpenAI's or Anthropic's API takes."""

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that providers accept."""

ATTRS_PLACES = "; attrs classes may be in attrs classes, and not in dataclasses, typed dicts or pydantic models"
"""Said of a class that pydantic does not know."""

QUOTED: Mapping[str, tuple[type, ...]] = {
    "int_type": (int,),
    "float_type": (int, float),
    "bool_type": (bool,),
}
"""For each error of pydantic the types of values that may be in quotes."""

MAX_ERRORS = 5
"""Wrong arguments that the model is told of at once."""

MAX_SHOWN = 80
"""Characters of a wrong argument that are repeated to the model."""


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = False,
    timeout: float | None = None,
    max_tokens: int | str | None = None,
    supersedes: Supersedes | None = None,
) -> Callable[[Function], Tool]: ...
def tool(  # noqa: PLR0913  # the settings of a tool, each with a default
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = False,
    timeout: float | None = None,
    max_tokens: int | str | None = None,
    supersedes: Supersedes | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Make a tool from a function, which may be `async`.

    The model is told its name, what its docstring says, and its arguments.

    Arguments of any type that pydantic knows are checked before the function is called, and before a
    hook approves the call: numbers, enums, literals, lists, dataclasses, attrs classes, pydantic
    models. Of what the schema does not allow the model is told what is wrong. Only a number or a
    boolean in quotes (`"5"`, `"true"`) is read as if it had none. The result may be text, parts such
    as images, or any other value, which is written as JSON.

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
        description: What the tool does, for the model; by default the docstring without its
            sections.
        strict: Have the provider make the arguments match the schema. Every argument is then
            required, those with a default as well, and nothing is read in quotes.
        timeout: The longest time that a call may take, in seconds; None: no limit. The model is told of a call
            that took longer.
        max_tokens: The most tokens of a result's text that the model is shown, at least 100. Of a
            longer one it sees the head, the tail, and how to read the rest. None: half of what
            messages may take.
        supersedes: Returns what a call is about, such as a path, from its arguments: its result makes
            earlier ones about the same useless, as in `Tool`.

    Raises:
        InvalidArgumentError: No schema can be made, for example because an argument is a function;
            or `timeout` or `max_tokens` is too low.
    """

    def make(given: Function) -> Tool:
        schema = _read_signature(given, name=name, description=description, strict=strict)
        return Tool(
            definition=schema.definition,
            run=_make_run(given, schema),
            check=schema.read,
            timeout=timeout,
            max_tokens=max_tokens,
            supersedes=supersedes,
        )

    return make if function is None else make(function)


def as_tool(given: object) -> Tool | ToolDefinition:
    """Return a tool or a definition as it is, the tool of a plain function, and the definition that a dict has.

    Raises:
        TypeError: The value is none of these.
        InvalidArgumentError: No schema can be made of the function.
    """
    if isinstance(given, Tool | ToolDefinition):
        return given
    if callable(given) and not isinstance(given, type):
        return tool(given)
    definition = read_definition(given)
    if definition is None:
        raise TypeError(
            f"a tool is a function, Tool(definition=ToolDefinition(name=…), run=…), ToolDefinition(name=…), or a dict with a name and a schema as the APIs of OpenAI and Anthropic take it, not {given!r:.80}."
        )
    return definition


def read_definition(given: object) -> ToolDefinition | None:
    """Read a tool, or the format of a structured reply, as a dict or an SDK object of one of the three APIs.

    None for a provider's own tool, whose definition the provider has, and for any other value.
    """
    record = as_wire_object(given) or {}
    fields = as_wire_object(record.get("function") or record.get("json_schema")) or record
    name, description, strict = (fields.get(key) for key in ("name", "description", "strict"))
    schema = fields.get("parameters") or fields.get("input_schema") or fields.get("schema")
    return (
        ToolDefinition(
            name=name,
            description=description if isinstance(description, str) else None,
            parameters=as_wire_object(schema),
            strict=strict if isinstance(strict, bool) else None,
        )
        if isinstance(name, str) and (schema or description or record.get("type") == "function")
        else None
    )


def tool_definitions(tools: Iterable[AnyTool]) -> tuple[ToolDefinition, ...]:
    """Return the definitions of tools, in order.

    Raises:
        TypeError: A value is no tool, no definition and no function.
        InvalidArgumentError: Two tools have the same name, so the model could not tell them apart.
    """
    if is_instance(tools, (Tool, ToolDefinition, str, Mapping)) or not is_instance(tools, Iterable):
        raise TypeError(f"tools must be a list of tools, such as [tool], not {tools!r:.80}.")
    definitions = tuple(
        each.definition if isinstance(each, Tool) else each for each in map(as_tool, tools)
    )
    names = [definition.name for definition in definitions]
    if len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"two tools have the name {next(name for name in names if names.count(name) > 1)!r}: give each one of its own."
        )
    return definitions


@attrs.frozen
class _Signature:
    """The arguments of a function: their schema, and what they are passed as."""

    definition: ToolDefinition
    model: type[BaseModel]
    fields: Mapping[str, inspect.Parameter]
    """The field of the model for each argument."""

    def read(self, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Return the arguments of a call as the schema has them.

        Raises ToolError if that is not possible.
        """
        from pydantic import ValidationError

        try:
            self._validate(arguments)
        except ValidationError as error:
            arguments = self._read_quoted(arguments, error)
            try:
                self._validate(arguments)
            except ValidationError as left:
                raise ToolError(
                    f"these arguments of {self.definition.name} are wrong:\n{_describe_errors(left)}"
                ) from None
        return arguments

    def _validate(self, arguments: Mapping[str, object]) -> BaseModel:
        """Make the model of arguments, converting nothing but what JSON has no type for, such as dates.

        Raises pydantic's ValidationError, and ToolError for a text that is no Unicode.
        """
        try:
            text = _write_arguments(arguments).encode()
        except UnicodeEncodeError as error:
            raise ToolError(
                f"the arguments of {self.definition.name} have half of a character, {error.object[error.start]!r}, which is no text."
            ) from None
        return self.model.model_validate_json(text, strict=True)

    def _read_quoted(
        self, arguments: Mapping[str, object], error: ValidationError
    ) -> Mapping[str, object]:
        """Read 5.0 as the integer that it is, and, unless the schema is strict, arguments that are numbers and booleans in quotes."""
        read: dict[str, object] = json.loads(_write_arguments(arguments), parse_float=_read_number)
        for problem in () if self.definition.strict else error.errors(include_url=False):
            name = str(problem["loc"][0]) if problem["loc"] else ""
            given = arguments.get(name)
            if given == problem["input"] and isinstance(given, str):
                with suppress(ValueError):
                    value: object = json.loads(given)
                    if type(value) in QUOTED.get(problem["type"], ()):
                        read[name] = value
        return read

    def bind(self, arguments: Mapping[str, object]) -> tuple[list[object], dict[str, object]]:
        """Check the arguments of a call, and return the positional ones and the others.

        Raises ToolError.
        """
        checked = self._validate(self.read(arguments))
        values = [(parameter, getattr(checked, field)) for field, parameter in self.fields.items()]
        spread = any(parameter.kind is parameter.VAR_POSITIONAL for parameter, _ in values)
        kinds = inspect.Parameter
        by_place = (
            kinds.POSITIONAL_ONLY,
            kinds.VAR_POSITIONAL,
            *([kinds.POSITIONAL_OR_KEYWORD] if spread else []),
        )
        positional = [
            each
            for parameter, value in values
            if parameter.kind in by_place
            for each in (value if parameter.kind is parameter.VAR_POSITIONAL else (value,))
        ]
        keywords = {
            parameter.name: value for parameter, value in values if parameter.kind not in by_place
        }
        return positional, {**keywords, **(checked.model_extra or {})}


def _write_arguments(arguments: Mapping[str, object]) -> str:
    """Write arguments as JSON. A hook may have put in values of Python."""
    from pydantic_core import to_jsonable_python

    return json.dumps(
        arguments,
        ensure_ascii=False,
        default=partial(to_jsonable_python, fallback=partial(_list_fields, arguments=True)),
    )


def _read_number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def read_integer(value: object) -> int | None:
    """Return an integer, also one in quotes; None for anything else, booleans included."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    return value if type(value) is int else None


def _make_run(
    function: Function, signature: _Signature
) -> Callable[[Mapping[str, object]], ToolOutput | Awaitable[ToolOutput]]:
    def run(arguments: Mapping[str, object]) -> ToolOutput | Awaitable[ToolOutput]:
        positional, keywords = signature.bind(arguments)
        result = function(*positional, **keywords)
        return _await_output(result) if inspect.isawaitable(result) else _to_output(result)

    async def run_async(arguments: Mapping[str, object]) -> ToolOutput:
        output = run(arguments)
        return await output if inspect.isawaitable(output) else output

    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # the method itself, not whether there is one
    )
    return run_async if is_async else run


async def _await_output(result: Awaitable[object]) -> ToolOutput:
    return _to_output(await result)


def _to_output(result: object) -> ToolOutput:
    """Return text and parts as they are, and any other value as JSON.

    Raises TypeError for a value that JSON cannot hold.
    """
    if result is None or isinstance(result, str | ToolResult):
        return result
    if isinstance(result, Part):
        return (result,)
    parts = parse_content(result)
    # a list of texts alone is a value
    if parts is not None and any(not isinstance(part, str) for part in parts):
        return parts
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(result, fallback=_list_fields, inf_nan_mode="strings").decode()
    except PydanticSerializationError as error:
        raise TypeError(
            f"the tool returned {type(result).__name__}, which cannot be written as JSON: return text. {error}"
        ) from None


def _list_fields(value: object, *, arguments: bool = False) -> object:
    """Return the fields of an attrs instance, or with `arguments` those that make it.

    Raises TypeError for any other value.
    """
    cls = type(value)
    if attrs.has(cls):
        return {
            (arguments and field.alias) or field.name: getattr(value, field.name)
            for field in attrs.fields(cls)
            if field.init or not arguments
        }
    raise TypeError(f"a {cls.__name__} is no JSON")


def _describe_errors(error: ValidationError) -> str:
    """Say in a line for each wrong argument where it is, what is wrong and what was given."""
    problems = error.errors(include_url=False, include_context=False)
    lines: list[str] = []
    for problem in problems[:MAX_ERRORS]:
        place = ".".join(map(str, problem["loc"])) or "the arguments"
        given = (
            ""
            if problem["type"] in {"missing", "extra_forbidden"}
            else f", not {problem['input']!r:.{MAX_SHOWN}}"
        )
        lines.append(f"{place}: {problem['msg']}{given}.")
    if len(problems) > MAX_ERRORS:
        lines.append(f"{len(problems) - MAX_ERRORS} more arguments are wrong.")
    return "\n".join(lines)


def _read_signature(
    function: Function, *, name: str | None, description: str | None, strict: bool
) -> _Signature:
    """Return the schema of a function. Raises InvalidArgumentError."""
    from pydantic import PydanticSchemaGenerationError, PydanticUserError

    _check_callable(function)
    inner = _unwrap_partial(function)
    called = name or str(getattr(inner, "__name__", type(inner).__name__))
    if not NAME.fullmatch(called):
        raise InvalidArgumentError(
            f"{_locate(function)}: {called!r} is no name for a tool. Write tool(name=…) with letters, digits, _ and -."
        )
    text, documented = _read_docstring(function)
    try:
        model, fields = _build_model(function, called, documented)
        schema = _make_strict(model) if strict else model.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, NameError, TypeError) as error:
        reason = (
            str(error).split("\n", 1)[0].split(". Set `arbitrary_types_allowed", 1)[0].rstrip(".")
        )
        places = ATTRS_PLACES if isinstance(error, PydanticSchemaGenerationError) else ""
        raise InvalidArgumentError(
            f"{_locate(function)}: no schema can be made of the arguments of {called}: {reason}. Annotate them with types that JSON has{places}."
        ) from error
    if strict and (open_place := _find_open_object(schema)):
        raise InvalidArgumentError(
            f"{_locate(function)}: strict=True needs every object to list its fields, and {open_place} of {called} does not. "
            "Write a class for it, or leave strict=True out."
        )
    schema.pop("title", None)
    schema.pop("description", None)
    return _Signature(
        ToolDefinition(
            name=called,
            description=description or text,
            parameters=schema,
            strict=True if strict else None,
        ),
        model,
        fields,
    )


def _check_callable(function: Function) -> None:
    """Raise InvalidArgumentError for what is no function, but could be taken for one."""
    inner = _unwrap_partial(function)
    if isinstance(inner, type):
        raise InvalidArgumentError(
            f"{inner.__name__} is a class: give a function, a method of an instance, or an instance that can be called."
        )
    if not callable(inner):
        raise InvalidArgumentError(
            f"tool takes a function, not {inner!r:.80}. A name is given as tool(name=…)."
        )
    if (
        inspect.isfunction(inner)
        and (holder := inner.__qualname__.rpartition(".")[0])
        and not holder.endswith("<locals>")
        and next(iter(inspect.signature(function).parameters), None) == "self"
    ):
        raise InvalidArgumentError(
            f"{_locate(function)}: {inner.__qualname__.rpartition('<locals>.')[2]} is a method, and its instance is not known here. Pass the method of an instance: tool(service.look)."
        )


def _locate(function: Function) -> str:
    """Return the file and line of a function."""
    code = getattr(_find_code(inspect.unwrap(function)), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else f"{function!r:.80}"


def _read_docstring(function: Function) -> tuple[str | None, Mapping[str, str]]:
    """Return what a docstring says of a function, and of its arguments by name."""
    text = inspect.getdoc(_find_code(function))
    if not text or text == object.__call__.__doc__:  # inherited by every object that can be called
        return None, {}
    import docstring_parser

    read = docstring_parser.parse(text)
    parts = filter(None, (read.short_description, read.long_description))
    about = ("\n\n" if read.blank_after_short_description else "\n").join(parts)
    return about or None, {
        each.arg_name.lstrip("*"): each.description for each in read.params if each.description
    }


def _build_model(
    function: Function, name: str, documented: Mapping[str, str]
) -> tuple[type[BaseModel], dict[str, inspect.Parameter]]:
    """Return the pydantic model of a function's arguments.

    Its fields have names of their own: an argument may be called `schema`.
    """
    from pydantic import ConfigDict, Field, create_model
    from pydantic.fields import FieldInfo

    hints = get_type_hints(_find_code(function), include_extras=True)
    known: dict[type, object] = {}  # with None while a class is being read
    fields: dict[str, inspect.Parameter] = {}
    definitions: dict[str, Any] = {}  # Any: create_model's keywords
    others: object = None
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        # Any stands for without an annotation
        annotation = _replace_attrs(hints.get(parameter.name, Any), known)
        if parameter.kind is parameter.VAR_KEYWORD:
            others = annotation
            continue
        given: dict[str, Any] = {}  # Any: keywords of Field
        if isinstance(parameter.default, FieldInfo):  # pydantic merges it with what follows
            annotation = Annotated[annotation, parameter.default]
        elif parameter.default is not parameter.empty:
            given = {"default": parameter.default}
        if parameter.kind is parameter.VAR_POSITIONAL:
            annotation, given = GenericAlias(Sequence, annotation), {"default_factory": tuple}
        if text := _find_description(annotation, documented.get(parameter.name)):
            given["description"] = text
        fields[f"argument_{number}"] = parameter
        definitions[f"argument_{number}"] = annotation, Field(alias=parameter.name, **given)
    base = _base_model()
    if others is not None:
        base = type(
            "Open",
            (base,),
            {
                "model_config": ConfigDict(extra="allow"),
                "__annotations__": {"__pydantic_extra__": GenericAlias(dict, (str, others))},
                "__module__": __name__,
            },
        )
    return create_model(name, __base__=base, **definitions), fields


def _unwrap_partial(function: Function) -> object:
    return function.func if isinstance(function, partial) else function


def _find_code(function: Function) -> object:
    """Return what has the annotations of a function: the function of a partial, and the method that calls an object."""
    inner = _unwrap_partial(function)
    return inner if inspect.isroutine(inner) else type(inner).__call__


def _find_description(annotation: object, documented: str | None) -> str | None:
    """Return what the docstring or a text in `Annotated` says of an argument; None if the annotation's `Field` has a description."""
    from pydantic.fields import FieldInfo

    metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    if any(isinstance(each, FieldInfo) and each.description for each in metadata):
        return None
    return documented or next((each for each in metadata if isinstance(each, str)), None)


def _replace_attrs(annotation: Any, known: dict[type, object]) -> Any:  # noqa: ANN401  # types, and what annotations hold besides
    """Return an annotation with pydantic models in place of attrs classes, whose checked values become instances of these classes."""
    if isinstance(annotation, type) and attrs.has(annotation):
        return _mirror_attrs(annotation, known)
    arguments = get_args(annotation)
    replaced = tuple(_replace_attrs(each, known) for each in arguments)
    if replaced == arguments:
        return annotation
    origin = get_origin(annotation)
    if origin is Annotated:
        return Annotated[(replaced[0], *arguments[1:])]
    if origin in {Union, UnionType}:
        return Union[replaced]  # noqa: UP007  # of types that are known at run time only
    return cast("Any", origin)[replaced]  # a generic class, as it has arguments


def _mirror_attrs(cls: type, known: dict[type, object]) -> object:
    from pydantic import AfterValidator, Field, create_model

    if cls in known and known[cls] is None:
        raise TypeError(
            f"{cls.__name__} contains itself, which a dataclass and a pydantic model may, and an attrs class may not"
        )
    if cls in known:
        return known[cls]
    known[cls] = None
    fields = {field.alias or field.name: field for field in attrs.fields(cls) if field.init}
    hints = get_type_hints(cls, include_extras=True)
    definitions: dict[str, Any] = {}  # Any: create_model's keywords
    for alias, field in fields.items():
        default: object = field.default
        given: dict[str, Any] = (  # Any: keywords of Field
            {}
            if default is attrs.NOTHING
            else {"default_factory": tuple}
            if type(default) is type(attrs.Factory(tuple))
            else {"default": default}
        )
        # Any: without an annotation
        annotation = _replace_attrs(hints.get(field.name, Any), known)
        definitions[f"field_{alias}"] = annotation, Field(alias=alias, **given)

    def build(checked: BaseModel) -> object:
        """Make the instance. Fields that were not given get their defaults from the class."""
        return cls(
            **{
                alias: getattr(checked, f"field_{alias}")
                for alias in fields
                if f"field_{alias}" in checked.model_fields_set
            }
        )

    known[cls] = Annotated[
        create_model(cls.__name__, __base__=_base_model(), **definitions), AfterValidator(build)
    ]
    return known[cls]


@cache
def _base_model() -> type[BaseModel]:
    """Return the class of all models of arguments.

    It is made with the first, so that pydantic is imported then.
    """
    from pydantic import BaseModel, ConfigDict
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    class Schema(GenerateJsonSchema):
        def encode_default(self, dft: object) -> object:
            """Write attrs instances as the arguments that make them."""
            try:
                return super().encode_default(dft)
            except PydanticSerializationError:
                return to_jsonable_python(dft, fallback=partial(_list_fields, arguments=True))

        def field_title_should_be_set(self, schema: object) -> bool:  # for every field
            """Leave out titles that only repeat the names of fields: they cost tokens."""
            return False

    class Arguments(BaseModel):
        model_config = ConfigDict(
            extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
        )

        @classmethod
        def model_json_schema(cls, *arguments: Any, **keywords: Any) -> dict[str, Any]:  # noqa: ANN401  # as the base class has it
            return super().model_json_schema(*arguments, **{"schema_generator": Schema, **keywords})

    return Arguments


def _make_strict(model: type[BaseModel]) -> dict[str, Json]:
    """Return the schema as OpenAI's strict mode wants it, by OpenAI's own function, which leaves one thing: `oneOf` is not allowed."""
    from openai import pydantic_function_tool

    # JSON, as its type does not say
    schema = cast("dict[str, Json]", pydantic_function_tool(model)["function"].get("parameters"))
    for _, found in _iter_objects(schema):
        if "oneOf" in found:
            found["anyOf"] = found.pop("oneOf")
    return schema


def _find_open_object(schema: Json) -> str | None:
    """Return where a schema has an object with fields that it does not list, as dicts have; None if nowhere."""
    return next(
        (
            place
            for place, found in _iter_objects(schema)
            if found.get("type") == "object" and found.get("additionalProperties") is not False
        ),
        None,
    )


def _iter_objects(schema: Json) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield the objects that a schema consists of, each with the argument that it is in. Values of arguments are none."""
    waiting: list[tuple[str, Json]] = [("an argument", schema)]
    while waiting:
        place, found = waiting.pop()
        if isinstance(found, dict):
            yield place, found
            properties = found.get("properties")
            values = {"properties", "default", "enum", "const", "examples"}
            waiting.extend((place, found[name]) for name in found if name not in values)
            if isinstance(properties, Mapping):
                waiting.extend(
                    (f"the argument {name!r}", inner) for name, inner in properties.items()
                )
        elif isinstance(found, list):
            waiting.extend((place, inner) for inner in found)
