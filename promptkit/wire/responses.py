"""Messages and tools in the wire format of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import attrs

from promptkit.errors import InvalidArgumentError
from promptkit.messages import (
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    ToolCall,
    ToolDefinition,
    as_mapping,
    copy_json,
)
from promptkit.wire.parts import (
    PLACED_FIELDS,
    AssistantContent,
    Payload,
    WireDict,
    WireMessage,
    WireRecord,
    check_messages,
    collect_message_fields,
    fields_part,
    has_text_borders,
    merge_system_messages,
    omit_fields,
    place_parts,
    read_call,
    read_call_fields,
    read_content,
    read_records,
    to_file_fields,
    unsupported_part_error,
)

CONTENT_TYPES = ("input_audio", "input_file", "input_image", "input_text", "output_text", "refusal")
"""Opaque parts of these types belong to the content of a message. Parts of other types (reasoning,
compaction, …) are items."""


def to_responses(
    messages: Sequence[Message], *, cache: bool = True, merge_system: bool = False
) -> Payload:
    """Convert messages to input items of the Responses API, for `client.responses.create(input=...)`.

    A message becomes a `message` item, whose content is a string if it is one text. An assistant
    message with several parts gets an `id`, which the format requires: its place among the
    messages. Each tool call becomes a `function_call` item after the text of its message, with its
    arguments byte for byte. Each tool message becomes a `function_call_output` item; an empty
    result is `""`. An opaque part whose type is not message content, such as `reasoning`, becomes
    an item of its own and splits the message around it. Names are dropped, since this format has
    none.

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
    check_messages(messages, "responses")
    contents, marks = place_parts(messages, "responses", cache=cache)
    items: Payload = []
    for index, (message, content) in enumerate(zip(messages, contents, strict=True)):
        placed = marks.get(index)
        if content is message.content and placed is None:  # one text, as most messages are
            if message.role == "tool":
                items.append(_convert_result(message, content[0]))
            else:
                items.append({"type": "message", "role": message.role, "content": content[0]})
                items += map(_convert_call, message.tool_calls)
            continue
        parts = [(part, placed.get(at) if placed else None) for at, part in enumerate(content)]
        if message.role == "tool":
            shown = [
                (part, mark)
                for part, mark in parts
                if not (
                    isinstance(part, OpaquePart) and part.provider in PLACED_FIELDS["responses"]
                )
            ]
            items.append(
                _convert_result(message, _convert_content(index, message, shown))
                | collect_message_fields(message, "responses.message")
            )
        else:
            items += _convert_message(index, message, parts)
    return items


def messages_from_responses(items: str | Iterable[WireMessage]) -> list[Message]:
    """Convert input or output items of the Responses API to messages: the inverse of `to_responses`.

    Consecutive items of the model (its message, function calls, reasoning) become one assistant
    message. Items that promptkit's messages do not have, such as reasoning, and fields such as ids,
    are kept in opaque parts that only the Responses API is sent again.

    Args:
        items: Dicts, or objects of OpenAI's SDK such as those in `response.output`; or the text of
            one user message.

    Raises:
        InvalidArgumentError: A message has an unknown role, or content that is none.
        TypeError: An item is neither a dict nor an SDK object.

    >>> messages_from_responses([{"role": "user", "content": "Hello"}])[0].text
    'Hello'
    """
    return (
        [Message(role="user", content=items)]
        if isinstance(items, str)
        else [message for message, _ in group_responses(items)]
    )


def group_responses(items: Iterable[WireMessage]) -> list[tuple[Message, tuple[int, ...]]]:
    """Convert items as `messages_from_responses` does, and return with each message the indices of its items.

    Raises:
        InvalidArgumentError: A message has an unknown role, or content that is none.
        TypeError: An item is neither a dict nor an SDK object.
    """
    reader = _ItemReader()
    for at, item in enumerate(read_records(items, "items")):
        reader.add(at, f"items[{at}]", item)
    reader.close()
    return reader.messages


def tools_to_responses(tools: Sequence[ToolDefinition]) -> Payload:
    """Convert tool definitions, for `client.responses.create(tools=...)`.

    The format requires `parameters` and `strict`. They are None if a definition has none, and
    OpenAI then chooses.
    """
    return [
        {
            "type": "function",
            "name": tool.name,
            "parameters": copy_json(tool.parameters),
            "strict": tool.strict,
            **({} if tool.description is None else {"description": tool.description}),
        }
        for tool in tools
    ]


