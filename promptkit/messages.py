"""Provider-neutral values: messages, their parts, tool calls, tool definitions and usage.

Rendering ends in these values, and the emitters turn them into a provider's wire format. Each value
is checked when it is made, or by what reads it, so that every message can be rendered, and stored and read back.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard, TypeVar, cast, runtime_checkable

import attrs

from promptkit.errors import InvalidArgumentError

__all__ = [
    "DEVELOPER",
    "CacheBreakpointPart",
    "DocumentPart",
    "ImagePart",
    "Json",
    "Message",
    "OpaquePart",
    "Part",
    "Repair",
    "Role",
    "SdkObject",
    "ToolCall",
    "ToolDefinition",
    "Usage",
    "as_mapping",
    "as_sequence",
    "as_wire_object",
    "build_message",
    "copy_json",
    "is_instance",
    "read_cache_breakpoints",
    "read_part",
    "read_tool_call",
]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
"""The author of a message."""

Json: TypeAlias = "bool | int | float | str | list[Json] | Mapping[str, Json] | None"
"""A JSON value."""


@runtime_checkable
class SdkObject(Protocol):
    """An object of a provider's SDK, such as a message or a content block: any pydantic model."""

    def model_dump(
        self, *, mode: str = ..., by_alias: bool | None = ..., exclude_none: bool = ...
    ) -> dict[str, Any]:  # Any: as in pydantic
        """Return the object as a dict of JSON values."""
        ...


def is_instance(value: object, classes: type | tuple[type, ...]) -> bool:
    """Return whether a value has a class, for an argument that a caller without a type checker may pass as anything.

    Type checkers take the annotation of the argument for granted, and call `isinstance` unnecessary.
    """
    return isinstance(value, classes)


def _is_whole(value: object) -> bool:
    """Return whether a value is a whole number, and no boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def _check_text(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not (type(value) is str or is_instance(value, str)):
        _refuse_field(instance, attribute.name, "a string", value)


def _check_optional_text(
    instance: object, attribute: attrs.Attribute[str | None], value: str | None
) -> None:
    if value is not None and not is_instance(value, str):
        _refuse_field(instance, attribute.name, "a string or None", value)


def _check_optional_number(
    instance: object, attribute: attrs.Attribute[int | None], value: int | None
) -> None:
    if value is not None and not _is_whole(value):
        _refuse_field(instance, attribute.name, "a whole number or None", value)


def _check_count(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if not (type(value) is int or _is_whole(value)) or value < 0:
        _refuse_field(
            instance,
            attribute.name,
            "a whole number from 0 on (where no usage is known, write usage=None)",
            value,
        )


def _refuse_field(instance: object, name: str, wanted: str, value: object) -> None:
    raise TypeError(f"{name} of {type(instance).__name__} must be {wanted}, not {value!r:.80}.")


@attrs.frozen(kw_only=True)
class ImagePart:
    """An image, given by its URL. A `data:` URL holds the bytes themselves."""

    url: str = attrs.field(validator=_check_text)
    """An http(s) URL or a `data:` URL."""

    detail: str | None = attrs.field(default=None, validator=_check_optional_text)
    """The resolution hint for the provider: `low`, `high` or `auto`."""

    media_type: str | None = attrs.field(default=None, validator=_check_optional_text)
    """The media type, such as `image/png`."""

    width: int | None = attrs.field(default=None, validator=_check_optional_number)
    """The width in pixels. Token counts need it for an http URL; for a `data:` URL it is read from
    the image's header."""

    height: int | None = attrs.field(default=None, validator=_check_optional_number)
    """The height in pixels, see `width`."""


