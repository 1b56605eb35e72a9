"""The requests and answers of a server, for tests to write and to look at: its script, with replies of a model, HTTP errors and faults of the connection, and the record of each request and its answer.

A request to any API is also shown in the form of Chat Completions, so that there is one way to
count, cache and read all of them. A script can be a file, for a server that runs as a program.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override
from cattrs.v import format_exception

from promptkit.messages import Json, Message, ToolCall, Usage, as_mapping, as_sequence
from promptkit.providers import Reply
from promptkit.providers.model import PURPOSE_HEADER
from promptkit.reprs import describe_fields
from promptkit.testing.scripted_model import read_message

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
INPUT_TOKENS = "/v1/responses/input_tokens"
COMPACT = "/v1/responses/compact"
MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
MODELS = "/v1/models"


@attrs.frozen(kw_only=True)
class CheckedMessages:
    """What the answer to a request depends on besides its text."""

    prefix: str
    """A digest of everything in the request, to which the thinking of the reply is bound."""
    dropped: tuple[str, ...] = ()
    """The places of thinking blocks that are left out, since what is before them has changed."""


@attrs.define(eq=False, slots=False)
class Exchange:
    """A request, and its answer as far as it was sent."""

    number: int
    """From 1, in the order in which the requests arrived."""
    method: str
    path: str
    headers: Mapping[str, str]
    """Headers by their names in lower case."""
    client: tuple[str, int]
    """Address and port of the client: one pair for each connection."""
    raw: bytes = attrs.field(repr=False)
    """The body in bytes."""
    body: Mapping[str, Json] = attrs.field(factory=dict[str, "Json"], repr=False)
    """The parsed body; empty if it is no JSON object."""
    status: int | None = None
    """The HTTP status of the answer; None before it is sent, and if the connection ended without
    one."""
    usage: Usage | None = None
    """The usage that the answer reported."""
    problem: str | None = None
    """Why the request was refused as ill-formed."""
    fault: str | None = None
    """The class name of the fault that was applied."""

    seconds_between: float = attrs.field(default=0, repr=False)
    """Seconds before each event of a streamed answer, by a `Delay`."""
    checked: CheckedMessages | None = attrs.field(default=None, repr=False)
    """For Anthropic's API: the places of thinking blocks that were left out, and what the thinking
    of the reply is bound to."""

    __repr__ = describe_fields

    @cached_property
    def chat(self) -> dict[str, Any]:  # Any: JSON
        """The body in the form of Chat Completions, whichever API was called."""
        if self.path.startswith(MESSAGES):
            return convert_messages_to_chat(self.body)
        return convert_to_chat(self.body) if self.path.startswith(RESPONSES) else dict(self.body)

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:  # Any: JSON
        """The messages in the form of Chat Completions, whichever API was called."""
        return [as_mapping(message) for message in as_sequence(self.chat.get("messages"))]

    @property
    def text(self) -> str:
        """The text of the last message."""
        return extract_text(self.messages[-1].get("content")) if self.messages else ""

    @property
    def purpose(self) -> str | None:
        """The purpose that the request's header names, such as `compaction`; None for a request of the conversation."""
        return self.headers.get(PURPOSE_HEADER.lower())

    @property
    def stream(self) -> bool:
        """Whether the client asked for a stream."""
        return self.body.get("stream") is True


