"""What OpenAIModel gets, as a Reply: from the JSON of both APIs, believed in nothing that is not checked here.

Streams of both APIs, put together to what the same request answers without a stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

import attrs

from promptkit.errors import ContextLengthExceededError, EmptyReplyError, ModelUnavailableError
from promptkit.messages import Json, Message, OpaquePart, Part, ToolCall, Usage
from promptkit.providers.errors import Failure, error_from_failure
from promptkit.providers.model import Reply
from promptkit.providers.openai.request import PHASE

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SENT_BACK", "ChatStream", "ResponsesStream", "Stream", "chat_reply", "mapping", "responses_reply", "sequence", "usage_of"]


Finish: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter"]

CHAT_FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
INCOMPLETE: Mapping[str, Finish] = {"max_output_tokens": "length", "content_filter": "content_filter"}
WINDOW_FULL = "model_context_window_exceeded"
"""A finish reason of some servers: they answer 200 to a request that does not fit."""

SENT_BACK: Mapping[str, tuple[str, ...]] = {
    "reasoning": ("type", "id", "summary", "content", "encrypted_content"),
    "compaction": ("type", "id", "encrypted_content"),
}
"""Output items that OpenAI takes as input with these fields only."""


def chat_reply(completion: Mapping[str, object], model: str) -> Reply:
    """The reply in a chat completion. Raises EmptyReplyError, and what an error in the place of an answer means."""
    _check(completion.get("error"), model)
    choice = mapping(next(iter(sequence(completion.get("choices"))), None))
    message = mapping(choice.get("message"))
    said = choice.get("finish_reason")
    content = message.get("content")
    # Most servers answer with a string, some with parts of text as in requests.
    texts = [content] if isinstance(content, str) else [mapping(part).get("text") for part in sequence(content)]
    refusal = message.get("refusal")
    answer = _Answer(
        content=_texts([*texts, refusal]),
        calls=[_chat_call(mapping(call)) for call in sequence(message.get("tool_calls"))],
        finish="content_filter" if refusal else CHAT_FINISHES.get(str(said), "stop"),
        said=said if isinstance(said, str) else None,
        usage=_usage(mapping(completion.get("usage")), ("prompt_tokens", "completion_tokens", "prompt_tokens_details")),
    )
    return _reply(answer, model)


def responses_reply(response: Mapping[str, object], model: str) -> Reply:
    """The reply in a response. Raises EmptyReplyError, and what an error in the place of an answer means."""
    _check(response.get("error"), model)
    usage = mapping(response.get("usage"))
    items = [mapping(item) for item in sequence(response.get("output"))]
    parts = list(_parts(items, _tokens(mapping(usage.get("output_tokens_details")).get("reasoning_tokens"))))
    said = mapping(response.get("incomplete_details")).get("reason")
    unexplained: Finish = "length" if response.get("status") == "incomplete" else "stop"
    refused = any(mapping(part).get("type") == "refusal" for item in items for part in sequence(item.get("content")))
    answer = _Answer(
        content=parts,
        calls=[_call(item.get("call_id"), item) for item in items if item.get("type") == "function_call"],
        finish="content_filter" if refused else INCOMPLETE.get(str(said), unexplained),
        said=said if isinstance(said, str) else None,
        usage=usage_of(usage),
    )
    return _reply(answer, model)


def usage_of(usage: Mapping[str, object]) -> Usage:
    """What the Responses API says that a request cost."""
    return _usage(usage, ("input_tokens", "output_tokens", "input_tokens_details"))


def mapping(value: object) -> Mapping[str, object]:
    """A JSON object, or an empty one in the place of anything else."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}  # JSON has no other keys


def sequence(value: object) -> Sequence[object]:
    """A JSON array, or an empty one in the place of anything else."""
    return cast("Sequence[object]", value) if isinstance(value, list) else ()  # of whatever, and the caller checks each


