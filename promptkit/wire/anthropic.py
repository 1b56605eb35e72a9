"""Messages and tools in the wire format of Anthropic's Messages API, and the ends of its cached prefixes.

Anthropic's prompt cache only holds what a request marks. The marks belong to the wire: no message
of a conversation has them, and nothing stays in a request because of them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby, islice
from typing import NotRequired, Protocol, TypedDict

import attrs

from promptkit.errors import InvalidArgumentError
from promptkit.messages import (
    ANTHROPIC_CACHE_TTLS,
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    ToolCall,
    ToolDefinition,
    as_mapping,
    as_wire_object,
    copy_json,
    is_instance,
    read_cache_breakpoints,
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
    omit_fields,
    parse_arguments,
    parse_data_url,
    read_call,
    read_call_fields,
    read_content,
    read_records,
    select_parts,
    unsupported_error,
    unsupported_part_error,
)


class AnthropicRequest(TypedDict):
    """The arguments of `client.messages.create(**request, ...)` that hold the conversation."""

    system: NotRequired[Payload]
    """Text blocks with the instructions. The key is absent without instructions."""

    messages: Payload
    """Alternating user and assistant turns, whose content is a list of blocks."""


def to_anthropic(messages: Sequence[Message], *, cache: bool = True) -> AnthropicRequest:
    """Convert messages, for `client.messages.create(**to_anthropic(messages), model=..., max_tokens=...)`.

    - System messages at the start become the `system` blocks. A later system message becomes user
      text at its position: only some models accept the role `system` in a conversation, and only at
      some positions.
    - Consecutive messages of one role become one turn, so user and assistant turns alternate. An
      empty message becomes no turn.
    - Tool messages become `tool_result` blocks at the start of the user turn after their call,
      wherever they were. An empty result has no content. So parallel results share one turn, as the
      API requires.
    - Tool calls become `tool_use` blocks after the text of their message. `input` is an object in
      this format, so the arguments are parsed; empty arguments are `{}`. Integers keep every digit.
    - Images become base64 or url sources, PDFs base64 sources, text documents text sources. Text
      without a visible character is dropped, since the API rejects it. Names and image details are
      dropped, since this format has none.
    - A cache breakpoint becomes `cache_control` on the nearest block before it that promptkit
      created; without such a block it is dropped. A cache breakpoint inside a tool result is placed
      before the result, one at its end is placed on the result. `ttl` is sent if Anthropic supports
      it (`5m`, `1h`); the type is always `ephemeral`. The API accepts four cache breakpoints: of
      more, the first and the last three are kept. The API accepts no longer `ttl` after a shorter
      one: such a breakpoint gets the shorter one.

    Args:
        messages: The messages, in order.
        cache: Whether cache breakpoints are sent.

    Raises:
        EmitError: Arguments of a tool call are not a JSON object or cannot be sent unchanged, an
            image or document is of an unsupported type or in a system or assistant message, a
            message other than an assistant message has tool calls, or a tool message has no call
            id.
    """
    check_messages(messages, "anthropic")
    builder = _RequestBuilder(cache=cache)
    for index, message in enumerate(messages):
        if message.role == "tool":
            builder.add_result(index, message)
        else:
            builder.add(index, message)
    turns = [{"role": turn.role, "content": turn.results + turn.content} for turn in builder.turns]
    blocks = chain(builder.system, *(turn["content"] for turn in turns))
    _limit_breakpoints(list(blocks), builder.marked)
    return {"system": builder.system, "messages": turns} if builder.system else {"messages": turns}


def messages_from_anthropic(
    messages: Iterable[WireMessage], *, system: str | Iterable[WireMessage] | None = None
) -> list[Message]:
    """Convert the messages of Anthropic's Messages API to messages: the inverse of `to_anthropic`.

    Tool results become tool messages before the other content of their turn. What promptkit's
    messages do not have (thinking, citations, search results, `is_error`) is kept in opaque parts
    that only Anthropic is sent again. So is a block of an unknown type.

    Args:
        messages: Dicts, or objects of Anthropic's SDK such as a reply.
        system: The system prompt: a text, or its blocks.

    Raises:
        InvalidArgumentError: A message has an unknown role, or content that is none.
        TypeError: A message is neither a dict nor an SDK object.

    >>> messages_from_anthropic([{"role": "user", "content": "Hello"}], system="Be brief.")[0].text
    'Be brief.'
    """
    read: list[Message] = []
    if system is not None:
        blocks: Json = system if isinstance(system, str) else list(read_records(system, "system"))
        read.append(
            Message(
                role="system",
                content=read_content(blocks, "anthropic", "system", attachments=False),
            )
        )
    for at, record in enumerate(read_records(messages, "messages")):
        read += _read_turn(f"messages[{at}]", record)
    return read


def tools_to_anthropic(tools: Sequence[ToolDefinition]) -> Payload:
    """Convert tool definitions, for `client.messages.create(tools=...)`.

    The schema gets the type `object`, which the format requires.
    """
    return [
        {
            "name": tool.name,
            "input_schema": {"type": "object", **copy_json(tool.parameters or {})},
            **({} if tool.description is None else {"description": tool.description}),
            **({} if tool.strict is None else {"strict": tool.strict}),
        }
        for tool in tools
    ]


@attrs.define
class _Turn:
    role: str
    results: Payload = attrs.field(factory=Payload)
    """The `tool_result` blocks of a user turn. The API requires them before other blocks."""
    content: Payload = attrs.field(factory=Payload)


@attrs.define
class _RequestBuilder:
    """Collects the system blocks and the turns of a request."""

    cache: bool
    system: Payload = attrs.field(factory=Payload)
    turns: list[_Turn] = attrs.field(factory=list[_Turn])
    call_turns: dict[str, int] = attrs.field(factory=dict[str, int])
    """Call id → the index of the turn with the call. The latest call counts, since ids may
    repeat."""
    breakpoint_target: WireDict | None = None
    """The block that the next cache breakpoint is placed on."""
    marked: list[WireDict] = attrs.field(factory=list[WireDict])
    """The blocks with a cache breakpoint."""

    def add(self, index: int, message: Message) -> None:
        role = collect_message_fields(message, "anthropic.message").get(
            "role", "assistant" if message.role == "assistant" else "user"
        )
        leading = message.role == "system" and role != "system" and not self.turns
        calls = list(message.tool_calls)  # two of them may have one id
        for part in select_parts(message, "anthropic", cache=self.cache):
            if isinstance(part, CacheBreakpointPart):
                self._add_breakpoint(part)
            elif isinstance(part, OpaquePart) and part.provider == "anthropic.call":
                call_id, fields = read_call_fields(part)
                if call := next((call for call in calls if call.id == call_id), None):
                    calls = [each for each in calls if each is not call]
                    self._add_call(_to_tool_use_block(index, message, call) | fields)
            elif not _is_blank_text(part):
                block = _to_block(index, message, part)
                (self.system if leading else self._open_turn(role).content).append(block)
                # Opaque blocks are sent unchanged, and some types, such as thinking, must not have
                # cache_control.
                self.breakpoint_target = (
                    self.breakpoint_target if isinstance(part, OpaquePart) else block
                )
        for call in calls:
            self._add_call(_to_tool_use_block(index, message, call))

    def _add_call(self, block: WireDict) -> None:
        self.breakpoint_target = block
        self._open_turn("assistant").content.append(block)
        self.call_turns[block["id"]] = len(self.turns) - 1

    def add_result(self, index: int, message: Message) -> None:
        parts = select_parts(message, "anthropic", cache=self.cache)
        contents = [
            at for at, part in enumerate(parts) if not isinstance(part, CacheBreakpointPart)
        ]
        end = contents[-1] + 1 if contents else 0
        for part in parts[:end]:
            self._add_breakpoint(part)
        result = _to_tool_result_block(
            index, message, [part for part in parts if not isinstance(part, CacheBreakpointPart)]
        ) | collect_message_fields(message, "anthropic.message")
        self._open_turn_after(self.call_turns.get(message.tool_call_id or "")).results.append(
            result
        )
        self.breakpoint_target = result
        for part in parts[end:]:
            self._add_breakpoint(part)

    def _open_turn(self, role: str) -> _Turn:
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(_Turn(role))
        return self.turns[-1]

    def _open_turn_after(self, call_turn: int | None) -> _Turn:
        return (
            self._open_turn("user")
            if call_turn is None or call_turn + 1 == len(self.turns)
            else self.turns[call_turn + 1]
        )

    def _add_breakpoint(self, part: Part) -> None:
        if isinstance(part, CacheBreakpointPart) and self.breakpoint_target is not None:
            self.breakpoint_target["cache_control"] = to_cache_control(part)
            self.marked.append(self.breakpoint_target)


def _to_block(index: int, message: Message, part: Part) -> WireDict:
    """Convert one part of `messages[index]` to a content block.

    Raises EmitError if the format does not accept the part in its role.
    """
    match part:
        case str():
            return {"type": "text", "text": part}
        case OpaquePart():
            return copy_json(part.value)  # type: ignore[no-any-return]  # the caller vouches for an opaque part
        case ImagePart() if message.role in ("user", "tool"):
            return {"type": "image", "source": _to_image_source(index, message, part)}
        case DocumentPart() if message.role in ("user", "tool"):
            return {
                "type": "document",
                "source": _to_document_source(index, message, part),
                **({} if part.name is None else {"title": part.name}),
            }
        case _:
            raise unsupported_part_error(index, message, part, "anthropic")


def _is_blank_text(part: Part) -> bool:
    """Return whether a part is text without a visible character, which the API rejects as a block."""
    return isinstance(part, str) and not part.strip()


def _to_tool_use_block(index: int, message: Message, call: ToolCall) -> WireDict:
    """Convert a tool call to a `tool_use` block.

    Raises EmitError if its arguments are not a JSON object.
    """
    try:
        arguments = parse_arguments(call.arguments)
    except ValueError as error:
        raise unsupported_error(
            index,
            message,
            f"a tool call {call.id!r} of {call.name} with arguments that cannot be sent as an object ({error})",
            "anthropic",
            "correct the arguments, or remove the tool call and its result",
        ) from error
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _to_tool_result_block(index: int, message: Message, parts: Sequence[Part]) -> WireDict:
    """Convert a tool message to a `tool_result` block.

    Content that is one text is a string; blank texts are left out.
    """
    result: WireDict = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    match [part for part in parts if not _is_blank_text(part)]:
        case []:
            return result
        case [str(text)] if not has_text_borders(message, "anthropic"):
            return result | {"content": text}
        case shown:
            return result | {"content": [_to_block(index, message, part) for part in shown]}


IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def _to_image_source(index: int, message: Message, part: ImagePart) -> WireDict:
    if part.url[:8].lower().startswith(("https://", "http://")):
        return {"type": "url", "url": part.url}
    inline = parse_data_url(part.url)
    if inline is None:
        raise unsupported_error(
            index,
            message,
            f"an image at {part.url[:40]!r}",
            "anthropic",
            "give an http or https URL, or the bytes as a base64 data: URL",
        )
    if not inline.is_base64:
        raise unsupported_error(
            index,
            message,
            "an image in a data: URL without base64",
            "anthropic",
            "encode its bytes in base64",
        )
    media_type = inline.media_type or part.media_type or "nothing"
    media_type = "image/jpeg" if media_type == "image/jpg" else media_type
    if media_type not in IMAGE_TYPES:
        raise unsupported_error(
            index,
            message,
            f"an image of the type {media_type}",
            "anthropic",
            "convert it to PNG, JPEG, GIF or WebP",
        )
    return {"type": "base64", "media_type": media_type, "data": inline.data}


def _to_document_source(index: int, message: Message, part: DocumentPart) -> WireDict:
    media_type = part.media_type.partition(";")[0].strip().lower()
    if media_type == "application/pdf":
        return {"type": "base64", "media_type": media_type, "data": part.data}
    if not media_type.startswith("text/"):
        raise unsupported_error(
            index,
            message,
            f"a document of the type {part.media_type}",
            "anthropic",
            "give it as a PDF or as text",
        )
    try:
        text = base64.b64decode(part.data, validate=True).decode()
    except ValueError as error:
        raise unsupported_error(
            index,
            message,
            f"a document of the type {part.media_type} that is not UTF-8 in base64",
            "anthropic",
            "encode its text in UTF-8, then in base64",
        ) from error
    return {"type": "text", "media_type": "text/plain", "data": text}


def _limit_breakpoints(blocks: Payload, marked: Payload) -> None:
    """Remove `cache_control` from marked blocks until the API accepts the request.

    If there are too many cache breakpoints, the first (the instructions, which stay cached longest)
    and the last ones (the growing end, with some to fall back to) are kept. Cache breakpoints in
    opaque blocks count and are kept. A `ttl` of an hour after a shorter one is removed, since the
    API rejects it.

    Args:
        blocks: All blocks of the request, in wire order.
        marked: The blocks with a cache breakpoint that may be removed.
    """
    ids = {id(block) for block in marked}
    removable = [block for block in blocks if id(block) in ids]
    opaque = sum(_find_cache_control(block) is not None for block in blocks if id(block) not in ids)
    limit = max(0, MAX_BREAKPOINTS - opaque)
    if len(removable) > limit:
        for block in removable[min(limit, 1) : len(removable) - max(limit - 1, 0)]:
            del block["cache_control"]
    after_shorter = False
    for block in blocks:
        control = _find_cache_control(block)
        if control is not None and control.get("ttl") != HOUR:
            after_shorter = True
        elif control is not None and after_shorter and id(block) in ids:
            del block["cache_control"]["ttl"]


def _find_cache_control(block: object) -> Mapping[str, object] | None:
    control = as_mapping(block).get("cache_control")  # an opaque block may be any JSON
    return as_mapping(control) if is_instance(control, dict) else None


def _read_turn(where: str, record: WireRecord) -> list[Message]:
    role, content = record.get("role"), record.get("content")
    if role == "assistant":
        return _read_answer(where, content)
    if role == "system":
        return [
            Message(
                role="system",
                content=(
                    *fields_part({"role": "system"}, "anthropic.message"),
                    *read_content(content, "anthropic", where, attachments=False),
                ),
            )
        ]
    if role != "user":
        raise InvalidArgumentError(
            f"{where} must have the role user, assistant or system, not {role!r:.80}: write a system prompt as system=…"
        )
    if not isinstance(content, list | tuple):
        return [Message(role="user", content=read_content(content, "anthropic", where))]
    records: list[Json] = [as_wire_object(block) or block for block in content]
    results = [
        _read_result(where, record)
        for record in records
        if isinstance(record, Mapping) and record.get("type") == "tool_result"
    ]
    parts = read_content(
        [record for record in records if _find_type(record) != "tool_result"], "anthropic", where
    )
    return [*results, Message(role="user", content=parts)] if parts or not results else results


def _read_answer(where: str, content: Json) -> list[Message]:
    answer = AssistantContent("anthropic")
    listed = content if isinstance(content, list | tuple) else [content]
    records = [as_wire_object(block) or block for block in listed if block is not None]
    for is_call, run in groupby(records, key=lambda record: _find_type(record) == "tool_use"):
        if is_call:
            for record in map(as_wire_object, run):
                answer.add_call(
                    read_call(record, where),
                    omit_fields(record or {}, "type", "id", "name", "input"),
                )
        else:
            answer.add_parts(read_content(list(run), "anthropic", where, attachments=False))
    return [answer.build_message() or Message(role="assistant")]


def _find_type(record: Json) -> Json:
    return record.get("type") if isinstance(record, Mapping) else None


def _read_result(where: str, block: WireRecord) -> Message:
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str):
        raise InvalidArgumentError(
            f"a tool_result in {where} must have a tool_use_id, the id of the tool call that it answers."
        )
    end = read_cache_breakpoints(block.get("cache_control"))
    placed = () if end is None else ("cache_control",)
    fields = omit_fields(block, "type", "tool_use_id", "content", *placed)
    parts = read_content(block.get("content"), "anthropic", where, breakpoints=False)
    return Message(
        role="tool",
        tool_call_id=call_id,
        content=(*fields_part(fields, "anthropic.message"), *parts, *(end or ())),
    )


MAX_BREAKPOINTS = 4
"""The maximum number of cache breakpoints in one request. The API rejects more."""

HOUR = "1h"
"""The longest time to live. The API rejects it after a shorter one."""


class HasRole(Protocol):
    """A message, or what stands for one."""

    @property
    def role(self) -> str:
        """Who speaks."""
        ...


def find_breakpoints(messages: Sequence[HasRole]) -> list[int]:
    """Return the indexes of the messages after which a request of a conversation has a breakpoint, in order.

    They are the end of the instructions, and the three newest places where a request ended: before
    a reply, and at the last message.
    """
    last = len(messages) - 1
    ends = (
        at
        for at in range(last, -1, -1)
        if messages[at].role != "assistant" and (at == last or messages[at + 1].role == "assistant")
    )
    instructions = next((at for at in range(last + 1) if messages[at].role != "system"), 0) - 1
    places = {instructions, *islice(ends, MAX_BREAKPOINTS - 1)}
    return sorted(place for place in places if place >= 0)


def mark_prefix(messages: Sequence[Message], count: int, ttl: str | None = None) -> list[Message]:
    """Return messages with cache breakpoints after their first `count`, and after what earlier requests have sent of these.

    Args:
        messages: The messages of a request.
        count: The number of messages that the cache holds or should hold. 0: no breakpoint is
            added.
        ttl: How long the cache keeps them without use. None: as the provider decides, but no
            shorter than a breakpoint of the prompt that follows, which the API requires.
    """
    own = [
        at
        for at, message in enumerate(messages)
        if any(
            isinstance(part, CacheBreakpointPart) and part.ttl == HOUR for part in message.content
        )
    ]
    marked = list(messages)
    for at in find_breakpoints(messages[:count]):
        content = marked[at].content
        if not (content and isinstance(content[-1], CacheBreakpointPart)):
            lasting = HOUR if any(at < place for place in own) else ttl
            marked[at] = attrs.evolve(
                marked[at],
                content=(*content, CacheBreakpointPart(kind="ephemeral", ttl=lasting)),
            )
    return marked


def mark_tools(tools: Payload, messages: Sequence[Message]) -> None:
    """Mark the end of the tools of a request without instructions, if its messages are marked and leave a breakpoint."""
    marks = [
        part
        for message in messages
        for part in message.content
        if isinstance(part, CacheBreakpointPart)
    ]
    if tools and 0 < len(marks) < MAX_BREAKPOINTS and messages[0].role != "system":
        tools[-1]["cache_control"] = to_cache_control(marks[0])


def to_cache_control(part: CacheBreakpointPart) -> WireDict:
    """Return the value of `cache_control`.

    `ephemeral` is its only type. A `ttl` that only other providers accept is not sent.
    """
    return {"type": "ephemeral", **({"ttl": part.ttl} if part.ttl in ANTHROPIC_CACHE_TTLS else {})}
