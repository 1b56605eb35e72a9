"""Both OpenAI APIs as JSON, without the SDK: build the bodies of requests, and parse replies, whole or streamed, and what OpenAI's own compaction returns.

Every field of a reply is checked before it is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from promptkit.errors import ContextLengthExceededError, EmptyReplyError, ModelUnavailableError
from promptkit.messages import (
    Json,
    Message,
    OpaquePart,
    Part,
    ToolCall,
    ToolDefinition,
    Usage,
    as_mapping,
    as_sequence,
    as_wire_object,
)
from promptkit.providers.errors import error_from_failure
from promptkit.providers.model import (
    WINDOW_FULL,
    Finish,
    ModelOptions,
    Reply,
    as_tokens,
    parse_call,
)
from promptkit.tokens.models import describe_model
from promptkit.wire import to_chat, to_responses, tools_to_chat, tools_to_responses
from promptkit.wire.parts import Payload, name_media, replace_lone_surrogates

# Any: the SDK declares the values as TypedDicts, and tests check each body against these
Body: TypeAlias = dict[str, Any]

_TOOL_CHOICES = ("auto", "none", "required")
"""Values of `tool_choice` that are not the name of a tool."""

_REASONING_MODEL = re.compile(
    r"(?:[\w.-]+/)*(?:o\d|gpt-(?:[5-9]|\d\d)(?!.*chat)|codex|computer-use)"
)
"""Names of OpenAI's reasoning models. They refuse a temperature, unless they are told not to
reason."""

_PLAIN_MODEL = re.compile(r"(?:[\w.-]+/)*(?:gpt-[34]|gpt-[5-9].*chat|chatgpt-|chat-latest)")
"""Names of OpenAI's other models, which refuse an effort. Nothing is known of any other name, and
the option is sent as it is."""

_CACHE_BREAKPOINT_MODEL = re.compile(r"gpt-(?:5\.(?:[6-9]|\d\d)|[6-9]|\d\d)")
"""Names of models that accept `prompt_cache_breakpoint`. Others answer 400."""


def may_reason(name: str) -> bool:
    """Return whether a model may reason before it answers: OpenAI's reasoning models, and every model of which nothing is known."""
    return _PLAIN_MODEL.match(name) is None


def build_chat_body(
    name: str, messages: Sequence[Message], tools: Sequence[ToolDefinition], options: ModelOptions
) -> Body:
    """Build the body for `client.chat.completions.create(**body)`.

    Args:
        name: The model's name.
        messages: The messages of the request.
        tools: The tools that the model may call.
        options: The options of the request.

    Raises:
        EmitError: The format cannot hold a message.
    """
    return {
        "model": name,
        "messages": _write_messages(to_chat, name, messages, options),
        **_build_options(_CHAT, name, tools, options),
    }


def build_responses_body(
    name: str, messages: Sequence[Message], tools: Sequence[ToolDefinition], options: ModelOptions
) -> Body:
    """Build the body for `client.responses.create(**body)`.

    The provider stores nothing (`store=False`), so reasoning is exchanged encrypted.

    Args:
        name: The model's name.
        messages: The messages of the request.
        tools: The tools that the model may call.
        options: The options of the request.

    Raises:
        EmitError: The format cannot hold a message.
    """
    return {
        "model": name,
        "input": _write_messages(to_responses, name, messages, options),
        "store": False,
        **_build_options(_RESPONSES, name, tools, options),
    }


def _write_messages(
    write: Callable[..., Payload], name: str, messages: Sequence[Message], options: ModelOptions
) -> Payload:
    """Write messages in the format of an API, as a model takes them."""
    shown = (
        messages
        if describe_model(name).sees_images
        else name_media(messages, "which this model cannot see")
    )
    return write(
        replace_lone_surrogates(shown),
        cache=options.get("cache_breakpoints", _CACHE_BREAKPOINT_MODEL.match(name) is not None),
    )


@attrs.frozen
class _Api:
    """Names and forms of the options of a request in one API."""

    write_tools: Callable[[Sequence[ToolDefinition]], Payload]
    choose_tool: Callable[[str], Body]
    limit: str
    """The name of the most tokens of a reply."""
    write_effort: Callable[[str], Body]
    stream: Body
    """The options that ask for a stream with the usage."""


_CHAT = _Api(
    write_tools=tools_to_chat,
    choose_tool=lambda name: {"type": "function", "function": {"name": name}},
    limit="max_completion_tokens",
    write_effort=lambda effort: {"reasoning_effort": effort},
    stream={"stream": True, "stream_options": {"include_usage": True}},
)
_RESPONSES = _Api(
    write_tools=tools_to_responses,
    choose_tool=lambda name: {"type": "function", "name": name},
    limit="max_output_tokens",
    write_effort=lambda effort: {"reasoning": {"effort": effort}},
    stream={"stream": True},
)