@attrs.frozen(kw_only=True)
class Stats:
    """What a server has counted so far.

    Tokens are those of the requests that the model answered.
    """

    requests: int = 0
    answered: int = 0
    """Requests that were answered by a step, a rule or the function after the script."""
    invalid: int = 0
    """Requests that were refused because the real endpoint would refuse them."""
    overflows: int = 0
    """Requests that were refused because they do not fit the window."""
    faults: int = 0
    """Requests that were answered by a fault. An answer that a `Delay` delays is none; no answer at
    all, an error and a broken body are."""
    beyond_script: int = 0
    """Requests that were refused because the script was used up."""
    input_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    """Input tokens that were written to the prompt cache, as far as the API reports them."""
    written_1h_tokens: int = 0
    """The part of them that the cache keeps for an hour."""
    output_tokens: int = 0

    __repr__ = describe_fields

    @property
    def cached_share(self) -> float:
        """The share of input tokens that the prompt cache had, from 0 to 1; 0 if there were none."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0


def convert_to_chat(body: Mapping[str, Json]) -> dict[str, Any]:  # Any: JSON
    """Convert a Responses API request to Chat Completions, with the same text, calls, results and tools; other items become text."""
    instructions = body.get("instructions")
    messages: list[dict[str, Any]] = (  # Any: as above
        [{"role": "system", "content": instructions}] if instructions else []
    )
    for item in list_items(body):
        _append_item(messages, item)
    return {
        "model": body.get("model"),
        "messages": messages,
        "tool_choice": body.get("tool_choice"),
        "tools": [
            {
                "type": "function",
                "function": {
                    key: tool[key]
                    for key in ("name", "description", "parameters", "strict")
                    if key in tool
                },
            }
            for tool in map(as_mapping, as_sequence(body.get("tools")))
        ],
    }


def list_items(body: Mapping[str, Json]) -> list[Mapping[str, Any]]:  # Any: as above
    """List the items of a Responses API request; a text is one message of the user."""
    sent = body.get("input")
    return [
        *map(
            as_mapping,
            [{"role": "user", "content": sent}] if isinstance(sent, str) else as_sequence(sent),
        )
    ]


def _append_item(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:  # Any: as above
    match item.get("type", "message"):
        case "message":
            messages.append(
                {"role": item.get("role"), "content": convert_content(item.get("content"))}
            )
        case "function_call":
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            messages[-1].setdefault("tool_calls", []).append(
                {
                    "id": item.get("call_id"),
                    "type": "function",
                    "function": {"name": item.get("name"), "arguments": item.get("arguments")},
                }
            )
        case "function_call_output":
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": item.get("call_id"),
                    "content": convert_content(item.get("output")),
                }
            )
        case _:  # reasoning and compaction items
            texts = (
                extract_text(item.get("summary")),
                extract_text(item.get("content")),
                _decode_encrypted(item.get("encrypted_content")),
            )
            messages.append({"role": "assistant", "content": "".join(texts)})


def convert_content(content: object) -> object:
    """Convert the content of a message of any API to that of Chat Completions; thinking becomes text."""
    return (
        content
        if isinstance(content, str)
        else [_convert_part(as_mapping(part)) for part in as_sequence(content)]
    )


def _convert_part(part: Mapping[str, Any]) -> Mapping[str, Any]:  # Any: as above
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": part.get("text")}
        case "thinking" | "redacted_thinking":
            return {"type": "text", "text": part.get("thinking", "")}
        case "input_image":
            return {
                "type": "image_url",
                "image_url": {"url": part.get("image_url"), "detail": part.get("detail", "auto")},
            }
        case "image":
            source = as_mapping(part.get("source"))
            data = f"data:{source.get('media_type')};base64,{source.get('data')}"
            return {"type": "image_url", "image_url": {"url": source.get("url") or data}}
        case _:
            return part


def extract_text(content: object) -> str:
    """Extract the text of a message's content, in the form of either API."""
    return (
        content
        if isinstance(content, str)
        else "".join(
            text
            for part in map(as_mapping, as_sequence(content))
            if isinstance(text := part.get("text", part.get("refusal")), str)
        )
    )


def _decode_encrypted(encrypted: object) -> str:
    """Decode an `encrypted_content` that this server made; return that of others as it is."""
    if not isinstance(encrypted, str):
        return ""
    try:
        return base64.b64decode(encrypted, validate=True).decode()
    except ValueError:
        return encrypted


# Any stands for as above
def list_blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the block of everything that may have a cache breakpoint, in the order of the prompt: tools, system, messages."""
    yield from (
        (f"tools.{place}", as_mapping(tool))
        for place, tool in enumerate(as_sequence(body.get("tools")))
    )
    yield from (
        (f"system.{place}", as_mapping(block))
        for place, block in enumerate(as_blocks(body.get("system")))
    )
    for place, message in enumerate(map(as_mapping, as_sequence(body.get("messages")))):
        yield from (
            (f"messages.{place}.content.{index}", as_mapping(block))
            for index, block in enumerate(as_blocks(message.get("content")))
        )


def as_blocks(content: object) -> Sequence[Any]:  # Any: as above
    """Return the blocks of a content; a text is one block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else as_sequence(content)


def convert_messages_to_chat(body: Mapping[str, Any]) -> dict[str, Any]:  # Any: as above
    """Convert a request to the form of Chat Completions, with the same text, calls, results and tools; thinking becomes text."""
    system = body.get("system")
    messages: list[dict[str, Any]] = (  # Any: as above
        [{"role": "system", "content": convert_content(system)}] if system else []
    )
    for message in map(as_mapping, as_sequence(body.get("messages"))):
        blocks = [as_mapping(block) for block in as_blocks(message.get("content"))]
        messages += (
            {
                "role": "tool",
                "tool_call_id": block.get("tool_use_id"),
                "content": convert_content(block.get("content", "")),
            }
            for block in blocks
            if block.get("type") == "tool_result"
        )
        content = convert_content(
            [block for block in blocks if block.get("type") not in {"tool_use", "tool_result"}]
        )
        calls = [
            {
                "id": block.get("id"),
                "type": "function",
                "function": {
                    "name": block.get("name"),
                    "arguments": json.dumps(block.get("input"), ensure_ascii=False),
                },
            }
            for block in blocks
            if block.get("type") == "tool_use"
        ]
        if content or calls:
            messages.append(
                {
                    "role": message.get("role"),
                    "content": content or None,
                    **({"tool_calls": calls} if calls else {}),
                }
            )
    return {
        "model": body.get("model"),
        "messages": messages,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": tool.get("name"),
                    "parameters": tool.get("input_schema"),
                    **({"description": tool["description"]} if "description" in tool else {}),
                },
            }
            for tool in map(as_mapping, as_sequence(body.get("tools")))
        ],
    }


