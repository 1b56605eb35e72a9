"""Collect the events of a streamed reply of Anthropic's Messages API.

Every field of the JSON is checked before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import attrs

from promptkit.errors import (
    ContextLengthExceededError,
    EmptyReplyError,
    InvalidArgumentError,
    ModelUnavailableError,
)
from promptkit.messages import Json, Message, ToolCall, Usage, as_mapping, as_wire_object
from promptkit.providers.anthropic.request import is_thinking
from promptkit.providers.model import Finish, Reply, as_tokens, count_reasoning
from promptkit.wire.parts import AssistantContent, omit_fields, read_content

FINISHES: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # the provider interrupted its own tools, and goes on when it is asked again
    "pause_turn": "length",
    "refusal": "content_filter",
}
"""Stop reason → finish reason."""

_WINDOW_FULL = "model_context_window_exceeded"


@attrs.define
class _Block:
    """A content block whose pieces are still arriving."""

    fields: dict[str, Json]
    pieces: dict[str, list[str]] = attrs.field(factory=dict[str, list[str]])
    """Name of a field → the pieces of its text."""
    citations: list[Json] = attrs.field(factory=list["Json"])

    def build(self) -> dict[str, Json]:
        """Return the block as the API sends it without a stream.

        Arguments of a tool call stay the text that the model wrote.
        """
        return {
            **self.fields,
            **{
                name: str(self.fields.get(name) or "") + "".join(pieces)
                for name, pieces in self.pieces.items()
            },
            **({"citations": self.citations} if self.citations else {}),
        }


_DELTAS: Mapping[str, tuple[str, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "partial_json"),
}
"""Type of a delta → the field with its text, and the field of the block that the text belongs
to."""


@attrs.define
class MessageStream:
    """Collects the events of one reply."""

    _model: str
    _blocks: dict[int, _Block] = attrs.field(factory=dict[int, _Block], init=False)
    _usage: dict[str, object] = attrs.field(factory=dict[str, object], init=False)
    _reason: str | None = attrs.field(default=None, init=False)
    _details: Mapping[str, object] = attrs.field(factory=dict[str, object], init=False)

    def add(self, event: Mapping[str, object]) -> Iterator[str]:
        """Add an event. Yields the pieces of text in it."""
        index = event.get("index")
        match event.get("type"):
            case "message_start":
                self._add_usage(as_mapping(event.get("message")).get("usage"))
            case "content_block_start" if isinstance(index, int):
                block = as_wire_object(event.get("content_block")) or {}
                self._blocks[index] = _Block(
                    {name: value for name, value in block.items() if value is not None}
                )
                if (
                    block.get("type") == "text"
                    and isinstance(text := block.get("text"), str)
                    and text
                ):
                    yield text
            case "content_block_delta" if isinstance(index, int) and index in self._blocks:
                yield from self._add_delta(self._blocks[index], as_mapping(event.get("delta")))
            case "message_delta":
                delta = as_mapping(event.get("delta"))
                reason = delta.get("stop_reason")
                self._reason = reason if isinstance(reason, str) else self._reason
                self._details = as_mapping(delta.get("stop_details"))
                self._add_usage(event.get("usage"))
            case _:
                pass

    def build_reply(self) -> Reply:
        """Return the reply after the last event.

        Raises:
            ModelUnavailableError: The stream ended too soon.
            ContextLengthExceededError: The request leaves no room in the context window for a
                reply.
            EmptyReplyError: The reply has neither text nor tool calls.
        """
        if self._reason is None:
            raise ModelUnavailableError(
                "the stream ended before the reply was complete: try again.", model=self._model
            )
        usage = read_usage(self._usage)
        try:
            reply = self._build_message()
        except InvalidArgumentError as error:
            raise EmptyReplyError(
                f"the reply has content that no reply of this API has ({error}).", model=self._model
            ) from error
        if not reply.tool_calls and not reply.text.strip():
            raise self._empty_error(usage)
        finish = FINISHES.get(self._reason, "stop")
        return Reply(
            message=reply,
            usage=usage,
            finish="tool_calls" if reply.tool_calls and finish == "stop" else finish,
        )

    def _add_usage(self, usage: object) -> None:
        # The figures are cumulative: a later event has the newer ones.
        self._usage |= {
            name: value for name, value in as_mapping(usage).items() if value is not None
        }

    def _add_delta(self, block: _Block, delta: Mapping[str, object]) -> Iterator[str]:
        kind = delta.get("type")
        if kind == "citations_delta":
            block.citations.append(as_wire_object(delta.get("citation")))
        source, target = _DELTAS.get(str(kind), ("", ""))
        piece = delta.get(source)
        if target and isinstance(piece, str) and piece:
            block.pieces.setdefault(target, []).append(piece)
            if target == "text":
                yield piece

    def _build_message(self) -> Message:
        """Build the message from the blocks, in their order."""
        answer = AssistantContent("anthropic")
        others: list[Json] = []  # blocks up to the next tool call
        for _, block in sorted(self._blocks.items()):
            fields = block.build()
            if fields.get("type") != "tool_use":
                others.append(fields)
                continue
            answer.add_parts(read_content(others, "anthropic", "the reply", attachments=False))
            others = []
            more = omit_fields(
                fields,
                "type",
                "id",
                "name",
                "input",
                "partial_json",
                *(("caller",) if as_mapping(fields.get("caller")).get("type") == "direct" else ()),
            )
            if call := _read_call(fields):
                answer.add_call(call, more)
        answer.add_parts(read_content(others, "anthropic", "the reply", attachments=False))
        return count_thinking(
            Message(role="assistant", content=tuple(answer.parts), tool_calls=tuple(answer.calls)),
            self._usage,
        )

    def _empty_error(self, usage: Usage) -> ContextLengthExceededError | EmptyReplyError:
        if self._reason == _WINDOW_FULL:
            return ContextLengthExceededError(
                "the request fills the model's context window, and leaves no room for a reply.",
                model=self._model,
                code=self._reason,
            )
        explanation = self._details.get("explanation")
        why = f": {explanation}" if isinstance(explanation, str) and explanation else ""
        error = EmptyReplyError(
            f"the model refused to reply{why or ', and gave no reason.'}"
            if self._reason == "refusal"
            else f"the reply has neither text nor a tool call (it stopped with {self._reason!r}): try again, with more output tokens if it reached its limit.",
            model=self._model,
        )
        error.finish, error.usage = self._reason, usage
        return error


def read_usage(usage: Mapping[str, object]) -> Usage:
    """Return what a request cost.

    Anthropic's `input_tokens` are only those that the prompt cache neither had nor got.
    """
    read = as_tokens(usage.get("cache_read_input_tokens"))
    written = as_tokens(usage.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=as_tokens(usage.get("input_tokens")) + read + written,
        output_tokens=as_tokens(usage.get("output_tokens")),
        cached_tokens=read,
        written_tokens=written,
        written_1h_tokens=as_tokens(
            as_mapping(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")
        ),
    )


def _read_call(fields: Mapping[str, Json]) -> ToolCall | None:
    call_id, name, written = fields.get("id"), fields.get("name"), fields.get("partial_json")
    return (
        ToolCall(
            id=call_id,
            name=name,
            arguments=str(written)
            if written
            else json.dumps(fields.get("input") or {}, ensure_ascii=False),
        )
        if isinstance(call_id, str) and call_id and isinstance(name, str) and name
        else None
    )


def count_thinking(message: Message, usage: Mapping[str, object]) -> Message:
    """Return the message with the tokens of all its thinking, which the provider counts together, on the first thinking block.

    Args:
        message: A reply.
        usage: The usage that the provider reports for it.
    """
    reported = as_mapping(usage.get("output_tokens_details")).get("thinking_tokens")
    return (
        message if reported is None else count_reasoning(message, as_tokens(reported), is_thinking)
    )