def _build_options(
    api: _Api, name: str, tools: Sequence[ToolDefinition], options: ModelOptions
) -> Body:
    """Build what a body has besides the messages."""
    is_sent = {
        "parallel_tool_calls": bool(tools),
        "prompt_cache_key": True,
        "temperature": not _reasons(name, options),
    }
    body: Body = {option: value for option, value in sorted(options.items()) if is_sent.get(option)}
    if tools:
        body["tools"] = api.write_tools(tools)
        if (choice := options.get("tool_choice")) is not None:
            body["tool_choice"] = choice if choice in _TOOL_CHOICES else api.choose_tool(choice)
    if "max_output_tokens" in options:
        body[api.limit] = options["max_output_tokens"]
    if api is _RESPONSES and _REASONING_MODEL.match(name) and _reasons(name, options):
        body["include"] = ["reasoning.encrypted_content"]
    if "reasoning_effort" in options and not _PLAIN_MODEL.match(name):
        body |= api.write_effort(options["reasoning_effort"])
    return body if options.get("on_text") is None else body | api.stream


def _reasons(name: str, options: ModelOptions) -> bool:
    effort = options.get("reasoning_effort")
    return effort != "none" and (
        _REASONING_MODEL.match(name) is not None
        or (effort is not None and not _PLAIN_MODEL.match(name))
    )


_CHAT_FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
_INCOMPLETE: Mapping[str, Finish] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}

INPUT_FIELDS: Mapping[str, tuple[str, ...]] = {
    "reasoning": ("type", "id", "summary", "content", "encrypted_content"),
    "compaction": ("type", "id", "encrypted_content"),
}
"""Kinds of output items that OpenAI accepts as input → the fields that it accepts of them."""


def parse_chat_reply(completion: Mapping[str, object], model: str) -> Reply:
    """Return the reply of a chat completion.

    Raises EmptyReplyError, and a ModelError for an error in the response.
    """
    _raise_error(completion.get("error"), model)
    choice = as_mapping(next(iter(as_sequence(completion.get("choices"))), None))
    message = as_mapping(choice.get("message"))
    content = message.get("content")
    # Most servers answer with a string, some with parts of text as in requests.
    texts = (
        [content]
        if isinstance(content, str)
        else [as_mapping(part).get("text") for part in as_sequence(content)]
    )
    refusal = message.get("refusal")
    calls = [
        parse_call(call.get("id"), as_mapping(call.get("function")))
        for call in map(as_mapping, as_sequence(message.get("tool_calls")))
    ]
    reply = Reply(
        message=_build_message(_keep_texts([*texts, refusal]), calls),
        finish="content_filter"
        if refusal
        else _CHAT_FINISHES.get(str(choice.get("finish_reason")), "stop"),
        usage=_build_usage(
            as_mapping(completion.get("usage")),
            ("prompt_tokens", "completion_tokens", "prompt_tokens_details"),
        ),
    )
    return _check_reply(reply, choice.get("finish_reason"), model, has_all=None not in calls)


def parse_responses_reply(response: Mapping[str, object], model: str) -> Reply:
    """Return the reply of a response.

    Raises EmptyReplyError, and a ModelError for an error in the response.
    """
    _raise_error(response.get("error"), model)
    usage = as_mapping(response.get("usage"))
    items = [as_wire_object(item) or {} for item in as_sequence(response.get("output"))]
    reasoning = as_tokens(as_mapping(usage.get("output_tokens_details")).get("reasoning_tokens"))
    reason = as_mapping(response.get("incomplete_details")).get("reason")
    refused = any(
        as_mapping(part).get("type") == "refusal"
        for item in items
        for part in as_sequence(item.get("content"))
    )
    calls = [
        parse_call(item.get("call_id"), item)
        for item in items
        if item.get("type") == "function_call"
    ]
    reply = Reply(
        message=_build_message(_parse_parts(items, reasoning), calls),
        finish="content_filter"
        if refused
        else _INCOMPLETE.get(
            str(reason), "length" if response.get("status") == "incomplete" else "stop"
        ),
        usage=parse_usage(usage),
    )
    return _check_reply(reply, reason, model, has_all=None not in calls)


def parse_usage(usage: Mapping[str, object]) -> Usage:
    """Return the cost of a request as the Responses API reports it."""
    return _build_usage(usage, ("input_tokens", "output_tokens", "input_tokens_details"))


def _raise_error(error: object, model: str) -> None:
    """Raise the error that some servers put into a response with status 200."""
    if error:
        raise error_from_failure(model=model, message="the response is an error", body=error)