@attrs.frozen(kw_only=True)
class DocumentPart:
    """A document, such as a PDF."""

    data: str = attrs.field(validator=_check_text)
    """The bytes of the document, in base64."""

    media_type: str = attrs.field(validator=_check_text)
    """The media type, such as `application/pdf`."""

    name: str | None = attrs.field(default=None, validator=_check_optional_text)
    """The file name that the model sees."""

    tokens: int | None = attrs.field(default=None, validator=_check_optional_number)
    """The cost in tokens, as the caller knows it: providers publish no formula for documents."""


MAX_DEPTH = 200
"""Levels of nested objects and lists in an opaque part. A deeper value cannot be read by every JSON
reader."""


def _read_json(value: Json) -> Json:
    """Check that a value is JSON.

    Tuples become lists and other mappings dicts, since that is how they are stored.

    Raises:
        InvalidArgumentError: The value is not JSON, is nested too deeply, or contains itself.
    """
    if (
        isinstance(value, Mapping)
        and type(value) is _DICT
        and _SCALARS.issuperset(map(type, value.values()))
        and _TEXTS.issuperset(map(type, value))
    ):
        return value
    level: list[object] = [value]
    is_plain = True
    for _ in range(MAX_DEPTH + 1):
        inner: dict[int, object] = {}
        for item in level:
            if isinstance(item, dict | list | Mapping | tuple):
                # of any items
                inner.update(
                    (id(child), child) for child in _list_children(cast("JsonContainer", item))
                )
                is_plain = is_plain and isinstance(item, dict | list)
            elif not (
                item is None
                or isinstance(item, str | int)
                or (isinstance(item, float) and math.isfinite(item))
            ):
                raise _not_json_error(f"{item!r:.80}")
        if not inner:
            copied: Json = value if is_plain else copy_json(value)
            return copied
        level = list(inner.values())
    raise InvalidArgumentError(
        f"the value of an OpaquePart is nested deeper than {MAX_DEPTH} levels, or contains itself: write a flatter value."
    )


_DICT: type = dict  # without its type arguments, which pyright would call unknown
_TUPLE: type = tuple
_TEXTS = frozenset({str})
_SCALARS = frozenset({str, int, bool, type(None)})
JsonContainer: TypeAlias = "Mapping[object, object] | list[object] | tuple[object, ...]"


def _list_children(container: JsonContainer) -> Iterable[object]:
    if not isinstance(container, Mapping):
        return container
    for key in container:
        if not isinstance(key, str):
            raise _not_json_error(f"the key {key!r:.80}")
    return container.values()


def _not_json_error(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the value of an OpaquePart must be JSON, and has {what}: write dicts with string keys, lists, strings, finite numbers, booleans, None."
    )


def as_mapping(value: object) -> Mapping[str, object]:
    """Return a JSON object, whose keys are strings, or an empty one in place of any other value."""
    # None and the class first: the check by the abstract class takes ten times as long
    return (
        # isinstance leaves the types of keys and values unknown
        cast("Mapping[str, object]", value)
        if value is not None and (type(value) is dict or isinstance(value, Mapping))
        else {}
    )


def as_sequence(value: object) -> Sequence[object]:
    """Return a JSON array, or an empty one in place of any other value."""
    # isinstance leaves the type of the items unknown
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def copy_json(
    value: Json, change: Callable[[str], str] | None = None, *, keys: bool = False
) -> Any:  # noqa: ANN401  # Any: the result is passed where the SDKs declare TypedDicts
    """Copy a JSON value deeply into dicts and lists, whatever mappings it consists of.

    Works without recursion.

    Args:
        value: The value.
        change: Return what stands in the copy for a string. None: the string itself.
        keys: Whether `change` also applies to keys.
    """
    root: list[Json] = [value]
    todo: list[list[Json] | dict[str, Json]] = [root]

    def copy(item: Json) -> Json:
        if isinstance(item, Mapping):
            todo.append(
                {change(key): each for key, each in item.items()} if keys and change else dict(item)
            )
        elif isinstance(item, list | tuple):
            todo.append(list(item))
        else:
            return change(item) if change and isinstance(item, str) else item
        return todo[-1]

    while todo:
        if isinstance(holder := todo.pop(), dict):
            holder.update({key: copy(item) for key, item in holder.items()})
        else:
            holder[:] = map(copy, holder)
    return root[0]


