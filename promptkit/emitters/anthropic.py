"""Messages as Anthropic's Messages API takes them."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, NotRequired, TypedDict

import attrs

from promptkit.emitters.blocks import block, is_blank, tool_result, tool_use
from promptkit.emitters.breakpoints import cache_control, limit_breakpoints
from promptkit.emitters.parts import Payload, WireDict, check, plain, visible
from promptkit.messages import BoundaryPart, Message, OpaquePart, ToolDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["AnthropicRequest", "to_anthropic", "tools_to_anthropic"]


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
            if isinstance(part, BoundaryPart):
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
        ends = [part for part in takewhile(lambda part: isinstance(part, BoundaryPart), reversed(parts)) if isinstance(part, BoundaryPart)]
        for part in parts[: len(parts) - len(ends)]:
            if isinstance(part, BoundaryPart):
                self._mark(part)
        result = tool_result(index, message, [part for part in parts if not isinstance(part, BoundaryPart)])
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

    def _mark(self, boundary: BoundaryPart) -> None:
        if self.carrier is not None:
            self.carrier["cache_control"] = cache_control(boundary)
            self.marked.append(self.carrier)