def _build_message(content: Iterable[Part], calls: Iterable[ToolCall | None]) -> Message:
    return Message(role="assistant", content=tuple(content), tool_calls=filter(None, calls))


def _check_reply(reply: Reply, reason: object, model: str, *, has_all: bool) -> Reply:
    """Return a reply with its finish reason, or raise the error that it means.

    Args:
        reply: The reply.
        reason: The finish reason as the provider wrote it.
        model: The model's name.
        has_all: Whether each of its tool calls has a name and an id.
    """
    reason = reason if isinstance(reason, str) else None
    if reason == WINDOW_FULL:
        raise ContextLengthExceededError(
            "the request does not fit into the model's context window: the response has nothing else.",
            model=model,
            code=reason,
        )
    calls = reply.message.tool_calls
    if not has_all or (not calls and not reply.message.text.strip()):
        what = "neither text nor a tool call" if has_all else "a tool call without a name or an id"
        ended = f" (it stopped with {reason!r})" if reason else ""
        error = EmptyReplyError(
            f"the reply has {what}{ended}: try again, with more output tokens if it reached its limit.",
            model=model,
        )
        error.finish, error.usage = reason, reply.usage
        raise error
    # OpenAI ends a forced call with "stop", and some other servers every call.
    return attrs.evolve(reply, finish="tool_calls") if calls and reply.finish == "stop" else reply


def _keep_texts(values: Sequence[object]) -> list[Part]:
    return [text for text in values if isinstance(text, str) and text]


def _parse_parts(items: Sequence[Mapping[str, Json]], reasoning_tokens: int) -> Iterator[Part]:
    """Yield text as text and other items as opaque parts, in order."""
    for item in items:
        kind = item.get("type")
        if kind == "message":
            texts = _keep_texts(
                [
                    as_mapping(part).get(name)
                    for part in as_sequence(item.get("content"))
                    for name in ("text", "refusal")
                ]
            )
            if texts and (phase := item.get("phase")):  # OpenAI expects to get it back
                yield OpaquePart(
                    value={"phase": str(phase)}, tokens=0, provider="responses.message"
                )
            yield from texts
        elif kind != "function_call" and isinstance(kind, str):
            kept = _keep_fields(item, kind)
            if kind == "reasoning" and not (kept.get("encrypted_content") or kept.get("content")):
                # reasoning that is not stored: OpenAI would answer that it does not know the id
                continue
            yield OpaquePart(value=kept, tokens=reasoning_tokens, provider="responses")
            reasoning_tokens = 0  # the provider counts all reasoning items together


def _keep_fields(item: Mapping[str, Json], kind: str) -> dict[str, Json]:
    """Return the fields of an output item that OpenAI accepts as input."""
    return {
        key: value
        for key, value in item.items()
        if value is not None and key in INPUT_FIELDS.get(kind, item)
    }


def _build_usage(usage: Mapping[str, object], names: tuple[str, str, str]) -> Usage:
    read, written, details = names
    tokens = as_tokens(usage.get(read))
    return Usage(
        input_tokens=tokens,
        output_tokens=as_tokens(usage.get(written)),
        cached_tokens=min(as_tokens(as_mapping(usage.get(details)).get("cached_tokens")), tokens),
    )


@attrs.define
class _Call:
    """A tool call whose pieces are still arriving."""

    id: str
    name: str = ""
    arguments: list[str] = attrs.field(factory=list[str])