@attrs.frozen(kw_only=True)
class ScriptedReply:
    """A reply of the model. What is omitted is derived from the message and the request."""

    message: Message
    finish: str | None = None
    """The finish reason. Default: `tool_calls` if there are calls, `length` if the request's limit
    cut the text, otherwise `stop`."""
    usage: Usage | None = None
    """Default: counted by promptkit."""


@attrs.frozen(kw_only=True)
class HttpAnswer:
    """Any HTTP answer. A text is sent as it is, another `body` as JSON; None is an empty body."""

    status: int
    body: Json = None
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen(kw_only=True)
class Delay:
    """Delay an answer, or the events of a streamed one. Without an `answer` the regular one is delayed."""

    seconds: float = 0
    """Seconds before the answer begins."""
    between: float = 0
    """Seconds before each event of the answer, if the client asked for a stream."""
    answer: Step | None = None


@attrs.frozen(kw_only=True)
class Hang:
    """Send nothing for as long as the client waits."""


@attrs.frozen(kw_only=True)
class ConnectionReset:
    """Reset the connection in the middle of the body."""


@attrs.frozen(kw_only=True)
class TruncatedBody:
    """End the body in the middle: a stream without its last events, properly closed; another body shorter than its Content-Length."""


@attrs.frozen(kw_only=True)
class MalformedBody:
    """Send status 200 with broken JSON as the body, or as the first event of a stream."""


Fault: TypeAlias = HttpAnswer | Delay | Hang | ConnectionReset | TruncatedBody | MalformedBody
"""A fault of one request."""

Answer: TypeAlias = str | ToolCall | Sequence[ToolCall] | Message | Reply | ScriptedReply | Fault
"""One answer: text, tool calls, an assistant message, a reply with its usage, or a fault."""

Step: TypeAlias = Answer | Callable[[Exchange], Answer]
"""One step of a script: an answer, or a function that takes the request and returns the answer,
called in the connection's thread."""


@attrs.frozen(kw_only=True)
class Rule:
    """Answers all requests that match, in place of the script."""

    match: str | Callable[[Exchange], bool]
    """A regular expression that is searched in the text of the last message, or a function of the
    request."""
    answer: Step
    """The answer. A tool call with an empty id gets a new one for each request."""


def api_error(
    status: int,
    message: str,
    *,
    code: str | None = None,
    kind: str = "invalid_request_error",
    param: str | None = None,
) -> HttpAnswer:
    """Build an error in the form of the API that is called.

    Args:
        status: The HTTP status.
        message: The error's text.
        code: The error's code, such as `context_length_exceeded`.
        kind: The error's `type`.
        param: The parameter that is wrong.
    """
    return HttpAnswer(
        status=status,
        body={"error": {"message": message, "type": kind, "param": param, "code": code}},
    )


def rate_limit_error(retry_after: float | None = None) -> HttpAnswer:
    """Build the error 429, with the header `Retry-After` if seconds are passed."""
    return attrs.evolve(
        api_error(
            429,
            "Rate limit reached for requests per min (RPM): Limit 3, Used 3, Requested 1.",
            code="rate_limit_exceeded",
            kind="requests",
        ),
        headers={} if retry_after is None else {"Retry-After": f"{retry_after:g}"},
    )


def server_error(status: int = 500) -> HttpAnswer:
    """Build the error of a server that fails."""
    return api_error(
        status,
        "The server had an error while processing your request. Sorry about that!",
        kind="server_error",
    )


def echo(exchange: Exchange) -> str:
    """Return the text of the last message."""
    return exchange.text or "(no text)"