@attrs.frozen(kw_only=True)
class OpaquePart:
    """A provider's own content part (thinking, citations, audio), sent unchanged."""

    value: Json = attrs.field(converter=_read_json)
    """The part in the provider's wire format."""

    tokens: int | None = attrs.field(default=None, validator=_check_optional_number)
    """The cost in tokens. None counts the text in the part (a refusal, thinking, a summary), and
    marks the count as inexact."""

    provider: str | None = attrs.field(default=None, validator=_check_optional_text)
    """The only wire format that gets the part: `chat`, `responses` or `anthropic`. None sends it in
    every format.

    A part whose provider ends in `.message`, `.call` or `.part` is no content itself. It keeps what
    a wire format has and promptkit's messages have not, and only that format (`openai`: Chat
    Completions and the Responses API) is sent it: fields of the message such as
    `{"role": "developer"}`; the position of the tool call whose id is in `call`, and its other
    fields; the border between two texts.
    """


@attrs.frozen(kw_only=True)
class CacheBreakpointPart:
    """The end of a prefix that the provider should put into its prompt cache."""

    kind: str | None = attrs.field(default=None, validator=_check_optional_text)
    """The provider's cache type, such as `ephemeral`."""

    ttl: str | None = attrs.field(default=None, validator=_check_optional_text)
    """The time to live in the cache, in the provider's notation, such as `5m` or `1h`."""


Part: TypeAlias = str | ImagePart | DocumentPart | OpaquePart | CacheBreakpointPart
"""One part of a message's content. Text is a plain string."""


def _read_arguments(arguments: str | Mapping[str, object]) -> str:
    if isinstance(arguments, str):
        return arguments
    if not is_instance(arguments, Mapping):
        raise TypeError(
            f"arguments must be JSON text such as '{{}}', or a mapping, not {arguments!r:.80}."
        )
    try:
        # dumps refuses what is not JSON
        return json.dumps(copy_json(cast("Json", arguments)), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"arguments cannot be written as JSON ({error}): write strings, finite numbers, booleans, lists and dicts, or JSON text."
        ) from error


@attrs.frozen(kw_only=True)
class ToolCall:
    """A model's request to run a tool."""

    id: str = attrs.field(validator=_check_text)
    """The id that the tool result refers to."""

    name: str = attrs.field(validator=_check_text)
    """The name of the tool."""

    arguments: str = attrs.field(default="{}", converter=_read_arguments)
    """JSON text exactly as the model wrote it. promptkit never parses and rewrites it. A mapping
    becomes JSON text."""


DEVELOPER = OpaquePart(value={"role": "developer"}, tokens=0, provider="openai.message")
"""The first part of a system message that OpenAI's formats send as `developer`."""
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_Item = TypeVar("_Item")
_PART_CLASSES: frozenset[type[Part]] = frozenset(
    {str, ImagePart, DocumentPart, OpaquePart, CacheBreakpointPart}
)
_CALL_CLASSES = frozenset({ToolCall})


