"""Anthropic's Messages API as JSON, without the SDK: build the bodies of requests of the settings that a model accepts, and collect the events of a streamed reply.

The API refuses a setting that the model does not have with 400, and which it has changes from
generation to generation. It is read from the model's name. The facts are those of Anthropic's pages
"Thinking", "Effort", "Preserved thinking" and "What's new" of each model, of October 2026. Every field
of a reply is checked before it is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import filterfalse, groupby
from typing import Any, Literal, TypeAlias, TypeGuard

import attrs

from promptkit.errors import (
    ContextLengthExceededError,
    EmptyReplyError,
    InvalidArgumentError,
    ModelUnavailableError,
)
from promptkit.messages import (
    Json,
    Message,
    OpaquePart,
    Part,
    ToolCall,
    ToolDefinition,
    Usage,
    as_mapping,
    as_wire_object,
)
from promptkit.providers.model import (
    WINDOW_FULL,
    Effort,
    Finish,
    ModelOptions,
    Reply,
    as_tokens,
    count_reasoning,
    parse_call,
)
from promptkit.tokens.models import describe_model
from promptkit.wire.anthropic import mark_prefix, mark_tools, to_anthropic, tools_to_anthropic
from promptkit.wire.parts import (
    AssistantContent,
    begin_with_user,
    omit_fields,
    parse_arguments,
    read_content,
    replace_lone_surrogates,
)

# Any: the SDK declares the values as TypedDicts, and tests check each body against these
Body: TypeAlias = dict[str, Any]

BINDING_BETA = "thinking-binding-controls-2026-08-01"
"""The value of the header `anthropic-beta` with which a request may say what becomes of thinking
blocks that do not fit any more."""

_THINKING_BUDGETS: Mapping[Effort, int] = {
    "minimal": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 24_576,
    "max": 31_999,
}
"""Effort → tokens of thinking, for models that have a budget for it."""

_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
"""Characters that the API refuses in the id of a tool call."""

_MIN_BUDGET = 1_024
"""The least tokens of thinking that the API accepts."""

_TOOL_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "required": "any"}
"""Values of the option `tool_choice` that are not the name of a tool → the type that the API calls
them by."""


def build_body(
    name: str, messages: Sequence[Message], tools: Sequence[ToolDefinition], options: ModelOptions
) -> Body:
    """Build the body for `client.messages.create(**body)`.

    Args:
        name: The model's name.
        messages: The messages of the request.
        tools: The tools that the model may call.
        options: The options of the request. `temperature` and `prompt_cache_key` are not sent: the
            API has neither.

    Raises:
        EmitError: The format cannot hold a message.
    """
    known = capabilities_of(name)
    if count := options.get("cache_messages", 0):
        messages = mark_prefix(messages, count, options.get("cache_ttl"))
    body: Body = {
        "model": name,
        "max_tokens": options.get("max_output_tokens", default_output_tokens(name)),
    }
    if tools:
        body["tools"] = tools_to_anthropic(tools)
        if count and options.get("cache_breakpoints", True):
            mark_tools(body["tools"], messages)
        body |= _choose_tool(options, known)
    body |= _build_thinking(
        messages,
        options.get("reasoning_effort"),
        known,
        limit=body["max_tokens"],
        is_forced=body.get("tool_choice", {}).get("type") in {"any", "tool"},
    )
    if options.get("reasoning_effort") == "none" and known.off is not None:
        # which the API asks for where thinking is off
        messages = [
            attrs.evolve(message, content=[*filterfalse(is_thinking, message.content)])
            for message in messages
        ]
    sent = [_repair(message) for message in replace_lone_surrogates(begin_with_user(messages))]
    return body | to_anthropic(sent, cache=options.get("cache_breakpoints", True))


def beta_headers(body: Body) -> dict[str, str]:
    """Return the headers without which the API does not know all parameters of a body.

    Most bodies need none.
    """
    return {"anthropic-beta": BINDING_BETA} if "block_binding" in body.get("thinking", {}) else {}


def _choose_tool(options: ModelOptions, known: Capabilities) -> Body:
    choice = options.get("tool_choice")
    sequential = options.get("parallel_tool_calls") is False
    if choice is None and not sequential:
        return {}
    kind = _TOOL_CHOICES.get(choice or "auto", "tool")
    if kind in {"any", "tool"} and not known.forced_calls:
        kind = "auto"  # otherwise the API answers 400
    return {
        "tool_choice": {
            "type": kind,
            **({"name": choice} if kind == "tool" else {}),
            **({"disable_parallel_tool_use": True} if sequential and kind != "none" else {}),
        }
    }


def _build_thinking(
    messages: Sequence[Message],
    effort: Effort | None,
    known: Capabilities,
    *,
    limit: int,
    is_forced: bool,
) -> Body:
    """Build the parameters that decide how much the model thinks.

    Args:
        messages: The messages of the request.
        effort: The effort that was asked for. None leaves it to the provider.
        known: The settings that the model accepts.
        limit: The output limit in tokens, which thinking counts toward.
        is_forced: Whether the request forces a tool call.
    """
    # Compaction, pruning and edits change what is before a thinking block. The provider then leaves
    # the block out.
    binding = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}} if known.bound else {}
    if effort is None:
        return {"thinking": {"type": "adaptive", **binding}} if binding else {}
    if effort == "none" and known.off is not None:
        return {"thinking": {"type": known.off}}
    if known.thinking == "adaptive":
        return {
            "thinking": {"type": "adaptive", **binding},
            "output_config": {"effort": nearest_effort(effort, known)},
        }
    budget = min(_THINKING_BUDGETS[effort], limit // 2)
    # These models refuse thinking together with a forced call, and in a round of tool calls that
    # began without it.
    is_off = budget < _MIN_BUDGET or is_forced or _calls_without_thinking(messages)
    return {} if is_off else {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _calls_without_thinking(messages: Sequence[Message]) -> bool:
    """Return whether the messages end with a round of tool calls that the model made without thinking anywhere in its turn."""
    in_turn = False
    for message in reversed(messages):
        if message.role == "assistant":
            if any(map(is_thinking, message.content)) or not (in_turn or message.tool_calls):
                return False
            in_turn = True
        elif message.role == "user" and in_turn:
            break
    return in_turn


def is_thinking(part: Part) -> TypeGuard[OpaquePart]:
    """Return whether a part is a thinking block of Anthropic, readable or not."""
    value = part.value if isinstance(part, OpaquePart) and part.provider == "anthropic" else None
    return isinstance(value, Mapping) and value.get("type") in {"thinking", "redacted_thinking"}


def _repair(message: Message) -> Message:
    """Return the message with tool calls that can be sent, whichever model made them.

    Other messages stay the same objects.

    An id gets `_` for characters that the API refuses in ids. Arguments that are not a JSON object
    become the only value of one: the result of the call says that they are wrong, and without this
    no later request could be made.
    """
    if message.tool_call_id is not None:
        call_id = _ID_CHARACTER.sub("_", message.tool_call_id)
        return (
            message
            if call_id == message.tool_call_id
            else attrs.evolve(message, tool_call_id=call_id)
        )
    calls = tuple(map(_repair_call, message.tool_calls))
    return message if calls == message.tool_calls else attrs.evolve(message, tool_calls=calls)


def _repair_call(call: ToolCall) -> ToolCall:
    try:
        parse_arguments(call.arguments)
        arguments = call.arguments
    except ValueError:
        arguments = json.dumps({"arguments": call.arguments})
    return attrs.evolve(call, id=_ID_CHARACTER.sub("_", call.id), arguments=arguments)


@attrs.frozen(kw_only=True)
class Capabilities:
    """The settings that a model accepts."""

    thinking: Literal["budget", "adaptive"] = "adaptive"
    """How thinking is asked for: with a number of tokens, or with an effort, by which the model
    decides itself."""

    off: Literal["disabled", "between_tools"] | None = None
    """The value of `thinking.type` that switches thinking off. None: it always thinks."""

    efforts: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
    """The efforts that it knows, the lowest first."""

    forced_calls: bool = True
    """Whether a request may force a tool call."""

    prefill: bool = False
    """Whether the last message may be the beginning of its reply."""

    bound: bool = False
    """Whether a thinking block is refused once anything before it has changed ("preserved
    thinking")."""


_VERSION = re.compile(
    r"claude-(?:(?P<family>[a-z]+)-)?(?P<major>\d{1,2})(?!\d)(?:[-.](?P<minor>\d{1,2})(?!\d))?"
)
"""The family and the version in names such as `claude-opus-5-5`, `claude-3-7-sonnet-20250219` and
`us.anthropic.claude-haiku-4-5-v1:0`."""

_EFFORT_ORDER: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

_GENERATIONS: tuple[tuple[tuple[int, int], frozenset[str], Capabilities], ...] = (
    ((5, 1), frozenset({"haiku"}), Capabilities(off="disabled", bound=True)),
    (
        (5, 1),
        frozenset({"sonnet"}),
        Capabilities(off="between_tools", forced_calls=False, bound=True),
    ),
    ((5, 1), frozenset(), Capabilities(forced_calls=False, bound=True)),
    ((4, 7), frozenset({"fable", "mythos"}), Capabilities()),
    ((4, 7), frozenset(), Capabilities(off="disabled")),
    ((4, 6), frozenset(), Capabilities(off="disabled", efforts=("low", "medium", "high", "max"))),
    (
        (0, 0),
        frozenset(),
        Capabilities(thinking="budget", off="disabled", efforts=(), prefill=True),
    ),
)
"""The first version, the families (empty: all others), and what they accept, the newest first."""

_OUTPUT_TOKENS, _UNKNOWN_OUTPUT_TOKENS = 32_000, 8_192
"""The output limits of a request that sets none: of models that are known, and of others, which may
not accept more."""


def capabilities_of(name: str) -> Capabilities:
    """Return the settings that a model accepts.

    A name without a version, such as that of another maker's model, gets what most accept.
    """
    match = _VERSION.search(name)
    if match is None:
        return Capabilities(off="disabled")
    family, version = match["family"], (int(match["major"]), int(match["minor"] or 0))
    return next(
        known
        for first, families, known in _GENERATIONS
        if version >= first and (not families or family in families)
    )


def nearest_effort(effort: Effort, known: Capabilities) -> Effort:
    """Return the effort itself if the model knows it, otherwise the next lower one, or else its lowest."""
    order = _EFFORT_ORDER.index
    lower: list[Effort] = [each for each in known.efforts if order(each) <= order(effort)]
    return lower[-1] if lower else known.efforts[0]


def default_output_tokens(name: str) -> int:
    """Return the output limit of a request that sets none, in tokens: 32,000, or the most that the model can write; 8,192 for other models."""
    known = describe_model(name).max_output_tokens
    return _UNKNOWN_OUTPUT_TOKENS if known is None else min(known, _OUTPUT_TOKENS)


FINISHES: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    WINDOW_FULL: "length",
    # the provider interrupted its own tools, and goes on when it is asked again
    "pause_turn": "length",
    "refusal": "content_filter",
}
"""Stop reason → finish reason."""


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


_CALL_FIELDS = ("type", "id", "name", "input", "partial_json")
"""The fields of a tool call that it has a place for."""


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
        for is_call, run in groupby(
            (block.build() for _, block in sorted(self._blocks.items())),
            key=lambda fields: fields.get("type") == "tool_use",
        ):
            if not is_call:
                content: list[Json] = [*run]
                answer.add_parts(read_content(content, "anthropic", "the reply", attachments=False))
                continue
            for fields in run:
                is_direct = as_mapping(fields.get("caller")).get("type") == "direct"
                more = omit_fields(fields, *_CALL_FIELDS, *(("caller",) if is_direct else ()))
                written = fields.get("partial_json") or json.dumps(
                    fields.get("input") or {}, ensure_ascii=False
                )
                if call := parse_call(fields.get("id"), {**fields, "arguments": str(written)}):
                    answer.add_call(call, more)
        return count_thinking(
            Message(role="assistant", content=tuple(answer.parts), tool_calls=tuple(answer.calls)),
            self._usage,
        )

    def _empty_error(self, usage: Usage) -> ContextLengthExceededError | EmptyReplyError:
        if self._reason == WINDOW_FULL:
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