def normalize_answer(answer: Answer) -> ScriptedReply | Fault:
    """Convert an answer to a ScriptedReply or a fault. Raises TypeError for any other value."""
    match answer:
        case (
            ScriptedReply()
            | HttpAnswer()
            | Delay()
            | Hang()
            | ConnectionReset()
            | TruncatedBody()
            | MalformedBody()
        ):
            return answer
        case Reply():
            return ScriptedReply(message=answer.message, finish=answer.finish, usage=answer.usage)
        case _ if message := read_message(answer):
            return ScriptedReply(message=message)
        case _:
            raise TypeError(
                f"an answer must be text, a ToolCall or several, an assistant Message, a Reply, a ScriptedReply or a fault, not {answer!r}."
            )


@attrs.frozen(kw_only=True)
class Script:
    """The content of a script file, as arguments of `serve`."""

    steps: tuple[Answer, ...] = ()
    rules: tuple[Rule, ...] = ()
    faults: dict[int, Fault] = attrs.field(factory=dict[int, Fault])
    after: Callable[[Exchange], Answer] | None = None


def read_script(path: Path) -> Script:
    """Read a script: a list of steps, or an object with `steps`, `rules`, `faults` and `after`.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is no script. The message has one line and names the place.
    """
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the file is no valid JSON ({error}).") from error
    try:
        return _converter.structure({"steps": data} if isinstance(data, list) else data, Script)
    except (cattrs.BaseValidationError, TypeError) as error:
        problems = cattrs.transform_error(
            error,
            format_exception=lambda error, kind: (
                str(error)
                if isinstance(error, ValueError) and "fault" in str(error)
                else format_exception(error, kind)
            ),
        )
        raise ValueError(f"{path}: {'; '.join(problems)}.") from error


@attrs.frozen(kw_only=True)
class _Reply:
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: Literal["stop", "tool_calls", "length", "content_filter"] | None = None
    usage: Usage | None = None


@attrs.frozen(kw_only=True)
class _RateLimited:
    retry_after: float | None = None


@attrs.frozen(kw_only=True)
class _ServerError:
    status: int = 500


_converter = cattrs.Converter(forbid_extra_keys=True)

FAULTS: Mapping[str, Callable[[Mapping[str, object]], Fault]] = {
    "delay": lambda fields: _converter.structure(fields, Delay),
    "hang": lambda fields: _converter.structure(fields, Hang),
    "http": lambda fields: _converter.structure(fields, HttpAnswer),
    "malformed": lambda fields: _converter.structure(fields, MalformedBody),
    "rate_limited": lambda fields: rate_limit_error(
        _converter.structure(fields, _RateLimited).retry_after
    ),
    "reset": lambda fields: _converter.structure(fields, ConnectionReset),
    "server_error": lambda fields: server_error(_converter.structure(fields, _ServerError).status),
    "truncated": lambda fields: _converter.structure(fields, TruncatedBody),
}
"""Value of `"fault"` in a script file → a function that reads its other keys."""


def _convert_fault(value: object, _: object) -> Fault:
    fields = dict(as_mapping(value))
    kind = fields.pop("fault", None)
    if not isinstance(kind, str) or kind not in FAULTS:
        raise ValueError(f"a fault must be one of {', '.join(FAULTS)}, not {kind!r}")
    return FAULTS[kind](fields)


def _convert_answer(value: object, kind: object) -> Answer:
    if isinstance(value, str):
        return value
    if "fault" in as_mapping(value):
        return _convert_fault(value, kind)
    if not (as_mapping(value) or value == {}):
        raise ValueError(f"an answer must be text, a reply or a fault, not {value!r}")
    reply = _converter.structure(value, _Reply)
    return ScriptedReply(
        message=Message(role="assistant", content=reply.text, tool_calls=reply.tool_calls),
        finish=reply.finish,
        usage=reply.usage,
    )


for _kind in (Answer, Step, Step | None):
    _converter.register_structure_hook(_kind, _convert_answer)
_converter.register_structure_hook(Fault, _convert_fault)
_structure_call = make_dict_structure_fn(
    ToolCall,
    _converter,
    arguments=override(
        struct_hook=lambda value, _: value if isinstance(value, str) else json.dumps(value)
    ),
)
_converter.register_structure_hook(
    ToolCall, lambda value, kind: _structure_call({"id": "", **as_mapping(value)}, kind)
)
_After = Literal["echo", "refuse"]
_read_after = _converter.get_structure_hook(_After)
_plain = override(struct_hook=lambda value, _: value)
_converter.register_structure_hook(
    HttpAnswer, make_dict_structure_fn(HttpAnswer, _converter, body=_plain)
)
_converter.register_structure_hook(Rule, make_dict_structure_fn(Rule, _converter, match=_plain))
_converter.register_structure_hook(
    Script,
    make_dict_structure_fn(
        Script,
        _converter,
        after=override(
            struct_hook=lambda value, _: echo if _read_after(value, _After) == "echo" else None
        ),
    ),
)
