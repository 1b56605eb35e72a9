"""Streams of both APIs, put together to what the same request answers without a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from promptkit.errors import ModelUnavailableError
from promptkit.providers.failures import Failure, failed
from promptkit.providers.openai_reply import chat_reply, mapping, responses_reply, sequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from promptkit.providers.model import Reply

__all__ = ["ChatStream", "ResponsesStream", "Stream"]


class Stream(Protocol):
    """A stream that is being read."""

    def add(self, event: Mapping[str, object]) -> Iterator[str]:
        """Take in what came; the pieces of text in it."""
        ...

    def reply(self) -> Reply:
        """What all of it says. Raises ModelUnavailableError if the stream ended too soon, and what replies raise."""
        ...


@attrs.define
class _Call:
    """A tool call whose pieces are still coming."""

    id: str
    name: str = ""
    arguments: list[str] = attrs.field(factory=list[str])


class ChatStream:
    """The chunks of a chat completion."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._at: dict[object, _Call] = {}
        """The call that a piece with an index belongs to."""
        self._finish: object = None
        self._usage: object = None

    def add(self, event: Mapping[str, object]) -> Iterator[str]:
        """Take in a chunk."""
        self._usage = event.get("usage") or self._usage
        for choice in map(mapping, sequence(event.get("choices"))[:1]):
            self._finish = choice.get("finish_reason") or self._finish
            delta = mapping(choice.get("delta"))
            for call in map(mapping, sequence(delta.get("tool_calls"))):
                self._add_call(call)
            for pieces, piece in ((self._content, delta.get("content")), (self._refusal, delta.get("refusal"))):
                if isinstance(piece, str) and piece:
                    pieces.append(piece)
                    yield piece

    def _add_call(self, piece: Mapping[str, object]) -> None:
        index, call_id, function = piece.get("index"), piece.get("id"), mapping(piece.get("function"))
        call = self._at.get(index)
        # Some servers give every call the index 0, and tell them apart by their ids only.
        if call is None or (isinstance(call_id, str) and call_id and call_id != call.id):
            call = self._at[index] = _Call(id=call_id if isinstance(call_id, str) else "")
            self._calls.append(call)
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and name and not call.name:
            call.name = name
        if isinstance(arguments, str):
            call.arguments.append(arguments)

    def reply(self) -> Reply:
        """The reply, when all chunks are in."""
        if self._finish is None:
            raise _cut(self._model)
        calls = [{"id": call.id, "function": {"name": call.name, "arguments": "".join(call.arguments)}} for call in self._calls]
        message = {"content": "".join(self._content), "refusal": "".join(self._refusal), "tool_calls": calls}
        return chat_reply({"choices": [{"message": message, "finish_reason": self._finish}], "usage": self._usage}, self._model)


class ResponsesStream:
    """The events of a response. What counts is the response in the last one; the items before it stand in where that has none."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._items: list[object] = []
        self._response: Mapping[str, object] | None = None

    def add(self, event: Mapping[str, object]) -> Iterator[str]:
        """Take in an event. Raises what an error in the stream means."""
        match event.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                piece = event.get("delta")
                if isinstance(piece, str) and piece:
                    yield piece
            case "response.output_item.done":
                self._items.append(event.get("item"))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._response = mapping(event.get("response"))
            case "error":
                raise failed(Failure(model=self._model, message="the stream ended with an error", body=event.get("error") or event))
            case _:
                pass

    def reply(self) -> Reply:
        """The reply, when all events are in."""
        if self._response is None:
            raise _cut(self._model)
        return responses_reply({**self._response, "output": self._response.get("output") or self._items}, self._model)


def _cut(model: str) -> ModelUnavailableError:
    return ModelUnavailableError("the stream ended before the answer did: ask again.", model=model)
