"""Anthropic's Messages API: check requests as it does, with its error texts as far as they are known, and encode replies and errors, complete or as streams."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import attrs

from promptkit.messages import OpaquePart, ToolCall, as_mapping, as_sequence
from promptkit.providers.anthropic.api import (
    BINDING_BETA,
    Capabilities,
    capabilities_of,
    is_thinking,
)
from promptkit.testing.server.journal import (
    COUNT_TOKENS,
    CheckedMessages,
    Exchange,
    HttpAnswer,
    api_error,
    as_blocks,
    list_blocks,
)
from promptkit.testing.server.openai_api import (
    Api,
    JsonObject,
    ServerReply,
    load_parameters,
    refuse,
    require,
    split_deltas,
    write_named_events,
)
from promptkit.wire.parts import parse_arguments

_BLOCKS: Mapping[str, tuple[str, ...]] = {
    "user": ("text", "image", "document", "search_result", "tool_result", "container_upload"),
    "assistant": (
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "tool_search_tool_result",
    ),
    "system": ("text",),
}
"""Role → the types of blocks that its messages may have."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_BREAKPOINTS = 4
_MIN_BUDGET = 1_024  # tokens of thinking
_LAST_SAMPLING_VERSION = "2023-06-01"
"""The last value of the header `anthropic-version` with which a request may have sampling
parameters."""


# Any stands for JSON
def check_messages(
    body: Mapping[str, Any], headers: Mapping[str, str], *, counts: bool
) -> CheckedMessages:
    """Check a request to the Messages API: its parameters, blocks, cache breakpoints, and that tool calls and results match.

    Args:
        body: The request.
        headers: Its headers, by their names in lower case.
        counts: Whether it only asks for the number of tokens.

    Raises:
        IllFormedRequestError: The API would refuse the request.
    """
    known = capabilities_of(str(body.get("model", "")))
    _check_parameters(body, headers, counts=counts)
    _check_tools(body, known)
    _check_thinking(body, headers, known)
    require(
        isinstance(body.get("messages"), list) and body["messages"],
        "messages: at least one message is required"
        if body.get("messages") == []
        else "messages: Field required",
    )
    _check_breakpoints(body)
    turns = _Turns(
        digest=_digest("", body.get("tools"), body.get("system")),
        is_bound=known.bound,
        drops=as_mapping(as_mapping(body.get("thinking")).get("block_binding")).get(
            "prefix_mismatch_behavior"
        )
        == "drop_block",
    )
    for place, message in enumerate(map(as_mapping, as_sequence(body["messages"]))):
        turns.add(place, message, is_last=place == len(body["messages"]) - 1)
    turns.end_turn()
    require(
        turns.role != "assistant" or known.prefill,
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    )
    if as_mapping(body.get("thinking")).get("type") == "enabled":
        _check_last_round(as_sequence(body["messages"]))
    require(
        body.get("tools")
        or {"tool_use", "tool_result"}.isdisjoint(
            block.get("type") for _, block in list_blocks(body)
        ),
        "Requests which include `tool_use` or `tool_result` blocks must define tools.",
    )
    return CheckedMessages(prefix=turns.digest, dropped=tuple(turns.dropped))


# Any stands for as above
def _check_parameters(body: Mapping[str, Any], headers: Mapping[str, str], *, counts: bool) -> None:
    require("anthropic-version" in headers, "anthropic-version: header is required")
    has_sampling = headers["anthropic-version"] <= _LAST_SAMPLING_VERSION and not counts
    allowed = load_parameters()["count_tokens" if counts else "messages"]
    for key in body:
        require(
            key in allowed or (has_sampling and key in {"temperature", "top_p", "top_k"}),
            f"{key}: Extra inputs are not permitted",
        )
    require(isinstance(body.get("model"), str) and body["model"], "model: Field required")
    limit = body.get("max_tokens")
    require(counts or isinstance(limit, int), "max_tokens: Field required")
    require(
        not isinstance(limit, int) or limit >= 1,
        "max_tokens: Input should be greater than or equal to 1",
    )