@attrs.frozen(kw_only=True, init=False)
class Message:
    """One message of a conversation.

    >>> Message(role="user", content="Hello").text
    'Hello'
    """

    role: Role
    """The author. `developer` makes a system message that OpenAI's formats send as `developer`."""

    content: tuple[Part, ...] = ()
    """Text and other parts, in order. A string is one text; content parts of providers (dicts, SDK
    objects) become parts."""

    name: str | None = None
    """The participant's name, for providers that accept one."""

    tool_calls: tuple[ToolCall, ...] = ()
    """The tool calls of an assistant message. Tool calls of providers (dicts, SDK objects) become
    tool calls."""

    tool_call_id: str | None = None
    """The id of the tool call that a tool message answers."""

    def __init__(
        self,
        *,
        role: Role | Literal["developer"],
        content: str | Iterable[Part | Mapping[str, object] | SdkObject] | None = (),
        name: str | None = None,
        tool_calls: Iterable[ToolCall | Mapping[str, object] | SdkObject] | None = (),
        tool_call_id: str | None = None,
    ) -> None:
        """Check and convert the fields.

        Args:
            role: The author. `developer` makes a system message that OpenAI's formats send as
                `developer`.
            content: One text, or parts: texts, promptkit's parts, and content parts of providers as
                dicts or SDK objects.
            name: The participant's name.
            tool_calls: The tool calls of an assistant message, also as dicts or SDK objects of
                providers.
            tool_call_id: The id of the tool call that a tool message answers.

        Raises:
            InvalidArgumentError: A value is one that a message cannot have.
            TypeError: A value has the wrong type.
        """
        # most values are of the class itself, and a look at it takes less time than a call
        known = _ROLES.get(role) if type(role) in _TEXTS or is_instance(role, str) else None
        if known is None:
            raise InvalidArgumentError(
                f"role must be 'system', 'developer', 'user', 'assistant' or 'tool', not {role!r:.80}."
            )
        parts = content if _are_all(content, _PART_CLASSES) else _read_content(content)
        calls = tool_calls if _are_all(tool_calls, _CALL_CLASSES) else _read_tool_calls(tool_calls)
        if role == "developer":
            parts = (DEVELOPER, *parts)
        if not (name is None or type(name) is str or is_instance(name, str)):
            _refuse_field(self, "name", "a string or None", name)
        if not (
            tool_call_id is None or type(tool_call_id) is str or is_instance(tool_call_id, str)
        ):
            _refuse_field(self, "tool_call_id", "a string or None", tool_call_id)
        _set_role(self, known)
        _set_content(self, parts)
        _set_name(self, name)
        _set_tool_calls(self, calls)
        _set_tool_call_id(self, tool_call_id)

    @property
    def text(self) -> str:
        """The text parts, joined without a separator."""
        content = self.content
        if len(content) == 1 and isinstance(content[0], str):
            return content[0]
        return "".join(part for part in content if isinstance(part, str))


def _find_setters(cls: type) -> Iterator[Callable[[object, object], None]]:
    """Find the setters of the slots, in the order of the fields.

    A frozen class has them, too, and `object.__setattr__` takes twice as long.
    """
    return (vars(cls)[field.name].__set__ for field in attrs.fields(cls))


_set_role, _set_content, _set_name, _set_tool_calls, _set_tool_call_id = _find_setters(Message)


def build_message(
    role: Role,
    content: tuple[Part, ...],
    name: str | None,
    tool_calls: tuple[ToolCall, ...],
    tool_call_id: str | None,
) -> Message:
    """Build a message of values that were checked when they were read, in less than half of the time of `Message(…)`."""
    message: Message = object.__new__(Message)
    _set_role(message, role)
    _set_content(message, content)
    _set_name(message, name)
    _set_tool_calls(message, tool_calls)
    _set_tool_call_id(message, tool_call_id)
    return message


@attrs.frozen(kw_only=True)
class ToolDefinition:
    """The declaration of a tool that the model may call."""

    name: str
    """The name that the model calls."""

    description: str | None = None
    """What the tool does, for the model."""

    parameters: Mapping[str, Json] | None = None
    """The arguments as a JSON Schema object."""

    strict: bool | None = None
    """Whether the provider must make the arguments match the schema. None leaves it to the
    provider."""


@attrs.frozen(kw_only=True)
class Repair:
    """A correction that a component made to its input, reported in `rendered.repairs`."""

    kind: str
    """The kind in a word or two, such as `missing result`."""

    detail: str
    """The place and the correction, in one sentence."""


