"""The script of a server: replies of a model, HTTP errors, faults of the connection, and files with them, for a server that runs as a program."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override
from cattrs.v import format_exception

from promptkit import Message, ToolCall, Usage
from promptkit.messages import Json, as_mapping
from promptkit.providers import Reply
from promptkit.testing.scripted_model import read_message
from promptkit.testing.server.journal import Exchange


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
        raise ValueError(
            f"{path}: {'; '.join(cattrs.transform_error(error, format_exception=_describe_error))}."
        ) from error


def _describe_error(error: BaseException, kind: type | None) -> str:
    return (
        str(error)
        if isinstance(error, ValueError) and "fault" in str(error)
        else format_exception(error, kind)
    )


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