def _check_tools(body: Mapping[str, Any], known: Capabilities) -> None:  # Any: as above
    tools = [as_mapping(tool) for tool in as_sequence(body.get("tools"))]
    for place, tool in enumerate(tools):
        require(
            _matches(_NAME, tool.get("name")),
            f"tools.{place}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'",
        )
        require(
            tool.get("type", "custom") != "custom"
            or as_mapping(tool.get("input_schema")).get("type") == "object",
            f"tools.{place}.custom.input_schema.type: Field required",
        )
    require(
        len({tool["name"] for tool in tools}) >= len(tools), "tools: Tool names must be unique."
    )
    if choice := as_mapping(body.get("tool_choice")):
        _check_tool_choice(choice, [str(tool["name"]) for tool in tools], body, known)


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _check_tool_choice(
    choice: Mapping[str, Any], names: Sequence[str], body: Mapping[str, Any], known: Capabilities
) -> None:  # Any: as above
    require(names, "tool_choice: may only be specified while providing tools")
    kind = choice.get("type")
    require(
        kind in {"auto", "any", "tool", "none"},
        f"tool_choice: Input tag {kind!r} found using 'type' does not match any of the expected tags",
    )
    require(
        kind != "tool" or choice.get("name") in names,
        f"tool_choice: Tool {choice.get('name')!r} not found in provided tools",
    )
    if kind in {"any", "tool"}:
        require(known.forced_calls, f"tool_choice: type {kind!r} is not supported for this model.")
        require(
            as_mapping(body.get("thinking")).get("type") != "enabled",
            "Thinking may not be enabled when tool_choice forces tool use.",
        )


# Any stands for as above
def _check_thinking(
    body: Mapping[str, Any], headers: Mapping[str, str], known: Capabilities
) -> None:
    thinking = as_mapping(body.get("thinking"))
    kind = thinking.get("type")
    require(
        kind in {None, known.off, "adaptive" if known.thinking == "adaptive" else "enabled"},
        f'"thinking.type.{kind}" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.',
    )
    if kind == "enabled":
        budget, limit = thinking.get("budget_tokens"), body.get("max_tokens")
        require(
            isinstance(budget, int) and budget >= _MIN_BUDGET,
            f"thinking.enabled.budget_tokens: Input should be greater than or equal to {_MIN_BUDGET}",
        )
        require(
            not isinstance(limit, int) or (isinstance(budget, int) and budget < limit),
            "`max_tokens` must be greater than `thinking.budget_tokens`.",
        )
    require(
        "block_binding" not in thinking or BINDING_BETA in headers.get("anthropic-beta", ""),
        f"thinking.{kind}.block_binding: Extra inputs are not permitted",
    )
    effort = as_mapping(body.get("output_config")).get("effort")
    require(
        effort is None or effort in known.efforts,
        f"output_config.effort: {effort!r} is not supported for this model",
    )


def _check_breakpoints(body: Mapping[str, Any]) -> None:  # Any: as above
    count, has_short = 0, False
    for where, block in list_blocks(body):
        control = block.get("cache_control")
        if control is None:
            continue
        count += 1
        require(
            as_mapping(control).get("type") == "ephemeral"
            and as_mapping(control).get("ttl", "5m") in {"5m", "1h"},
            f"{where}.cache_control: Input should be an ephemeral cache control with a ttl of '5m' or '1h'",
        )
        require(
            block.get("type") not in {"thinking", "redacted_thinking"},
            f"{where}.{block.get('type')}.cache_control: Extra inputs are not permitted",
        )
        is_long = as_mapping(control).get("ttl") == "1h"
        require(
            not is_long or not has_short,
            f"{where}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block.",
        )
        has_short = has_short or not is_long
    require(
        count <= _MAX_BREAKPOINTS,
        f"A maximum of {_MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {count}.",
    )