def _check(error: object, model: str) -> None:
    """Some servers answer 200 with an error inside."""
    if error:
        raise error_from_failure(Failure(model=model, message="the answer is an error", body=error))


@attrs.frozen
class _Answer:
    """What both APIs say in their own ways."""

    content: Sequence[Part]
    calls: Sequence[ToolCall | None]
    """None: a call that lacks what a call must have."""
    finish: Finish
    said: str | None
    """The finish reason in the provider's word."""
    usage: Usage


def _reply(answer: _Answer, model: str) -> Reply:
    if answer.said == WINDOW_FULL:
        message = "the request does not fit into the model's window: it answered with nothing else."
        raise ContextLengthExceededError(message, model=model, code=answer.said)
    calls = tuple(call for call in answer.calls if call)
    made = Message(role="assistant", content=tuple(answer.content), tool_calls=calls)
    lacking = len(calls) < len(answer.calls)
    if lacking or (not calls and not made.text.strip()):
        what = "a tool call without a name or an id" if lacking else "neither text nor a tool call"
        ended = f" (it ended with {answer.said!r})" if answer.said else ""
        error = EmptyReplyError(f"the answer has {what}{ended}: ask again, with more room for output if it ran out of it.", model=model)
        error.finish, error.usage = answer.said, answer.usage
        raise error
    # A forced call ends with "stop" at OpenAI, and every call at some other servers.
    return Reply(message=made, usage=answer.usage, finish="tool_calls" if calls and answer.finish == "stop" else answer.finish)


def _chat_call(call: Mapping[str, object]) -> ToolCall | None:
    return _call(call.get("id"), mapping(call.get("function")))


def _call(call_id: object, function: Mapping[str, object]) -> ToolCall | None:
    name, arguments = function.get("name"), function.get("arguments")
    if not (isinstance(call_id, str) and call_id and isinstance(name, str) and name):
        return None
    return ToolCall(id=call_id, name=name, arguments=arguments if isinstance(arguments, str) else "")


def _texts(values: Sequence[object]) -> list[Part]:
    return [text for text in values if isinstance(text, str) and text]


def _parts(items: Sequence[Mapping[str, object]], reasoning_tokens: int) -> Iterator[Part]:
    """Text as text, and what is not promptkit's to read as it is, in order."""
    for item in items:
        kind = item.get("type")
        if kind == "message":
            if phase := item.get("phase"):
                yield OpaquePart(value={"phase": str(phase)}, tokens=0, provider=PHASE)
            for part in sequence(item.get("content")):
                yield from _texts([mapping(part).get("text"), mapping(part).get("refusal")])
        elif kind != "function_call" and isinstance(kind, str):
            kept = {key: value for key, value in item.items() if value is not None and key in SENT_BACK.get(kind, item)}
            if kind == "reasoning" and not (kept.get("encrypted_content") or kept.get("content")):
                continue  # a thought that is stored nowhere: OpenAI would answer that it does not know the id
            yield OpaquePart(value=cast("Json", kept), tokens=reasoning_tokens, provider="responses")  # it was JSON
            reasoning_tokens = 0  # the provider counts all thoughts together


def _usage(usage: Mapping[str, object], names: tuple[str, str, str]) -> Usage:
    read, written, details = names
    tokens = _tokens(usage.get(read))
    cached = _tokens(mapping(usage.get(details)).get("cached_tokens"))
    return Usage(input_tokens=tokens, output_tokens=_tokens(usage.get(written)), cached_tokens=min(cached, tokens))


def _tokens(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


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
                raise error_from_failure(
                    Failure(model=self._model, message="the stream ended with an error", body=event.get("error") or event)
                )
            case _:
                pass

    def reply(self) -> Reply:
        """The reply, when all events are in."""
        if self._response is None:
            raise _cut(self._model)
        return responses_reply({**self._response, "output": self._response.get("output") or self._items}, self._model)


def _cut(model: str) -> ModelUnavailableError:
    return ModelUnavailableError("the stream ended before the answer did: ask again.", model=model)