def _convert_message(
    index: int, message: Message, content: Sequence[tuple[Part, WireDict | None]]
) -> Payload:
    items: Payload = []
    pending: list[tuple[Part, WireDict | None]] = []
    role = collect_message_fields(message, "openai.message").get("role", message.role)
    calls = list(message.tool_calls)  # two of them may have one id
    fields: WireDict | None = None

    def close() -> None:
        nonlocal fields
        if pending or fields is not None:
            fields = fields or {}
            text = _convert_content(index, message, pending, as_list="id" in fields)
            item = {"type": "message", "role": role, "content": text}
            if message.role == "assistant" and isinstance(text, list):
                # the format requires both beside `output_text`
                item |= {"id": f"msg_{index}_{len(items)}", "status": "completed"}
            items.append(item | fields)
            pending.clear()
        fields = None

    for part, mark in content:
        match part:
            case OpaquePart(provider="responses.message", value=Mapping() as value):
                close()
                fields = copy_json(value)
            case OpaquePart(provider="responses.call"):
                close()
                call_id, more = read_call_fields(part)
                if call := next((call for call in calls if call.id == call_id), None):
                    calls = [each for each in calls if each is not call]
                    items.append(_convert_call(call) | more)
            case OpaquePart() if as_mapping(part.value).get("type") not in CONTENT_TYPES:
                close()
                items.append(copy_json(part.value))
            case _:
                pending.append((part, mark))
    close()
    items += map(_convert_call, calls)
    return items or [{"type": "message", "role": role, "content": ""}]


def _convert_result(message: Message, output: Part | Payload) -> WireDict:
    return {"type": "function_call_output", "call_id": message.tool_call_id, "output": output}


def _convert_content(
    index: int,
    message: Message,
    content: Sequence[tuple[Part, WireDict | None]],
    *,
    as_list: bool = False,
) -> str | Payload:
    as_list = as_list or has_text_borders(message, "responses")
    match content:
        case [] if not as_list:
            return ""
        case [(str(text), None)] if not as_list:
            return text
        case _:
            return [
                _convert_part(index, message, part)
                | ({"prompt_cache_breakpoint": mark} if mark else {})
                for part, mark in content
            ]


def _convert_part(index: int, message: Message, part: Part) -> WireDict:
    match part:
        case str() if message.role == "assistant":
            return {"type": "output_text", "text": part, "annotations": []}
        case str():
            return {"type": "input_text", "text": part}
        case OpaquePart():
            return copy_json(part.value)  # type: ignore[no-any-return]  # the caller vouches for an opaque part
        case ImagePart() if message.role in ("user", "tool"):
            return {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
        case DocumentPart() if message.role in ("user", "tool"):
            return {"type": "input_file", **to_file_fields(part)}
        case _:
            raise unsupported_part_error(index, message, part, "responses")


def _convert_call(call: ToolCall) -> WireDict:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }


@attrs.define
class _ItemReader:
    """Collects messages from items."""

    messages: list[tuple[Message, tuple[int, ...]]] = attrs.field(
        factory=list[tuple[Message, tuple[int, ...]]]
    )
    """Each message with the indices of its items."""
    answer: AssistantContent = attrs.field(factory=lambda: AssistantContent("responses"))
    """The assistant message whose items are being read."""
    places: list[int] = attrs.field(factory=list[int])
    """The indices of these items."""
    has_message: bool = False
    """True if `answer` contains an item of the type `message`."""

    def add(self, at: int, where: str, item: WireRecord) -> None:
        match item.get("type") or ("message" if "role" in item else None):
            case "message" if item.get("role") == "assistant":
                if self.has_message and not self.answer.calls:
                    self.close()
                self._add_answer(where, item)
            case "message":
                self.close()
                self.messages.append((_read_input_message(where, item), (at,)))
                return
            case "function_call":
                fields = omit_fields(item, "type", "call_id", "name", "arguments")
                self.answer.add_call(read_call(item, where), fields)
            case "function_call_output" if isinstance(call_id := item.get("call_id"), str):
                self.close()
                fields = omit_fields(item, "type", "call_id", "output")
                content = (
                    *fields_part(fields, "responses.message"),
                    *read_content(item.get("output"), "responses", where),
                )
                self.messages.append(
                    (Message(role="tool", tool_call_id=call_id, content=content), (at,))
                )
                return
            case _:
                self.answer.add_parts([OpaquePart(value=item, provider="responses")])
        self.places.append(at)

    def close(self) -> None:
        """End the assistant message."""
        if message := self.answer.build_message():
            self.messages.append((message, tuple(self.places)))
        self.answer, self.places = AssistantContent("responses"), []
        self.has_message = False

    def _add_answer(self, where: str, item: WireRecord) -> None:
        fields = omit_fields(item, "type", "role", "content")
        parts = read_content(
            item.get("content"), "responses", where, attachments=False, breakpoints=False
        )
        if fields or not parts:
            self.answer.add_parts(
                [OpaquePart(value=fields, tokens=0, provider="responses.message")]
            )
        self.answer.add_parts(parts)
        self.has_message = True


_INPUT_ROLES: Mapping[str, Literal["user", "system", "developer"]] = {
    "user": "user",
    "system": "system",
    "developer": "developer",
}


def _read_input_message(where: str, item: WireRecord) -> Message:
    role = _INPUT_ROLES.get(str(item.get("role")))
    if role is None:
        raise InvalidArgumentError(
            f"{where} must have the role user, assistant, system or developer, not {item.get('role')!r:.80}."
        )
    fields = omit_fields(item, "type", "role", "content")
    return Message(
        role=role,
        content=(
            *fields_part(fields, "responses.message"),
            *read_content(item.get("content"), "responses", where, attachments=role == "user"),
        ),
    )