@attrs.define(kw_only=True)
class _Turns:
    """The messages so far. Consecutive messages of one role are one turn, as for the API."""

    digest: str
    """Of everything before the next block."""
    is_bound: bool
    drops: bool
    dropped: list[str] = attrs.field(factory=list[str])
    role: str | None = None
    place: int = 0
    """The index of the message that the turn ends with."""
    start: str = ""
    """The digest of everything before the turn."""
    calls: list[str] = attrs.field(factory=list[str])
    """The calls of the last assistant turn that have no result yet."""
    seen: set[str] = attrs.field(factory=set[str])
    """The ids of all calls."""
    takes_results: bool = False
    """Whether a result may come next: only at the start of the turn after its call."""

    # Any stands for as above
    def add(self, place: int, message: Mapping[str, Any], *, is_last: bool) -> None:
        role = message.get("role")
        require(
            isinstance(role, str) and role in _BLOCKS,
            f"messages.{place}.role: Input should be 'user' or 'assistant'",
        )
        require(
            self.role is not None or role != "assistant",
            'messages: first message must use the "user" role',
        )
        if role != self.role:
            self.end_turn()
            self.role, self.start, self.takes_results = role, self.digest, role == "user"
            self.digest = _digest(self.digest, role)
        blocks = as_blocks(message.get("content"))
        require(
            isinstance(message.get("content"), str | list),
            f"messages.{place}.content: Input should be a valid list",
        )
        require(
            blocks or (is_last and role == "assistant"),
            f"messages.{place}: all messages must have non-empty content except for the optional final assistant message",
        )
        for index, block in enumerate(map(as_mapping, blocks)):
            self._add_block(f"messages.{place}.content.{index}", block)
            self.digest = _digest(
                self.digest, {key: value for key, value in block.items() if key != "cache_control"}
            )
        self.place = place

    def end_turn(self) -> None:
        """Check that the calls before a user turn have their results in it."""
        require(
            self.role == "assistant" or not self.calls,
            f"messages.{self.place}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(self.calls)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        )

    def _add_block(self, where: str, block: Mapping[str, Any]) -> None:  # Any: as above
        kind = block.get("type")
        known = _BLOCKS[self.role or "user"]
        require(
            kind in known,
            f"{where}: Input tag {kind!r} found using 'type' does not match any of the expected tags: {', '.join(map(repr, known))}",
        )
        self.takes_results = self.takes_results and kind == "tool_result"
        match kind:
            case "text":
                _check_text(block.get("text"))
            case "tool_use":
                self._add_call(where, block)
            case "tool_result":
                self._add_result(where, block)
            case "thinking":
                self._check_thinking(where, block)
            case "redacted_thinking" if not isinstance(block.get("data"), str):
                refuse(f"{where}.redacted_thinking.data: Field required")
            case _:
                pass

    def _add_call(self, where: str, block: Mapping[str, Any]) -> None:  # Any: as above
        call_id = block.get("id")
        require(
            _matches(_CALL_ID, call_id),
            f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        )
        require(
            _matches(_NAME, block.get("name")),
            f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'",
        )
        require(
            isinstance(block.get("input"), Mapping),
            f"{where}.tool_use.input: Input should be a valid dictionary",
        )
        require(call_id not in self.seen, f"{where}: `tool_use` ids must be unique")
        self.seen.add(str(call_id))
        self.calls.append(str(call_id))

    def _add_result(self, where: str, block: Mapping[str, Any]) -> None:  # Any: as above
        call_id = block.get("tool_use_id")
        require(
            self.takes_results and call_id in self.calls,
            f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. "
            "Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
        )
        self.calls.remove(str(call_id))
        for part in map(as_mapping, as_blocks(block.get("content", []))):
            if part.get("type") == "text":
                _check_text(part.get("text"), is_result=isinstance(block.get("content"), str))

    def _check_thinking(self, where: str, block: Mapping[str, Any]) -> None:  # Any: as above
        text, signature = block.get("thinking"), block.get("signature")
        for name, value in (("thinking", text), ("signature", signature)):
            require(isinstance(value, str), f"{where}.thinking.{name}: Field required")
        signed, _, prefix = str(signature).partition(".")
        require(
            signed == _digest("thinking", text), f"{where}: Invalid `signature` in `thinking` block"
        )
        if self.is_bound and prefix != self.start:
            require(
                self.drops,
                f"{where}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the "
                'block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".',
            )
            self.dropped.append(where)


def _check_text(text: object, *, is_result: bool = False) -> None:
    require(
        isinstance(text, str) and (text or is_result),
        "messages: text content blocks must be non-empty",
    )
    require(
        is_result or str(text).strip(),
        "messages: text content blocks must contain non-whitespace text",
    )


def _check_last_round(messages: Sequence[Any]) -> None:  # Any: as above
    """Check that a turn with tool calls that is going on has thinking in it, as models with a thinking budget require."""
    calling: int | None = None
    for place in range(len(messages) - 1, -1, -1):
        message = as_mapping(messages[place])
        kinds = [as_mapping(block).get("type") for block in as_blocks(message.get("content"))]
        if message.get("role") == "assistant":
            if {"thinking", "redacted_thinking"} & set(kinds) or (
                calling is None and "tool_use" not in kinds
            ):
                return
            calling = place if calling is None else calling
        elif calling is not None and set(kinds) != {"tool_result"}:
            break
    if calling is not None:
        first = as_mapping(as_blocks(messages[calling]["content"])[0]).get("type")
        refuse(
            f"messages.{calling}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`."
        )


def sign_thinking(text: str, prefix: str) -> str:
    """Return the signature of a thinking block: that of its text, and the digest of everything before it."""
    return f"{_digest('thinking', text)}.{prefix}"


def _digest(before: str, *values: object) -> str:
    return blake2b(
        json.dumps([before, *values], sort_keys=True).encode(), digest_size=12
    ).hexdigest()


_STOP_REASONS: Mapping[str, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
"""Finish reason of a step → `stop_reason`. Any other is sent as it is."""

_ERROR_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""HTTP status → the type of the error. Any other is `api_error`."""


def convert_error(answer: HttpAnswer, number: int) -> HttpAnswer:
    """Return an error in OpenAI's form in Anthropic's form. Any other answer stays as it is."""
    error = as_mapping(as_mapping(answer.body).get("error"))
    if set(error) != {"message", "type", "param", "code"}:
        return answer
    details = {} if error["code"] is None else {"details": {"error_code": error["code"]}}
    body: JsonObject = {
        "type": "error",
        "error": {
            "type": _ERROR_TYPES.get(answer.status, "api_error"),
            "message": error["message"],
            **details,
        },
        "request_id": f"req_{number}",
    }
    return attrs.evolve(answer, body=body)


def encode_message(reply: ServerReply, checked: CheckedMessages) -> JsonObject:
    """Encode a reply as a complete message."""
    return {
        **_message_head(reply, checked),
        "content": [_complete_block(block) for block in _iter_blocks(reply, checked)],
        **_encode_stop(reply),
        "usage": _encode_usage(reply),
    }


def encode_message_events(reply: ServerReply, checked: CheckedMessages) -> Iterator[JsonObject]:
    """Encode a reply as the events of a stream."""
    usage = _encode_usage(reply)
    stop = _encode_stop(reply)
    yield {
        "type": "message_start",
        "message": {
            **_message_head(reply, checked),
            "content": list[JsonObject](),
            **dict.fromkeys(stop),
            "usage": {**usage, "output_tokens": 1},
        },
    }
    yield {"type": "ping"}
    for index, block in enumerate(_iter_blocks(reply, checked)):
        empty, deltas = _split_block(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield from (
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        )
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": stop, "usage": usage}
    yield {"type": "message_stop"}


def _encode_stop(reply: ServerReply) -> JsonObject:
    return {
        "stop_reason": _STOP_REASONS.get(reply.finish, reply.finish),
        "stop_sequence": None,
        "stop_details": None,
    }


def _message_head(reply: ServerReply, checked: CheckedMessages) -> JsonObject:
    dropped = [
        {"type": "thinking_dropped", "path": path, "reason": "prefix_binding_mismatch"}
        for path in checked.dropped
    ]
    return {
        "id": f"msg_{reply.number}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        **({"input_transformations": dropped} if dropped else {}),
    }


def _iter_blocks(reply: ServerReply, checked: CheckedMessages) -> Iterator[JsonObject]:
    """Yield the blocks of a reply in order.

    Thinking is signed; the `input` of a tool call is still the text that was scripted.
    """
    calls = {call.id: call for call in reply.message.tool_calls}
    for part in reply.message.content:
        if isinstance(part, str):
            yield {"type": "text", "text": part, "citations": None}
        elif isinstance(part, OpaquePart) and isinstance(part.value, Mapping):
            if part.provider == "anthropic.call" and (
                call := calls.pop(str(part.value.get("call")), None)
            ):
                yield _encode_call(call)
            elif part.provider == "anthropic":
                block: JsonObject = dict(part.value)
                if block.get("type") == "thinking":
                    block["signature"] = sign_thinking(
                        str(block.get("thinking", "")), checked.prefix
                    )
                yield block
    yield from map(_encode_call, calls.values())


def _encode_call(call: ToolCall) -> JsonObject:
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.name,
        "input": call.arguments,
        "caller": {"type": "direct"},
    }


def _complete_block(block: JsonObject) -> JsonObject:
    try:
        return (
            {**block, "input": parse_arguments(block["input"])}
            if block["type"] == "tool_use"
            else block
        )
    except ValueError:
        return {**block, "input": {}}


def _split_block(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """Return the empty block that a stream begins with, and the deltas that fill it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [
                {"type": "text_delta", "text": delta} for delta in split_deltas(block["text"])
            ]
        case "thinking":
            return {**block, "thinking": "", "signature": ""}, [
                *(
                    {"type": "thinking_delta", "thinking": delta}
                    for delta in split_deltas(str(block.get("thinking", "")))
                ),
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use":
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": delta}
                for delta in ("", *split_deltas(block["input"]))
            ]
        case _:
            return block, []


def _encode_usage(reply: ServerReply) -> JsonObject:
    usage = reply.usage
    thinking = sum(part.tokens or 0 for part in reply.message.content if is_thinking(part))
    return {
        "input_tokens": max(0, usage.input_tokens - usage.cached_tokens - usage.written_tokens),
        "cache_creation_input_tokens": usage.written_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        **({"output_tokens_details": {"thinking_tokens": thinking}} if thinking else {}),
    }


def _check_messages(exchange: Exchange) -> None:
    exchange.checked = check_messages(
        exchange.body, exchange.headers, counts=exchange.path == COUNT_TOKENS
    )


MESSAGES_API = Api(
    check=_check_messages,
    refuse_size=lambda tokens, _, window: (
        api_error(400, f"prompt is too long: {tokens} tokens > {window} maximum")
        if tokens > window
        else None
    ),
    write=lambda exchange, reply: encode_message(
        reply, exchange.checked or CheckedMessages(prefix="")
    ),
    write_events=lambda exchange, reply: write_named_events(
        encode_message_events(reply, exchange.checked or CheckedMessages(prefix=""))
    ),
    convert_error=convert_error,
    cuts_at_window=True,
)
