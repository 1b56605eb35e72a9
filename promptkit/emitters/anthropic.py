"""Messages as Anthropic's Messages API takes them.

Anthropic's content blocks: one for each part, tool call and tool result.
Anthropic's cache breakpoints: what they say, and how many may stand in one request.
"""

from __future__ import annotations

import base64
from itertools import takewhile
from typing import TYPE_CHECKING, NotRequired, TypedDict, cast

import attrs

from promptkit.emitters.parts import Payload, WireDict, arguments_object, check, formless, parse_data_url, plain, refusal, visible
from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, Message, OpaquePart, Part, ToolCall, ToolDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "AnthropicRequest",
    "block",
    "cache_control",
    "is_blank",
    "limit_breakpoints",
    "to_anthropic",
    "tool_result",
    "tool_use",
    "tools_to_anthropic",
]


IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def is_blank(part: Part) -> bool:
    """Whether a part is text without a visible character: the API rejects a block of it."""
    return isinstance(part, str) and not part.strip()


def block(index: int, message: Message, part: Part) -> WireDict:
    """The block of one part of `messages[index]`. Raises EmitError where the part or its role has no form."""
    match part:
        case str():
            return {"type": "text", "text": part}
        case OpaquePart():
            return plain(part.value)  # type: ignore[no-any-return]  # an opaque part is the caller's word for it
        case ImagePart() if message.role in ("user", "tool"):
            return {"type": "image", "source": _image_source(index, message, part)}
        case DocumentPart() if message.role in ("user", "tool"):
            title = {} if part.name is None else {"title": part.name}
            return {"type": "document", "source": _document_source(index, message, part), **title}
        case _:
            raise formless(index, message, part, "anthropic")


def tool_use(index: int, message: Message, call: ToolCall) -> WireDict:
    """The block of a tool call. Raises EmitError, with the call's id, for arguments that are no JSON object."""
    try:
        arguments = arguments_object(call.arguments)
    except ValueError as error:
        what = f"a call {call.id!r} of {call.name} with arguments that cannot be sent as an object ({error})"
        raise refusal(index, message, what, "anthropic", "mend the arguments or leave out the call with its result") from error
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def tool_result(index: int, message: Message, parts: Sequence[Part]) -> WireDict:
    """The block of a tool message with these parts. All text is one string; without content the key is absent."""
    result: WireDict = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    if all(isinstance(part, str) for part in parts):
        text = "".join(part for part in parts if isinstance(part, str))
        return result if is_blank(text) else result | {"content": text}
    return result | {"content": [block(index, message, part) for part in parts if not is_blank(part)]}


def _image_source(index: int, message: Message, part: ImagePart) -> WireDict:
    inline = parse_data_url(part.url)
    if inline is None:
        if part.url[:8].lower().startswith(("https://", "http://")):
            return {"type": "url", "url": part.url}
        what = f"an image at {part.url[:40]!r}"
        raise refusal(index, message, what, "anthropic", "give an http or https URL, or the bytes as a base64 data: URL")
    if not inline.is_base64:
        raise refusal(index, message, "an image in a data: URL without base64", "anthropic", "encode its bytes in base64")
    media_type = inline.media_type or part.media_type or "nothing"
    media_type = "image/jpeg" if media_type == "image/jpg" else media_type
    if media_type not in IMAGES:
        raise refusal(index, message, f"an image of the type {media_type}", "anthropic", "convert it to PNG, JPEG, GIF or WebP")
    return {"type": "base64", "media_type": media_type, "data": inline.data}


def _document_source(index: int, message: Message, part: DocumentPart) -> WireDict:
    media_type = part.media_type.partition(";")[0].strip().lower()
    if media_type == "application/pdf":
        return {"type": "base64", "media_type": media_type, "data": part.data}
    if not media_type.startswith("text/"):
        what = f"a document of the type {part.media_type}"
        raise refusal(index, message, what, "anthropic", "give it as a PDF or as text")
    try:
        text = base64.b64decode(part.data, validate=True).decode()
    except ValueError as error:
        what = f"a document of the type {part.media_type} that is no UTF-8 in base64"
        raise refusal(index, message, what, "anthropic", "encode its text in UTF-8, then in base64") from error
    return {"type": "text", "media_type": "text/plain", "data": text}