@attrs.frozen(kw_only=True)
class Usage:
    """The tokens that a provider reports for one request."""

    input_tokens: int = attrs.field(validator=_check_count)
    """Tokens of the request, the cached ones included."""

    output_tokens: int = attrs.field(default=0, validator=_check_count)
    """Tokens of the reply."""

    cached_tokens: int = attrs.field(default=0, validator=_check_count)
    """Input tokens that the provider read from its prompt cache."""

    written_tokens: int = attrs.field(default=0, validator=_check_count)
    """Input tokens that the provider wrote to its prompt cache, where it reports and bills them
    apart, as Anthropic does."""

    written_1h_tokens: int = attrs.field(default=0, validator=_check_count)
    """The part of the written tokens that the cache keeps for an hour without use, and that costs
    more."""


def as_wire_object(value: object) -> Mapping[str, Json] | None:
    """Return a dict of a provider, or an SDK object as a dict without its empty fields.

    None for any other value.
    """
    if value is None:
        return None
    # the class first: the check by the abstract class takes ten times as long
    if type(value) is dict or isinstance(value, Mapping):
        return cast("Mapping[str, Json]", value)  # whoever keeps parts of it checks them
    dump = None if isinstance(value, type) else getattr(value, "model_dump", None)
    if not callable(dump):
        return None
    dumped = dump(mode="json", by_alias=True, exclude_none=True)
    # `mode` makes it JSON
    return cast("Mapping[str, Json]", dumped) if isinstance(dumped, Mapping) else None


def _are_all(
    values: Iterable[object] | None, classes: frozenset[type[_Item]]
) -> TypeGuard[tuple[_Item, ...]]:
    """Return whether values need no conversion, as those of promptkit's own messages, of which replays make very many."""
    return (
        isinstance(values, tuple)
        and type(values) is _TUPLE
        and (
            not values  # most messages have no calls, and one text
            or (
                type(values[0]) in classes
                if len(values) == 1
                else classes.issuperset(map(type, values))
            )
        )
    )


def _is_list(values: object) -> TypeGuard[Iterable[object]]:
    """Return whether a value has items in an order.

    A pydantic model has, too, but they are its fields.
    """
    return isinstance(values, Iterable) and not isinstance(
        values, Mapping | AbstractSet | str | bytes | bytearray | SdkObject
    )


def _read_content(content: object) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (str.__str__(content),) if content else ()
    if content is None:
        return ()
    if not _is_list(content):
        raise TypeError(
            f"content must be a string, or a list of parts such as ['Hello', ImagePart(url='https://…')], not {content!r:.80}."
        )
    parts: list[Part] = []
    for part in content:
        if type(part) in _PART_CLASSES:
            parts.append(cast("Part", part))  # by its class
        elif isinstance(part, str):
            parts.append(str.__str__(part))
        elif (block := as_wire_object(part)) is not None:
            parts.extend(read_part(block))
        else:
            raise TypeError(
                f"a part of content must be a string, a part such as ImagePart, or a provider's content part, not {part!r:.80}."
            )
    return tuple(parts)


def _read_tool_calls(calls: object) -> tuple[ToolCall, ...]:
    if calls is None:
        return ()
    if not _is_list(calls):
        raise TypeError(
            f"tool_calls must be a list such as [ToolCall(id='call_1', name='read_file')], not {calls!r:.80}."
        )
    return tuple(call if type(call) is ToolCall else read_tool_call(call) for call in calls)