@attrs.define
class ChatStream:
    """Collects the chunks of a streamed chat completion."""

    _model: str
    _content: list[str] = attrs.field(factory=list[str], init=False)
    _refusal: list[str] = attrs.field(factory=list[str], init=False)
    _calls: list[_Call] = attrs.field(factory=list[_Call], init=False)
    _by_index: dict[int | None, _Call] = attrs.field(factory=dict[int | None, _Call], init=False)
    """Index of a piece → the call that it belongs to."""
    _finish: object = attrs.field(default=None, init=False)
    _usage: object = attrs.field(default=None, init=False)

    def add(self, event: Mapping[str, object]) -> Iterator[str]:
        """Add a chunk. Yields the pieces of text in it."""
        self._usage = event.get("usage") or self._usage
        for choice in map(as_mapping, as_sequence(event.get("choices"))[:1]):
            self._finish = choice.get("finish_reason") or self._finish
            delta = as_mapping(choice.get("delta"))
            for call in map(as_mapping, as_sequence(delta.get("tool_calls"))):
                self._add_call(call)
            for pieces, piece in (
                (self._content, delta.get("content")),
                (self._refusal, delta.get("refusal")),
            ):
                if isinstance(piece, str) and piece:
                    pieces.append(piece)
                    yield piece

    def _add_call(self, piece: Mapping[str, object]) -> None:
        given, call_id, function = (
            piece.get("index"),
            piece.get("id"),
            as_mapping(piece.get("function")),
        )
        index = given if isinstance(given, int) else None
        call = self._by_index.get(index)
        # Some servers give every call the index 0, and distinguish them by their ids only.
        if call is None or (isinstance(call_id, str) and call_id and call_id != call.id):
            call = self._by_index[index] = _Call(id=call_id if isinstance(call_id, str) else "")
            self._calls.append(call)
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and name and not call.name:
            call.name = name
        if isinstance(arguments, str):
            call.arguments.append(arguments)

    def build_reply(self) -> Reply:
        """Return the reply after the last chunk.

        Raises ModelUnavailableError if the stream ended too soon, and as `parse_chat_reply`.
        """
        if self._finish is None:
            raise _cut_off(self._model)
        message = {
            "content": "".join(self._content),
            "refusal": "".join(self._refusal),
            "tool_calls": [
                {
                    "id": call.id,
                    "function": {"name": call.name, "arguments": "".join(call.arguments)},
                }
                for call in self._calls
            ],
        }
        return parse_chat_reply(
            {
                "choices": [{"message": message, "finish_reason": self._finish}],
                "usage": self._usage,
            },
            self._model,
        )


@attrs.define
class ResponsesStream:
    """Collects the events of a streamed response.

    The last event holds the response; where that has no output, the items of earlier events are its
    output.
    """

    _model: str
    _items: list[object] = attrs.field(factory=list[object], init=False)
    _response: Mapping[str, object] | None = attrs.field(default=None, init=False)

    def add(self, event: Mapping[str, object]) -> Iterator[str]:
        """Add an event.

        Yields the pieces of text in it. Raises a ModelError for an error in the stream.
        """
        match event.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                piece = event.get("delta")
                if isinstance(piece, str) and piece:
                    yield piece
            case "response.output_item.done":
                self._items.append(event.get("item"))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._response = as_mapping(event.get("response"))
            case "error":
                raise error_from_failure(
                    model=self._model,
                    message="the stream ended with an error",
                    body=event.get("error") or event,
                )
            case _:
                pass

    def build_reply(self) -> Reply:
        """Return the reply after the last event.

        Raises ModelUnavailableError if the stream ended too soon, and as `parse_responses_reply`.
        """
        if self._response is None:
            raise _cut_off(self._model)
        return parse_responses_reply(
            {**self._response, "output": self._response.get("output") or self._items}, self._model
        )


def _cut_off(model: str) -> ModelUnavailableError:
    return ModelUnavailableError(
        "the stream ended before the reply was complete: try again.", model=model
    )


_CHARACTERS_PER_TOKEN = 4  # of JSON, for a part whose tokens are unknown


@attrs.frozen(kw_only=True)
class CompactedInput:
    """The messages that OpenAI's own compaction returns for a conversation, and what the request cost."""

    messages: tuple[Message, ...]
    usage: Usage
    request_id: str | None = attrs.field(default=None, eq=False)
    """The provider's name for the request. None: it gave none."""


def summary_from_compaction(answer: Mapping[str, object], model: str) -> CompactedInput:
    """Return the messages of a response: user messages as text, other items as opaque parts that are sent back byte for byte.

    Raises EmptyReplyError for a response with nothing but user messages: it would not summarize the
    conversation.
    """
    usage = parse_usage(as_mapping(answer.get("usage")))
    written = usage.output_tokens
    messages: list[Message] = []
    has_summary = False
    for item in filter(None, map(as_wire_object, as_sequence(answer.get("output")))):
        kind, role = item.get("type", "message"), item.get("role")
        parts = [as_mapping(part) for part in as_sequence(item.get("content"))]
        if (
            kind == "message"
            and role == "user"
            and parts
            and all(isinstance(part.get("text"), str) for part in parts)
        ):
            messages.append(
                Message(role="user", content=tuple(str(part["text"]) for part in parts))
            )
            continue
        value = _keep_fields(item, str(kind))
        tokens = len(json.dumps(value)) // _CHARACTERS_PER_TOKEN + 1
        if kind != "message":
            # The output tokens of the request are those of the first such part.
            tokens = written or (0 if has_summary else tokens)
            written = 0
        has_summary = has_summary or kind != "message" or role != "user"
        part = OpaquePart(value=value, tokens=tokens, provider="responses")
        messages.append(Message(role="user" if role == "user" else "assistant", content=(part,)))
    if not has_summary:
        raise EmptyReplyError(
            "the response has nothing that summarizes the conversation.", model=model
        )
    return CompactedInput(messages=tuple(messages), usage=usage)