MOST = 4
"""Breakpoints in one request; the API rejects a fifth."""

LIFE_TIMES = ("5m", "1h")
"""What `cache_control.ttl` may say; without one, the API takes `5m`."""


def cache_control(boundary: CacheBreakpointPart) -> WireDict:
    """What `cache_control` says for a boundary. `ephemeral` is the only type; a life time that is another provider's is left out."""
    return {"type": "ephemeral", **({"ttl": boundary.ttl} if boundary.ttl in LIFE_TIMES else {})}


def limit_breakpoints(blocks: Payload, marked: Payload) -> None:
    """Take `cache_control` off `marked` blocks until the API takes the request; `blocks` is the whole request in wire order.

    Of too many, the first (the instructions, which live longest) and the last ones (the growing end, and places to fall back to)
    stay. Breakpoints inside opaque blocks count, and stay. A life time of an hour after a shorter one is cut: the API rejects it.
    """
    ids = {id(block) for block in marked}
    ours = [block for block in blocks if id(block) in ids]
    foreign = sum(_control(block) is not None for block in blocks if id(block) not in ids)
    room = max(0, MOST - foreign)
    if len(ours) > room:
        for block in ours[min(room, 1) : len(ours) - max(room - 1, 0)]:
            del block["cache_control"]
    shortened = False
    for block in blocks:
        control = _control(block)
        if control is None:
            continue
        if control.get("ttl") != "1h":
            shortened = True
        elif shortened and id(block) in ids:
            del control["ttl"]


def _control(block: object) -> WireDict | None:
    control = cast("WireDict", block).get("cache_control") if isinstance(block, dict) else None  # an opaque block may be anything
    return cast("WireDict", control) if isinstance(control, dict) else None  # of unknown keys, and the caller looks for one


class AnthropicRequest(TypedDict):
    """A conversation for `client.messages.create(**request, ...)`."""

    system: NotRequired[Payload]
    """Text blocks. Absent where there are no instructions."""

    messages: Payload
    """User and assistant turns, alternating; their content is blocks."""


def to_anthropic(messages: Sequence[Message], *, cache: bool = True) -> AnthropicRequest:
    """System blocks and turns, to be spread: `client.messages.create(**to_anthropic(messages), model=..., max_tokens=...)`.

    - System messages at the start are the `system` blocks; the key is absent where there are none. A later one becomes user text
      at its place: only some models take the role `system` in a conversation, and at some places only.
    - Messages of one role in a row are one turn, and user and assistant turns alternate. A message that says nothing makes none.
    - Tool messages are `tool_result` blocks at the start of the user turn after their call, wherever they stood; an empty result
      has no content. Parallel results thus share one turn, as the API asks.
    - Tool calls are `tool_use` blocks after the text of their message. `input` is an object in this format: the arguments are
      read, and empty ones are `{}`. Integers keep every digit.
    - Images are base64 or url sources, PDFs base64 sources and text documents text sources. Text without a visible character is
      left out, since the API rejects it. Names and image details have no place in this format and are left out.
    - A cache boundary becomes `cache_control` on the nearest block before it that promptkit made; with nothing before it, it is
      left out. Inside a tool result it counts as standing before the result, at its end as standing after it. `ttl` is sent where
      Anthropic knows it (`5m`, `1h`); the type is `ephemeral`, the only one. The API takes four: of more, the first and the last
      three stay. It takes no longer life time after a shorter one: such a boundary gets the shorter one. `cache=False` leaves all
      boundaries out.

    Raises EmitError for arguments that are no JSON object or cannot be sent unchanged, media that the API does not take, images and
    documents in system and assistant messages, tool calls outside assistant messages, and tool messages without a call id.
    """
    check(messages, "anthropic")
    request = _Request(cache=cache)
    for index, message in enumerate(messages):
        if message.role == "tool":
            request.add_result(index, message)
        else:
            request.add(index, message)
    limit_breakpoints(list(request.blocks()), request.marked)
    turns = [{"role": turn.role, "content": turn.results + turn.said} for turn in request.turns]
    return {"system": request.system, "messages": turns} if request.system else {"messages": turns}