def read_tool_call(call: object) -> ToolCall:
    """Convert a provider's tool call: a function call of either of OpenAI's formats or a `tool_use` block, as a dict or an SDK object.

    Raises:
        InvalidArgumentError: It is none of these.
    """
    record = as_wire_object(call) or {}
    function = as_wire_object(record.get("function"))
    fields = record if function is None else function
    call_id, name, arguments = record.get("id"), fields.get("name"), fields.get("arguments")
    if function is None:
        kind, custom = record.get("type"), as_wire_object(record.get("custom"))
        if kind == "function_call":
            call_id = record.get("call_id")
        elif custom is not None:
            name, text = custom.get("name"), custom.get("input")
            arguments = {"input": text} if isinstance(text, str) else None
        elif kind == "tool_use":
            arguments = record.get("input")
        else:
            call_id = None
    if isinstance(call_id, str) and isinstance(name, str) and isinstance(arguments, (str, Mapping)):
        return ToolCall(id=call_id, name=name, arguments=arguments)
    raise InvalidArgumentError(
        f"a tool call must be a ToolCall(id=…, name=…, arguments=…), or a provider's function call, not {call!r:.80}."
    )


def read_part(block: Mapping[str, Json], provider: str | None = None) -> tuple[Part, ...]:
    """Convert a provider's content part: to a text, an image or a document, with a cache breakpoint behind it if the part has one.

    A part with more than these can hold, or of an unknown type, becomes an opaque part, which is
    sent unchanged.

    Args:
        block: The content part of Chat Completions, the Responses API or Anthropic's Messages API.
        provider: The wire format it comes from, for an opaque part. None: by its type, and for
            unknown types every format.

    Raises:
        InvalidArgumentError: It is not a content part, but for example a tool call.
    """
    kind = block.get("type")
    if not isinstance(kind, str):
        raise InvalidArgumentError(
            f"a content part must have a type, as {{'type': 'text', 'text': 'Hello'}} has, and this has none: {dict(block)!r:.80}."
        )
    if kind in _NOT_CONTENT:
        raise InvalidArgumentError(
            f"a part of the type {kind!r} cannot be content of a message: {_NOT_CONTENT[kind]}."
        )
    fields: dict[str, Json] = {
        key: value for key, value in block.items() if value is not None and value != []
    }
    breakpoints = read_cache_breakpoints(
        fields.pop("cache_control", None), fields.pop("prompt_cache_breakpoint", None)
    )
    is_known = fields.keys() <= _KNOWN_FIELDS.get(kind, set())
    part = _read_known_part(kind, fields) if is_known else None
    if (
        part is None
        or breakpoints is None
        or (isinstance(part, str) and breakpoints and not part.strip())
    ):
        return (OpaquePart(value=block, provider=provider or _PROVIDERS.get(kind)),)
    return () if part == "" else (part, *breakpoints)


_NOT_CONTENT = {
    "tool_use": "write tool_calls=[ToolCall(…)], or read the messages with messages_from_anthropic",
    "tool_result": "write Message(role='tool', tool_call_id=…), or read the messages with messages_from_anthropic",
    "function_call": "write tool_calls=[ToolCall(…)], or read the items with messages_from_responses",
    "function_call_output": "write Message(role='tool', tool_call_id=…), or read the items with messages_from_responses",
    "message": "it is a message of its own, so read the items with messages_from_responses",
}
_PROVIDERS = {
    **dict.fromkeys(("image_url", "file", "input_audio"), "chat"),
    **dict.fromkeys(
        ("input_text", "output_text", "input_image", "input_file", "reasoning", "compaction"),
        "responses",
    ),
    **dict.fromkeys(
        (
            "image",
            "document",
            "thinking",
            "redacted_thinking",
            "search_result",
            "server_tool_use",
            "web_search_tool_result",
            "web_fetch_tool_result",
            "code_execution_tool_result",
            "bash_code_execution_tool_result",
            "text_editor_code_execution_tool_result",
            "tool_search_tool_result",
            "tool_reference",
            "container_upload",
        ),
        "anthropic",
    ),
}
"""Type of a content part → the wire format that has it, if it is only one."""


ANTHROPIC_CACHE_TTLS = ("5m", "1h")
"""The valid values of `ttl` in Anthropic's `cache_control`. Without a value, the API uses `5m`."""

