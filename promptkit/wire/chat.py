"""Messages and tools in the wire format of OpenAI's Chat Completions API."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from promptkit.errors import InvalidArgumentError
from promptkit.messages import (
    DEVELOPER,
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    Role,
    ToolCall,
    ToolDefinition,
    as_wire_object,
    build_message,
    copy_json,
)
from promptkit.wire.parts import (
    AssistantContent,
    Payload,
    WireDict,
    WireMessage,
    WireRecord,
    check_messages,
    collect_message_fields,
    fields_part,
    has_text_borders,
    have_media,
    is_media,
    merge_system_messages,
    move_media,
    omit_fields,
    parse_arguments,
    place_parts,
    read_call,
    read_call_fields,
    read_content,
    read_records,
    to_file_fields,
    unsupported_part_error,
)


def to_chat(
    messages: Sequence[Message], *, cache: bool = True, merge_system: bool = False
) -> Payload:
    """Convert messages to Chat Completions messages, for `client.chat.completions.create(messages=...)`.

    Each message becomes one message; images and documents of tool results, which the format does not
    accept there, follow the results in a user message, and a note stands in their place. The content is a string if it is one text, and an array of
    parts if it has several texts (with cache breakpoints between them), images, documents, opaque
    parts or a cache breakpoint that is sent. Tool call arguments are sent byte for byte. An empty
    tool result is `""`; an assistant message with tool calls only has the content None. `name` is
    sent except for tool messages, which have no name in this format.

    A cache breakpoint becomes `prompt_cache_breakpoint` on the nearest text, image or document
    before it outside of assistant messages. Its `ttl` is sent if OpenAI supports it (`30m`, `12h`).
    Its `kind` is not sent: OpenAI has only one.

    Args:
        messages: The messages, in order.
        cache: Whether cache breakpoints are sent. Models before gpt-5.6 reject the field.
        merge_system: Whether neighbouring system messages are sent as one, joined by a line break.

    Raises:
        EmitError: A system or assistant message has an image or a document, a message other than an
            assistant message has tool calls, or a tool message has no call id.
    """
    if merge_system:
        messages = merge_system_messages(messages)
    check_messages(messages, "chat")
    if have_media(messages):
        for index, message in enumerate(messages):
            if message.role in ("system", "assistant"):
                for part in filter(is_media, message.content):
                    raise unsupported_part_error(index, message, part, "chat")
        messages = list(move_media(messages, {"tool"}))
    contents, marks = place_parts(messages, "chat", cache=cache)
    return list(map(_convert_message, messages, contents, map(marks.get, count())))


def messages_from_chat(messages: Iterable[WireMessage]) -> list[Message]:
    """Convert Chat Completions messages to messages: the inverse of `to_chat`.

    What promptkit's messages do not have (a refusal, audio, the role `developer`, fields of
    gateways) is kept in opaque parts that only Chat Completions is sent again. So is a content part
    of an unknown type.

    Args:
        messages: Dicts, or objects of OpenAI's SDK such as `response.choices[0].message`.

    Raises:
        InvalidArgumentError: A message has an unknown role, or content that is none.
        TypeError: A message is neither a dict nor an SDK object.

    >>> messages_from_chat([{"role": "user", "content": "Hello"}])[0].text
    'Hello'
    """
    return list(map(_read_message, count(), read_records(messages, "messages")))


def tools_to_chat(tools: Sequence[ToolDefinition]) -> Payload:
    """Convert tool definitions, for `client.chat.completions.create(tools=...)`.

    Fields that are None are left out.
    """
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                **({} if tool.description is None else {"description": tool.description}),
                **({} if tool.parameters is None else {"parameters": copy_json(tool.parameters)}),
                **({} if tool.strict is None else {"strict": tool.strict}),
            },
        }
        for tool in tools
    ]


def _convert_message(
    message: Message, content: Sequence[Part], marks: Mapping[int, WireDict] | None
) -> WireDict:
    wire: WireDict = {"role": message.role}
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id
    elif message.name is not None:
        wire["name"] = message.name
    if content is message.content and marks is None:  # one text, as most messages are
        wire["content"] = content[0]
        if message.tool_calls:
            wire["tool_calls"] = [_convert_call(call, {}) for call in message.tool_calls]
        return wire
    if (
        len(content) > 1
        or marks
        or has_text_borders(message, "chat")
        or not all(isinstance(part, str) for part in content)
    ):
        marks = marks or {}
        wire["content"] = [
            _convert_part(part) | ({"prompt_cache_breakpoint": marks[at]} if at in marks else {})
            for at, part in enumerate(content)
        ]
    else:
        text = "".join(part for part in content if isinstance(part, str))
        wire["content"] = text if text or not message.tool_calls else None
    if message.tool_calls:
        _add_calls(wire, message)
    if fields := collect_message_fields(message, "openai.message", "chat.message"):
        wire |= fields
        # the older form of a tool result, which has the function's name alone
        if wire["role"] == "function":
            del wire["tool_call_id"]
    return wire


def _add_calls(wire: WireDict, message: Message) -> None:
    fields: dict[str, deque[WireDict]] = {}
    for part in message.content:
        if isinstance(part, OpaquePart) and part.provider == "chat.call":
            call_id, more = read_call_fields(part)
            fields.setdefault(call_id, deque()).append(more)
    calls: Payload = []
    for call in message.tool_calls:
        more = fields[call.id].popleft() if fields.get(call.id) else {}
        if more.get("type") == "function_call":  # the older form of a tool call
            wire["function_call"] = {"name": call.name, "arguments": call.arguments}
        else:
            calls.append(_convert_call(call, more))
    if calls:
        wire["tool_calls"] = calls


def _convert_part(part: Part) -> WireDict:
    match part:
        case str():
            return {"type": "text", "text": part}
        case OpaquePart():
            return copy_json(part.value)  # type: ignore[no-any-return]  # the caller vouches for an opaque part
        case ImagePart():
            return {
                "type": "image_url",
                "image_url": {"url": part.url} | ({"detail": part.detail} if part.detail else {}),
            }
        case DocumentPart():
            return {"type": "file", "file": to_file_fields(part)}
        case CacheBreakpointPart():  # it is a mark on the part before it
            return {}


def _convert_call(call: ToolCall, fields: WireDict) -> WireDict:
    if not fields:
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": call.id, "type": "function", "function": function}
    if fields.get("type") == "custom":
        return {
            "id": call.id,
            **fields,
            "custom": {"name": call.name, "input": _read_input(call.arguments)},
        }
    return {
        "id": call.id,
        "type": "function",
        **fields,
        "function": {"name": call.name, "arguments": call.arguments, **fields.get("function", {})},
    }


def _read_input(arguments: str) -> str:
    """Return the text that a custom tool is called with, from arguments such as `{"input": "…"}`."""
    try:
        text = parse_arguments(arguments).get("input")
    except ValueError:
        return arguments
    return text if isinstance(text, str) else arguments


_ROLES: Mapping[Json, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


_KNOWN_FIELDS = frozenset(
    # `annotations` are in replies only
    {"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "annotations"}
)
"""The fields that a message has a place for, or that requests must not have."""
_CALL_FIELDS = frozenset({"id", "type", "function", "custom"})
_UNTYPED_CALL_FIELDS = _CALL_FIELDS - {"type"}
_FUNCTION_FIELDS = frozenset({"name", "arguments"})


def _read_message(index: int, record: WireRecord) -> Message:
    written, content = record.get("role"), record.get("content")
    role = _ROLES.get(written) if isinstance(written, str) else None
    if role is None:
        raise InvalidArgumentError(
            f"messages[{index}] must have the role system, developer, user, assistant, tool or function, not {written!r:.80}."
        )
    fields = {} if _KNOWN_FIELDS.issuperset(record) else omit_fields(record, *_KNOWN_FIELDS)
    name, call_id = record.get("name"), record.get("tool_call_id")
    name = name if name is None or isinstance(name, str) else None
    call_id = call_id if call_id is None or isinstance(call_id, str) else None
    if written == "function":
        fields |= {"role": "function", "name": name}
        call_id = name
    parts: tuple[Part, ...]
    text = "" if content is None else content
    if type(text) is str:  # as most messages have
        parts = (text,) if text else ()
    else:
        read = read_content(
            content,
            "chat",
            f"messages[{index}]",
            attachments=role == "user",
            breakpoints=role != "assistant",
        )
        # no text is of a class of its own
        parts = tuple([str.__str__(part) if isinstance(part, str) else part for part in read])
    calls: tuple[ToolCall, ...] = ()
    if role == "assistant" and (record.get("tool_calls") or record.get("function_call")):
        answer = _read_calls(f"messages[{index}]", record)
        calls = tuple(answer.calls)
        parts = (*parts, *answer.parts)
    if fields:
        parts = (*fields_part(fields, "chat.message"), *parts)
    if written == "developer":
        parts = (DEVELOPER, *parts)
    return build_message(role, parts, name, calls, call_id)


def _read_calls(where: str, record: WireRecord) -> AssistantContent:
    calls = AssistantContent("chat")
    listed = record.get("tool_calls")
    for item in listed if isinstance(listed, (list, tuple)) else ():
        fields = as_wire_object(item) or {}
        function = as_wire_object(fields.get("function")) or {}
        known = _CALL_FIELDS if fields.get("type") == "function" else _UNTYPED_CALL_FIELDS
        more = {} if known.issuperset(fields) else omit_fields(fields, *known)
        if not _FUNCTION_FIELDS.issuperset(function):
            extra = omit_fields(function, *_FUNCTION_FIELDS)
            more |= {"function": extra} if extra else {}
        calls.add_call(read_call(fields, where), more)
    if older := as_wire_object(record.get("function_call")):
        name, arguments = older.get("name"), older.get("arguments")
        if isinstance(name, str) and isinstance(arguments, str):
            calls.add_call(
                ToolCall(id=name, name=name, arguments=arguments), {"type": "function_call"}
            )
    return calls