def tools_to_anthropic(tools: Sequence[ToolDefinition]) -> Payload:
    """Tool definitions for `client.messages.create(tools=...)`. The schema is always an object's, as the format asks."""
    return [
        {
            "name": tool.name,
            "input_schema": {"type": "object", **plain(tool.parameters or {})},
            **({} if tool.description is None else {"description": tool.description}),
            **({} if tool.strict is None else {"strict": tool.strict}),
        }
        for tool in tools
    ]


@attrs.define
class _Turn:
    role: str
    results: Payload = attrs.field(factory=Payload)
    """The `tool_result` blocks of a user turn: the API wants them before all else."""
    said: Payload = attrs.field(factory=Payload)


@attrs.define
class _Request:
    """A request in the making, which `to_anthropic` reads its value off."""

    cache: bool
    system: Payload = attrs.field(factory=Payload)
    turns: list[_Turn] = attrs.field(factory=list[_Turn])
    asked: dict[str, int] = attrs.field(factory=dict[str, int])
    """Call id → the turn that made the call; a later round may use an id again."""
    carrier: WireDict | None = None
    """The last block that the next cache boundary may land on."""
    marked: list[WireDict] = attrs.field(factory=list[WireDict])
    """The blocks on which a boundary landed."""

    def add(self, index: int, message: Message) -> None:
        leading = message.role == "system" and not self.turns
        role = "assistant" if message.role == "assistant" else "user"
        for part in visible(message, "anthropic", cache=self.cache):
            if isinstance(part, CacheBreakpointPart):
                self._mark(part)
            elif not is_blank(part):
                made = block(index, message, part)
                (self.system if leading else self._turn(role).said).append(made)
                # Opaque blocks go out untouched, and some kinds, such as thinking, may carry no cache_control.
                self.carrier = self.carrier if isinstance(part, OpaquePart) else made
        for call in message.tool_calls:
            self.carrier = tool_use(index, message, call)
            self._turn(role).said.append(self.carrier)
            self.asked[call.id] = len(self.turns) - 1

    def add_result(self, index: int, message: Message) -> None:
        parts = visible(message, "anthropic", cache=self.cache)
        ends = [
            part
            for part in takewhile(lambda part: isinstance(part, CacheBreakpointPart), reversed(parts))
            if isinstance(part, CacheBreakpointPart)
        ]
        for part in parts[: len(parts) - len(ends)]:
            if isinstance(part, CacheBreakpointPart):
                self._mark(part)
        result = tool_result(index, message, [part for part in parts if not isinstance(part, CacheBreakpointPart)])
        self._turn_after(self.asked.get(message.tool_call_id or "")).results.append(result)
        self.carrier = result
        for part in reversed(ends):
            self._mark(part)

    def blocks(self) -> Iterator[WireDict]:
        yield from self.system
        for turn in self.turns:
            yield from turn.results
            yield from turn.said

    def _turn(self, role: str) -> _Turn:
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(_Turn(role))
        return self.turns[-1]

    def _turn_after(self, call: int | None) -> _Turn:
        return self._turn("user") if call is None or call + 1 == len(self.turns) else self.turns[call + 1]

    def _mark(self, boundary: CacheBreakpointPart) -> None:
        if self.carrier is not None:
            self.carrier["cache_control"] = cache_control(boundary)
            self.marked.append(self.carrier)