OPENAI_CACHE_TTLS = ("30m", "12h")
"""The valid values of `ttl` in OpenAI's `prompt_cache_breakpoint`. Without a value, the time to live
of the request applies."""


def read_cache_breakpoints(
    cache_control: Json, prompt_cache_breakpoint: Json = None
) -> tuple[CacheBreakpointPart, ...] | None:
    """Return the cache breakpoint of a content part, from the fields of Anthropic and of OpenAI.

    None if a field has more than a breakpoint can hold.
    """
    kind: str | None
    match cache_control, prompt_cache_breakpoint:
        case None, None:
            return ()
        case {"type": "ephemeral", **rest}, None:
            kind, ttls = "ephemeral", ANTHROPIC_CACHE_TTLS
        case None, {"mode": "explicit", **rest}:
            kind, ttls = None, OPENAI_CACHE_TTLS
        case _:
            return None
    ttl = rest.pop("ttl", None)
    if rest or (ttl is not None and ttl not in ttls):
        return None
    return (CacheBreakpointPart(kind=kind, ttl=ttl if isinstance(ttl, str) else None),)


_KNOWN_FIELDS = {
    "text": {"type", "text"},
    "input_text": {"type", "text"},
    "output_text": {"type", "text"},
    "image_url": {"type", "image_url"},
    "input_image": {"type", "image_url", "detail"},
    "image": {"type", "source"},
    "file": {"type", "file"},
    "input_file": {"type", "file_data", "filename"},
    "document": {"type", "source", "title"},
}
"""Type of a content part → the fields that promptkit's parts can hold, besides a cache
breakpoint."""


def _read_known_part(kind: str, fields: dict[str, Json]) -> str | ImagePart | DocumentPart | None:
    """Return the part that the emitter of its format writes as these fields, and None if there is none."""
    match fields:
        case {"text": str(text)}:
            return text
        case {"type": "image_url", "image_url": {"url": str(url), **rest}} | {
            "type": "input_image",
            "image_url": str(url),
            **rest,
        } if rest.keys() <= {"detail"} and isinstance(detail := rest.get("detail"), str | None):
            return ImagePart(url=url, detail=detail)
        case {"file": Mapping() as file} if file.keys() <= {"file_data", "filename"}:
            return _read_file(file)
        case {"source": Mapping() as source}:
            return _read_source(kind, source, fields.get("title"))
        case _:
            return _read_file(fields)


def _read_source(
    kind: str, source: Mapping[str, Json], title: Json
) -> ImagePart | DocumentPart | None:
    part: ImagePart | DocumentPart | None
    name = title if isinstance(title, str) else None
    match kind, source:
        case "image", {"type": "base64", "media_type": str(media_type), "data": str(data), **rest}:
            part = ImagePart(url=f"data:{media_type};base64,{data}", media_type=media_type)
        case "image", {"type": "url", "url": str(url), **rest}:
            part = ImagePart(url=url)
        case "document", {
            "type": "base64",
            "media_type": "application/pdf",
            "data": str(data),
            **rest,
        }:
            part = DocumentPart(data=data, media_type="application/pdf", name=name)
        case "document", {"type": "text", "media_type": "text/plain", "data": str(text), **rest}:
            part = _build_text_document(text, name)
        case _:
            return None
    return None if rest or title != name else part


def _read_file(fields: Mapping[str, Json]) -> DocumentPart | None:
    match fields.get("file_data"), fields.get("filename"):
        case str(url), (str() | None) as name if url.startswith("data:") and ";base64," in url:
            media_type, _, data = url.removeprefix("data:").partition(";base64,")
            return DocumentPart(data=data, media_type=media_type, name=name)
        case _:
            return None


def _build_text_document(text: str, name: str | None) -> DocumentPart | None:
    try:
        data = base64.b64encode(text.encode()).decode("ascii")
    except UnicodeEncodeError:  # a lone surrogate
        return None
    return DocumentPart(data=data, media_type="text/plain", name=name)
